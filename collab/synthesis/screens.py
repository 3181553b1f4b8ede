"""Meet screens by random exploration and along task solutions.

    environment = await suite.open()
    async for scene in explore(suite, environment, task, seed=seed, steps=30): ...
    async for scene in follow(suite, environment, task, seed=seed, mistakes=0.2): ...

Both reset the given environment and play one episode. A scene's environment keeps its state until the next scene is
requested; fork it to act in it, as `try_action` does. The caller chooses tasks and seeds (`collab.data`).
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from collab.envs.base import Environment, Forkable, HasGoal, HasOracle, Suite
from collab.envs.grammar import ActionSpace
from collab.envs.random_actions import draw_action
from collab.envs.solution import SolutionScorer
from collab.rewards.mistakes import DecisionPoint, draw_mistakes, list_task_words
from collab.rewards.oracle import describe_view
from collab.rewards.structured_replies import format_reply, format_said_reason
from collab.rollout.episode import build_history_entry
from collab.seeds import derive, generator
from collab.synthesis import facts
from collab.synthesis.teacher import Met, Scene
from collab.types import Action, Element, HistoryEntry, Observation, StepResult, Task

READ_ONLY = frozenset({"text", "heading", "image"})
"""Roles of elements that exploration taps seldom, for they seldom do anything."""
_MOST_MISTAKES = 2
"""In a row; then the way back is shown."""
_TRIES = 8
"""Mistakes that are looked at before the right action is taken after all."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """One episode while it is played."""

    suite: Suite
    environment: Environment
    task: Task
    observation: Observation
    seed: int
    way: str
    """Purpose of the scenes' seeds."""
    history: list[HistoryEntry] = field(default_factory=list)
    taken: list[Action] = field(default_factory=list)

    @classmethod
    async def begin(cls, suite: Suite, environment: Environment, task: Task, seed: int, way: str) -> _Walk:
        observation = await environment.reset(task)
        if isinstance(environment, HasGoal):
            task = replace(task, goal=environment.goal())
        return cls(suite=suite, environment=environment, task=task, observation=observation, seed=seed, way=way)

    def build_scene(self, met: Met) -> Scene:
        step = len(self.history)
        return Scene(
            suite=self.suite,
            environment=self.environment,
            task=self.task,
            step=step,
            observation=self.observation,
            history=tuple(self.history),
            taken=tuple(self.taken),
            met=met,
            # By the way, the task and the step, so that a scene's draws do not depend on other scenes.
            seed=derive(self.seed, f"{self.way} scene", self.task.name, self.task.seed, step),
        )

    def build_rng(self) -> random.Random:
        """Return this step's random generator."""
        return generator(derive(self.seed, self.way, self.task.name, self.task.seed, len(self.history)))

    async def take(self, action: Action) -> StepResult:
        """Execute an action and add it to the history."""
        space, before = self.suite.space, self.observation
        action = space.canonical(action, before)
        result = await self.environment.step(action)
        why = format_said_reason(format_reply(action, before, space), before, space)
        self.history.append(build_history_entry(space, before, action, why, result))
        self.taken.append(action)
        self.observation = result.observation
        return result


async def explore(
    suite: Suite, environment: Environment, task: Task, *, seed: int, steps: int = 30
) -> AsyncIterator[Scene]:
    """Meet screens by random valid actions that do not end the episode.

    Mostly taps on what was not tapped before, and apps that are opened by name.

    Args:
        environment: of the suite; it is reset, with a budget that lasts for all steps and a trial on the last screen.
        steps: actions at most.

    Yields:
        The first screen, and the one after every action.

    Raises:
        EnvironmentFailure: the environment broke.
    """
    roomy = replace(task, max_steps=max(task.max_steps, steps + 2))
    walk = await _Walk.begin(suite, environment, roomy, seed, "exploration")
    explorer = _Explorer(space=suite.space, apps=list_app_names(suite))
    yield walk.build_scene("exploration")
    for _ in range(steps):
        result = await walk.take(explorer.draw(walk.observation, walk.build_rng()))
        if result.done:
            return
        yield walk.build_scene("exploration")


