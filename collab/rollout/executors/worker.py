"""The Ray worker: a process that owns environments and a team without models, and sends what it plays.

    worker = ray.remote(WorkerActor).remote(spec)
    state = await worker.start.remote()                        # builds the environment, opens one
    async for reference in worker.play.remote(order):          # one episode
        for message in await reference:                        # a Line, a ScreenPicture, a ReplyCall, …
            await worker.answer.remote(message.number, CallAnswer(…))

The messages of an episode keep their order; those that are ready at once travel together, and what waits for no answer
is held for `HOLD_S`, so that it travels with the next call. A `Line` is a line of the run's log and a `ScreenPicture` a
screen: both are recorded as they are, once checked. A picture that is fitted to a model is sent like a screen and not
recorded. Three messages wait for an answer: a `ReplyCall` for a model's reply, a `CountCall` for a count of tokens, an
`AdmitCall` for leave to continue. The step before a call is therefore always recorded before that call is answered.

The episode runs in a thread with an event loop of its own. So the process also answers while an environment computes,
and `count_tokens` may wait for its answer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import hashlib
import itertools
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from collab.config import RunConfig
from collab.errors import CollabError, ModelFailure
from collab.models.base import Capabilities, Reply, Request
from collab.rollout.build import build_stage, build_suite, build_team
from collab.rollout.episode import Episode
from collab.rollout.executors.base import LocalExecutor
from collab.seeds import Seeds
from collab.store.events import (
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Event,
    Record,
    StepRecorded,
    TextRecorded,
    without_secrets,
)
from collab.store.fingerprint import describe_package
from collab.types import Action, Observation, PolicyRef, Prompt, Sampling, Step, Trajectory
from collab.utils.redact import list_secrets, redact

HOLD_S = 0.05
"""Seconds for which a step waits for the call behind it: each sending costs both sides milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Parts that a worker is built from."""

    name: str
    config: RunConfig
    """With its prompts, so that no definition is read there."""
    policies: dict[str, tuple[PolicyRef, bool]]
    """Slot → policy of its model, and whether it reads the solution."""
    folder: Path
    """Working directory of the host; used where it exists, so that relative paths mean the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """State of a worker."""

    name: str
    node: str
    """Name of its machine."""
    process: int
    version: str
    """Collab's, as `describe_package`."""
    environment: str = ""
    """Version of the environment; empty before it is built."""
    problem: str = ""
    """Why the environment could not be built or opened; empty if it was."""
    episode: str = ""
    """The one that is played; empty between two."""
    steps: int = 0
    """Sent of that episode."""
    idle_s: float = 0.0
    """Since its last message."""
    played: int = 0
    """Episodes that ended here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An episode to play."""

    episode: Episode
    done: tuple[Step, ...]
    """Recorded steps that are executed again; see `collab.rollout.episode.play`."""
    admits: bool
    """Whether to ask before each step."""
    seeds: Seeds
    """Seeds of the run that the episode belongs to: a worker may play episodes of several."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the run's log."""

    line: bytes
    is_step: bool = False


