"""Say how many: every count stands beside its noun, in the singular for one."""

from __future__ import annotations


def amount(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, both in the singular for one: 1 episode, 2 episodes.

    Args:
        plural: where it is not the noun with an s.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
