"""What a reader tells about a run before anything is read in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from collab.types import EpisodeError, Outcome

Status: TypeAlias = Literal["running", "finished", "stopped", "dead"]
"""running: a process writes it; finished: all was done; stopped: ended early on purpose; dead: its process vanished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSummary:
    """One episode in one line."""

    id: str
    task: str
    environment: str
    difficulty: str | None
    epoch: int
    episode: int
    seed: int
    max_steps: int
    """Step budget of the instance."""
    attempt: int
    """How often it was begun before."""
    state: Literal["unfinished", "finished", "failed"]
    steps: int
    """Steps that can be read."""
    missing: tuple[int, ...]
    """Steps that were recorded and cannot be read."""
    outcome: Outcome | None
    """None unless finished."""
    error: EpisodeError | None
    """None unless failed."""
    seconds: float
    """0 while unfinished."""
    privileged: bool

    @property
    def lost(self) -> str:
        """The first missing steps, in words."""
        shown = ", ".join(str(step) for step in self.missing[:10])
        return shown if len(self.missing) <= 10 else f"{shown} and {len(self.missing) - 10} more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in the run that cannot be read."""

    file: str
    """Relative to the run directory."""
    line: int | None
    """From 1; None when it is not about a line."""
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.reason}"


COLUMNS = """
key, trajectory, task, environment, difficulty, epoch, episode, seed, max_steps, attempt, state,
success, score, reason, error, error_message, error_step, steps, seconds,
privileged OR EXISTS (SELECT 1 FROM steps WHERE steps.key = episodes.key AND steps.privileged)
"""
"""Of the index's table `episodes`, as `summarise` takes them."""


def summarise(row: tuple[Any, ...], present: Sequence[int]) -> EpisodeSummary:
    """Make a summary of one row and the steps that are in the index."""
    (_, id, task, environment, difficulty, epoch, episode, seed, max_steps, attempt, state), rest = row[:11], row[11:]
    success, score, reason, error, message, error_step, steps, seconds, privileged = rest
    expected = steps if steps is not None else max(present, default=-1) + 1
    return EpisodeSummary(
        id=id,
        task=task,
        environment=environment,
        difficulty=difficulty,
        epoch=epoch,
        episode=episode,
        seed=int(seed),
        max_steps=int(max_steps),
        attempt=attempt,
        state=state,
        steps=len(present),
        missing=tuple(sorted(set(range(expected)).difference(present))),
        outcome=Outcome(success=bool(success), score=score, reason=reason) if state == "finished" else None,
        error=EpisodeError(type=error, message=message, step=error_step) if state == "failed" else None,
        seconds=seconds or 0.0,
        privileged=bool(privileged),
    )
