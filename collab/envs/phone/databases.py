"""Rows of the phone's databases, and the SQLite files other tools expect to find.

Apps work on plain rows: cheap to fork, cheap to compare. The bytes of a database exist only while somebody looks:
`dump` writes them in the real schema, `load` reads a changed file back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace

from collab.envs.phone.state import Phone, Row
from collab.types import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a database file."""

    path: str
    """Where Android keeps the database."""
    name: str
    columns: tuple[tuple[str, str], ...]
    """(column, SQL type and constraints) in the table's order; the first is the integer primary key."""
    used: tuple[str, ...] = ()
    """Columns that every row holds; empty: all. Of the others a row holds those that differ from their default."""
    initial: tuple[Row, ...] = field(default=(), hash=False)
    """What is in the table of a new phone."""

    @property
    def names(self) -> tuple[str, ...]:
        """All columns in the table's order."""
        return tuple(name for name, _ in self.columns)

    @property
    def defaults(self) -> dict[str, Scalar]:
        """What a column holds that nobody wrote: the whole number after DEFAULT, else null; null where all are used."""
        if not self.used:
            return dict.fromkeys(self.names)
        written = {name: kind.partition("DEFAULT ")[2] for name, kind in self.columns}
        return {name: int(default) if default else None for name, default in written.items()}

    @property
    def sql(self) -> str:
        """The statement that creates it."""
        return f"CREATE TABLE {self.name} ({', '.join(f'`{name}` {kind}' for name, kind in self.columns)})"


def rows(phone: Phone, table: Table) -> tuple[Row, ...]:
    """All rows, in order of their keys."""
    return phone.rows.get((table.path, table.name), table.initial)


def insert(phone: Phone, table: Table, **values: Scalar) -> tuple[Phone, int]:
    """Add a row; columns left out are null, unused ones at their default. Returns the phone and the key."""
    key = next_key(phone, table)
    row = {**dict.fromkeys(table.used or table.names), **values, table.columns[0][0]: key}
    return _put(phone, table, (*rows(phone, table), row)), key


def next_key(phone: Phone, table: Table) -> int:
    """Key of the row that is added next."""
    primary = table.columns[0][0]
    return max((int(row[primary] or 0) for row in rows(phone, table)), default=0) + 1


def fill(phone: Phone, table: Table, records: Iterable[Row]) -> Phone:
    """Replace all rows of a table by new ones with keys from 1 on; columns left out are null, unknown ones ignored."""
    primary, *names = (name for name, _ in table.columns)
    content = ({primary: key, **{name: record.get(name) for name in names}} for key, record in enumerate(records, 1))
    return _put(phone, table, tuple(content))


def update(phone: Phone, table: Table, matches: Callable[[Row], bool], **values: Scalar) -> Phone:
    """Change columns of all rows that match."""
    return _put(phone, table, tuple({**row, **values} if matches(row) else row for row in rows(phone, table)))


def remove(phone: Phone, table: Table, matches: Callable[[Row], bool]) -> Phone:
    """Delete all rows that match."""
    return _put(phone, table, tuple(row for row in rows(phone, table) if not matches(row)))


def dump(phone: Phone, path: str, tables: Iterable[Table]) -> bytes:
    """The database file at `path` as SQLite bytes, holding those of `tables` that belong to it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in tables:
            if table.path == path:
                connection.execute(table.sql)
                defaults = table.defaults
                marks = ", ".join("?" * len(defaults))
                values = [[row.get(name, default) for name, default in defaults.items()] for row in rows(phone, table)]
                connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", values)
        connection.commit()
        return connection.serialize()


def load(phone: Phone, path: str, data: bytes, tables: Iterable[Table]) -> Phone:
    """Take over the rows of an SQLite file.

    Raises:
        sqlite3.Error: the bytes are no database or a table is missing; the phone is unchanged.
    """
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        for table in tables:
            if table.path == path:
                names = table.names
                # Quoted by backticks, because columns may be called "order"; double quotes would accept missing ones.
                listed = ", ".join(f"`{name}`" for name in names)
                cursor = connection.execute(f"SELECT {listed} FROM {table.name} ORDER BY `{names[0]}`")
                found = (dict(zip(names, values, strict=True)) for values in cursor)
                phone = _put(phone, table, tuple(compact(row, table) for row in found))
        return phone


def compact(row: Row, table: Table) -> Row:
    """A row without the unused columns that are at their default."""
    if not table.used:
        return row
    defaults = table.defaults
    return {name: value for name, value in row.items() if name in table.used or value != defaults[name]}


def whole(value: object) -> int:
    """The whole number in a column; 0 for anything else, because a database pushed from outside may hold anything."""
    return int(value) if isinstance(value, int) else 0


def _put(phone: Phone, table: Table, content: tuple[Row, ...]) -> Phone:
    return replace(phone, rows={**phone.rows, (table.path, table.name): content})
