"""Screens are met by seed, in many apps, and mistakes can be made good again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.solution import GOOD
from collab.prompts.parse import read_reply
from collab.rewards.structured_replies import format_reply
from collab.synthesis.screens import explore, follow
from collab.synthesis.teacher import Met, Scene
from collab.testing.corridor import CorridorSuite


async def explored(suite: SimPhoneSuite, task: str, seed: int, steps: int) -> list[Scene]:
    environment = await suite.open()
    return [scene async for scene in explore(suite, environment, suite.instance(task, 5), seed=seed, steps=steps)]


async def followed(suite: SimPhoneSuite, task: str, seed: int, mistakes: float) -> list[Scene]:
    environment = await suite.open()
    return [scene async for scene in follow(suite, environment, suite.instance(task, 5), seed=seed, mistakes=mistakes)]


def test_the_seed_decides_what_is_met(phones: SimPhoneSuite) -> None:
    one, two, other = (asyncio.run(explored(phones, "SystemWifiTurnOn", seed, 12)) for seed in (1, 1, 2))
    assert [scene.observation.digest for scene in one] == [scene.observation.digest for scene in two]
    assert [scene.seed for scene in one] == [scene.seed for scene in two]
    assert [scene.observation.digest for scene in one] != [scene.observation.digest for scene in other]
    assert len({scene.seed for scene in one}) == len(one)


def test_exploration_takes_all_its_steps_and_meets_many_apps(phones: SimPhoneSuite) -> None:
    scenes = asyncio.run(explored(phones, "SystemWifiTurnOn", 3, 60))
    assert len(scenes) == 61 > phones.instance("SystemWifiTurnOn", 5).max_steps
    assert len({scene.observation.title for scene in scenes}) >= 15
    assert len({scene.app for scene in scenes}) >= 6
    assert not any("expense" in scene.observation.text.casefold() for scene in scenes)
    assert all(len(scene.history) == scene.step == number for number, scene in enumerate(scenes))


@pytest.mark.parametrize("task", ["ContactsAddContact", "MarkorCreateNote", "SystemBrightnessMax", "SimpleSmsSend"])
def test_a_walk_without_mistakes_is_the_solution(phones: SimPhoneSuite, task: str) -> None:
    async def solution() -> int:
        environment = await phones.open()
        await environment.reset(phones.instance(task, 5))
        return len(environment.oracle() or ())

    scenes = asyncio.run(followed(phones, task, 1, 0.0))
    assert len(scenes) == asyncio.run(solution())
    assert {scene.met for scene in scenes} == {"rollout"}


@pytest.mark.slow
def test_after_mistakes_the_solution_still_leads_to_success(phones: SimPhoneSuite) -> None:
    """Every scene met by a mistake is played to its end on a fork, by the oracle alone."""

    async def check() -> int:
        environment, count = await phones.open(), 0
        for info in phones.tasks()[::6]:
            task = phones.instance(info.name, 9)
            async for scene in follow(phones, environment, task, seed=4, mistakes=0.35):
                if scene.met != "mistake":
                    continue
                count += 1
                fork = await environment.fork()
                actions = fork.oracle()
                assert actions
                left = info.max_steps - scene.step
                results = [await fork.step(action) for action in actions[:left]]
                if len(actions) <= left:
                    assert results[-1].outcome is not None
                    assert results[-1].outcome.score == GOOD
        return count

    assert asyncio.run(check()) >= 10


def test_history_tells_what_a_policy_that_says_it_would_have_told(phones: SimPhoneSuite) -> None:
    scenes = asyncio.run(followed(phones, "ContactsAddContact", 1, 0.3))
    for before, after in itertools.pairwise(scenes):
        assert after.last is not None
        text = format_reply(after.last, before.observation, phones.space)
        entry = after.history[-1]
        assert entry.reason == read_reply(text, phones.space, before.observation).reason
        assert entry.action == phones.space.describe(after.last, before.observation)
        assert entry.effect


def test_other_environments_are_walked_in_the_same_way() -> None:
    async def check() -> tuple[list[Met], int]:
        suite = CorridorSuite()
        environment = await suite.open()
        task = suite.instance("OpenDoors", 3)
        met = [scene.met async for scene in follow(suite, environment, task, seed=1, mistakes=0.5)]
        count = len([scene async for scene in explore(suite, environment, task, seed=1, steps=20)])
        return met, count

    met, count = asyncio.run(check())
    assert met[0] == "rollout"
    assert "mistake" in met
    assert count == 21
