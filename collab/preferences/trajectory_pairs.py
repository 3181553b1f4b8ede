"""Pairs of whole trajectories by outcome alone: the method without credit re-assignment ("w/o CR").

    pairs = build_trajectory_pairs(trajectories, seed=0)
    read_trajectory_pair(pairs[0], reader).chosen.outcome

A pair holds a solved and an unsolved episode of the same task and epoch. The log-ratios of a side are summed over the
reply tokens of all cells of all its steps, each under its own input. CollabUIAgents leaves the matching open; here
every episode is in one pair at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from collab.errors import UsageError
from collab.preferences.pairs import PlacedReply, compute_pair_id
from collab.seeds import derive, generator
from collab.store.reader import RunReader
from collab.store.rewards import PreferencePair, ReplyRef
from collab.types import PolicyRef, Trajectory

SOURCE = "trajectory"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryPair:
    """A pair of whole trajectories with its episodes."""

    pair: PreferencePair
    chosen: Trajectory
    """The solved episode."""
    rejected: Trajectory
    """The unsolved episode."""


def read_trajectory_pair(pair: PreferencePair, reader: RunReader) -> TrajectoryPair:
    """Return the episodes that a pair compares.

    Raises:
        UnknownName: the run has no such episode.
        UsageError: an episode was played again since.
    """
    solved, unsolved = (reader.read_trajectory(refs[0].trajectory) for refs in (pair.chosen, pair.rejected))
    if not solved.success or unsolved.success or _build_pair(solved, unsolved).id != pair.id:
        raise UsageError(
            f"pair {pair.id[:12]}: {solved.id} or {unsolved.id} was played again since; make its pairs again"
        )
    return TrajectoryPair(pair=pair, chosen=solved, rejected=unsolved)


def build_trajectory_pairs(trajectories: Iterable[Trajectory], seed: int) -> tuple[PreferencePair, ...]:
    """Match solved with unsolved episodes, at random but by name; sorted by epoch, task and the solved episode.

    Broken episodes (without an outcome) and those without a step are in no pair.

    Args:
        seed: of the run.
    """
    tasks: defaultdict[tuple[int, str], list[Trajectory]] = defaultdict(list)
    for one in trajectories:
        if one.outcome is not None and one.steps:
            tasks[one.epoch, one.task.name].append(one)
    made: list[PreferencePair] = []
    for (epoch, task), played in sorted(tasks.items()):
        matched = _match(played, derive(seed, "trajectory pairs", epoch, task))
        made += [
            _build_pair(solved, unsolved) for solved, unsolved in sorted(matched, key=lambda both: _place(both[0]))
        ]
    return tuple(made)


def _match(played: list[Trajectory], seed: int) -> list[tuple[Trajectory, Trajectory]]:
    rng, ordered = generator(seed), sorted(played, key=_place)
    solved = [one for one in ordered if one.success]
    unsolved = [one for one in ordered if not one.success]
    rng.shuffle(solved)
    rng.shuffle(unsolved)
    return list(zip(solved, unsolved, strict=False))


def _place(trajectory: Trajectory) -> tuple[int, str]:
    return trajectory.episode, trajectory.id


def _build_pair(solved: Trajectory, unsolved: Trajectory) -> PreferencePair:
    chosen, rejected = _list_replies(solved), _list_replies(unsolved)
    policies = {cell.policy for _, cell in chosen}
    policy: PolicyRef | None = policies.pop() if len(policies) == 1 else None
    return PreferencePair(
        id=compute_pair_id(SOURCE, chosen, rejected),
        source=SOURCE,
        chosen=tuple(ref for ref, _ in chosen),
        rejected=tuple(ref for ref, _ in rejected),
        policy=policy,
    )


def _list_replies(trajectory: Trajectory) -> list[PlacedReply]:
    """List all replies in the order in which they were given."""
    return [
        (ReplyRef(trajectory=trajectory.id, step=step.index, cell=cell.cell), cell)
        for step in trajectory.steps
        for cell in step.matrix
    ]
