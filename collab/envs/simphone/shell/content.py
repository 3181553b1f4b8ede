"""`content`: the phone's content providers from the command line.

What the content providers show: messages, contacts, settings, downloads.

Columns are those of Android 13 that tools read, in the order in which it prints them.

The contacts provider's tables as `content` shows and changes them.

A contact is made as tools make one: a row of raw_contacts, then rows of data with its name and its number.

`sqlite3`: SQL on the phone's databases from the command line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from collab.envs.simphone.apps.settings import forget
from collab.envs.simphone.content.messages import (
    INBOX,
    SENT,
    SMS,
    add_message,
    change_messages,
    list_conversations,
    remove_messages,
)
from collab.envs.simphone.content.people import (
    DATA,
    MIMETYPES,
    NAME,
    PHONE,
    RAW_CONTACTS,
    add_raw_contact,
    count_number,
    ensure_mimetype,
    extract_digits,
    format_last_first,
    list_people,
    remove_person,
    rename_raw_contact,
)
from collab.envs.simphone.shell import tree
from collab.envs.simphone.shell.session import Output, ShellSession, split_flags
from collab.envs.simphone.shell.tree import open_database, split_statements
from collab.envs.simphone.state import ROOT, Phone, TableRow, insert, put_setting, remove, rows, to_whole
from collab.types import Scalar

CONTACT_COLUMNS = (
    *("last_time_contacted", "pinned", "photo_id", "display_name_alt", "in_visible_group", "starred"),
    *("has_phone_number", "display_name_source", "lookup", "contact_last_updated_timestamp", "display_name"),
    *("sort_key", "times_contacted", "_id", "name_raw_contact_id"),
)
RAW_COLUMNS = (
    *("_id", "contact_id", "account_name", "account_type", "display_name", "display_name_alt", "starred", "deleted"),
    "version",
)
DATA_COLUMNS = (
    *("_id", "raw_contact_id", "contact_id", "mimetype", "display_name", "is_primary", "is_super_primary"),
    *("data1", "data2", "data3", "data4"),
)
PHONE_COLUMNS = (*DATA_COLUMNS, "lookup", "starred")
LEGACY_PHONE_COLUMNS = (
    *("_id", "person", "display_name", "name", "number", "number_key", "type", "label", "isprimary"),
    *("data1", "contact_id"),
)
_STRUCTURED = 40
"""display_name_source of a name."""


def list_contacts(phone: Phone) -> list[TableRow]:
    """List all contacts, by name."""
    return [
        {
            **dict.fromkeys(CONTACT_COLUMNS),
            **{"last_time_contacted": 0, "pinned": 0, "in_visible_group": 1, "starred": 0, "times_contacted": 0},
            "display_name_alt": format_last_first(one.first, one.last) or one.name,
            "has_phone_number": int(bool(one.number)),
            "display_name_source": _STRUCTURED,
            "lookup": _build_lookup(one.id),
            "contact_last_updated_timestamp": phone.now_ms,
            "display_name": one.name,
            "sort_key": one.name,
            "_id": one.id,
            "name_raw_contact_id": one.id,
        }
        for one in list_people(phone)
    ]


def list_raw_contacts(phone: Phone) -> list[TableRow]:
    """Return the rows that contacts are made of, one each here."""
    return [{**RAW_CONTACTS.defaults, **row} for row in rows(phone, RAW_CONTACTS)]


def list_data(phone: Phone) -> list[TableRow]:
    """Return names and numbers."""
    names = {row["_id"]: row["display_name"] for row in rows(phone, RAW_CONTACTS)}
    kinds = {row["_id"]: row["mimetype"] for row in rows(phone, MIMETYPES)}
    return [
        {
            **DATA.defaults,
            **row,
            "mimetype": kinds.get(row["mimetype_id"]),
            "contact_id": row["raw_contact_id"],
            "display_name": names.get(row["raw_contact_id"]),
        }
        for row in rows(phone, DATA)
    ]


def list_phones(phone: Phone) -> list[TableRow]:
    """List numbers, by the name of their owner."""
    found = [
        {**row, "lookup": _build_lookup(row["raw_contact_id"]), "starred": 0}
        for row in list_data(phone)
        if row["mimetype"] == PHONE
    ]
    return sorted(found, key=lambda row: str(row["display_name"]).casefold())


def list_legacy_phones(phone: Phone) -> list[TableRow]:
    """Return numbers in the columns of the provider before ContactsContract, which AndroidWorld reads."""
    return [
        {
            **{"_id": row["_id"], "person": row["contact_id"], "contact_id": row["contact_id"]},
            **{"display_name": row["display_name"], "name": row["display_name"]},
            **{
                "number": row["data1"],
                "data1": row["data1"],
                "number_key": extract_digits(str(row["data1"] or ""))[::-1],
            },
            **{"type": row["data2"], "label": row["data3"], "isprimary": row["is_primary"]},
        }
        for row in list_phones(phone)
    ]


def _build_lookup(id: Scalar) -> str:
    return f"0r{id}"


# ------------------------------------------------------------------------------------------------------------ changes


def insert_raw_contact(phone: Phone, values: dict[str, Scalar]) -> Phone:
    """Add a contact without a name yet; the account it is for does not matter here."""
    name = str(values.get("display_name") or "")
    return add_raw_contact(phone, name, name)[0]


def insert_data(phone: Phone, values: dict[str, Scalar]) -> Phone:
    """Add a name or a number; a whole name is split, parts of one are put together.

    Raises:
        sqlite3.IntegrityError: its contact or its kind is missing.
    """
    owner, kind = values.get("raw_contact_id"), values.get("mimetype")
    # As the database itself refuses it: a row needs its owner and its kind.
    if not isinstance(owner, int) or not kind:
        raise sqlite3.IntegrityError(f"NOT NULL constraint failed: data.{'mimetype_id' if owner else 'raw_contact_id'}")
    known: dict[str, Scalar] = {
        name: value for name, value in values.items() if name in DATA.names and value is not None
    }
    if kind == NAME:
        # A whole name is split, and parts are put together, as the provider does.
        known |= _split_name(known)
        phone = rename_raw_contact(phone, owner, str(known["data1"]), _swap_kind(known))
    phone, known["mimetype_id"] = ensure_mimetype(phone, str(kind))
    phone, _ = insert(phone, DATA, **known)
    return count_number(phone, owner)


def _split_name(known: TableRow) -> dict[str, Scalar]:
    """Return a name as a whole and in parts."""
    parts = (str(known.get("data2") or ""), str(known.get("data3") or ""))
    full = str(known.get("data1") or "") or " ".join(filter(None, parts))
    first, _, last = full.partition(" ")
    return {"data1": full, "data2": parts[0] or first, "data3": parts[1] or ("" if parts[0] else last)}


def _swap_kind(named: TableRow) -> str:
    return format_last_first(str(named["data2"]), str(named["data3"])) or str(named["data1"])


def delete_data(phone: Phone, ids: set[int]) -> Phone:
    """Take names and numbers away."""
    owners = {row["raw_contact_id"] for row in rows(phone, DATA) if row["_id"] in ids}
    phone = remove(phone, DATA, lambda row: row["_id"] in ids)
    for owner in owners:
        phone = count_number(phone, to_whole(owner))
    return phone


def delete_contacts(phone: Phone, ids: set[int]) -> Phone:
    """Take contacts away with all that belongs to them."""
    for id in ids:
        phone = remove_person(phone, id)
    return phone


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Table behind a content URI."""

    rows: Callable[[Phone], list[TableRow]]
    columns: tuple[str, ...]
    """In the order in which they are printed."""
    order: str = ""
    delete: Callable[[Phone, set[int]], Phone] | None = None
    """Removes the rows with these `_id`s; None when the provider is only read."""
    update: Callable[[Phone, set[int], dict[str, Scalar]], Phone] | None = None
    insert: Callable[[Phone, dict[str, Scalar]], Phone] | None = None


