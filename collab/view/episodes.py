"""Episodes as rows, filters of them, one episode with its steps as rows, and comparisons.

Two runs are compared on equal instances, and two episodes of one instance step by step. Both find the step at which two
episodes part by one rule (`find_parting`): by digests of screens and actions, which the index holds.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from collab.errors import UnknownName
from collab.evaluation.comparison import bootstrap
from collab.evaluation.metrics import FEW, Rate
from collab.view import common
from collab.view.estimates import build_episode_estimates
from collab.view.readers import OpenRun
from collab.view.runs import ListedRun, build_rate
from collab.view.schema.episodes import (
    ComparisonView,
    DifferenceView,
    EpisodeFilter,
    EpisodeKey,
    EpisodePairView,
    EpisodeRow,
    EpisodesView,
    EpisodeView,
    FacetView,
    InstanceView,
    StepPairView,
    StepRow,
)
from collab.view.schema.runs import RateView, RunRow
from collab.view.search import StepWorth, list_step_worths

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
SELECT step, title, words, effect, no_action, copied, agreement, entropy, tie,
    (SELECT count(*) FROM cells WHERE cells.key = steps.key AND cells.step = steps.step AND cells.action IS NULL)
FROM steps JOIN episodes USING (key) WHERE trajectory = ? ORDER BY step
"""

_OUTCOMES: dict[str, Callable[[EpisodeRow], bool]] = {
    "solved": lambda one: one.success is True,
    "failed": lambda one: one.success is False,
    "broken": lambda one: one.state == "failed",
    "unfinished": lambda one: one.state == "unfinished",
}


def list_episode_rows(root: ListedRun, run: OpenRun) -> list[EpisodeRow]:
    """List all episodes of a run, by epoch, task and number; those of a part have the epoch of its training."""
    rows = run.get_cached("episodes", lambda: [_build_row(root.id, row) for row in run.reader.query(_ALL)])
    return rows if root.training is None else [replace(row, epoch=root.epoch) for row in rows]


def get_episode_row(root: ListedRun, run: OpenRun, episode: str) -> EpisodeRow:
    """Return an episode's row; UnknownName when the run has no such episode."""
    found = run.reader.query(_ONE, episode)
    if not found:
        raise UnknownName(f"{root.path}: no episode {episode[:80]!r}")
    row = _build_row(root.id, found[0])
    return row if root.training is None else replace(row, epoch=root.epoch)


def filter_episodes(rows: Sequence[EpisodeRow], wanted: EpisodeFilter) -> EpisodesView:
    """Return the episodes that pass a filter, in order, with the values of all filters."""
    passing = _order([one for one in rows if _is_wanted(one, wanted)], wanted.sort, descending=wanted.descending)
    # Bounded: a page asks for as many rows as it shows.
    limit = max(1, min(wanted.limit, 1000))
    return EpisodesView(
        total=len(passing),
        offset=wanted.offset,
        rows=passing[max(0, wanted.offset) :][:limit],
        # Filters offer what all episodes have, not only those that pass.
        tasks=_count_facets(one.task for one in rows),
        apps=_count_facets(app for one in rows for app in one.apps),
        difficulties=_count_facets(one.difficulty for one in rows),
        errors=_count_facets(one.error for one in rows),
        epochs=sorted(_count_facets(str(one.epoch) for one in rows), key=lambda facet: int(facet.value)),
    )


def build_episode_view(root: ListedRun, run: OpenRun, episode: str, labels: str | None) -> EpisodeView:
    """Build the view of an episode with its steps.

    Args:
        labels: whose scores to show; None for none.
    """
    row = get_episode_row(root, run, episode)
    before, behind = (_find_neighbour(run, episode, *way) for way in (("<", "DESC"), (">", "ASC")))
    head = run.reader.read_head(episode)
    # Neighbours follow the run's order, not the list's sorting.
    steps = step_rows(run, episode, labels)
    estimates, unestimated = build_episode_estimates(root.path, episode)
    return EpisodeView(
        row=row,
        goal=common.to_text(head.task.goal),
        params=common.to_text(json.dumps(head.task.params, ensure_ascii=False, indent=1, default=str)),
        labels=labels,
        steps=steps,
        missing=_list_missing_steps(run, episode, [one.step for one in steps]),
        final=head.final is not None,
        estimates=estimates,
        unestimated=unestimated,
        previous=None if before is None else EpisodeKey(run=root.id, episode=before),
        next=None if behind is None else EpisodeKey(run=root.id, episode=behind),
    )


