"""Places where episodes are played: the interface of an executor, and the one that plays in this process.

    executor = LocalExecutor(suite)             # or a RayExecutor, whose workers are other processes
    await executor.start()                      # an environment opens, or an error says why it does not
    worker = executor.open_worker()
    trajectory = await worker.play(episode, network, stage, recorder)
    await worker.close()
    await executor.close()

`collab.rollout.collector` takes episodes from one queue and gives each to a free worker, whatever executor opened it.
So order, budgets, stops and failures in a row are the same everywhere. These things hold for every executor:

- A worker plays one episode at a time. It waits for no other worker, so a slow one delays only its own episode.
- Models stay in the process that runs the collection. It answers the calls of all workers, so a local engine batches
  them, budgets count them, and no key or checkpoint leaves it.
- The recorder is called in this process, and with each step before the next one is decided. So the run has one writer,
  and an episode whose worker dies is played on after its last recorded step.
- An episode depends on its seeds alone. Equal runs therefore hold equal trajectories, whatever played them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from collab.envs.base import Environment, Suite
from collab.errors import EnvironmentFailure, boundary
from collab.graphs.deliberation import Network
from collab.models.base import Reply
from collab.rollout.episode import Admit, Episode, Stage, play
from collab.rollout.protocols import check_environment
from collab.store.run import InterruptibleRecorder, Recorder
from collab.types import Step, Trajectory


class EpisodeWorker(Protocol):
    """Plays one episode at a time, in an environment of its own."""

    async def play(
        self,
        episode: Episode,
        network: Network,
        stage: Stage,
        recorder: InterruptibleRecorder,
        *,
        done: Sequence[Step] = (),
        watch: Callable[[Step], None] = lambda step: None,
        spent: Callable[[Reply], None] = lambda reply: None,
        admit: Admit | None = None,
        lost: Callable[[str], None] = lambda why: None,
    ) -> Trajectory:
        """Play one episode to its end; arguments and errors are those of `collab.rollout.episode.play`.

        Args:
            lost: called with a description when the process that played died and another one plays on.

        Raises:
            EnvironmentFailure: no environment could be opened; nothing was recorded.
        """
        ...

    async def close(self) -> None:
        """Abandon a running episode and close the environment."""
        ...


class Executor(Protocol):
    """Opens the workers of a collection."""

    async def start(self) -> None:
        """Prepare what workers need, and check that an environment opens there.

        Raises:
            UsageError, EnvironmentFailure: something does not fit; nothing was begun.
        """
        ...

    def open_worker(self) -> EpisodeWorker:
        """Return another worker."""
        ...

    async def close(self) -> None:
        """Give back what `start` took. May be called twice."""
        ...


class LocalExecutor:
    """Plays in this process."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._numbers = count(1)

    async def start(self) -> None:
        """Check that an environment opens; EnvironmentFailure if a browser or a device is missing."""
        with boundary(EnvironmentFailure, f"opening {self._suite.label}"):
            await check_environment(await self._suite.open(), self._suite).close()

    def open_worker(self) -> LocalWorker:
        """Return another worker."""
        return LocalWorker(self._suite, f"worker {next(self._numbers)}")

    async def close(self) -> None:
        """Do nothing: the suite belongs to the caller."""


class LocalWorker:
    """Plays in this process; its environment is opened on first use, and discarded once it broke."""

    def __init__(self, suite: Suite, name: str) -> None:
        self._name = name
        self._own = OwnEnvironment(suite)

    async def play(
        self,
        episode: Episode,
        network: Network,
        stage: Stage,
        recorder: Recorder,
        *,
        done: Sequence[Step] = (),
        watch: Callable[[Step], None] = lambda step: None,
        spent: Callable[[Reply], None] = lambda reply: None,
        admit: Admit | None = None,
        lost: Callable[[str], None] = lambda why: None,
    ) -> Trajectory:
        """Play one episode; EnvironmentFailure if no environment can be opened."""
        environment = await self._own.get()
        trajectory = await play(
            environment,
            network,
            episode,
            stage,
            recorder.with_worker(self._name),
            done=done,
            watch=watch,
            spent=spent,
            admit=admit,
        )
        if trajectory.error is not None:
            await self._own.discard()
        return trajectory

    async def close(self) -> None:
        """Close the environment."""
        await self._own.discard()


class OwnEnvironment:
    """Environment of one worker: opened on first use, discarded once it broke."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._open: Environment | None = None

    async def __aenter__(self) -> OwnEnvironment:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.discard()

    async def get(self) -> Environment:
        """Return the environment; EnvironmentFailure if none can be opened."""
        if self._open is None:
            with boundary(EnvironmentFailure, f"opening {self._suite.label}"):
                self._open = check_environment(await self._suite.open(), self._suite)
        return self._open

    async def discard(self) -> None:
        """Close the environment, ignoring its errors and delays, since it may be broken."""
        environment, self._open = self._open, None
        if environment is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(10):
                    await environment.close()
