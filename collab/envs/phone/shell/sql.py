"""`sqlite3`: SQL on the phone's databases from the command line."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from collab.envs.phone.shell import tree
from collab.envs.phone.shell.arguments import split_flags
from collab.envs.phone.shell.sandbox import database, statements
from collab.envs.phone.shell.session import Done, Session

_COMMANDS = {".tables": "name", ".schema": "sql || ';'"}
"""Commands that list tables, and what they say of each."""


def sqlite(session: Session, args: list[str], stdin: str) -> Done:
    """Run SQL on a database file of the phone; a file that is not there is a new database."""
    flags, rest = split_flags(args)
    if not rest:
        return Done(err="sqlite3: no database given\n", code=1)
    path, sql = session.path(rest[0]), " ".join(rest[1:]) or stdin
    found = tree.info(session.phone, path)
    before = tree.read_bytes(session.phone, path) if found is not None else b""
    out: list[str] = []
    err = ""
    with database(before) as connection:
        changes = connection.total_changes
        schema = _schema_version(connection)
        try:
            for statement in statements(sql):
                out += _answers(connection, statement.strip(), header="header" in flags)
        except (sqlite3.Error, OverflowError, UnicodeError, sqlite3.Warning) as problem:
            err = f"Error: {problem}\n"
        if connection.total_changes != changes or _schema_version(connection) != schema:
            session.phone = tree.write_bytes(session.phone, path, connection.serialize())
    return Done("".join(out), err, int(bool(err)))


def _schema_version(connection: sqlite3.Connection) -> int:
    try:
        return int(connection.execute("PRAGMA schema_version").fetchone()[0])
    except sqlite3.Error:  # no database: the first real statement says so
        return -1


def _answers(connection: sqlite3.Connection, statement: str, *, header: bool) -> Iterable[str]:
    """Lines as the command-line tool prints them: columns joined by a bar, null as nothing."""
    if statement.startswith("."):
        if statement == ".dump":
            yield from (f"{line}\n" for line in connection.iterdump())
            return
        statement = _in_sql(statement)
    cursor = connection.execute(statement)
    if header and cursor.description:
        yield "|".join(column[0] for column in cursor.description) + "\n"
    for values in cursor:
        yield "|".join(printed(value, "") for value in values) + "\n"


def _in_sql(command: str) -> str:
    """The statement behind a command of the tool itself; sqlite3.OperationalError for one that is not here."""
    name, *rest = command.split()
    if name not in _COMMANDS or len(rest) > 1:
        raise sqlite3.OperationalError(f'unknown command or invalid arguments:  "{name[1:]}"')
    wanted = "'" + rest[0].replace("'", "''") + "'" if rest else "'%'"
    return (
        f"SELECT {_COMMANDS[name]} FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        f"AND name LIKE {wanted} ORDER BY name"
    )


def printed(value: object, null: str) -> str:
    """A value as text; `null` for none."""
    if value is None:
        return null
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
