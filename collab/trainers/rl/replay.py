"""Remember which episodes may be learned from again: references to recorded ones, never copies.

    buffer = ReplayBuffer(capacity=5000)
    gone = buffer.add(EpisodeRef(run="epochs/0/rollout", trajectory="…", steps=12, versions=(0, 0)))
    drawn = buffer.sample(16, generator(derive(seed, "replay", epoch)))

    buffer = PrioritisedReplay(capacity=5000)
    buffer.add(episode, Surprise(error=0.4, ratio=0.9, entropy=0.2), epoch=3)
    drawn = buffer.draw(256, rng)                   # whole episodes until they have 256 steps
    buffer.measure(drawn[0].key, Surprise(error=0.1, ratio=0.8, entropy=0.2), epoch=3)

The capacity is in environment steps, and whole episodes leave, the oldest first. In DistRL (appendix A.4.2) and the
public code of DigiRL transitions overwrite each other one by one, which leaves half a trajectory at the seam. Returns,
and values corrected over a trajectory, need all of it.

A `PrioritisedReplay` draws an episode with the probability p^α / Σ p^α (DistRL, section 5.3), where p weighs what its
steps taught when they were last measured (`estimators.trajectory_priority`). A sum tree finds it in O(log n).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collab.trainers.rl.estimators import trajectory_priority


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

    @property
    def key(self) -> tuple[str, str]:
        """Return run and identifier, which no other episode of a training has."""
        return self.run, self.trajectory


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
        key = episode.key
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


class SumTree:
    """Weights whose sum is known and by which one is found: a binary tree of sums over an array of leaves.

    Every node is the sum of its two children, computed anew at each change, so no rounding adds up.
    """

    def __init__(self, size: int) -> None:
        """Start with weights of 0.

        Args:
            size: leaves needed.
        """
        self._leaves = 1 << max(0, size - 1).bit_length()
        self._nodes = np.zeros(2 * self._leaves)  # the root is 1, the children of i are 2i and 2i + 1

    @property
    def total(self) -> float:
        """Return the sum of all weights."""
        return float(self._nodes[1])

    def __getitem__(self, place: int) -> float:
        return float(self._nodes[self._leaves + place])

    def __setitem__(self, place: int, weight: float) -> None:
        node = self._leaves + place
        self._nodes[node] = weight
        while node > 1:
            node //= 2
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def find(self, sums: ArrayLike) -> NDArray[np.int64]:
        """Return the leaf at which the sum of all weights from the first leaf on exceeds a number, of each, (n,).

        A leaf of weight 0 is never found, whatever is lost by rounding.

        Args:
            sums: at least 0 and below `total`, (n,).
        """
        left = np.array(sums, dtype=np.float64)
        nodes = np.ones(len(left), dtype=np.int64)
        for _ in range(self._leaves.bit_length() - 1):
            below = self._nodes[2 * nodes]
            goes_right = (left >= below) & (self._nodes[2 * nodes + 1] > 0)
            left -= np.where(goes_right, below, 0.0)
            nodes = 2 * nodes + goes_right
        return nodes - self._leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """Lesson of an episode's steps when they were last measured."""

    error: float
    """Mean |δ|."""
    ratio: float
    """Mean ρ̄."""
    entropy: float
    """Mean H."""
    most_error: float
    """Largest |δ|."""
    most_entropy: float
    """Largest H."""


@dataclass(slots=True, kw_only=True)
class _Held:
    """An episode in a prioritised buffer."""

    slot: int
    surprise: Surprise
    epoch: int
    """In which it was last measured."""


