"""What is removed of a part that was killed early, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import RunFormatError
from collab.loop.record import TrainingDir
from collab.store.run import RunStore
from collab.store.run_dir import RunDir
from collab.trainers.run_dir import FinetuneDir


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
    RunStore(run).clear_unbegun()
    FinetuneDir(training).clear_unbegun()
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_head_is_lost_stays_for_its_log_holds_a_copy(tmp_path: Path) -> None:
    run = holding(tmp_path / "rollout", "events/0001-aa.jsonl", "labels/training/labels.jsonl")
    RunStore(run).clear_unbegun()
    assert (run / "labels/training/labels.jsonl").exists()


@pytest.mark.parametrize(
    ("kind", "part"), [(FinetuneDir, "checkpoints/step-200/state.pt"), (RunStore, "labels/training/a")]
)
def test_another_part_whose_head_is_lost_is_named_and_stays(tmp_path: Path, kind: type[RunDir], part: str) -> None:
    folder = holding(tmp_path / "part", part)
    with pytest.raises(
        RunFormatError, match=rf"part: {kind.HEAD}, which describes its content, is missing; put it back"
    ):
        kind(folder).clear_unbegun()
    assert (folder / part).exists()


def test_what_has_its_head_stays(tmp_path: Path) -> None:
    FinetuneDir(holding(tmp_path / "training", FinetuneDir.HEAD)).clear_unbegun()
    TrainingDir(tmp_path / "nothing").clear_unbegun()
    assert (tmp_path / "training" / FinetuneDir.HEAD).exists()
