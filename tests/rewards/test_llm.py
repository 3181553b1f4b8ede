"""A model as the critic, over HTTP: what it is asked, what its words come to, and what bad replies cost."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from collab.envs.grammar import MOBILE
from collab.errors import ConfigError, ModelFailure
from collab.library import find_builtin_root
from collab.models.openai import OpenAIModel
from collab.models.rehearsal import RehearsalModel
from collab.rewards.base import ABSENT, NO_NUMBER, OUT_OF_RANGE, UNREAD, CriticInput, Judgement, build_inputs
from collab.rewards.llm import (
    CUT,
    ROUNDLESS,
    STRAY,
    TOO_LONG,
    TWICE,
    CriticPrompts,
    LanguageCritic,
    build_questions,
    permute_names,
    read_critic_prompts,
    read_scores,
)
from collab.rewards.structured_replies import PartlyAnswered, find_first_failure, hash_prompt
from collab.testing.fake_server import FakeServer, Fault
from collab.testing.scripted import ScriptedModel
from collab.types import CellRef, Prompt, Sampling

TEXTS = read_critic_prompts(find_builtin_root() / "prompts" / "critic")
Asked = list[dict[str, Any]]
"""Proposals as they stand in a prompt."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")


def proposals(body: Mapping[str, Any]) -> Asked:
    return [json.loads(line) for line in re.findall(r'^\{"agent".*\}$', body["messages"][-1]["content"], re.MULTILINE)]


def scores(asked: Asked, score: Callable[[dict[str, Any]], object]) -> str:
    return json.dumps({"scores": [{**one, "score": score(one), "reason": f"on {one['action']}"} for one in asked]})


def judge(
    case: CriticInput, says: Callable[[Asked], str], *faults: Fault, **options: Any
) -> tuple[Judgement, FakeServer]:
    with FakeServer(says=lambda body: says(found) if (found := proposals(body)) else "ok") as server:
        return asyncio.run(_judge(case, server, faults, options)), server


async def _judge(
    case: CriticInput, server: FakeServer, faults: tuple[Fault, ...], options: dict[str, Any]
) -> Judgement:
    model = OpenAIModel(model="fake", base_url=server.url, retries=0)
    await model.probe()
    server.requests.clear()
    server.faults.extend(faults)
    try:
        return await LanguageCritic(model=model, texts=TEXTS, **options).judge(case)
    finally:
        await model.close()


@pytest.fixture(scope="module")
def case(phone) -> CriticInput:  # type: ignore[no-untyped-def]
    """A step behind the first whose six cells propose several actions, one of them more than once."""
    suite, _, episodes = phone
    return next(
        case
        for episode in episodes
        for case in build_inputs(episode, suite.space)
        if case.history and 1 < len(case.group_proposals()) < len([cell for cell in case.matrix if cell.action])
    )


@pytest.fixture(scope="module")
def twelve(case: CriticInput) -> CriticInput:
    """The same step with twelve cells that all propose something else."""
    cells = tuple(
        replace(
            case.matrix.utterances[0],
            agent=agent,
            round=round,
            action=MOBILE.make("input_text", index=0, text=f"{agent}{round}"),
            failure=None,
            reason=f'it is {agent}\'s turn\n{{"agent": "x"}}',
        )
        for round in range(3)
        for agent in ("ada", "ben", "cyd", "dee")
    )
    matrix = replace(case.matrix, agents=("ada", "ben", "cyd", "dee"), rounds=3, utterances=cells)
    return replace(case, matrix=matrix)


# ------------------------------------------------------------------------------------------------- what is asked


def test_it_reads_task_history_screen_and_every_distinct_action_once(case: CriticInput) -> None:
    judgement, server = judge(case, lambda asked: scores(asked, lambda one: 0.75))
    (body,) = server.requests
    asked, text = proposals(body), body["messages"][-1]["content"]
    assert body["temperature"] == 0.1
    assert case.task.goal in text
    assert case.observation.text in text
    assert case.history[-1].action in text
    told = [MOBILE.describe(action, case.observation) for action in case.group_proposals()]
    assert sorted(one["action"] for one in asked) == sorted(told)
    latest = {MOBILE.describe(action, case.observation): cells[-1] for action, cells in case.group_proposals().items()}
    for one in asked:
        assert (one["round"], one["reason"]) == (latest[one["action"]].round + 1, latest[one["action"]].reason)
    for cell, given in zip(case.matrix, judgement.rewards.rewards, strict=True):
        assert given.score == (None if cell.action is None else 0.75)
        assert given.missing == (UNREAD if cell.action is None else None)


