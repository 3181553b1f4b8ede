"""Restore states of recorded episodes from task, seed and executed actions.

    states = StateRebuilder(suite)
    for case in build_inputs(trajectory, suite.space, states): ...

Each time a state is opened, the actions before it are executed again in a fresh environment. Nothing is kept in
between, so states can be opened in any order and many at once. Where environments are bounded, only as many are open as
leave room for forks. Every screen on the way is compared with the recorded one: if the environment has changed, this is
an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from collab.envs.base import ENDS_AT_SUCCESS, Bounded, Environment, Suite
from collab.errors import EnvironmentFailure, RunFormatError, boundary
from collab.rewards.base import RestorableState
from collab.types import Observation, Trajectory


@dataclass(frozen=True, slots=True)
class EnvironmentSlots:
    """Lets no more states of a suite be open than it has environments."""

    suite: Suite
    places: AbstractAsyncContextManager[None] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        suite = self.suite
        places = asyncio.Semaphore(suite.most_environments) if isinstance(suite, Bounded) else contextlib.nullcontext()
        object.__setattr__(self, "places", places)  # a frozen dataclass leaves no other way

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Environment]:
        """Open a fresh environment, once there is room for it; closed at the end of the block."""
        async with self.places:
            with boundary(EnvironmentFailure, f"opening {self.suite.label}"):
                environment = await self.suite.open()
            try:
                yield environment
            finally:
                await environment.close()


@dataclass(frozen=True, slots=True)
class StateRebuilder:
    """Rebuilds states of a suite's episodes; a `collab.rewards.base.States`."""

    suite: Suite
    room: EnvironmentSlots = field(init=False)
    """Shared by all its states."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", EnvironmentSlots(self.suite))

    def __call__(self, trajectory: Trajectory, step: int) -> RestorableState | None:
        """Return a way back into the state before a step.

        Returns:
            None where the suite is not deterministic, or earlier steps of the record are lost. Opening the state raises
            RunFormatError where the episode was recorded in another environment or another version of it.
        """
        whole = [one.index for one in trajectory.steps[: step + 1]] == list(range(step + 1))
        possible = whole and "deterministic" in self.suite.capabilities
        return RebuiltState(self.room, trajectory, step) if possible else None


@dataclass(frozen=True, slots=True)
class RebuiltState:
    """The state before one step; a `collab.rewards.base.RestorableState`."""

    room: EnvironmentSlots
    trajectory: Trajectory
    step: int

    def open(self) -> AbstractAsyncContextManager[Environment]:
        """Open an environment of the caller's own in this state."""
        return self._open()

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Environment]:
        check_version(self.trajectory, self.room.suite)
        async with self.room.open() as environment:
            await self._rebuild(environment)
            yield environment

    async def _rebuild(self, environment: Environment) -> None:
        with boundary(EnvironmentFailure, f"{self.trajectory.id}: rebuilding the state before step {self.step}"):
            seen = await environment.reset(self.trajectory.task)
            for step in self.trajectory.steps[: self.step]:
                self._compare(step.index, step.observation, seen)
                seen = (await environment.step(step.executed)).observation
            self._compare(self.step, self.trajectory.steps[self.step].observation, seen)

    def _compare(self, step: int, recorded: Observation, seen: Observation) -> None:
        if recorded.digest != seen.digest:
            raise EnvironmentFailure(
                f"{self.trajectory.id}: the screen before step {step} is {seen.title!r} and not the recorded "
                f"{recorded.title!r}, or differs from it; the environment is not what it was when the run was recorded"
            )


def check_version(trajectory: Trajectory, suite: Suite) -> None:
    """Raise RunFormatError if an episode was recorded in another environment or version."""
    recorded = (trajectory.environment.removesuffix(ENDS_AT_SUCCESS), trajectory.environment_version)
    if recorded != (suite.label, suite.version):
        raise RunFormatError(
            f"{trajectory.id}: recorded in {recorded[0]} version {recorded[1]}, this is {suite.label} version "
            f"{suite.version}; judge it with the Collab version that wrote it"
        )
