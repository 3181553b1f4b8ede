"""What several answers are made of: texts that may be long, rates, edges of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

CUT = 4000
"""Characters of a long text that are answered at first."""
Status: TypeAlias = Literal["running", "finished", "stopped", "dead"]
Edge: TypeAlias = tuple[str, str]
"""(speaker, hearer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text that may be long."""

    text: str
    """At most `CUT` characters (code points)."""
    cut: int
    """Characters left out at its end; 0 when it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often something succeeded."""

    successes: int
    episodes: int
    value: float | None
    low: float | None
    high: float | None
    """95 % Wilson interval; all three None without episodes."""
