"""SQLite on bytes in memory, for statements that come from outside.

Nothing outside the given database can be reached: no other file can be attached, written to or used for temporary
data, and a statement that runs too long is stopped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

_STEPS = 5_000_000
"""Virtual machine instructions of one connection, about half a second."""
_PRAGMAS = frozenset(
    {"table_info", "user_version", "integrity_check", "schema_version", "foreign_keys", "encoding", "page_count"}
)
"""Those that only read; `serialize` itself asks for the page count of a new database."""


@contextmanager
def database(data: bytes = b"") -> Iterator[sqlite3.Connection]:
    """A connection to the database with these bytes (an empty one for none); every statement commits by itself.

    Raises:
        sqlite3.DatabaseError: on the first statement, when the bytes are no database.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        if data:
            connection.deserialize(without_wal(data))
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 32 * 1024 * 1024)
        connection.set_authorizer(_authorise)
        rounds = iter(range(_STEPS // 100_000))
        connection.set_progress_handler(lambda: 0 if next(rounds, None) is not None else 1, 100_000)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection


def statements(sql: str) -> Iterator[str]:
    """The single statements of a text."""
    start = 0
    for place, letter in enumerate(sql):
        if letter == ";" and sqlite3.complete_statement(sql[start : place + 1]):
            yield sql[start : place + 1]
            start = place + 1
    if sql[start:].strip():
        yield sql[start:]


def without_wal(data: bytes) -> bytes:
    """The same database in journal mode: one in memory cannot have a write-ahead log."""
    return data[:18] + b"\x01\x01" + data[20:] if data[18:20] == b"\x02\x02" else data


def _authorise(action: int, first: str | None, *rest: str | None) -> int:
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() not in _PRAGMAS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (rest[0] or "").lower() == "load_extension":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
