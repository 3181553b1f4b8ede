"""`verify-resume`: equal trainings are proven equal, and a difference is found."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from collab.cli.main import main
from collab.loop.loop import resume, start
from collab.loop.record import TrainingDir
from collab.testing import kill_resume as verifying
from collab.testing.kill_resume import Compared, KillPoint, Proof, compare_trainings
from collab.testing.toy_team import configure_toy_training, write_library
from collab.trainers.run_dir import FinetuneDir

KEPT = "dpo.lora={rank: 4, alpha: 8, merge: false}"
POINT = KillPoint(epoch=1, part="critic", function="store.writer.RunWriter.step", call=2)


def test_the_first_difference_in_time_is_named() -> None:
    parts = [Compared(epoch=1, part=part, undisturbed="a", killed="a") for part in ("rollout", "critic")]
    assert Proof(path=Path("x"), points=(POINT,), planned=(POINT,), parts=tuple(parts)).same
    assert not Proof(path=Path("x"), points=(), planned=(), parts=tuple(parts)).same
    others = [Compared(epoch=number, part="pairs", undisturbed="a", killed="b") for number in (1, 2)]
    proof = Proof(path=Path("x"), points=(POINT,), planned=(POINT,), parts=(*parts, *others))
    assert proof.first_difference == others[0]
    assert not proof.same


def test_a_kill_point_that_was_never_reached_proves_nothing() -> None:
    alike = (Compared(epoch=1, part="critic", undisturbed="a", killed="a"),)
    proof = Proof(
        path=Path("x"), points=(POINT,), planned=(POINT,), missed=(replace(POINT, part="examples"),), parts=alike
    )
    assert proof.first_difference is None
    assert not proof.same


def test_where_a_process_died_is_told_and_where_it_was_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three lives: one comes to its point, one dies behind the part, one comes to its end."""
    planned = [POINT, replace(POINT, part="examples", call=9), replace(POINT, epoch=2)]
    behind = replace(POINT, part="training", function="loop.finetuning.finetune", call=1)
    died = iter([POINT, behind, None, None])
    alike = (Compared(epoch=None, part="run", undisturbed="a", killed="a"),)
    method = SimpleNamespace(epochs=2)
    for name, made in {
        "_check": None,
        "_load": None,
        "_teach_team": SimpleNamespace(method=method),
        "train_undisturbed": None,
        "draw": planned,
        "compare_trainings": alike,
    }.items():
        monkeypatch.setattr(verifying, name, lambda *asked, made=made, **named: made)
    monkeypatch.setattr(verifying, "live", lambda *asked, **named: next(died))
    assert main(["verify-resume", "--seed", "1", "--out", str(tmp_path / "proof")]) == 1
    said = capsys.readouterr().out
    first, second = (" ".join(line.split()) for line in said.splitlines()[1:3])
    assert first.endswith("1 1 critic store.writer.RunWriter.step 2")
    assert second.endswith("2 1 training loop.finetuning.finetune 1")
    assert (
        "kill 2 was planned at call 9 of store.writer.RunWriter.step in epoch 1, examples, which that process did not "
        "come to" in said
    )
    assert "no process was killed at call 2 of store.writer.RunWriter.step in epoch 2, critic" in said
    assert said.count("planned") == 1


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert main(["verify-resume", "--out", str(tmp_path)]) == 2
    assert "something is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_setting_that_does_not_fit_is_told_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "proof"
    assert main(["verify-resume", "--set", "reference=other", "--out", str(out)]) == 2
    assert "reference" in capsys.readouterr().err
    assert not out.exists()