# ------------------------------------------------------------------------------------------------------------ messages


_SMS_BOXES: dict[str, tuple[int, ...]] = {
    "": (),
    "inbox": (INBOX,),
    "sent": (SENT,),
    "draft": (3,),
    "outbox": (4,),
    "failed": (5,),
}


def _list_messages(phone: Phone, types: tuple[int, ...]) -> list[TableRow]:
    return [{**SMS.defaults, **row} for row in rows(phone, SMS) if not types or row["type"] in types]


def _list_threads(phone: Phone) -> list[TableRow]:
    return [
        {"thread_id": one.thread, "msg_count": len(one.messages), "snippet": one.latest["body"]}
        for one in list_conversations(phone)
    ]


def _delete_messages(phone: Phone, ids: set[int]) -> Phone:
    return remove_messages(phone, lambda row: row["_id"] in ids)


def _update_messages(phone: Phone, ids: set[int], values: dict[str, Scalar]) -> Phone:
    known = {name: value for name, value in values.items() if name in SMS.names}
    return change_messages(phone, lambda row: row["_id"] in ids, **known)


def _insert_message(phone: Phone, values: dict[str, Scalar]) -> Phone:
    return add_message(
        phone,
        str(values.get("address") or ""),
        str(values.get("body") or ""),
        _parse_int(values.get("type"), INBOX),
        date=_parse_int(values.get("date"), phone.now_ms),
        read=bool(_parse_int(values.get("read"), 0)),
    )


