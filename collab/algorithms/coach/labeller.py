"""The labels of Android Coach: a verdict on each episode, and a critic's reward of each executed action.

Both lie beside the rollout, under the name `training`. The action of a step without a reward is left out of its
episode's sums; where more than a tenth of an epoch's steps have none, it stops.
"""

from __future__ import annotations

from pathlib import Path

from collab.algorithms.coach.config import narrow_config
from collab.algorithms.experience import has_experience
from collab.algorithms.judging import hash_judgements, judge_rollout
from collab.algorithms.turn_algorithm import OutcomeLabeller
from collab.loop.interfaces import Labels, Rollout
from collab.loop.record import LABELS
from collab.loop.state import LoopState
from collab.rewards.labels import list_label_sets, read_labels
from collab.types import Usage

PART = "critic"
"""Name of the judging in the records of an epoch."""


class CoachLabeller(OutcomeLabeller):
    """Judges episodes and their steps; see `Labeller`."""

    async def label(self, state: LoopState, rollout: Rollout) -> Labels:
        """Judge what is not judged yet, and read all labels; raises as its two parts."""
        verdicts = await super().label(state, rollout)
        if narrow_config(state.config).method.unasked is not None:
            return verdicts
        # What is learned was decided by the rewards that were known then: an epoch that went further asks no more.
        if has_experience(state.folder, rollout.number):
            labels = read_labels(rollout.path, LABELS)
        else:
            labels = await judge_rollout(state, rollout.run, rollout.path, rollout.trajectories)
        return Labels(
            value=verdicts.value,
            metrics=verdicts.metrics,
            spent={**verdicts.spent, PART: labels.spent},
            hashes={**verdicts.hashes, PART: hash_judgements(labels.judged.values())},
        )

    def read_spent(self, rollout: Path) -> Usage:
        """Return the usage of a rollout's verdicts and judgements."""
        judged = read_labels(rollout, LABELS).spent if LABELS in list_label_sets(rollout) else Usage()
        return super().read_spent(rollout) + judged
