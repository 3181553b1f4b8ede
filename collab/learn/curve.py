"""What a training came to, told from its lines of metrics: means over the last quarter of those that tell.

One line is of one batch or a few, and tells more of those than of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def over_pairs(lines: Sequence[Mapping[str, Any]], name: str, *, first: bool = False) -> float | None:
    """A metric of pairs, such as `margin` or `logp_chosen`, lines by the number of pairs that they are about.

    Args:
        lines: metrics, as logged; a line without `compared` counts as one pair.
        first: over the first quarter of them, not the last.

    Returns:
        None where nothing was compared.
    """
    told = [(line[name], line.get("compared", 1)) for line in _quarter(lines, name, first=first)]
    return sum(value * pairs for value, pairs in told) / sum(pairs for _, pairs in told) if told else None


def chosen_gain(lines: Sequence[Mapping[str, Any]], beta: float) -> float | None:
    """How much likelier the chosen side of a pair became: its mean log-ratio to the reference.

    The log p of a batch tells more of its replies than of training; what is compared with the reference does not.

    Args:
        lines: metrics, as logged.
        beta: of the loss.

    Returns:
        Nats; None where nothing was compared with a reference.
    """
    reward = over_pairs(lines, "reward_chosen")
    return None if reward is None else reward / beta


def _quarter(lines: Sequence[Mapping[str, Any]], name: str, *, first: bool) -> Sequence[Mapping[str, Any]]:
    told = [line for line in lines if line.get(name) is not None]
    size = max(1, len(told) // 4)
    return told[:size] if first else told[-size:]
