"""A run directory from outside: make one, open one, write to it, read from it.

store = RunStore.create(Path("runs/first"), Manifest(command="rollout", config=config, seed=0))
with store.writer() as writer: ...
with store.reader() as reader: ...

store = RunStore.open(Path("runs/first"))      # later, or from another process
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from collab.errors import UsageError
from collab.store import blobs, log
from collab.store.files import writing
from collab.store.manifest import Manifest, find_manifest, write_manifest
from collab.store.reader import RunReader
from collab.store.writer import RunWriter


class RunStore:
    """One run directory. Made by `create` or `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunStore:
        """Make a new run.

        Raises:
            UsageError: something is there already.
            StoreFailure: the file system refuses.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path}: is there already; give another --out, or go on with: collab runs resume {path}")
        made = [path / log.FOLDER, path / blobs.FOLDER, *([] if path.exists() else [path])]
        with writing(path, "start the run again"):
            try:
                (path / log.FOLDER).mkdir(parents=True, exist_ok=True)
                (path / blobs.FOLDER).mkdir(exist_ok=True)
                write_manifest(path, manifest)
            except OSError:
                for folder in made:  # half a run would be in the way of the next one
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                raise
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunStore:
        """Take a run that exists; only its head is looked at.

        Raises:
            RunFormatError: there is no run, or a newer major version wrote it.
        """
        find_manifest(path)
        return cls(path)

    def writer(self) -> RunWriter:
        """The run's only writer; takes a stopped or dead run up again. Raises as `RunWriter` does."""
        return RunWriter(self.path)

    def reader(self) -> RunReader:
        """The run as it is now. Raises as `RunReader` does."""
        return RunReader(self.path)
