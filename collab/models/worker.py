"""The thread in which a local model computes, the way of jobs into it and of answers out of it.

Models that differ in their adapter only speak through one worker, so that they share weights, passes and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from collab.background import doing
from collab.errors import CollabError, ConfigError, ModelFailure, boundary
from collab.models.chat import ChatTokenizer
from collab.models.generation import Answer, Job
from collab.models.vision import Picture, Sight

if TYPE_CHECKING:
    from collab.models.checkpoint import Checkpoint
    from collab.models.engine import Engine
    from collab.models.padded import PaddedEngine


class Worker:
    """The thread that computes, and the way of jobs into it and of answers out of it."""

    def __init__(
        self,
        chat: ChatTokenizer,
        *,
        device: str,
        dtype: str,
        exact: bool,
        width: int,
        prefill: int,
        cache_bytes: int,
    ) -> None:
        self.chat = chat
        self.sight = Sight(chat)
        self.adapters: dict[str, str] = {}
        """Name → directory."""
        self._users: Counter[str | None] = Counter()
        """How many models speak through it with each adapter."""
        self._retired: list[str] = []
        """Adapters that no model speaks with any more, still in memory."""
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")
        self._place = (device, dtype)
        self._exact, self._width, self._prefill, self._cache_bytes = exact, width, prefill, cache_bytes
        self._looking: dict[tuple[asyncio.AbstractEventLoop, tuple[bytes, ...]], asyncio.Task[tuple[Picture, ...]]] = {}
        """Pictures that are being read at the moment."""
        self._inbox: deque[Job] = deque()
        self._futures: dict[Job, asyncio.Future[Answer]] = {}
        self.engine: Engine | PaddedEngine | None = None
        self._note = ""
        self._turn: asyncio.Task[None] | None = None
        self._stopping = False

    async def look(self, images: tuple[bytes, ...]) -> tuple[Picture, ...]:
        """Read pictures beside the event loop; whoever asks for the same ones meanwhile goes on in the same moment.

        Raises:
            ModelFailure: the checkpoint takes no pictures, or one of them cannot be read.
            ConfigError: its image processor cannot be loaded.
        """
        key = (asyncio.get_running_loop(), images)
        if key not in self._looking:
            task = asyncio.create_task(asyncio.to_thread(self.sight.read, images))
            task.add_done_callback(lambda _: self._looking.pop(key, None))
            self._looking[key] = task
        return await asyncio.shield(self._looking[key])  # one caller that is cancelled takes it from nobody

    def submit(self, job: Job, future: asyncio.Future[Answer]) -> None:
        """Take a job; its future gets the answer."""
        self._futures[job] = future
        future.add_done_callback(lambda _: self._futures.pop(job, None))
        self._inbox.append(job)
        loop = future.get_loop()
        if self._turn is None or self._turn.done() or self._turn.get_loop() is not loop:
            self._turn = loop.create_task(self._work())

    def join(self, adapter: str | None, directory: str | None) -> None:
        """One model more speaks through it, with an adapter of this name; None for the base weights."""
        self._users[adapter] += 1
        if adapter is not None and directory is not None:
            self.adapters[adapter] = directory

    async def leave(self, adapter: str | None) -> None:
        """One model fewer speaks through it.

        The last one with an adapter fails what waits for it and frees its memory, the last of all stops the thread.
        """
        self._users[adapter] -= 1
        if not self._users[adapter]:
            closed = ModelFailure(f"{self.chat.path}: the model was closed")
            for job in [job for job in list(self._futures) if job.adapter == adapter]:
                self._settle(job, closed)
            if adapter is not None:
                self._retired.append(adapter)
        if self._users.total():
            return
        self._stopping = True
        stop = functools.partial(self.thread.shutdown, wait=True, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, stop)
        self.engine = None

    @property
    def sees(self) -> bool:
        """Whether the checkpoint takes pictures; False until the weights are loaded."""
        return self.engine is not None and self.engine.checkpoint.family is not None

    def describe(self, adapter: str | None) -> tuple[str, ...]:
        """Runs in the thread; loads the weights, and this adapter, when that has not happened yet."""
        checkpoint = self._loaded().checkpoint
        if adapter is not None:
            checkpoint.add_adapter(adapter, self.adapters[adapter])
        context = "of any length" if checkpoint.context == sys.maxsize else f"{checkpoint.context} tokens"
        return (
            f"device {checkpoint.device}, {str(checkpoint.model.dtype).removeprefix('torch.')}, context {context}",
            "replies depend on the request alone" if self._exact else "replies may differ in the last bits by batch",
            self._note or "prompts share what they begin with",
            *((self.chat.doubt,) if self.chat.doubt else ()),
        )

    async def _work(self) -> None:
        """Have the thread compute until nobody waits."""
        loop = asyncio.get_running_loop()
        while self._inbox and not self._stopping:
            await asyncio.sleep(0)  # who speaks in the same moment comes along
            await loop.run_in_executor(self.thread, self._compute)

    def _compute(self) -> None:
        """Runs in the thread: passes until nothing is left to do."""
        try:
            with boundary(ModelFailure, f"local model {self.chat.path}"):
                engine = self._loaded()
                while (self._inbox or engine.busy) and not self._stopping:
                    while self._inbox:
                        self._submit(engine, self._inbox.popleft())
                    for job, answer in engine.step():
                        self._settle(job, answer)
                    if self._retired:
                        self._retire(engine)
        except CollabError as error:  # of the weights or the machine, not of one job: everybody hears it
            if self.engine is not None:
                self.engine.clear()
            self._fail_all(error)

    def _retire(self, engine: Engine | PaddedEngine) -> None:
        """Free adapters that are done; one that was taken up again meanwhile stays."""
        for name in list(self._retired):
            if self._users[name]:
                self._retired.remove(name)
            elif engine.forget(name):
                self._retired.remove(name)
                engine.checkpoint.drop_adapter(name)

    def _submit(self, engine: Engine | PaddedEngine, job: Job) -> None:
        try:
            if job.adapter is not None:
                engine.checkpoint.add_adapter(job.adapter, self.adapters[job.adapter])
            engine.submit(job)
        except ConfigError as error:
            self._settle(job, error)

    def _settle(self, job: Job, answer: Answer | CollabError) -> None:
        """Hand an answer over to the event loop that waits for it; from any thread."""
        future = self._futures.pop(job, None)
        if future is not None:
            post(future.get_loop(), functools.partial(_resolve, future, answer))

    def _fail_all(self, error: CollabError) -> None:
        self._inbox.clear()
        for job in list(self._futures):
            self._settle(job, error)

    def _loaded(self) -> Engine | PaddedEngine:
        """The engine; made at the first use, in the thread."""
        if self.engine is None:
            with doing("loading torch"):
                from collab.models.checkpoint import Checkpoint

            device, dtype = self._place
            with doing(f"loading {self.chat.path}"):
                self.engine = self._engine_of(Checkpoint(self.chat, device=device, dtype=dtype))
        return self.engine

    def _engine_of(self, checkpoint: Checkpoint) -> Engine | PaddedEngine:
        from collab.models.engine import Engine
        from collab.models.padded import PaddedEngine, trusted_width

        reason = checkpoint.share_prefixes()
        if reason is not None:
            self._note = f"every prompt is computed by itself: {reason}"
            return PaddedEngine(checkpoint, width=trusted_width(checkpoint, 1 if self._exact else self._width))
        return Engine(
            checkpoint, exact=self._exact, width=self._width, prefill=self._prefill, cache_bytes=self._cache_bytes
        )


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Have a loop call something; one that has ended has nobody left who waits."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


def _resolve(future: asyncio.Future[Answer], answer: Answer | CollabError) -> None:
    if future.done():  # cancelled meanwhile
        return
    if isinstance(answer, CollabError):
        future.set_exception(answer)
    else:
        future.set_result(answer)
