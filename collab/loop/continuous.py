"""Continuous collection: episodes are played on while the policy learns, and an epoch takes what has arrived.

    collection = await open_collection(state, run)           # once per process
    await collection.begin(number, run)                      # from now on, episodes begin with this policy
    arrivals = await collection.gather(number)               # which episodes the epoch learns from
    await collection.close()

The loop of every algorithm has epochs: *collect → label → learn → evaluate*. Here they overlap:

    workers   an episode begins whenever a worker is free, and with the newest policy that is loaded; it ends with that
    epoch N   begins by publishing the policy of epoch N − 1; is collected once N's steps have arrived from any policy;
              then labels, learns and evaluates, while workers play on

`epochs/N/rollout` is the run of the episodes that the policy of epoch N − 1 began, so a run has one policy, as any
other run, and each reply names its version. Episodes that are still played when a newer policy is published are carried
over and arrive in a later epoch. No worker waits for another one or for weights: the host holds the models, and an
episode asks the one that it began with. A worker waits for the learner only once the next epoch has its steps: then no
episode begins until an epoch has taken some, so the backlog, and the age of what is learned, stay bounded.

`epochs/N/arrivals.json` lists the episodes of an epoch in the order in which they ended. It is written before anything
is learned of them, and no later epoch takes one of them. All else follows from it and from seeds: a training that is
replayed in this order ends with the same weights.

A killed process loses no episode. The next one takes what ended and stands in no list, plays on what was begun by
whichever policy, and learns what is listed. Which episodes arrive first depends on time, so two undisturbed trainings
differ. A broken episode does not arrive; it stays in its run.

The budget of a training counts every reply when it is given, also in episodes that are never learned. Once it is used
up, all runs stop at their next step.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from pydantic import Field

from collab.config import Budget, Definition, RunConfig, validate
from collab.envs.base import Suite
from collab.errors import RunError
from collab.graphs.deliberation import Network
from collab.loop.record import EpochDir
from collab.loop.state import Halted, LoopState
from collab.rollout.build import build_suite, build_team
from collab.rollout.collector import CLOSED, RolloutProgress
from collab.rollout.episode import Episode, NotAdmitted, Stage
from collab.rollout.executors.base import EpisodeWorker, Executor
from collab.rollout.plan import Placement
from collab.rollout.run import RunResult, build_executor, resume, start
from collab.store.run import InterruptibleRecorder, RunStore
from collab.types import Trajectory, Usage
from collab.utils.files import read_json, report_write_errors, write_json

FILE = "arrivals.json"
"""In the folder of an epoch."""


class Arrival(Definition):
    """An episode that an epoch learns from."""

    epoch: int = Field(ge=1)
    """Number of the epoch in whose run it lies."""
    trajectory: str
    steps: int

    @property
    def key(self) -> tuple[int, str]:
        """Return what no other episode of the training has."""
        return self.epoch, self.trajectory


def read_arrivals(folder: EpochDir) -> list[Arrival] | None:
    """Return the arrivals of an epoch, in their order; None before they are decided."""
    path = folder.path / FILE
    if not path.exists():
        return None
    listed = read_json(path, "put back what was there, or begin another training")
    return [validate(Arrival, one, str(path)) for one in listed]


def take_enough(arrived: Iterable[Arrival], steps: int) -> list[Arrival] | None:
    """Return the shortest beginning of what has arrived that has so many steps; None while there are too few."""
    found, total = [], 0
    for one in arrived:
        found.append(one)
        total += one.steps
        if total >= steps:
            return found
    return None


# ------------------------------------------------------------------------------------------------------- workers


class SharedWorkers:
    """Workers that play episodes of several runs, one at a time each.

    Args:
        is_ahead: whether so much has arrived that no episode may begin; it may change at each `tell`.
    """

    def __init__(self, executor: Executor, count: int, is_ahead: Callable[[], bool] = lambda: False) -> None:
        self.free: list[EpisodeWorker] = [executor.open_worker() for _ in range(count)]
        self.is_ahead = is_ahead
        self.newest = 0
        """Epoch whose run begins episodes: the last one that was ready to play."""
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until something has changed."""
        change = asyncio.get_running_loop().create_future()
        self._waiting.append(change)
        try:
            await change
        finally:
            self._waiting.remove(change)

    def tell(self) -> None:
        """Wake up everything that waits."""
        for change in self._waiting:
            if not change.done():
                change.set_result(None)


