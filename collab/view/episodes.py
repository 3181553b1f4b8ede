"""Episodes in one line each, those that pass a filter, and one with its steps in lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from collab.errors import UnknownName
from collab.view import answer
from collab.view.finds import Worth, worths
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.shapes.episodes import EpisodeFilter, EpisodeKey, EpisodeRow, Episodes, EpisodeView, Facet, StepRow

_ROWS = """
SELECT trajectory, task, goal, difficulty, apps, epoch, episode, seed, state, success, score, reason,
    error, error_message, coalesce(present, 0), max_steps, seconds, agreement, entropy, coalesce(ties, 0),
    coalesce(unread, 0), privileged OR coalesce(taught, 0)
FROM episodes
LEFT JOIN (
    SELECT key, count(*) AS present, avg(agreement) AS agreement, avg(entropy) AS entropy, total(tie) AS ties,
        max(privileged) AS taught
    FROM steps {part} GROUP BY key
) USING (key)
LEFT JOIN (SELECT key, count(*) AS unread FROM cells WHERE action IS NULL {and_part} GROUP BY key) USING (key)
{where} ORDER BY epoch, task, episode, trajectory
"""
_KEY = "key = (SELECT key FROM episodes WHERE trajectory = ?1)"
_ALL = _ROWS.format(part="", and_part="", where="")
_ONE = _ROWS.format(part=f"WHERE {_KEY}", and_part=f"AND {_KEY}", where="WHERE trajectory = ?1")

_NEIGHBOUR = """
SELECT trajectory FROM episodes WHERE (epoch, task, episode, trajectory) {side}
    (SELECT epoch, task, episode, trajectory FROM episodes WHERE trajectory = ?1)
ORDER BY epoch {way}, task {way}, episode {way}, trajectory {way} LIMIT 1
"""

_STEPS = """
SELECT step, title, words, effect, no_action, agreement, entropy, tie,
    (SELECT count(*) FROM cells WHERE cells.key = steps.key AND cells.step = steps.step AND cells.action IS NULL)
