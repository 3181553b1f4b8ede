"""Negatives of recorded steps, from the judgement to the pair: asked about, linted, asked about again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from collab.agents.agent import compute_prefix_limit
from collab.envs.grammar import MOBILE
from collab.errors import ConfigError, EnvironmentFailure, ModelFailure
from collab.library import find_builtin_root
from collab.preferences.adversary import (
    TOO_LONG,
    Adversary,
    AdversaryPrompt,
    AdversaryProposal,
    CannotPropose,
    LanguageAdversary,
    Occasion,
    SamplerAdversary,
    read_adversary_prompts,
)
from collab.preferences.negatives import EQUALS_CHOSEN, NOTHING_WORSE, SAME_STATE, Negatives, collect_negatives
from collab.preferences.pairs import CountedPairs, Sources, build_pairs, build_step_pairs, list_wanted
from collab.prompts.parse import read_reply, write_reply
from collab.rewards.base import CriticInput, build_inputs
from collab.rewards.credit import JudgedStep, list_rewarded, list_rewarded_actions
from collab.rewards.oracle import SolutionCritic
from collab.rewards.restore import StateRebuilder
from collab.store.reader import RunReader
from collab.testing.scripted import ScriptedModel
from collab.types import Sampling, Usage

SEED = 5
PRICE = Usage(calls=1, prompt_tokens=100, completion_tokens=7, cost_usd=0.25)


class Says:
    """An adversary that says what a rule says, and remembers whom it was asked about."""

    name, version = "says", "1"

    def __init__(self, rule: Callable[[Occasion], str | None]) -> None:
        self.rule, self.asked = rule, list[Occasion]()

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        self.asked.append(occasion)
        text = self.rule(occasion)
        return None if text is None else AdversaryProposal(text=text, maker="says-1", spent=PRICE)


def judged(recorded: Any, states: bool = True) -> list[tuple[CriticInput, JudgedStep]]:
    """All steps of the recorded episodes, as the environment's own solution judges them."""
    suite, _, trajectories = recorded

    async def judge() -> list[tuple[CriticInput, JudgedStep]]:
        found = []
        for trajectory in trajectories:
            for case in build_inputs(trajectory, suite.space, StateRebuilder(suite)):
                step = JudgedStep.of(trajectory, await SolutionCritic().judge(case))
                found.append((case if states else replace(case, state=None), step))
        return found

    return asyncio.run(judge())


def first(recorded: Any, states: bool = True) -> tuple[CriticInput, JudgedStep]:
    """A step with a rewarded cell."""
    return next((case, step) for case, step in judged(recorded, states) if list_rewarded(step))


def found(recorded: Any, case: CriticInput, step: JudgedStep, adversary: Adversary, attempts: int = 3) -> Negatives:
    asked = list_wanted(step, Sources(), SEED)
    with RunReader(recorded[1]) as reader:
        return asyncio.run(
            collect_negatives(case, step, asked, adversary, prefix=reader.read_prefix, seed=SEED, attempts=attempts)
        )


def build_recorded_pairs(recorded: Any, adversary: Adversary) -> tuple[CountedPairs, Counter[str]]:
    steps, refused = list[JudgedStep](), Counter[str]()
    for case, step in judged(recorded):
        made = found(recorded, case, step, adversary)
        steps.append(replace(step, negatives=made.negatives))
        refused += made.refused
    return build_pairs(steps, Sources(), SEED), refused


@pytest.mark.variations
@pytest.mark.parametrize("where", ["corridor", "phone"])
def test_every_rewarded_cell_of_a_run_gets_its_pair_and_the_same_again(
    where: str, request: pytest.FixtureRequest
) -> None:
    recorded = request.getfixturevalue(where)
    made, refused = build_recorded_pairs(recorded, SamplerAdversary())
    cells = [(step, cell) for _, step in judged(recorded) for cell in list_rewarded(step)]
    assert len(made.pairs) == len(cells) > 5
    space = recorded[0].space
    steps = {step.judgement.key: step for _, step in judged(recorded)}
    screens = {(one.id, step.index): step.observation for one in recorded[2] for step in one.steps}
    for one in made.pairs:
        key = one.chosen[0].trajectory, one.chosen[0].step
        assert one.critic == "oracle-2"
        assert one.synthetic is not None
        assert read_reply(one.synthetic, space, screens[key]).action not in list_rewarded_actions(steps[key])
    assert build_recorded_pairs(recorded, SamplerAdversary()) == (made, refused)