def test_equal_actions_share_their_score_and_a_pair_leads_to_the_words(case: CriticInput) -> None:
    def says(asked: Asked) -> str:
        return scores(asked, lambda one: int(one["action"] == asked[0]["action"]))

    judgement, server = judge(case, says)
    (call,) = judgement.calls
    assert call.reply == says(proposals(server.requests[0]))
    assert call.prompt_tokens
    assert call.model == "fake"
    body = server.requests[0]["messages"]
    (prompt,) = LanguageCritic(model=Counting(), texts=TEXTS).build_prompts(case)
    assert (prompt.system, prompt.user) == (body[0]["content"], body[1]["content"])
    assert call.prompt == hash_prompt(prompt)
    for cells in case.group_proposals().values():
        assert len({judgement.of(cell.cell).score for cell in cells}) == 1
        for cell in cells:
            assert judgement.call_of(cell.cell) == call
            assert judgement.of(cell.cell).reason.startswith("on ")
    assert {one.reward for one in judgement.rewards.rewards if one.reward is not None} == {0, 1}


class Counting:
    """Counts tokens roughly; is never asked."""

    privileged = False

    def count_tokens(self, text: str) -> int:
        return len(text) // 4


@pytest.mark.parametrize(("per", "calls"), [("step", 1), ("round", 3)])
@pytest.mark.parametrize("score", ["all", "distinct"])
def test_every_cell_is_scored_in_the_way_that_was_asked_for(
    twelve: CriticInput, per: str, calls: int, score: str
) -> None:
    same = replace(twelve.matrix.utterances[0].action, arguments=(("text", "same"),))
    ada = tuple(
        replace(cell, action=same) if cell.agent == "ada" else cell for cell in twelve.matrix.utterances
    )  # says the same in every round
    case = replace(twelve, matrix=replace(twelve.matrix, utterances=ada))
    judgement, server = judge(case, lambda asked: scores(asked, lambda one: one["round"] / 4), per=per, score=score)
    assert len(server.requests) == len(judgement.calls) == calls
    shown = sum(len(proposals(body)) for body in server.requests)
    assert shown == (10 if (per, score) == ("step", "distinct") else 12)
    got = [judgement.of(CellRef("ada", round)).score for round in range(3)]
    assert got == ([0.75] * 3 if (per, score) == ("step", "distinct") else [0.25, 0.5, 0.75])
    assert [judgement.of(CellRef("ben", round)).reward for round in range(3)] == [0, 0, 1]
    assert sorted(cell for call in judgement.calls for cell in call.cells) == sorted(cell.cell for cell in case.matrix)


def test_names_are_permuted_by_seed_and_scores_find_their_way_back(twelve: CriticInput) -> None:
    """The model scores by what was typed, which names the real agent; wherever the agent is shown, it gets its own."""
    worth = {"ada": 0.1, "ben": 0.2, "cyd": 0.3, "dee": 0.4}

    def says(asked: Asked) -> str:
        return scores(asked, lambda one: next(score for name, score in worth.items() if name in one["action"]))

    shown = set()
    for seed in range(8):
        judgement, _ = judge(twelve, says, seed=seed)
        assert all(one.score == worth[one.cell.agent] for one in judgement.rewards.rewards)
        shown.add(tuple(judgement.calls[0].shown[name] for name in worth))
        assert sorted(judgement.calls[0].shown.values()) == sorted(worth)
    assert len(shown) > 3
    plain, _ = judge(twelve, says, permute=False)
    assert plain.calls[0].shown == {name: name for name in worth}


def test_over_many_seeds_every_agent_is_shown_under_every_name() -> None:
    """No position is anyone's own: 600 draws for three agents, 200 expected in each of nine places (sd 11.5)."""
    drawn = Counter(pair for seed in range(600) for pair in permute_names(("ada", "ben", "cyd"), seed).items())
    assert len(drawn) == 9
    assert all(abs(count - 200) < 70 for count in drawn.values())


def test_the_permutation_depends_on_names_alone() -> None:
    assert permute_names(("ada", "ben", "cyd"), 4) == permute_names(("cyd", "ada", "ben"), 4)


# --------------------------------------------------------------------------------------------------- bad replies


def missing_of(judgement: Judgement) -> Counter[str]:
    assert all(one.reward is None for one in judgement.rewards.rewards if one.missing)
    return judgement.missing


def test_eleven_of_twelve_scores_leave_one_missing(twelve: CriticInput) -> None:
    judgement, _ = judge(twelve, lambda asked: scores(asked[:7] + asked[8:], lambda one: 0.9), permute=False)
    assert missing_of(judgement) == {ABSENT: 1}
    assert [one.cell for one in judgement.rewards.rewards if one.missing] == [CellRef("dee", 1)]
    assert sum(one.reward == 1 for one in judgement.rewards.rewards) == 11


