"""An episode that a teacher's model plays by itself, and the way through it a second time to look at every step.

The first pass asks for a step, takes it, and so on until the episode is over. The second repeats the executed actions
without asking anybody and yields the scenes: by then it is known whether the episode succeeded, which is what makes
its steps a demonstration. It needs a world that can be rebuilt ("deterministic"); in any other no scene is yielded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from collab.envs.base import Environment, HasGoal, Suite
from collab.errors import EnvironmentFailure
from collab.rollout import told
from collab.seeds import derive
from collab.synth.llm.checks import Decided
from collab.synth.teacher import Scene
from collab.types import Action, HistoryEntry, Task

PATIENCE = 3
"""Refused proposals in a row after which an episode is given up."""

Propose = Callable[[Scene], Awaitable[Decided | Counter[str]]]
"""The next step of a scene, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A step that was proposed and carried out."""

    decided: Decided | None
    """None where no proposal fitted and nothing was done."""
    executed: Action | None
    screen: str
    """Digest of the screen before."""
    changed: bool
    """Whether anything was to be seen of it; ending an episode counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A whole episode."""

    steps: tuple[Taken, ...]
    success: bool
    refused: Mapping[str, int] = field(default_factory=Counter)


async def play(suite: Suite, environment: Environment, task: Task, *, seed: int, propose: Propose) -> Played:
    """Play one episode; EnvironmentFailure and ModelFailure as they come."""
    scene = await _begin(suite, environment, task, seed)
    steps: list[Taken] = []
    refused: Counter[str] = Counter()
    idle = 0
    while True:
        found = await propose(scene)
        decided = found if isinstance(found, Decided) else None
        if not isinstance(found, Decided):
            refused += found
        idle = 0 if decided else idle + 1
        if idle == PATIENCE:
            return Played(steps=tuple(steps), success=False, refused=refused)
        result = await environment.step(executed := decided.action if decided else None)
        after = result.observation
        changed = result.terminated or after.digest != scene.observation.digest
        steps.append(Taken(decided=decided, executed=executed, screen=scene.observation.digest, changed=changed))
        if result.done:
            success = result.outcome is not None and result.outcome.success
            return Played(steps=tuple(steps), success=success, refused=refused)
        entry = told(suite.space, scene.observation, executed, decided.reason if decided else "", result)
        scene = _next(scene, entry, executed, seed=seed)
        scene = replace(scene, observation=after)


async def replay(
    suite: Suite, environment: Environment, task: Task, played: Played, *, seed: int
) -> AsyncIterator[Scene]:
    """The scenes of an episode in which a step was taken, on an environment that is in their state.

    Raises:
        EnvironmentFailure: the world is not what it was the first time.
    """
    scene = await _begin(suite, environment, task, seed)
    for number, step in enumerate(played.steps):
        if scene.observation.digest != step.screen:
            raise EnvironmentFailure(f"{suite.label}: {task.name} is not what it was before step {number}")
        if step.decided is not None:
            yield scene
        if number == len(played.steps) - 1:
            return  # whatever follows the last step, nothing is taught there
        result = await environment.step(step.executed)
        reason = step.decided.reason if step.decided else ""
        entry = told(suite.space, scene.observation, step.executed, reason, result)
        scene = replace(_next(scene, entry, step.executed, seed=seed), observation=result.observation)


async def _begin(suite: Suite, environment: Environment, task: Task, seed: int) -> Scene:
    observation = await environment.reset(task)
    if isinstance(environment, HasGoal):
        task = replace(task, goal=environment.goal())
    return Scene(
        suite=suite,
        environment=environment,
        task=task,
        step=0,
        observation=observation,
        met="rollout",
        seed=derive(seed, "scene", 0),
    )


def _next(scene: Scene, entry: HistoryEntry, executed: Action | None, *, seed: int) -> Scene:
    step = scene.step + 1
    history = (*scene.history, entry)
    return replace(scene, step=step, history=history, last=executed, seed=derive(seed, "scene", step))
