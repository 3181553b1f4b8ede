"""A judged run becomes pairs; another critic, threshold or adversary becomes a difference."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.errors import ConfigError, ModelFailure
from collab.preferences.adversary import Adversary, AdversaryProposal, Occasion, SamplerAdversary
from collab.preferences.explain import compare_pairs
from collab.preferences.pairs import PairRecipe, RunPairs, Sources, TooManyFailures, build_run_pairs
from collab.preferences.proposals import ProposalMemory, RememberingAdversary
from collab.rewards.base import Judgement, build_inputs
from collab.rewards.credit import BEHIND_ERROR
from collab.rewards.labels import LabelHead, LabelSet, LabelWriter, read_labels
from collab.rewards.oracle import SolutionCritic
from collab.rewards.restore import StateRebuilder
from collab.store.reader import RunReader
from collab.store.rewards import CellReward
from collab.types import Usage

MIX = PairRecipe(sources=Sources(adversary=1, contrast=1))


class Gone:
    """An adversary whose server is gone for the first calls."""

    name, version = "gone", "1"

    def __init__(self, failures: int) -> None:
        self.failures = failures

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        self.failures -= 1
        if self.failures >= 0:
            raise ModelFailure("the server is gone")
        return await SamplerAdversary().propose(occasion)


def judged(recorded: Any) -> LabelSet:
    """What the environment's own solution says of all steps, written beside the run and read back."""
    suite, directory, trajectories = recorded

    async def judge() -> None:
        with LabelWriter(directory, "pairing", LabelHead(critic="oracle-2")) as writer:
            for trajectory in trajectories:
                for case in build_inputs(trajectory, suite.space, StateRebuilder(suite)):
                    if not writer.has_label(case):
                        writer.record(await SolutionCritic().judge(case))

    asyncio.run(judge())
    return read_labels(directory, "pairing")


def rescored(labels: LabelSet, score: Any) -> LabelSet:
    """The same label set with other scores."""

    def other(judgement: Judgement) -> Judgement:
        rewards = tuple(replace(one, score=score(one)) for one in judgement.rewards.rewards)
        return replace(judgement, rewards=replace(judgement.rewards, critic="other-1", rewards=rewards))

    return replace(labels, judged={key: other(one) for key, one in labels.judged.items()})


def made(
    recorded: Any, labels: LabelSet, recipe: PairRecipe = MIX, adversary: Adversary | None = None, **options: Any
) -> RunPairs:
    suite, directory, trajectories = recorded
    with RunReader(directory) as reader:
        paired = build_run_pairs(
            trajectories,
            labels,
            recipe,
            space=suite.space,
            prefix=reader.read_prefix,
            adversary=adversary or SamplerAdversary(),
            states=StateRebuilder(suite),
            **options,
        )
        return asyncio.run(paired)


def test_a_judged_run_becomes_the_same_pairs_however_it_is_worked_on(corridor: Any) -> None:
    labels = judged(corridor)
    found = made(corridor, labels, concurrency=8)
    rewarded = [one for judgement in labels.judged.values() for one in judgement.rewards.rewards if one.reward == 1]
    assert len(found.pairs) == len(rewarded) > 10
    assert set(found.counts) == {"adversary", "contrast"}
    assert (found.unjudged, found.untried, found.failed) == (0, 0, Counter())
    reversed_run = (corridor[0], corridor[1], corridor[2][::-1])
    assert made(reversed_run, labels, concurrency=1).pairs == found.pairs
    assert made(corridor, labels, replace(MIX, seed=1)).pairs != found.pairs


def test_steps_without_a_judgement_are_counted(corridor: Any) -> None:
    labels = judged(corridor)
    (key, first), *others = labels.judged.items()
    assert made(corridor, replace(labels, judged=dict(others))).unjudged == 1
    stale = {key: replace(first, case="of an episode that was played again")} | dict(others)
    assert made(corridor, replace(labels, judged=stale)).unjudged == 1


def test_another_critic_turns_pairs_round(corridor: Any) -> None:
    contrast = PairRecipe(sources=Sources(adversary=0, contrast=1))
    labels = judged(corridor)

    def inverted(one: CellReward) -> float | None:
        return None if one.score is None else 1 - one.score

    before, after = made(corridor, labels, contrast), made(corridor, rescored(labels, inverted), contrast)
    found = compare_pairs(before.pairs, after.pairs)
    assert found.flipped
    assert not found.kept
    for old, new in found.flipped:
        assert (old.chosen, old.rejected) == (new.rejected, new.chosen)
        assert (old.critic, new.critic) == ("oracle-2", "other-1")
    assert compare_pairs(before.pairs, made(corridor, labels, contrast).pairs).empty


def test_another_threshold_needs_no_other_critic(corridor: Any) -> None:
    labels = judged(corridor)

    def milder(one: CellReward) -> float | None:
        return None if one.score is None else 0.8 * one.score

    mild = rescored(labels, milder)
    ids = {one.id for one in made(corridor, labels).pairs}
    assert {one.id for one in made(corridor, mild).pairs} == ids
    assert not made(corridor, mild, replace(MIX, threshold=0.8)).pairs


def test_steps_without_an_answer_are_counted_and_the_others_go_on(corridor: Any) -> None:
    labels, alone = judged(corridor), PairRecipe()
    whole = made(corridor, labels, alone)
    found = made(corridor, labels, alone, Gone(3), concurrency=1)
    assert found.failed["ModelFailure"] > 0
    assert 0 < len(found.pairs) < len(whole.pairs)
    assert {one.id for one in found.pairs} < {one.id for one in whole.pairs}