def test_scores_that_are_none_are_missing_each_for_its_cause(twelve: CriticInput) -> None:
    bad = [1.0001, -0.1, "0,9", True, None, 7, [0.5], "high"]

    def says(asked: Asked) -> str:
        worth = dict(zip([(one["agent"], one["round"]) for one in asked], [*bad, 0, 1, 0.5, 0.51], strict=True))
        return scores(asked, lambda one: worth[one["agent"], one["round"]])

    judgement, _ = judge(twelve, says, permute=False)
    assert missing_of(judgement) == {OUT_OF_RANGE: 3, NO_NUMBER: 4, ABSENT: 1}
    assert [one.reward for one in judgement.rewards.rewards][-4:] == [0, 1, 0, 1]


def test_scores_of_rounds_that_are_counted_from_0_are_nobodys(twelve: CriticInput) -> None:
    """Counted from 0, two of three rounds would be taken for others."""

    def says(asked: Asked) -> str:
        return scores([{**one, "round": one["round"] - 1} for one in asked], lambda one: 0.9)

    judgement, _ = judge(twelve, says, permute=False)
    assert set(missing_of(judgement)) == {STRAY}
    assert judgement.silent


def test_what_is_said_of_other_rounds_and_agents_costs_nothing(twelve: CriticInput) -> None:
    """A question may be about the last round alone, and a reply may echo the example of the prompt."""
    found, asked = asked_about(twelve)
    last = [one for one in found if one.round == 3]
    more = [*asked, {"agent": "…", "round": 0, "action": "x"}]
    assert [word.score for word in read_scores(scores(more, lambda one: 0.9), last)] == [0.9] * len(last)


def test_agents_whose_names_differ_in_case_alone_are_told_apart(twelve: CriticInput) -> None:
    names = {"ada": "A", "ben": "a", "cyd": "B", "dee": "b"}
    found = [replace(one, agent=names[one.agent]) for one in asked_about(twelve)[0]]
    asked = [{"agent": one.agent, "round": one.round, "action": "x"} for one in found]
    words = read_scores(scores(asked, lambda one: 0.9 if one["agent"].isupper() else 0.1), found)
    assert [word.score for word in words] == [0.9 if one.agent.isupper() else 0.1 for one in found]


def asked_about(twelve: CriticInput) -> tuple[list[Any], Asked]:
    """The proposals of the only question, and as a reply names them."""
    found = list(next(iter(build_questions(twelve, {name: name for name in twelve.matrix.agents}, "step", "all"))))
    return found, [{"agent": one.agent, "round": one.round, "action": "x"} for one in found]


def test_an_analysis_beside_the_scores_is_read_over(twelve: CriticInput) -> None:
    found, asked = asked_about(twelve)
    said = json.loads(scores(asked, lambda one: 0.9))
    words = read_scores(json.dumps({"analysis": "All of them lead on.", **said}), found)
    assert [word.score for word in words] == [0.9] * 12


def test_a_round_in_another_spelling_is_the_same_round(twelve: CriticInput) -> None:
    found, asked = asked_about(twelve)
    for spelling in (str, float):
        words = read_scores(scores([{**one, "round": spelling(one["round"])} for one in asked], lambda one: 0.9), found)
        assert [word.score for word in words] == [0.9] * 12


def test_items_that_nobody_can_be_told_of_are_the_cause_of_what_is_missing(twelve: CriticInput) -> None:
    found, asked = asked_about(twelve)
    words = read_scores(scores([asked[0], *({**one, "round": "last"} for one in asked[1:])], lambda one: 0.9), found)
    assert Counter(word.missing for word in words) == {None: 1, "the critic: an item does not fit the schema": 11}


def test_the_draft_of_an_unfinished_thought_is_no_verdict(twelve: CriticInput) -> None:
    found, asked = asked_about(twelve)
    words = read_scores(f"<think>Perhaps {scores(asked, lambda one: 0.9)}, or", found, cut=True)
    assert Counter(word.missing for word in words) == {CUT: 12}


def test_two_scores_for_one_cell_are_none_where_they_differ(twelve: CriticInput) -> None:
    def says(asked: Asked) -> str:
        said = [*({**one, "score": 0.9} for one in asked), {**asked[3], "score": 0.2}, {**asked[4], "score": "0.90"}]
        return json.dumps(said)

    judgement, _ = judge(twelve, says, permute=False)
    assert missing_of(judgement) == {TWICE: 1}