def step_rows(run: OpenRun, episode: str, labels: str | None) -> list[StepRow]:
    """Build the rows of an episode's steps; `labels` as in `build_episode_view`."""
    judged = {} if labels is None else {one.step: one for one in list_step_worths(run, labels, episode)}
    pairs = run.beside.read_last_pairs(episode)
    return [
        _step(row, judged.get(row[0]), 0 if pairs is None else pairs.count(episode, row[0]))
        for row in run.reader.query(_STEPS, episode)
    ]


# ------------------------------------------------------------------------------------------------------ inside


def _build_row(run: str, row: tuple[Any, ...]) -> EpisodeRow:
    # In the order of the query's columns.
    (id, task, goal, difficulty, apps, epoch, episode, seed, state, success, score, reason), rest = row[:12], row[12:]
    error, message, steps, max_steps, seconds, agreement, entropy, ties, failures, privileged = rest
    # The state decides which of the fields below mean something.
    finished = state == "finished"
    return EpisodeRow(
        run=run,
        id=id,
        task=task,
        goal=goal,
        # The index joins apps with commas; a list is what pages and filters take.
        difficulty=difficulty,
        apps=[app for app in apps.split(", ") if app],
        epoch=epoch,
        episode=episode,
        seed=seed,
        state=state,
        # Only a finished episode has an outcome.
        success=bool(success) if finished else None,
        score=score if finished else None,
        reason=reason if finished else None,
        error=error if state == "failed" else None,
        error_message=common.shorten(message or "") if state == "failed" else None,
        steps=steps,
        max_steps=int(max_steps),
        seconds=seconds,
        agreement=agreement,
        entropy=entropy,
        ties=int(ties),
        failures=failures,
        privileged=bool(privileged),
    )


def _step(row: tuple[Any, ...], worth: StepWorth | None, pairs: int) -> StepRow:
    step, title, action, effect, no_action, copied, agreement, entropy, tie, failures = row
    return StepRow(
        step=step,
        title=title,
        action=action or "",
        effect=effect or "",
        no_action=bool(no_action),
        copied=bool(copied),
        agreement=agreement,
        entropy=entropy,
        tie=bool(tie),
        failures=failures,
        score=worth.score if worth else None,
        overruled=worth is not None and worth.overruled,
        pairs=pairs,
    )


def _find_neighbour(run: OpenRun, episode: str, side: str, way: str) -> str | None:
    """Return the episode before ("<", "DESC") or behind (">", "ASC") one, in the order of the run; None at its ends."""
    found = run.reader.query(_NEIGHBOUR.format(side=side, way=way), episode)
    return found[0][0] if found else None


def _list_missing_steps(run: OpenRun, episode: str, present: Sequence[int]) -> list[int]:
    """List recorded steps that are missing among those given."""
    (recorded,) = run.reader.query("SELECT steps FROM episodes WHERE trajectory = ?", episode)[0]
    expected = recorded if recorded is not None else max(present, default=-1) + 1
    return sorted(set(range(expected)).difference(present))


def _is_wanted(one: EpisodeRow, wanted: EpisodeFilter) -> bool:
    words = wanted.q.casefold()
    # What is not asked for passes; every filter narrows.
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


def _order(rows: list[EpisodeRow], sort: str, *, descending: bool) -> list[EpisodeRow]:
    """Sort by one value; unknown values come last in both directions."""
    if sort == "order":
        return rows[::-1] if descending else rows
    known = sorted((one for one in rows if getattr(one, sort) is not None), key=lambda one: getattr(one, sort))
    return [*(reversed(known) if descending else known), *(one for one in rows if getattr(one, sort) is None)]


def _count_facets(values: Iterable[str | None]) -> list[FacetView]:
    counts = Counter(value for value in values if value is not None)
    return [FacetView(value=value, episodes=count) for value, count in sorted(counts.items())]


ActionTrace: TypeAlias = Mapping[int, tuple[str, str | None]]
"""Digests of screen and executed action of an episode, by step; None without an action."""
Why: TypeAlias = Literal["screen", "action", "length"]
EpisodeId: TypeAlias = tuple[str, str, str]
"""Task, seed and goal of an instance."""


_TRACES = "SELECT trajectory, step, seen, done FROM steps JOIN episodes USING (key)"


def read_traces(run: OpenRun) -> Mapping[str, ActionTrace]:
    """Read the traces of all episodes of a run."""
    return run.get_cached("traces", lambda: _read(run, _TRACES))


