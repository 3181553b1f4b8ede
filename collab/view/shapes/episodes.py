"""The table of episodes and what it can be filtered by, and one episode with its steps in lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collab.view.shapes.common import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFilter:
    """Query parameters of `episodes`; None or empty filters nothing."""

    task: str | None = None
    app: str | None = None
    difficulty: str | None = None
    epoch: int | None = None
    outcome: Literal["solved", "failed", "broken", "unfinished"] | None = None
    """failed: played to its end and not solved; broken: the machinery failed."""
    error: str | None = None
    """Class of the error."""
    min_steps: int | None = None
    max_steps: int | None = None
    max_agreement: float | None = None
    """Only episodes whose mean agreement is at most this: the disputed ones."""
    q: str = ""
    """Occurs in id or goal, whatever the case."""
    sort: Literal["order", "epoch", "task", "steps", "score", "agreement", "entropy", "seconds"] = "order"
    """order: epoch, task, number."""
    descending: bool = False
    offset: int = 0
    limit: int = 200
    """At most 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """A line of the table of episodes. Texts are cut at 300 characters."""

    run: str
    """Id of the run that it is in."""
    id: str
    task: str
    goal: str
    difficulty: str | None
    apps: Sequence[str]
    epoch: int
    episode: int
    seed: str
    """Of the instance."""
    state: Literal["unfinished", "finished", "failed"]
    """failed: broken by the machinery."""
    success: bool | None
    score: float | None
    reason: str | None
    """Of the environment's judgement; all None unless finished."""
    error: str | None
    error_message: str | None
    """None unless failed."""
    steps: int
    """That can be read."""
    max_steps: int
    seconds: float | None
    """None while unfinished."""
    agreement: float | None
    entropy: float | None
    """Means over steps; None without any."""
    ties: int
    failures: int
    """Cells whose reply gave no action."""
    privileged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """A value to filter by."""

    value: str
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """A page of episodes."""

    total: int
    """That pass the filter."""
    offset: int
    rows: Sequence[EpisodeRow]
    tasks: Sequence[Facet]
    apps: Sequence[Facet]
    difficulties: Sequence[Facet]
    errors: Sequence[Facet]
    epochs: Sequence[Facet]
    """Of all episodes, unfiltered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeKey:
    """Where an episode is."""

    run: str
    episode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step in one line. Texts are cut at 300 characters."""

    step: int
    title: str
    action: str
    """In words, its element by label: 'tap icon "Save"'; empty when nothing was executed."""
    effect: str
    """What the screen did, as later prompts tell it."""
    no_action: bool
    agreement: float | None
    """None without cells."""
    entropy: float
    tie: bool
    failures: int
    score: float | None
    """See `Finds`; None where it was not judged."""
    overruled: bool
    pairs: int
    """Made from it, in the set of pairs that was stored last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeView:
    """An episode with its steps in lines."""

    row: EpisodeRow
    goal: Text
    params: Text
    """As JSON."""
    labels: str | None
    steps: Sequence[StepRow]
    missing: Sequence[int]
    """Steps that were recorded and cannot be read."""
    final: bool
    """Whether the screen after the last action is there."""
    previous: EpisodeKey | None
    next: EpisodeKey | None
    """In the order of the run; of a training's rollout, within it."""
