"""Pro Expense: sums and the latest records, the log of all records with a selection mode, and the form of one record.

Pro Expense's records: what was earned and spent, in the app's own database.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache, partial

from collab.envs.simphone.app import (
    App,
    Item,
    UiNode,
    View,
    button,
    grid,
    heading,
    icon,
    item,
    line,
    list_selected,
    row,
    select,
    text,
    text_field,
    toggle,
    unselect,
)
from collab.envs.simphone.state import (
    Page,
    Phone,
    Table,
    TableRow,
    insert,
    keep,
    pop,
    push,
    remove,
    rows,
    swap,
    to_whole,
    toast,
    update,
)

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


def list_expenses(phone: Phone) -> list[TableRow]:
    """Return all records, the newest first."""
    return sorted(rows(phone, EXPENSE), key=_sort_key, reverse=True)


def find_expense(phone: Phone, id: int) -> TableRow | None:
    """Return a record by its id."""
    return next((row for row in rows(phone, EXPENSE) if row["expense_id"] == id), None)


def add_expense(phone: Phone, name: str, amount: int, category: int, note: str) -> Phone:
    """Store a new record, dated now; the amount in cents."""
    values: TableRow = {"name": name, "amount": amount, "category": category, "note": note}
    return insert(phone, EXPENSE, **values, created_date=phone.now_ms, modified_date=phone.now_ms)[0]


def change_expense(phone: Phone, id: int, name: str, amount: int, category: int, note: str) -> Phone:
    """Replace what a record says; it keeps its date."""
    values: TableRow = {
        "name": name,
        "amount": amount,
        "category": category,
        "note": note,
        "modified_date": phone.now_ms,
    }
    return update(phone, EXPENSE, lambda row: row["expense_id"] == id, **values)


def remove_expenses(phone: Phone, ids: Collection[int]) -> Phone:
    """Delete records."""
    return remove(phone, EXPENSE, lambda row: row["expense_id"] in ids)


def name_category(row: TableRow) -> str:
    """Name of a record's category; Others for a number the app does not know."""
    return CATEGORIES.get(to_whole(row["category"]), CATEGORIES[OTHERS])


def format_dollars(cents: int) -> str:
    """Return an amount in words, "$67.41"."""
    return f"${cents // 100}.{cents % 100:02d}"


def parse_cents(text: str) -> int:
    """Parse a typed amount to cents; 0 when it is none. The number field takes only digits and a point."""
    found = re.fullmatch(r"(\d{0,8})(?:\.(\d{0,2})\d*)?", re.sub(r"[^\d.]", "", text))
    return 0 if found is None else int(found[1] or 0) * 100 + int((found[2] or "").ljust(2, "0"))


