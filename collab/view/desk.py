"""What lies open: runs by id, their readers, and what was computed from them, for as long as they stay as they are."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from collab.errors import CollabError, RunFormatError, UsageError
from collab.loop.layout import TrainingDir
from collab.view import runs
from collab.view.labelled import first_line
from collab.view.learned import LOGS
from collab.view.pool import Opened, Pool, disk_state
from collab.view.roots import Root, Roots
from collab.view.shapes.runs import RunRow

_T = TypeVar("_T")

UNREADABLE = (CollabError, OSError, sqlite3.Error, ValueError, TypeError, ArithmeticError, RecursionError)
"""What a run raises of which nothing can be told."""

_TRAINING = ("epochs/*/epoch.json", "epochs/*/graph.json", *LOGS)
"""Files of a training that grow or appear, beside its runs."""


class Desk:
    """Safe to use from several threads.

    Args:
        paths: runs, trainings, or folders with some.
        spares: folder for indices of runs whose own is of no use.

    Raises:
        UsageError: a path holds none.
    """

    def __init__(self, paths: Sequence[Path], spares: Path) -> None:
        self.roots = Roots(paths)
        self._pool = Pool(spares)
        self._kept: dict[tuple[str, str], tuple[str, Any]] = {}
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Give back memory."""
        self._pool.close()

    def opened(self, path: Path) -> contextlib.AbstractContextManager[Opened]:
        """A run by its directory; raises as `Pool.opened`."""
        return self._pool.opened(path)

    @contextlib.contextmanager
    def run(self, id: str) -> Iterator[tuple[Root, Opened]]:
        """A run by its id.

        Raises:
            UnknownName: there is none.
            UsageError: it is a training.
            RunFormatError: it cannot be read.
        """
        root = self.roots.find(id)
        if root.kind == "training":
            raise UsageError(f"{root.path}: is a training; ask for one of its runs")
        with self.opened(root.path) as run:
            yield root, run

    def played(self, id: str) -> list[Root]:
        """The run itself; of a training, its rollouts."""
        root = self.roots.find(id)
        if root.kind == "run":
            return [root]
        return [part for part in self.roots.parts(root) if part.role == "rollout"]

    def readable(self, id: str) -> Iterator[tuple[Root, Opened]]:
        """The run itself; of a training, its rollouts, one at a time: those that cannot be read are its problems.

        Raises:
            RunFormatError: the run that was asked for cannot be read.
        """
        asked = self.roots.find(id)
        for root in self.played(id):
            try:
                with self.opened(root.path) as run:
                    yield root, run
            except RunFormatError:
                if root is asked:
                    raise

    def row(self, id: str) -> RunRow:
        """A run or training in one line, also when nothing of it can be read."""
        root = self.roots.find(id)
        try:
            return self.fresh(root, "row", lambda: self._row(root))
        except UNREADABLE as error:  # the others can be read
            return runs.unreadable_row(root, RunFormatError(first_line(error)))

    def known_row(self, root: Root) -> RunRow | None:
        """Its line, where that was made from what is on the disk now."""
        with self._mutex:
            state, row = self._kept.get((root.id, "row"), ("", None))
        return row if state == self.state(root) else None

    def state(self, root: Root) -> str:
        """Equal texts: nothing was written in between; reads no run."""
        if root.kind == "run":
            return disk_state(root.path)
        heads = [TrainingDir(root.path).file, *(path for found in _TRAINING for path in sorted(root.path.glob(found)))]
        stats = (path.stat() for path in heads if path.is_file())
        parts = (disk_state(part.path) for part in self.roots.parts(root))
        written = [*(f"{one.st_mtime_ns} {one.st_size}" for one in stats), disk_state(root.path), *parts]
        return hashlib.sha256(" ".join(written).encode()).hexdigest()

    def fresh(self, root: Root, what: str, compute: Callable[[], _T]) -> _T:
        """What was computed under this name from what is on the disk now, or is computed now."""
        state = self.state(root)
        with self._mutex:
            known = self._kept.get((root.id, what))
        if known is not None and known[0] == state:
            found: _T = known[1]
            return found
        made = compute()
        with self._mutex:
            self._kept[root.id, what] = (state, made)
        return made

    def _row(self, root: Root) -> RunRow:
        if root.kind == "training":
            return runs.training_row(root, [(part, self.row(part.id)) for part in self.roots.parts(root)])
        with self.opened(root.path) as run:
            return runs.run_row(root, run)
