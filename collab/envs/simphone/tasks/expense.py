"""Pro Expense tasks: records added from a text or a note, and records deleted by name or as duplicates."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from collab.envs.simphone.app import list_selected
from collab.envs.simphone.apps.expense import CATEGORIES, EXPENSE, PACKAGE, entry_key, format_dollars, list_expenses
from collab.envs.simphone.apps.markor import MARKOR
from collab.envs.simphone.state import START_MS, Phone, to_whole, write
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.markor_writing import empty_notebook
from collab.envs.simphone.tasks.records import (
    RecordTable,
    TaskRecord,
    draw_distinct,
    format_records,
    make_goal,
)
from collab.envs.simphone.tasks.spec import Params, TaskSpec
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"
_NOTE = f"{MARKOR}/my_expenses.txt"
_MARK = "Reimbursable."
_HOUR_MS = 3_600_000
_NAMES = {
    1: ("Dog Food", "Printer Ink", "Locksmith", "Parcel Postage", "Passport Photos", "Plant Pots"),
    2: ("Monthly Wage", "Flat Sublet", "Stock Payout", "Tax Refund", "Weekend Gig", "Sold Bicycle"),
    3: ("Farmers Market", "Lunch Bowl", "Espresso Beans", "Pizza Night", "Bread Rolls", "Sushi Box"),
    4: ("Room Deposit", "Water Bill", "Roof Repair", "Window Cleaner", "New Carpet", "Heating Oil"),
    5: ("Team Breakfast", "Farewell Card", "Picnic Basket", "Choir Dues", "Host Gift", "Barbecue Evening"),
    6: ("Jazz Evening", "Puzzle Set", "Zoo Entry", "Film Rental", "Comic Album", "Bowling Lane"),
    7: ("Ferry Crossing", "Night Train", "Tyre Change", "City Bike Rental", "Airport Shuttle", "Toll Road"),
    8: ("Rain Boots", "Linen Trousers", "Winter Scarf", "Hat Repair", "Running Vest", "Dry Cleaner"),
    9: ("Eye Exam", "Dentist Bill", "Cough Syrup", "Massage", "Physio Session", "First Aid Kit"),
    10: ("Exam Fee", "Language Class", "Atlas", "Chemistry Kit", "Evening Lecture", "Drawing Course"),
    11: ("Food Bank", "Animal Shelter", "River Cleanup", "School Fund", "Flood Relief", "Tree Planting"),
}
"""By category; no longer than the app's name field."""
_NOTES = ("From savings", "Pay back Lena", "Every quarter", "Check receipt", "Cash only", "Shared with Milan", "Gift")


# -------------------------------------------------------------------------------------------------------- planning


def _add(frame: Frame, record: TaskRecord) -> Action:
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Pro Expense")
    if frame.page.screen == "expense.home":
        return plans.aim_at(frame, _ID + "fb_add")
    if frame.page.screen != "expense.entry" or frame.page.data["id"] is not None:
        return plans.press_back()
    step = plans.fill(frame, _ID + "edt_name", str(record["name"]))
    step = step or plans.fill(frame, _ID + "edt_amount", format_dollars(record["amount"]).removeprefix("$"))
    if step is None and frame.page.data["category"] != record["category"]:
        step = plans.aim_at(frame, f"{_ID}category/{CATEGORIES[record['category']]}")
    step = step or plans.fill(frame, _ID + "edt_note", str(record["note"]))
    return step or plans.aim_at(frame, _ID + "btn_save")


