"""The executor whose workers are Ray actors: processes on this machine or on every machine of a Ray cluster.

    executor = RayExecutor(config, suite, team)
    await executor.start()                     # joins or starts a cluster, and starts the workers
    worker = executor.open_worker()
    trajectory = await worker.play(episode, network, stage, recorder)

This process is the host. It owns the models and the run. A worker (`collab.rollout.executors.worker`) owns environments
and asks the host for each reply, so calls of all workers meet in one engine and are batched there. The host checks each
line that a worker sends with the readers of the run's format, records it, and only then answers the next call.

A worker is lost when its process or machine dies, or when it is silent for `SILENT_S`. Another one is started after a
pause and plays the episode on: after its last recorded step where the environment is deterministic, else anew. The
third loss in one episode breaks that episode, since the episode may be the cause. Nothing waits for a lost worker or a
slow one.

The cluster that RAY_ADDRESS names is joined, and each worker takes one of its CPUs. Without that variable a cluster on
this machine is started, which ends with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from collab import errors
from collab.config import RunConfig
from collab.envs.base import Bounded, Suite
from collab.errors import (
    CollabError,
    EnvironmentFailure,
    ModelFailure,
    UsageError,
    boundary,
    check_answer,
)
from collab.graphs.deliberation import Network
from collab.models.base import CallClock, Privilege, Reply, Request
from collab.rollout.build import Team
from collab.rollout.episode import Admit, Episode, Stage, can_replay
from collab.rollout.executors.cluster import (
    NAMESPACE,
    check_room,
    connect,
    describe_ray_error,
    describe_room,
    is_store_full,
)
from collab.rollout.executors.worker import (
    AdmitCall,
    CallAnswer,
    CountCall,
    Line,
    Message,
    Order,
    ReplyCall,
    ScreenPicture,
    Withdrawal,
    WorkerActor,
    WorkerRefusal,
    WorkerSpec,
    WorkerState,
)
from collab.rollout.protocols import draw_instance
from collab.store.events import (
    BadLine,
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    StepRecorded,
    TextRecorded,
    decode,
)
from collab.store.fingerprint import describe_package
from collab.store.run import InterruptibleRecorder
from collab.types import EpisodeError, Step, Trajectory
from collab.utils.concurrency import find_plain_error, note_doing, run_together
from collab.utils.text import format_amount

START_S = 120.0
"""Seconds in which a worker has to be ready once there is room for it."""
BEAT_S = 10.0
"""Seconds between two looks at a worker."""
SILENT_S = 30.0
"""Seconds after which a worker that does not answer is lost."""
STARTS = 10
"""Attempts to replace a worker."""
LOSSES = 3
"""Lost workers after which an episode is broken."""


class _WorkerLost(Exception):
    """A worker's process, machine or connection is gone; the text says which."""


def check_place(suite: Suite, workers: int, *, takes_cpus: bool = True) -> bool:
    """Join or start a cluster in which so many workers can play; return whether each is to take one of its CPUs.

    Args:
        takes_cpus: as for `RayExecutor`; a cluster of this process has no other user, so there they never do.

    Raises:
        MissingExtra, UsageError: as `RayExecutor.start`.
    """
    if isinstance(suite, Bounded):
        raise UsageError(
            f"--executor ray: workers cannot share {suite.label}, which has "
            f"{format_amount(suite.most_environments, 'environment')}; use --executor local"
        )
    has_joined = connect(start=True)
    if has_joined and takes_cpus:
        check_room(workers)
    return has_joined and takes_cpus


