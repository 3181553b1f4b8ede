"""How many calls a server is given at once: as many as it bears, found out while it works.

Additive increase, multiplicative decrease, as TCP does it (Jacobson and Karels, "Congestion Avoidance and Control",
1988). The window opens by one for every answer until the server has refused once, from then on by one for every full
window of answers; a refusal (429, 503, a timeout) halves it. News of calls that were sent before the last halving
change nothing: however many calls of one window fail together, it is halved once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")

START = 8
"""Calls at once before anything is known about a server, where its limit allows as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWindow:
    """How many calls may be in flight; 1 ≤ size ≤ limit."""

    limit: int
    """Upper bound, given by the user."""
    size: int
    era: int = 0
    """Counts halvings; a call belongs to the era in which it was sent."""
    streak: int = 0
    """Answers since the size last changed."""

    @classmethod
    def fresh(cls, limit: int) -> CallWindow:
        """The window of a server of which nothing is known."""
        return cls(limit=limit, size=min(limit, START))

    def note_answer(self, era: int) -> CallWindow:
        """After an answer to a call of that era, given while the window was full: an idle server proves nothing."""
        if era != self.era or self.size == self.limit:
            return self
        streak = self.streak + 1
        if self.era == 0 or streak >= self.size:
            return replace(self, size=self.size + 1, streak=0)
        return replace(self, streak=streak)

    def note_refusal(self, era: int) -> CallWindow:
        """After a refusal of a call of that era."""
        if era != self.era:
            return self
        return replace(self, size=max(1, self.size // 2), era=era + 1, streak=0)


class Slots:
    """A waiting line in front of a window: first come, first served, except that calls tried again go first.

    For one event loop.
    """

    def __init__(self, window: CallWindow) -> None:
        self.window = window
        self.active = 0
        """Calls in flight."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def one(self, *, again: bool = False) -> AsyncIterator[int]:
        """Hold one slot for the block; gives the era that the call belongs to.

        Args:
            again: whether the call was in flight before.
        """
        await self._take(again)
        try:
            yield self.window.era
        finally:
            self.active -= 1
            self._wake()

    def note_answer(self, era: int) -> None:
        """Tell of an answer, while its slot is still held."""
        if self.active >= self.window.size:
            self.window = self.window.note_answer(era)
            self._wake()

    def note_refusal(self, era: int) -> None:
        """Tell of a refusal."""
        self.window = self.window.note_refusal(era)

    async def _take(self, again: bool) -> None:
        if self.active < self.window.size:  # nobody waits then
            self.active += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if again:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # the slot came at the same moment
                self.active -= 1
                self._wake()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def _wake(self) -> None:
        """Let in as many as now fit."""
        while self._waiting and self.active < self.window.size:
            place = self._waiting.popleft()
            if not place.done():
                self.active += 1
                place.set_result(None)


class SharedLock:
    """Many may be inside together, or one alone: calls, and whoever changes what they are made with.

    For one event loop at a time.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._closed = False
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be inside with others; waits while somebody is, or wants to be, alone."""
        while self._closed:
            await self._news.wait()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._tell()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Keep others out, wait until those inside have left, and be inside alone."""
        while self._closed:
            await self._news.wait()
        self._closed = True
        try:
            while self._inside:
                await self._news.wait()
            yield
        finally:
            self._closed = False
            self._tell()

    def _tell(self) -> None:
        """Wake all who wait, once."""
        self._news.set()
        self._news = asyncio.Event()


class Once(Generic[T]):
    """One result for all who ask, made when the first asks.

    Those who come while it is made share it, and share its failure; whoever comes after a failure tries again.
    """

    def __init__(self) -> None:
        self._result: T | None = None
        self._making: asyncio.Future[T] | None = None

    async def get(self, make: Callable[[], Awaitable[T]]) -> T:
        """The result, never None; a caller that is cancelled does not stop the others."""
        if self._result is None:
            making = self._making
            if making is None or making.done() or making.get_loop() is not asyncio.get_running_loop():
                making = self._making = asyncio.ensure_future(make())
            self._result = await asyncio.shield(making)
        return self._result

    def cancel(self) -> None:
        """Stop making it, if that is under way here."""
        if self._making is not None and self._making.get_loop() is asyncio.get_running_loop():
            self._making.cancel()
