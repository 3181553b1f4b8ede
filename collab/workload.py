"""How long it takes to finish pieces of work of which each has a step budget: episodes, walks.

    workload = Workload()
    workload.plan("Task/0", 30)
    workload.begin("Task/0")
    workload.count("Task/0")            # for every step
    workload.end("Task/0")
    workload.seconds_left()             # None before the first step

Short episodes end first, so the mean of those that are over is too small. What is used of a budget is therefore
estimated as lifetimes are where some still go on (Kaplan and Meier 1958): an episode that is still played counts as
one that takes longer than it has taken so far. Before any is over, each is taken to use its whole budget.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_RECENT = 64
"""Steps of whose time the pace is taken: it changes while others use the machine, and where fewer pieces are left."""


@dataclass(slots=True)
class _Piece:
    budget: int
    group: str
    steps: int = 0
    """Made so far, those of an earlier process included."""
    state: str = "planned"
    """Or "running", or "over"."""
    since: float = 0.0
    """When its last step was made, or when it was begun."""
    cold: bool = False
    """Whether its next step waits for what is loaded first: a model, a browser."""

    @property
    def share(self) -> float:
        """Of the budget that is used, in [0, 1]."""
        return min(1.0, self.steps / self.budget)


@dataclass(slots=True)
class Workload:
    """Pieces of work and how far each is; a live object."""

    _pieces: dict[str, _Piece] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Seconds that steps of one piece took."""
    _first: float | None = None
    """The same of the first step, loading included."""
    _most: int = 1
    """Pieces that were running at once."""

    def plan(self, name: str, budget: int, group: str = "") -> None:
        """Add a piece.

        Args:
            budget: steps at most.
            group: only pieces of one group are taken to use alike shares of their budgets.
        """
        self._pieces[name] = _Piece(budget=max(1, budget), group=group)

    def begin(self, name: str, done: int = 0) -> None:
        """Note that a piece is begun, or resumed behind steps that need not be made again."""
        piece = self._pieces[name]
        piece.state, piece.steps, piece.since, piece.cold = "running", done, time.monotonic(), self._first is None
        self._most = max(self._most, self._running)

    def count(self, name: str, steps: int = 1) -> None:
        """Note that steps of a piece were made."""
        piece, now = self._pieces[name], time.monotonic()
        each = (now - piece.since) / max(1, steps)
        if self._first is None:
            self._first = each
        if not piece.cold:
            self._recent.append(each)
        piece.steps, piece.since, piece.cold = piece.steps + steps, now, False

    def end(self, name: str) -> None:
        """Note that a piece is over."""
        self._pieces[name].state = "over"

    def steps_left(self) -> float:
        """Return how many steps are likely to be left."""
        return sum(sum(left) for left in self._left())

    def seconds_per_step(self) -> float | None:
        """Return the pace of all that run at once; None before the first step."""
        alone = self._alone()
        return None if alone is None else alone / max(1, self._running)

    def seconds_left(self) -> float | None:
        """Return how long the rest is likely to take; None before the first step.

        The last pieces cannot share their steps with others: the longest of them takes its own time.
        """
        alone = self._alone()
        if alone is None:
            return None
        running, planned = self._left()
        left = [*running, *planned]
        return alone * max(sum(left) / max(1, min(self._most, len(left))), max(left, default=0.0))

    @property
    def _running(self) -> int:
        return sum(piece.state == "running" for piece in self._pieces.values())

    def _alone(self) -> float | None:
        """Seconds that a step of one piece takes, beside the others."""
        return sum(self._recent) / len(self._recent) if self._recent else self._first

    def _left(self) -> tuple[list[float], list[float]]:
        """Steps that are likely to be left of each piece that is running, and of each that is not begun."""
        running: list[float] = []
        planned: list[float] = []
        for group in {piece.group for piece in self._pieces.values()}:
            pieces = [piece for piece in self._pieces.values() if piece.group == group]
            curve = _survival(
                [one.share for one in pieces if one.state == "over"],
                [one.share for one in pieces if one.state == "running"],
            )
            running += [one.budget * _behind(curve, one.share) for one in pieces if one.state == "running"]
            whole = _behind(curve, 0.0)
            planned += [one.budget * whole for one in pieces if one.state == "planned"]
        return running, planned


def _survival(over: Iterable[float], running: Iterable[float]) -> list[tuple[float, float]]:
    """Return the curve of Kaplan and Meier: (share of the budget, probability of using more), by share."""
    shares = sorted([(share, False) for share in over] + [(share, True) for share in running])
    curve, survival = [(0.0, 1.0)], 1.0
    for place, (share, goes_on) in enumerate(shares):
        if not goes_on:
            survival *= 1 - 1 / (len(shares) - place)
            curve.append((share, survival))
    return curve


def _behind(curve: Sequence[tuple[float, float]], used: float) -> float:
    """Return the share of a budget that is likely to be used behind the part of it that is."""
    area, here = 0.0, 1.0
    ends = [share for share, _ in curve[1:]] + [1.0]
    for (share, survival), end in zip(curve, ends, strict=True):
        if share <= used:
            here = survival
        area += survival * max(0.0, end - max(share, used))
    return area / here if here > 0 else 1.0 - used
