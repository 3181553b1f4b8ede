"""The seam between the project and a world: `Environment` is one world, `Suite` opens them.

    suite = SimPhoneSuite()
    task = suite.instance("ContactsAddContact", seed=7)
    environment = await suite.open()
    observation = await environment.reset(task)
    while True:
        result = await environment.step(action)
        if result.done:
            break
    await environment.close()
    await suite.close()

An environment holds one episode at a time and may be reset again. A suite owns what its environments share (a
browser, a connection pool) and can be asked for as many environments as episodes run at once.

What only some worlds can do is a separate small protocol: `Forkable`, `HasOracle`, `HasScore`, `HasScreenshot`. A suite
names what its environments can do in `capabilities`, and `check_env` proves that the claim is true.

A file in `envs/` names a suite by its kind: a built-in one, an entry point of the group `collab.environments`, or
`package.module:Class` (docs/extending.md). The smallest example is `collab.testing.corridor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from collab.envs.grammar import ActionSpace
from collab.types import Action, Observation, StepResult, Task

ENDS_AT_SUCCESS = ", ends at success"
"""End of the label of results whose episodes ended as soon as they were solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """Facts about a task that are known before an instance is drawn."""

    name: str
    apps: tuple[str, ...] = ()
    difficulty: str | None = None
    max_steps: int = 30
    tags: tuple[str, ...] = ()
    """Free words to select by: "click", "wave-1", "unseen" …"""
    oracle: bool = False
    """Whether the environment knows a solution of this task."""


class Environment(Protocol):
    """One world, one episode at a time."""

    async def reset(self, task: Task) -> Observation:
        """Set the task's initial state; the same task gives the same observation.

        Raises:
            UnknownName: the task does not belong to this environment.
            EnvironmentFailure: the environment broke (dead browser, lost device).
        """
        ...

    async def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None lets time pass (phone) or looks again (web).

        An invalid action (a missing element, a disabled button) changes nothing, counts as a step and is reported in
        `info["effect"]`; it never raises.

        Raises:
            EnvironmentFailure: the world broke.
        """
        ...

    async def close(self) -> None:
        """Give back what the environment holds. May be called twice."""
        ...


class Suite(Protocol):
    """The object behind one definition in `envs/`: tasks, and a way to open environments on them."""

    name: str
    """As the user asks for it, e.g. "androidworld"."""
    label: str
    """As results are labelled, e.g. "androidworld[simphone]"."""
    version: str
    """Changes whenever the same (task, seed, actions) could lead to another state or observation."""
    space: ActionSpace
    capabilities: frozenset[str]
    """Subset of {"fork", "oracle", "score", "screenshot", "deterministic"}. "deterministic": an episode can be rebuilt
    at any step from (task, seed, executed actions)."""

    def tasks(self) -> Sequence[TaskInfo]:
        """Return all tasks, in a fixed order."""
        ...

    def instance(self, name: str, seed: int) -> Task:
        """Draw an instance; UnknownName when there is no such task.

        Opens no environment. If only the running environment knows the goal (a web page writes its own), `Task.goal` is
        empty and the environment is a `HasGoal`.
        """
        ...

    async def open(self) -> Environment:
        """Return a fresh environment; as many may be open as the caller likes."""
        ...

    async def close(self) -> None:
        """Give back what the environments share. May be called twice."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A suite that cannot open as many environments as one likes (there is one device)."""

    most_environments: int
    """How many may be open at once. Forks are not counted: one never waits for an environment to be closed, since that
    may wait for its own fork."""


def limit_environments(suite: Suite, wanted: int) -> int:
    """Return how many of so many environments may be open at once."""
    return min(wanted, suite.most_environments) if isinstance(suite, Bounded) else wanted


@runtime_checkable
class PicturesOnly(Protocol):
    """A suite whose observations hold no elements: its agents must see."""

    pictures_only: str
    """Why, and what shows more."""


@runtime_checkable
class HasGoal(Protocol):
    """An environment whose goal is known only after `reset` (MiniWoB++ pages write their own)."""

    def goal(self) -> str:
        """Return the goal of the running episode."""
        ...


@runtime_checkable
class HasScore(Protocol):
    """An environment that can tell at any time how far its task is solved."""

    def score(self) -> float:
        """Return how far the goal holds in the present state, in [0, 1]; 1 is solved.

        It changes nothing, and answers also behind the last step of an episode.
        """
        ...


@runtime_checkable
class Forkable(Protocol):
    """An environment that can be copied exactly, in the middle of an episode."""

    async def fork(self) -> Environment:
        """Return an independent copy in the same state; closing or stepping one does not touch the other."""
        ...


@runtime_checkable
class HasOracle(Protocol):
    """An environment that knows solutions."""

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the remaining optimal actions; () when nothing is left to do, None when unknown."""
        ...


@runtime_checkable
class SolvesByScreen(HasOracle, Forkable, Protocol):
    """An environment whose solution names what is left only as far as the present screen shows it.

    Asked again after each step it leads to the end, on a copy, too; how many actions it names is no distance to it.
    """

    solves_by_screen: Literal[True]


@runtime_checkable
class HasScreenshot(Protocol):
    """An environment that can be looked at."""

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return the present screen as PNG bytes; `marks` draws a numbered box on every element."""
        ...
