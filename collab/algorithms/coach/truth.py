"""Truth about Q: replies that were not executed, tried on a copy of the environment that knows its solutions.

    truths, failures = await try_candidates(suite, tried)    # state → action → score, or None
    found = compare_with_truth(states, len(failures))
    found.rank_accuracy, found.regret, found.chance

An action's worth is that of the exact critic: 1 if it leads on, 0.5 if it changes nothing, 0 if it leads astray
(`collab.rewards.oracle`). A reply without an action is worth what a step without one is: a phone waits, a page is
looked at again. Nothing is learned from it, so a state at which the environment breaks is left out and counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collab.config import Definition
from collab.envs.base import Suite
from collab.errors import EnvironmentFailure, EnvironmentGone
from collab.preferences.rebuild import ORACLE
from collab.rewards.base import CellScore
from collab.rewards.calibration.metrics import KnownStep, compute_auc
from collab.rewards.oracle import score_actions
from collab.rewards.restore import StateRebuilder
from collab.store.rewards import REWARDED_ABOVE
from collab.types import Action, Trajectory


class Truth(Definition):
    """Comparison of Q with the worth of the replies to some states."""

    states: int
    """States with replies of known worth."""
    pairs: int
    """Pairs of different replies to one state, one of which is worth more."""
    rank_accuracy: float | None
    """Share of these in which Q prefers it; equal Q count one half. None without a pair."""
    auc: float | None
    """Probability that a reply that leads on has a higher Q than one that does not, in whatever states; None if there
    is but one kind."""
    regret: float | None
    """Mean, over states, of the worth of the best reply less that of the one with the highest Q, or of those that share
    it; None without a state."""
    chance: float | None
    """The same, of a reply that is drawn at random."""
    broken: int = 0
    """States at which the environment broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedReply:
    """A reply of known worth."""

    value: float
    """Q."""
    truth: float
    """In [0, 1]."""
    count: int
    """Replies that are this one."""


async def try_candidates(
    suite: Suite, tried: Sequence[tuple[Trajectory, int, Sequence[Action | None]]]
) -> tuple[list[Mapping[Action | None, float | None]], list[EnvironmentFailure]]:
    """Return the worth of actions in recorded states, None where it is not known, and what broke on the way.

    States have no actions where the environment broke or knows no solutions.

    Args:
        suite: that the episodes were played in.
        tried: episode, step, and actions there; None is a step without one.

    Raises:
        EnvironmentGone: a common part of all environments is gone.
    """
    if ORACLE not in suite.capabilities:
        return [{} for _ in tried], []
    rebuild = StateRebuilder(suite)
    found, failures = list[Mapping[Action | None, float | None]](), list[EnvironmentFailure]()
    for trajectory, step, actions in tried:
        state, scores = rebuild(trajectory, step), dict[Action | None, CellScore]()
        try:
            scores |= {} if state is None else await score_actions(state, list(actions))
        except EnvironmentGone:
            raise
        except EnvironmentFailure as failure:
            failures.append(failure)
        found.append({action: one.score for action, one in scores.items()})
    return found, failures


def compare_with_truth(states: Sequence[Sequence[RatedReply]], broken: int = 0) -> Truth:
    """Compare the Q of replies with their worth.

    Args:
        states: the different replies to each state, at least one.
        broken: states at which the environment broke.
    """
    right, pairs = 0.0, 0
    for replies in states:
        for one, other in itertools.combinations(replies, 2):
            if one.truth != other.truth:
                better, worse = (one, other) if one.truth > other.truth else (other, one)
                pairs += 1
                right += 0.5 if better.value == worse.value else float(better.value > worse.value)
    best = [max(one.truth for one in each) for each in states]
    chosen = [_average_truth([one for one in each if one.value == max(o.value for o in each)]) for each in states]
    drawn = [_average_truth(each) for each in states]
    # AUC reads nothing but the order of scores.
    steps = [KnownStep(score=one.value, good=one.truth > REWARDED_ABOVE) for each in states for one in each]
    return Truth(
        states=len(states),
        pairs=pairs,
        rank_accuracy=right / pairs if pairs else None,
        auc=compute_auc(steps),
        regret=sum(best) / len(best) - sum(chosen) / len(chosen) if states else None,
        chance=sum(best) / len(best) - sum(drawn) / len(drawn) if states else None,
        broken=broken,
    )


def _average_truth(replies: Sequence[RatedReply]) -> float:
    """Return the mean worth of replies, each as often as it was given."""
    return sum(one.truth * one.count for one in replies) / sum(one.count for one in replies)