def test_numbers_in_quotes_are_scores(twelve: CriticInput) -> None:
    given = ["0.9", " 0.25 ", "1", ".5", "1.5", "-1", "nan", "0,9", "high", "0x1", "", True]
    found, asked = asked_about(twelve)
    words = read_scores(json.dumps([{**one, "score": score} for one, score in zip(asked, given, strict=True)]), found)
    assert [word.score for word in words] == [0.9, 0.25, 1.0, 0.5, *[None] * 8]
    assert Counter(word.missing for word in words[4:]) == {OUT_OF_RANGE: 2, NO_NUMBER: 6}


PAPER = [
    ('Reason: The goal is to save. Score: {"AGENT": 0.9}', 0.9, None),
    ('```json\n{"AGENT": "0.9"}\n```', 0.9, None),
    ('{"reason": "so", "scores": {"AGENT": {"score": 0.9, "reason": "it leads on"}}}', 0.9, None),
    ('{"AGENT": 0.9} {"AGENT": 0.9}', 0.9, None),
    ('{"AGENT": 0.9} {"AGENT": 0.1}', None, TWICE),
    ('[{"AGENT": 0.9}, {"nobody": 0.2}]', 0.9, None),
    ('{"AGENT": 0.9, "AGENT": "0.9"}', 0.9, None),
    ('{"AGENT": 0.9, "AGENT": 0.1}', None, TWICE),
    ('{"AGENT": "fine"}', None, NO_NUMBER),
    ('{"nobody": 0.9}', None, "the critic: an item does not fit the schema"),
]


@pytest.mark.parametrize(("text", "score", "missing"), PAPER)
def test_the_form_of_the_paper_is_read(
    text: str, score: float | None, missing: str | None, twelve: CriticInput
) -> None:
    """{"agent_0": 0.9}: of an agent with one proposal it is clear which is meant."""
    found, _ = asked_about(twelve)
    (word,) = read_scores(text.replace("AGENT", found[0].agent), found[:1])
    assert (word.score, word.missing) == (score, missing)


def test_a_score_by_name_alone_is_nobodys_where_an_agent_made_several_proposals(twelve: CriticInput) -> None:
    found, _ = asked_about(twelve)
    agent = found[0].agent
    words = read_scores(json.dumps({agent: 0.9}), found)
    said = Counter(word.missing for one, word in zip(found, words, strict=True) if one.agent == agent)
    assert said == {ROUNDLESS: sum(one.agent == agent for one in found)}
    assert not any(word.score for word in words)


def test_scores_for_somebody_else_are_left_unread(twelve: CriticInput) -> None:
    def says(asked: Asked) -> str:
        return scores([{**one, "agent": "zoe"} for one in asked[:11]] + [asked[11]], lambda one: 0.9)

    judgement, _ = judge(twelve, says)
    assert missing_of(judgement) == {ABSENT: 11}


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ("I think ada is right, 0.9 for everybody.", "the critic: the reply is not JSON"),
        ("", "the critic: the reply is empty"),
        ('{"scores": [{"agent": "ada", "score": NaN}]}', "the critic: the reply is not JSON"),
        ('[{"name": "ada", "mark": 1}]', "the critic: an item does not fit the schema"),
        ('{"scores": []}', ABSENT),
        ("[]", ABSENT),
    ],
)
def test_prose_or_nothing_leaves_everything_missing(twelve: CriticInput, reply: str, cause: str) -> None:
    judgement, _ = judge(twelve, lambda asked: reply)
    assert missing_of(judgement) == {cause: 12}
    assert judgement.calls[0].reply == reply


