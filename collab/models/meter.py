"""What a model has been asked and what it cost: counted where the calls are made, read by whoever shows it.

meter.retried(), meter.answered(…), meter.failed(…)  →  meter.snapshot().calls
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from collab.background import unless_stopped
from collab.config import Budget
from collab.errors import UsageError
from collab.models.base import Capabilities

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The meter at one moment."""

    calls: int = 0
    """Calls that were answered or failed for good; a call with three retries is one call."""
    failures: int = 0
    """Calls that failed for good."""
    retries: int = 0
    """Attempts beyond each call's first."""
    lost: int = 0
    """Attempts that were sent and never answered whole (cancelled, timed out, cut off): what they cost is not known."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    computed_tokens: int = 0
    """Prompt tokens that were computed, over the calls that tell."""
    cacheable_tokens: int = 0
    """Prompt tokens of the calls that tell how many of them were computed."""
    cost_usd: float = 0.0
    """Sum over the calls whose price is known."""
    queue_s: float = 0.0
    """Sum over the calls that tell how long they stood in line."""
    latency_s: float = 0.0
    """Sum over all calls, waiting and retries included."""

    @property
    def mean_latency_s(self) -> float:
        """Seconds per call; 0 before the first."""
        return self.latency_s / self.calls if self.calls else 0.0

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that came from a prefix cache, over the calls that tell; None before the first.

        0 where more was computed than was asked for: what memory drove out is computed again.
        """
        return max(0.0, 1 - self.computed_tokens / self.cacheable_tokens) if self.cacheable_tokens else None


@dataclass(slots=True)
class Meter:
    """Adds up calls from any thread."""

    _reading: Reading = field(default_factory=Reading)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(
        self,
        *,
        latency_s: float,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        computed_tokens: int | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Count a call that was answered; None where the model does not count."""
        self._add(
            calls=1,
            latency_s=latency_s,
            prompt_tokens=prompt_tokens or 0,
            completion_tokens=completion_tokens or 0,
            computed_tokens=computed_tokens or 0,
            cacheable_tokens=0 if computed_tokens is None else prompt_tokens or 0,
            cost_usd=cost_usd or 0.0,
        )

    def failed(self, *, latency_s: float) -> None:
        """Count a call that failed for good."""
        self._add(calls=1, failures=1, latency_s=latency_s)

    def queued(self, seconds: float) -> None:
        """Add what one call stood in line."""
        self._add(queue_s=seconds)

    def retried(self) -> None:
        """Count one attempt beyond the first."""
        self._add(retries=1)

    def lose(self) -> None:
        """Count one attempt that was sent and never answered whole."""
        self._add(lost=1)

    def snapshot(self) -> Reading:
        """All counts as of now, consistent with one another."""
        return self._reading  # replaced as a whole, never changed

    def _add(self, **amounts: float) -> None:
        with self._lock:
            now = self._reading
            self._reading = replace(now, **{name: getattr(now, name) + amount for name, amount in amounts.items()})


@runtime_checkable
class Metered(Protocol):
    """A model with a meter; all models of this project are."""

    meter: Meter


def lost_by(asker: object) -> int:
    """Return how many attempts of a critic, an adversary or a model are of unknown cost; 0 where it does not tell."""
    told = getattr(asker, "lost", None)
    if told is None:
        return asker.meter.snapshot().lost if isinstance(asker, Metered) else 0
    return int(told)


def tell_lost(model: object, who: str) -> None:
    """Warn of the attempts of a model whose cost is not known; nothing where there is none, or no meter.

    Args:
        who: asked the model, for the message: "the critic".
    """
    lost = lost_by(model)
    if lost:
        calls = "1 call" if lost == 1 else f"{lost} calls"
        logger.warning("%s: %s sent and never answered whole; the cost is not known", who, calls)


class Probed(Protocol):
    """Whatever says what it supports."""

    async def probe(self) -> Capabilities:
        """Find out, once."""
        ...


async def check_counted(model: Probed, budget: Budget, where: str, stop: asyncio.Event | None = None) -> Capabilities:
    """Refuse a limit that would never be reached; a server that does not answer is found before anybody is asked.

    Returns:
        What the model supports.

    Raises:
        UsageError: a limit is on something that the model does not count.
        ModelFailure: its server does not answer.
        Stopped: somebody asked to stop first.
    """
    able = await unless_stopped(model.probe(), stop, f"{where} was asked what it supports")
    if budget.usd is not None and not able.knows_price:
        raise UsageError(
            f"--budget usd: {where} does not say what it costs; set its prices, or limit tokens or minutes"
        )
    if budget.tokens is not None and not able.counts_tokens:
        raise UsageError(f"--budget tokens: {where} does not count tokens; limit minutes instead")
    return able
