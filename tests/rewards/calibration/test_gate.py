"""Who is let through: by the last finished calibration of this very critic."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from collab.errors import ConfigError, RunFormatError
from collab.rewards.calibration.metrics import (
    Calibration,
    KnownStep,
    compute_accuracy,
    compute_auc,
    compute_ece,
    compute_reliability,
)
from collab.rewards.calibration.record import (
    CalibrationDir,
    CalibrationRecord,
    admit,
    find_last_calibration,
    format_calibrate_command,
    format_calibration,
)
from collab.rewards.calibration.run import draw_reliability

KNOWN = [KnownStep(score=score, good=score > 0.55) for score in (0.05, 0.15, 0.55, 0.62, 0.65, 0.95, 1.0)]
PICTURE = compute_reliability(KNOWN)
NUMBERS = Calibration(
    critic="llm-1",
    cases=3,
    cells=9,
    missing={"the critic gave no score": 2},
    mean_scores={"good": 0.8, "bad": 0.2},
    accuracy=compute_accuracy(KNOWN),
    auc=compute_auc(KNOWN),
    picture=PICTURE,
    ece=compute_ece(PICTURE),
    retest=None,
    position_effects={0: 0.1, 1: -0.1},
    position_bias=0.2,
    length_bias=None,
)
RECORD = CalibrationRecord(
    critic="critic-llm",
    label="llm-1",
    digest="5e" * 32,
    config={},
    environment="androidworld[simphone] <&>",
    environment_version="2",
    created="2026-01-01T00:00:00.000Z",
    numbers=NUMBERS,
)


def keep(folder: Path, name: str, record: CalibrationRecord) -> None:
    (folder / name).mkdir(parents=True)
    CalibrationDir(folder / name).write(record)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert any(column.good is None for column in PICTURE)
    CalibrationDir(tmp_path).write(RECORD)
    assert CalibrationDir(tmp_path).read_record() == RECORD


def test_the_last_finished_one_of_this_critic_counts(tmp_path: Path) -> None:
    assert find_last_calibration(tmp_path / "nowhere", RECORD.digest) is None
    newer = replace(RECORD, created="2026-01-02T00:00:00.000Z")
    keep(tmp_path, "a-newer", newer)
    keep(tmp_path, "b-older", RECORD)
    keep(tmp_path, "c-unfinished", replace(RECORD, created="2026-01-03T00:00:00.000Z", numbers=None))
    keep(tmp_path, "d-of-another", replace(RECORD, created="2026-01-04T00:00:00.000Z", digest="00" * 32))
    assert find_last_calibration(tmp_path, RECORD.digest) == newer
    assert find_last_calibration(tmp_path / "b-older", RECORD.digest) == RECORD
    assert find_last_calibration(tmp_path / "d-of-another", RECORD.digest) is None


def test_what_cannot_be_read_counts_only_where_it_may_be_the_one(tmp_path: Path) -> None:
    keep(tmp_path, "mine", RECORD)
    for name, content in (("spoilt", "{"), ("old", '{"format": 0, "digest": "00"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "calibration.json").write_text(content)
    assert find_last_calibration(tmp_path, RECORD.digest) == RECORD
    assert find_last_calibration(tmp_path / "old", RECORD.digest) is None
    with pytest.raises(RunFormatError, match=f"spoilt.*; move it out of {tmp_path}, or remove it"):
        find_last_calibration(tmp_path, "11" * 32)
    with pytest.raises(RunFormatError, match="format 0"):
        find_last_calibration(tmp_path / "old", "00")


def test_an_auc_that_is_high_enough_is_let_through() -> None:
    assert NUMBERS.auc == 1.0
    admit(RECORD, 1.0, critic="critic-llm", kind="llm")
    low = replace(RECORD, numbers=replace(NUMBERS, auc=0.75))
    admit(low, 0.75, critic="critic-llm", kind="llm")
    with pytest.raises(ConfigError, match=r"critic critic-llm: AUC 0.750 in its calibration of 2026.* at least 0.76"):
        admit(low, 0.76, critic="critic-llm", kind="llm")
    admit(low, 0.76, critic="critic-llm", kind="llm", allow_uncalibrated=True)


def test_a_critic_that_hardly_answers_is_refused_however_right_it_is() -> None:
    """Three of four scores are enough, one in twenty is not."""
    some, few = (
        replace(RECORD, numbers=replace(NUMBERS, cells=cells, missing={"prose": missing // 2, "mute": missing // 2}))
        for cells, missing in ((80, 20), (80, 76))
    )
    admit(some, 0.7, critic="critic-llm", kind="llm")
    with pytest.raises(
        ConfigError, match=r"critic-llm: gave 4 of 80 scores .*at least 75% are wanted.*--allow-uncalibrated"
    ) as told:
        admit(few, 0.7, critic="critic-llm", kind="llm")
    assert "\n" not in str(told.value)
    admit(few, 0.7, critic="critic-llm", kind="llm", allow_uncalibrated=True)
    admit(few, 0.7, critic="critic-oracle", kind="oracle")


@pytest.mark.parametrize("found", [None, replace(RECORD, numbers=None)])
def test_a_missing_one_is_refused_with_the_command_that_makes_it(found: CalibrationRecord | None) -> None:
    command = "collab critic calibrate --critic critic-llm --out calibrations/critic-llm"
    with pytest.raises(ConfigError, match=command):
        admit(found, 0.0, critic="critic-llm", kind="llm")
    admit(found, 0.9, critic="critic-llm", kind="llm", allow_uncalibrated=True)
    admit(found, 0.9, critic="critic-oracle", kind="oracle")


def test_the_command_names_a_directory_that_is_free_and_the_library(tmp_path: Path) -> None:
    folder = tmp_path / "my calibrations"
    for name in ("judge", "judge-2"):
        keep(folder, name, replace(RECORD, digest="00" * 32))
    said = format_calibrate_command("my agents/judge.yaml", folder, "my library")
    start = ["collab", "critic", "calibrate", "--critic", "my agents/judge.yaml", "--library", "my library", "--out"]
    assert shlex.split(said) == [*start, str(folder / "judge-3")]
    with pytest.raises(ConfigError) as refused:
        admit(None, 0.7, critic="my agents/judge.yaml", kind="llm", folder=folder, library="my library")
    assert f"make one with: {said}, or let it judge all the same" in str(refused.value)


def test_one_that_tells_nothing_apart_is_refused() -> None:
    with pytest.raises(ConfigError, match="knows no AUC"):
        admit(replace(RECORD, numbers=replace(NUMBERS, auc=None)), 0.0, critic="critic-outcome", kind="outcome")
    with pytest.raises(ConfigError, match=r"min AUC 75: allowed are numbers from 0 to 1"):
        admit(RECORD, 75, critic="critic-llm", kind="llm")


def test_one_line_tells_it() -> None:
    assert format_calibration(RECORD).startswith("AUC 1.000, accuracy 0.857, calibration error 0.219")
    assert format_calibration(RECORD).endswith(", 2 of 9 scores missing, on 3 steps of androidworld[simphone] <&>")
    assert format_calibration(replace(RECORD, numbers=replace(NUMBERS, cases=1))).endswith(
        ", on 1 step of androidworld[simphone] <&>"
    )
    assert format_calibration(replace(RECORD, numbers=None)) == "not finished"
    assert "of 7 scores only, which is a rough measure" in format_calibration(RECORD)
    assert "rough" not in format_calibration(replace(RECORD, numbers=replace(NUMBERS, cells=52)))


def test_a_calibration_without_numbers_has_no_picture() -> None:
    with pytest.raises(ValueError, match="has no picture"):
        draw_reliability(replace(RECORD, numbers=None))
