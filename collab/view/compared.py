"""Two runs on equal instances, and two episodes of one instance step by step.

Both tell where two episodes part by one rule (`parting`): by digests of what was seen and done, which the index knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from collab.comparison import bootstrap
from collab.evaluation import FEW
from collab.evaluation import Rate as Counted
from collab.view.episodes import row_of, step_rows
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.runs import rate
from collab.view.shapes.common import Rate
from collab.view.shapes.compared import Comparison, Difference, EpisodePair, Instance, StepPair
from collab.view.shapes.episodes import EpisodeRow, StepRow
from collab.view.shapes.runs import RunRow

Trace: TypeAlias = Mapping[int, tuple[str, str | None]]
"""Of an episode, by step: digests of the screen and of what was executed; None where nothing was."""
Why: TypeAlias = Literal["screen", "action", "length"]
Key: TypeAlias = tuple[str, str, str]
"""Of an instance: task, seed and goal."""


_TRACES = "SELECT trajectory, step, seen, done FROM steps JOIN episodes USING (key)"


def traces_of(run: Opened) -> Mapping[str, Trace]:
    """Of all episodes of a run."""
    return run.kept("traces", lambda: _read(run, _TRACES))


def comparison(
    a: tuple[RunRow, Sequence[EpisodeRow], Mapping[tuple[str, str], Trace]],
    b: tuple[RunRow, Sequence[EpisodeRow], Mapping[tuple[str, str], Trace]],
) -> Comparison:
    """Episodes of equal task, seed and goal beside each other; of several in one run, the last.

    Args:
        a, b: the run, its episodes, and their traces by (run, episode).
    """
    first, second = ({_key(one): one for one in rows} for _, rows, _ in (a, b))
    both = [
        Instance(task=one.task, seed=one.seed, a=one, b=other, diverged=_diverged(a[2], b[2], one, other))
        for key, one in first.items()
        if (other := second.get(key)) is not None
    ]
    over = [one for one in both if "unfinished" not in (one.a.state, one.b.state)]
    return Comparison(
        a=a[0],
        b=b[0],
        both=both,
        only_a=[one for key, one in first.items() if key not in second],
        only_b=[one for key, one in second.items() if key not in first],
        success_a=_rate([one.a for one in over]),
        success_b=_rate([one.b for one in over]),
        difference=_difference(over) if over else None,
        sampled_alike=a[0].sampling == b[0].sampling,
    )


def episode_pair(a: tuple[Root, Opened, str, str | None], b: tuple[Root, Opened, str, str | None]) -> EpisodePair:
    """Two episodes step by step.

    Args:
        a, b: the run, its id, the episode, and the labelling whose scores to show.
    """
    rows = [{one.step: one for one in step_rows(run, id, labels)} for _, run, id, labels in (a, b)]
    first, second = (_read(run, f"{_TRACES} WHERE trajectory = ?", id).get(id, {}) for _, run, id, _ in (a, b))
    parted = parting(first, second)
    return EpisodePair(
        a=row_of(*a[:3]),
        b=row_of(*b[:3]),
        steps=[_pair(number, first, second, rows[0], rows[1]) for number in sorted({*first, *second})],
        diverged=parted and parted[0],
        why=parted and parted[1],
    )


def parting(a: Trace, b: Trace) -> tuple[int, Why] | None:
    """The first step at which two episodes differ, and in what; None where they are alike.

    A step that one of them lost is passed over: nobody knows whether it was alike.
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


def _read(run: Opened, sql: str, *values: str) -> dict[str, Trace]:
    found: defaultdict[str, dict[int, tuple[str, str | None]]] = defaultdict(dict)
    for episode, step, seen, done in run.reader.query(sql, *values):
        found[episode][step] = (seen, done)
    return dict(found)


def _key(one: EpisodeRow) -> Key:
    return one.task, one.seed, one.goal


def _diverged(
    of_a: Mapping[tuple[str, str], Trace], of_b: Mapping[tuple[str, str], Trace], a: EpisodeRow, b: EpisodeRow
) -> int | None:
    parted = parting(of_a.get((a.run, a.id), {}), of_b.get((b.run, b.id), {}))
    return parted and parted[0]


def _difference(over: Sequence[Instance]) -> Difference:
    """Return the paired difference over instances that are over in both; at least one."""
    by_task: defaultdict[str, list[float]] = defaultdict(list)
    for one in over:
        by_task[one.task].append((one.b.success is True) - (one.a.success is True))
    gains = [gain for those in by_task.values() for gain in those]
    interval = bootstrap(list(by_task.values())) if len(gains) >= FEW else None
    return Difference(
        instances=len(gains),
        won=gains.count(1),
        lost=gains.count(-1),
        value=sum(gains) / len(gains),
        low=interval and interval[0],
        high=interval and interval[1],
    )


def _rate(episodes: Sequence[EpisodeRow]) -> Rate:
    return rate(Counted(successes=sum(one.success is True for one in episodes), episodes=len(episodes)))


def _pair(
    number: int, first: Trace, second: Trace, rows_a: Mapping[int, StepRow], rows_b: Mapping[int, StepRow]
) -> StepPair:
    one, other = first.get(number), second.get(number)
    return StepPair(
        step=number,
        a=rows_a.get(number),
        b=rows_b.get(number),
        same_screen=one[0] == other[0] if one and other else None,
        same_action=one[1] == other[1] if one and other else None,
    )