FROM steps JOIN episodes USING (key) WHERE trajectory = ? ORDER BY step
"""

_OUTCOMES: dict[str, Callable[[EpisodeRow], bool]] = {
    "solved": lambda one: one.success is True,
    "failed": lambda one: one.success is False,
    "broken": lambda one: one.state == "failed",
    "unfinished": lambda one: one.state == "unfinished",
}


def rows_of(root: Root, run: Opened) -> list[EpisodeRow]:
    """All episodes of a run, by epoch, task and number; those of a part are of the epoch of its training."""
    rows = run.kept("episodes", lambda: [_row(root.id, row) for row in run.reader.query(_ALL)])
    return rows if root.training is None else [replace(row, epoch=root.epoch) for row in rows]


def row_of(root: Root, run: Opened, episode: str) -> EpisodeRow:
    """One of them; UnknownName when the run has no such episode."""
    found = run.reader.query(_ONE, episode)
    if not found:
        raise UnknownName(f"{root.path}: no episode {episode[:80]!r}")
    row = _row(root.id, found[0])
    return row if root.training is None else replace(row, epoch=root.epoch)


def page(rows: Sequence[EpisodeRow], wanted: EpisodeFilter) -> Episodes:
    """The episodes that pass, in order, and what all could be filtered by."""
    passing = _ordered([one for one in rows if _passes(one, wanted)], wanted.sort, descending=wanted.descending)
    limit = max(1, min(wanted.limit, 1000))
    return Episodes(
        total=len(passing),
        offset=wanted.offset,
        rows=passing[max(0, wanted.offset) :][:limit],
        tasks=_facets(one.task for one in rows),
        apps=_facets(app for one in rows for app in one.apps),
        difficulties=_facets(one.difficulty for one in rows),
        errors=_facets(one.error for one in rows),
        epochs=sorted(_facets(str(one.epoch) for one in rows), key=lambda facet: int(facet.value)),
    )


def episode_view(root: Root, run: Opened, episode: str, labels: str | None) -> EpisodeView:
    """An episode with its steps.

    Args:
        labels: whose scores to show; None for none.
    """
    row = row_of(root, run, episode)
    before, behind = (_neighbour(run, episode, *way) for way in (("<", "DESC"), (">", "ASC")))
    head = run.reader.head(episode)
    steps = step_rows(run, episode, labels)
    return EpisodeView(
        row=row,
        goal=answer.text(head.task.goal),
        params=answer.text(json.dumps(head.task.params, ensure_ascii=False, indent=1, default=str)),
        labels=labels,
        steps=steps,
        missing=_missing(run, episode, [one.step for one in steps]),
        final=head.final is not None,
        previous=None if before is None else EpisodeKey(run=root.id, episode=before),
        next=None if behind is None else EpisodeKey(run=root.id, episode=behind),
    )


def step_rows(run: Opened, episode: str, labels: str | None) -> list[StepRow]:
    """The steps of an episode in one line each; `labels` as in `episode_view`."""
    judged = {} if labels is None else {one.step: one for one in worths(run, labels, episode)}
    pairs = run.beside.last_pairs(episode)
    return [
        _step(row, judged.get(row[0]), 0 if pairs is None else pairs.count(episode, row[0]))
        for row in run.reader.query(_STEPS, episode)
    ]


# ------------------------------------------------------------------------------------------------------ inside


def _row(run: str, row: tuple[Any, ...]) -> EpisodeRow:
    (id, task, goal, difficulty, apps, epoch, episode, seed, state, success, score, reason), rest = row[:12], row[12:]
    error, message, steps, max_steps, seconds, agreement, entropy, ties, failures, privileged = rest
    finished = state == "finished"
    return EpisodeRow(
        run=run,
        id=id,
        task=task,
        goal=goal,
        difficulty=difficulty,
        apps=[app for app in apps.split(", ") if app],
        epoch=epoch,
        episode=episode,
        seed=seed,
        state=state,
        success=bool(success) if finished else None,
        score=score if finished else None,
        reason=reason if finished else None,
        error=error if state == "failed" else None,
        error_message=answer.short(message or "") if state == "failed" else None,
        steps=steps,
        max_steps=int(max_steps),
        seconds=seconds,
        agreement=agreement,
        entropy=entropy,
        ties=int(ties),
        failures=failures,
        privileged=bool(privileged),
    )


def _step(row: tuple[Any, ...], worth: Worth | None, pairs: int) -> StepRow:
    step, title, action, effect, no_action, agreement, entropy, tie, failures = row
    return StepRow(
        step=step,
        title=title,
        action=action or "",
        effect=effect or "",
        no_action=bool(no_action),
        agreement=agreement,
        entropy=entropy,
        tie=bool(tie),
        failures=failures,
        score=worth.score if worth else None,
        overruled=worth is not None and worth.overruled,
        pairs=pairs,
    )


def _neighbour(run: Opened, episode: str, side: str, way: str) -> str | None:
    """The episode before ("<", "DESC") or behind (">", "ASC") one, in the order of the run; None at its ends."""
    found = run.reader.query(_NEIGHBOUR.format(side=side, way=way), episode)
    return found[0][0] if found else None


def _missing(run: Opened, episode: str, present: Sequence[int]) -> list[int]:
    """Steps that were recorded and are not among those."""
    (recorded,) = run.reader.query("SELECT steps FROM episodes WHERE trajectory = ?", episode)[0]
    expected = recorded if recorded is not None else max(present, default=-1) + 1
    return sorted(set(range(expected)).difference(present))


def _passes(one: EpisodeRow, wanted: EpisodeFilter) -> bool:
    words = wanted.q.casefold()
    return (
        wanted.task in (None, "", one.task)
        and (not wanted.app or wanted.app in one.apps)
        and wanted.difficulty in (None, "", one.difficulty)
        and wanted.epoch in (None, one.epoch)
        and wanted.error in (None, "", one.error)
        and (wanted.outcome is None or _OUTCOMES[wanted.outcome](one))
        and (wanted.min_steps is None or one.steps >= wanted.min_steps)
        and (wanted.max_steps is None or one.steps <= wanted.max_steps)
        and (wanted.max_agreement is None or (one.agreement is not None and one.agreement <= wanted.max_agreement))
        and (not words or words in one.id.casefold() or words in one.goal.casefold())
    )


def _ordered(rows: list[EpisodeRow], sort: str, *, descending: bool) -> list[EpisodeRow]:
    """By one value; what is not known comes last either way round."""
    if sort == "order":
        return rows[::-1] if descending else rows
    known = sorted((one for one in rows if getattr(one, sort) is not None), key=lambda one: getattr(one, sort))
    return [*(reversed(known) if descending else known), *(one for one in rows if getattr(one, sort) is None)]


def _facets(values: Iterable[str | None]) -> list[Facet]:
    counts = Counter(value for value in values if value is not None)
    return [Facet(value=value, episodes=count) for value, count in sorted(counts.items())]
