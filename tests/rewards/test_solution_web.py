"""The oracle and the replay over recorded steps of real web pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collab.envs.base import HasOracle
from collab.envs.solution import BAD, GOOD, NO_WAY, SolutionScorer
from collab.envs.web.mobile import MobileMiniwobSuite
from collab.rewards.base import UNREAD, CriticInput, Judgement, build_inputs
from collab.rewards.oracle import SolutionCritic
from collab.rewards.outcome import NO_END, OutcomeCritic
from collab.rewards.restore import StateRebuilder
from collab.types import Trajectory

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def given_up(case: CriticInput) -> CriticInput:
    """The same step, where the first cell wants to give up."""
    first, *others = case.matrix.utterances
    action = case.space.make("status", goal_status="infeasible")
    cells = (replace(first, action=action, failure=None), *others)
    return replace(case, matrix=replace(case.matrix, utterances=cells))


async def judge(episodes: list[Trajectory]) -> list[tuple[CriticInput, Judgement, Judgement]]:
    """What the oracle and the replay say of all steps, in a browser of their own."""
    suite = MobileMiniwobSuite()
    by_solution, by_end = SolutionCritic(), OutcomeCritic(replay=True)
    try:
        return [
            (case, await by_solution.judge(case), await by_end.judge(case))
            for episode in episodes
            for case in map(given_up, build_inputs(episode, suite.space, StateRebuilder(suite)))
        ]
    finally:
        await suite.close()


def test_recorded_pages_are_judged_in_their_states(recording: Callable[..., list[Trajectory]], tmp_path: Path) -> None:
    episodes = recording(MobileMiniwobSuite(), ["click-button", "click-option"], tmp_path / "run")
    assert all(episode.error is None for episode in episodes)
    seen: set[float | None] = set()
    for case, solution, end in asyncio.run(judge(episodes)):
        assert set(solution.missing) <= {UNREAD}
        assert set(end.missing) <= {UNREAD, NO_END}
        first, *others = solution.rewards.rewards
        assert (first.score, first.reason[:33]) == (BAD, "it ends the task without success:")
        seen |= {one.score for one in others}
        assert case.outcome is not None
        for action, (cell, *_) in case.group_proposals().items():
            if action == case.executed:
                assert end.of(cell.cell).score == float(case.outcome.success)
    assert {GOOD} < seen - {None}


def test_a_replay_tells_the_right_tap_where_a_wrong_one_ended_the_page(
    recording: Callable[..., list[Trajectory]], tmp_path: Path
) -> None:
    (episode,) = recording(MobileMiniwobSuite(), ["click-widget"], tmp_path / "run", errors=0.95)
    *_, (case, solution, end) = asyncio.run(judge([episode]))
    assert not episode.success
    told = {
        (action.type, action == case.executed, solution.of(cell.cell).score, end.of(cell.cell).score)
        for action, (cell, *_) in case.group_proposals().items()
    }
    assert told == {
        ("click", True, BAD, 0.0),
        ("status", False, BAD, 0.0),
        ("double_tap", False, GOOD, 1.0),  # on the wanted widget: its first tap ends the page
        ("navigate_home", False, 0.5, None),
        ("wait", False, 0.5, None),
    }


def test_a_page_without_a_solution_is_judged_by_the_end_alone(
    recording: Callable[..., list[Trajectory]], tmp_path: Path
) -> None:
    page = "click-menu-2"
    assert not next(task for task in MobileMiniwobSuite().tasks() if task.name == page).oracle
    episodes = recording(MobileMiniwobSuite(), [page], tmp_path / "run")
    assert all(episode.error is None for episode in episodes)
    unknown, replayed = 0, 0
    for case, solution, end in asyncio.run(judge(episodes)):
        assert case.outcome is not None
        for action, (cell, *_) in case.group_proposals().items():
            word = solution.of(cell.cell)
            if action.type == "status":
                assert (word.score, word.missing) == (BAD, None)
            else:
                assert (word.score, word.missing) == (None, NO_WAY)
                unknown += 1
            assert end.of(cell.cell).score == float(case.outcome.success)
            replayed += action != case.executed and action.type != "status"
    assert unknown > replayed > 0


def test_every_step_of_a_solution_is_good_on_every_page() -> None:
    """Also where a page shows the next thing to do only after this one."""
    asyncio.run(_follow_all())


async def _follow_all() -> None:
    suite = MobileMiniwobSuite()
    try:
        for page in [task.name for task in suite.tasks() if task.oracle]:
            environment = await suite.open()
            screen, result = await environment.reset(suite.instance(page, 1)), None
            while isinstance(environment, HasOracle) and (ahead := environment.oracle()):
                action = suite.space.canonical(ahead[0], screen)
                found = await SolutionScorer(environment)(action)
                assert found.score == GOOD, (page, action, found)
                result = await environment.step(action)
                screen = result.observation
            outcome = None if result is None else result.outcome
            assert outcome is not None, page
            assert outcome.success, page
            await environment.close()
    finally:
        await suite.close()
