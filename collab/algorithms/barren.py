"""Epochs in which learners of turns find nothing to learn: told and passed over, or the end of a training.

    pass_over(state, method, BarrenEpoch(rollout=rollout, episodes=fresh, causes=causes, …))

A training whose first rollout teaches nothing ends there, before hours are spent. One that remembers no episodes plays
others in the next epoch, which may do what these did not, so it ends only where its first `most_barren` epochs were so.
Epochs in which values learn alone do not count; once an epoch had a lesson, nothing ends a training any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from collab.algorithms.experience import JudgedEpisode
from collab.errors import NothingToLearn
from collab.loop.examples import RETOKENISED, UNKNOWN
from collab.loop.interfaces import Rollout
from collab.loop.record import read_records
from collab.loop.state import LoopState
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.algorithms.turn_learner import TurnMethod

NOTHING = "no turn to learn in this epoch"
_MANY = 0.1
"""Share of what was left out from which a cause is taken for the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrenEpoch:
    """An epoch without a turn to learn."""

    rollout: Rollout
    episodes: Sequence[JudgedEpisode]
    """Its judged ones."""
    verifier: str | None
    """That judged them; None for the environment."""
    causes: Mapping[str, int]
    """Reason → steps or replies that it left out; empty if nothing was remembered."""
    capacity: int | None
    """Steps that are remembered; None for all."""

    @property
    def lacking(self) -> str | None:
        """Return the cause that no other episodes would mend, as the model tells no tokens; None if it is another."""
        total = sum(self.causes.values())
        return next((one for one in (RETOKENISED, UNKNOWN) if self.causes.get(one, 0) > _MANY * total), None)

    def describe(self) -> str:
        """Return in words why there is no turn to learn."""
        fresh = self.episodes
        if not fresh:
            return "no episode was judged"
        if not self.causes:
            steps = format_amount(max(one.steps for one in fresh), "step")
            return f"every episode is longer than capacity={self.capacity}, the longest has {steps}"
        solved, by = sum(one.reward > 0 for one in fresh), f" by verdict of {self.verifier}" if self.verifier else ""
        why = ", ".join(f"{count} {cause}" for cause, count in Counter(self.causes).most_common())
        judged = format_amount(len(fresh), "judged episode")
        return f"{solved} of {judged} solved{by}; steps without a turn to learn: {why}"


def pass_over(state: LoopState, method: TurnMethod, epoch: BarrenEpoch) -> None:
    """Tell that an epoch has nothing to learn, or end a training that had nothing to learn so far.

    Raises:
        NothingToLearn: as many epochs as the method bears were so, and none before them had a lesson.
    """
    number = epoch.rollout.number
    if number > 1 and method.most_barren == 1:
        return
    before = read_records(state.folder, number - 1)[1:]
    if any(one.examples for record in before for one in record.examples.values()):
        return
    barren = 1 + sum(set(record.untrained.values()) == {NOTHING} for record in before)
    # Others of its epochs waited for values; a training has no more than those that are left.
    patience = 1 if epoch.lacking else min(method.most_barren, method.epochs - (number - barren))
    if barren < patience:
        state.note(f"epoch {number}: nothing to learn: {epoch.describe()}")
        return
    which = "this first rollout" if number == 1 else "this rollout"
    others = f" and the {barren - 1} before it; in this one" if barren > 1 else ""
    raise NothingToLearn(
        f"{epoch.rollout.path}: there is nothing to learn from {which}{others}: {epoch.describe()}; begin another "
        f"training with {_advise(state, method, epoch)}"
    )


def _advise(state: LoopState, method: TurnMethod, epoch: BarrenEpoch) -> str:
    """Return what may mend an epoch without a turn to learn."""
    if epoch.lacking == RETOKENISED:
        told = "a model that reports the tokens of its replies"
        can_keep = "keep" in get_args(type(method).model_fields["retokenised"].annotation)
        return f"retokenised=keep, or {told}" if can_keep else told
    if epoch.lacking == UNKNOWN:
        return "a model that reports the tokens and probabilities of its replies, the end of each turn included"
    number = epoch.rollout.number
    if not state.config.is_played(number):
        return "other runs (--offline)"
    steps = "steps" if method.get_offline(number) is None else "offline.steps"
    advice = f"{method.REMEDY}another base (--agents), easier tasks (--tasks) or more steps (--set {steps}=N)"
    return f"another verifier, {advice}" if epoch.verifier else advice
