"""The interface of verifiers: an `OutcomeVerifier` turns a `VerifierInput` (a recorded episode) into a `Verdict`.

    verdict = await verifier.verify(VerifierInput(episode=trajectory))
    verdict.success         # True, False, or None where `missing` has the cause

A verifier never guesses. Where it cannot tell, the verdict is *missing* with the cause in words: the episode counts
neither as solved nor as failed. An episode may also be judged in its middle (`step`), as it was before that action.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from collab.rewards.base import CriticCall, Versioned, label_of
from collab.types import HistoryEntry, Observation, Outcome, Trajectory
from collab.utils.files import hash_text

Sight: TypeAlias = Literal["state", "text", "screenshot"]
"""What a verifier reads: the environment's state, screens as text, or pictures of screens."""
Pictures: TypeAlias = Callable[[Observation], bytes | None]
"""Screen → its encoded picture (PNG or WebP); None where there is none."""


def show_nothing(observation: Observation) -> None:
    """Return no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierInput:
    """An episode to be judged."""

    episode: Trajectory
    """With an outcome: broken and unfinished episodes are not judged."""
    step: int = -1
    """Number of executed actions at which it is judged; all of them if it is negative."""
    pictures: Pictures = show_nothing

    def __post_init__(self) -> None:
        if self.step < 0:
            object.__setattr__(self, "step", len(self.episode.steps))

    @property
    def trajectory(self) -> str:
        """`Trajectory.id`."""
        return self.episode.id

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step: unique in a run."""
        return self.trajectory, self.step

    @property
    def screens(self) -> tuple[Observation, ...]:
        """All screens up to the judged one, which is the last."""
        seen = [step.observation for step in self.episode.steps[: self.step + 1]]
        final = self.episode.final
        return (*seen, *((final,) if final is not None and self.step >= len(self.episode.steps) else ()))

    @property
    def actions(self) -> tuple[HistoryEntry, ...]:
        """The executed actions before it, oldest first."""
        return tuple(step.history for step in self.episode.steps[: self.step])

    @property
    def outcome(self) -> Outcome | None:
        """The environment's outcome; None in the middle of the episode."""
        return self.episode.outcome if self.step >= len(self.episode.steps) else None

    @property
    def digest(self) -> str:
        """SHA-256 of goal, screens, actions and outcome: an episode that was played again gives another input."""
        done = [[one.action, one.effect] for one in self.actions]
        ended = None if self.outcome is None else [self.outcome.success, self.outcome.score, self.outcome.reason]
        seen = [one.digest for one in self.screens]
        return hash_text(json.dumps([self.episode.task.goal, seen, done, ended]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Judgement of an episode's success; exactly one of `success` and `missing` is set."""

    trajectory: str
    step: int
    """Number of executed actions at which it was judged."""
    case: str
    """`VerifierInput.digest`."""
    verifier: str
    """Name and version, see `collab.rewards.base.label_of`."""
    success: bool | None
    score: float | None = None
    """In [0, 1]; None if the verifier gives none."""
    reason: str = ""
    missing: str | None = None
    """Why there is no verdict."""
    original: bool | None = None
    """The verifier's own verdict where it was inverted on purpose; else None."""
    calls: tuple[CriticCall, ...] = ()
    """Empty for verifiers that ask no model."""

    def __post_init__(self) -> None:
        """Check that there is either a verdict or a cause; else ValueError."""
        if (self.success is None) == (self.missing is None):
            raise ValueError(f"a verdict has success or missing, got {self.success!r} and {self.missing!r}")

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step."""
        return self.trajectory, self.step

    @property
    def silent(self) -> bool:
        """Return whether a model was asked and gave no verdict, for example because its reply was prose or empty."""
        return bool(self.calls) and self.success is None


class OutcomeVerifier(Protocol):
    """Judges whole episodes."""

    @property
    def name(self) -> str:
        """Its kind, e.g. "rules" or "text-judge"."""

    @property
    def version(self) -> str:
        """Changes whenever the same episode, options and seed could be judged otherwise."""

    @property
    def sees(self) -> frozenset[Sight]:
        """Return the kinds of input that it reads."""

    async def verify(self, case: VerifierInput) -> Verdict:
        """Judge an episode; what cannot be told is missing, with its cause. Called for many episodes at once.

        Raises:
            ModelFailure: nothing was judged; asking again may help.
        """
        ...


def build_verdict(
    case: VerifierInput,
    verifier: Versioned,
    success: bool | None,
    *,
    score: float | None = None,
    reason: str = "",
    missing: str | None = None,
    calls: tuple[CriticCall, ...] = (),
) -> Verdict:
    """Build a verifier's verdict on an episode."""
    return Verdict(
        trajectory=case.trajectory,
        step=case.step,
        case=case.digest,
        verifier=label_of(verifier),
        success=success,
        score=score,
        reason=reason,
        missing=missing,
        calls=calls,
    )
