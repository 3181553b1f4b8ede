"""The phone's file system as shells and adb see it: shared storage, app folders, and databases as files.

Everything is computed from the immutable phone; no path ever reaches the machine this runs on. File content that is
no text keeps its bytes: they are stored as escaped half characters and come back unchanged.

SQLite on bytes in memory, for statements that come from outside.

Nothing outside the given database can be reached: no other file can be attached, written to or used for temporary
data, and a statement that runs too long is stopped.
"""

from __future__ import annotations

import posixpath
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

from collab.envs.simphone.app import Apps
from collab.envs.simphone.state import ROOT, START_MS, Phone, Table, TableRow, compact_row, dump
from collab.envs.simphone.state import delete as delete_entry
from collab.envs.simphone.state import make_folder as make_entry
from collab.envs.simphone.state import write as write_entry
from collab.types import Scalar

_STEPS = 5_000_000
"""Virtual machine instructions of one connection, about half a second."""
_PRAGMAS = frozenset(
    {"table_info", "user_version", "integrity_check", "schema_version", "foreign_keys", "encoding", "page_count"}
)
"""Those that only read; `serialize` itself asks for the page count of a new database."""


@contextmanager
def open_database(data: bytes = b"") -> Iterator[sqlite3.Connection]:
    """Yield a connection to the database with these bytes (an empty one for none); every statement commits by itself.

    Raises:
        sqlite3.DatabaseError: on the first statement, when the bytes are no database.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        if data:
            connection.deserialize(disable_wal(data))
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 32 * 1024 * 1024)
        connection.set_authorizer(_authorise)
        rounds = iter(range(_STEPS // 100_000))
        connection.set_progress_handler(lambda: 0 if next(rounds, None) is not None else 1, 100_000)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection


def split_statements(sql: str) -> Iterator[str]:
    """Yield the single statements of a text."""
    start = 0
    for place, letter in enumerate(sql):
        if letter == ";" and sqlite3.complete_statement(sql[start : place + 1]):
            yield sql[start : place + 1]
            start = place + 1
    if sql[start:].strip():
        yield sql[start:]


def disable_wal(data: bytes) -> bytes:
    """Return the same database in journal mode: one in memory cannot have a write-ahead log."""
    return data[:18] + b"\x01\x01" + data[20:] if data[18:20] == b"\x02\x02" else data


def _authorise(action: int, first: str | None, *rest: str | None) -> int:
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() not in _PRAGMAS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (rest[0] or "").lower() == "load_extension":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


MAX_FILE_BYTES = 64 * 1024 * 1024
_ALIASES = {
    "/sdcard": ROOT,
    "/mnt/sdcard": ROOT,
    "/storage/self/primary": ROOT,
    "/data/media/0": ROOT,
    "/data/user/0": "/data/data",
}
_WRITABLE = (ROOT, "/data/data", "/data/local/tmp")


@lru_cache(maxsize=16)
def _list_folders(apps: Apps) -> frozenset[str]:
    """Return folders that are always there."""
    paths = {"/", "/dev", "/proc", "/system/bin", "/data/local/tmp", "/storage/emulated/0"}
    paths |= {f"/data/data/{app.package}/{name}" for app in apps.all for name in ("cache", "files", "databases")}
    paths |= {posixpath.dirname(path) for path in apps.tables}
    for path in tuple(paths):
        while path != "/":
            path = posixpath.dirname(path)
            paths.add(path)
    return frozenset(paths)


class TreeProblem(Exception):
    """A path that cannot be used; the message is what the system says ("No such file or directory")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Facts that `stat` prints."""

    path: str
    folder: bool
    size: int
    """In bytes."""
    changed_ms: int


def normalise(path: str, cwd: str = "/") -> str:
    """Return the absolute path, without aliases; `..` ends at the root."""
    path = posixpath.normpath("/" + posixpath.join(cwd, path).lstrip("/"))
    for alias, real in _ALIASES.items():
        if path == alias or path.startswith(alias + "/"):
            return real + path[len(alias) :]
    return path


def find_info(phone: Phone, path: str) -> Info | None:
    """Return what lies at a normal path; None when there is nothing."""
    if path in phone.apps.tables:
        return Info(path=path, folder=False, size=len(_dump_tables(phone, path)), changed_ms=phone.now_ms)
    entry = phone.files.get(path)
    if entry is not None:
        size = 4096 if entry.content is None else len(encode(entry.content))
        return Info(path=path, folder=entry.content is None, size=size, changed_ms=entry.changed_ms)
    if path in _list_folders(phone.apps) or any(name.startswith(path.rstrip("/") + "/") for name in phone.files):
        return Info(path=path, folder=True, size=4096, changed_ms=START_MS)
    return None


def is_folder(phone: Phone, path: str) -> bool:
    """Return whether there is a folder at a normal path."""
    found = find_info(phone, path)
    return found is not None and found.folder


def list_names(phone: Phone, folder: str) -> list[str]:
    """Return the names of what lies directly in a folder, sorted."""
    prefix = folder.rstrip("/") + "/"
    known = (*phone.files, *_list_folders(phone.apps), *phone.apps.tables)
    return sorted({path[len(prefix) :].partition("/")[0] for path in known if path.startswith(prefix)} - {""})


def walk(phone: Phone, path: str) -> list[str]:
    """Return the path and everything below it, folders before what is in them."""
    if not is_folder(phone, path):
        return [path]
    return [path, *(below for name in list_names(phone, path) for below in walk(phone, posixpath.join(path, name)))]


def read_bytes(phone: Phone, path: str) -> bytes:
    """Return the content of a file.

    Raises:
        TreeProblem: it is missing or a folder.
    """
    found = find_info(phone, path)
    if found is None:
        raise TreeProblem("No such file or directory")
    if found.folder:
        raise TreeProblem("Is a directory")
    return _dump_tables(phone, path) if path in phone.apps.tables else encode(phone.files[path].content or "")


def write_bytes(phone: Phone, path: str, data: bytes, *, parents: bool = False) -> Phone:
    """Create or overwrite a file; a database takes over the rows it can read.

    Args:
        parents: create missing folders.

    Raises:
        TreeProblem: its folder is missing, it is a folder, or nothing may be written there.
    """
    _check_writable(path)
    if len(data) > MAX_FILE_BYTES:
        raise TreeProblem("No space left on device")
    if is_folder(phone, path):
        raise TreeProblem("Is a directory")
    if path in phone.apps.tables:
        return load_database(phone, path, data)
    folder = posixpath.dirname(path)
    if not is_folder(phone, folder):
        if not parents:
            raise TreeProblem("No such file or directory")
        phone = make_folder(phone, folder)
    return write_entry(phone, path, decode(data))


def make_folder(phone: Phone, path: str) -> Phone:
    """Create a folder and the ones above it; TreeProblem when a file is in the way or it is not allowed there."""
    if is_folder(phone, path):
        return phone
    _check_writable(path)
    above = path
    while above != "/":
        found = find_info(phone, above)
        if found is not None and not found.folder:
            raise TreeProblem("Not a directory" if above != path else "File exists")
        above = posixpath.dirname(above)
    return make_entry(phone, path)


def delete(phone: Phone, path: str) -> Phone:
    """Remove a file, or a folder with all that is in it; databases lose their rows, as apps make them anew."""
    _check_writable(path)
    gone = [base for base in phone.apps.tables if base == path or base.startswith(path + "/")]
    rows = {key: content for key, content in phone.rows.items() if key[0] not in gone}
    return delete_entry(replace(phone, rows=rows) if gone else phone, path)


def _check_writable(path: str) -> None:
    if not any(path.startswith(root + "/") for root in _WRITABLE):
        raise TreeProblem("Permission denied" if path.startswith(("/data", "/storage")) else "Read-only file system")


# ------------------------------------------------------------------------------------------------------ databases


def load_database(phone: Phone, path: str, data: bytes) -> Phone:
    """Replace a database by a file's content.

    As on Android, a broken database becomes a new, empty one. Missing tables are new, missing columns have their
    defaults, and values are read as the column's type.
    """
    tables = {(path, table.name): _load_rows(table, data) for table in phone.apps.tables[path]}
    return replace(phone, rows={**phone.rows, **tables})


def _load_rows(table: Table, data: bytes) -> tuple[TableRow, ...]:
    defaults = table.defaults
    optional = {
        name for name, value in defaults.items() if name not in (table.used or table.names) or value is not None
    }
    try:
        with open_database(data) as connection:
            there = {str(column[1]) for column in connection.execute(f'PRAGMA table_info("{table.name}")')}
            known = [(name, kind) for name, kind in table.columns if name in there or name not in optional]
            columns = [f"`{name}`" for name, _ in known]  # double quotes would read a missing one as its own name
            found = connection.execute(f'SELECT {", ".join(columns)} FROM "{table.name}" ORDER BY {columns[0]}')
            rows = [tuple(map(_read_as, values, (kind for _, kind in known))) for values in found]
    except (sqlite3.Error, OverflowError):
        return table.initial
    first = {values[0]: values for values in reversed(rows)}  # one row per key, as the real table has
    return tuple(
        compact_row({**defaults, **dict(zip((name for name, _ in known), first[key], strict=True))}, table)
        for key in sorted(first, key=lambda key: (str(type(key)), key))
    )


_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
"""Text that SQLite takes for a number."""


def _read_as(value: object, kind: str) -> Scalar:
    """Return a value as an app's cursor returns it: text of a number column counts as its leading digits, or as 0."""
    kind = kind.upper()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value is None and ("NOT NULL" in kind or "PRIMARY KEY" in kind):
        value = "" if kind.startswith("TEXT") else 0
    if isinstance(value, str) and kind.startswith("INT"):
        digits = value.strip()[:18]
        return int(digits) if digits.lstrip("-").isdecimal() and digits.isascii() else 0
    if isinstance(value, str) and kind.startswith("NUMERIC"):
        return float(value) if _NUMBER.fullmatch(value) else 0
    if isinstance(value, float) and kind.startswith("INT"):
        return int(value) if abs(value) < 2**63 else 0
    if isinstance(value, (int, float)) and kind.startswith("TEXT"):
        return str(value)
    return value if isinstance(value, (str, int, float)) else None


def _dump_tables(phone: Phone, path: str) -> bytes:
    return dump(phone, path, phone.apps.tables[path])


# ----------------------------------------------------------------------------------------------------------- text


def encode(text: str) -> bytes:
    """Return the text of a file as bytes; half characters that stand for no byte become question marks."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def decode(data: bytes) -> str:
    """Decode bytes to text that `encode` turns back into the same bytes."""
    return data.decode("utf-8", "surrogateescape")
