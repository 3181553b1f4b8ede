"""The oracle over recorded steps: what an action does to the rest of the solution, for all cells that proposed it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from collab.envs.solution import BAD, BUDGET, GOOD, NEUTRAL
from collab.errors import EnvironmentFailure
from collab.rewards.base import UNREAD, CriticInput, Judgement, build_inputs
from collab.rewards.oracle import NO_SOLUTION, NO_STATE, SolutionCritic
from collab.rewards.restore import StateRebuilder
from collab.types import ParseFailure


def judge(case: CriticInput) -> Judgement:
    return asyncio.run(SolutionCritic().judge(case))


async def left_after(case: CriticInput, action) -> tuple[int | None, bool | None]:  # type: ignore[no-untyped-def]
    """Actions left, and whether the task ended well, in a state made for this action alone."""
    assert case.state is not None
    async with case.state.open() as environment:
        result = await environment.step(action)
        if result.outcome is not None:
            return None, result.outcome.success
        rest = environment.oracle()
        return None if rest is None else len(rest), None


@pytest.mark.variations
@pytest.mark.parametrize("where", ["corridor", "phone"])
def test_scores_say_what_is_left_of_the_solution(where: str, request: pytest.FixtureRequest) -> None:
    suite, _, episodes = request.getfixturevalue(where)
    seen: Counter[float | None] = Counter()
    for episode in episodes:
        for case in build_inputs(episode, suite.space, StateRebuilder(suite)):
            judgement = judge(case)
            assert [one.cell for one in judgement.rewards.rewards] == [cell.cell for cell in case.matrix]
            for cell, given in zip(case.matrix, judgement.rewards.rewards, strict=True):
                expected = asyncio.run(expect(case, cell.action))
                assert given.score == expected
                assert (given.missing == UNREAD) == (cell.action is None)
                seen[given.score] += 1
    assert seen[GOOD] > 10
    assert seen[BAD] + seen[NEUTRAL] > 10


async def expect(case: CriticInput, action) -> float | None:  # type: ignore[no-untyped-def]
    if action is None:
        return None
    assert case.state is not None
    async with case.state.open() as environment:
        before = environment.oracle()
    left, success = await left_after(case, action)
    if success is not None:
        return GOOD if success else BAD
    if left is None or before is None:
        return {(True, False): GOOD, (False, True): BAD}.get((left is not None, before is not None))
    return GOOD if left < len(before) else NEUTRAL if left == len(before) else BAD


def test_cells_with_one_action_share_its_score_and_reason(phone) -> None:  # type: ignore[no-untyped-def]
    suite, _, episodes = phone
    shared = 0
    for episode in episodes:
        for case in build_inputs(episode, suite.space, StateRebuilder(suite)):
            judgement = judge(case)
            for cells in case.group_proposals().values():
                words = {(one.score, one.reason) for one in map(judgement.of, (cell.cell for cell in cells))}
                assert len(words) == 1
                shared += len(cells) > 1
    assert shared


def test_on_the_last_step_of_the_budget_right_actions_are_not_called_wrong(phone, recording, tmp_path) -> None:  # type: ignore[no-untyped-def]
    suite = phone[0]
    (short,) = recording(suite, ["ContactsAddContact"], tmp_path / "run", errors=0.0, max_steps=2)
    first, last = (judge(case) for case in build_inputs(short, suite.space, StateRebuilder(suite)))
    assert {one.score for one in first.rewards.rewards} == {GOOD}
    assert last.missing == {BUDGET: 6}


def test_what_did_not_parse_is_missing(phone) -> None:  # type: ignore[no-untyped-def]
    suite, _, (episode, *_) = phone
    (case, *_) = build_inputs(episode, suite.space, StateRebuilder(suite))
    first, *others = case.matrix.utterances
    silent = replace(first, action=None, failure=ParseFailure(kind="empty", detail="the reply is empty"))
    judgement = judge(replace(case, matrix=replace(case.matrix, utterances=(silent, *others))))
    assert judgement.of(first.cell).missing == UNREAD
    assert judgement.of(first.cell).reward is None
    assert judgement.missing[UNREAD] >= 1


def test_without_a_state_nothing_is_said(phone) -> None:  # type: ignore[no-untyped-def]
    suite, _, (episode, *_) = phone
    (case, *_) = build_inputs(episode, suite.space)
    judgement = judge(case)
    assert {one.missing for one in judgement.rewards.rewards} <= {NO_STATE, UNREAD}
    assert all(one.reward is None for one in judgement.rewards.rewards)


@dataclass
class Plain:
    """A real state whose environment can be stepped, and on demand asked for solutions, but not copied."""

    case: CriticInput
    knowing: bool = True
    opened_times: int = 0

    @asynccontextmanager
    async def open(self):  # type: ignore[no-untyped-def]
        assert self.case.state is not None
        self.opened_times += 1
        async with self.case.state.open() as environment:
            yield Asked(environment) if self.knowing else Bare(environment)


class Bare:
    def __init__(self, environment) -> None:  # type: ignore[no-untyped-def]
        self._environment = environment
        self.step = environment.step
        self.reset = environment.reset
        self.close = environment.close


class Asked(Bare):
    def oracle(self):  # type: ignore[no-untyped-def]
        return self._environment.oracle()


def test_what_cannot_fork_is_rebuilt_for_each_action_and_judged_the_same(phone) -> None:  # type: ignore[no-untyped-def]
    suite, _, (episode, *_) = phone
    for case in build_inputs(episode, suite.space, StateRebuilder(suite)):
        plain = Plain(case)
        assert judge(replace(case, state=plain)) == judge(case)
        assert plain.opened_times == len(case.group_proposals())


def test_an_environment_without_solutions_scores_nothing(phone) -> None:  # type: ignore[no-untyped-def]
    suite, _, (episode, *_) = phone
    (case, *_) = build_inputs(episode, suite.space, StateRebuilder(suite))
    judgement = judge(replace(case, state=Plain(case, knowing=False)))
    assert {one.missing for one in judgement.rewards.rewards} <= {NO_SOLUTION, UNREAD}


def test_a_world_that_breaks_is_a_failure_and_no_score(corridor) -> None:  # type: ignore[no-untyped-def]
    suite, _, (doors, _) = corridor
    broken = type(suite)(fail_at=0)
    (case, *_) = build_inputs(doors, suite.space, StateRebuilder(broken))
    with pytest.raises(EnvironmentFailure):
        judge(case)
