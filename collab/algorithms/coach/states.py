"""Visited states of an epoch of Android Coach, with what is known of their replies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from collab.algorithms.experience import JudgedEpisode
from collab.trainers.rl.turns import Turn
from collab.types import Utterance


@dataclass(slots=True, kw_only=True)
class DistinctReply:
    """A distinct reply to a state."""

    turn: Turn
    said: Utterance
    count: int = 1
    value: float = math.nan
    advantage: float = 0.0
    truth: float | None = None


@dataclass(slots=True, kw_only=True)
class Visited:
    """A visited state, with what is known of its executed reply."""

    episode: JudgedEpisode
    step: int
    executed: Turn | None
    """None where it cannot be valued."""
    agent: str
    step_reward: float | None
    """r^p; None where it is missing."""
    unrewarded: str | None
    """Why it is missing; None where it is not, or no critic is asked."""
    target: float
    """R."""
    before: float | None = None
    """Q of the executed reply before the fit; None where it has none."""
    value: float | None = None
    """The same behind the fit, as Q of the candidates is."""
    candidates: list[DistinctReply] = field(default_factory=list)

    @property
    def is_apart(self) -> bool:
        """Return whether its candidates teach something."""
        return any(one.advantage for one in self.candidates)

    @property
    def replies(self) -> int:
        """Return how many candidates it has, equal ones included."""
        return sum(one.count for one in self.candidates)
