"""The proof that a killed training ends like an undisturbed one: it holds, and it would show where it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.marl.layout import MarlFolder
from collab.marl.lives import KINDS, Point
from collab.marl.verify import Compared, Proof, compared

POINT = Point(epoch=1, part="critic", function="store.writer.RunWriter.step", call=2)


def test_the_first_difference_in_time_is_named() -> None:
    parts = [Compared(epoch=1, part=part, undisturbed="a", killed="a") for part in ("rollout", "critic")]
    assert Proof(path=Path("x"), points=(POINT,), parts=tuple(parts)).same
    assert not Proof(path=Path("x"), points=(), parts=tuple(parts)).same
    others = [Compared(epoch=number, part="pairs", undisturbed="a", killed="b") for number in (1, 2)]
    proof = Proof(path=Path("x"), points=(POINT,), parts=(*parts, *others))
    assert proof.first_difference == others[0]
    assert not proof.same


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert main(["verify-resume", "--out", str(tmp_path)]) == 2
    assert "something is there already; name a new directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_killed_training_ends_like_an_undisturbed_one_and_a_changed_one_is_found(tmp_path: Path) -> None:
    out = tmp_path / "proof"
    asked = ("--quick", "--json", "--seed", "3", "--out", str(out))
    command = [sys.executable, "-m", "collab.cli.start", "verify-resume", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["same"]
    assert told["seed"] == 3
    assert (len(told["points"]), told["missed"]) == (2, [])
    steps = (out / "undisturbed/epochs/1/training/metrics.jsonl").read_text().splitlines()
    assert len(steps) >= 3
    lived = {part for _, part, _ in json.loads((out / "log.trace.json").read_text())}
    assert lived >= {part for parts in KINDS.values() for part in parts}
    assert [(part["epoch"], part["part"]) for part in told["parts"]] == [
        (0, "evaluation"),
        *((1, part) for part in ("rollout", "critic", "pairs", "rows", "weights", "evaluation")),
        (None, "run"),
    ]
    whole, killed = MarlFolder(out / "undisturbed"), MarlFolder(out / "killed")
    path = killed.epoch(1).record
    record = json.loads(path.read_text())
    record["trained"]["shared"]["digest"] = "0" * 64
    path.write_text(json.dumps(record))
    assert [(one.epoch, one.part) for one in compared(whole, killed) if not one.same] == [(1, "weights")]