@dataclass(slots=True, kw_only=True)
class RunGate:
    """The executor of one run: it begins an episode once a shared worker is free and the run may begin it."""

    workers: SharedWorkers
    epoch: int
    begun: set[str]
    """Episodes that an earlier process began, which may be played on whatever was published or has arrived since."""
    arrive: Callable[[Trajectory], None]
    """Takes an episode that came to its end."""
    lent: dict[str, EpisodeWorker] = field(default_factory=dict)
    """Running episode → its worker."""

    async def start(self) -> None:
        """Do nothing: the workers are started."""

    def open_worker(self) -> LentWorker:
        """Return a worker that is one of the shared ones while it plays."""
        return LentWorker(self)

    async def close(self) -> None:
        """Do nothing: the workers are shared."""

    async def admit(self, episode: str) -> None:
        """Wait for a worker for an episode; a step of a running one passes.

        The first episode of a run shows that it can play. Until then episodes begin in the run before it, so that no
        worker waits while a policy is loaded.

        Raises:
            NotAdmitted: a newer policy was published before the episode began.
        """
        if self.epoch > self.workers.newest:
            self.workers.newest = self.epoch
            self.workers.tell()
        while episode not in self.lent:
            is_new = episode not in self.begun
            if is_new and self.workers.newest > self.epoch:
                raise NotAdmitted
            if self.workers.free and not (is_new and self.workers.is_ahead()):
                self.lent[episode] = self.workers.free.pop(0)
            else:
                await self.workers.wait()

    def give_back(self, episode: str) -> None:
        """Give the worker of an episode back."""
        self.workers.free.append(self.lent.pop(episode))
        self.begun.discard(episode)
        self.workers.tell()


class LentWorker:
    """A worker of a run that plays on the shared one which its episode was admitted with."""

    def __init__(self, gate: RunGate) -> None:
        self._gate = gate

    async def play(
        self, episode: Episode, network: Network, stage: Stage, recorder: InterruptibleRecorder, **named: Any
    ) -> Trajectory:
        """Play an admitted episode; see `EpisodeWorker.play`."""
        worker = self._gate.lent[episode.id]
        try:
            trajectory = await worker.play(episode, network, stage, recorder, **named)
        except BaseException:
            await worker.close()  # in the middle of an episode, its environment is of no use to another one
            raise
        finally:
            self._gate.give_back(episode.id)
        self._gate.arrive(trajectory)
        return trajectory

    async def close(self) -> None:
        """Do nothing: a worker is lent for an episode alone."""


# ---------------------------------------------------------------------------------------------------- collection


@dataclass(slots=True, kw_only=True)
class _PlayedRun:
    """A run that is being played."""

    gate: RunGate
    task: asyncio.Task[RunResult]
    stop: asyncio.Event
    progress: RolloutProgress | None = None


