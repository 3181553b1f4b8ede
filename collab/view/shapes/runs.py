"""Runs and trainings: the table of all, where one belongs, what of it cannot be read, and that it grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from collab.view.shapes.common import Rate, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A line of the table of runs."""

    id: str
    """Names it in every address; made of [A-Za-z0-9._-], the same in every session."""
    path: str
    kind: Literal["run", "training"]
    unreadable: str | None
    """Why nothing of it can be read; then all below is empty, 0 or None."""
    command: str
    environment: str
    graph: str
    agents: str
    seed: str
    created: str
    updated: str | None
    """When an episode last changed; None before the first."""
    status: Status
    privileged: bool
    """Spoken with knowledge of the solutions: no result of a language model."""
    planned: int | None
    """Episodes; None when not fixed. Of a training: epochs."""
    done: int
    """Episodes that are over; of a training, epochs."""
    broken: int
    success: Rate
    """Over planned episodes, those that are not over counted as not solved; of a training's rollout that ends with so
    many steps over those that are learned from. Of a training: held-out success of its best epoch, else of its last
    rollout."""
    replies: int
    """Of the episodes that are over and count; of a training, of all its runs."""
    without_action: int
    """Replies among them that gave no action."""
    sampling: str
    """Temperatures of its agents in words, e.g. "temperature 1.5"; empty where they are not known. Of a training: of
    its held-out evaluations."""
    steps: int
    calls: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    """Sums over the calls that tell, of agents, of all critics that judged it and adversaries that made pairs of it;
    None where none does. Calls of steps that never ended are among them. Of a training: of its runs."""
    seconds: float
    """By the clock, from the first to the last event of each process that worked on it; of a training, of its runs,
    and judging, adversaries and training of finished epochs."""
    problems: int
    """Things that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """All runs that were named, newest first."""

    collab: str
    """Version of Collab."""
    runs: Sequence[RunRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A run within a training."""

    id: str
    epoch: int
    role: Literal["rollout", "evaluation"]
    seed: str
    """Run seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run or training, and where it belongs."""

    run: RunRow
    training: str | None
    """Id of the training that it is a part of; None for a run of its own."""
    parts: Sequence[PartRow]
    """Of a training, by epoch, rollout first; empty for a run."""
    versions: Mapping[str, str]
    labellings: Sequence[str]
    """Of a training: those of its rollouts, each name once."""
    pair_sets: Sequence[str]
    """Of a run; empty for a training."""
    config: str
    """The configuration as indented JSON; at most 200,000 characters, and an ellipsis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that cannot be read."""

    file: str
    """Relative to the run."""
    line: int | None
    """From 1; None when it is not about a line."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """All of a run; of a training, those of its runs with their folder before `file`."""

    problems: Sequence[Problem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Told when a run grew or its status changed, and once for each run at the beginning (SSE event "run")."""

    id: str
    state: str
    """Equal texts: nothing has changed."""
    status: Status
    done: int
    steps: int
