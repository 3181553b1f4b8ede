"""Find steps on which critic, vote and outcome disagree, find words, and compare label sets on one step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from collab.rewards.base import CriticCall, Judgement, hash_input
from collab.store.rewards import CellReward
from collab.types import CellRef, Step
from collab.view import common
from collab.view.common import shorten
from collab.view.labels import StepId, StepScores
from collab.view.readers import OpenRun
from collab.view.runs import ListedRun
from collab.view.schema.episodes import EpisodeRow, FoundStepsView, FoundStepView, HitView
from collab.view.schema.step import CallView, CriticsView, CriticView, ScoreView

HALF = 0.5
"""A score above it is rewarded (`collab.store.rewards.CellReward.reward`)."""
MOST_HITS = 100
_LETTERS, _PAIRS = 4, 20
"""Least letters of a searched pair ID, and most pairs found."""

_WINNERS = """
SELECT trajectory, cells.step, agent, round FROM cells JOIN episodes USING (key)
WHERE ballot = 0 {where} ORDER BY epoch, task, episode, trajectory, cells.step
"""

_SEARCH = """
SELECT trajectory, NULL, NULL, NULL, 'task', trajectory FROM episodes WHERE trajectory LIKE :like ESCAPE '\\'
UNION ALL SELECT trajectory, NULL, NULL, NULL, 'goal', goal FROM episodes WHERE goal LIKE :like ESCAPE '\\'
UNION ALL SELECT trajectory, NULL, NULL, NULL, 'app', apps FROM episodes WHERE apps LIKE :like ESCAPE '\\'
UNION ALL SELECT trajectory, error_step, NULL, NULL, 'error', error || ': ' || substr(error_message, 1, 300)
    FROM episodes WHERE error LIKE :like ESCAPE '\\' OR error_message LIKE :like ESCAPE '\\'
UNION ALL SELECT trajectory, step, NULL, NULL, 'screen', title
    FROM steps JOIN episodes USING (key) WHERE title LIKE :like ESCAPE '\\'
UNION ALL SELECT trajectory, step, NULL, NULL, 'action', words
    FROM steps JOIN episodes USING (key) WHERE words LIKE :like ESCAPE '\\'
UNION ALL SELECT trajectory, step, NULL, NULL, 'effect', effect
    FROM steps JOIN episodes USING (key) WHERE effect LIKE :like ESCAPE '\\'
UNION ALL SELECT trajectory, step, agent, round, 'proposal', cells.action
    FROM cells JOIN episodes USING (key) WHERE cells.action LIKE :like ESCAPE '\\'
LIMIT :most
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWorth:
    """A critic's scores of a step, against vote and outcome."""

    episode: str
    step: int
    score: float | None
    """Mean score of the cells that proposed the executed action; None without a score."""
    best: tuple[str, int]
    """The cell with the highest score; ties go to the first."""
    best_score: float

    @property
    def overruled(self) -> bool:
        """Return whether a proposal that is rewarded lost to one that is not."""
        return self.score is not None and self.score <= HALF < self.best_score


def list_step_worths(run: OpenRun, labels: str, episode: str | None = None) -> list[StepWorth]:
    """Yield the worths of every step with a score, in the order of the episodes; of one episode or of all."""
    said = run.beside.read_scores(labels, episode)  # reads new lines, so that an outdated cache is noticed
    if episode is not None:
        return list(_build_worths(run, said, "AND trajectory = ?", episode))
    return run.get_cached(f"worths {labels}", lambda: list(_build_worths(run, said, "")))


def get_step_worth(episode: str, step: int, cells: Sequence[tuple[str, int, bool, float]]) -> StepWorth | None:
    """Return a step's worths; None without a score.

    Args:
        cells: agent, round, whether it proposed what was executed, and score, in conversation order.
    """
    if not cells:
        return None
    winners = [score for *_, won, score in cells if won]
    agent, round, _, best = max(cells, key=lambda cell: cell[3])  # the first of equals
    mean = math.fsum(winners) / len(winners) if winners else None
    return StepWorth(episode=episode, step=step, score=mean, best=(agent, round), best_score=best)