class ContinuousCollection:
    """Runs of a training that follow each other without a pause; see `open_collection`."""

    def __init__(self, state: LoopState, suite: Suite, executor: Executor) -> None:
        self._state, self._suite, self._executor = state, suite, executor
        self._workers: SharedWorkers | None = None
        self._runs: dict[int, _PlayedRun] = {}
        self._arrived: list[Arrival] = []
        """Episodes that are over and in no epoch's list, in the order in which they ended."""
        self._taken: set[tuple[int, str]] = set()
        self._next = 0
        """Epoch that takes episodes next."""

    @property
    def spent(self) -> Usage:
        """Usage of all runs in this process, learned or not."""
        return sum((run.progress.spent for run in self._runs.values() if run.progress is not None), Usage())

    async def begin(self, number: int, run: RunConfig) -> None:
        """Let episodes begin with the policy of this run, and those that were begun before come to their end."""
        begun = dict[int, set[str]]()
        if self._workers is None:
            self._workers = SharedWorkers(self._executor, min(run.concurrency, run.episodes), self._is_ahead)
            begun = self._read_recorded(number)
            self._workers.newest = number  # of runs that an earlier process left, only what they began is played on
        self._next = number
        for epoch in sorted(begun.keys() | {number}):
            self._play(epoch, run if epoch == number else None, begun.get(epoch, set()))
        self._workers.tell()

    async def gather(self, number: int) -> list[Arrival]:
        """Wait until the steps of an epoch have arrived, and return their episodes; the same at every call.

        Raises:
            Halted: it was stopped, or a run ended before it had them.
            RunError: as `collab.rollout.run.start`.
        """
        assert self._workers is not None, "gather follows begin"
        folder = self._state.folder.get_epoch(number)
        found = read_arrivals(folder)
        while found is None:
            self._raise_failures()
            found = take_enough(self._arrived, self._get_steps(number))
            if found is not None:
                with report_write_errors(folder.path / FILE, self._state.folder.resume):
                    folder.path.mkdir(parents=True, exist_ok=True)
                    write_json(folder.path / FILE, [one.model_dump(mode="json") for one in found])
                break
            self._check()
            self._state.inner(self._runs[number].progress)
            await self._wait()
        self._taken |= {one.key for one in found}
        self._arrived = [one for one in self._arrived if one.key not in self._taken]
        self._next = number + 1
        self._workers.tell()
        return found

    async def close(self) -> None:
        """Stop playing; what was begun is played on by the next process."""
        self._stop()
        await asyncio.gather(*(run.task for run in self._runs.values()), return_exceptions=True)
        for worker in self._workers.free if self._workers else ():
            with contextlib.suppress(Exception):
                await worker.close()
        await self._executor.close()
        await self._suite.close()

    # -------------------------------------------------------------------------------------------------- inside

    def _get_steps(self, number: int) -> int:
        """Return the steps that an epoch takes; 0 behind the last one."""
        method = self._state.config.method
        if number > method.epochs:
            return 0
        steps = method.get_steps(number)
        assert steps is not None, "a method that plays on has steps"
        return steps

    def _is_ahead(self) -> bool:
        """Return whether what has arrived is enough for the epoch that takes episodes next."""
        return sum(one.steps for one in self._arrived) >= self._get_steps(self._next)

    def _read_recorded(self, number: int) -> dict[int, set[str]]:
        """Take what earlier processes played, in the order in which it ended, and return what they began, by epoch."""
        folder, begun, ended = self._state.folder, dict[int, set[str]](), list[tuple[str, Arrival]]()
        for epoch in range(1, number + 1):
            self._taken |= {one.key for one in read_arrivals(folder.get_epoch(epoch)) or ()}
        for epoch in range(1, number + 1):
            store = RunStore(folder.get_epoch(epoch).rollout)
            store.clear_unbegun()
            if store.is_free:
                continue
            with RunStore.open(store.path).open_reader() as reader:
                listed = reader.list_episodes()
                times = dict(reader.query("SELECT trajectory, updated FROM episodes"))
            ended += [
                (times[one.id], Arrival(epoch=epoch, trajectory=one.id, steps=one.steps))
                for one in listed
                if one.state == "finished"
            ]
            if unfinished := {one.id for one in listed if one.state == "unfinished"}:
                begun[epoch] = unfinished
        # Runs overlap, so the queue is in the order in which episodes ended, whichever run they are of.
        in_order = [arrival for _, arrival in sorted(ended, key=itemgetter(0))]
        self._arrived += [one for one in in_order if one.key not in self._taken]
        return begun

    def _play(self, epoch: int, config: RunConfig | None, begun: set[str]) -> None:
        """Play a run in the background, from wherever it stands.

        Args:
            config: of a run that may be new; None for one that was begun.
            begun: as `RunGate.begun`.
        """
        assert self._workers is not None, "begin opens the workers"
        state, stop = self._state, asyncio.Event()
        out = state.folder.get_epoch(epoch).rollout

        def arrive(trajectory: Trajectory) -> None:
            arrival = Arrival(epoch=epoch, trajectory=trajectory.id, steps=len(trajectory.steps))
            # One that was solved before any step arrives, too: it teaches nothing, and counts in the epoch's success.
            if trajectory.error is None and arrival.key not in self._taken:
                self._arrived.append(arrival)

        def watch(progress: RolloutProgress) -> None:
            # More episodes are planned than an epoch could want: it ends by the steps that arrive.
            progress.is_open = True
            run.progress = progress
            # Printed when it happens, also while the policy learns.
            state.print_losses(progress)

        async def admit(episode: str) -> None:
            # The runs share one budget with all else, so none has its own.
            try:
                state.compute_left()
            except Halted:
                self._stop()
            await gate.admit(episode)

        async def play() -> RunResult:
            named: dict[str, Any] = {"watch": watch, "stop": stop, "admit": admit, "suite": self._suite}
            unlimited = Budget()
            if config is None or out.exists():
                # The newest run begins episodes for all workers, also where there were fewer when it was begun.
                more = None if config is None else config.concurrency
                place = Placement(concurrency=more)
                return await resume(out, budget=unlimited, placement=place, executor=gate, **named)
            begun = config.model_copy(update={"budget": unlimited})
            return await start(begun, state.library, out, executor=gate, **named)

        gate = RunGate(workers=self._workers, epoch=epoch, begun=begun, arrive=arrive)
        run = _PlayedRun(gate=gate, task=asyncio.create_task(play()), stop=stop)
        run.task.add_done_callback(lambda _: self._wake())
        self._runs[epoch] = run

    def _stop(self) -> None:
        """Stop all runs; what they began is recorded."""
        for run in self._runs.values():
            run.stop.set()

    def _wake(self) -> None:
        if self._workers is not None:
            self._workers.tell()

    def _raise_failures(self) -> None:
        """Raise what a run failed with, although others may play on."""
        for run in self._runs.values():
            if run.task.done():
                run.task.result()

    def _check(self) -> None:
        """Raise what ended a run, or that the training is to stop."""
        self._state.compute_left()
        for epoch, run in self._runs.items():
            if not run.task.done():
                continue
            result = run.task.result()
            if result.stopped not in (None, CLOSED):
                self._state.halt(result.stopped)
            if epoch == max(self._runs) and all(one.task.done() for one in self._runs.values()):
                raise RunError(
                    f"{result.path}: all {result.progress.planned} episodes are over, and too few came to their end; "
                    f"mend what broke them, and resume with: {self._state.folder.resume}"
                )

    async def _wait(self) -> None:
        """Wait for an episode, the end of a run, or a request to stop."""
        assert self._workers is not None, "begin opens the workers"
        jobs = [asyncio.ensure_future(one) for one in (self._workers.wait(), self._state.stop.wait())]
        try:
            await asyncio.wait(jobs, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)


async def start_executor(config: RunConfig, suite: Suite, *, takes_cpus: bool = True) -> Executor:
    """Start what plays the episodes of a run, for a caller that closes it; `takes_cpus` as for `RayExecutor`.

    Raises:
        UsageError, EnvironmentFailure: as `Executor.start`.
    """
    team = build_team(config)
    executor = build_executor(config, suite, team, takes_cpus=takes_cpus)
    try:
        await executor.start()
    except BaseException:
        await executor.close()
        raise
    finally:
        await team.close()
    return executor


async def open_collection(state: LoopState, run: RunConfig) -> ContinuousCollection:
    """Start the workers of a training, as many as the run plays episodes at once.

    Raises:
        UsageError, EnvironmentFailure: as `Executor.start`.
    """
    suite = build_suite(run)
    try:
        return ContinuousCollection(state, suite, await start_executor(run, suite))
    except BaseException:
        await suite.close()
        raise
