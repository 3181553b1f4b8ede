"""Adversaries: what they say can be said here, is worse than what was rewarded, and answers the cell's own input."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.config import PartDefinition
from collab.errors import ConfigError, ModelFailure, UnknownName
from collab.library import find_builtin_root
from collab.models.base import Model
from collab.models.openai import OpenAIModel
from collab.models.rehearsal import RehearsalModel
from collab.preferences.adversary import (
    TOO_LONG,
    Adversary,
    AdversaryPrompt,
    AdversaryProposal,
    CannotPropose,
    LanguageAdversary,
    MixtureAdversary,
    Occasion,
    SamplerAdversary,
    read_adversary_prompts,
)
from collab.prompts.parse import read_reply
from collab.prompts.render import rebuild
from collab.rewards.base import CriticInput, build_inputs
from collab.rewards.mistakes import WEIGHTS
from collab.rewards.structured_replies import format_reason
from collab.rollout.build import build
from collab.store.reader import RunReader
from collab.testing.fake_server import FakeServer, Fault
from collab.testing.scripted import ScriptedModel
from collab.types import Action, Sampling, Utterance

FOLDER = find_builtin_root() / "prompts" / "adversary"
SAMPLING = Sampling(temperature=0.7, max_tokens=64)
WRONG = 'Reason: I would rather leave.\nAction: {"action_type": "navigate_home"}'


def occasion(case: CriticInput, cell: Utterance, directory: Path, seed: int = 1) -> Occasion:
    assert cell.action is not None
    with RunReader(directory) as reader:
        read = rebuild(reader.read_prefix(cell.prompt.prefix), cell.prompt)
    return Occasion(case=case, cell=cell, prompt=read, rewarded=frozenset({cell.action}), seed=seed)


def occasions(recorded: Any) -> Iterator[Occasion]:
    """One for every cell that parsed."""
    suite, directory, trajectories = recorded
    for trajectory in trajectories:
        for case in build_inputs(trajectory, suite.space):
            yield from (occasion(case, cell, directory) for cell in case.matrix if cell.action is not None)


def late(recorded: Any) -> Occasion:
    """A cell that heard others."""
    return next(one for one in occasions(recorded) if len(one.cell.heard) == 2 and one.case.last is not None)


def proposed(adversary: Adversary, one: Occasion) -> AdversaryProposal:
    found = asyncio.run(adversary.propose(one))
    assert found is not None
    return found


# ---------------------------------------------------------------------------------------------------- sampler


@pytest.mark.parametrize("where", ["corridor", "phone"])
def test_a_sampled_reply_can_be_said_here_and_is_none_that_was_rewarded(
    where: str, request: pytest.FixtureRequest
) -> None:
    kinds: Counter[str] = Counter()
    for one in occasions(request.getfixturevalue(where)):
        everything = frozenset(cell.action for cell in one.case.matrix if cell.action is not None)
        found = proposed(SamplerAdversary(), replace(one, rewarded=everything))
        read = read_reply(found.text, one.case.space, one.case.observation)
        assert read.action is not None
        assert read.action not in everything
        kinds[found.maker.removeprefix("sampler-1: ")] += 1
    assert set(kinds) <= set(WEIGHTS)
    assert len(kinds) > 3


def test_a_sampled_reply_depends_on_the_seed_alone(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    drawn = [proposed(SamplerAdversary(), replace(one, seed=seed)) for seed in range(30)]
    assert drawn == [proposed(SamplerAdversary(), replace(one, seed=seed)) for seed in range(30)]
    assert len({found.text for found in drawn}) > 5


def test_weights_choose_the_kinds_of_mistakes(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    adversary = SamplerAdversary(weights={"premature end": 1, "random": 0})
    made = {proposed(adversary, replace(one, seed=seed)).maker for seed in range(20)}
    assert made == {"sampler-1: premature end"}


def test_where_nothing_worse_is_possible_there_is_no_reply(phone) -> None:  # type: ignore[no-untyped-def]
    suite, directory, (trajectory, _) = phone
    first = next(iter(build_inputs(trajectory, suite.space)))
    cell = next(cell for cell in first.matrix if cell.action is not None)
    repeating = SamplerAdversary(weights={"repetition": 1})
    assert asyncio.run(repeating.propose(occasion(first, cell, directory))) is None


def test_a_repetition_repeats_what_was_executed_before(corridor) -> None:  # type: ignore[no-untyped-def]
    one = next(one for one in occasions(corridor) if one.case.last not in (None, one.right))
    found = proposed(SamplerAdversary(weights={"repetition": 1}), one)
    assert read_reply(found.text, one.case.space, one.case.observation).action == one.case.last


def test_a_sampled_reply_talks_as_its_cell_does(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    space, screen = one.case.space, one.case.observation

    def told(because: str) -> tuple[str, Action | None]:
        found = proposed(SamplerAdversary(), replace(one, cell=replace(one.cell, reason=because)))
        read = read_reply(found.text, space, screen)
        return read.reason, read.action

    assert told("the list is not open yet.")[0] == "the list is not open yet."
    shown, wrong = told(format_reason(one.right, screen, space))
    assert wrong is not None
    assert shown == format_reason(wrong, screen, space)
    assert shown != format_reason(one.right, screen, space)


@pytest.mark.parametrize(
    ("weights", "message"),
    [({"other elemnt": 1}, "did you mean other element"), ({"undo": 0}, "above 0"), ({"undo": -1}, "from 0")],
)
def test_weights_that_mean_nothing_are_refused(weights: dict[str, float], message: str) -> None:
    with pytest.raises((UnknownName, ConfigError), match=message):
        build("adversaries", PartDefinition(kind="sampler", options={"weights": weights}), "marl.yaml")


def test_the_sampler_is_built_by_name(phone) -> None:  # type: ignore[no-untyped-def]
    made = build("adversaries", PartDefinition(kind="sampler", options={"weights": {"undo": 1}}), "marl.yaml")
    assert proposed(made, late(phone)).maker == "sampler-1: undo"
    assert isinstance(build("adversaries", PartDefinition(kind="sampler"), "marl.yaml"), SamplerAdversary)


def test_a_cell_without_an_action_is_no_occasion(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    with pytest.raises(ValueError, match="did not parse"):
        replace(one, cell=replace(one.cell, action=None))


# --------------------------------------------------------------------------------------------- language model


def language(model: Model, **options: Any) -> LanguageAdversary:
    return LanguageAdversary(model=model, texts=read_adversary_prompts(FOLDER), sampling=SAMPLING, **options)


def role_for(one: Occasion) -> str:
    return AdversaryPrompt(read_adversary_prompts(FOLDER)["clumsy"]).build_prompt(one).suffix


def over_http(
    one: Occasion, says: Callable[[Mapping[str, Any]], str], fault: Fault | None = None
) -> tuple[AdversaryProposal, dict[str, Any]]:
    """What the adversary makes of a real server's reply, and what the server was asked."""

    async def ask(server: FakeServer) -> AdversaryProposal:
        model = OpenAIModel(model="fake", base_url=server.url, retries=0)
        try:
            await model.probe()
            server.faults.extend([] if fault is None else [fault])
            return await language(model).propose(one)
        finally:
            await model.close()

    with FakeServer({"seed"}, says=says) as server:
        found = asyncio.run(ask(server))
        return found, server.requests[-1]


