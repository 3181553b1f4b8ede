"""The three jumps to steps worth looking at, and the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """A step worth looking at."""

    run: str
    episode: str
    step: int
    agent: str | None
    round: int | None
    """The cell in question; None when it is about the step."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finds:
    """Steps of one kind, in the order of the episodes, at most one per episode for first-wrong and disagrees.

    A step's score is the mean over the scored cells that proposed what was executed; 0.5 and less is not rewarded.
    first-wrong: of an episode that was not solved, the first step whose score is not rewarded.
    overruled: the step is not rewarded, although some cell is; that cell is the best one.
    disagrees: a solved episode in which at most half of the judged steps are rewarded (its first unrewarded step), or
    one that was not solved although all are (its last step).
    """

    kind: Literal["first-wrong", "overruled", "disagrees"]
    labels: str | None
    judged: int
    """Steps with a score; 0: nothing can be found until critics have judged (`collab critic`, `collab train`)."""
    rows: Sequence[Find]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A place where the searched words stand."""

    run: str
    episode: str
    step: int | None
    agent: str | None
    round: int | None
    """None where it is about the whole episode or step."""
    where: Literal["task", "goal", "app", "error", "screen", "action", "effect", "proposal", "pair"]
    """proposal: what one cell proposed, in words of the log: "click [3]"."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """What was found: tasks, goals, apps, errors, titles of screens, actions, effects, first letters of pairs' ids."""

    q: str
    """The words that were searched: at most the first 300 characters of what was asked, as texts are known to 300."""
    rows: Sequence[Hit]
    more: bool
    """Whether there are more than these 100."""
