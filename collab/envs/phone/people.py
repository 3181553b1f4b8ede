"""The contacts provider: people and their numbers, in Android's contacts database."""

from __future__ import annotations

import re
from dataclasses import dataclass

from collab.envs.phone.databases import Table, insert, remove, rows, update
from collab.envs.phone.state import Phone

CONTACTS_DATABASE = "/data/data/com.android.providers.contacts/databases/contacts2.db"
RAW_CONTACTS = Table(
    path=CONTACTS_DATABASE,
    name="raw_contacts",
    columns=(("_id", "INTEGER PRIMARY KEY"), ("contact_id", "INTEGER"), ("display_name", "TEXT")),
)
DATA = Table(
    path=CONTACTS_DATABASE,
    name="data",
    columns=(
        ("_id", "INTEGER PRIMARY KEY"),
        ("raw_contact_id", "INTEGER"),
        ("mimetype", "TEXT"),
        ("data1", "TEXT"),
        ("data2", "TEXT"),
        ("data3", "TEXT"),
    ),
)
_NAME, _PHONE = "vnd.android.cursor.item/name", "vnd.android.cursor.item/phone_v2"
LABELS = {"Mobile": "2", "Home": "1", "Work": "3", "Main": "12", "Other": "7"}
"""Kinds of a number and Android's codes for them."""
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


def digits(number: str) -> str:
    """A number without everything that is not a digit."""
    return re.sub(r"\D", "", number)


def people(phone: Phone) -> list[Person]:
    """All contacts by name."""
    names = {row["raw_contact_id"]: row for row in rows(phone, DATA) if row["mimetype"] == _NAME}
    numbers = {row["raw_contact_id"]: row for row in rows(phone, DATA) if row["mimetype"] == _PHONE}
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
    return sorted(found, key=lambda person: (person.name.casefold(), person.id))


def person(phone: Phone, id: int) -> Person | None:
    """A contact by its id."""
    return next((one for one in people(phone) if one.id == id), None)


def name_of(phone: Phone, number: str) -> str | None:
    """Name of the contact with this number; None for a stranger."""
    wanted = digits(number)
    for row in rows(phone, DATA):
        if row["mimetype"] == _PHONE and digits(str(row["data1"])) == wanted:
            owner = row["raw_contact_id"]
            return next((str(raw["display_name"]) for raw in rows(phone, RAW_CONTACTS) if raw["_id"] == owner), None)
    return None


def add_person(phone: Phone, first: str, last: str, number: str, label: str = "Mobile") -> tuple[Phone, int]:
    """Store a new contact; returns the phone and the contact's id."""
    name = f"{first} {last}".strip() or number
    phone, id = insert(phone, RAW_CONTACTS, display_name=name)
    phone = _put_data(phone, id, name, first, last, number, label)
    return phone, id


def change_person(phone: Phone, id: int, first: str, last: str, number: str, label: str) -> Phone:
    """Replace what is known of a contact."""
    name = f"{first} {last}".strip() or number
    phone = update(phone, RAW_CONTACTS, lambda row: row["_id"] == id, display_name=name)
    phone = remove(phone, DATA, lambda row: row["raw_contact_id"] == id)
    return _put_data(phone, id, name, first, last, number, label)


def remove_person(phone: Phone, id: int) -> Phone:
    """Delete a contact."""
    phone = remove(phone, DATA, lambda row: row["raw_contact_id"] == id)
    return remove(phone, RAW_CONTACTS, lambda row: row["_id"] == id)


def _put_data(phone: Phone, id: int, name: str, first: str, last: str, number: str, label: str) -> Phone:
    phone, _ = insert(phone, DATA, raw_contact_id=id, mimetype=_NAME, data1=name, data2=first, data3=last)
    if number:
        phone, _ = insert(phone, DATA, raw_contact_id=id, mimetype=_PHONE, data1=number, data2=LABELS[label])
    return phone
