"""How many examples of a property are tried."""

from __future__ import annotations

from hypothesis import settings

FAST = 15
"""Examples where slow tests are left out and the property asks for no number of its own."""


def examples(count: int) -> int:
    """Return `count`, or where slow tests are left out a sixth of it, but `FAST` at least."""
    return max(FAST, count // 6) if settings.get_current_profile_name() == "fast" else count
