"""`content`: the phone's content providers from the command line."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from collab.envs.phone.shell.provided import PROVIDERS, Provider
from collab.envs.phone.shell.sandbox import database
from collab.envs.phone.shell.session import Done, Session
from collab.envs.phone.shell.sql import printed
from collab.envs.phone.state import Phone
from collab.types import Scalar


@dataclass(slots=True)
class _Request:
    uri: str = ""
    projection: list[str] = field(default_factory=list)
    where: str = ""
    sort: str = ""
    values: dict[str, Scalar] = field(default_factory=dict)


def content(session: Session, args: list[str], stdin: str) -> Done:
    """Query, insert, update and delete rows of content providers."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    request = _request(rest)
    name = request.uri.removeprefix("content://").partition("?")[0].rstrip("/")
    base, _, last = name.rpartition("/")
    if last.isdecimal() and len(last) < 16:
        name, request.where = base, f"_id = {last}" + (f" AND ({request.where})" if request.where else "")
    provider = PROVIDERS.get(name)
    if provider is None:
        return Done(err=f"Error while accessing provider:{name.partition('/')[0]}\nCould not find provider\n", code=1)
    try:
        return _perform(session, verb, provider, request)
    except (sqlite3.Error, OverflowError, UnicodeError) as problem:
        return Done(err=f"Error while accessing provider:{name.partition('/')[0]}\n{problem}\n", code=1)


def _request(args: list[str]) -> _Request:
    request = _Request()
    waiting = iter(args)
    for arg in waiting:
        value = next(waiting, "")
        if arg == "--uri":
            request.uri = value
        elif arg == "--projection":
            request.projection = value.split(":")
        elif arg == "--where":
            request.where = value
        elif arg == "--sort":
            request.sort = value
        elif arg == "--bind":
            name, _, typed = value.partition(":")
            kind, _, text = typed.partition(":")
            request.values[name] = _bound(kind, text)
    return request


def _bound(kind: str, text: str) -> Scalar:
    if kind in ("i", "l"):
        return int(text) if text.lstrip("-").isdecimal() and text.isascii() and len(text) < 19 else 0
    if kind == "b":
        return text == "true"
    return None if kind == "n" else text


def _perform(session: Session, verb: str, provider: Provider, request: _Request) -> Done:
    phone = session.phone
    if verb == "query":
        return Done(_queried(provider, phone, request))
    if verb == "insert" and provider.insert is not None:
        session.phone = provider.insert(phone, request.values)
    elif verb == "update" and provider.update is not None:
        session.phone = provider.update(phone, _ids(provider, phone, request), request.values)
    elif verb == "delete":
        ids = _ids(provider, phone, request)
        if ids and provider.delete is None:
            return Done(err="Error while accessing provider\njava.lang.UnsupportedOperationException\n", code=1)
        session.phone = provider.delete(phone, ids) if provider.delete is not None else phone
    else:
        return Done(err=f"[ERROR] Unsupported operation: {verb or 'none'}\n", code=1)
    return Done()


def _queried(provider: Provider, phone: Phone, request: _Request) -> str:
    names = [name for name in request.projection or provider.columns if name]
    chosen = ", ".join(f'"{name}"' if name in provider.columns else name for name in names)
    found = _selected(provider, phone, request, chosen, request.sort or provider.order)
    lines = [
        f"Row: {place} "
        + ", ".join(f"{name}={printed(value, 'NULL')}" for name, value in zip(names, values, strict=True))
        for place, values in enumerate(found)
    ]
    return "".join(line + "\n" for line in lines) or "No result found.\n"


def _ids(provider: Provider, phone: Phone, request: _Request) -> set[int]:
    return {int(str(values[0])) for values in _selected(provider, phone, request, '"_id"', "")}


def _selected(provider: Provider, phone: Phone, request: _Request, chosen: str, order: str) -> list[tuple[object, ...]]:
    """Rows of a SELECT over what the provider shows; all that comes from outside is SQL on this table only."""
    columns = ", ".join(f'"{name}"' for name in provider.columns)
    with database() as connection:
        connection.execute(f"CREATE TABLE shown ({columns})")
        marks = ", ".join("?" * len(provider.columns))
        values = [[row.get(name) for name in provider.columns] for row in provider.rows(phone)]
        connection.executemany(f"INSERT INTO shown VALUES ({marks})", values)
        where = f" WHERE {request.where}" if request.where else ""
        return connection.execute(
            f"SELECT {chosen} FROM shown{where}" + (f" ORDER BY {order}" if order else "")
        ).fetchall()
