"""Two runs on equal instances, and two episodes of one instance step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from collab.evaluation import Rate as Counted
from collab.types import Step
from collab.view.episodes import row_of, step_rows
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.runs import rate
from collab.view.shapes.common import Rate
from collab.view.shapes.compared import Comparison, EpisodePair, Instance, StepPair
from collab.view.shapes.episodes import EpisodeRow, StepRow
from collab.view.shapes.runs import RunRow

Trace: TypeAlias = Sequence[tuple[str, str | None]]
"""Of an episode, step by step: title of the screen, and the executed action in words of the log."""
Key: TypeAlias = tuple[str, str, str]
"""Of an instance: task, seed and goal."""


def traces_of(run: Opened) -> Mapping[str, Trace]:
    """Of all episodes of a run."""
    return run.kept("traces", lambda: _traces(run))


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
        only_a=len(first.keys() - second.keys()),
        only_b=len(second.keys() - first.keys()),
        success_a=_rate([one.a for one in over]),
        success_b=_rate([one.b for one in over]),
    )


def episode_pair(a: tuple[Root, Opened, str, str | None], b: tuple[Root, Opened, str, str | None]) -> EpisodePair:
    """Two episodes step by step, compared exactly: reads both from the log.

    Args:
        a, b: the run, its id, the episode, and the labelling whose scores to show.
    """
    rows = [{one.step: one for one in step_rows(run, id, labels)} for _, run, id, labels in (a, b)]
    played = [{one.index: one for one in run.reader.trajectory(id).steps} for _, run, id, _ in (a, b)]
    numbers = sorted({*rows[0], *rows[1]})
    steps = [
        _pair(number, (rows[0].get(number), rows[1].get(number)), (played[0].get(number), played[1].get(number)))
        for number in numbers
    ]
    first = next((one for one in steps if not (one.same_screen and one.same_action)), None)
    return EpisodePair(
        a=row_of(*a[:3]),
        b=row_of(*b[:3]),
        steps=steps,
        diverged=None if first is None else first.step,
        why=None if first is None else _why(first),
    )


# ------------------------------------------------------------------------------------------------------ inside


def _traces(run: Opened) -> dict[str, Trace]:
    found: dict[str, list[tuple[str, str | None]]] = {}
    rows = run.reader.query("SELECT trajectory, title, action FROM steps JOIN episodes USING (key) ORDER BY key, step")
    for episode, title, action in rows:
        found.setdefault(episode, []).append((title, action))
    return dict(found)


def _key(one: EpisodeRow) -> Key:
    return one.task, one.seed, one.goal


def _diverged(
    of_a: Mapping[tuple[str, str], Trace], of_b: Mapping[tuple[str, str], Trace], a: EpisodeRow, b: EpisodeRow
) -> int | None:
    first, second = of_a.get((a.run, a.id), ()), of_b.get((b.run, b.id), ())
    differing = (place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    shorter = min(len(first), len(second))
    return next(differing, None if len(first) == len(second) else shorter)


def _rate(episodes: Sequence[EpisodeRow]) -> Rate:
    return rate(Counted(successes=sum(one.success is True for one in episodes), episodes=len(episodes)))


def _pair(number: int, rows: tuple[StepRow | None, ...], steps: tuple[Step | None, Step | None]) -> StepPair:
    one, other = steps
    screen = action = None
    if one is not None and other is not None:
        screen, action = one.observation.digest == other.observation.digest, one.executed == other.executed
    return StepPair(step=number, a=rows[0], b=rows[1], same_screen=screen, same_action=action)


def _why(first: StepPair) -> Literal["screen", "action", "length"]:
    if first.same_screen is None:
        return "length"
    return "action" if first.same_screen else "screen"
