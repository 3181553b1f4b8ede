"""A step with what a critic said of it: who was rewarded, whether the team erred, and what came after an error.

    step = JudgedStep.of(trajectory, judgement, threshold=0.5)
    rewarded(step), with_reward(step, 0), step.erred
    behind_errors(steps)                    # of an episode's steps those that come after its first error

What teaches is made of these: pairs, anchors, and the replies that rejective fine-tuning keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from collab.rewards.base import Judgement
from collab.seeds import derive
from collab.types import Action, ActionMatrix, CellRef, ReplyRef, Trajectory, Utterance

BEHIND_ERROR = "behind the episode's first error"
"""Why such a step teaches nothing, as counts tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """A synthesised reply that passed the linter."""

    text: str
    action: Action
    """Canonical on the step's screen."""
    maker: str
    """Which adversary made it, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """What was said before one step, and what was said of it."""

    epoch: int
    task: str
    episode: int
    matrix: ActionMatrix
    judgement: Judgement
    threshold: float = 0.5
    """A score above it is a reward of 1, any other of 0 (eq. 6 has one half)."""
    decided: Action | None = None
    """What the vote decided; None where no cell parsed."""
    negatives: Mapping[CellRef, Negative] = field(default_factory=dict)
    """Of the cells for which an adversary was asked and something came of it."""

    @classmethod
    def of(cls, trajectory: Trajectory, judgement: Judgement, threshold: float = 0.5) -> JudgedStep:
        """The step of an episode that a judgement is about; KeyError when it has none of that number."""
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
        """What steps are sorted by: (epoch, task, episode, step)."""
        return self.epoch, self.task, self.episode, self.judgement.rewards.step

    @property
    def erred(self) -> bool:
        """Whether the team decided for nothing, or for what was judged and is rewarded in no cell that proposed it."""
        if self.decided is None:
            return True
        voters = {cell.cell for cell in self.matrix if cell.action == self.decided}
        judged = [one.score for one in self.judgement.rewards.rewards if one.cell in voters and one.score is not None]
        return bool(judged) and max(judged) <= self.threshold

    def seed(self, run: int, purpose: str, cell: CellRef, *more: int) -> int:
        """Seed of something that is done for one cell, by name."""
        return derive(run, purpose, *self.place, *cell, *more)

    def make_ref(self, cell: CellRef) -> ReplyRef:
        """How a pair names what a cell said."""
        trajectory, step = self.judgement.key
        return ReplyRef(trajectory=trajectory, step=step, cell=cell)


def list_with_reward(step: JudgedStep, reward: Literal[0, 1]) -> tuple[Utterance, ...]:
    """Cells whose action parsed and whose reward is that, by agent and round; a missing score is neither."""
    scores = {one.cell: one.score for one in step.judgement.rewards.rewards if one.score is not None}
    given = {cell: int(score > step.threshold) for cell, score in scores.items()}
    cells = sorted(step.matrix, key=lambda cell: cell.cell)
    return tuple(cell for cell in cells if cell.action is not None and given.get(cell.cell) == reward)


def list_rewarded(step: JudgedStep) -> tuple[Utterance, ...]:
    """Cells with reward 1, by agent and round; one that did not parse is never among them."""
    return list_with_reward(step, 1)


def list_rewarded_actions(step: JudgedStep) -> frozenset[Action]:
    """What no worse side may be."""
    return frozenset(cell.action for cell in list_rewarded(step) if cell.action is not None)


def find_behind_errors(steps: Iterable[JudgedStep]) -> frozenset[tuple[str, int]]:
    """Which steps (trajectory, step) come behind the first one of their episode at which the team erred.

    Of the steps given alone: at one that nobody judged no error is known.

    Few teams find back from there, so what such steps teach is hardly ever of use, but is learned at the expense of the
    rest: agents that were rewarded for turning back where everything was wrong turn back where nothing was.
    """
    ends: dict[str, int] = {}
    keys = []
    for step in steps:
        trajectory, number = step.judgement.key
        keys.append((trajectory, number))
        if step.erred:
            ends[trajectory] = min(number, ends.get(trajectory, number))
    return frozenset((trajectory, number) for trajectory, number in keys if number > ends.get(trajectory, number))
