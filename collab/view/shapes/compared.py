"""Two runs on equal instances, and two episodes of one instance step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collab.view.shapes.common import Rate
from collab.view.shapes.episodes import EpisodeRow, StepRow
from collab.view.shapes.runs import RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A task with a seed that both runs played."""

    task: str
    seed: str
    a: EpisodeRow
    b: EpisodeRow
    diverged: int | None
    """First step at which screen or executed action differ, as `EpisodePair` tells it; None when all are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Success of B minus that of A over equal instances that are over in both."""

    instances: int
    won: int
    """Instances that B alone solved."""
    lost: int
    """Instances that A alone solved."""
    value: float
    """In [-1, 1]."""
    low: float | None
    high: float | None
    """95 % interval of the paired difference, tasks resampled before their instances; None below ten instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs on equal instances."""

    a: RunRow
    b: RunRow
    both: Sequence[Instance]
    only_a: Sequence[EpisodeRow]
    only_b: Sequence[EpisodeRow]
    """Instances without a counterpart; of episodes of one instance the last counts."""
    success_a: Rate
    success_b: Rate
    """Over equal instances that are over in both."""
    difference: Difference | None
    """None without such an instance."""
    sampled_alike: bool
    """Whether both name the same temperatures; else what differs may come from that alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPair:
    """The same step of two episodes."""

    step: int
    a: StepRow | None
    b: StepRow | None
    """None behind its end, or where it cannot be read."""
    same_screen: bool | None
    same_action: bool | None
    """By digest: all that agents could see, all that was executed. None where one is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePair:
    """Two episodes of equal instances, step by step."""

    a: EpisodeRow
    b: EpisodeRow
    steps: Sequence[StepPair]
    diverged: int | None
    """First step that differs; None when all are alike. One that was lost on either side is passed over."""
    why: Literal["screen", "action", "length"] | None
