"""The contacts provider's tables as `content` shows and changes them.

A contact is made as tools make one: a row of raw_contacts, then rows of data with its name and its number.
"""

from __future__ import annotations

import sqlite3

from collab.envs.phone.contacts_schema import DATA, MIMETYPES, NAME, PHONE, RAW_CONTACTS
from collab.envs.phone.databases import insert, remove, rows, whole
from collab.envs.phone.people import (
    add_raw_contact,
    count_number,
    digits,
    known_mimetype,
    last_first,
    people,
    remove_person,
    rename_raw_contact,
)
from collab.envs.phone.state import Phone, Row
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


def contacts(phone: Phone) -> list[Row]:
    """Everybody, by name."""
    return [
        {
            **dict.fromkeys(CONTACT_COLUMNS),
            **{"last_time_contacted": 0, "pinned": 0, "in_visible_group": 1, "starred": 0, "times_contacted": 0},
            "display_name_alt": last_first(one.first, one.last) or one.name,
            "has_phone_number": int(bool(one.number)),
            "display_name_source": _STRUCTURED,
            "lookup": _lookup(one.id),
            "contact_last_updated_timestamp": phone.now_ms,
            "display_name": one.name,
            "sort_key": one.name,
            "_id": one.id,
            "name_raw_contact_id": one.id,
        }
        for one in people(phone)
    ]


def raw_contacts(phone: Phone) -> list[Row]:
    """The rows that contacts are made of, one each here."""
    return [{**RAW_CONTACTS.defaults, **row} for row in rows(phone, RAW_CONTACTS)]


def data(phone: Phone) -> list[Row]:
    """Names and numbers."""
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


def phones(phone: Phone) -> list[Row]:
    """Numbers, by the name of their owner."""
    found = [
        {**row, "lookup": _lookup(row["raw_contact_id"]), "starred": 0}
        for row in data(phone)
        if row["mimetype"] == PHONE
    ]
    return sorted(found, key=lambda row: str(row["display_name"]).casefold())


def legacy_phones(phone: Phone) -> list[Row]:
    """Numbers in the columns of the provider before ContactsContract, which AndroidWorld reads."""
    return [
        {
            **{"_id": row["_id"], "person": row["contact_id"], "contact_id": row["contact_id"]},
            **{"display_name": row["display_name"], "name": row["display_name"]},
            **{"number": row["data1"], "data1": row["data1"], "number_key": digits(str(row["data1"] or ""))[::-1]},
            **{"type": row["data2"], "label": row["data3"], "isprimary": row["is_primary"]},
        }
        for row in phones(phone)
    ]


def _lookup(id: Scalar) -> str:
    return f"0r{id}"


# ------------------------------------------------------------------------------------------------------------ changes


def insert_raw_contact(phone: Phone, values: dict[str, Scalar]) -> Phone:
    """A contact without a name yet; the account it is for does not matter here."""
    name = str(values.get("display_name") or "")
    return add_raw_contact(phone, name, name)[0]


def insert_data(phone: Phone, values: dict[str, Scalar]) -> Phone:
    """A name or a number; a whole name is split, parts of one are put together.

    Raises:
        sqlite3.IntegrityError: nobody said whose it is, or what.
    """
    owner, kind = values.get("raw_contact_id"), values.get("mimetype")
    if not isinstance(owner, int) or not kind:
        raise sqlite3.IntegrityError(f"NOT NULL constraint failed: data.{'mimetype_id' if owner else 'raw_contact_id'}")
    known: dict[str, Scalar] = {
        name: value for name, value in values.items() if name in DATA.names and value is not None
    }
    if kind == NAME:
        known |= _named(known)
        phone = rename_raw_contact(phone, owner, str(known["data1"]), _other(known))
    phone, known["mimetype_id"] = known_mimetype(phone, str(kind))
    phone, _ = insert(phone, DATA, **known)
    return count_number(phone, owner)


def _named(known: Row) -> dict[str, Scalar]:
    """A name as a whole and in parts."""
    parts = (str(known.get("data2") or ""), str(known.get("data3") or ""))
    full = str(known.get("data1") or "") or " ".join(filter(None, parts))
    first, _, last = full.partition(" ")
    return {"data1": full, "data2": parts[0] or first, "data3": parts[1] or ("" if parts[0] else last)}


def _other(named: Row) -> str:
    return last_first(str(named["data2"]), str(named["data3"])) or str(named["data1"])


def delete_data(phone: Phone, ids: set[int]) -> Phone:
    """Take names and numbers away."""
    owners = {row["raw_contact_id"] for row in rows(phone, DATA) if row["_id"] in ids}
    phone = remove(phone, DATA, lambda row: row["_id"] in ids)
    for owner in owners:
        phone = count_number(phone, whole(owner))
    return phone


def delete_contacts(phone: Phone, ids: set[int]) -> Phone:
    """Take contacts away with all that belongs to them."""
    for id in ids:
        phone = remove_person(phone, id)
    return phone