def test_each_question_has_a_seed_of_its_own(corridor) -> None:  # type: ignore[no-untyped-def]
    adversary = Says(lambda occasion: "nothing to say")
    for case, step in judged(corridor):
        made = found(corridor, case, step, adversary)
        assert made.refused == Counter({"does not parse: no_action": 3 * len(list_rewarded(step))})
    seeds = [occasion.seed for occasion in adversary.asked]
    assert len(set(seeds)) == len(seeds) > 30


def test_a_cell_is_asked_about_until_something_holds(phone) -> None:  # type: ignore[no-untyped-def]
    case, step = first(phone)
    seen: Counter[object] = Counter()

    def stubborn(occasion: Occasion) -> str | None:
        seen[occasion.cell.cell] += 1
        same = write_reply("so", occasion.right, case.space)
        end = write_reply("so", MOBILE.make("status", goal_status="infeasible"), case.space)
        return [None, same, end][seen[occasion.cell.cell] - 1]

    made = found(phone, case, step, Says(stubborn))
    count = len(list_rewarded(step))
    assert made.refused == {NOTHING_WORSE: count, EQUALS_CHOSEN: count}
    assert set(made.negatives) == {cell.cell for cell in list_rewarded(step)} == set(seen)
    assert {one.maker for one in made.negatives.values()} == {"says-1"}
    twice = 2 * count  # what was dropped was paid for, too
    assert made.spent == Usage(
        calls=twice, prompt_tokens=100 * twice, completion_tokens=7 * twice, cost_usd=0.25 * twice
    )
    assert not found(phone, case, step, Says(lambda _: None), attempts=1).negatives


def test_the_adversary_reads_what_the_cell_read(corridor) -> None:  # type: ignore[no-untyped-def]
    adversary = Says(lambda occasion: None)
    for case, step in judged(corridor):
        found(corridor, case, step, adversary, attempts=1)
    for occasion in adversary.asked:
        assert occasion.prompt.suffix == occasion.cell.prompt.suffix
        assert occasion.case.task.goal in occasion.prompt.shared
        for heard in (occasion.case.matrix[other] for other in occasion.cell.heard):
            assert heard.text in occasion.prompt.user


def test_another_way_to_the_same_state_is_no_negative_where_the_state_comes_back(phone) -> None:  # type: ignore[no-untyped-def]
    case, step = first(phone)
    assert case.observation.title == "Home"
    (icon,) = (element.index for element in case.observation.elements if element.label == "Contacts")
    ways = [
        MOBILE.make("open_app", app_name="contacts"),
        *(MOBILE.make(kind, index=icon) for kind in ("click", "double_tap")),
    ]
    assert list_rewarded_actions(step) < set(ways)

    def tap(occasion: Occasion) -> str:
        """A way into the app that no cell took."""
        return write_reply("so", next(way for way in ways if way not in occasion.rewarded), case.space)

    count = len(list_rewarded(step))
    refused = found(phone, case, step, Says(tap), attempts=1)
    assert (refused.negatives, refused.refused, refused.untried) == ({}, {SAME_STATE: count}, 0)
    blind, _ = first(phone, states=False)
    kept = found(phone, blind, step, Says(tap), attempts=1)
    assert len(kept.negatives) == kept.untried == count


def test_failures_are_raised_as_they_are(corridor) -> None:  # type: ignore[no-untyped-def]
    case, step = first(corridor)

    def gone(occasion: Occasion) -> str:
        raise ModelFailure("the server is gone")

    with pytest.raises(ModelFailure, match="the server is gone"):
        found(corridor, case, step, Says(gone))

    def careless(occasion: Occasion) -> str:
        raise RuntimeError("never thought of that")

    with pytest.raises(ModelFailure, match=r"adversary says on step 0 of OpenDoors/0: RuntimeError: never thought"):
        found(corridor, case, step, Says(careless))
    suite, _, (doors, word) = corridor
    elsewhere = StateRebuilder(suite)(replace(doors, task=word.task), case.step)
    with pytest.raises(EnvironmentFailure, match="is not what it was"):
        found(corridor, replace(case, state=elsewhere), step, SamplerAdversary())
    with pytest.raises(ConfigError, match="0 times per cell"):
        found(corridor, case, step, SamplerAdversary(), attempts=0)


