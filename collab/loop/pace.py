"""What a training has spent so far, and how long it will still take at the pace of its epochs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collab.loop.record import EpochRecord, Spending
from collab.loop.state import Progress


def seconds_left(progress: Progress, now: float) -> float | None:
    """For the rest of this epoch and all that come, each as long as the mean of those that are over.

    Patience may end a training earlier, and an epoch that an earlier process began takes less.

    Args:
        now: of `time.monotonic`.

    Returns:
        None before an epoch is over of which all is known.
    """
    known = [seconds for one in progress.records if one.epoch and (seconds := epoch_seconds(one)) is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    if progress.records[-1].epoch >= progress.epoch:
        return (progress.epochs - progress.epoch) * mean
    return (progress.epochs - progress.epoch) * mean + max(0.0, mean - (now - progress.began))


def epoch_seconds(record: EpochRecord) -> float | None:
    """Of all parts; None where one did something and nobody told how long, for its process died."""
    if any(one.seconds is None and (one.calls or one.prompt_tokens) for one in record.spent.values()):
        return None
    return sum(one.seconds or 0.0 for one in record.spent.values())


def spent_so_far(progress: Progress) -> tuple[int, float]:
    """Tokens that models read and said, and USD: of epochs that are over, by whatever process, and of this one.

    Tokens that were trained on do not count.
    """
    over = total(one for record in progress.records for part, one in record.spent.items() if part != "training")
    tokens, usd = _live(progress.inner)
    return (
        over.prompt_tokens + over.completion_tokens + progress.tokens + tokens,
        over.cost_usd + progress.cost_usd + usd,
    )


def total(parts: Iterable[Spending]) -> Spending:
    """All together; the seconds are those that are known."""
    found = list(parts)
    seconds = [one.seconds for one in found if one.seconds is not None]
    return Spending(
        seconds=sum(seconds) if seconds else None,
        calls=sum(one.calls for one in found),
        prompt_tokens=sum(one.prompt_tokens for one in found),
        completion_tokens=sum(one.completion_tokens for one in found),
        cost_usd=sum(one.cost_usd for one in found),
        lost=sum(one.lost for one in found),
    )


def _live(inner: Any) -> tuple[int, float]:
    """Of the part that goes on, where it counts what its calls take."""
    tokens = getattr(inner, "prompt_tokens", 0) + getattr(inner, "completion_tokens", 0)
    return tokens, getattr(inner, "cost_usd", 0.0)
