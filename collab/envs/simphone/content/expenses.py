"""Pro Expense's records: what was earned and spent, in the app's own database."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection
from functools import lru_cache

from collab.envs.simphone.state import Phone, Row, Table, insert, remove, rows, update, whole

EXPENSE = Table(
    path="/data/data/com.arduia.expense/databases/accounting.db",
    name="expense",
    columns=(
        ("expense_id", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"),
        ("name", "TEXT"),
        ("amount", "INTEGER NOT NULL"),
        ("category", "INTEGER NOT NULL"),
        ("note", "TEXT"),
        ("created_date", "INTEGER NOT NULL"),
        ("modified_date", "INTEGER NOT NULL"),
    ),
)
"""Amounts in cents, dates in milliseconds."""
CATEGORIES = {
    1: "Others",
    2: "Income",
    3: "Food",
    4: "Housing",
    5: "Social",
    6: "Entertainment",
    7: "Transportation",
    8: "Clothes",
    9: "Health Care",
    10: "Education",
    11: "Donation",
}
"""The app's fixed categories by their number."""
OTHERS, INCOME = 1, 2
_LAST_SECOND = 253_402_300_799


def expenses(phone: Phone) -> list[Row]:
    """All records, the newest first."""
    return sorted(rows(phone, EXPENSE), key=_age, reverse=True)


def expense(phone: Phone, id: int) -> Row | None:
    """A record by its id."""
    return next((row for row in rows(phone, EXPENSE) if row["expense_id"] == id), None)


def add_expense(phone: Phone, name: str, amount: int, category: int, note: str) -> Phone:
    """Store a new record, dated now; the amount in cents."""
    values: Row = {"name": name, "amount": amount, "category": category, "note": note}
    return insert(phone, EXPENSE, **values, created_date=phone.now_ms, modified_date=phone.now_ms)[0]


def change_expense(phone: Phone, id: int, name: str, amount: int, category: int, note: str) -> Phone:
    """Replace what a record says; it keeps its date."""
    values: Row = {"name": name, "amount": amount, "category": category, "note": note, "modified_date": phone.now_ms}
    return update(phone, EXPENSE, lambda row: row["expense_id"] == id, **values)


def remove_expenses(phone: Phone, ids: Collection[int]) -> Phone:
    """Delete records."""
    return remove(phone, EXPENSE, lambda row: row["expense_id"] in ids)


def category_of(row: Row) -> str:
    """Name of a record's category; Others for a number the app does not know."""
    return CATEGORIES.get(whole(row["category"]), CATEGORIES[OTHERS])


def dollars(cents: int) -> str:
    """An amount in words, "$67.41"."""
    return f"${cents // 100}.{cents % 100:02d}"


def cents(text: str) -> int:
    """The amount somebody typed, in cents; 0 when it is none. The number field takes only digits and a point."""
    found = re.fullmatch(r"(\d{0,8})(?:\.(\d{0,2})\d*)?", re.sub(r"[^\d.]", "", text))
    return 0 if found is None else int(found[1] or 0) * 100 + int((found[2] or "").ljust(2, "0"))


@lru_cache(maxsize=1 << 12)
def day(milliseconds: int) -> str:
    """A date as the app writes it, "15 Oct 2023"; years beyond 9999 end there."""
    seconds = min(max(milliseconds // 1000, 0), _LAST_SECOND)
    return f"{datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC):%d %b %Y}"


def _age(row: Row) -> tuple[int, int]:
    return whole(row["created_date"]), whole(row["expense_id"])
