"""A process reward model: one question per action, an analysis with True or False, and what bad replies cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import ConfigError
from collab.library import Library, find_builtin_root
from collab.models.rehearsal import RehearsalModel
from collab.rewards.answers import EMPTY
from collab.rewards.base import UNREAD, CriticInput, Judgement, build_inputs
from collab.rewards.llm import TOO_LONG, read_critic_prompts
from collab.rewards.process_reward import FOLDER, JUDGMENT, ProcessRewardModel
from collab.rewards.registry import load_critic, read_critic_texts
from collab.testing.scripted import ScriptedModel
from collab.types import Prompt

PROMPTS = find_builtin_root() / "prompts"
TEXTS = read_critic_prompts(PROMPTS / FOLDER, FOLDER)


@pytest.fixture(scope="module")
def case(phone: Any) -> CriticInput:
    """A step behind the first whose cells propose several actions, one of them more than once."""
    suite, _, episodes = phone
    return next(
        case
        for episode in episodes
        for case in build_inputs(episode, suite.space)
        if case.history and 1 < len(case.group_proposals()) < len([cell for cell in case.matrix if cell.action])
    )


def judge(case: CriticInput, rule: Callable[[Prompt, int], str], **options: Any) -> tuple[Judgement, ScriptedModel]:
    model = ScriptedModel(rule=rule)
    return asyncio.run(ProcessRewardModel(model=model, texts=TEXTS, **options).judge(case)), model


# --------------------------------------------------------------------------------------------- prompt and parser


@given(right=st.booleans(), analysis=st.text(max_size=300))
def test_what_is_written_is_read(right: bool, analysis: str) -> None:
    assert JUDGMENT.read(JUDGMENT.format(right, analysis)).value is right


@given(right=st.booleans(), words=st.lists(st.from_regex(r"[a-z]{1,9}", fullmatch=True), min_size=1, max_size=30))
def test_the_analysis_is_the_reason(right: bool, words: list[str]) -> None:
    analysis = " ".join(words)
    assert JUDGMENT.read(JUDGMENT.format(right, analysis)).reason == analysis


_PIECES = st.sampled_from(
    [
        "Judgment",
        "judgment:",
        "JUDGMENT",
        ": ",
        "True",
        "false",
        " or ",
        "\n",
        "**",
        "<think>",
        "</think>",
        "{",
        '"',
        "é",
    ]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=8)), max_size=40).map("".join), st.booleans())
def test_any_reply_is_an_answer_or_has_a_cause(text: str, cut: bool) -> None:
    found = JUDGMENT.read(text, cut=cut)
    assert (found.value is None) is (found.missing is not None)
    assert "\n" not in found.reason
    # Whatever stands before it, the last judgment counts; in a thought it was only considered.
    last = JUDGMENT.read(f"{text}\nAll in all, this step is not the one.\n{JUDGMENT.ask(False)}").value
    assert last is False or "<think>" in text


@pytest.mark.parametrize("folder", [FOLDER, "critic-prm-guided"])
@pytest.mark.parametrize("right", [True, False])
def test_every_prompt_asks_for_what_is_read(folder: str, right: bool, case: CriticInput) -> None:
    texts = read_critic_prompts(PROMPTS / folder, FOLDER)
    critic = ProcessRewardModel(model=ScriptedModel(replies=["x"]), texts=texts)
    for prompt in critic.build_prompts(case):
        assert JUDGMENT.ask(right) in prompt.system
        assert JUDGMENT.read(prompt.user).value is None
    assert JUDGMENT.read(f"It saves the contact.\n{JUDGMENT.ask(right)}").value is right


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("<think>It opens the app.</think> judgment:True", True, "It opens the app."),  # the paper's own form
        ("It leaves the app. JUDGMENT: false", False, "It leaves the app."),
        ("First I thought Judgment: True.\nIt is saved already.\n**Judgment:** False", False, None),
    ],
)
def test_the_last_judgment_counts(text: str, value: bool, reason: str | None) -> None:
    found = JUDGMENT.read(text)
    assert found.value is value
    assert reason is None or found.reason == reason


# ------------------------------------------------------------------------------------------------- what is asked


def test_it_is_asked_once_per_action_without_any_history(case: CriticInput) -> None:
    _, model = judge(case, lambda prompt, seed: JUDGMENT.ask(True))
    proposed = case.group_proposals()
    assert len(model.requests) == len(proposed) > 1
    asked = [request.prompt.user for request in model.requests]
    assert {text.splitlines()[-1] for text in asked} == {case.space.format(action) for action in proposed}
    assert all(case.task.goal in text and case.observation.text.strip() in text for text in asked)
    # Another past gives the very same questions.
    _, other = judge(replace(case, history=()), lambda prompt, seed: JUDGMENT.ask(True))
    assert [request.prompt.user for request in other.requests] == asked
    assert len({request.seed for request in model.requests}) == len(proposed)


def test_cells_with_the_same_action_share_its_score_and_analysis(case: CriticInput) -> None:
    (best, *_), proposed = case.group_proposals(), case.group_proposals()
    written = case.space.format(best)

    def say(prompt: Prompt, seed: int) -> str:
        return JUDGMENT.format(written in prompt.user, f"It is about {prompt.user.splitlines()[-1]}.")

    found, _ = judge(case, say)
    assert found.rewards.critic == "prm-1"
    for action, cells in proposed.items():
        for cell in cells:
            reward = found.of(cell.cell)
            assert reward.score == float(action == best)
            assert reward.reason == f"It is about {case.space.format(action)}."
            call = found.call_of(cell.cell)
            assert call is not None
            assert set(call.cells) == {one.cell for one in cells}
            assert call.shown == {}


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ("It looks fine to me.", JUDGMENT.absent),
        ("", EMPTY),
        ("Judgment: True or False", JUDGMENT.absent),
    ],
)
def test_a_reply_without_a_judgment_is_missing_and_silent(case: CriticInput, reply: str, cause: str) -> None:
    found, _ = judge(case, lambda prompt, seed: reply)
    asked = sum(cell.action is not None for cell in case.matrix)
    unread = len(case.matrix.utterances) - asked
    assert found.missing == {f"the critic: {cause}": asked} | ({UNREAD: unread} if unread else {})
    assert found.silent


def test_a_step_beyond_the_context_is_not_asked(case: CriticInput) -> None:
    found, model = judge(case, lambda prompt, seed: JUDGMENT.ask(True), context_tokens=330)
    assert model.requests == []
    assert TOO_LONG in found.missing


def test_another_attempt_asks_with_other_seeds_and_the_same_words(case: CriticInput) -> None:
    first, second = (judge(case, lambda prompt, seed: str(seed), attempt=attempt)[0].calls for attempt in (0, 1))
    assert [one.prompt for one in first] == [one.prompt for one in second]
    assert not {one.seed for one in first} & {one.seed for one in second}


def test_templates_of_ones_own_may_show_the_thought(case: CriticInput) -> None:
    texts: Mapping[str, str] = {**TEXTS, "step": "{{ action }} because {{ reason }}"}
    cells = tuple(replace(cell, reason="I saw it") for cell in case.matrix)
    shown = replace(case, matrix=replace(case.matrix, utterances=cells))
    critic = ProcessRewardModel(model=ScriptedModel(replies=["x"]), texts=texts)
    assert all(prompt.user.endswith("because I saw it") for prompt in critic.build_prompts(shown))


def test_a_model_that_looks_at_solutions_is_refused() -> None:
    with pytest.raises(ConfigError, match="looks at solutions"):
        ProcessRewardModel(model=RehearsalModel(), texts=TEXTS)
    with pytest.raises(ConfigError, match="critic prm: context_tokens 64 must be above"):
        ProcessRewardModel(model=ScriptedModel(replies=["x"]), texts=TEXTS, context_tokens=64)


def test_the_shipped_file_names_it_and_a_kind_has_prompts_of_its_own() -> None:
    library = Library()
    definition = load_critic(library, "critic-prm")
    assert (definition.kind, definition.options["model"]["kind"]) == ("prm", "local")
    assert read_critic_texts(library, definition) == TEXTS
    assert read_critic_texts(library, definition.model_copy(update={"prompt": ""})) == TEXTS
