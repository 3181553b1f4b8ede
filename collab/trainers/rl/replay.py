"""Remember which episodes may be learned from again: references to recorded ones, never copies.

    buffer = ReplayBuffer(capacity=5000)
    gone = buffer.add(EpisodeRef(run="epochs/0/rollout", trajectory="…", steps=12, versions=(0, 0)))
    drawn = buffer.sample(16, generator(derive(seed, "replay", epoch)))

The capacity is in environment steps, and whole episodes leave, the oldest first. In DistRL (appendix A.4.2) and the
public code of DigiRL transitions overwrite each other one by one, which leaves half a trajectory at the seam. Returns,
and values corrected over a trajectory, need all of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRef:
    """A recorded episode."""

    run: str
    """Directory of its run, relative to the training's."""
    trajectory: str
    """Its identifier in that run."""
    steps: int
    """Executed steps, at least 1."""
    versions: tuple[int, int]
    """Oldest and newest version of the policy that played it."""


class ReplayBuffer:
    """The newest episodes whose steps fit into a capacity, drawn uniformly."""

    def __init__(self, capacity: int) -> None:
        """Start empty.

        Args:
            capacity: environment steps held at most.
        """
        if capacity < 1:
            raise ValueError(f"a replay buffer holds at least 1 step; got a capacity of {capacity}")
        self.capacity = capacity
        self.refused = 0
        """Episodes that were longer than the capacity."""
        self.steps = 0
        """Environment steps held now."""
        self._held: dict[tuple[str, str], EpisodeRef] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def episodes(self) -> tuple[EpisodeRef, ...]:
        """Return the held episodes, oldest first."""
        return tuple(self._held.values())

    def add(self, episode: EpisodeRef) -> tuple[EpisodeRef, ...]:
        """Hold one more episode and return those that left for it, oldest first.

        An episode longer than the capacity is refused and counted; then nothing leaves.

        Raises:
            ValueError: it is held already, or has no step.
        """
        key = episode.run, episode.trajectory
        if key in self._held:
            raise ValueError(f"episode {episode.trajectory} of {episode.run} is in the replay buffer already")
        if episode.steps < 1:
            raise ValueError(f"episode {episode.trajectory} of {episode.run} has no step to learn from")
        if episode.steps > self.capacity:
            self.refused += 1
            return ()
        left: list[EpisodeRef] = []
        while self.steps + episode.steps > self.capacity:
            oldest = self._held.pop(next(iter(self._held)))
            self.steps -= oldest.steps
            left.append(oldest)
        self._held[key] = episode
        self.steps += episode.steps
        return tuple(left)

    def sample(self, count: int, rng: random.Random) -> list[EpisodeRef]:
        """Draw episodes uniformly, with replacement, so that a buffer smaller than a batch fills one; empty: none."""
        return rng.choices(self.episodes, k=count) if self._held else []

    def state(self) -> dict[str, Any]:
        """Return all there is to it as JSON values."""
        return {
            "capacity": self.capacity,
            "refused": self.refused,
            "episodes": [{**asdict(one), "versions": list(one.versions)} for one in self.episodes],
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ReplayBuffer:
        """Build the buffer that gave this state; ValueError where the state holds more than fits."""
        buffer = cls(state["capacity"])
        for one in state["episodes"]:
            oldest, newest = one["versions"]
            if buffer.add(EpisodeRef(**{**one, "versions": (oldest, newest)})) or buffer.refused:
                raise ValueError(f"the stored replay buffer holds more than its capacity of {buffer.capacity} steps")
        buffer.refused = state["refused"]
        return buffer
