"""Kill points of the kill-and-resume proof: where processes die, and that they do."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.errors import TrainingFailure
from collab.loop.state import TrainingProgress
from collab.testing import kill_resume
from collab.testing.kill_resume import BEGINS, LAST, KillPoint, Trace, draw, live, run_to_end

CALLS = Counter({"store.writer.RunWriter.step": 6, "rollout.play": 1})
EPOCH = ("rollout", "critic", "adversary", "examples", "training", "optimizer", "checkpoint", "evaluation")
TRACE = Trace(
    {part: CALLS for part in [(0, ""), (0, "evaluation"), *((epoch, one) for epoch in (1, 2) for one in EPOCH)]}
)
WORK = sorted({*EPOCH} - LAST)
SEEDS = range(20)


def drawn(kills: int, seed: int) -> list[tuple[int, str]]:
    return [(point.epoch, point.part) for point in draw(TRACE, kills=kills, seed=seed)]


def test_points_come_in_the_order_of_time_one_per_part_each_where_something_was() -> None:
    for seed in SEEDS:
        points = draw(TRACE, kills=6, seed=seed)
        parts = [(point.epoch, point.part) for point in points]
        assert parts == [part for part in TRACE.parts if part in parts]
        assert len(set(parts)) == 6
        assert all(1 <= one.call <= TRACE.parts[one.epoch, one.part][one.function] for one in points)
    assert len({tuple(draw(TRACE, kills=2, seed=seed)) for seed in SEEDS}) > 10
    assert draw(TRACE, kills=2, seed=5) == draw(TRACE, kills=2, seed=5)


def test_every_kind_of_work_is_killed_in_before_any_other_part() -> None:
    for seed in SEEDS:
        assert sorted(part for _, part in drawn(len(WORK), seed)) == WORK
    assert {part for seed in SEEDS for _, part in drawn(2, seed)} == set(WORK)


def test_a_training_is_killed_once_for_less_of_it_is_left_then() -> None:
    in_training = {"training", "optimizer", "checkpoint"}
    for kills in (2, 7, 99):
        for seed in SEEDS:
            epochs = [epoch for epoch, part in drawn(kills, seed) if part in in_training]
            assert len(epochs) == len(set(epochs))


def test_nothing_is_killed_before_it_began() -> None:
    parts = drawn(99, 0)
    assert (0, "") not in parts
    assert len(parts) == 1 + 2 * 6


def test_a_training_has_steps_and_checkpoints() -> None:
    """It tells one part, and is seen to be at its next step or writing."""
    trace, progress = Trace(), TrainingProgress(algorithm="collabuiagents", epochs=1, epoch=1, part="training")
    step, save = "trainers.dpo.ByPairs.get_batch_samples", "trainers.trainer.FixedOrder._save_checkpoint"
    for function in ("read", step, "loss", save, "write", step, "loss", save, "loop.finetuning._read_trained"):
        trace.count_call(progress, function)
    progress.part = "evaluation"
    trace.count_call(progress, save)
    assert trace.parts == {
        (1, "training"): {"read": 1, "loop.finetuning._read_trained": 1},
        (1, "optimizer"): {step: 2, "loss": 2},
        (1, "checkpoint"): {save: 2, "write": 1},
        (1, "evaluation"): {save: 1},
    }


@pytest.mark.parametrize("function", BEGINS)
def test_what_a_part_begins_with_is_a_function_of_this_package(function: str) -> None:
    """A name that no function has any more would leave its part unseen, and nothing would be killed there."""
    *folders, module, names = re.fullmatch(r"(\w+)\.(\w+)\.(.+)", function).groups()  # type: ignore[union-attr]
    file = Path(kill_resume.__file__).parents[1].joinpath(*folders, f"{module}.py")
    found: ast.AST = ast.parse(file.read_text())
    for name in names.split("."):
        found = next(one for one in ast.iter_child_nodes(found) if getattr(one, "name", None) == name)
    assert isinstance(found, ast.FunctionDef)


def test_a_life_with_fewer_calls_is_killed_where_the_part_is_over() -> None:
    point = KillPoint(epoch=1, part="optimizer", function="look", call=3)
    step, save = "trainers.dpo.ByPairs.get_batch_samples", "trainers.trainer.FixedOrder._save_checkpoint"

    def killed_at(functions: list[str]) -> int | None:
        """The first of these calls at which it dies; the last of them is in the evaluation."""
        trace, progress = Trace(), TrainingProgress(algorithm="collabuiagents", epochs=1, epoch=1, part="training")
        for number, function in enumerate(functions, start=1):
            progress.part = "evaluation" if number == len(functions) else "training"
            if trace.has_come_to(point, trace.count_call(progress, function)):
                return number
        return None

    assert killed_at(["look", "look", "look", step, "look", "look", "look", "look", "play"]) == 7
    assert killed_at(["read", step, "look", save, "look", "look", step, "look", "look", "play"]) == 9
    assert killed_at(["read", step, "look", "look", save, "look", "look", "play"]) == 8
    assert killed_at(["look", "look", "look", "play"]) is None, "it had no such part"


Calls = list[tuple[int, str, str]]
"""(epoch, part, function), in the order of time."""
READ = ("critic", "read")
JUDGED: Calls = [(1, "rollout", "play"), *((1, *READ) for _ in range(3)), (1, "rows", "read"), (1, "rows", "write")]


@pytest.mark.parametrize(
    ("calls", "planned", "died"),
    [
        (JUDGED, 2, (*READ, 2)),
        (JUDGED, 9, ("rows", "read", 1)),
        (JUDGED[:4], 9, None),
        (JUDGED[:1], 1, None),
    ],
)
def test_the_place_that_is_told_is_the_one_where_the_process_died(
    calls: Calls, planned: int, died: tuple[str, str, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life may make fewer calls than planned, or end before anything comes behind that part."""
    kept = tmp_path / "lived"

    def train(config: object, out: Path, seen: Callable[[TrainingProgress, str], object], threads: int) -> None:
        for epoch, part, function in calls:
            kept.write_text(f"{part} {function}")
            seen(TrainingProgress(algorithm="collabuiagents", epochs=1, epoch=epoch, part=part), function)
        kept.write_text("all of it")

    monkeypatch.setattr(kill_resume, "_train", train)
    log = tmp_path / "log.txt"
    log.with_suffix(".killed.json").write_text("{}")  # of a life before
    point = KillPoint(epoch=1, part="critic", function="read", call=planned)
    found = live(None, tmp_path / "out", log, point, threads=1)
    assert found == (died and KillPoint(epoch=1, part=died[0], function=died[1], call=died[2]))
    assert kept.read_text() == ("all of it" if died is None else f"{died[0]} {died[1]}")


