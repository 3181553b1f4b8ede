"""The one place where model calls are tried again: what may be retried, how often and how long to wait.

An attempt that may succeed next time raises `TryAgain`; anything else it raises ends the call. Waits double from half
a second to half a minute, shortened by a seeded jitter of up to a half, so that many calls that failed together do
not come back together. A server's own Retry-After takes their place, up to a minute. A wait that the call's limit
would cut short is not begun: the call fails at once, with what the server said.
"""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from collab.errors import ModelFailure

T = TypeVar("T")

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
LONGEST_ASKED_S = 60.0
"""The longest wait that a server may ask for; one that asks for more is asked again after this."""

_AGES_S = 1e9
"""Seconds from which on a wait is told without its number."""


class TryAgain(Exception):
    """An attempt failed in a way that may pass.

    Args:
        message: what happened, complete and without secrets.
        status: HTTP status; None when there was no answer.
        words: what the server said, and nothing else.
        after_s: how long the server asked to wait; None when it did not say.
        congested: whether the server has too much to do, so that fewer calls at once would help.
        unknown_cost: whether the server may have worked for an answer that never came.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        words: str = "",
        after_s: float | None = None,
        congested: bool = False,
        unknown_cost: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.words = status, words
        self.after_s = after_s
        self.congested = congested
        self.unknown_cost = unknown_cost


class ServerRefusal(ModelFailure):
    """A server answered, but not with a completion.

    Args:
        message: what happened, complete and without secrets.
        status: HTTP status.
        words: what the server said, and nothing else.
    """

    def __init__(self, message: str, status: int, words: str = "") -> None:
        super().__init__(message)
        self.status, self.words = status, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What a call tells whoever waits for it, and asks."""

    begun: Callable[[], None] = lambda: None
    """Called when the first attempt has its slot; later waiting counts as part of the call."""
    failed: Callable[[str], None] = lambda problem: None
    """Given the message of every attempt after which another follows."""
    seconds_left: Callable[[], float | None] = lambda: None
    """Returns what is left of the call's limit; None for no limit."""


NOBODY = Caller()
"""A call that nobody listens to, without a limit."""


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    *,
    retries: int,
    rng: random.Random,
    wait: Callable[[float], Awaitable[object]],
    caller: Caller = NOBODY,
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
            pause, left = delay_s(number, problem.after_s, rng), caller.seconds_left()
            if number < retries and (left is None or pause < left):
                caller.failed(str(problem))
                await wait(pause)
                continue
            tried = f"{number + 1} attempt{'s' if number else ''}"
            if number < retries:
                tried += f"; the next after {pause:.0f} s, beyond the call's limit"
            message = f"{problem} ({tried}){_asked(problem.after_s)}"
            if problem.status is None:
                raise ModelFailure(message) from None
            raise ServerRefusal(message, problem.status, problem.words) from None
    raise AssertionError("unreachable: the last attempt returns or raises")


def delay_s(number: int, after_s: float | None, rng: random.Random) -> float:
    """Return the seconds to wait after attempt `number` (from 0), at most `LONGEST_ASKED_S`."""
    if after_s is not None:
        return min(LONGEST_ASKED_S, after_s * (1 + 0.1 * rng.random()))
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(number, 60)) * (0.5 + 0.5 * rng.random())


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After` (seconds or a date) or `retry-after-ms`; None when absent, unreadable or negative."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError, OverflowError):
        return None


def _asked(after_s: float | None) -> str:
    """Format a wait that is longer than what is waited for; empty for others."""
    if after_s is None or after_s <= LONGEST_ASKED_S:
        return ""
    return f"; it asks to wait {after_s:.0f} s" if after_s < _AGES_S else "; it asks to wait for ever"