def repeated(recorded: Any, times: int) -> tuple[Any, LabelSet]:
    """The same run with each task's first episode so many times, and what is said of them all."""
    suite, directory, trajectories = recorded
    again = [replace(one, id=f"{one.task.name}/{number}") for number in range(times) for one in trajectories]
    labels = judged(recorded)
    every = {
        (one.id, step): replace(first, rewards=replace(first.rewards, trajectory=one.id))
        for one in again
        for (id, step), first in labels.judged.items()
        if id == f"{one.task.name}/0"
    }
    return (suite, directory, again), replace(labels, judged=every)


def test_an_adversary_that_is_gone_for_good_ends_the_pairing(corridor: Any) -> None:
    recorded, labels = repeated(corridor, 10)
    gone = Gone(10**6)
    with pytest.raises(TooManyFailures, match=r"failed for 10 steps in a row, the last: .*gone"):
        made(recorded, labels, PairRecipe(), gone, concurrency=1)
    assert 10**6 - gone.failures < 10 * 6 + 1  # ten steps, six cells each at most


def test_what_is_in_flight_when_patience_ends_is_waited_for_and_nothing_else_is_begun(corridor: Any) -> None:
    """Four steps at once: ten fail, and two whose answers take longer come to their end."""
    recorded, labels = repeated(corridor, 30)
    steps, answered = dict[tuple[str, int], bool](), list[Occasion]()

    class Slow(SamplerAdversary):
        async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
            is_slow = steps.setdefault(occasion.case.key, len(steps) < 2)
            await asyncio.sleep(1 if is_slow else 0)
            if not is_slow:
                raise ModelFailure("gone")
            answered.append(occasion)
            return await super().propose(occasion)

    with pytest.raises(TooManyFailures, match=r"failed for 10 steps in a row, the last: .*gone"):
        made(recorded, labels, PairRecipe(), Slow(), concurrency=4)
    assert {one.case.key for one in answered} == {key for key, is_slow in steps.items() if is_slow}
    assert len(steps) <= 2 + 10 + 1 < len(labels.judged)


def test_answers_beside_a_cell_that_failed_are_paid_once_and_asked_for_once(corridor: Any, tmp_path: Path) -> None:
    suite, directory, trajectories = corridor
    run = tmp_path / "run"
    shutil.copytree(directory, run)
    price = Usage(calls=1, prompt_tokens=100, completion_tokens=7, cost_usd=0.25)

    class Paid(Gone):
        answered = 0

        async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
            found = await super().propose(occasion)
            await asyncio.sleep(0.001)
            self.answered += 1
            return None if found is None else replace(found, spent=price)

    def go_on(adversary: Paid) -> RunPairs:
        with ProposalMemory(run) as memory:
            asked = RememberingAdversary(adversary, memory, options={})
            return made((suite, run, trajectories), judged(corridor), PairRecipe(), asked, concurrency=1)

    first, second = Paid(1), Paid(0)
    broken = go_on(first)
    assert (broken.failed, broken.spent.calls) == ({"ModelFailure": 1}, first.answered)
    go_on(second)
    assert second.answered == 1


def test_a_pairing_that_broke_resumes_with_what_was_answered(corridor: Any, tmp_path: Path) -> None:
    suite, directory, trajectories = corridor
    run = tmp_path / "run"
    shutil.copytree(directory, run)
    labels, whole = judged(corridor), made(corridor, judged(corridor), PairRecipe())

    def go_on(adversary: Gone) -> RunPairs:
        with ProposalMemory(run) as memory:
            asked = RememberingAdversary(adversary, memory, options={})
            return made((suite, run, trajectories), labels, PairRecipe(), asked, concurrency=1)

    assert go_on(Gone(3)).failed
    again = Gone(0)
    assert go_on(again).pairs == whole.pairs
    nobody = Gone(10**6)
    assert go_on(nobody).pairs == go_on(again).pairs
    assert nobody.failures == 10**6


@pytest.mark.parametrize("sources", [MIX.sources, Sources(adversary=0, correction=1)], ids=["mix", "correction"])
def test_an_episode_teaches_up_to_its_first_error_if_asked(corridor: Any, sources: Sources) -> None:
    """The first step whose executed action the critic did not reward, counted here from the record itself."""
    labels, recipe = judged(corridor), replace(MIX, sources=sources)
    whole = made(corridor, labels, recipe)
    wrong: dict[str, int] = {}
    for trajectory in corridor[2]:
        for step in trajectory.steps[::-1]:
            rewards = {one.cell: one.reward for one in labels.judged[trajectory.id, step.index].rewards.rewards}
            if not any(rewards[cell.cell] for cell in step.matrix if cell.action == step.executed):
                wrong[trajectory.id] = step.index
    assert wrong, "somebody errs here"
    cut = made(corridor, labels, replace(recipe, stop_at_first_error=True))
    kept = [one for one in whole.pairs if one.chosen[0].step <= wrong.get(one.chosen[0].trajectory, 99)]
    assert list(cut.pairs) == kept
    assert 0 < len(kept) < len(whole.pairs)
    assert cut.counts[BEHIND_ERROR] == len(whole.pairs) - len(kept)


def test_a_cap_and_the_costs_are_told(corridor: Any) -> None:
    labels = judged(corridor)
    capped = made(corridor, labels, replace(MIX, cap=1))
    states = [(one.chosen[0].trajectory, one.chosen[0].step) for one in capped.pairs]
    assert len(set(states)) == len(states)
    assert made(corridor, labels).spent == Usage(calls=0, prompt_tokens=0, completion_tokens=0, cost_usd=0)


@pytest.mark.parametrize("wrong", [{"threshold": 1.0}, {"threshold": -0.1}, {"attempts": 0}, {"cap": 0}])
def test_recipes_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="allowed"):
        PairRecipe(**wrong)