def _parse_int(value: Scalar, default: int) -> int:
    return value if isinstance(value, int) else default


# ------------------------------------------------------------------------------------------------------------ settings


def _list_settings(phone: Phone, table: str) -> list[TableRow]:
    names = sorted(name for name in phone.settings if name.startswith(table))
    return [
        {"_id": place, "name": name.removeprefix(table), "value": phone.settings[name]}
        for place, name in enumerate(names, 1)
    ]


def _put_setting(phone: Phone, values: dict[str, Scalar], table: str) -> Phone:
    name, value = values.get("name"), values.get("value")
    return put_setting(phone, f"{table}{name}", "" if value is None else str(value)) if name else phone


def _delete_settings(phone: Phone, ids: set[int], table: str) -> Phone:
    for row in _list_settings(phone, table):
        if row["_id"] in ids:
            phone = forget(phone, f"{table}{row['name']}")
    return phone


# ----------------------------------------------------------------------------------------------------------- downloads


def _list_downloads(phone: Phone) -> list[TableRow]:
    return [
        {"_id": place, "_data": path, "_display_name": path.rpartition("/")[2]}
        for place, (path, entry) in enumerate(sorted(phone.files.items()), 1)
        if path.startswith(f"{ROOT}/Download/") and entry.content is not None
    ]


def _delete_downloads(phone: Phone, ids: set[int]) -> Phone:
    for row in _list_downloads(phone):
        if row["_id"] in ids:
            phone = tree.delete(phone, str(row["_data"]))
    return phone


# ------------------------------------------------------------------------------------------------------ all of them


