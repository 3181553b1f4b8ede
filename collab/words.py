"""Counts in words, for people."""

from __future__ import annotations

from collections.abc import Mapping


def amount(number: int, noun: str) -> str:
    """Return a number with its noun, both in the singular for one: 1 episode, 2 episodes."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cause_lines(word: str, causes: Mapping[str, int]) -> list[str]:
    """Return one line with counts by cause, or none where nothing was counted."""
    told = ", ".join(f"{count} {cause}" for cause, count in causes.items())
    return [f"{word:<8} {sum(causes.values())}: {told}"] if causes else []
