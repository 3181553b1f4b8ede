"""A judged step: the cells that its critic rewards, whether the team erred, and the steps after an error.

    step = JudgedStep.of(trajectory, judgement, threshold=0.5)
    list_rewarded(step), list_with_reward(step, 0), step.erred
    find_behind_errors(steps)               # steps after the first error of their episode

Pairs, anchors and the replies of rejective fine-tuning are built from these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from collab.rewards.base import Judgement
from collab.seeds import derive
from collab.store.rewards import ReplyRef
from collab.types import Action, ActionMatrix, CellRef, Trajectory, Utterance

BEHIND_ERROR = "behind the episode's first error"
"""Cause in counts: such a step teaches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """A synthesised reply that passed the linter."""

    text: str
    action: Action
    """Canonical on the step's screen."""
    maker: str
    """Adversary and manner, as in `AdversaryProposal.maker`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """The action matrix of one step, and the critic's judgement of it."""

    epoch: int
    task: str
    episode: int
    matrix: ActionMatrix
    judgement: Judgement
    threshold: float = 0.5
    """A score above it is a reward of 1, any other of 0 (eq. 6 has one half)."""
    decided: Action | None = None
    """The action that won the vote; None where no cell parsed."""
    negatives: Mapping[CellRef, Negative] = field(default_factory=dict)
    """Cells → the adversary's worse replies, where it found one."""

    @classmethod
    def of(cls, trajectory: Trajectory, judgement: Judgement, threshold: float = 0.5) -> JudgedStep:
        """Return the step of an episode that a judgement is about; KeyError when the episode has no such step."""
        of, number = judgement.key
        step = next((one for one in trajectory.steps if one.index == number), None)
        if step is None or of != trajectory.id:
            raise KeyError(judgement.key)
        return cls(
            epoch=trajectory.epoch,
            task=trajectory.task.name,
            episode=trajectory.episode,
            matrix=step.matrix,
            judgement=judgement,
            threshold=threshold,
            decided=step.vote.action,
        )

    @property
    def place(self) -> tuple[int, str, int, int]:
        """Sort key of a step: (epoch, task, episode, step)."""
        return self.epoch, self.task, self.episode, self.judgement.rewards.step

    @property
    def erred(self) -> bool:
        """Return whether the vote was empty, or its action was judged and no cell that proposed it is rewarded."""
        if self.decided is None:
            return True
        # The vote is wrong only by its own proposers' scores: another action's reward says nothing about it.
        voters = {cell.cell for cell in self.matrix if cell.action == self.decided}
        judged = [one.score for one in self.judgement.rewards.rewards if one.cell in voters and one.score is not None]
        # An unjudged decision is no error: a gap in the labels must not cut an episode short.
        return bool(judged) and max(judged) <= self.threshold

    def derive_seed(self, run: int, purpose: str, cell: CellRef, *more: int) -> int:
        """Derive the seed of a draw for one cell, by name: the order of calls does not matter."""
        return derive(run, purpose, *self.place, *cell, *more)

    def make_ref(self, cell: CellRef) -> ReplyRef:
        """Return the reference by which a pair names a cell's reply."""
        trajectory, step = self.judgement.key
        return ReplyRef(trajectory=trajectory, step=step, cell=cell)


def list_with_reward(step: JudgedStep, reward: Literal[0, 1]) -> tuple[Utterance, ...]:
    """Return the cells whose action parsed and whose reward is `reward`, by agent and round."""
    # eq. 6: r_ij = 1[score > 1/2]. A missing score is neither 0 nor 1, so such a cell is on no side of a pair.
    scores = {one.cell: one.score for one in step.judgement.rewards.rewards if one.score is not None}
    given = {cell: int(score > step.threshold) for cell, score in scores.items()}
    # By name, not in the order of the graph: redrawn edges must not change which pair is drawn.
    cells = sorted(step.matrix, key=lambda cell: cell.cell)
    return tuple(cell for cell in cells if cell.action is not None and given.get(cell.cell) == reward)


def list_rewarded(step: JudgedStep) -> tuple[Utterance, ...]:
    """Return the cells with reward 1, by agent and round; a cell that did not parse is never among them."""
    return list_with_reward(step, 1)


def list_rewarded_actions(step: JudgedStep) -> frozenset[Action]:
    """Return the rewarded actions: a reply that proposes one of them is never the rejected one."""
    return frozenset(cell.action for cell in list_rewarded(step) if cell.action is not None)


def find_behind_errors(steps: Iterable[JudgedStep]) -> frozenset[tuple[str, int]]:
    """Return the steps (trajectory, step) that come after the first error of their episode.

    Only the given steps count: an unjudged step is no error.

    Few teams recover from an error, so later steps teach little, at the expense of the rest. Agents that were rewarded
    for turning back after an error also turn back where nothing is wrong.
    """
    ends: dict[str, int] = {}
    keys = []
    for step in steps:
        trajectory, number = step.judgement.key
        keys.append((trajectory, number))
        if step.erred:
            # Steps come in any order: keep the smallest number, not the first one seen.
            ends[trajectory] = min(number, ends.get(trajectory, number))
    # Strictly after: the erring step itself is the one that has something to teach.
    return frozenset((trajectory, number) for trajectory, number in keys if number > ends.get(trajectory, number))
