"""The file that makes a directory what it is: its whole configuration, written before anything else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.errors import (
    EnvironmentFailure,
    ModelFailure,
    RunError,
    RunFormatError,
    StoreFailure,
    TrainingFailure,
)
from collab.store.files import check_plain, read_json, write_json, writing
from collab.store.lock import RunLock
from collab.store.run_dir import check_free, new_directory

_KINDS: tuple[type[RunError], ...] = (EnvironmentFailure, ModelFailure, TrainingFailure, StoreFailure, RunError)
"""Failures, the general one last."""
_ALONE = "then collab runs resume "
"""What comes before the directory of a run that cannot be written, at the end of the message; see `writing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFile:
    """One such file."""

    path: Path
    noun: str
    """What the directory is with it, e.g. "training"."""
    format: int
    """Version of the file and of what lies beside it."""
    resume: str
    """The command that goes on with the directory."""

    def create(self, head: Mapping[str, Any]) -> None:
        """Make the directory.

        Raises:
            UsageError: something is there already.
            StoreFailure: it cannot be written.
        """
        with new_directory(self.path.parent, self.path.name, noun=self.noun, resume=self.resume):
            write_json(self.path, {"format": self.format, **head})

    def check_free(self) -> None:
        """Check that a new one can begin in the directory; UsageError otherwise."""
        check_free(self.path.parent, self.path.name, noun=self.noun, resume=self.resume)

    def read(self) -> dict[str, Any]:
        """What it holds.

        Raises:
            RunFormatError: it is not there, or another version wrote it.
        """
        folder = self.path.parent
        missing = f"no {self.path.name} in it, so it is no {self.noun}" if folder.exists() else "no such directory"
        head = read_json(
            self.path, f"{folder}: {missing}; name the directory of a {self.noun}; see them with: collab runs list"
        )
        if not isinstance(head, dict) or head.get("format") != self.format:
            found = head.get("format") if isinstance(head, dict) else None
            raise RunFormatError(
                f"{self.path}: has format {found}, this version reads format {self.format}; go on with the Collab "
                f"version that wrote it, or begin another {self.noun}"
            )
        return head

    def write(self, head: Mapping[str, Any]) -> None:
        """Replace it; StoreFailure when it cannot be written."""
        with writing(self.path, self.resume):
            write_json(self.path, {"format": self.format, **head})

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the right to write the directory; what fails in it says how to go on with all of it.

        Raises:
            UsageError: another process has that right.
        RunFormatError: something in it is no plain file or folder.
            RunError: as the block raises it, with that command, unless it says how to go on itself.
        """
        folder = self.path.parent
        check_plain(folder, self.noun)
        with writing(folder, self.resume):
            lock = RunLock(folder, self.resume)
        try:
            yield
        except RunError as error:
            if self.resume in str(error):
                raise
            kind = next(one for one in _KINDS if isinstance(error, one))
            what, alone, _ = str(error).partition(_ALONE)  # of a part, that command would be refused
            how = f"then {self.resume}" if alone else f"; all of the {self.noun} goes on with: {self.resume}"
            raise kind(what + how) from error
        finally:
            lock.release()