def test_a_model_answers_the_cells_own_input_with_the_messages_it_heard(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    found, asked = over_http(one, lambda body: WRONG)
    system, user = asked["messages"]
    assert system["content"] == one.prompt.system
    assert user["content"].startswith(one.prompt.user)
    for heard in (one.case.matrix[other] for other in one.cell.heard):
        assert heard.text in user["content"]
    role = user["content"].removeprefix(one.prompt.user)
    assert "very clumsy" in role
    assert one.case.space.describe(one.right, one.case.observation) in role
    assert (asked["temperature"], asked["seed"]) == (0.7, one.seed)
    assert 64 in (asked.get("max_tokens"), asked.get("max_completion_tokens"))
    assert (found.text, found.maker, found.spent.calls) == (WRONG, "llm-1: fake", 1)
    assert found.spent.prompt_tokens > 100
    assert found.spent.completion_tokens > 0


def test_a_reply_is_written_as_policies_write_and_left_alone_where_it_cannot_be_read(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    wordy = '<think>hm, {"action_type": "wait"}</think>\n**Reason:** I would rather leave.\n\n**Action:** '
    wordy += '```json\n{"action_type":"navigate_home"}\n```\nThank you!'
    assert over_http(one, lambda body: wordy)[0].text == WRONG
    assert over_http(one, lambda body: "I cannot do that.")[0].text == "I cannot do that."
    assert over_http(one, lambda body: wordy.replace("</think>", ""))[0].text == "", "a thought that never ends"


def test_the_actions_are_listed_where_the_cells_own_rules_do_not(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    listing = one.case.space.listing()
    assert listing not in role_for(one)
    terse = replace(one, prompt=replace(one.prompt, system="You operate a phone."))
    assert listing in role_for(terse)


def test_a_server_that_refuses_is_a_failure_and_no_negative(phone) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelFailure, match="no room"):
        over_http(late(phone), lambda body: WRONG, Fault(status=400, message="no room"))


def test_a_call_that_takes_too_long_is_a_failure(phone) -> None:  # type: ignore[no-untyped-def]
    model = ScriptedModel(replies=[WRONG], hang_calls=[0])
    adversary = language(model, call_s=0.05)
    with pytest.raises(ModelFailure, match=r"call of the adversary to scripted \(limit 0.05 s\) timed out"):
        asyncio.run(adversary.propose(late(phone)))


def test_what_leaves_no_room_for_a_reply_is_refused_and_not_asked(phone) -> None:  # type: ignore[no-untyped-def]
    model = ScriptedModel(replies=[WRONG])
    with pytest.raises(CannotPropose, match=TOO_LONG):
        asyncio.run(language(model, context_tokens=300).propose(late(phone)))
    assert model.calls == 0
    with pytest.raises(ConfigError, match=r"context_tokens 64 leave no room .* max_tokens 64"):
        language(model, context_tokens=64)


def test_a_model_that_looks_at_solutions_is_no_adversary() -> None:
    with pytest.raises(ConfigError, match="needs a language model"):
        language(RehearsalModel())


def test_a_role_that_cannot_be_used_says_where(phone, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=r"an adversary needs clumsy.jinja"):
        read_adversary_prompts(tmp_path)
    with pytest.raises(ConfigError, match=r"prompts/adversary: clumsy.jinja missing"):
        LanguageAdversary(model=ScriptedModel(replies=[WRONG]), texts={})
    with pytest.raises(ConfigError, match=r"prompts/adversary/clumsy.jinja:2: "):
        AdversaryPrompt("Play\n{% if %}")
    with pytest.raises(ConfigError, match=r"prompts/adversary/clumsy.jinja: 'mood' is undefined"):
        AdversaryPrompt("Play {{ mood }}").build_prompt(late(phone))


# ----------------------------------------------------------------------------------------------------- mixture


def test_a_mixture_lets_one_answer_by_weight_and_seed(phone) -> None:  # type: ignore[no-untyped-def]
    one = late(phone)
    model = ScriptedModel(replies=[WRONG])
    asked = language(model)
    mixture = MixtureAdversary([(SamplerAdversary(), 3), (asked, 1), (SamplerAdversary(weights={"undo": 1}), 0)])
    assert mixture.version == "sampler-1+llm-1"
    makers = [proposed(mixture, replace(one, seed=seed)).maker for seed in range(200)]
    by_model = sum(maker == "llm-1: scripted" for maker in makers)
    assert 25 <= by_model <= 75  # 50 expected, standard deviation 6.1
    assert makers == [proposed(mixture, replace(one, seed=seed)).maker for seed in range(200)]
    assert model.calls == 2 * by_model


@pytest.mark.parametrize("weights", [[], [0.0], [-1.0, 2.0], [float("nan")]])
def test_a_mixture_of_nothing_is_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="weights of adversaries"):
        MixtureAdversary([(SamplerAdversary(), weight) for weight in weights])
