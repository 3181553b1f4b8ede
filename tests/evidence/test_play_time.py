"""How long environments were at work while episodes were played side by side, by the clock on the wall."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.evidence.gather import Interval, PlayTime, _split_playing, measure_play, measure_union
from collab.store.events import EpisodeFinished, EpisodeResumed, EpisodeStarted, Note, Record, StepRecorded
from collab.store.manifest import Manifest
from collab.store.run import RunStore
from collab.types import ActionMatrix, HistoryEntry, Observation, Outcome, Step, Task, Vote

INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda one: (one[0], one[0] + one[1])))


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0),
        ([(1, 3)], 2),
        ([(1, 3), (2, 5)], 4),
        ([(1, 10), (2, 3), (4, 5)], 9),
        ([(6, 8), (1, 3), (3, 4)], 5),
        ([(1, 3), (1, 3)], 2),
        ([(5, 2), (3, 4)], 1),
    ],
    ids=["none", "one", "overlapping", "within", "apart and touching", "twice", "ending before it begins"],
)
def test_what_overlaps_counts_once(intervals: Sequence[Interval], seconds: float) -> None:
    assert measure_union(intervals) == seconds


@given(INTERVALS)
def test_a_union_is_no_longer_than_the_sum_and_no_shorter_than_the_longest(intervals: list[Interval]) -> None:
    lengths = [end - begin for begin, end in intervals]
    seconds = {second for begin, end in intervals for second in range(int(begin), int(end))}
    assert max(lengths, default=0) <= measure_union(intervals) <= sum(lengths)
    assert measure_union(intervals) == len(seconds)


# ---------------------------------------------------------------------------------------------------------- a log


def step(index: int, *, speaking: float, acting: float, screenshot: str | None = None) -> Step:
    screen = Observation(space="web", title="Page", elements=(), text="", screenshot=screenshot)
    return Step(
        index=index,
        observation=screen,
        matrix=ActionMatrix(agents=(), rounds=1, edges=(), utterances=()),
        vote=Vote(action=None, representative=None, ballots=(), abstained=(), entropy=0.0, tie=False),
        executed=None,
        no_action=True,
        history=HistoryEntry(action="no action", reason="", effect=""),
        terminated=False,
        truncated=False,
        deliberation_s=speaking,
        environment_s=acting,
    )


def begun(episode: str) -> EpisodeStarted:
    return EpisodeStarted(trajectory=episode, attempt=0, episode=0, epoch=0, task=TASK, environment_version="1", **FAKE)


def acted(episode: str, index: int, **told: Any) -> StepRecorded:
    return StepRecorded(trajectory=episode, attempt=0, step=step(index, **told))


def ended(episode: str, seconds: float, steps: int) -> EpisodeFinished:
    won = Outcome(success=True, score=1.0, reason="")
    return EpisodeFinished(
        trajectory=episode, attempt=0, outcome=won, error=None, final=None, steps=steps, seconds=seconds
    )


FAKE: Any = {"environment": "fake"}
TASK = Task(environment="fake", name="Task", seed=7, goal="Press it.")


def log(*events: tuple[float, Any], writer: str = "0001-a") -> list[Record]:
    """Events and the second of the minute at which they were written."""
    return [
        Record(type=type(event).__name__, seq=seq, writer=writer, event=event, time=f"2030-01-01T00:00:{second:06.3f}Z")
        for seq, (second, event) in enumerate(events)
    ]


def test_environments_at_work_are_counted_by_the_clock_on_the_wall() -> None:
    """By hand: a resets from 10 to 12 and acts from 15 to 18; b resets from 11 to 14 and acts from 17 to 19.

    At least one is at work from 10 to 14 and from 15 to 19: 8 seconds, though 10 are spent. Both are over at 20.
    """
    records = log(
        (5, Note(text="before all")),
        (12, begun("a")),
        (14, begun("b")),
        (18, acted("a", 0, speaking=3, acting=3)),
        (19, acted("b", 0, speaking=3, acting=2)),
        (19.5, ended("a", seconds=9.5, steps=1)),
        (20, ended("b", seconds=9, steps=1)),
        (30, Note(text="behind all")),
    )
    assert measure_play(records) == PlayTime(whole=10, environment=8)
    assert measure_play(log((5, Note(text="nothing else")))) == PlayTime()


def test_a_picture_is_work_and_waiting_for_agents_is_not() -> None:
    """Reset until 2; from 2 to 3 a picture, until 6 agents, until 7 an action; then no picture, so waiting."""
    records = log(
        (2, begun("a")),
        (7, acted("a", 0, speaking=3, acting=1, screenshot="f" * 64)),
        (12, acted("a", 1, speaking=3, acting=1)),
        (12, ended("a", seconds=11, steps=2)),
    )
    assert measure_play(records) == PlayTime(whole=11, environment=1 + 1 + 1 + 1)


def test_what_a_second_process_plays_again_is_work_of_its_own() -> None:
    """The first one is cut off: its reset is not recorded. The second resets and replays from 30 to 34."""
    first = log((10, begun("a")), (14, acted("a", 0, speaking=3, acting=1)))
    second = log(
        (34, EpisodeResumed(trajectory="a", attempt=0, step=1)),
        (39, acted("a", 1, speaking=3, acting=2)),
        (40, ended("a", seconds=10, steps=2)),
        writer="0002-b",
    )
    assert measure_play([*first, *second]) == PlayTime(whole=4 + 10, environment=1 + 4 + 2)


def test_an_episode_whose_reset_broke_was_nothing_but_reset() -> None:
    assert measure_play(log((9, begun("a")), (9, ended("a", seconds=5, steps=0)))) == PlayTime(whole=5, environment=5)


def test_runs_that_are_played_side_by_side_count_once() -> None:
    """One from 1 to 12, one from 8 to 20: nineteen seconds in all, and in twelve somebody resets or acts."""
    one = log((2, begun("a")), (10, acted("a", 0, speaking=3, acting=5)), (12, ended("a", seconds=11, steps=1)))
    two = log((14, begun("a")), (20, acted("a", 0, speaking=3, acting=2)), (20, ended("a", seconds=12, steps=1)))
    assert measure_play(one, two) == PlayTime(whole=19, environment=1 + (14 - 5) + 2)


def test_runs_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are written and read: an hour without play lies between two runs."""
    clock = itertools.count()
    monkeypatch.setattr(Record, "__init__", _timed(Record.__init__, clock))
    for name in ("one", "two"):
        manifest = Manifest(command="eval", config={}, seed=3, planned=1)
        with RunStore.create(tmp_path / name, manifest).open_writer() as writer:  # second 0
            writer.begin_episode("Task/0", TASK, episode=0, epoch=0, environment_version="1", **FAKE)
            writer.step("Task/0", step(0, speaking=0.25, acting=0.5))
            writer.end_episode("Task/0", outcome=Outcome(success=True, score=1.0, reason=""), seconds=2.5)
        next(clock)
    found = _split_playing([tmp_path / "one", tmp_path / "two"])
    assert [found["playing"], found["environment"]] == pytest.approx([2 * 2.5, 2 * (0.5 + 0.5)])
    assert _split_playing([]) == {"playing": 0, "environment": 0, "inference": 0}


def _timed(made: Any, clock: Any) -> Any:
    """Makes records a second apart; those that are read have a time."""

    def init(self: Any, **given: Any) -> None:
        if "time" not in given:
            given["time"] = f"2030-01-01T00:00:{next(clock):06.3f}Z"
        made(self, **given)

    return init
