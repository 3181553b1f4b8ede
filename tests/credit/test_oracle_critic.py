"""The exact critic: scores follow from what of the solution is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from collab.credit.oracle import BAD, GOOD, NEUTRAL, OracleCritic, verdict
from collab.envs.actions import MOBILE
from collab.envs.fake import CorridorSuite
from collab.envs.phone.suite import SimPhoneSuite
from collab.types import Observation, Outcome, StepResult

SCREEN = Observation(space="mobile", title="Home", elements=(), text="Screen: Home")
WAIT, BACK = MOBILE.make("wait"), MOBILE.make("navigate_back")


def ended(success: bool) -> StepResult:
    return StepResult(observation=SCREEN, terminated=True, outcome=Outcome(success=success, score=float(success)))


@pytest.mark.parametrize(
    ("before", "after", "score", "left"),
    [
        ((WAIT, BACK), (BACK,), GOOD, 1),
        ((WAIT, BACK), (WAIT, BACK), NEUTRAL, 2),
        ((WAIT, BACK), (WAIT, WAIT, BACK), BAD, 3),
        ((WAIT,), None, BAD, None),
        (None, None, NEUTRAL, None),
        (None, (WAIT,), GOOD, 1),
    ],
)
def test_scores_compare_what_is_left(before, after, score, left) -> None:  # type: ignore[no-untyped-def]
    judged = verdict(before, StepResult(observation=SCREEN), after)
    assert (judged.score, judged.left) == (score, left)
    assert judged.reason


def test_an_end_is_judged_by_its_outcome() -> None:
    assert verdict((WAIT,), ended(True), None).score == GOOD
    assert verdict((WAIT,), ended(False), None).score == BAD


def test_where_nothing_can_be_said_it_says_so() -> None:
    spent = StepResult(observation=SCREEN, truncated=True, outcome=Outcome(success=False, score=0.0))
    for judged in (verdict((WAIT,), spent, None), verdict(None, StepResult(observation=SCREEN), None)):
        assert (judged.score, judged.left, judged.known) == (NEUTRAL, None, False)
    assert verdict((WAIT,), replace(spent, outcome=Outcome(success=True, score=1.0)), None).score == GOOD


def test_every_step_of_a_phone_solution_is_good_and_judging_changes_nothing() -> None:
    asyncio.run(_judge_a_solution())


async def _judge_a_solution() -> None:
    suite = SimPhoneSuite()
    environment = await suite.open()
    screen = await environment.reset(suite.instance("ContactsAddContact", 11))
    while remaining := environment.oracle():
        critic = OracleCritic(environment)
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
    critic = OracleCritic(environment)
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
