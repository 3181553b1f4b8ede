"""The oracle's solutions, said in a dialect, solve what they solve as actions of the environment."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from collab.dialects.registry import DIALECTS
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.web.miniwob import MiniwobEnvironment, MiniwobSuite
from collab.envs.web.solutions import SOLVED
from collab.types import Observation
from tests.dialects.speaker import Speaker

PLAYABLE = [name for name, one in DIALECTS.items() if "mobile" in one.worlds]
FEW = ("qwen2.5-vl", "ui-tars-1.5", "autoglm")
SUITE = SimPhoneSuite()
TASKS = [info.name for info in SUITE.tasks()]


def solve(dialect: str, task: str) -> str:
    """Play a task by the oracle's actions in a dialect; empty when it is solved, else why not."""
    phone = SimPhone()
    phone.reset(replace(SUITE.instance(task, 5), max_steps=400))
    speaker = Speaker(DIALECTS[dialect], "mobile", lambda: phone.frame.observation)
    for _ in range(150):
        plan = phone.oracle()
        if not plan:
            return "the oracle knows no way on"
        try:
            for said in speaker.say(plan[0]):
                result = phone.step(speaker.read(said))
                if result.done:
                    assert result.outcome is not None
                    return "" if result.outcome.success else str(result.outcome.reason)
        except LookupError as error:
            return str(error)
    return "it goes round in circles"


def list_unsolved(dialect: str, tasks: list[str]) -> dict[str, str]:
    return {task: why for task in tasks if (why := solve(dialect, task))}


def can_answer(dialect: str) -> bool:
    """Return whether a family has a word for an answer, or says it with its last word."""
    verbs = DIALECTS[dialect].list_verbs("mobile")
    return any(one.kind == "answer" or (one.kind == "done" and "text" in one.takes) for one in verbs)


def check(dialect: str, tasks: list[str]) -> None:
    unsolved = list_unsolved(dialect, tasks)
    # A family that cannot answer solves no question; everything else it solves.
    assert can_answer(dialect) or all("answer" in why for why in unsolved.values()), unsolved
    assert not can_answer(dialect) or not unsolved, unsolved


@pytest.mark.parametrize("dialect", FEW)
def test_some_tasks_are_solved_by_points(dialect: str) -> None:
    check(dialect, TASKS[::11])


@pytest.mark.slow
@pytest.mark.parametrize("dialect", PLAYABLE)
def test_all_tasks_are_solved_by_points(dialect: str) -> None:
    assert len(TASKS) == 88
    check(dialect, TASKS)


# ------------------------------------------------------------------------------------------------------- pages

ON_PAGES = ("qwen3-vl", "ui-tars-1.5", "anthropic-computer")


async def solve_page(environment: MiniwobEnvironment, seen: Observation, dialect: str | None) -> bool:
    """Play a page by its solution, in a dialect or by the environment's own actions."""
    shown = seen
    speaker = None if dialect is None else Speaker(DIALECTS[dialect], "web", lambda: shown)
    for _ in range(60):
        plan = environment.oracle()
        if not plan:
            return False
        said = [None] if speaker is None else speaker.say(plan[0])
        for one in said:
            result = await environment.step(plan[0] if one is None or speaker is None else speaker.read(one))
            shown = result.observation
            if result.done:
                return result.outcome is not None and result.outcome.success
    return False


async def list_solved(dialect: str | None, pages: list[str]) -> set[str]:
    suite = MiniwobSuite(max_steps=100)
    environment, solved = await suite.open(), set[str]()
    try:
        for name in pages:
            seen = await environment.reset(suite.instance(name, 5))
            try:
                if await solve_page(environment, seen, dialect):
                    solved.add(name)
            except (LookupError, AssertionError):
                continue
    finally:
        await environment.close()
        await suite.close()
    return solved


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("dialect", ON_PAGES)
def test_the_same_pages_are_solved_by_points_as_by_elements(dialect: str) -> None:
    pages = sorted(SOLVED)
    assert asyncio.run(list_solved(dialect, pages)) == asyncio.run(list_solved(None, pages))
