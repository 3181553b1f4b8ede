"""What is removed of a part that was killed early, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import RunFormatError
from collab.loop.record import clear_unbegun
from collab.store.manifest import FILE

TRAINING = "finetune.json"


def holding(folder: Path, *names: str) -> Path:
    for name in names:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    return folder


def test_what_was_killed_before_its_head_was_written_is_removed(tmp_path: Path) -> None:
    run = tmp_path / "rollout"
    (run / "events").mkdir(parents=True)
    (run / "blobs").mkdir()
    training = holding(tmp_path / "training", ".finetune.json.partial")
    clear_unbegun(run, FILE)
    clear_unbegun(training, TRAINING)
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_head_is_lost_stays_for_its_log_holds_a_copy(tmp_path: Path) -> None:
    run = holding(tmp_path / "rollout", "events/0001-aa.jsonl", "labels/training/labels.jsonl")
    clear_unbegun(run, FILE)
    assert (run / "labels/training/labels.jsonl").exists()


@pytest.mark.parametrize(("head", "part"), [(TRAINING, "checkpoints/step-200/state.pt"), (FILE, "labels/training/a")])
def test_another_part_whose_head_is_lost_is_named_and_stays(tmp_path: Path, head: str, part: str) -> None:
    folder = holding(tmp_path / "part", part)
    with pytest.raises(RunFormatError, match=rf"part: {head}, which says what lies in it, is gone; put it back"):
        clear_unbegun(folder, head)
    assert (folder / part).exists()


def test_what_has_its_head_stays(tmp_path: Path) -> None:
    clear_unbegun(holding(tmp_path / "training", TRAINING), TRAINING)
    clear_unbegun(tmp_path / "nothing", TRAINING)
    assert (tmp_path / "training" / TRAINING).exists()
