"""Labels of recorded replies: rewards of cells, and preferences between replies."""

from __future__ import annotations

from dataclasses import dataclass

from collab.types import CellRef, PolicyRef

REWARDED_ABOVE = 0.5
"""A score above it is a reward (CollabUIAgents, eq. 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReward:
    """A critic's score of one cell (CollabUIAgents, eq. 6)."""

    cell: CellRef
    score: float | None
    """In [0, 1]; None when the critic gave none or an invalid one."""
    reason: str = ""
    missing: str | None = None
    """Why there is no score; None when there is one."""
    original: float | None = None
    """The critic's own score where it was inverted on purpose (`collab.rewards.flip`); else None."""

    @property
    def reward(self) -> int | None:
        """⌈score − 0.5⌉: 1 iff score > 0.5; None when missing."""
        return None if self.score is None else int(self.score > REWARDED_ABOVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardMatrix:
    """Rewards of one step's action matrix; n × m entries in conversation order, missing ones included."""

    trajectory: str
    step: int
    critic: str
    rewards: tuple[CellReward, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRef:
    """Place of a recorded reply."""

    trajectory: str
    step: int
    cell: CellRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePair:
    """Two sides of one preference: length 1 in the paper's method, whole trajectories in its ablation."""

    id: str
    """SHA-256 of both sides and their place; the judge does not enter."""
    source: str
    """"adversary", "contrast", "correction" or "trajectory"."""
    chosen: tuple[ReplyRef, ...]
    rejected: tuple[ReplyRef, ...]
    """Empty when the rejected reply was synthesised: then `synthetic` holds it."""
    synthetic: str | None = None
    adversary: str | None = None
    """Source and way of the synthesised rejected reply; None if it was recorded."""
    policy: PolicyRef | None = None
    """Policy of the chosen side; None if its replies are of several policies."""
    prompt: str | None = None
    """`PromptRef.hash` of the input that both sides answer, which is that of `answered`; None for whole trajectories,
    whose replies each answer their own."""
    critic: str | None = None
    """Judge of its sides, as in `RewardMatrix.critic`; None if the outcome alone decided."""
    calls: tuple[str, ...] = ()
    """Calls of the critic that judged its sides, each once, by the SHA-256 of the question; empty for critics that ask
    no model."""

    @property
    def answered(self) -> ReplyRef | None:
        """The reply under whose input the pair is learned: of a correction the rejected one, else the chosen one.

        None for whole trajectories.
        """
        if self.source == "trajectory" or len(self.chosen) != 1:
            return None
        return (self.rejected if self.source == "correction" else self.chosen)[0]

    @property
    def place(self) -> ReplyRef:
        """Its place in lists: the reply whose input is answered, or the first one of the solved trajectory."""
        return self.answered or self.chosen[0]
