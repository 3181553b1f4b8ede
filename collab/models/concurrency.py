"""Adapt the number of concurrent calls to what a server can take.

Additive increase, multiplicative decrease, as TCP does it (Jacobson and Karels, "Congestion Avoidance and Control",
1988). The window grows by one per answer until the first refusal, then by one per full window of answers. A refusal
(429, 503, a timeout) halves it. Outcomes of calls that were sent before the last halving are ignored, so a burst of
failures halves it once.
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
"""Concurrent calls to a server at first, if its limit allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWindow:
    """Limit on calls in flight; 1 ≤ size ≤ limit."""

    limit: int
    """Upper bound, given by the user."""
    size: int
    era: int = 0
    """Counts halvings; a call belongs to the era in which it was sent."""
    streak: int = 0
    """Answers since the size last changed."""

    @classmethod
    def fresh(cls, limit: int) -> CallWindow:
        """Return the window for an unknown server."""
        return cls(limit=limit, size=min(limit, START))

    def note_answer(self, era: int) -> CallWindow:
        """Return the window after an answer to a call of that era that came while the window was full."""
        if era != self.era or self.size == self.limit:
            return self
        streak = self.streak + 1
        if self.era == 0 or streak >= self.size:
            return replace(self, size=self.size + 1, streak=0)
        return replace(self, streak=streak)

    def note_refusal(self, era: int) -> CallWindow:
        """Return the window after a refusal of a call of that era."""
        if era != self.era:
            return self
        return replace(self, size=max(1, self.size // 2), era=era + 1, streak=0)


class Slots:
    """A queue in front of a window: first come, first served, but retries go first.

    For one event loop.
    """

    def __init__(self, window: CallWindow) -> None:
        self.window = window
        self.active = 0
        """Calls in flight."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def one(self, *, again: bool = False) -> AsyncIterator[int]:
        """Hold one slot for the block; yield the era that the call belongs to.

        Args:
            again: whether the call is a retry.
        """
        await self._take(again)
        try:
            yield self.window.era
        finally:
            self.active -= 1
            self._wake()

    def note_answer(self, era: int) -> None:
        """Note an answer while its slot is still held."""
        if self.active >= self.window.size:
            self.window = self.window.note_answer(era)
            self._wake()

    def note_refusal(self, era: int) -> None:
        """Note a refusal."""
        self.window = self.window.note_refusal(era)

    async def _take(self, again: bool) -> None:
        if self.active < self.window.size:  # no call waits then
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
        """Admit as many waiting calls as now fit."""
        while self._waiting and self.active < self.window.size:
            place = self._waiting.popleft()
            if not place.done():
                self.active += 1
                place.set_result(None)


class Once(Generic[T]):
    """One result shared by all callers, made at the first call.

    Callers that arrive meanwhile share the result or its failure; after a failure the next caller tries again.
    """

    def __init__(self) -> None:
        self._result: T | None = None
        self._making: asyncio.Future[T] | None = None

    async def get(self, make: Callable[[], Awaitable[T]]) -> T:
        """Return the result, never None; a cancelled caller does not stop the others."""
        if self._result is None:
            making = self._making
            if making is None or making.done() or making.get_loop() is not asyncio.get_running_loop():
                making = self._making = asyncio.ensure_future(make())
            self._result = await asyncio.shield(making)
        return self._result

    def cancel(self) -> None:
        """Stop making the result, if that is under way in this loop."""
        if self._making is not None and self._making.get_loop() is asyncio.get_running_loop():
            self._making.cancel()
