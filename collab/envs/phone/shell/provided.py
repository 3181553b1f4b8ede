"""What the content providers show: messages, contacts, settings, downloads.

Columns are those of Android 13 that tools read, in the order in which it prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from collab.envs.phone.apps.settings import forget
from collab.envs.phone.databases import rows
from collab.envs.phone.shell import address_book as book
from collab.envs.phone.shell import tree
from collab.envs.phone.state import Phone, Row, put_setting
from collab.envs.phone.storage import ROOT
from collab.envs.phone.texts import INBOX, SENT, SMS, add_message, change_messages, conversations, remove_messages
from collab.types import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What a content URI shows."""

    rows: Callable[[Phone], list[Row]]
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


def _messages(phone: Phone, types: tuple[int, ...]) -> list[Row]:
    return [{**SMS.defaults, **row} for row in rows(phone, SMS) if not types or row["type"] in types]


def _threads(phone: Phone) -> list[Row]:
    return [
        {"thread_id": one.thread, "msg_count": len(one.messages), "snippet": one.latest["body"]}
        for one in conversations(phone)
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
        _int(values.get("type"), INBOX),
        date=_int(values.get("date"), phone.now_ms),
        read=bool(_int(values.get("read"), 0)),
    )


def _int(value: Scalar, default: int) -> int:
    return value if isinstance(value, int) else default


# ------------------------------------------------------------------------------------------------------------ settings


def _settings(phone: Phone, table: str) -> list[Row]:
    names = sorted(name for name in phone.settings if name.startswith(table))
    return [
        {"_id": place, "name": name.removeprefix(table), "value": phone.settings[name]}
        for place, name in enumerate(names, 1)
    ]


def _put_setting(phone: Phone, values: dict[str, Scalar], table: str) -> Phone:
    name, value = values.get("name"), values.get("value")
    return put_setting(phone, f"{table}{name}", "" if value is None else str(value)) if name else phone


def _delete_settings(phone: Phone, ids: set[int], table: str) -> Phone:
    for row in _settings(phone, table):
        if row["_id"] in ids:
            phone = forget(phone, f"{table}{row['name']}")
    return phone


# ----------------------------------------------------------------------------------------------------------- downloads


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


# ------------------------------------------------------------------------------------------------------ all of them


_PHONES = Provider(rows=book.phones, columns=book.PHONE_COLUMNS, delete=book.delete_data)
_LEGACY_PHONES = Provider(rows=book.legacy_phones, columns=book.LEGACY_PHONE_COLUMNS, delete=book.delete_data)
_PEOPLE = Provider(rows=book.contacts, columns=book.CONTACT_COLUMNS, delete=book.delete_contacts)
PROVIDERS: dict[str, Provider] = {
    **{
        f"sms/{box}".rstrip("/"): Provider(
            rows=partial(_messages, types=types),
            columns=SMS.names,
            order="date DESC",
            delete=_delete_messages,
            update=_update_messages,
            insert=_insert_message,
        )
        for box, types in _SMS_BOXES.items()
    },
    "sms/conversations": Provider(rows=_threads, columns=("thread_id", "msg_count", "snippet")),
    "contacts/phones": _LEGACY_PHONES,
    "com.android.contacts/data/phones": _PHONES,
    "contacts/people": _PEOPLE,
    "com.android.contacts/contacts": _PEOPLE,
    "com.android.contacts/raw_contacts": Provider(
        rows=book.raw_contacts,
        columns=book.RAW_COLUMNS,
        delete=book.delete_contacts,
        insert=book.insert_raw_contact,
    ),
    "com.android.contacts/data": Provider(
        rows=book.data, columns=book.DATA_COLUMNS, delete=book.delete_data, insert=book.insert_data
    ),
    **{
        f"settings/{name}": Provider(
            rows=partial(_settings, table=f"{name}/"),
            columns=("_id", "name", "value"),
            delete=partial(_delete_settings, table=f"{name}/"),
            insert=partial(_put_setting, table=f"{name}/"),
        )
        for name in ("system", "secure", "global")
    },
    "call_log/calls": Provider(rows=lambda phone: [], columns=("_id", "number", "date", "duration", "type", "name")),
    "media/external/downloads": Provider(
        rows=_downloads, columns=("_id", "_data", "_display_name"), delete=_delete_downloads
    ),
}
"""By URI without its scheme."""
