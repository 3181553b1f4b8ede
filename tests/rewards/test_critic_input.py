"""A critic's input is built from a recorded step, and its state can be restored."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from collab.envs.base import HasOracle
from collab.errors import EnvironmentFailure, RunFormatError
from collab.rewards.base import CriticInput, build_inputs
from collab.rewards.restore import StateRebuilder
from collab.testing.corridor import CorridorSuite


def test_a_case_holds_what_a_judge_may_know(corridor) -> None:  # type: ignore[no-untyped-def]
    suite, _, (doors, _) = corridor
    found = list(build_inputs(doors, suite.space))
    assert [case.step for case in found] == list(range(len(doors.steps)))
    last = found[-1]
    assert last.history == tuple(step.history for step in doors.steps[:-1])
    assert found[0].later == tuple(step.executed for step in doors.steps[1:])
    assert (last.later, last.state, last.outcome) == ((), None, doors.outcome)


def test_proposals_are_distinct_and_name_their_cells(corridor) -> None:  # type: ignore[no-untyped-def]
    suite, _, (doors, _) = corridor
    for case in build_inputs(doors, suite.space):
        proposals = case.group_proposals()
        named = [cell for cells in proposals.values() for cell in cells]
        assert sorted(cell.cell for cell in named) == sorted(cell.cell for cell in case.matrix if cell.action)
        assert all(cell.action == action for action, cells in proposals.items() for cell in cells)


def test_the_digest_tells_cases_apart_and_nothing_else_does(corridor) -> None:  # type: ignore[no-untyped-def]
    suite, _, (doors, word) = corridor
    digests = [case.digest for one in (doors, word) for case in build_inputs(one, suite.space)]
    assert len(set(digests)) == len(digests)
    (case, *_) = build_inputs(doors, suite.space)
    first, *others = case.matrix.utterances
    said = replace(case.matrix, utterances=(replace(first, text="other"), *others))
    assert replace(case, matrix=said).digest != case.digest
    assert replace(case, state=StateRebuilder(suite)(doors, 0), later=()).digest == case.digest


@pytest.mark.parametrize("where", ["corridor", "phone"])
def test_every_state_is_rebuilt_in_any_order(where: str, request: pytest.FixtureRequest) -> None:
    suite, _, (trajectory, _) = request.getfixturevalue(where)

    async def check() -> None:
        for case in reversed(list(build_inputs(trajectory, suite.space, StateRebuilder(suite)))):
            assert case.state is not None
            async with case.state.open() as environment:
                assert isinstance(environment, HasOracle)
                result = await environment.step(case.executed)
            after = [*trajectory.steps[case.step + 1 :]]
            seen = after[0].observation if after else trajectory.final
            assert seen is not None
            assert result.observation.digest == seen.digest

    asyncio.run(check())


async def enter(case: CriticInput) -> None:
    assert case.state is not None
    async with case.state.open():
        raise AssertionError("the state was opened")


def test_a_state_of_another_version_of_the_environment_is_refused_to_who_opens_it(corridor) -> None:  # type: ignore[no-untyped-def]
    """Words about what was recorded, and pairs of what was said, need none."""
    suite, _, (doors, _) = corridor
    found = list(build_inputs(replace(doors, environment_version="0"), suite.space, StateRebuilder(suite)))
    with pytest.raises(RunFormatError, match="version 0"):
        asyncio.run(enter(found[0]))


def test_another_screen_on_the_way_is_a_failure(corridor) -> None:  # type: ignore[no-untyped-def]
    suite, _, (doors, _) = corridor
    first, *others = doors.steps
    other = replace(first.observation, title="Room 9 of 9")
    changed = replace(doors, steps=(replace(first, observation=other), *others))
    last = list(build_inputs(changed, suite.space, StateRebuilder(suite)))[-1]
    with pytest.raises(EnvironmentFailure, match="before step 0"):
        asyncio.run(enter(last))


def test_where_nothing_can_be_rebuilt_there_is_no_state(corridor) -> None:  # type: ignore[no-untyped-def]
    _, _, (doors, _) = corridor
    suite = CorridorSuite()
    lost = replace(doors, steps=doors.steps[1:])
    assert all(case.state is None for case in build_inputs(lost, suite.space, lambda one, step: None))
    assert StateRebuilder(suite)(lost, 0) is None
    suite.capabilities = frozenset({"fork", "oracle"})
    assert StateRebuilder(suite)(doors, 0) is None