_PHONES = Provider(rows=list_phones, columns=PHONE_COLUMNS, delete=delete_data)
_LEGACY_PHONES = Provider(rows=list_legacy_phones, columns=LEGACY_PHONE_COLUMNS, delete=delete_data)
_PEOPLE = Provider(rows=list_contacts, columns=CONTACT_COLUMNS, delete=delete_contacts)
PROVIDERS: dict[str, Provider] = {
    **{
        f"sms/{box}".rstrip("/"): Provider(
            rows=partial(_list_messages, types=types),
            columns=SMS.names,
            order="date DESC",
            delete=_delete_messages,
            update=_update_messages,
            insert=_insert_message,
        )
        for box, types in _SMS_BOXES.items()
    },
    "sms/conversations": Provider(rows=_list_threads, columns=("thread_id", "msg_count", "snippet")),
    "contacts/phones": _LEGACY_PHONES,
    "com.android.contacts/data/phones": _PHONES,
    "contacts/people": _PEOPLE,
    "com.android.contacts/contacts": _PEOPLE,
    "com.android.contacts/raw_contacts": Provider(
        rows=list_raw_contacts,
        columns=RAW_COLUMNS,
        delete=delete_contacts,
        insert=insert_raw_contact,
    ),
    "com.android.contacts/data": Provider(rows=list_data, columns=DATA_COLUMNS, delete=delete_data, insert=insert_data),
    **{
        f"settings/{name}": Provider(
            rows=partial(_list_settings, table=f"{name}/"),
            columns=("_id", "name", "value"),
            delete=partial(_delete_settings, table=f"{name}/"),
            insert=partial(_put_setting, table=f"{name}/"),
        )
        for name in ("system", "secure", "global")
    },
    "call_log/calls": Provider(rows=lambda phone: [], columns=("_id", "number", "date", "duration", "type", "name")),
    "media/external/downloads": Provider(
        rows=_list_downloads, columns=("_id", "_data", "_display_name"), delete=_delete_downloads
    ),
}
"""By URI without its scheme."""


_COMMANDS = {".tables": "name", ".schema": "sql || ';'"}
"""Commands that list tables, and what they say of each."""