@lru_cache(maxsize=1 << 12)
def format_day(milliseconds: int) -> str:
    """Return a date as the app writes it, "15 Oct 2023"; years beyond 9999 end there."""
    seconds = min(max(milliseconds // 1000, 0), _LAST_SECOND)
    return f"{datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC):%d %b %Y}"


def _sort_key(row: TableRow) -> tuple[int, int]:
    return to_whole(row["created_date"]), to_whole(row["expense_id"])


PACKAGE = "com.arduia.expense"
_ID = PACKAGE + ":id/"
_RECENT = 5
"""How many records the first page lists."""


def entry_key(id: int) -> str:
    """Return the key of a record in a list."""
    return f"{_ID}expense/{id}"


# ------------------------------------------------------------------------------------------------- looking at records


def home(phone: Phone, page: Page) -> View:
    """Show sums and the latest records."""
    # Sums of all records, not of the month alone.
    earned = sum(to_whole(one["amount"]) for one in rows(phone, EXPENSE) if one["category"] == INCOME)
    spent = sum(to_whole(one["amount"]) for one in rows(phone, EXPENSE) if one["category"] != INCOME)
    latest = list_expenses(phone)[:_RECENT]
    body: list[Item] = [
        line(
            text("Income", _ID + "tv_income", value=format_dollars(earned)),
            text("Outcome", _ID + "tv_outcome", value=format_dollars(spent)),
        ),
        line(heading("Recent", _ID + "tv_recent"), button("More", _ID + "btn_more", _open_logs)),
    ]
    body += [_entry(one, tap=partial(_open, id=_read_id(one))) for one in latest]
    if not latest:
        body.append(text("No Items", _ID + "tv_no_data"))
    return View(
        title="Pro Expense",
        body=body,
        navigation=_drawer_icon(),
        fab=icon("Add expense", _ID + "fb_add", _create),
    )


def logs(phone: Phone, page: Page) -> View:
    """Show all records, newest first; a long press starts the selection."""
    selected = list_selected(page)
    body: list[Item] = []
    for one in list_expenses(phone):
        id = _read_id(one)
        choose = partial(toggle, name=str(id))
        # While something is selected, a tap selects too, as everywhere on Android.
        tap = choose if selected else partial(_open, id=id)
        body.append(_entry(one, tap=tap)._replace(hold=choose, flags=("selected",) if str(id) in selected else ()))
    # An empty list says so, or an agent would take it for one that is loading.
    if not body:
        body.append(text("No Data", _ID + "tv_no_data"))
    # Selection mode has a title, actions and a way back of its own.
    if not selected:
        return View(title="Expense Logs", body=body, navigation=_drawer_icon())
    # Selected by id, as two records may read alike.
    ids = tuple(int(name) for name in selected)
    return View(
        title=f"{len(selected)} selected",
        body=body,
        actions=(
            icon("Select All", _ID + "select_all", _select_all),
            icon("Delete", _ID + "delete", partial(_ask, ids=ids)),
        ),
        navigation=icon("Close", _ID + "close", unselect),
        back=unselect,
    )


def detail(phone: Phone, page: Page) -> View:
    """Show one record."""
    one = find_expense(phone, int(page.data["id"]))
    # A record may have been deleted under an open page.
    if one is None:
        return View(title="Expense Detail", style="sheet", body=[text("No Data", _ID + "tv_no_data")])
    name, amount, category, note = _read_fields(one)
    body: list[Item] = [
        row(
            heading(name, _ID + "tv_name_value"),
            icon("Delete", _ID + "btn_delete", partial(_ask, ids=(_read_id(one),))),
        ),
        line(
            text("Amount", _ID + "tv_amount_value", value=format_dollars(amount)),
            text("Category", _ID + "tv_category", value=category),
        ),
        text("Date", _ID + "tv_date_value", value=format_day(to_whole(one["created_date"]))),
    ]
    if note:
        body.append(text("Note", _ID + "tv_note_value", value=note))
    body.append(button("Edit", _ID + "btn_edit", partial(_edit, one=one)))
    return View(title="Expense Detail", style="sheet", body=body)


def drawer(phone: Phone, page: Page) -> View:
    """Show where one can go."""
    body: list[Item] = [
        item("Home", _ID + "dest_home", partial(pop, count=len(phone.stacks[PACKAGE]) - 1)),
        item("Expense Logs", _ID + "dest_expense_logs", _open_logs),
        item("Statistics", _ID + "dest_statistics", partial(_visit, screen="expense.statistics")),
    ]
    return View(title="Pro Expense", style="sheet", body=body)


def statistics(phone: Phone, page: Page) -> View:
    """Show what was spent on each category."""
    sums = dict.fromkeys(CATEGORIES.values(), 0)
    for one in rows(phone, EXPENSE):
        sums[name_category(one)] += to_whole(one["amount"])
    body: list[Item] = [
        text(name, f"{_ID}sum/{name}", value=format_dollars(total)) for name, total in sums.items() if total
    ] or [text("No Data", _ID + "tv_no_data")]
    return View(title="Statistics", body=body, navigation=_drawer_icon())


def _drawer_icon() -> UiNode:
    return icon("Open navigation drawer", _ID + "drawer", partial(push, page=Page(screen="expense.drawer")))


def _entry(one: TableRow, *, tap: partial[Phone]) -> UiNode:
    name, amount, category, _ = _read_fields(one)
    when = format_day(to_whole(one["created_date"]))
    return item(name, entry_key(_read_id(one)), tap, value=f"{format_dollars(amount)} · {category} · {when}")


def _read_fields(one: TableRow) -> tuple[str, int, str, str]:
    return str(one["name"] or ""), to_whole(one["amount"]), name_category(one), str(one["note"] or "")


def _read_id(one: TableRow) -> int:
    return to_whole(one["expense_id"])


def _visit(phone: Phone, screen: str) -> Phone:
    """Show a page above the first one, whatever was open."""
    return replace(phone, stacks={**phone.stacks, PACKAGE: (*APP.pages, Page(screen=screen))}, keyboard=False)


def _open_logs(phone: Phone) -> Phone:
    return _visit(phone, "expense.logs")


def _open(phone: Phone, id: int) -> Phone:
    return push(phone, Page(screen="expense.detail", data={"id": id}))


def _select_all(phone: Phone) -> Phone:
    return select(phone, tuple(str(_read_id(one)) for one in list_expenses(phone)))


# ------------------------------------------------------------------------------------------- deleting and writing


def delete(phone: Phone, page: Page) -> View:
    """Show the question before records are deleted."""
    count = len(page.data["ids"])
    words = f"{count} item{'s' * (count > 1)} will be deleted!"
    return View(
        title="Delete Items",
        style="dialog",
        body=[text(words, _ID + "tv_message")],
        actions=(button("Cancel", _ID + "btn_cancel", pop), button("Confirm", _ID + "btn_confirm", _delete)),
    )


def _ask(phone: Phone, ids: tuple[int, ...]) -> Phone:
    """Ask in place of the sheet, or above the log."""
    question = Page(screen="expense.delete", data={"ids": ids})
    return swap(phone, question) if phone.page.screen == "expense.detail" else push(phone, question)


def _delete(phone: Phone) -> Phone:
    ids = phone.page.data["ids"]
    phone = unselect(pop(remove_expenses(phone, ids)))
    return toast(phone, "Item Deleted" if len(ids) == 1 else "Items Deleted")


def entry(phone: Phone, page: Page) -> View:
    """Show the form of a new or an existing record; nothing is stored before Save."""
    new = page.data["id"] is None
    chips = [
        UiNode(
            *("chip", name, f"{_ID}category/{name}", None),
            ("selected",) if number == page.data["category"] else (),
            partial(keep, category=number),
        )
        for number, name in CATEGORIES.items()
    ]
    return View(
        title="Expense Entry" if new else "Update Data",
        navigation=icon("Close", _ID + "btn_entry_close", pop),
        body=[
            text_field(page, "name", "Name", _ID + "edt_name"),
            text_field(page, "amount", "Amount", _ID + "edt_amount"),
            *grid(chips, 3),
            text_field(page, "note", "Note", _ID + "edt_note"),
            button("Save" if new else "Update", _ID + "btn_save", _save),
        ],
    )


def _create(phone: Phone) -> Phone:
    return push(phone, Page(screen="expense.entry", data={"id": None, "category": OTHERS}))


def _edit(phone: Phone, one: TableRow) -> Phone:
    name, amount, _, note = _read_fields(one)
    fields = {"name": name, "amount": format_dollars(amount).removeprefix("$"), "note": note}
    return swap(
        phone,
        Page(screen="expense.entry", data={"id": _read_id(one), "category": to_whole(one["category"])}, fields=fields),
    )


def _save(phone: Phone) -> Phone:
    page = phone.page
    name, amount, note = (page.fields.get(field, "").strip() for field in ("name", "amount", "note"))
    if not parse_cents(amount):
        return toast(phone, "Cost is Empty")
    category = int(page.data["category"])
    if page.data["id"] is None:
        return toast(pop(add_expense(phone, name, parse_cents(amount), category, note)), "Data Saved!")
    id = int(page.data["id"])
    return toast(pop(change_expense(phone, id, name, parse_cents(amount), category, note)), "Data Updated!")


_NOISE = ((3, "Coffee"), (7, "Bus Ticket"), (4, "Electricity"), (5, "Flowers"), (9, "Pharmacy"), (8, "Wool Socks"))


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    for category, name in rng.sample(_NOISE, rng.randint(1, 4)):
        phone = add_expense(phone, name, rng.randint(200, 9000), category, "")
    return phone


APP = App(
    package=PACKAGE,
    names=("Pro Expense", "Pro Expense App"),
    activity=".ui.MainActivity",
    pages=(Page(screen="expense.home"),),
    screens={
        "expense.home": home,
        "expense.logs": logs,
        "expense.detail": detail,
        "expense.drawer": drawer,
        "expense.statistics": statistics,
        "expense.delete": delete,
        "expense.entry": entry,
    },
    tables=(EXPENSE,),
    noise=_add_noise,
)