class RayExecutor:
    """Plays in Ray workers.

    Args:
        config: of the run, with its prompts; as many workers as `concurrency`, but not more than episodes.
        suite: the environments, as they are on this machine.
        team: answers the workers' calls.
        takes_cpus: whether each worker takes a CPU of a joined cluster. Otherwise they start beside workers that hold
            all of them, and use what these leave idle.
    """

    def __init__(self, config: RunConfig, suite: Suite, team: Team, *, takes_cpus: bool = True) -> None:
        self._suite, self._takes_cpus = suite, takes_cpus
        agents = team.network.agents
        self._spec = WorkerSpec(
            name="",
            config=config,
            policies={slot: (one.model.policy, one.model.privileged) for slot, one in agents.items()},
            folder=Path.cwd(),
        )
        self._wanted = min(config.concurrency, config.episodes)
        self._workers: list[RayWorker] = []
        self._spare: list[RayWorker] = []

    async def start(self) -> None:
        """Start all workers.

        Raises:
            MissingExtra: Ray is not installed.
            UsageError: the environment cannot be shared, the cluster cannot be joined or has too few CPUs, or a worker
                has another version of Collab or of the environment.
            EnvironmentFailure: a worker cannot be started, or opens no environment.
        """
        # All workers start at once, and one that does not fit ends the start of the others.
        takes_cpus = check_place(self._suite, self._wanted, takes_cpus=self._takes_cpus)
        run = secrets.token_hex(4)
        self._workers = [
            RayWorker(
                replace(self._spec, name=f"worker {number}"),
                actor=f"{run}-{number}",
                cpus=float(takes_cpus),
                version=self._suite.version,
            )
            for number in range(1, self._wanted + 1)
        ]
        what, ready = f"starting {describe_room(self._wanted)}", 0
        with note_doing(what) as doing:

            async def start(worker: RayWorker) -> None:
                nonlocal ready
                await worker.start()
                ready += 1
                doing.what = f"{what}: {ready} ready"

            await run_together([functools.partial(start, worker) for worker in self._workers])
        self._spare = list(self._workers)

    def open_worker(self) -> RayWorker:
        """Return a started worker; each is given once."""
        return self._spare.pop(0)

    async def close(self) -> None:
        """Stop all workers; the cluster ends with this process."""
        await asyncio.gather(*(worker.close() for worker in self._workers))


class RayWorker:
    """A worker's place at the host: the process that plays there is replaced when it is lost.

    Args:
        spec: of the process.
        actor: its name in the cluster, for `collab workers status`.
        cpus: of the cluster that it takes.
        version: of the environment on the host; the worker's must be the same.
    """

    def __init__(self, spec: WorkerSpec, *, actor: str, cpus: float, version: str) -> None:
        self._spec, self._name, self._cpus, self._version = spec, actor, cpus, version
        self._starts = count()
        self._actor: Any = None
        self._place = spec.name
        """The worker, its machine and its process, for messages."""

    async def start(self, *, waits: bool = False) -> None:
        """Start the process and build its environment.

        Args:
            waits: for room in the cluster, however long, and for machines that do not fit or are just leaving it to be
                passed over, `STARTS` times; else the first failure counts, and `START_S`.

        Raises:
            UsageError: as `RayExecutor.start`; never if it waits.
            EnvironmentFailure: as `RayExecutor.start`.
        """
        import ray

        for tries in count(1):
            try:
                state = await self._start_process(waits)
                self._place = f"{state.name} on {state.node} (process {state.process})"
                self._check(state)
                return
            except TimeoutError:
                failure: CollabError = EnvironmentFailure(
                    f"{self._spec.name} is not ready after {START_S:g} s; see what the cluster does with: ray status"
                )
            except ray.exceptions.RayError as error:
                failure = EnvironmentFailure(f"{self._spec.name} cannot be started: {describe_ray_error(error)}")
            except CollabError as error:  # of the check: the next process may start on a machine that fits
                failure = error
            await self._drop()
            if not waits:
                raise failure
            if tries == STARTS:
                raise EnvironmentFailure(str(failure))
            await asyncio.sleep(min(60.0, 2.0**tries))

    async def _start_process(self, waits: bool) -> WorkerState:
        import ray

        options = {"name": f"{self._name}-{next(self._starts)}", "namespace": NAMESPACE, "num_cpus": self._cpus}
        actor = ray.remote(WorkerActor).options(**options, max_restarts=0, scheduling_strategy="SPREAD")
        self._actor = actor.remote(self._spec)
        # The first answer comes once there is room; only what follows is this project's own time.
        async with asyncio.timeout(None if waits else START_S):
            await self._actor.report.remote()
        async with asyncio.timeout(START_S):
            state: WorkerState = await self._actor.start.remote()
        return state

    def _check(self, state: WorkerState) -> None:
        """Refuse a process that would play something else than the host says."""
        if state.version != (here := describe_package()):
            raise UsageError(f"{self._place}: has Collab {state.version}, this machine {here}; install the same there")
        if state.environment and state.environment != self._version:
            raise UsageError(
                f"{self._place}: has version {state.environment} of the environment, this machine {self._version}; "
                "install the same there"
            )
        if state.problem:
            raise EnvironmentFailure(f"{self._place}: {state.problem}")

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
        """Play one episode; a lost process is replaced and the episode played on."""
        hosted = _HostedEpisode(
            episode=episode,
            network=network,
            stage=stage,
            recorder=recorder,
            watch=watch,
            spent=spent,
            admit=admit,
            steps=list(done),
        )
        for losses in count(1):
            try:
                return await self._follow(hosted)
            except _WorkerLost as loss:
                what = f"{self._place}: {loss}"
                await self._drop()
                if hosted.trajectory is not None:  # lost behind the end, which is recorded
                    return hosted.trajectory
                if losses == LOSSES:
                    return hosted.give_up(
                        f"{format_amount(losses, 'worker')} were lost in this episode, the last: {what}"
                    )
                told = f"{what}; {hosted.interrupt()}"
                recorder.interrupt(episode.id, told)
                lost(told)
            except EnvironmentFailure as failure:  # no process, or one that opens no environment
                return hosted.give_up(str(failure))
            # A machine that is short of memory gets time before it is loaded again.
            await asyncio.sleep(2.0 ** (losses - 1))
        raise AssertionError("counts without an end")

    async def close(self) -> None:
        """Abandon a running episode, close the environments and end the process."""
        if self._actor is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(10):
                    await self._actor.close.remote()
        await self._drop()

    async def _drop(self) -> None:
        import ray

        actor, self._actor = self._actor, None
        if actor is not None:
            with contextlib.suppress(Exception):
                ray.kill(actor)

    async def _follow(self, hosted: _HostedEpisode) -> Trajectory:
        """Play the episode in the present process; _WorkerLost if that dies or is silent."""
        import ray

        # Lost in this episode, or killed since the one before.
        if self._actor is None:
            await self.start(waits=True)
        actor = self._actor
        hosted.recorder = hosted.recorder.with_worker(self._place)
        try:
            async with asyncio.TaskGroup() as group:
                beating = group.create_task(_beat(actor))
                trajectory = await hosted.listen(actor, group)
                beating.cancel()
        except ExceptionGroup as failures:
            failure = find_plain_error(failures)
        else:
            return trajectory
        if is_store_full(failure):
            raise _WorkerLost(describe_ray_error(failure)) from None
        if isinstance(failure, ray.exceptions.RayTaskError):  # a fault in our own code, whose place Ray prints
            raise RuntimeError(f"{self._place}: {describe_ray_error(failure)}") from failure
        if isinstance(failure, ray.exceptions.RayError):
            raise _WorkerLost(describe_ray_error(failure)) from None
        raise failure


