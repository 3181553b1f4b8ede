"""An index over the log: answers in milliseconds instead of seconds. It is never the truth.

    index = Index.load(directory)      # the run's own index, brought up to date in memory
    index.connection.execute("SELECT trajectory, success FROM episodes")

The writer of a run adds each event to `index.sqlite` as it is written. A reader copies that file into memory and reads
later events from the log. A missing, damaged or outdated index costs one pass over the log. `segments.consumed` is the
first byte not indexed, committed with the rows it stands for, so the two cannot disagree.

An index may be damaged or foreign. It is used only if all its places lie in the log of its own run; a line is used only
if it is the event that was looked up. Both are checked before anything is read or shown.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from collab.store import log, tables
from collab.store.events import (
    BadLine,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Record,
    StepRecorded,
    TextRecorded,
    decode,
)
from collab.store.log import Place
from collab.store.run_dir import find_owner
from collab.store.tables import clean
from collab.utils.concurrency import note_doing
from collab.utils.files import open_plain

PLACES = (
    ("events", ""),
    ("texts", ""),
    ("steps", ""),
    ("episodes", "start_"),
    ("episodes", "end_"),
)
"""Tables with places in the log, and prefixes of their columns' names."""

_COMPANIONS = ("-journal", "-wal", "-shm")
"""Files that SQLite opens beside a database."""
_ROLLBACK = b"\1\1"
"""Bytes at `_MODE` of a database whose journal is not a write-ahead log."""
_MODE = slice(18, 20)

_ELSEWHERE = """
SELECT 1 FROM {table} LEFT JOIN segments ON name = {to}segment WHERE {given} AND NOT coalesce(
    typeof({to}offset) = 'integer' AND typeof({to}length) = 'integer'
    AND {to}offset >= 0 AND {to}length > 0 AND {to}offset + {to}length <= consumed, FALSE) LIMIT 1
"""


def is_plain(directory: Path, path: Path) -> bool:
    """Return whether SQLite can open this as an index without waiting for, or writing to, files beside it."""
    if not path.is_file() or not all(_is_regular(path.with_name(path.name + end)) for end in ("", *_COMPANIONS)):
        return False
    if (
        find_owner(directory) is not None
    ):  # closing a file gives up the locks on it, also those of a writer in this process
        return True
    try:
        with open_plain(path) as file:
            return file.read(_MODE.stop)[_MODE] == _ROLLBACK  # reading a file in another mode leaves files beside it
    except OSError:
        return False


def is_fitting(directory: Path, connection: sqlite3.Connection) -> bool:
    """Return whether an index has this version's tables, is whole, and names only places in the run's own log.

    Raises:
        sqlite3.Error: it is no index.
    """
    # A foreign index is an untrusted database: structure first, then content, before any query relies on it.
    if connection.execute("PRAGMA user_version").fetchone()[0] != tables.VERSION:
        return False
    if _read_schema(connection) != _build_sound_schema():
        return False
    if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
        return False
    # Segments and places must lie in the run's own log; else a query would read elsewhere.
    there = set(log.list_segments(directory))
    for name, consumed, lines in connection.execute("SELECT name, consumed, lines FROM segments"):
        if name not in there or not (isinstance(consumed, int) and isinstance(lines, int)):
            return False
        if not 0 <= consumed <= log.get_size(directory, name):
            return False
    return not any(connection.execute(_build_elsewhere_query(table, to)).fetchone() for table, to in PLACES)


def build_lookup_key(event: Event | None) -> tuple[object, ...]:
    """Return the index's key of an event; empty for events that are only counted."""
    match event:
        case StepRecorded(trajectory=trajectory, attempt=attempt, step=step):
            return clean(trajectory), attempt, step.index
        case EpisodeStarted() | EpisodeFinished():
            return clean(event.trajectory), event.attempt
        case TextRecorded(hash=hash):
            return (clean(hash),)
        case _:
            return ()


def _is_regular(path: Path) -> bool:
    """Return whether a regular file is there, no link or pipe; or nothing is."""
    try:
        return S_ISREG(path.lstat().st_mode)
    except OSError:
        return True


def _build_elsewhere_query(table: str, to: str) -> str:
    """Return a query for a row whose place is not in the indexed part of the log."""
    given = "end_segment IS NOT NULL" if to == "end_" else "TRUE"  # an episode may not have ended
    return _ELSEWHERE.format(table=table, to=to, given=given)


def _read_schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return every table and index as declared, because one bad byte can rename a column unnoticed."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()


@functools.cache
def _build_sound_schema() -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(tables.SCHEMA)
        return _read_schema(connection)


FILE = "index.sqlite"

