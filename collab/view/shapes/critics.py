"""Every labelling of a run on one step, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collab.view.shapes.cell import CellKey
from collab.view.shapes.common import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A critic's word on one cell."""

    agent: str
    round: int
    score: float | None
    rewarded: bool | None
    because: Text
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticView:
    """One labelling on one step."""

    labels: str
    critic: str | None
    unjudged: str | None
    """Why it has no scores; None when it has."""
    scores: Sequence[Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class Critics:
    """Every labelling of the run on one step, and where they differ."""

    step: int
    critics: Sequence[CriticView]
    disputed: Sequence[CellKey]
    """Cells that one of them rewarded and another did not."""
