"""Readers that stay open between requests, as many as memory allows, each as fresh as the run it reads.

pool = Pool(spares=Path.home() / ".cache/collab/view")
with pool.opened(directory) as run:
    run.reader.episodes()
    run.beside.labellings()
    run.kept("rows", lambda: slow(run))         # computed again only when the run has grown
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from collab.errors import RunFormatError
from collab.store import log
from collab.store.lock import owner
from collab.store.reader import RunReader
from collab.view.beside import Beside

_T = TypeVar("_T")

_MOST = 600_000
"""Rows of indices in memory, about 100 bytes each, beyond which the run that was asked for longest ago is closed."""


def spare_folder() -> Path:
    """Where this user's indices of runs are kept that lack one of their own."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collab" / "view"


def disk_state(directory: Path) -> str:
    """Says in few bytes what is on the disk and who writes it: equal texts, nothing has changed; reads no run."""
    parts = [f"{one}={_size(one)}" for one in _growing(directory)]
    return hashlib.sha256("\n".join([*parts, str(owner(directory))]).encode("utf-8", "surrogateescape")).hexdigest()


class Opened:
    """A run that is open, with what was computed from it."""

    def __init__(self, directory: Path, spare: Path) -> None:
        self.reader = RunReader(directory, spare=spare)
        self.users = 0
        """Requests that hold it now."""
        self.dropped = False
        self._beside = Beside(self.reader)
        self._kept: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._mutex = threading.RLock()
        (rows,) = self.reader.query("SELECT (SELECT count(*) FROM steps) + (SELECT count(*) FROM cells)")[0]
        self.weight = int(rows)
        """Rows in memory when it was opened."""

    @property
    def beside(self) -> Beside:
        """Judgements and pairs, as they are now."""
        self._beside.refresh()
        return self._beside

    def fits(self) -> bool:
        """Whether the log still begins as it was read."""
        known = self.reader.query("SELECT name, consumed FROM segments")
        return all(log.size(self.reader.directory, name) >= consumed for name, consumed in known)

    def kept(self, name: str, compute: Callable[[], _T]) -> _T:
        """What was computed under this name from the run as it is now, or is computed now."""
        with self._mutex:
            state = (id(self.reader.index), self._beside.version, *self.reader.query("SELECT * FROM segments"))
            known = self._kept.get(name)
            if known is None or known[0] != state:
                known = self._kept[name] = (state, compute())
            found: _T = known[1]
            return found


class Pool:
    """Open runs by directory. Safe to use from several threads.

    Args:
        spares: folder for indices of runs whose own is of no use.
    """

    def __init__(self, spares: Path) -> None:
        self._spares = spares
        self._mutex = threading.RLock()
        self._locks: dict[Path, threading.Lock] = {}
        self._held: OrderedDict[Path, Opened] = OrderedDict()

    @contextlib.contextmanager
    def opened(self, directory: Path) -> Iterator[Opened]:
        """A run as it is now, open at least to the end of the block.

        Raises:
            RunFormatError: it cannot be read.
        """
        one = self._taken(directory)
        try:
            try:
                one.reader.refresh()
            except OSError as error:
                raise RunFormatError(f"{directory}: cannot be read: {error.strerror or error}") from None
            yield one
        finally:
            self._given_back(one)

    def close(self) -> None:
        """Close what nobody uses."""
        with self._mutex:
            for path in list(self._held):
                self._drop(path)

    def _taken(self, directory: Path) -> Opened:
        with self._mutex:
            alone = self._locks.setdefault(directory, threading.Lock())
        with alone:
            with self._mutex:
                one = self._held.get(directory)
            if one is not None and not one.fits():
                with self._mutex:
                    self._drop(directory)
                one = None
            if one is None:
                digest = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()
                one = Opened(directory, self._spares / f"{digest}.sqlite")
            with self._mutex:
                one.users += 1
                self._held[directory] = one
                self._held.move_to_end(directory)
                self._make_room()
            return one

    def _given_back(self, one: Opened) -> None:
        with self._mutex:
            one.users -= 1
            if one.dropped and not one.users:
                one.reader.close()

    def _make_room(self) -> None:
        weight = sum(one.weight for one in self._held.values())
        for path, one in list(self._held.items())[:-1]:
            if weight <= _MOST:
                return
            weight -= one.weight
            self._drop(path)

    def _drop(self, directory: Path) -> None:
        one = self._held.pop(directory)
        one.dropped = True
        if not one.users:
            one.reader.close()


def _growing(directory: Path) -> Iterator[Path]:
    """Files that grow while a run is made, judged and paired."""
    yield from (directory / log.FOLDER / name for name in log.segments(directory))
    yield from sorted(directory.glob(f"labels/*/{log.FOLDER}/*.jsonl"))
    yield from sorted(directory.glob("pairs/*/pairs.json"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