async def follow(
    suite: Suite, environment: Environment, task: Task, *, seed: int, mistakes: float = 0.0
) -> AsyncIterator[Scene]:
    """Meet the screens on the solution of a task, from the first to the one on which the task is declared done.

    Args:
        environment: of the suite; it is reset.
        mistakes: chance before each step of a sampled mistake, in [0, 1), never more than two in a row. Where the
            environment can fork, only mistakes after which it still knows a way.

    Yields:
        A scene per step. Nothing where the environment knows no solution; the walk ends where it loses its way.

    Raises:
        EnvironmentFailure: the environment broke.
    """
    walk = await _Walk.begin(suite, environment, task, seed, "rollout")
    if not isinstance(environment, HasOracle):
        return
    # A few mistakes in a row at most, so that every walk finds back to the solution.
    wrong = 0
    while remaining := environment.oracle():
        # Screens after a mistake are marked: they teach how to recover.
        yield walk.build_scene("mistake" if wrong else "rollout")
        rng, action = walk.build_rng(), None
        if wrong < _MOST_MISTAKES and rng.random() < mistakes:
            action = await _draw_mistake(walk, remaining[0], rng)
        wrong = wrong + 1 if action is not None else 0
        result = await walk.take(action or remaining[0])
        if result.done:
            return


async def _draw_mistake(walk: _Walk, right: Action, rng: random.Random) -> Action | None:
    """Draw a mistake that can be recovered from; None without one."""
    spot = build_decision_point(walk.build_scene("rollout"))
    environment = walk.environment
    able = isinstance(environment, Forkable) and isinstance(environment, HasOracle)
    critic = SolutionScorer(environment) if able else None  # type: ignore[arg-type]
    for drawn, _ in zip(draw_mistakes(right, spot, rng), range(_TRIES), strict=False):
        if drawn.kind == "premature end":
            continue
        if critic is None:
            return drawn.action
        judgement = await critic(drawn.action)
        if judgement.left is not None and judgement.score < 1.0:
            return drawn.action
    return None


def build_decision_point(scene: Scene) -> DecisionPoint:
    """Build the sampling adversary's input from a scene."""
    words = list_task_words(scene.task.goal)
    return DecisionPoint(observation=scene.observation, space=scene.suite.space, last=scene.last, words=words)


@dataclass(slots=True, kw_only=True)
class _Explorer:
    """Draws where to go next, and remembers where it has been."""

    space: ActionSpace
    apps: tuple[str, ...]
    tapped: set[tuple[str, str, str]] = field(default_factory=set)

    def draw(self, observation: Observation, rng: random.Random) -> Action:
        dice = rng.random()
        if dice < 0.15 and self.apps and "open_app" in self.space.types:
            return self.space.make("open_app", app_name=rng.choice(self.apps))
        if dice < 0.8 and observation.elements:
            element = self._choose_target(observation, rng)
            self.tapped.add((observation.title, element.key, element.label))
            return self.space.make("click", **{self.space.index_field: element.index})
        return draw_action(self.space, observation, rng, ending=False)

    def _choose_target(self, observation: Observation, rng: random.Random) -> Element:
        """Choose an untapped element, or any if there is none."""
        fresh = [
            element
            for element in observation.elements
            if (observation.title, element.key, element.label) not in self.tapped and element.role not in READ_ONLY
        ]
        return rng.choice(fresh or observation.elements)


def list_app_names(suite: Suite) -> tuple[str, ...]:
    """Return the sorted names of the apps in the suite's tasks."""
    return tuple(sorted({app for info in suite.tasks() for app in info.apps}))


async def try_action(scene: Scene, action: Action) -> StepResult | None:
    """Execute an action on a fork; None if the environment cannot fork."""
    if not isinstance(scene.environment, Forkable):
        return None
    fork = await scene.environment.fork()
    try:
        return await fork.step(action)
    finally:
        await fork.close()


def has_effect(scene: Scene, result: StepResult) -> bool:
    """Return whether an action had a visible effect; an exhausted budget is none."""
    return result.terminated or result.observation.digest != scene.observation.digest


def is_view_changed(scene: Scene, result: StepResult) -> bool:
    """Return whether an action ended the episode or changed more of the screen than a notice."""
    return result.terminated or describe_view(result.observation) != describe_view(scene.observation)


def describe_effect(scene: Scene, action: Action, result: StepResult) -> str:
    """Describe an action's effect in words; nothing is visible after the episode's end."""
    effect = build_history_entry(scene.suite.space, scene.observation, action, "", result).effect
    return facts.describe_change(
        scene.observation, scene.observation if result.terminated else result.observation, effect
    )
