"""Trying an action without doing it: on a fork of the scene's environment."""

from __future__ import annotations

from collab.envs.base import Forkable
from collab.rollout import told
from collab.synth import facts
from collab.synth.teacher import Scene
from collab.types import Action, StepResult


async def tried(scene: Scene, action: Action) -> StepResult | None:
    """What the action would lead to; None where the environment cannot fork.

    Raises:
        EnvironmentFailure: the environment broke.
    """
    if not isinstance(scene.environment, Forkable):
        return None
    fork = await scene.environment.fork()
    try:
        return await fork.step(action)
    finally:
        await fork.close()


def changes(scene: Scene, result: StepResult) -> bool:
    """Whether it made any difference that can be seen; that the budget ran out is none."""
    return result.terminated or result.observation.digest != scene.observation.digest


def consequence(scene: Scene, action: Action, result: StepResult) -> str:
    """What the action did, in words; of an episode that it ended nothing is left to be seen."""
    effect = told(scene.suite.space, scene.observation, action, "", result).effect
    return facts.change(scene.observation, scene.observation if result.terminated else result.observation, effect)