def sqlite(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Run SQL on a database file of the phone; a file that is not there is a new database."""
    flags, rest = split_flags(args)
    if not rest:
        return Output(err="sqlite3: no database given\n", code=1)
    path, sql = session.path(rest[0]), " ".join(rest[1:]) or stdin
    found = tree.find_info(session.phone, path)
    before = tree.read_bytes(session.phone, path) if found is not None else b""
    out: list[str] = []
    err = ""
    # The file is a database of its own: it is opened in memory and written back as a whole.
    with open_database(before) as connection:
        changes = connection.total_changes
        schema = _read_schema_version(connection)
        try:
            for statement in split_statements(sql):
                out += _format_answers(connection, statement.strip(), header="header" in flags)
        except (sqlite3.Error, OverflowError, UnicodeError, sqlite3.Warning) as problem:
            err = f"Error: {problem}\n"
        # Only if something changed: reading must not touch the file.
        if connection.total_changes != changes or _read_schema_version(connection) != schema:
            session.phone = tree.write_bytes(session.phone, path, connection.serialize())
    return Output("".join(out), err, int(bool(err)))


def _read_schema_version(connection: sqlite3.Connection) -> int:
    try:
        return int(connection.execute("PRAGMA schema_version").fetchone()[0])
    except sqlite3.Error:  # no database: the first real statement says so
        return -1


def _format_answers(connection: sqlite3.Connection, statement: str, *, header: bool) -> Iterable[str]:
    """Return lines as the command-line tool prints them: columns joined by a bar, null as nothing."""
    if statement.startswith("."):
        if statement == ".dump":
            yield from (f"{line}\n" for line in connection.iterdump())
            return
        statement = _translate_to_sql(statement)
    cursor = connection.execute(statement)
    if header and cursor.description:
        yield "|".join(column[0] for column in cursor.description) + "\n"
    for values in cursor:
        yield "|".join(format_value(value, "") for value in values) + "\n"


def _translate_to_sql(command: str) -> str:
    """Return the statement behind a command of the tool itself; sqlite3.OperationalError for one that is not here."""
    name, *rest = command.split()
    if name not in _COMMANDS or len(rest) > 1:
        raise sqlite3.OperationalError(f'unknown command or invalid arguments:  "{name[1:]}"')
    wanted = "'" + rest[0].replace("'", "''") + "'" if rest else "'%'"
    return (
        f"SELECT {_COMMANDS[name]} FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        f"AND name LIKE {wanted} ORDER BY name"
    )


def format_value(value: object, null: str) -> str:
    """Return a value as text; `null` for none."""
    if value is None:
        return null
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@dataclass(slots=True)
class _ProviderRequest:
    uri: str = ""
    projection: list[str] = field(default_factory=list)
    where: str = ""
    sort: str = ""
    values: dict[str, Scalar] = field(default_factory=dict)


def content(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Query, insert, update and delete rows of content providers."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    request = _request(rest)
    name = request.uri.removeprefix("content://").partition("?")[0].rstrip("/")
    base, _, last = name.rpartition("/")
    # A number at the end of an address means one row.
    if last.isdecimal() and len(last) < 16:
        name, request.where = base, f"_id = {last}" + (f" AND ({request.where})" if request.where else "")
    provider = PROVIDERS.get(name)
    if provider is None:
        return Output(err=f"Error while accessing provider:{name.partition('/')[0]}\nCould not find provider\n", code=1)
    try:
        return _perform(session, verb, provider, request)
    except (sqlite3.Error, OverflowError, UnicodeError) as problem:
        return Output(err=f"Error while accessing provider:{name.partition('/')[0]}\n{problem}\n", code=1)


def _request(args: list[str]) -> _ProviderRequest:
    request = _ProviderRequest()
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
            request.values[name] = _convert_bound(kind, text)
    return request


def _convert_bound(kind: str, text: str) -> Scalar:
    if kind in ("i", "l"):
        return int(text) if text.lstrip("-").isdecimal() and text.isascii() and len(text) < 19 else 0
    if kind == "b":
        return text == "true"
    return None if kind == "n" else text


def _perform(session: ShellSession, verb: str, provider: Provider, request: _ProviderRequest) -> Output:
    phone = session.phone
    if verb == "query":
        return Output(_run_query(provider, phone, request))
    if verb == "insert" and provider.insert is not None:
        session.phone = provider.insert(phone, request.values)
    elif verb == "update" and provider.update is not None:
        session.phone = provider.update(phone, _select_ids(provider, phone, request), request.values)
    elif verb == "delete":
        ids = _select_ids(provider, phone, request)
        # A provider without deletion refuses, but only where something would be deleted.
        if ids and provider.delete is None:
            return Output(err="Error while accessing provider\njava.lang.UnsupportedOperationException\n", code=1)
        session.phone = provider.delete(phone, ids) if provider.delete is not None else phone
    else:
        return Output(err=f"[ERROR] Unsupported operation: {verb or 'none'}\n", code=1)
    return Output()


def _run_query(provider: Provider, phone: Phone, request: _ProviderRequest) -> str:
    names = [name for name in request.projection or provider.columns if name]
    chosen = ", ".join(f'"{name}"' if name in provider.columns else name for name in names)
    found = _select_rows(provider, phone, request, chosen, request.sort or provider.order)
    lines = [
        f"Row: {place} "
        + ", ".join(f"{name}={format_value(value, 'NULL')}" for name, value in zip(names, values, strict=True))
        for place, values in enumerate(found)
    ]
    return "".join(line + "\n" for line in lines) or "No result found.\n"


def _select_ids(provider: Provider, phone: Phone, request: _ProviderRequest) -> set[int]:
    return {int(str(values[0])) for values in _select_rows(provider, phone, request, '"_id"', "")}


def _select_rows(
    provider: Provider, phone: Phone, request: _ProviderRequest, chosen: str, order: str
) -> list[tuple[object, ...]]:
    """Select rows from what the provider shows; foreign SQL runs on this table only."""
    columns = ", ".join(f'"{name}"' for name in provider.columns)
    with open_database() as connection:
        connection.execute(f"CREATE TABLE shown ({columns})")
        marks = ", ".join("?" * len(provider.columns))
        values = [[row.get(name) for name in provider.columns] for row in provider.rows(phone)]
        connection.executemany(f"INSERT INTO shown VALUES ({marks})", values)
        where = f" WHERE {request.where}" if request.where else ""
        return connection.execute(
            f"SELECT {chosen} FROM shown{where}" + (f" ORDER BY {order}" if order else "")
        ).fetchall()