async def _beat(actor: Any) -> None:
    """Look at a worker again and again; _WorkerLost once it is silent."""
    while True:
        await asyncio.sleep(BEAT_S)
        try:
            async with asyncio.timeout(SILENT_S):
                await actor.report.remote()
        except TimeoutError:
            raise _WorkerLost(f"it was silent for {SILENT_S:g} s") from None


@dataclass(slots=True, kw_only=True)
class _HostedEpisode:
    """The host's side of an episode that a worker plays: records its lines and answers its calls."""

    episode: Episode
    network: Network
    stage: Stage
    recorder: InterruptibleRecorder
    watch: Callable[[Step], None]
    spent: Callable[[Reply], None]
    admit: Admit | None
    steps: list[Step]
    """Recorded so far."""
    begun: bool = False
    """Whether the recorder has begun or resumed it since the last loss."""
    trajectory: Trajectory | None = None
    """The end; None while it is played."""
    started: float = field(default_factory=time.perf_counter)
    _pictures: dict[str, bytes] = field(default_factory=dict)
    """Those of the present step, by hash."""
    _answers: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    async def listen(self, actor: Any, group: asyncio.TaskGroup) -> Trajectory:
        """Play in a worker to the end; answers run in the group."""
        if not can_replay(self.stage.suite, self.steps):
            self.steps.clear()
        order = Order(
            episode=self.episode, done=tuple(self.steps), admits=self.admit is not None, seeds=self.stage.seeds
        )
        # Steps that are executed again come from the record; new ones are appended as they come.
        async for reference in actor.play.remote(order):
            for message in await reference:
                self._take(message, actor, group)
        for answer in self._answers.values():
            answer.cancel()
        if self.trajectory is None:
            raise _WorkerLost("it ended the episode without an outcome")
        return self.trajectory

    def interrupt(self) -> str:
        """Prepare the episode for another worker; return how it continues, in words."""
        self.begun = False
        self._pictures.clear()
        self._answers.clear()
        if can_replay(self.stage.suite, self.steps):
            return f"{self.episode.id} continues after {format_amount(len(self.steps), 'step')} in another worker"
        return f"{self.episode.id} starts again in another worker"

    def give_up(self, why: str) -> Trajectory:
        """End the episode as broken, with its recorded steps."""
        error = EpisodeError(type=EnvironmentFailure.__name__, message=why, step=len(self.steps))
        trajectory = replace(self._build_trajectory(), error=error)
        if not self.begun and self.steps:
            self.recorder.resume(self.episode.id, len(self.steps))  # what was recorded stays
        elif not self.begun:
            self.recorder.begin(trajectory)
        self.recorder.end(trajectory)
        return trajectory

    def _build_trajectory(self) -> Trajectory:
        suite, episode = self.stage.suite, self.episode
        return Trajectory(
            id=episode.id,
            task=draw_instance(suite, episode.task, episode.seed),
            episode=episode.number,
            epoch=episode.epoch,
            steps=tuple(self.steps),
            final=None,
            outcome=None,
            environment=self.stage.label,
            environment_version=suite.version,
            privileged=self.network.privileged,
            seconds=time.perf_counter() - self.started,
        )

    def _take(self, message: Message, actor: Any, group: asyncio.TaskGroup) -> None:
        match message:
            case Line(line):
                self._record(line)
            case ScreenPicture(picture, is_recorded):
                name = self.recorder.store_picture(picture) if is_recorded else hashlib.sha256(picture).hexdigest()
                self._pictures[name] = picture
            case CountCall():
                tokens = self.network.agents[message.slot].model.count_tokens(message.text)
                actor.answer.remote(message.number, CallAnswer(tokens=tokens))
            case ReplyCall() | AdmitCall():
                self._answers[message.number] = group.create_task(self._answer(message, actor))
            case Withdrawal(number):
                if number in self._answers:
                    self._answers.pop(number).cancel()
            case WorkerRefusal(kind, text):
                raise _get_error(kind)(text)

    def _record(self, line: bytes) -> None:
        try:
            event = decode(line).event
        except BadLine as error:
            raise _WorkerLost(f"it sent a line that cannot be recorded: {error}") from None
        # Attempts are numbered by the run's writer, so those of the worker do not count.
        match event:
            case EpisodeStarted():
                self.begun = True
                self.recorder.begin(replace(self._build_trajectory(), task=event.task))
            case EpisodeResumed():
                self.begun = True
                self.recorder.resume(self.episode.id, event.step)
            case TextRecorded():
                self.recorder.store_text(event.hash, event.text)
            case StepRecorded():
                if event.step.index != len(self.steps):
                    raise _WorkerLost(f"it sent step {event.step.index} after {format_amount(len(self.steps), 'step')}")
                self.recorder.step(self.episode.id, event.step)
                self.steps.append(event.step)
                self._pictures.clear()
                self.watch(event.step)
            case EpisodeFinished():
                self.trajectory = replace(
                    self._build_trajectory(),
                    outcome=event.outcome,
                    error=event.error,
                    final=event.final,
                    seconds=event.seconds,
                )
                self.recorder.end(self.trajectory)

    async def _answer(self, call: ReplyCall | AdmitCall, actor: Any) -> None:
        if isinstance(call, AdmitCall):
            assert self.admit is not None, "a worker asks only where it was told to"
            await self.admit(self.episode.id)
            answer = CallAnswer()
        else:
            answer = await self._reply(call)
        self._answers.pop(call.number, None)
        # Not awaited: that the worker is gone shows where its messages are read.
        actor.answer.remote(call.number, answer)

    async def _reply(self, call: ReplyCall) -> CallAnswer:
        model, clock = self.network.agents[call.slot].model, CallClock(call.limit_s)
        request = Request(
            prompt=call.prompt,
            sampling=call.sampling,
            seed=call.seed,
            images=tuple(self._pictures[name] for name in call.pictures),
            has_pixel_points=call.has_pixel_points,
            privilege=self._grant_privilege(call),
            clock=clock,
        )
        # As an agent asks where it is played in this process: the same limit, the same words.
        try:
            with boundary(ModelFailure, f"call of {call.slot} to {model.policy.base} (limit {call.limit_s:g} s)"):
                async with clock.running():
                    reply = await model.generate(request)
                check_answer(reply, Reply, model.generate, ModelFailure)
        except ModelFailure as error:
            return CallAnswer(failure=str(error))
        self.spent(reply)
        return CallAnswer(reply=reply, policy=model.policy)

    def _grant_privilege(self, call: ReplyCall) -> Privilege | None:
        if call.observation is None:
            return None
        return Privilege(
            oracle=lambda: call.solution,
            observation=call.observation,
            space=self.stage.suite.space,
            dialect=self.network.agents[call.slot].dialect,
        )


def _get_error(kind: str) -> type[CollabError]:
    """Return the class of an error by its name; a name that is none gives EnvironmentFailure."""
    found = getattr(errors, kind, None)
    return found if isinstance(found, type) and issubclass(found, CollabError) else EnvironmentFailure
