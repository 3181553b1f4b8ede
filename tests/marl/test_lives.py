"""Where processes are killed, and that they are."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from collab.errors import TrainingFailure
from collab.marl.lives import Trace, draw, in_full
from collab.marl.loop_state import Progress

CALLS = Counter({"store.writer.RunWriter.step": 6, "rollout.play": 1})
TRACE = Trace(
    {(0, ""): CALLS, (0, "evaluation"): CALLS, (1, "rollout"): CALLS, (1, "training"): Counter({"learn.loss": 3})}
)


def test_points_come_in_the_order_of_time_one_per_part_each_where_something_was() -> None:
    seeds = range(20)
    for points in (draw(TRACE, kills=2, seed=seed) for seed in seeds):
        parts = [(point.epoch, point.part) for point in points]
        assert parts == [part for part in TRACE.parts if part in parts]
        assert len(set(parts)) == 2
        assert all(1 <= one.call <= TRACE.parts[one.epoch, one.part][one.function] for one in points)
    assert len({tuple(draw(TRACE, kills=2, seed=seed)) for seed in seeds}) > 1
    assert draw(TRACE, kills=2, seed=5) == draw(TRACE, kills=2, seed=5)


def test_nothing_is_killed_before_it_began_and_no_part_twice() -> None:
    parts = [(point.epoch, point.part) for point in draw(TRACE, kills=99, seed=0)]
    assert parts == [(0, "evaluation"), (1, "rollout"), (1, "training")]


def test_what_comes_before_a_part_begins_belongs_to_the_one_before() -> None:
    """An epoch has its number before its first part has its name."""
    trace, progress = Trace(), Progress(epochs=1)
    trace.seen(None, "start")
    for epoch, part in ((0, "evaluation"), (1, "evaluation"), (1, "rollout")):
        progress.epoch, progress.part = epoch, part
        trace.seen(progress, "play")
    assert trace.parts == {(0, ""): {"start": 1}, (0, "evaluation"): {"play": 2}, (1, "rollout"): {"play": 1}}


def test_a_process_that_fails_leaves_its_last_line_and_the_parent_goes_on(tmp_path: Path) -> None:
    def fails() -> None:
        raise ValueError("no such team")

    in_full(lambda: None, tmp_path / "log.txt")
    with pytest.raises(TrainingFailure, match=r"ValueError: no such team; .*log\.txt"):
        in_full(fails, tmp_path / "log.txt")
    with pytest.raises(TrainingFailure):
        in_full(lambda: os.kill(os.getpid(), signal.SIGKILL), tmp_path / "log.txt")