def test_a_reply_that_was_cut_keeps_what_came(twelve: CriticInput) -> None:
    found = next(iter(build_questions(twelve, {name: name for name in twelve.matrix.agents}, "step", "all")))
    text = scores([{"agent": one.agent, "round": one.round, "action": "x"} for one in found], lambda one: 0.9)
    words = read_scores(text[: len(text) // 2], found, cut=True)
    kept = sum(word.score == 0.9 for word in words)
    assert 3 < kept < 8
    assert Counter(word.missing for word in words) == {None: kept, CUT: 12 - kept}


def test_a_server_that_fails_is_a_failure_and_no_score(twelve: CriticInput) -> None:
    with pytest.raises(ModelFailure):
        judge(twelve, lambda asked: scores(asked, lambda one: 0.9), Fault(status=400))


@pytest.mark.parametrize("failing", [[0], [1], [0, 2]])
def test_what_other_rounds_were_answered_is_told_where_one_fails(twelve: CriticInput, failing: list[int]) -> None:
    model = ScriptedModel(replies=["{}"], fail_calls=failing)
    critic = LanguageCritic(model=model, texts=TEXTS, per="round")
    with pytest.raises(PartlyAnswered, match=f"call {failing[0]} is set to fail") as raised:
        asyncio.run(critic.judge(twelve))
    spent = raised.value.spent
    assert (model.calls, spent.calls) == (3, 3 - len(failing))
    assert spent.prompt_tokens == model.meter.snapshot().prompt_tokens > 0
    assert type(raised.value.failure) is ModelFailure


def test_where_no_round_was_answered_the_failure_stays_what_it_is(twelve: CriticInput) -> None:
    critic = LanguageCritic(model=ScriptedModel(replies=["{}"], fail_calls=[0, 1, 2]), texts=TEXTS, per="round")
    with pytest.raises(ModelFailure) as raised:
        asyncio.run(critic.judge(twelve))
    assert type(raised.value) is ModelFailure


def test_what_ends_everything_comes_before_what_ends_one_question() -> None:
    gone, later, misfit = ModelFailure("gone"), ModelFailure("later"), ConfigError("misfit")
    assert find_first_failure(["an answer", gone, later]) is gone
    assert find_first_failure([gone, misfit]) is misfit
    assert find_first_failure(["an answer"]) is None


def test_an_unreadable_step_costs_no_call(case: CriticInput) -> None:
    silent = tuple(replace(cell, action=None) for cell in case.matrix)
    judgement, server = judge(replace(case, matrix=replace(case.matrix, utterances=silent)), lambda asked: "")
    assert not server.requests
    assert judgement.missing == {UNREAD: len(silent)}


# -------------------------------------------------------------------------------------------------------- sizes


def test_history_gives_way_before_the_step_does(case: CriticInput) -> None:
    long = replace(case, history=(*(replace(case.history[0], action=f"step {n} " * 100) for n in range(8)),))
    _, whole = judge(long, lambda asked: "", context_tokens=50_000)
    _, tight = judge(long, lambda asked: "", context_tokens=4096)
    all_of_it, last = (server.requests[0]["messages"][-1]["content"] for server in (whole, tight))
    assert sum(f"step {n} step" in all_of_it for n in range(8)) == 8
    assert 0 < sum(f"step {n} step" in last for n in range(8)) < 8
    assert "step 7 step" in last
    judgement, server = judge(long, lambda asked: "", context_tokens=2100)
    assert not server.requests
    assert judgement.missing[TOO_LONG] == sum(cell.action is not None for cell in case.matrix)


def test_a_question_leaves_room_for_a_reply_and_a_chats_frame(case: CriticInput) -> None:
    model, sampling, frame = Counting(), Sampling(max_tokens=100), 48

    def asked(context_tokens: int) -> list[Prompt]:
        critic = LanguageCritic(model=model, texts=TEXTS, sampling=sampling, history=0, context_tokens=context_tokens)
        return critic.build_prompts(case)

    (prompt,) = asked(50_000)
    least = model.count_tokens(prompt.system) + model.count_tokens(prompt.user) + 100 + frame
    assert asked(least) == [prompt]
    assert asked(least - 1) == []


def test_a_half_character_is_not_sent(case: CriticInput) -> None:
    spoilt = replace(case, task=replace(case.task, goal="Type \ud83d and 🎈."))
    prompt = CriticPrompts(TEXTS).build_prompt(spoilt, (), 0)
    assert "Type � and 🎈." in prompt.user


@pytest.mark.parametrize(
    ("options", "told"),
    [({"context_tokens": 2096}, "must be above 2096"), ({"history": -1}, "at least 0")],
)
def test_options_that_cannot_work_are_refused(options: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        LanguageCritic(model=Counting(), texts=TEXTS, sampling=Sampling(max_tokens=2048), **options)


def test_who_looks_at_solutions_is_no_language_model() -> None:
    with pytest.raises(ConfigError, match="rehearsal looks at solutions"):
        LanguageCritic(model=RehearsalModel(), texts=TEXTS)


def test_templates_that_do_not_fit_are_named(case: CriticInput, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=r"system\.jinja, step\.jinja"):
        read_critic_prompts(tmp_path)
    with pytest.raises(ConfigError, match=r"step\.jinja:1"):
        CriticPrompts({"system": "", "step": "{% if %}"})
    with pytest.raises(ConfigError, match="'colour' is undefined"):
        CriticPrompts({"system": "", "step": "{{ colour }}"}).build_prompt(case, (), 0)
