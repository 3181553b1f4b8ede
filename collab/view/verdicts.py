"""What a labelling says about one step, if it is about this very play of it; and all labellings side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collab.credit.case import case_digest
from collab.credit.critic import CriticCall, Judgement
from collab.types import CellRef, CellReward, Step
from collab.view import answer
from collab.view.finds import HALF
from collab.view.pool import Opened
from collab.view.shapes.cell import CallView
from collab.view.shapes.critics import Critics, CriticView, Score

UNASKED = "this labelling has not come to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A step in the eyes of a critic."""

    judgement: Judgement | None
    unjudged: str | None
    """Why there is none; None when there is one, or nobody was asked for."""

    @property
    def critic(self) -> str | None:
        """Who judged; None when nobody did."""
        return None if self.judgement is None else self.judgement.rewards.critic

    def word(self, cell: CellRef) -> CellReward | None:
        """On one cell; None where there is none."""
        rewards = self.judgement.rewards.rewards if self.judgement else ()
        return next((one for one in rewards if one.cell == cell), None)

    def score(self, cell: CellRef) -> float | None:
        """Of one cell; None where there is none."""
        word = self.word(cell)
        return None if word is None else word.score

    def call(self, cell: CellRef) -> CriticCall | None:
        """The model call behind it; None where no model was asked."""
        return None if self.judgement is None else self.judgement.call_of(cell)


NOBODY = Judged(judgement=None, unjudged=None)


def judged(run: Opened, labels: str | None, episode: str, goal: str, step: Step) -> Judged:
    """What a labelling says about a step; of None, nothing."""
    if labels is None:
        return NOBODY
    verdict = run.beside.verdict(labels, episode, step.index)
    if verdict is None:
        return Judged(judgement=None, unjudged=UNASKED)
    if verdict.judgement is None:
        return Judged(judgement=None, unjudged=verdict.failed)
    if verdict.judgement.case not in ("", case_digest(goal, step.observation, step.matrix)):
        return Judged(judgement=None, unjudged="its judgement is of an earlier play of this step")
    return Judged(judgement=verdict.judgement, unjudged=None)


def rewarded(score: float | None) -> bool | None:
    """Whether a score earns a reward; None without one."""
    return None if score is None else score > HALF


def critics(run: Opened, labellings: Sequence[str], episode: str, goal: str, step: Step) -> Critics:
    """Every labelling on one step."""
    found = {name: judged(run, name, episode, goal, step) for name in labellings}
    cells = [cell.cell for cell in step.matrix]
    return Critics(
        step=step.index,
        critics=[_critic(name, one, cells) for name, one in found.items()],
        disputed=[
            answer.key(cell) for cell in cells if {True, False} <= {rewarded(one.score(cell)) for one in found.values()}
        ],
    )


def call_view(call: CriticCall) -> CallView:
    """A model call of a critic, whole."""
    return CallView(
        model=answer.short(call.model),
        seed=str(call.seed),
        reply=call.reply,
        shown={answer.short(agent): answer.short(name) for agent, name in call.shown.items()},
        cells=[answer.key(cell) for cell in call.cells],
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.completion_tokens,
        cost_usd=call.cost_usd,
        latency_s=call.latency_s,
    )


def _critic(name: str, one: Judged, cells: Sequence[CellRef]) -> CriticView:
    words = [word for word in map(one.word, cells) if word is not None]
    return CriticView(
        labels=name,
        critic=None if one.critic is None else answer.short(one.critic),
        unjudged=None if one.unjudged is None else answer.short(one.unjudged),
        scores=[
            Score(
                agent=answer.short(word.cell.agent),
                round=word.cell.round,
                score=word.score,
                rewarded=rewarded(word.score),
                because=answer.text(word.reason),
                missing=None if word.missing is None else answer.short(word.missing),
            )
            for word in words
        ],
    )
