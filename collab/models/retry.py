"""The one place where model calls are tried again: what may be retried, how often and how long to wait.

An attempt that may succeed next time raises `TryAgain`; anything else it raises ends the call. Waits double from half
a second to half a minute, shortened by a seeded jitter of up to a half, so that many calls that failed together do
not come back together; a server's own Retry-After takes their place.
"""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from collab.errors import ModelFailure

T = TypeVar("T")

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0


class TryAgain(Exception):
    """An attempt failed in a way that may pass.

    Args:
        message: what happened, complete and without secrets.
        status: HTTP status; None when there was no answer.
        after_s: how long the server asked to wait; None when it did not say.
        congested: whether the server has too much to do, so that fewer calls at once would help.
    """

    def __init__(
        self, message: str, *, status: int | None = None, after_s: float | None = None, congested: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.after_s = after_s
        self.congested = congested


class ServerRefusal(ModelFailure):
    """A server answered, but not with a completion; `status` is its HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    *,
    retries: int,
    rng: random.Random,
    wait: Callable[[float], Awaitable[object]],
    on_retry: Callable[[], None],
) -> T:
    """Call `attempt` until it succeeds, at most `retries` more times than once.

    Args:
        wait: sleeps for so many seconds; `asyncio.sleep` except in tests.

    Raises:
        ServerRefusal: the last attempt was answered with an error status.
        ModelFailure: the last attempt got no usable answer.
    """
    for number in range(retries + 1):
        try:
            return await attempt()
        except TryAgain as problem:
            if number == retries:
                message = f"{problem} ({number + 1} attempt{'s' if number else ''})"
                if problem.status is None:
                    raise ModelFailure(message) from None
                raise ServerRefusal(message, problem.status) from None
            on_retry()
            await wait(delay_s(number, problem.after_s, rng))
    raise AssertionError("unreachable: the last attempt returns or raises")


def delay_s(number: int, after_s: float | None, rng: random.Random) -> float:
    """Seconds to wait after attempt `number` (from 0)."""
    if after_s is not None:
        return after_s * (1 + 0.1 * rng.random())
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**number) * (0.5 + 0.5 * rng.random())


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After` (seconds or a date) or `retry-after-ms`; None when absent or unreadable."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        return max(0.0, email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError):
        return None
