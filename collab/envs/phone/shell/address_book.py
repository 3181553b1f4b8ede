"""The contacts provider's tables as `content` shows and changes them.

A contact is made as tools make one: a row of raw_contacts, then rows of data with its name and its number.
"""

from __future__ import annotations

from collab.envs.phone.databases import insert, remove, rows, update
from collab.envs.phone.people import DATA, RAW_CONTACTS, digits, people, remove_person
from collab.envs.phone.state import Phone, Row
from collab.types import Scalar

NAME, PHONE = "vnd.android.cursor.item/name", "vnd.android.cursor.item/phone_v2"
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
            "display_name_alt": f"{one.last}, {one.first}" if one.first and one.last else one.name,
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
    fixed: dict[str, Scalar] = {"account_name": None, "account_type": None, "starred": 0, "deleted": 0, "version": 1}
    return [{**fixed, "display_name_alt": row["display_name"], **row} for row in rows(phone, RAW_CONTACTS)]


def data(phone: Phone) -> list[Row]:
    """Names and numbers."""
    names = {row["_id"]: row["display_name"] for row in rows(phone, RAW_CONTACTS)}
    return [
        {
            **{"is_primary": 0, "is_super_primary": 0, "data4": None},
            **row,
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
    phone, id = insert(phone, RAW_CONTACTS, display_name=str(values.get("display_name") or ""))
    return update(phone, RAW_CONTACTS, lambda row: row["_id"] == id, contact_id=id)


def insert_data(phone: Phone, values: dict[str, Scalar]) -> Phone:
    """A name or a number; a whole name is split, parts of one are put together."""
    known = {name: values.get(name) for name, _ in DATA.columns if name != "_id"}
    owner = known["raw_contact_id"]
    if known["mimetype"] == NAME:
        parts = (str(known["data2"] or ""), str(known["data3"] or ""))
        whole = str(known["data1"] or "") or " ".join(filter(None, parts))
        first, _, last = whole.partition(" ")
        known |= {"data1": whole, "data2": parts[0] or first, "data3": parts[1] or ("" if parts[0] else last)}
        phone = update(phone, RAW_CONTACTS, lambda row: row["_id"] == owner, display_name=whole)
    phone, _ = insert(phone, DATA, **known)
    return phone


def delete_data(phone: Phone, ids: set[int]) -> Phone:
    """Take names and numbers away."""
    return remove(phone, DATA, lambda row: row["_id"] in ids)


def delete_contacts(phone: Phone, ids: set[int]) -> Phone:
    """Take contacts away with all that belongs to them."""
    for id in ids:
        phone = remove_person(phone, id)
    return phone