class PrioritisedReplay:
    """The newest episodes whose steps fit into a capacity, drawn by their priority."""

    def __init__(
        self, capacity: int, *, exponent: float = 0.5, weights: tuple[float, float, float] = (1.0, 0.5, 0.3)
    ) -> None:
        """Start empty.

        Args:
            capacity: environment steps held at most.
            exponent: α; at 0 all episodes are drawn alike.
            weights: of error, ratio and entropy in a priority.
        """
        self.buffer = ReplayBuffer(capacity)
        self.most_error = self.most_entropy = 0.0
        """Largest |δ| and H of all episodes so far, those that left included."""
        self._exponent, self._weights = exponent, weights
        # An episode has a step at least, so its turn in the circle of slots never comes while another one is in it.
        self._tree = SumTree(capacity)
        self._next = 0
        self._held: dict[tuple[str, str], _Held] = {}
        self._at: dict[int, EpisodeRef] = {}

    def __len__(self) -> int:
        return len(self.buffer)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._held

    def add(self, episode: EpisodeRef, surprise: Surprise, *, epoch: int) -> tuple[EpisodeRef, ...]:
        """Hold one more measured episode and return those that left for it, as `ReplayBuffer.add`."""
        refused = self.buffer.refused
        left = self.buffer.add(episode)
        for one in left:
            held = self._held.pop(one.key)
            self._tree[held.slot] = 0.0
            del self._at[held.slot]
        if self.buffer.refused == refused:
            self._held[episode.key] = _Held(slot=self._next, surprise=surprise, epoch=epoch)
            self._at[self._next] = episode
            self._next = (self._next + 1) % self.buffer.capacity
            self.measure(episode.key, surprise, epoch=epoch)
        return left

    def measure(self, key: tuple[str, str], surprise: Surprise, *, epoch: int) -> None:
        """Take over what a held episode's steps teach now."""
        held = self._held[key]
        held.surprise, held.epoch = surprise, epoch
        known = self.most_error, self.most_entropy
        self.most_error = max(self.most_error, surprise.most_error)
        self.most_entropy = max(self.most_entropy, surprise.most_entropy)
        # A new maximum changes every priority, so none depends on what was known when it was measured.
        is_known = known == (self.most_error, self.most_entropy)
        for one in [key] if is_known else self._held:
            self._tree[self._held[one].slot] = self.get_priority(one) ** self._exponent

    def get_priority(self, key: tuple[str, str]) -> float:
        """Return p of a held episode."""
        found = self._held[key].surprise
        return trajectory_priority(
            [found.error],
            [found.ratio],
            [found.entropy],
            most_error=self.most_error,
            most_entropy=self.most_entropy,
            weights=self._weights,
        )

    def draw(self, steps: int, rng: random.Random) -> list[EpisodeRef]:
        """Draw whole episodes by their priority, with replacement, until they have so many steps; empty: none."""
        found: list[EpisodeRef] = []
        while self._held and steps > 0:
            # About as many as are still needed: to find many at once takes hardly longer than to find one.
            count = math.ceil(steps * len(self) / self.buffer.steps)
            for slot in self._tree.find([rng.random() * self._tree.total for _ in range(count)]).tolist():
                if steps > 0:
                    found.append(self._at[slot])
                    steps -= found[-1].steps
        return found

    def list_stalest(self, count: int) -> list[EpisodeRef]:
        """Return the episodes that were not measured for the longest time, the oldest ones first."""
        return sorted(self.buffer.episodes, key=lambda one: self._held[one.key].epoch)[:count]

    def state(self) -> dict[str, Any]:
        """Return all there is to it as JSON values."""
        held = [self._held[one.key] for one in self.buffer.episodes]
        return {
            **self.buffer.state(),
            "next": self._next,
            "most": [self.most_error, self.most_entropy],
            "measured": [{"epoch": one.epoch, **asdict(one.surprise)} for one in held],
        }

    @classmethod
    def of(
        cls, state: Mapping[str, Any], *, exponent: float = 0.5, weights: tuple[float, float, float] = (1.0, 0.5, 0.3)
    ) -> PrioritisedReplay:
        """Build the buffer that gave this state; ValueError where the state holds more than fits."""
        held = ReplayBuffer.of(state)
        buffer = cls(held.capacity, exponent=exponent, weights=weights)
        buffer.most_error, buffer.most_entropy = state["most"]
        # The circle is entered so that the last episode ends where it ended.
        buffer._next = (state["next"] - len(held)) % held.capacity
        for one, measured in zip(held.episodes, state["measured"], strict=True):
            surprise = Surprise(**{name: value for name, value in measured.items() if name != "epoch"})
            buffer.add(one, surprise, epoch=measured["epoch"])
        buffer.buffer.refused = held.refused
        return buffer
