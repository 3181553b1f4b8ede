"""The file at the head of a training or transfer: who may write there, and how all of it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import (
    EnvironmentFailure,
    ModelFailure,
    RunError,
    StoreFailure,
    TrainingFailure,
    UsageError,
)
from collab.store.run_dir import HeadFile
from collab.utils.files import writing


@pytest.fixture
def head(tmp_path: Path) -> HeadFile:
    made = HeadFile(path=tmp_path / "run/head.json", noun="training", format=1, resume="collab train-marl --resume run")
    made.create({"config": {}})
    return made


def test_what_cannot_be_begun_is_not_to_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError(28, "No space left on device")

    made = HeadFile(path=tmp_path / "run/head.json", noun="training", format=1, resume="collab train-marl --resume run")
    monkeypatch.setattr("collab.store.run_dir.write_json", full)
    with pytest.raises(StoreFailure, match=r"then start the .* again"):
        made.create({"config": {}})
    with pytest.raises(StoreFailure, match="then collab train-marl --resume run"):
        made.write({"config": {}})


def test_what_cannot_be_written_in_a_part_says_how_to_go_on_with_all_of_it(head: HeadFile) -> None:
    with pytest.raises(StoreFailure) as told, head.held():
        raise StoreFailure("run/part: cannot write: full; make room, then collab finetune --resume run/part")
    assert str(told.value).endswith("run/part; all of the training goes on with: collab train-marl --resume run")
    with pytest.raises(StoreFailure) as own, head.held():
        raise StoreFailure(f"run: cannot write: full; make room, then {head.resume}")
    assert str(own.value).count(head.resume) == 1


def test_a_run_that_cannot_be_written_is_not_to_be_gone_on_with_alone(head: HeadFile) -> None:
    rollout = head.path.parent / "epochs/1/rollout"
    with pytest.raises(StoreFailure) as told, head.held(), writing(rollout):
        raise OSError(28, "No space left on device")
    assert str(told.value) == (
        f"{rollout}: cannot write: No space left on device; what was written before is kept:"
        f" make room or fix the rights, then {head.resume}"
    )


@pytest.mark.parametrize("kind", [EnvironmentFailure, ModelFailure, TrainingFailure, RunError])
def test_what_fails_in_a_part_says_how_to_go_on_with_all_of_it(head: HeadFile, kind: type[RunError]) -> None:
    with pytest.raises(kind) as told, head.held():
        raise kind("the server answered 500")
    assert str(told.value) == f"the server answered 500; all of the training goes on with: {head.resume}"


def test_only_one_writes_at_a_time_and_the_next_one_after_a_failure(head: HeadFile) -> None:
    with head.held(), pytest.raises(UsageError, match="is being written by process"), head.held():
        pass
    with pytest.raises(ValueError, match="a mistake"), head.held():
        raise ValueError("a mistake")
    with head.held():
        pass
