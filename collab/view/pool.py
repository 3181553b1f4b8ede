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
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from collab.errors import RunFormatError
from collab.store import lock, log, manifest
from collab.store.index import Index
from collab.store.reader import RunReader
from collab.view import links
from collab.view.beside import Beside
from collab.view.spares import spare_of, tidy, use

_T = TypeVar("_T")

_MOST = 600_000
"""Rows of indices in memory, about 100 bytes each, beyond which the run that was asked for longest ago is closed."""


def disk_state(directory: Path) -> str:
    """Says in few bytes what is on the disk and who writes it: equal texts, nothing has changed; reads no run."""
    parts = [f"{one}={_stamp(one)}" for one in _growing(directory)]
    owner = None if links.trouble(directory, directory / lock.FILE) else lock.owner(directory)
    return hashlib.sha256("\n".join([*parts, str(owner)]).encode("utf-8", "surrogateescape")).hexdigest()


class Opened:
    """A run that is open, with what was computed from it.

    Raises:
        RunFormatError: it cannot be read, or a part of it lies elsewhere.
    """

    def __init__(self, directory: Path, spare: Path) -> None:
        self._folders = links.stamp_folders(directory)
        links.check(directory)
        self._head = _stamp(directory / manifest.FILE)
        self.reader = _sound(RunReader(directory, spare=spare), spare)
        use(spare)
        self.users = 0
        """Requests that hold it now."""
        self.dropped = False
        self._beside = Beside(self.reader)
        self._kept: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._mutex = threading.RLock()
        self.weight = 0
        """Rows in memory."""
        self._weigh()

    @property
    def beside(self) -> Beside:
        """Judgements and pairs, as they are now."""
        self._beside.refresh()
        return self._beside

    def fits(self) -> bool:
        """Whether head and log still begin as they were read, and lie in the run."""
        folders = links.stamp_folders(self.reader.directory)
        if folders != self._folders:  # else nothing was exchanged since it was checked
            links.check(self.reader.directory)
            self._folders = folders
        if self._head != _stamp(self.reader.directory / manifest.FILE):
            return False
        known = self.reader.query("SELECT name, consumed FROM segments")
        return all(log.size(self.reader.directory, name) >= consumed for name, consumed in known)

    def refresh(self) -> None:
        """Take in what was written since."""
        if self.reader.refresh():
            self._weigh()

    def _weigh(self) -> None:
        (rows,) = self.reader.query("SELECT (SELECT count(*) FROM steps) + (SELECT count(*) FROM cells)")[0]
        self.weight = int(rows)

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
        tidy(spares)
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
                one.refresh()
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
            one = self._fitting(directory)
            if one is None:
                one = Opened(directory, spare_of(directory, self._spares))
                with self._mutex:
                    one.users += 1
                    self._held[directory] = one
            with self._mutex:
                if not one.dropped:
                    self._held.move_to_end(directory)
                self._make_room()
            return one

    def _fitting(self, directory: Path) -> Opened | None:
        """The one that is held, with one user more; None where none is, or it is of another run by now."""
        with self._mutex:
            one = self._held.get(directory)
            if one is None:
                return None
            one.users += 1  # from here on nobody closes it
        fits = False
        try:
            fits = one.fits()
        finally:
            if not fits:
                with self._mutex:
                    self._drop(directory)
                self._given_back(one)
        return one if fits else None

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
        one = self._held.pop(directory, None)
        if one is None:
            return
        one.dropped = True
        if not one.users:
            one.reader.close()


def _sound(reader: RunReader, spare: Path) -> RunReader:
    """The reader; with an index made from the log where a value in the one that it found is spoilt."""
    try:
        reader.episodes()
    except (ValueError, TypeError, sqlite3.Error):
        reader.index.close()
        reader.index = Index.load(reader.directory, trust=False, spare=spare)
    return reader


def _growing(directory: Path) -> Iterator[Path]:
    """Files that grow, or are made anew under their name, while a run is made, judged and paired."""
    yield directory / manifest.FILE
    yield from (directory / log.FOLDER / name for name in log.segments(directory))
    yield from sorted(directory.glob(f"labels/*/{log.FOLDER}/*.jsonl"))
    yield from sorted(directory.glob("pairs/*/pairs.json*"))


def _stamp(path: Path) -> tuple[int, int]:
    """When it was written and how long it is; equal for equal content, as far as the clock can tell."""
    try:
        stat = path.stat()
    except OSError:
        return -1, -1
    return stat.st_mtime_ns, stat.st_size