def test_trainings_whose_order_depends_on_time_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["verify-resume", "--algo", "distrl", "--set", "collection=async", "--set", "steps=24"]
    assert main([*asked, "--out", str(tmp_path / "out")]) == 2
    assert "which episodes arrive first depends on time, so no two trainings end alike; use" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_by_distrl_that_waits_is_proven_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["verify-resume", "--algo", "distrl", "--quick", "--seed", "1", "--json"]
    assert main([*asked, "--out", str(tmp_path / "proof")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["same"] is True
    assert len(told["points"]) == 2
    assert all(one["undisturbed"] == one["killed"] for one in told["parts"])


def test_what_is_refused_leaves_no_directory_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["verify-resume", "--set", "reference=other"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_proof_that_is_ended_leaves_no_directory_and_no_process_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "collab.__main__", "verify-resume", "--quick"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert process.stderr is not None
    assert any("teaching" in line for line in iter(process.stderr.readline, ""))
    while not list(tmp_path.glob("collab-verify-*/tiny")):  # the process that teaches is at work
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (1, "error: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert not list(tmp_path.glob("collab-verify-*"))


@pytest.mark.parametrize("determinism", ["exact", "fast"])
def test_a_training_continues_in_the_threads_that_it_began_in(determinism: str, tiny: Path, tmp_path: Path) -> None:
    library = write_library(tmp_path / "library", tiny)
    config = asyncio.run(configure_toy_training(library, f"determinism={determinism}"))
    stop, seen, told = asyncio.Event(), list[int](), list[str]()
    stop.set()

    def watch(progress: object) -> None:
        seen.append(torch.get_num_threads())

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        begun = asyncio.run(
            start(config, tmp_path / "run", options={"allow_uncalibrated": True}, device="cpu", stop=stop)
        )
        assert TrainingDir(begun.path).read()["threads"] == 2
        torch.set_num_threads(1)
        assert asyncio.run(resume(begun.path, note=told.append, watch=watch, stop=stop)).stopped == "stopped on request"
        assert (seen, len(told), torch.get_num_threads()) == ([2], 1, 1)
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_adapters_that_are_resumed_and_compared_with_survive_kills(tmp_path: Path) -> None:
    """Five kills are one in each kind of work: one of them in the training of the second epoch, which has both.

    Both trainings have two threads, and every resuming process starts with one.
    """
    out = tmp_path / "proof"
    settings = ("--set", KEPT, "--set", "reference=previous", "--set", "dpo.learning_rate=0.01")
    asked = ("--kills", "5", "--json", "--seed", "4", *settings, "--out", str(out))
    command = [sys.executable, "-m", "collab.__main__", "verify-resume", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["same"], len(told["points"])) == (True, 5)
    assert {(2, "optimizer"), (2, "checkpoint")} & {(one["epoch"], one["part"]) for one in told["points"]}
    for name in ("undisturbed", "killed"):
        assert TrainingDir(out / name).read()["threads"] == 2
        manifest = FinetuneDir(out / name / "epochs/2/training").read()
        assert manifest["adapter"] == manifest["reference_adapter"] is not None
    epochs = [json.loads((out / f"killed/epochs/{number}/epoch.json").read_text()) for number in (1, 2)]
    assert len({one["trained"]["shared"]["digest"] for one in epochs}) == 2, "there was something to lose"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_training_ends_like_an_undisturbed_one_and_a_changed_one_is_found(tmp_path: Path) -> None:
    out = tmp_path / "proof"
    asked = ("--quick", "--json", "--seed", "3", "--out", str(out))
    command = [sys.executable, "-m", "collab.__main__", "verify-resume", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["same"]
    assert told["seed"] == 3
    assert (len(told["points"]), told["missed"]) == (2, [])
    steps = (out / "undisturbed/epochs/1/training/metrics.jsonl").read_text().splitlines()
    assert len(steps) >= 3
    lived = {part for _, part, _ in json.loads((out / "log.trace.json").read_text())}
    assert lived >= {"rollout", "critic", "adversary", "examples", "optimizer", "checkpoint"}
    assert [(part["epoch"], part["part"]) for part in told["parts"]] == [
        (0, "evaluation"),
        *((1, part) for part in ("rollout", "critic", "pairs", "examples", "weights", "evaluation")),
        (None, "run"),
    ]
    whole, killed = TrainingDir(out / "undisturbed"), TrainingDir(out / "killed")
    path = killed.get_epoch(1).record
    record = json.loads(path.read_text())
    record["hashes"]["weights"] = "0" * 64
    path.write_text(json.dumps(record))
    assert [(one.epoch, one.part) for one in compare_trainings(whole, killed) if not one.same] == [(1, "weights")]
