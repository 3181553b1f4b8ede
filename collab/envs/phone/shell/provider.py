"""`content`: the phone's content providers from the command line."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from collab.envs.phone.apps import STANDARD
from collab.envs.phone.databases import remove, rows, update
from collab.envs.phone.people import CONTACTS_DATABASE, people
from collab.envs.phone.shell import tree
from collab.envs.phone.shell.sandbox import database
from collab.envs.phone.shell.session import Done, Session
from collab.envs.phone.shell.sql import printed
from collab.envs.phone.state import Phone, Row
from collab.envs.phone.storage import ROOT
from collab.envs.phone.texts import INBOX, SENT, SMS, add_message
from collab.types import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class _Provider:
    """What a content URI shows."""

    rows: Callable[[Phone], list[Row]]
    columns: tuple[str, ...]
    """In the order in which they are printed."""
    order: str = ""
    delete: Callable[[Phone, set[int]], Phone] | None = None
    """Removes the rows with these `_id`s; None when the provider is only read."""
    update: Callable[[Phone, set[int], dict[str, Scalar]], Phone] | None = None
    insert: Callable[[Phone, dict[str, Scalar]], Phone] | None = None


_SMS_COLUMNS = (
    *("_id", "thread_id", "address", "person", "date", "date_sent", "protocol", "read", "status", "type"),
    *("reply_path_present", "subject", "body", "service_center", "locked", "sub_id", "error_code", "creator", "seen"),
)
_SMS_DEFAULTS: dict[str, Scalar] = {"date_sent": 0, "status": -1, "locked": 0, "sub_id": 1, "error_code": -1}
_SMS_BOXES: dict[str, tuple[int, ...]] = {
    "": (),
    "inbox": (INBOX,),
    "sent": (SENT,),
    "draft": (3,),
    "outbox": (4,),
    "failed": (5,),
}


def _messages(types: tuple[int, ...]) -> Callable[[Phone], list[Row]]:
    def found(phone: Phone) -> list[Row]:
        return [
            {**dict.fromkeys(_SMS_COLUMNS), **_SMS_DEFAULTS, "seen": row["read"], **row}
            for row in rows(phone, SMS)
            if not types or row["type"] in types
        ]

    return found


def _delete_messages(phone: Phone, ids: set[int]) -> Phone:
    return remove(phone, SMS, lambda row: row["_id"] in ids)


def _update_messages(phone: Phone, ids: set[int], values: dict[str, Scalar]) -> Phone:
    known = {name: value for name, value in values.items() if name in {column for column, _ in SMS.columns}}
    return update(phone, SMS, lambda row: row["_id"] in ids, **known)


def _insert_message(phone: Phone, values: dict[str, Scalar]) -> Phone:
    return add_message(
        phone,
        str(values.get("address") or ""),
        str(values.get("body") or ""),
        _int(values.get("type"), INBOX),
        date=_int(values.get("date"), phone.now_ms),
        read=bool(_int(values.get("read"), 0)),
    )


def _int(value: Scalar, default: int) -> int:
    return value if isinstance(value, int) else default


def _numbers(phone: Phone) -> list[Row]:
    return [
        {
            "_id": one.id,
            "display_name": one.name,
            "name": one.name,
            "number": one.number,
            "data1": one.number,
            "type": 2,
            "label": None,
            "contact_id": one.id,
        }
        for one in people(phone)
        if one.number
    ]


def _contacts(phone: Phone) -> list[Row]:
    return [
        {"_id": one.id, "display_name": one.name, "has_phone_number": int(bool(one.number))} for one in people(phone)
    ]


def _database_rows(path: str, table: str) -> Callable[[Phone], list[Row]]:
    return lambda phone: list(phone.rows.get((path, table), ()))


def _columns_of(path: str, table: str) -> tuple[str, ...]:
    return next((tuple(name for name, _ in one.columns) for one in STANDARD.tables[path] if one.name == table), ())


def _downloads(phone: Phone) -> list[Row]:
    return [
        {"_id": place, "_data": path, "_display_name": path.rpartition("/")[2]}
        for place, (path, entry) in enumerate(sorted(phone.files.items()), 1)
        if path.startswith(f"{ROOT}/Download/") and entry.content is not None
    ]


def _delete_downloads(phone: Phone, ids: set[int]) -> Phone:
    for row in _downloads(phone):
        if row["_id"] in ids:
            phone = tree.delete(phone, str(row["_data"]))
    return phone


_PHONES = _Provider(
    rows=_numbers, columns=("_id", "display_name", "name", "number", "data1", "type", "label", "contact_id")
)
_PEOPLE = _Provider(rows=_contacts, columns=("_id", "display_name", "has_phone_number"))
_PROVIDERS: dict[str, _Provider] = {
    **{
        f"sms/{box}".rstrip("/"): _Provider(
            rows=_messages(types),
            columns=_SMS_COLUMNS,
            order="date DESC",
            delete=_delete_messages,
            update=_update_messages,
            insert=_insert_message,
        )
        for box, types in _SMS_BOXES.items()
    },
    "contacts/phones": _PHONES,
    "com.android.contacts/data/phones": _PHONES,
    "contacts/people": _PEOPLE,
    "com.android.contacts/contacts": _PEOPLE,
    **{
        f"com.android.contacts/{name}": _Provider(
            rows=_database_rows(CONTACTS_DATABASE, name), columns=_columns_of(CONTACTS_DATABASE, name)
        )
        for name in ("raw_contacts", "data")
    },
    "call_log/calls": _Provider(rows=lambda phone: [], columns=("_id", "number", "date", "duration", "type")),
    "media/external/downloads": _Provider(
        rows=_downloads, columns=("_id", "_data", "_display_name"), delete=_delete_downloads
    ),
}


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
    provider = _PROVIDERS.get(name)
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


def _perform(session: Session, verb: str, provider: _Provider, request: _Request) -> Done:
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


def _queried(provider: _Provider, phone: Phone, request: _Request) -> str:
    names = [name for name in request.projection or provider.columns if name]
    chosen = ", ".join(f'"{name}"' if name in provider.columns else name for name in names)
    found = _selected(provider, phone, request, chosen, request.sort or provider.order)
    lines = [
        f"Row: {place} "
        + ", ".join(f"{name}={printed(value, 'NULL')}" for name, value in zip(names, values, strict=True))
        for place, values in enumerate(found)
    ]
    return "".join(line + "\n" for line in lines) or "No result found.\n"


def _ids(provider: _Provider, phone: Phone, request: _Request) -> set[int]:
    return {int(str(values[0])) for values in _selected(provider, phone, request, '"_id"', "")}


def _selected(
    provider: _Provider, phone: Phone, request: _Request, chosen: str, order: str
) -> list[tuple[object, ...]]:
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
