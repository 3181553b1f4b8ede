"""Format counts: every count stands beside its noun, in the singular for one."""

from __future__ import annotations

from collections.abc import Mapping


def format_amount(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun: 1 episode, 2 episodes; `plural` if it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def format_causes(word: str, causes: Mapping[str, int]) -> list[str]:
    """Return one line with counts by cause, or none if nothing was counted."""
    told = ", ".join(f"{count} {cause}" for cause, count in causes.items())
    return [f"{word:<8} {sum(causes.values())}: {told}"] if causes else []
