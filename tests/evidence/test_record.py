"""Files of finished units: read as they were written, and refused where they do not belong together."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.errors import RunFormatError, StoreFailure, UsageError
from collab.evidence.gather import describe_machine
from collab.evidence.plan import read_plan
from collab.evidence.record import LARGEST, UnitRecord, check_base, file_of, hide_places, read, read_all, write
from collab.library import find_builtin_root
from collab.utils.machine import read_processor_model

MakeRecord = Callable[..., UnitRecord]
PLAN = read_plan(find_builtin_root() / "docs/results/plan.yaml")


def write_all(folder: Path, *made: UnitRecord) -> Path:
    """Write the files of units; return their folder."""
    for one in made:
        write(folder, one)
    return folder


def test_a_record_is_read_as_it_was_written_with_a_line_per_episode(tmp_path: Path, make_record: MakeRecord) -> None:
    played = make_record("full", 0, "new-seeds", "1101")
    trained = make_record("full", 0, "train", epochs=["10", "11"], critics=["oracle-2"])
    write_all(tmp_path, played, trained)
    assert read_all(tmp_path, PLAN) == {trained.unit: trained, played.unit: played}
    lines = file_of(tmp_path, played.unit).read_text().splitlines()
    assert sum("Task" in line for line in lines) == 4


def test_a_file_that_would_be_too_large_is_not_written(tmp_path: Path, make_record: MakeRecord) -> None:
    large = make_record("full", 0, "new-seeds", "1", config={"text": "x" * LARGEST})
    with pytest.raises(StoreFailure, match="play fewer episodes"):
        write(tmp_path, large)
    assert not file_of(tmp_path, large.unit).exists()


def test_units_of_two_checkpoints_are_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    other = make_record("untrained-single", None, "new-seeds", "1", base="other", policy="other")
    folder = write_all(tmp_path, make_record("untrained-team", None, "new-seeds", "1"), other)
    with pytest.raises(UsageError, match="results of different checkpoints are not set side by side"):
        read_all(folder, PLAN)


def test_units_of_another_checkpoint_than_the_present_one_are_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    made = make_record("untrained-team", None, "new-seeds", "1")
    known = {made.unit: made}
    check_base(known, tmp_path, "base")
    with pytest.raises(UsageError, match="began with weights base, the checkpoint is newer now"):
        check_base(known, tmp_path, "newer")


def test_an_evaluation_of_another_training_is_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    training = make_record("full", 0, "train", epochs=["1", "1"])
    write_all(tmp_path, training, make_record("full", 0, "new-seeds", "1"))
    assert len(read_all(tmp_path, PLAN)) == 2
    write_all(tmp_path, make_record("full", 0, "new-seeds", "1", policy="weights-9"))
    with pytest.raises(UsageError, match="weights weights-9 are of no epoch of full/seed-0/train"):
        read_all(tmp_path, PLAN)


def test_an_untrained_arm_played_the_base(tmp_path: Path, make_record: MakeRecord) -> None:
    write_all(tmp_path, make_record("untrained-team", None, "new-seeds", "1", policy="weights-1"))
    with pytest.raises(UsageError, match="not the base"):
        read_all(tmp_path, PLAN)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', "[]"])
def test_what_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "unit.json"
    path.write_text(text)
    with pytest.raises((RunFormatError, UsageError), match=r"unit\.json"):
        read(path)


def test_a_file_in_another_s_place_is_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    path = write(tmp_path, make_record("full", 0, "new-seeds", "1"))
    path.rename(path.with_name("train.json"))
    with pytest.raises(RunFormatError, match="says that it is full/seed-0/new-seeds"):
        read_all(tmp_path, PLAN)


def test_no_place_of_this_machine_is_told(tmp_path: Path) -> None:
    work = tmp_path / "0f8d"
    config: dict[str, Any] = {
        "path": str(work / "full/final"),
        "library": str(tmp_path / "elsewhere" / "library"),
        "agents": [{"path": "built-in:early"}, {"steps": 3}],
    }
    assert hide_places(config, work) == {
        "path": "runs/tables/0f8d/full/final",
        "library": "…/library",
        "agents": [{"path": "built-in:early"}, {"steps": 3}],
    }


def test_a_machine_is_told_by_its_processor_and_by_what_was_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel name\t: A Processor @ 2.20GHz\nprocessor\t: 1\nmodel name\t: B\n")
    assert read_processor_model(told) == "A Processor @ 2.20GHz"
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert read_processor_model(tmp_path / "nothing") is None
    for preloaded, names in ((" ", None), ("/a/b/fast.so", "fast.so"), ("fast.so:/c/d.so /e.so", "fast.so d.so e.so")):
        monkeypatch.setenv("LD_PRELOAD", preloaded)
        assert describe_machine()["preloaded"] == names
