"""The exact critic: scores follow from what of the solution is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.solution import BAD, GOOD, NEUTRAL, OracleVerdict, SolutionScorer, score_step
from collab.testing.corridor import CorridorEnvironment, CorridorSuite
from collab.types import Action, Observation, Outcome, StepResult

SCREEN = Observation(space="mobile", title="Home", elements=(), text="Screen: Home")


def ended(success: bool) -> StepResult:
    return StepResult(observation=SCREEN, terminated=True, outcome=Outcome(success=success, score=float(success)))


@pytest.mark.parametrize(
    ("before", "after", "score", "left"),
    [
        (2, 1, GOOD, 1),
        (2, 2, NEUTRAL, 2),
        (2, 3, BAD, 3),
        (1, None, BAD, None),
        (None, None, NEUTRAL, None),
        (None, 1, GOOD, 1),
    ],
)
def test_scores_compare_what_is_left(before, after, score, left) -> None:  # type: ignore[no-untyped-def]
    judged = score_step(before, StepResult(observation=SCREEN), after)
    assert (judged.score, judged.left) == (score, left)
    assert judged.reason


def test_an_end_is_judged_by_its_outcome() -> None:
    assert score_step(1, ended(True), None).score == GOOD
    assert score_step(1, ended(False), None).score == BAD


def test_where_nothing_can_be_said_it_says_so() -> None:
    spent = StepResult(observation=SCREEN, truncated=True, outcome=Outcome(success=False, score=0.0))
    for judged in (score_step(1, spent, None), score_step(None, StepResult(observation=SCREEN), None)):
        assert (judged.score, judged.left, judged.known) == (NEUTRAL, None, False)
    assert score_step(1, replace(spent, outcome=Outcome(success=True, score=1.0)), None).score == GOOD


def test_every_step_of_a_phone_solution_is_good_and_judging_changes_nothing() -> None:
    asyncio.run(_judge_a_solution())


async def _judge_a_solution() -> None:
    suite = SimPhoneSuite()
    environment = await suite.open()
    screen = await environment.reset(suite.instance("ContactsAddContact", 11))
    while remaining := environment.oracle():
        critic = SolutionScorer(environment)
        assert (await critic(remaining[0])).score == GOOD
        assert (await critic(MOBILE.make("wait"))).score == NEUTRAL
        assert (await critic(MOBILE.make("status", goal_status="infeasible"))).score == BAD
        assert environment.oracle() == remaining
        screen = (await environment.step(remaining[0])).observation
    assert screen.title == "Contacts: Contact details"


def test_the_wrong_door_leads_away_and_equal_actions_are_tried_once() -> None:
    asyncio.run(_take_a_wrong_door())


async def _take_a_wrong_door() -> None:
    suite = CorridorSuite()
    environment = await suite.open()
    await environment.reset(suite.instance("OpenDoors", 3))
    first_door = environment.oracle()
    assert first_door is not None
    screen = (await environment.step(first_door[0])).observation
    critic = SolutionScorer(environment)
    next_door = environment.oracle()
    assert next_door is not None
    wrong = next(
        action
        for element in screen.elements
        if (action := MOBILE.make("click", index=element.index)) != next_door[0] and element.role == "button"
    )
    judged = await critic(wrong)
    assert judged.score == BAD
    assert await critic(wrong) is judged


class Shortsighted(CorridorEnvironment):
    """A corridor whose solution knows the present room alone."""

    solves_by_screen = True

    async def fork(self) -> Shortsighted:
        return Shortsighted(self._suite, self._state)

    def oracle(self) -> tuple[Action, ...] | None:
        whole = super().oracle()
        return None if whole is None else whole[:1]


@pytest.mark.parametrize("seed", range(4))
def test_a_solution_by_screens_is_judged_as_one_that_sees_all(seed: int) -> None:
    """Every action in every room."""
    asyncio.run(_compare_sights(seed))


async def _compare_sights(seed: int) -> None:
    suite = CorridorSuite()
    task = suite.instance("OpenDoors", seed)
    seeing, blind = CorridorEnvironment(suite), Shortsighted(suite)
    screen = await seeing.reset(task)
    assert await blind.reset(task) == screen
    steps = 0
    while whole := seeing.oracle():
        expected, found = SolutionScorer(seeing), SolutionScorer(blind)
        buttons = [MOBILE.make("click", index=element.index) for element in screen.elements]
        for action in (*buttons, MOBILE.make("wait"), MOBILE.make("navigate_back")):
            assert (await found(action)).score == (await expected(action)).score, (action, whole)
        screen = (await seeing.step(whole[0])).observation
        await blind.step(whole[0])
        steps += 1
    assert steps > 2


def test_a_solution_by_screens_that_the_budget_cuts_off_is_no_way() -> None:
    """Five actions are left, and steps for as many: one that is wasted leaves no way; with fewer nothing is known."""

    async def look(steps: int) -> list[OracleVerdict]:
        suite = CorridorSuite(max_steps=steps)
        environment = Shortsighted(suite)
        await environment.reset(suite.instance("OpenDoors", 3))
        ahead = environment.oracle()
        assert ahead is not None
        critic = SolutionScorer(environment)
        return [await critic(action) for action in (*ahead, MOBILE.make("wait"))]

    whole = CorridorEnvironment(CorridorSuite())
    asyncio.run(whole.reset(CorridorSuite().instance("OpenDoors", 3)))
    needed = len(whole.oracle() or ())
    assert needed > 3
    for spare, scores in ((1, [GOOD, NEUTRAL]), (0, [GOOD, BAD]), (-1, [NEUTRAL, NEUTRAL])):
        found = asyncio.run(look(needed + spare))
        assert [one.score for one in found] == scores
        assert all(one.known for one in found) == (spare >= 0)


def test_a_solution_that_goes_round_in_circles_is_no_way() -> None:
    class Circling(Shortsighted):
        async def fork(self) -> Circling:
            return Circling(self._suite, self._state)

        def oracle(self) -> tuple[Action, ...] | None:
            return (MOBILE.make("wait"),)

    async def look() -> OracleVerdict:
        suite = CorridorSuite(max_steps=1000)
        environment = Circling(suite)
        await environment.reset(suite.instance("OpenDoors", 3))
        return await SolutionScorer(environment)(MOBILE.make("wait"))

    found = asyncio.run(look())
    assert (found.known, found.score) == (False, NEUTRAL)
