"""The contacts provider: people and their numbers, in Android's contacts database.

Tables of Android 13's contacts database that tools read.

Left out: its views, triggers, indices and search tables, and the collation PHONEBOOK, which no other SQLite has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from collab.envs.simphone.state import Phone, Table, find_next_key, insert, remove, rows, update
from collab.types import Scalar

CONTACTS_DATABASE = "/data/data/com.android.providers.contacts/databases/contacts2.db"
NAME, PHONE = "vnd.android.cursor.item/name", "vnd.android.cursor.item/phone_v2"
"""Kinds of data."""
_KEY = ("_id", "INTEGER PRIMARY KEY AUTOINCREMENT")
_FLAG = "INTEGER NOT NULL DEFAULT 0"
_CONTACTED = (
    ("x_times_contacted", _FLAG),
    ("x_last_time_contacted", "INTEGER"),
    ("times_contacted", _FLAG),
    ("last_time_contacted", "INTEGER"),
    ("starred", _FLAG),
    ("pinned", _FLAG),
)
ACCOUNTS = Table(
    path=CONTACTS_DATABASE,
    name="accounts",
    columns=(
        _KEY,
        ("account_name", "TEXT"),
        ("account_type", "TEXT"),
        ("data_set", "TEXT"),
        ("sim_slot_index", "INTEGER"),
        ("sim_ef_type", "INTEGER"),
        ("ungrouped_visible", _FLAG),
        ("should_sync", "INTEGER NOT NULL DEFAULT 1"),
        ("sync1", "TEXT"),
        ("sync2", "TEXT"),
        ("sync3", "TEXT"),
    ),
    used=("_id",),
    initial=({"_id": 1},),
)
"""One account: contacts that are on the phone alone."""
CONTACTS = Table(
    path=CONTACTS_DATABASE,
    name="contacts",
    columns=(
        _KEY,
        ("name_raw_contact_id", "INTEGER REFERENCES raw_contacts(_id)"),
        ("photo_id", "INTEGER REFERENCES data(_id)"),
        ("photo_file_id", "INTEGER REFERENCES photo_files(_id)"),
        ("custom_ringtone", "TEXT"),
        ("send_to_voicemail", _FLAG),
        *_CONTACTED,
        ("has_phone_number", _FLAG),
        ("lookup", "TEXT"),
        ("status_update_id", "INTEGER REFERENCES data(_id)"),
        ("contact_last_updated_timestamp", "INTEGER"),
    ),
    used=("_id", "name_raw_contact_id", "has_phone_number", "lookup", "contact_last_updated_timestamp"),
)
RAW_CONTACTS = Table(
    path=CONTACTS_DATABASE,
    name="raw_contacts",
    columns=(
        _KEY,
        ("account_id", "INTEGER REFERENCES accounts(_id)"),
        ("sourceid", "TEXT"),
        ("backup_id", "TEXT"),
        ("raw_contact_is_read_only", _FLAG),
        ("version", "INTEGER NOT NULL DEFAULT 1"),
        ("dirty", _FLAG),
        ("deleted", _FLAG),
        ("metadata_dirty", _FLAG),
        ("contact_id", "INTEGER REFERENCES contacts(_id)"),
        ("aggregation_mode", _FLAG),
        ("aggregation_needed", "INTEGER NOT NULL DEFAULT 1"),
        ("custom_ringtone", "TEXT"),
        ("send_to_voicemail", _FLAG),
        *_CONTACTED,
        ("display_name", "TEXT"),
        ("display_name_alt", "TEXT"),
        ("display_name_source", _FLAG),
        ("phonetic_name", "TEXT"),
        ("phonetic_name_style", "TEXT"),
        ("sort_key", "TEXT"),
        ("phonebook_label", "TEXT"),
        ("phonebook_bucket", "INTEGER"),
        ("sort_key_alt", "TEXT"),
        ("phonebook_label_alt", "TEXT"),
        ("phonebook_bucket_alt", "INTEGER"),
        ("name_verified", _FLAG),
        *((f"sync{number}", "TEXT") for number in range(1, 5)),
    ),
    used=("_id", "account_id", "contact_id", "display_name", "display_name_alt", "display_name_source", "sort_key"),
)
DATA = Table(
    path=CONTACTS_DATABASE,
    name="data",
    columns=(
        _KEY,
        ("package_id", "INTEGER REFERENCES package(_id)"),
        ("mimetype_id", "INTEGER REFERENCES mimetypes(_id) NOT NULL"),
        ("raw_contact_id", "INTEGER REFERENCES raw_contacts(_id) NOT NULL"),
        ("hash_id", "TEXT"),
        ("is_read_only", _FLAG),
        ("is_primary", _FLAG),
        ("is_super_primary", _FLAG),
        ("data_version", _FLAG),
        *((f"data{number}", "TEXT") for number in range(1, 16)),
        *((f"data_sync{number}", "TEXT") for number in range(1, 5)),
        ("carrier_presence", _FLAG),
        ("preferred_phone_account_component_name", "TEXT"),
        ("preferred_phone_account_id", "TEXT"),
    ),
    used=("_id", "mimetype_id", "raw_contact_id", "data1", "data2", "data3"),
)
_KINDS = (
    *("email_v2", "im", "nickname", "organization", "phone_v2", "sip_address", "name", "postal-address_v2"),
    *("identity", "photo", "group_membership"),
)
MIMETYPES = Table(
    path=CONTACTS_DATABASE,
    name="mimetypes",
    columns=(_KEY, ("mimetype", "TEXT NOT NULL")),
    initial=tuple({"_id": id, "mimetype": f"vnd.android.cursor.item/{kind}"} for id, kind in enumerate(_KINDS, 1)),
)
CONTACT_TABLES = (ACCOUNTS, CONTACTS, RAW_CONTACTS, DATA, MIMETYPES)
"""All of them."""


LABELS = {"Mobile": "2", "Home": "1", "Work": "3", "Main": "12", "Other": "7"}
"""Kinds of a number and Android's codes for them."""
_STRUCTURED = 40
"""display_name_source of a name."""
_WORDS = {code: label for label, code in LABELS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A contact."""

    id: int
    name: str
    first: str
    last: str
    number: str
    """Empty when there is none."""
    label: str
    """Kind of the number: a key of `LABELS`."""


def extract_digits(number: str) -> str:
    """Return a number without everything that is not a digit."""
    return re.sub(r"\D", "", number)


def list_people(phone: Phone) -> list[Person]:
    """Return all contacts by name."""
    name_kind, phone_kind = find_mimetype(phone, NAME), find_mimetype(phone, PHONE)
    # Names and numbers stand in one table, told apart by their kind, as on a real phone.
    names = {row["raw_contact_id"]: row for row in rows(phone, DATA) if row["mimetype_id"] == name_kind}
    numbers = {row["raw_contact_id"]: row for row in rows(phone, DATA) if row["mimetype_id"] == phone_kind}
    found = []
    for row in rows(phone, RAW_CONTACTS):
        name, number = names.get(row["_id"], {}), numbers.get(row["_id"], {})
        found.append(
            Person(
                id=int(row["_id"] or 0),
                name=str(row["display_name"] or ""),
                first=str(name.get("data2") or ""),
                last=str(name.get("data3") or ""),
                number=str(number.get("data1") or ""),
                label=_WORDS.get(str(number.get("data2")), "Mobile"),
            )
        )
    # By name, then by id: equal names keep one order.
    return sorted(found, key=lambda person: (person.name.casefold(), person.id))


def find_person(phone: Phone, id: int) -> Person | None:
    """Return a contact by its id."""
    return next((one for one in list_people(phone) if one.id == id), None)


def name_of(phone: Phone, number: str) -> str | None:
    """Name of the contact with this number; None for a stranger."""
    wanted, kind = extract_digits(number), find_mimetype(phone, PHONE)
    for row in rows(phone, DATA):
        if row["mimetype_id"] == kind and extract_digits(str(row["data1"])) == wanted:
            owner = row["raw_contact_id"]
            return next((str(raw["display_name"]) for raw in rows(phone, RAW_CONTACTS) if raw["_id"] == owner), None)
    return None


def find_mimetype(phone: Phone, mimetype: str) -> Scalar:
    """Return the key of a kind of data; -1 when the database does not know it."""
    return next((row["_id"] for row in rows(phone, MIMETYPES) if row["mimetype"] == mimetype), -1)


def ensure_mimetype(phone: Phone, mimetype: str) -> tuple[Phone, Scalar]:
    """Return a kind of data and its key, made known where it is not yet."""
    id = find_mimetype(phone, mimetype)
    return insert(phone, MIMETYPES, mimetype=mimetype) if id == -1 else (phone, id)


def add_raw_contact(phone: Phone, name: str, other: str, *, numbered: bool = False) -> tuple[Phone, int]:
    """Store a contact without data.

    Args:
        name: as it is shown and sorted.
        other: the last name first.
        numbered: whether a number follows.
    """
    id = find_next_key(phone, RAW_CONTACTS)
    phone, contact = insert(
        phone,
        CONTACTS,
        name_raw_contact_id=id,
        lookup=f"0r{id}",
        has_phone_number=int(numbered),
        contact_last_updated_timestamp=phone.now_ms,
    )
    return insert(phone, RAW_CONTACTS, account_id=1, contact_id=contact, **_build_naming(name, other))


def rename_raw_contact(phone: Phone, id: int, name: str, other: str) -> Phone:
    """Change the name of a contact; see `add_raw_contact`."""
    return update(phone, RAW_CONTACTS, lambda row: row["_id"] == id, **_build_naming(name, other))


def count_number(phone: Phone, id: int) -> Phone:
    """Note of a contact whether it has a number, and that it changed now."""
    kind = find_mimetype(phone, PHONE)
    known = any(row["raw_contact_id"] == id and row["mimetype_id"] == kind for row in rows(phone, DATA))
    values: dict[str, Scalar] = {"has_phone_number": int(known), "contact_last_updated_timestamp": phone.now_ms}
    return update(phone, CONTACTS, lambda row: row["name_raw_contact_id"] == id, **values)


def format_last_first(first: str, last: str) -> str:
    """Return a name with the last name first."""
    return f"{last}, {first}" if first and last else first or last


def add_person(phone: Phone, first: str, last: str, number: str, label: str = "Mobile") -> tuple[Phone, int]:
    """Store a new contact; returns the phone and the contact's id."""
    name = f"{first} {last}".strip() or number
    phone, id = add_raw_contact(phone, name, format_last_first(first, last) or name, numbered=bool(number))
    phone = _put_data(phone, id, name, first, last, number, label)
    return phone, id


def change_person(phone: Phone, id: int, first: str, last: str, number: str, label: str) -> Phone:
    """Replace what is known of a contact."""
    name = f"{first} {last}".strip() or number
    phone = rename_raw_contact(phone, id, name, format_last_first(first, last) or name)
    phone = remove(phone, DATA, lambda row: row["raw_contact_id"] == id)
    return count_number(_put_data(phone, id, name, first, last, number, label), id)


def remove_person(phone: Phone, id: int) -> Phone:
    """Delete a contact."""
    phone = remove(phone, DATA, lambda row: row["raw_contact_id"] == id)
    phone = remove(phone, CONTACTS, lambda row: row["name_raw_contact_id"] == id)
    return remove(phone, RAW_CONTACTS, lambda row: row["_id"] == id)


def _put_data(phone: Phone, id: int, name: str, first: str, last: str, number: str, label: str) -> Phone:
    phone, kind = ensure_mimetype(phone, NAME)
    phone, _ = insert(phone, DATA, raw_contact_id=id, mimetype_id=kind, data1=name, data2=first, data3=last)
    if number:
        phone, kind = ensure_mimetype(phone, PHONE)
        phone, _ = insert(phone, DATA, raw_contact_id=id, mimetype_id=kind, data1=number, data2=LABELS[label])
    return phone


def _build_naming(name: str, other: str) -> dict[str, Scalar]:
    return {
        "display_name": name,
        "display_name_alt": other,
        "display_name_source": _STRUCTURED,
        "sort_key": name,
        "sort_key_alt": other,
    }