def find_steps(
    root: ListedRun,
    run: OpenRun,
    rows: Sequence[EpisodeRow],
    kind: Literal["first-wrong", "overruled", "disagrees"],
    labels: str | None,
) -> FoundStepsView:
    """Find steps of one kind; see `collab.view.schema.episodes.FoundStepsView`.

    Args:
        rows: of all episodes of the run.
        labels: whose scores; None finds nothing.
    """
    judged = [] if labels is None else list_step_worths(run, labels)
    scored = [one for one in judged if one.score is not None]
    by_episode = {episode: list(steps) for episode, steps in groupby(scored, key=lambda one: one.episode)}
    if kind == "overruled":
        found = [_find(root, one, one.best, _format_overruled(one)) for one in scored if one.overruled]
    else:
        pick = _find_first_wrong if kind == "first-wrong" else _find_disagreement
        picked = (pick(row, by_episode.get(row.id, [])) for row in rows)
        found = [_find(root, one, None, note) for one, note in filter(None, picked)]
    return FoundStepsView(kind=kind, labels=labels, judged=len(scored), rows=found)


def search_words(root: ListedRun, run: OpenRun, words: str, most: int) -> list[HitView]:
    """Find words in the texts of the index, up to a limit."""
    if not words.strip():
        return []
    like = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    rows = run.reader.query(_SEARCH.replace(":like", "?1").replace(":most", "?2"), f"%{like}%", most)
    found = [_build_hit(root, *row) for row in rows]
    return [*found, *_pair_hits(root, run, words)][:most]


# ------------------------------------------------------------------------------------------------------ inside


def _build_worths(run: OpenRun, said: Mapping[StepId, StepScores], where: str, *values: object) -> Iterator[StepWorth]:
    rows = run.reader.query(_WINNERS.format(where=where), *values)
    for (episode, step), group in groupby(rows, key=lambda row: row[:2]):
        words = said.get((episode, step))
        if words is not None:
            winners = {row[2:] for row in group}
            cells = [(agent, round, (agent, round) in winners, score) for agent, round, score in words.iterate_scored()]
            found = get_step_worth(episode, step, cells)
            if found is not None:
                yield found


def _find_first_wrong(row: EpisodeRow, steps: Sequence[StepWorth]) -> tuple[StepWorth, str] | None:
    if row.success is not False:
        return None
    return next(((one, f"scored {one.score:.2f}, not rewarded") for one in _iterate_unrewarded(steps)), None)


def _find_disagreement(row: EpisodeRow, steps: Sequence[StepWorth]) -> tuple[StepWorth, str] | None:
    if row.success is None or not steps:
        return None
    wrong = list(_iterate_unrewarded(steps))
    if row.success and 2 * len(wrong) >= len(steps):
        return wrong[0], f"solved, but {len(wrong)} of {len(steps)} judged steps are not rewarded"
    if not row.success and not wrong:
        return steps[-1], f"not solved, but all {len(steps)} judged steps are rewarded"
    return None


def _iterate_unrewarded(steps: Iterable[StepWorth]) -> Iterator[StepWorth]:
    return (one for one in steps if one.score is not None and one.score <= HALF)


def _format_overruled(one: StepWorth) -> str:
    agent, round = one.best
    return f"{shorten(agent)}, round {round + 1}, scored {one.best_score:.2f}; what was executed {one.score:.2f}"


def _find(root: ListedRun, one: StepWorth, cell: tuple[str, int] | None, note: str) -> FoundStepView:
    agent, round = (shorten(cell[0]), cell[1]) if cell else (None, None)
    return FoundStepView(run=root.id, episode=one.episode, step=one.step, agent=agent, round=round, note=note)


def _build_hit(
    root: ListedRun, episode: str, step: int | None, agent: str | None, round: int | None, *found: Any
) -> HitView:
    where, text = found
    return HitView(run=root.id, episode=episode, step=step, agent=agent, round=round, where=where, text=text)


