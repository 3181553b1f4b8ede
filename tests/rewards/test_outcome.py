"""The outcome as a critic: the executed action gets it, the others only by a replay that comes to an end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from collab.envs.grammar import MOBILE
from collab.rewards.base import UNREAD, CriticInput, Judgement, build_inputs
from collab.rewards.oracle import NO_STATE
from collab.rewards.outcome import NO_END, NO_OUTCOME, NOT_EXECUTED, OutcomeCritic
from collab.rewards.restore import StateRebuilder
from collab.testing.corridor import CorridorSuite
from collab.types import Outcome, Trajectory


def judge(case: CriticInput, *, replay: bool = False) -> Judgement:
    return asyncio.run(OutcomeCritic(replay=replay).judge(case))


def test_the_executed_action_gets_the_outcome_and_nothing_else_does(phone) -> None:  # type: ignore[no-untyped-def]
    suite, _, episodes = phone
    executed = others = 0
    for episode in episodes:
        for case in build_inputs(episode, suite.space):
            for cell, given in zip(case.matrix, judge(case).rewards.rewards, strict=True):
                if cell.action is None:
                    assert given.missing == UNREAD
                elif cell.action == case.executed:
                    executed += 1
                    assert given.score == float(episode.success)
                else:
                    others += 1
                    assert (given.score, given.missing) == (None, NOT_EXECUTED)
    assert executed
    assert others


@pytest.mark.parametrize("success", [True, False])
def test_success_decides_and_not_the_score(corridor, success: bool) -> None:  # type: ignore[no-untyped-def]
    suite, _, (doors, _) = corridor
    (case, *_) = build_inputs(replace(doors, outcome=Outcome(success=success, score=0.6, reason="half")), suite.space)
    told = judge(case).of(next(cell.cell for cell in case.matrix if cell.action == case.executed))
    assert (told.reward, told.reason.endswith(": half")) == (int(success), True)


def test_a_broken_episode_says_nothing(corridor) -> None:  # type: ignore[no-untyped-def]
    suite, _, (doors, _) = corridor
    (case, *_) = build_inputs(replace(doors, outcome=None), suite.space, StateRebuilder(suite))
    assert {one.missing for one in judge(case, replay=True).rewards.rewards} <= {NO_OUTCOME, UNREAD}


@pytest.fixture(scope="module")
def right(recording, tmp_path_factory: pytest.TempPathFactory) -> tuple[CorridorSuite, Trajectory]:  # type: ignore[no-untyped-def]
    """An episode of one room that a team of rare errors solved."""
    folder: Path = tmp_path_factory.mktemp("right") / "run"
    suite = CorridorSuite()
    (episode,) = recording(suite, ["PressButton"], folder, errors=0.2)
    return suite, episode


def put(case: CriticInput, number: int, action) -> CriticInput:  # type: ignore[no-untyped-def]
    cells = list(case.matrix.utterances)
    cells[number] = replace(cells[number], action=action, failure=None)
    return replace(case, matrix=replace(case.matrix, utterances=tuple(cells)))


def test_a_replay_tells_of_other_actions_what_they_would_have_ended_in(right) -> None:  # type: ignore[no-untyped-def]
    suite, episode = right
    assert episode.success
    *_, press, end = build_inputs(episode, suite.space, StateRebuilder(suite))
    assert press.executed is not None
    assert press.executed.type == "click"
    wrong = next(
        action
        for element in press.observation.elements
        if (action := MOBILE.make("click", index=element.index)) != press.executed and element.role == "button"
    )
    giving_up = MOBILE.make("status", goal_status="infeasible")
    case = put(put(press, 0, wrong), 1, giving_up)
    judgement = judge(case, replay=True)
    assert judgement.of(case.matrix.utterances[0].cell).score == 0.0  # back at the start, and then "complete"
    assert judgement.of(case.matrix.utterances[1].cell).score == 0.0
    last = put(end, 0, MOBILE.make("wait"))
    assert judge(last, replay=True).of(last.matrix.utterances[0].cell).missing == NO_END


def test_a_replay_gives_1_to_what_would_have_solved_a_task_that_failed(recording, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Some cell proposed the right button at each step; the team pressed others until its steps were used up."""
    suite = CorridorSuite(declared=False, max_steps=2)
    (episode,) = recording(suite, ["PressButton"], tmp_path / "run", errors=0.7)
    assert (episode.success, len(episode.steps)) == (False, 2)
    (room,) = episode.task.params["rooms"]
    right = MOBILE.make("click", index=1 + room["buttons"].index(room["want"]))
    for case in build_inputs(episode, suite.space, StateRebuilder(suite)):
        proposals, judgement = case.group_proposals(), judge(case, replay=True)
        assert case.executed != right
        assert len(proposals.keys() - {right, case.executed}) > 0, "one was wrong and was not executed either"
        assert {action: judgement.of(cell.cell).score for action, (cell, *_) in proposals.items()} == {
            action: float(action == right) for action in [right, *proposals]
        }


def test_a_replay_agrees_with_the_record_about_what_was_executed(phone) -> None:  # type: ignore[no-untyped-def]
    """The same instance played again as it was ends as it did: the replay is of this very episode."""
    suite, _, (episode, *_) = phone
    found = []
    for case in build_inputs(episode, suite.space, StateRebuilder(suite)):
        disguised = replace(case, executed=None)
        for action, (first, *_) in case.group_proposals().items():
            if action == case.executed:
                found.append(judge(disguised, replay=True).of(first.cell).score)
    assert found == [float(episode.success)] * len(episode.steps)


def test_a_replay_needs_a_state(phone) -> None:  # type: ignore[no-untyped-def]
    suite, _, (episode, *_) = phone
    found = [
        one.missing for case in build_inputs(episode, suite.space) for one in judge(case, replay=True).rewards.rewards
    ]
    assert NO_STATE in found
    assert NOT_EXECUTED not in found