@dataclass(frozen=True, slots=True)
class ScreenPicture:
    """A screen that is recorded, or a picture that a model sees: such a one is sent once per step."""

    picture: bytes
    is_recorded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCall:
    """Asks a slot's model for a reply."""

    number: int
    slot: str
    prompt: Prompt
    pictures: tuple[str, ...] = ()
    """SHA-256 of each, in the order of `prompt.images`, as the model sees them; they were sent before, in this step."""
    has_pixel_points: bool = False
    """As in `Request`."""
    sampling: Sampling
    seed: int
    limit_s: float
    """Time limit of the call."""
    solution: tuple[Action, ...] | None = None
    """For a privileged model, as its oracle said."""
    observation: Observation | None = None
    """For a privileged model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountCall:
    """Asks for the length of a text in tokens of a slot's model."""

    number: int
    slot: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitCall:
    """Asks whether the episode may continue."""

    number: int


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A call is no longer waited for."""

    number: int


@dataclass(frozen=True, slots=True)
class WorkerRefusal:
    """The episode was not played: no environment opened, or a step could not be recorded."""

    kind: str
    """Class of the error."""
    text: str


Message: TypeAlias = Line | ScreenPicture | ReplyCall | CountCall | AdmitCall | Withdrawal | WorkerRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """Answers a call; only the part that it asked for is set."""

    reply: Reply | None = None
    policy: PolicyRef | None = None
    """The one that gave the reply."""
    tokens: int = 0
    failure: str = ""
    """Why there is no reply, as a ModelFailure says it."""


def _is_urgent(message: Message | None) -> bool:
    """Return whether it asks for something, or ends the episode (None)."""
    return not isinstance(message, Line | ScreenPicture)


class WorkerActor:
    """Plays episodes in a process of its own, which Ray starts; holds no model."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        with contextlib.suppress(OSError):
            os.chdir(spec.folder)
        self._desk = _CallDesk()
        self._job: concurrent.futures.Future[None] | None = None
        self._spoke = time.monotonic()
        self._state = WorkerState(
            name=spec.name, node=socket.gethostname(), process=os.getpid(), version=describe_package()
        )
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="collab-episode", daemon=True).start()

    async def start(self) -> WorkerState:
        """Build the environment and the team, and open an environment once; the state says what failed."""
        try:
            await self._run(self._build())
        except CollabError as error:
            self._state = replace(self._state, problem=redact(str(error)))
        return self._state

    async def play(self, order: Order) -> AsyncIterator[list[Message]]:
        """Play an episode and yield its messages, as many at a time as are ready."""
        outbox: asyncio.Queue[Message | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def send(message: Message | None) -> None:
            loop.call_soon_threadsafe(outbox.put_nowait, message)

        self._state = replace(self._state, episode=order.episode.id, steps=len(order.done))
        self._job = asyncio.run_coroutine_threadsafe(self._play(order, send), self._loop)
        self._job.add_done_callback(lambda job: send(None))
        ended = False
        while not ended:
            ready = [await outbox.get()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_S):
                    while not _is_urgent(ready[-1]):
                        ready.append(await outbox.get())
            while not outbox.empty():
                ready.append(outbox.get_nowait())
            ended = ready[-1] is None
            self._spoke = time.monotonic()
            yield [message for message in ready if message is not None]
            sent = sum(isinstance(message, Line) and message.is_step for message in ready)
            self._state = replace(self._state, steps=self._state.steps + sent)
        self._job.result()  # a fault in the code raises here
        self._state = replace(self._state, episode="", steps=0, played=self._state.played + 1)

    async def answer(self, number: int, answer: CallAnswer) -> None:
        """Take the answer to a call."""
        self._desk.settle(number, answer)

    async def report(self) -> WorkerState:
        """Return what the worker does."""
        return replace(self._state, idle_s=time.monotonic() - self._spoke)

    async def close(self) -> None:
        """Abandon a running episode and close the environments."""
        if self._job is not None:
            self._job.cancel()
        await self._run(self._close())

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _build(self) -> None:
        config = self._spec.config
        self._suite = build_suite(config)
        self._state = replace(self._state, environment=self._suite.version)
        models = {
            slot: RemoteModel(slot, policy, privileged, self._desk)
            for slot, (policy, privileged) in self._spec.policies.items()
        }
        self._team = build_team(config, models)
        executor = LocalExecutor(self._suite)
        await executor.start()
        self._worker = executor.open_worker()

    async def _play(self, order: Order, send: Callable[[Message], None]) -> None:
        self._desk.begin(send)
        try:
            await self._worker.play(
                order.episode,
                self._team.build_network(order.episode),
                replace(build_stage(self._spec.config, self._suite), seeds=order.seeds),
                RemoteRecorder(self._desk),
                done=order.done,
                admit=self._desk.admit if order.admits else None,
            )
        except CollabError as error:
            send(WorkerRefusal(type(error).__name__, redact(str(error))))

    async def _close(self) -> None:
        await self._worker.close()
        await self._suite.close()


class _CallDesk:
    """Sends the running episode's messages; knows which calls wait for answers and which pictures the host has."""

    def __init__(self) -> None:
        self.send: Callable[[Message], None] = lambda message: None
        self._shown: set[str] = set()
        self._numbers = itertools.count()
        self._waiting: dict[int, concurrent.futures.Future[CallAnswer]] = {}

    def begin(self, send: Callable[[Message], None]) -> None:
        """Begin an episode, whose messages are given to `send`."""
        self.send = send
        self.end_step()

    def end_step(self) -> None:
        """Take note that a step was sent: behind it the host forgets pictures."""
        self._shown.clear()

    def show(self, picture: bytes, *, is_recorded: bool = False) -> str:
        """Send a picture, unless it is known from this step; return its SHA-256."""
        name = hashlib.sha256(picture).hexdigest()
        if is_recorded or name not in self._shown:
            self._shown.add(name)
            self.send(ScreenPicture(picture, is_recorded))
        return name

    async def call(self, build: Callable[[int], Message]) -> CallAnswer:
        """Send the message that `build` makes with a number, and wait for its answer."""
        number, answer = self._send(build)
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            self.send(Withdrawal(number))
            raise
        finally:
            self._waiting.pop(number, None)

    def call_blocking(self, build: Callable[[int], Message]) -> CallAnswer:
        """As `call`, where the caller cannot await; the episode's own thread waits."""
        number, answer = self._send(build)
        try:
            return answer.result()
        finally:
            self._waiting.pop(number, None)

    async def admit(self, episode: str) -> None:
        """Wait until the episode may continue."""
        await self.call(lambda number: AdmitCall(number=number))

    def settle(self, number: int, answer: CallAnswer) -> None:
        """Take an answer; one that is no longer waited for is dropped."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled in the same moment
                waiting.set_result(answer)

    def _send(self, build: Callable[[int], Message]) -> tuple[int, concurrent.futures.Future[CallAnswer]]:
        number, answer = next(self._numbers), concurrent.futures.Future[CallAnswer]()
        # Registered before it is sent: the answer comes from another thread.
        self._waiting[number] = answer
        self.send(build(number))
        return number, answer


class RemoteModel:
    """The model of a slot, which answers in the host's process."""

    def __init__(self, slot: str, policy: PolicyRef, privileged: bool, desk: _CallDesk) -> None:
        self.policy, self.privileged = policy, privileged
        self._slot, self._desk = slot, desk
        # A system prompt is counted at every step.
        self.count_tokens = functools.lru_cache(maxsize=64)(self._ask_length)

    async def generate(self, request: Request) -> Reply:
        """Ask the host; ModelFailure with its words if it has no reply."""
        assert request.clock is not None, "an agent limits its calls"
        limit_s, given = request.clock.limit_s, request.privilege
        # The host limits the call: only there the time in its queue is known.
        request.clock.hold()
        pictures = tuple(map(self._desk.show, request.images))
        answer = await self._desk.call(
            lambda number: ReplyCall(
                number=number,
                slot=self._slot,
                prompt=request.prompt,
                pictures=pictures,
                has_pixel_points=request.has_pixel_points,
                sampling=request.sampling,
                seed=request.seed,
                limit_s=limit_s,
                solution=None if given is None else given.oracle(),
                observation=None if given is None else given.observation,
            )
        )
        if answer.reply is None:
            raise ModelFailure(answer.failure)
        self.policy = answer.policy or self.policy
        return answer.reply

    async def probe(self) -> Capabilities:
        """Return nothing: the host has probed its models."""
        return Capabilities()

    def _ask_length(self, text: str) -> int:
        """Return the length that the host's model gives the text."""
        return self._desk.call_blocking(lambda number: CountCall(number=number, slot=self._slot, text=text)).tokens

    async def close(self) -> None:
        """Do nothing: the host closes its models."""


class RemoteRecorder:
    """Sends what is recorded to the host, without the secrets of this machine."""

    def __init__(self, desk: _CallDesk) -> None:
        self._desk = desk
        self._secrets = list_secrets()
        self._numbers = itertools.count()

    def with_worker(self, worker: str) -> Self:
        """Return itself: the host knows its workers."""
        return self

    def begin(self, trajectory: Trajectory) -> None:
        """Begin an episode; the host numbers its attempts."""
        self._write(
            EpisodeStarted(
                trajectory=trajectory.id,
                attempt=0,
                task=trajectory.task,
                episode=trajectory.episode,
                epoch=trajectory.epoch,
                environment=trajectory.environment,
                environment_version=trajectory.environment_version,
                privileged=trajectory.privileged,
            )
        )

    def resume(self, trajectory: str, step: int) -> None:
        """Resume an episode at a step."""
        self._write(EpisodeResumed(trajectory=trajectory, attempt=0, step=step))

    def store_text(self, key: str, text: str) -> None:
        """Send a text."""
        self._write(TextRecorded(hash=key, text=text))

    def store_picture(self, png: bytes) -> str:
        """Send a picture; return its SHA-256."""
        return self._desk.show(png, is_recorded=True)

    def step(self, trajectory: str, step: Step) -> None:
        """Send a step."""
        self._write(StepRecorded(trajectory=trajectory, attempt=0, step=step))
        self._desk.end_step()

    def end(self, trajectory: Trajectory) -> None:
        """Send the end of an episode."""
        self._write(
            EpisodeFinished(
                trajectory=trajectory.id,
                attempt=0,
                outcome=trajectory.outcome,
                error=trajectory.error,
                final=trajectory.final,
                steps=len(trajectory.steps),
                seconds=trajectory.seconds,
            )
        )

    def _write(self, event: Event) -> None:
        record = Record.of(event, seq=next(self._numbers), writer="worker")
        self._desk.send(Line(without_secrets(record, self._secrets)[1], is_step=isinstance(event, StepRecorded)))
