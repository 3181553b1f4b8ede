import asyncio
from time import perf_counter

import pytest

from collab.envs.grammar import MOBILE
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.testing.corridor import CorridorSuite


async def solve(suite: CorridorSuite, name: str = "OpenDoors", seed: int = 7):
    environment = await suite.open()
    await environment.reset(suite.instance(name, seed))
    for action in environment.oracle():
        result = await environment.step(action)
    await environment.close()
    return result


@pytest.mark.parametrize("name", ["PressButton", "TypeWord", "OpenDoors"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("declared", [True, False])
def test_the_oracle_solves(name, seed, declared):
    """With its last action, whether that declares the end or opens the last room."""
    result = asyncio.run(solve(CorridorSuite(declared=declared), name, seed))
    assert result.terminated
    assert result.outcome.success


def test_a_wrong_button_leads_back_to_the_start():
    async def scenario():
        environment = await CorridorSuite().open()
        task = CorridorSuite().instance("OpenDoors", 7)
        start = await environment.reset(task)
        first, second = environment.oracle()[:2]
        await environment.step(first)
        wrong = MOBILE.make("click", index=1 + second.target.index % 4)
        assert (await environment.step(wrong)).observation == start
        assert environment.oracle()[0] == first

    asyncio.run(scenario())


def test_complete_too_early_fails_and_ends():
    async def scenario():
        environment = await CorridorSuite().open()
        await environment.reset(CorridorSuite().instance("PressButton", 0))
        result = await environment.step(MOBILE.make("status", goal_status="complete"))
        assert result.terminated
        assert not result.outcome.success
        with pytest.raises(UsageError):
            await environment.step(None)

    asyncio.run(scenario())


def test_failures_on_demand():
    with pytest.raises(EnvironmentFailure, match="step 1"):
        asyncio.run(solve(CorridorSuite(fail_at=1)))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(solve(CorridorSuite(hang_at=0)), 0.05))
    assert asyncio.run(solve(CorridorSuite(fail_at=1, troubled=["TypeWord"]))).outcome.success
    start = perf_counter()
    asyncio.run(solve(CorridorSuite(slow_s=0.02), "PressButton"))
    assert perf_counter() - start >= 0.04


def test_open_environments_are_counted():
    async def scenario():
        suite = CorridorSuite()
        one = await suite.open()
        await one.reset(suite.instance("TypeWord", 0))
        two = await one.fork()
        assert suite.active == 2
        for environment in (one, one, two):
            await environment.close()
        assert suite.active == 0

    asyncio.run(scenario())


def test_unknown_task():
    with pytest.raises(UnknownName, match="did you mean OpenDoors"):
        CorridorSuite().instance("OpenDoor", 0)
