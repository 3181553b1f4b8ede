"""Where everything of a training lies, and what `training.json` says."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.errors import RunFormatError, UsageError
from collab.loop.head import HeadFile
from collab.store.log import segments

FILE = "training.json"
FORMAT = 3
"""Version of `training.json` and of what lies beside it."""
LABELS = "training"
"""Name of a training's own labels beside its rollouts."""


@dataclass(frozen=True, slots=True)
class EpochDir:
    """One epoch on disk; epoch 0 is the team before any training and holds an evaluation only."""

    path: Path

    @property
    def graph(self) -> Path:
        """Who hears whom."""
        return self.path / "graph.json"

    @property
    def rollout(self) -> Path:
        """The run that is learned from."""
        return self.path / "rollout"

    @property
    def examples(self) -> Path:
        """What is learned from: a folder per policy, and `examples.json`, written last."""
        return self.path / "examples"

    @property
    def evaluation(self) -> Path:
        """Runs on held-out seeds."""
        return self.path / "evaluation"

    @property
    def record(self) -> Path:
        """There once the epoch is over."""
        return self.path / "epoch.json"

    def training(self, group: str) -> Path:
        """The fine-tuning run of a policy."""
        return self.path / "training" if group == "shared" else self.path / "training" / group


@dataclass(frozen=True, slots=True)
class TrainingDir:
    """A training on disk."""

    path: Path

    @property
    def file(self) -> Path:
        """`training.json`."""
        return self.path / FILE

    @property
    def resume(self) -> str:
        """The command that goes on with it."""
        return f"collab train --resume {shlex.quote(str(self.path))}"

    def epoch(self, number: int) -> EpochDir:
        """One epoch; its directory need not exist."""
        return EpochDir(self.path / "epochs" / str(number))

    @property
    def head(self) -> HeadFile:
        """The same, to be created, read, written and locked."""
        return HeadFile(path=self.file, noun="training", format=FORMAT, resume=self.resume)

    def create(self, head: Mapping[str, Any]) -> None:
        """Begin a training; raises as `HeadFile.create`."""
        self.head.create(head)

    def read(self) -> dict[str, Any]:
        """What `training.json` holds; RunFormatError when there is no training, or another version wrote it."""
        return self.head.read()

    def write(self, head: Mapping[str, Any]) -> None:
        """Replace `training.json`; StoreFailure when it cannot be written."""
        self.head.write(head)


def training_of(rollout: Path) -> TrainingDir | None:
    """The training that a run belongs to, in `epochs/N/rollout` beneath it; None for all other runs."""
    run = rollout.resolve()
    number, training = run.parent.name, TrainingDir(Path(*run.parts[:-3]))
    belongs = number.isdecimal() and training.epoch(int(number)).rollout == run and training.file.exists()
    return training if belongs else None


def training_around(part: Path) -> TrainingDir | None:
    """The training that a directory beneath its `epochs` is a part of, as a rollout is; None for what is part of none.

    Its path is relative where it lies in the current folder.
    """
    here = Path.cwd()
    above = (folder.parent for folder in part.resolve().parents if folder.name == "epochs")
    found = next((folder for folder in above if TrainingDir(folder).file.exists()), None)
    if found is None:
        return None
    return TrainingDir(found.relative_to(here) if found.is_relative_to(here) else found)


def refuse_part(path: Path) -> None:
    """UsageError for a part of a training: only the training knows what it may still become, and on which device."""
    training = training_around(path)
    if training is not None:
        raise UsageError(
            f"{path}: is a part of the training {training.path}, which alone goes on with it: {training.resume}"
        )


def clear_unbegun(folder: Path, head: str) -> None:
    """Remove a directory of a part that was killed before its head was written: nothing lies deeper in it yet.

    A run whose head is lost is left, for its log holds a copy.

    Raises:
        RunFormatError: the head of another part is lost, and nobody knows what lies in it.
    """
    if not folder.is_dir() or (folder / head).exists() or segments(folder):
        return
    if any(part.is_file() for part in folder.rglob("*") if part.parent != folder):
        raise RunFormatError(
            f"{folder}: {head}, which says what lies in it, is gone; put it back, or remove the directory to have all "
            "of it made again"
        )
    shutil.rmtree(folder)