def _pair_hits(root: ListedRun, run: OpenRun, words: str) -> list[HitView]:
    if len(words) < _LETTERS:
        return []
    found = run.beside.find_pairs(words.casefold())[:_PAIRS]
    return [_build_hit(root, episode, step, None, None, "pair", id) for id, (episode, step) in found]


UNASKED = "this label set has not come to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A label set's judgement of a step."""

    judgement: Judgement | None
    unjudged: str | None
    """Why there is no judgement; None when there is one, or no label set is chosen."""

    @property
    def critic(self) -> str | None:
        """The critic; None without a judgement."""
        return None if self.judgement is None else self.judgement.rewards.critic

    def word(self, cell: CellRef) -> CellReward | None:
        """Return the reward of a cell, or None."""
        rewards = self.judgement.rewards.rewards if self.judgement else ()
        return next((one for one in rewards if one.cell == cell), None)

    def score(self, cell: CellRef) -> float | None:
        """Return the score of a cell, or None."""
        word = self.word(cell)
        return None if word is None else word.score

    def call(self, cell: CellRef) -> CriticCall | None:
        """Return the model call behind a score; None where no model was asked."""
        return None if self.judgement is None else self.judgement.call_of(cell)


UNJUDGED = Judged(judgement=None, unjudged=None)


def read_judged(run: OpenRun, labels: str | None, episode: str, goal: str, step: Step) -> Judged:
    """Read a label set's judgement of a step; nothing for None."""
    if labels is None:
        return UNJUDGED
    verdict = run.beside.read_verdict(labels, episode, step.index)
    if verdict is None:
        return Judged(judgement=None, unjudged=UNASKED)
    if verdict.judgement is None:
        return Judged(judgement=None, unjudged=verdict.failed)
    if verdict.judgement.case not in ("", hash_input(goal, step.observation, step.matrix)):
        return Judged(judgement=None, unjudged="its judgement is of an earlier play of this step")
    return Judged(judgement=verdict.judgement, unjudged=None)


def is_rewarded(score: float | None) -> bool | None:
    """Return whether a score earns a reward; None without one."""
    return None if score is None else score > HALF


def build_critics(run: OpenRun, label_sets: Sequence[str], episode: str, goal: str, step: Step) -> CriticsView:
    """Build the view of every label set on one step."""
    found = {name: read_judged(run, name, episode, goal, step) for name in label_sets}
    cells = [cell.cell for cell in step.matrix]
    return CriticsView(
        step=step.index,
        critics=[_build_critic(name, one, cells) for name, one in found.items()],
        disputed=[
            common.build_cell_key(cell)
            for cell in cells
            if {True, False} <= {is_rewarded(one.score(cell)) for one in found.values()}
        ],
    )


def call_view(call: CriticCall) -> CallView:
    """Build the view of a critic's model call."""
    return CallView(
        model=common.shorten(call.model),
        seed=str(call.seed),
        reply=call.reply,
        shown={common.shorten(agent): common.shorten(name) for agent, name in call.shown.items()},
        cells=[common.build_cell_key(cell) for cell in call.cells],
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.completion_tokens,
        cost_usd=call.cost_usd,
        latency_s=call.latency_s,
    )


def _build_critic(name: str, one: Judged, cells: Sequence[CellRef]) -> CriticView:
    words = [word for word in map(one.word, cells) if word is not None]
    return CriticView(
        labels=name,
        critic=None if one.critic is None else common.shorten(one.critic),
        unjudged=None if one.unjudged is None else common.shorten(one.unjudged),
        scores=[
            ScoreView(
                agent=common.shorten(word.cell.agent),
                round=word.cell.round,
                score=word.score,
                rewarded=is_rewarded(word.score),
                because=common.to_text(word.reason),
                missing=None if word.missing is None else common.shorten(word.missing),
                original=word.original,
            )
            for word in words
        ],
    )
