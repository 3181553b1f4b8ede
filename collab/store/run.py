"""A run directory from outside: make one, open one, write to it, read from it.

store = RunStore.create(Path("runs/first"), Manifest(command="rollout", config=config, seed=0))
with store.writer() as writer: ...
with store.reader() as reader: ...

store = RunStore.open(Path("runs/first"))      # later, or from another process
"""

from __future__ import annotations

import shlex
from pathlib import Path

from collab.store import blobs, log
from collab.store.manifest import FILE, Manifest, find_manifest, write_manifest
from collab.store.reader import RunReader
from collab.store.run_dir import new_directory
from collab.store.writer import RunWriter


class RunStore:
    """One run directory. Made by `create` or `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunStore:
        """Make a new run.

        Raises:
            UsageError: something is there already, or another process is making it.
            StoreFailure: the file system refuses.
        """
        with new_directory(path, FILE, noun="run", resume=f"collab runs resume {shlex.quote(str(path))}"):
            (path / log.FOLDER).mkdir(exist_ok=True)
            (path / blobs.FOLDER).mkdir(exist_ok=True)
            write_manifest(path, manifest)
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