def test_a_process_that_something_else_kills_is_no_kill_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_resume, "_train", lambda *asked: os.kill(os.getpid(), signal.SIGKILL))
    point = KillPoint(epoch=1, part="critic", function="read", call=1)
    (tmp_path / "log.txt").touch()
    with pytest.raises(TrainingFailure):
        live(None, tmp_path / "out", tmp_path / "log.txt", point, threads=1)


def test_what_comes_before_a_part_begins_belongs_to_the_one_before() -> None:
    """An epoch has its number before its first part has its name."""
    trace, progress = Trace(), TrainingProgress(algorithm="collabuiagents", epochs=1)
    trace.count_call(None, "start")
    for epoch, part in ((0, "evaluation"), (1, "evaluation"), (1, "rollout")):
        progress.epoch, progress.part = epoch, part
        trace.count_call(progress, "play")
    assert trace.parts == {(0, ""): {"start": 1}, (0, "evaluation"): {"play": 2}, (1, "rollout"): {"play": 1}}


@pytest.mark.slow
def test_a_signal_during_a_fork_is_not_lost(tmp_path: Path) -> None:
    """Python swallows what is raised in hooks of a fork."""
    code = """
import os, signal
from pathlib import Path
from collab.cli.progress import treat_sigterm_as_ctrl_c
from collab.testing.kill_resume import run_to_end

treat_sigterm_as_ctrl_c()
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    run_to_end(lambda: None, Path("log"))
except KeyboardInterrupt:
    print("heard")
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("alone")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["heard", "alone"], "")


def test_a_process_that_fails_leaves_its_last_line_and_the_parent_continues(tmp_path: Path) -> None:
    def fails() -> None:
        raise ValueError("no such team")

    run_to_end(lambda: None, tmp_path / "log.txt")
    with pytest.raises(TrainingFailure, match=r"ValueError: no such team; .*log\.txt"):
        run_to_end(fails, tmp_path / "log.txt")
    with pytest.raises(TrainingFailure):
        run_to_end(lambda: os.kill(os.getpid(), signal.SIGKILL), tmp_path / "log.txt")