_COMMIT_S = 0.5
"""Seconds that rows wait for their commit: a commit per step would cost more than the step."""
_BUSY_S = 0.1
"""Seconds that a commit waits for readers before it is put off."""
_FAR_BEHIND = 50
"""Lines of a log that take longer to read than a spare index takes to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """A half-written last line."""

    segment: str
    line: int
    """From 1."""
    size: int
    """Bytes."""

    @property
    def reason(self) -> str:
        """Description in words."""
        return f"half-written last line ({self.size} bytes) skipped"


class Index:
    """The tables of `collab.store.tables` behind one connection, for one thread at a time.

    Raises:
        sqlite3.Error: from every method, when the file is no index, is locked or cannot be written.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._committed = time.monotonic()

    @classmethod
    def load(cls, directory: Path, *, trust: bool = True, spare: Path | None = None) -> Index:
        """Load the whole run into memory: its own index, then the rest from the log. Changes nothing in the run.

        Args:
            trust: False ignores the run's index and reads all from the log. spare: index file outside the run, for a
            run whose own is missing, unfit or far behind. It is read if it goes
                further, and written after a long read of the log; failing to write it is ignored.

        Raises:
            RunFormatError: a newer major version wrote a part of the log.
            OSError: the log cannot be read.
        """
        with note_doing(f"reading {directory}"):
            return cls._load(directory, trust, spare)

    @classmethod
    def _load(cls, directory: Path, trust: bool, spare: Path | None) -> Index:
        index = _load_furthest(directory, [directory / FILE, *([spare] if spare else [])] if trust else [])
        if index.update(directory) >= _FAR_BEHIND and spare is not None:
            index._write_spare(spare)
        return index

    def update(self, directory: Path) -> int:
        """Add new lines of the log; return their number."""
        known = self._read_known()
        count = 0
        for segment in log.list_segments(directory):
            consumed, lines = known.get(segment, (0, 0))
            if segment in known and log.get_size(directory, segment) == consumed:
                continue  # most segments of a long run have ended
            for line in log.scan(directory, segment, consumed, lines):
                try:
                    self.add(decode(line.content), line.place, line.number)
                except (BadLine, OverflowError) as error:  # a number that SQLite cannot hold was never written by us
                    self._consume(line.place, line.number, str(error))
                count += 1
        self.connection.commit()
        return count

    def add(self, record: Record, place: Place, number: int) -> None:
        """Add one event, at `place` as line `number` (from 1) of its segment."""
        problem = tables.insert(self.connection, record, place)
        self._consume(place, number, problem)

    def list_tails(self, directory: Path) -> list[Tail]:
        """List the bytes behind the last whole line of each segment, at the last `update`."""
        known = self._read_known()
        tails = []
        for segment in log.list_segments(directory):
            consumed, lines = known.get(segment, (0, 0))
            left = log.get_size(directory, segment) - consumed
            if left > 0:
                tails.append(Tail(segment=segment, line=lines + 1, size=left))
        return tails

    def commit_if_due(self) -> None:
        """Commit rows older than half a second; a reader in the way only delays it."""
        if time.monotonic() - self._committed >= _COMMIT_S:
            try:
                self.connection.commit()
            except sqlite3.OperationalError:
                if not self.connection.in_transaction:  # a full disk took back rows that would not be added again
                    raise
            self._committed = time.monotonic()

    def save(self, directory: Path) -> Index:
        """Make this the run's own index, and return the one on disk; this one is closed."""
        remove(directory)
        connection = _connect(str(directory / FILE))
        self.connection.backup(connection)
        self.connection.close()
        return Index(connection)

    def _write_spare(self, path: Path) -> None:
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.closing(_connect(str(beside))) as connection:
                self.connection.backup(connection)
            beside.replace(path)
        except (OSError, sqlite3.Error):
            beside.unlink(missing_ok=True)

    def close(self) -> None:
        """Commit and close."""
        try:
            self.connection.commit()
        finally:
            self.connection.close()

    def _read_known(self) -> dict[str, tuple[int, int]]:
        """Return per segment the bytes and lines that are indexed."""
        rows = self.connection.execute("SELECT name, consumed, lines FROM segments")
        return {name: (consumed, lines) for name, consumed, lines in rows}

    def _consume(self, place: Place, number: int, problem: str | None) -> None:
        if problem is not None:
            self.connection.execute("INSERT INTO problems VALUES (?, ?, ?)", (place.segment, number, problem))
        row = (place.segment, place.offset + place.length, number)
        self.connection.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?)", row)


def remove(directory: Path) -> None:
    """Delete the run's own index, if any; the next load rebuilds it."""
    for name in (FILE, f"{FILE}-journal"):  # a journal left by a kill must not be applied to a new file
        (directory / name).unlink(missing_ok=True)


def _connect(target: str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(target, timeout=_BUSY_S, check_same_thread=False, uri=uri)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")  # a spoilt index may hold any bytes
    if not uri:
        # An index that a power cut spoils is built anew, so it need not wait for the disk.
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA cache_spill = OFF;")
    return connection


def _load_furthest(directory: Path, candidates: Sequence[Path]) -> Index:
    """Return a copy in memory of the index that goes furthest, the first one on ties; an empty one if none fits."""
    # In memory: the file stays as it is for other readers.
    best, furthest = None, -1
    for path in candidates:
        connection = _connect(":memory:")
        goes = _count_consumed(connection) if _copy(directory, path, connection) else -1
        if goes > furthest:
            if best is not None:
                best.close()
            best, furthest = connection, goes
        else:
            connection.close()
    # Nothing fits: the log is read from its beginning.
    if best is None:
        best = _connect(":memory:")
        best.executescript(f"{tables.SCHEMA} PRAGMA user_version = {tables.VERSION};")
    return Index(best)


def _count_consumed(connection: sqlite3.Connection) -> int:
    """Count the indexed bytes of the log."""
    return int(connection.execute("SELECT coalesce(sum(consumed), 0) FROM segments").fetchone()[0])


def _copy(directory: Path, path: Path, into: sqlite3.Connection) -> bool:
    """Copy an index; return False if there is none that fits the log of the run."""
    if not is_plain(directory, path):
        return False
    try:
        with contextlib.closing(_connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source:
            source.execute("BEGIN")
            # Takes the lock or fails, where backup would wait for ever; any other table could be a view without end.
            source.execute("SELECT 1 FROM sqlite_schema").fetchone()
            source.backup(into)
        return is_fitting(directory, into)
    except (sqlite3.Error, UnicodeDecodeError):  # sqlite quotes a spoilt schema in its own message
        return False