def _delete(frame: Frame, ids: set[int]) -> Action:
    """Select all of them in the log, then delete them together."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Pro Expense")
    if frame.page.screen == "expense.delete" and set(frame.page.data["ids"]) <= ids:
        return plans.aim_at(frame, _ID + "btn_confirm")
    if frame.page.screen == "expense.home":
        return plans.aim_at(frame, _ID + "btn_more")
    if frame.page.screen != "expense.logs":
        return plans.press_back()
    selected = {int(name) for name in list_selected(frame.page)}
    if selected - ids:
        return plans.press_back()
    if selected == ids:
        return plans.aim_at(frame, _ID + "delete")
    keys = [
        entry_key(id) for one in list_expenses(frame.phone) if (id := to_whole(one["expense_id"])) in ids - selected
    ]
    nearest = next((key for key in keys if frame.index(key) is not None), keys[0])
    return plans.aim_at(frame, nearest, "click" if selected else "long_press")


_LEDGER = RecordTable(table=EXPENSE, text=("name", "note"), exact=("amount", "category"), add=_add, delete=_delete)


# --------------------------------------------------------------------------------------------- preparing and drawing


def _prepare_note(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = empty_notebook(_LEDGER.prepare(phone, params, rng, targets=False))
    marked = [{**record, "note": f"{record['note']}. {_MARK}"} for record in params["row_objects"]]
    transactions = [*marked, *params["noise_row_objects"]]
    rng.shuffle(transactions)
    return write(phone, _NOTE, format_records([_describe_expense(record) for record in transactions], "csv") + "\n")


def _describe_expense(record: TaskRecord) -> dict[str, str]:
    category = CATEGORIES[record["category"]]
    name, note = str(record["name"]), str(record["note"])
    return {"Expense": name, "amount": format_dollars(record["amount"]), "category": category, "note": note}


def _describe(params: Params) -> dict[str, str]:
    words = [_describe_expense(record) for record in params["row_objects"]]
    return {
        "names": ", ".join(str(record["name"]) for record in params["row_objects"]),
        "records": format_records(words, params.get("text_representation_type", "csv")),
    }


def _draw_time(rng: random.Random) -> int:
    return START_MS - 1000 * (START_MS // 1000 % 3600) - rng.randrange(24, 24 * 14) * _HOUR_MS


def _draw_record(rng: random.Random) -> dict[str, Any]:
    category, when = rng.choice(list(_NAMES)), _draw_time(rng)
    return {
        "name": rng.choice(_NAMES[category]),
        "amount": rng.randint(1000, 50_000),
        "category": category,
        "note": rng.choice(_NOTES),
        "created_date": when,
        "modified_date": when,
    }


def _draw_added(rng: random.Random, *, count: int, noise: int) -> dict[str, Any]:
    wanted = draw_distinct(rng, _draw_record, count, "name")
    names = {record["name"] for record in wanted}
    others = [record for record in draw_distinct(rng, _draw_record, 2 * noise) if record["name"] not in names]
    form = rng.choice(("csv", "text_block"))
    return {"row_objects": wanted, "noise_row_objects": others[:noise], "text_representation_type": form}


def _draw_removed(rng: random.Random, *, count: int, noise: int) -> dict[str, Any]:
    drawn = draw_distinct(rng, _draw_record, count + noise, "name")
    return {"row_objects": drawn[:count], **({"noise_row_objects": drawn[count:]} if noise else {})}


def _draw_twins(rng: random.Random, *, noise: int, variants: int) -> dict[str, Any]:
    """Draw one record twice, among others, some of which differ from it only in amount and date."""
    twin, *others = draw_distinct(rng, _draw_record, 1 + noise, "name")
    for surcharge in rng.sample(range(50, 1000), variants):
        when = _draw_time(rng)
        changes = {"amount": twin["amount"] + surcharge, "created_date": when, "modified_date": when}
        others.append({**twin, **changes})
    return {"row_objects": [twin, twin], "noise_row_objects": others}


# ----------------------------------------------------------------------------------------------------------- tasks

_add_task = _LEDGER.build_form(
    _LEDGER.expect_added,
    targets=False,
    apps=("pro expense",),
    goal=make_goal(
        _describe,
        "Put these expenses into Pro Expense:\n{records}",
        "Please record in Pro Expense what is listed here.\n{records}",
        "Pro Expense does not have the following entries yet; add them.\n{records}",
    ),
)
_delete_task = _LEDGER.build_form(
    _LEDGER.expect_removed,
    targets=True,
    apps=("pro expense",),
    goal=make_goal(
        _describe,
        "Remove from Pro Expense: {names}.",
        "I do not want these entries in Pro Expense any more: {names}. Delete them.",
        "Pro Expense should not list the following any longer: {names}. Delete that and nothing else.",
    ),
)
_twin_task = _LEDGER.build_form(
    _LEDGER.expect_thinned,
    targets=True,
    apps=("pro expense",),
    difficulty="medium",
    goal=make_goal(
        _describe,
        "Some expense is in Pro Expense twice, with everything the same. Delete the copy and keep one.",
        "Clean up Pro Expense: of entries that agree in every detail, only one may stay. Keep all others.",
        "Look for entries in Pro Expense that are exact copies of each other and delete all but one of them.",
    ),
)

TASKS: tuple[TaskSpec, ...] = (
    _add_task(name="ExpenseAddSingle", complexity=1.2, difficulty="easy", draw=partial(_draw_added, count=1, noise=10)),
    _add_task(
        name="ExpenseAddMultiple", complexity=6, difficulty="medium", draw=partial(_draw_added, count=3, noise=10)
    ),
    _add_task(
        name="ExpenseAddMultipleFromMarkor",
        apps=("pro expense", "markor"),
        complexity=6,
        difficulty="hard",
        goal=make_goal(
            _describe,
            "The Markor note my_expenses.txt says which transactions are reimbursable. Enter those in Pro Expense; "
            "the remark itself does not belong into their notes.",
            "Add every reimbursable transaction from my_expenses.txt in Markor to Pro Expense, without the word "
            "reimbursable in its note.",
            "Look through my_expenses.txt in Markor. What is reimbursable goes into Pro Expense, with the rest of its "
            "note.",
        ),
        draw=partial(_draw_added, count=2, noise=100),
        prepare=_prepare_note,
        plan=partial(_LEDGER.plan, target=_LEDGER.expect_added, note=_NOTE),
    ),
    _delete_task(
        name="ExpenseDeleteSingle", complexity=1, difficulty="easy", draw=partial(_draw_removed, count=1, noise=0)
    ),
    _delete_task(
        name="ExpenseDeleteMultiple", complexity=2, difficulty="easy", draw=partial(_draw_removed, count=3, noise=0)
    ),
    _delete_task(
        name="ExpenseDeleteMultiple2", complexity=3.4, difficulty="hard", draw=partial(_draw_removed, count=3, noise=50)
    ),
    _twin_task(name="ExpenseDeleteDuplicates", complexity=1.2, draw=partial(_draw_twins, noise=5, variants=0)),
    _twin_task(name="ExpenseDeleteDuplicates2", complexity=1.8, draw=partial(_draw_twins, noise=37, variants=3)),
)
