"""How far an index is believed: it says where in the log things stand, and may be spoilt, or come from elsewhere.

It counts only if all places that it names lie in the log of its own run, and what is read at one only if it is what
was asked for. Both are looked at before anything is read or shown.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from pathlib import Path
from stat import S_ISREG

from collab.plain import open_plain
from collab.store import log, tables
from collab.store.events import EpisodeFinished, EpisodeStarted, Event, LabelRecorded, StepRecorded, TextRecorded
from collab.store.lock import owner
from collab.store.tables import clean

PLACES = (
    ("events", ""),
    ("texts", ""),
    ("labels", ""),
    ("steps", ""),
    ("episodes", "start_"),
    ("episodes", "end_"),
)
"""Tables with places in the log, and what the names of the columns begin with."""

_COMPANIONS = ("-journal", "-wal", "-shm")
"""Files that SQLite opens with a database."""
_ROLLBACK = b"\1\1"
"""At `_MODE` of a database whose journal is not a write-ahead log."""
_MODE = slice(18, 20)

_ELSEWHERE = """
SELECT 1 FROM {table} LEFT JOIN segments ON name = {to}segment WHERE {given} AND NOT coalesce(
    typeof({to}offset) = 'integer' AND typeof({to}length) = 'integer'
    AND {to}offset >= 0 AND {to}length > 0 AND {to}offset + {to}length <= consumed, FALSE) LIMIT 1
"""


def is_plain(directory: Path, path: Path) -> bool:
    """Whether a file and what lies beside it can be opened as an index: SQLite neither waits there, nor writes."""
    if not path.is_file() or not all(_is_regular(path.with_name(path.name + end)) for end in ("", *_COMPANIONS)):
        return False
    if owner(directory) is not None:  # closing a file gives up the locks on it, also those of a writer in this process
        return True
    try:
        with open_plain(path) as file:
            return file.read(_MODE.stop)[_MODE] == _ROLLBACK  # of another mode, whoever reads it leaves files beside it
    except OSError:
        return False


def fits(directory: Path, connection: sqlite3.Connection) -> bool:
    """Whether an index has the tables of this version, is whole, and names nothing but places in the run's own log.

    Raises:
        sqlite3.Error: it is no index.
    """
    if connection.execute("PRAGMA user_version").fetchone()[0] != tables.VERSION:
        return False
    if _schema(connection) != _sound_schema():
        return False
    if connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
        return False
    there = set(log.segments(directory))
    for name, consumed, lines in connection.execute("SELECT name, consumed, lines FROM segments"):
        if name not in there or not (isinstance(consumed, int) and isinstance(lines, int)):
            return False
        if not 0 <= consumed <= log.size(directory, name):
            return False
    return not any(connection.execute(_elsewhere(table, to)).fetchone() for table, to in PLACES)


def found_by(event: Event | None) -> tuple[object, ...]:
    """What the index finds an event by, as the index keeps it; empty for events that it only counts."""
    match event:
        case StepRecorded(trajectory=trajectory, attempt=attempt, step=step):
            return clean(trajectory), attempt, step.index
        case EpisodeStarted() | EpisodeFinished():
            return clean(event.trajectory), event.attempt
        case LabelRecorded(label=label):
            return clean(label.trajectory), clean(label.maker)
        case TextRecorded(hash=hash):
            return (clean(hash),)
        case _:
            return ()


def _is_regular(path: Path) -> bool:
    """Whether a file, no link and no pipe, is there; or nothing is."""
    try:
        return S_ISREG(path.lstat().st_mode)
    except OSError:
        return True


def _elsewhere(table: str, to: str) -> str:
    """Finds a row whose place is not in what is indexed of the log."""
    given = "end_segment IS NOT NULL" if to == "end_" else "TRUE"  # an episode may not have ended
    return _ELSEWHERE.format(table=table, to=to, given=given)


def _schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Every table and index as it was declared: one spoilt byte can rename a column without anything else to see."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()


@functools.cache
def _sound_schema() -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(tables.SCHEMA)
        return _schema(connection)
