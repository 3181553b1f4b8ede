"""Where everything of a training lies, and what `marl.json` says."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.errors import RunFormatError, UsageError
from collab.learn.folder import write_json
from collab.store.files import writing
from collab.store.lock import RunLock

FILE = "marl.json"
FORMAT = 1
"""Version of `marl.json` and of what lies beside it."""


@dataclass(frozen=True, slots=True)
class EpochFolder:
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
    def rows(self) -> Path:
        """What is trained: a folder per policy, and `rows.json`, written last."""
        return self.path / "rows"

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
class MarlFolder:
    """A training on disk."""

    path: Path

    @property
    def file(self) -> Path:
        """`marl.json`."""
        return self.path / FILE

    @property
    def resume(self) -> str:
        """The command that goes on with it."""
        return f"collab train-marl --resume {shlex.quote(str(self.path))}"

    def epoch(self, number: int) -> EpochFolder:
        """One epoch; its directory need not exist."""
        return EpochFolder(self.path / "epochs" / str(number))

    def create(self, head: Mapping[str, Any]) -> None:
        """Begin a training.

        Raises:
            UsageError: something is there already.
            StoreFailure: it cannot be written.
        """
        if self.file.exists():
            raise UsageError(f"{self.path}: a training is there already; go on with: {self.resume}")
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise UsageError(f"{self.path}: something is there already; name a new directory")
        with writing(self.path, "start again"):
            self.path.mkdir(parents=True, exist_ok=True)
        self.write(head)

    def read(self) -> dict[str, Any]:
        """What `marl.json` holds.

        Raises:
            RunFormatError: there is no training, or another version wrote it.
        """
        try:
            head = json.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunFormatError(f"{self.path}: no {FILE} in it, so it is no training of a team") from None
        except (OSError, ValueError) as error:
            raise RunFormatError(f"{self.file}: cannot be read: {error}") from None
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise RunFormatError(f"{self.file}: not written by this version, which reads format {FORMAT}")
        return head

    def write(self, head: Mapping[str, Any]) -> None:
        """Replace `marl.json`; StoreFailure when it cannot be written."""
        with writing(self.file, self.resume):
            write_json(self.file, {"format": FORMAT, **head})

    def lock(self) -> RunLock:
        """The right to write it; UsageError when another process has it."""
        with writing(self.path, self.resume):
            return RunLock(self.path, self.resume)


def clear_unbegun(folder: Path, head: str) -> None:
    """Remove a directory of a part that was killed before its head was written: nothing of it counts yet."""
    if folder.is_dir() and not (folder / head).exists():
        shutil.rmtree(folder)