def test_where_one_cell_fails_the_others_are_asked_to_the_end_and_counted(corridor) -> None:  # type: ignore[no-untyped-def]
    case, step = next((case, step) for case, step in judged(corridor) if len(list_rewarded(step)) > 2)
    broken, *others = (cell.cell for cell in list_rewarded(step))

    class Slow(Says):
        async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
            if occasion.cell.cell == broken:
                raise ModelFailure("the server is gone")
            await asyncio.sleep(0.01)
            return await super().propose(occasion)

    adversary, paid = Slow(lambda occasion: "nothing to say"), list[Usage]()
    with RunReader(corridor[1]) as reader, pytest.raises(ModelFailure, match="the server is gone"):
        asyncio.run(
            collect_negatives(
                case,
                step,
                list_wanted(step, Sources(), SEED),
                adversary,
                prefix=reader.read_prefix,
                seed=SEED,
                paid=paid,
            )
        )
    assert {occasion.cell.cell for occasion in adversary.asked} == set(others)
    assert paid == [PRICE] * len(others)


def test_a_cell_whose_input_fills_the_context_is_refused_and_the_others_are_asked(phone) -> None:  # type: ignore[no-untyped-def]
    texts, sampling = read_adversary_prompts(find_builtin_root() / "prompts" / "adversary"), Sampling(max_tokens=64)
    end = write_reply("so", MOBILE.make("status", goal_status="infeasible"), phone[0].space)
    model = ScriptedModel(replies=[end])

    def length(occasion: Occasion) -> int:
        prompt = AdversaryPrompt(texts["clumsy"]).build_prompt(occasion)
        return sum(model.count_tokens(text) for text in (prompt.system, prompt.shared, prompt.suffix))

    def lengths(case: CriticInput, step: JudgedStep) -> list[int]:
        found(phone, case, step, asking := Says(lambda _: None), attempts=1)
        return sorted(map(length, asking.asked))

    case, step = next(each for each in judged(phone) if len(set(lengths(*each))) > 1)
    short, *longer = lengths(case, step)
    room = short - compute_prefix_limit(0, messages=0, max_tokens=64)
    made = found(phone, case, step, LanguageAdversary(model=model, texts=texts, sampling=sampling, context_tokens=room))
    fitting = 1 + longer.count(short)
    assert made.refused == {TOO_LONG: len(longer) + 1 - fitting}
    assert (len(made.negatives), model.calls, made.spent.calls) == (fitting, fitting, fitting)


def test_a_cell_that_cannot_be_asked_about_counts_once_and_may_still_get_another(phone) -> None:  # type: ignore[no-untyped-def]
    """As with several adversaries: the one drawn first has room for no cell, the next one for all but one."""
    case, step = next((case, step) for case, step in judged(phone) if len(list_rewarded(step)) > 2)
    never, *others = sorted(cell.cell for cell in list_rewarded(step))
    seen: Counter[object] = Counter()

    def says(occasion: Occasion) -> str:
        seen[cell := occasion.cell.cell] += 1
        if seen[cell] == 1 or cell == never:
            raise CannotPropose("no room")
        return write_reply("so", MOBILE.make("status", goal_status="infeasible"), case.space)

    made = found(phone, case, step, Says(says))
    assert (set(made.negatives), made.refused) == (set(others), {"no room": 1 + len(others)})
    assert seen[never] == 3


def test_where_no_cell_is_rewarded_nothing_is_asked_or_opened(corridor) -> None:  # type: ignore[no-untyped-def]
    case, step = first(corridor)

    class Closed:
        def open(self) -> Any:
            raise AssertionError("nothing is to be tried")

    with RunReader(corridor[1]) as reader:
        made = asyncio.run(
            collect_negatives(
                replace(case, state=Closed()), step, (), Says(lambda _: None), prefix=reader.read_prefix, seed=SEED
            )
        )
    assert made == Negatives(negatives={})


def test_a_judgement_of_another_episode_is_no_step_of_this_one(corridor) -> None:  # type: ignore[no-untyped-def]
    _, step = first(corridor)
    with pytest.raises(KeyError):
        JudgedStep.of(corridor[2][1], step.judgement)
    assert build_step_pairs(step, Sources(), SEED).counts["adversary"] == 0