def compare_runs(
    a: tuple[RunRow, Sequence[EpisodeRow], Mapping[tuple[str, str], ActionTrace]],
    b: tuple[RunRow, Sequence[EpisodeRow], Mapping[tuple[str, str], ActionTrace]],
) -> ComparisonView:
    """Compare episodes of equal task, seed and goal; of several in one run, the last.

    Args:
        a, b: the run, its episodes, and their traces by (run, episode).
    """
    # By task, seed and goal: the same instance in both runs.
    first, second = ({_build_episode_id(one): one for one in rows} for _, rows, _ in (a, b))
    both = [
        InstanceView(task=one.task, seed=one.seed, a=one, b=other, diverged=_find_divergence(a[2], b[2], one, other))
        for key, one in first.items()
        if (other := second.get(key)) is not None
    ]
    # Only episodes that are over on both sides count in the comparison.
    over = [one for one in both if "unfinished" not in (one.a.state, one.b.state)]
    return ComparisonView(
        a=a[0],
        b=b[0],
        both=both,
        only_a=[one for key, one in first.items() if key not in second],
        only_b=[one for key, one in second.items() if key not in first],
        success_a=_compute_rate([one.a for one in over]),
        success_b=_compute_rate([one.b for one in over]),
        difference=_compute_difference(over) if over else None,
        sampled_alike=a[0].sampling == b[0].sampling,
    )


def pair_episodes(
    a: tuple[ListedRun, OpenRun, str, str | None], b: tuple[ListedRun, OpenRun, str, str | None]
) -> EpisodePairView:
    """Compare two episodes step by step.

    Args:
        a, b: the run, its id, the episode, and the label set whose scores to show.
    """
    rows = [{one.step: one for one in step_rows(run, id, labels)} for _, run, id, labels in (a, b)]
    first, second = (_read(run, f"{_TRACES} WHERE trajectory = ?", id).get(id, {}) for _, run, id, _ in (a, b))
    parted = find_parting(first, second)
    return EpisodePairView(
        a=get_episode_row(*a[:3]),
        b=get_episode_row(*b[:3]),
        steps=[_pair(number, first, second, rows[0], rows[1]) for number in sorted({*first, *second})],
        diverged=parted and parted[0],
        why=parted and parted[1],
    )


def find_parting(a: ActionTrace, b: ActionTrace) -> tuple[int, Why] | None:
    """Return the first step at which two episodes differ, and how; None where they are alike.

    A step that one of them lost is skipped.
    """
    for step in sorted({*a, *b}):
        one, other = a.get(step), b.get(step)
        if one is None or other is None:
            if step > max(a if one is None else b, default=-1):
                return step, "length"
        elif one != other:
            return step, "action" if one[0] == other[0] else "screen"
    return None


# ------------------------------------------------------------------------------------------------------ inside


def _read(run: OpenRun, sql: str, *values: str) -> dict[str, ActionTrace]:
    found: defaultdict[str, dict[int, tuple[str, str | None]]] = defaultdict(dict)
    for episode, step, seen, done in run.reader.query(sql, *values):
        found[episode][step] = (seen, done)
    return dict(found)


def _build_episode_id(one: EpisodeRow) -> EpisodeId:
    return one.task, one.seed, one.goal


def _find_divergence(
    of_a: Mapping[tuple[str, str], ActionTrace],
    of_b: Mapping[tuple[str, str], ActionTrace],
    a: EpisodeRow,
    b: EpisodeRow,
) -> int | None:
    parted = find_parting(of_a.get((a.run, a.id), {}), of_b.get((b.run, b.id), {}))
    return parted and parted[0]


def _compute_difference(over: Sequence[InstanceView]) -> DifferenceView:
    """Return the paired difference over instances that are over in both; at least one."""
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for one in over:
        by_task[one.task].append((one.b.success is True) - (one.a.success is True))
    gains = [gain for those in by_task.values() for gain in those]
    # With few instances an interval would claim too much.
    interval = bootstrap(list(by_task.values())) if len(gains) >= FEW else None
    return DifferenceView(
        instances=len(gains),
        won=gains.count(1),
        lost=gains.count(-1),
        value=sum(gains) / len(gains),
        low=interval and interval[0],
        high=interval and interval[1],
    )


def _compute_rate(episodes: Sequence[EpisodeRow]) -> RateView:
    return build_rate(Rate(successes=sum(one.success is True for one in episodes), episodes=len(episodes)))


def _pair(
    number: int, first: ActionTrace, second: ActionTrace, rows_a: Mapping[int, StepRow], rows_b: Mapping[int, StepRow]
) -> StepPairView:
    one, other = first.get(number), second.get(number)
    return StepPairView(
        step=number,
        a=rows_a.get(number),
        b=rows_b.get(number),
        same_screen=one[0] == other[0] if one and other else None,
        same_action=one[1] == other[1] if one and other else None,
    )
