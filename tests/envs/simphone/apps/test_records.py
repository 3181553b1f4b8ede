"""Pro Expense and Broccoli: their rows, their screens, and how tasks about rows are judged."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE
from collab.envs.simphone import state
from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.apps import expense as expense_app
from collab.envs.simphone.apps import recipe as recipe_app
from collab.envs.simphone.apps.expense import EXPENSE, format_dollars, parse_cents
from collab.envs.simphone.apps.markor import MARKOR
from collab.envs.simphone.apps.recipe import RECIPES, add_recipe, find_recipes
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.shell.tree import load_database
from collab.envs.simphone.state import Page, Phone, Table, TableRow, read, rows
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME, TASKS
from collab.envs.simphone.tasks.recipe import DIRECTIONS, INGREDIENTS
from collab.envs.simphone.tasks.records import format_records
from collab.envs.simphone.ui.screen import look
from collab.types import Action

SUITE = SimPhoneSuite()
GROUPS: dict[str, tuple[Table, Mapping[str, Any]]] = {
    "Expense": (EXPENSE, {"name": "Something else", "amount": 1, "category": 11, "note": "A lie"}),
    "Recipe": (RECIPES, {"title": "Something else", "servings": "999", "directions": "None", "favorite": 1}),
}
"""Start of a task's name → its table, and values no row has."""
NAMES = [spec.name for spec in TASKS if spec.name.startswith(tuple(GROUPS))]
ADDING = [name for name in NAMES if "Add" in name]
TWINS = [name for name in NAMES if "Duplicate" in name]
EXPENSES, RECIPE_BOOK = expense_app.PACKAGE + ":id/", recipe_app.PACKAGE + ":id/"


def group(name: str) -> tuple[Table, Mapping[str, Any]]:
    return next(found for start, found in GROUPS.items() if name.startswith(start))


def started(name: str, seed: int = 2) -> SimPhone:
    phone = SimPhone()
    phone.reset(replace(SUITE.instance(name, seed), max_steps=1000))
    return phone


def solved(name: str, seed: int = 2) -> tuple[Phone, Phone]:
    """The phone at the start of a task and after it."""
    phone = started(name, seed)
    start = phone.phone
    for action in (phone.oracle() or ())[:-1]:
        phone.step(action)
    return start, phone.phone


def score(name: str, start: Phone, end: Phone, seed: int = 2) -> float:
    return BY_NAME[name].score(start, end, SUITE.instance(name, seed).params)


def with_rows(phone: Phone, table: Table, content: tuple[TableRow, ...]) -> Phone:
    return replace(phone, rows={**phone.rows, (table.path, table.name): content})


def tap(phone: SimPhone, key: str, type: str = "click", **fields: Any) -> None:
    index = phone.frame.index(key)
    assert index is not None, (key, phone.frame.observation.text)
    phone.step(MOBILE.make(type, index=index, **fields))


def open_app(name: str) -> Action:
    return MOBILE.make("open_app", app_name=name)


# --------------------------------------------------------------------------------------------------------- judging


@pytest.mark.parametrize("name", NAMES)
def test_any_other_change_of_the_table_spoils_a_solution(name: str) -> None:
    table, wrong = group(name)
    start, end = solved(name)
    assert score(name, start, end) == 1.0
    content = rows(end, table)
    key = table.columns[0][0]
    extra = {**dict.fromkeys(column for column, _ in table.columns), **wrong, key: 10_000}
    assert score(name, start, with_rows(end, table, (*content, extra))) == 0.0
    if content:
        assert score(name, start, with_rows(end, table, content[1:])) == 0.0
        assert score(name, start, with_rows(end, table, ({**content[0], **wrong}, *content[1:]))) == 0.0


@pytest.mark.parametrize("name", ADDING)
def test_an_added_row_must_agree_in_every_decisive_column(name: str) -> None:
    table, wrong = group(name)
    start, end = solved(name)
    *before, last = rows(end, table)
    for column, value in wrong.items():
        assert score(name, start, with_rows(end, table, (*before, {**last, column: value}))) == 0.0, column
    text = table.columns[1][0]
    nearly = {**last, text: str(last[text]).upper() + "."}
    assert score(name, start, with_rows(end, table, (*before, nearly))) == 1.0


@pytest.mark.parametrize("name", TWINS)
def test_either_twin_may_go_but_not_both(name: str) -> None:
    table, _ = group(name)
    start = started(name).phone
    *others, first, second = rows(start, table)
    assert {**first, table.columns[0][0]: 0} == {**second, table.columns[0][0]: 0}
    assert score(name, start, with_rows(start, table, (*others, first))) == 1.0
    assert score(name, start, with_rows(start, table, (*others, second))) == 1.0
    assert score(name, start, with_rows(start, table, tuple(others))) == 0.0
    assert score(name, start, with_rows(start, table, (*others[1:], first))) == 0.0


@pytest.mark.parametrize("name", TWINS)
def test_no_other_rows_are_twins(name: str) -> None:
    table, _ = group(name)
    for seed in range(20):
        content = rows(started(name, seed).phone, table)
        kinds = {tuple(value for column, value in row.items() if column != table.columns[0][0]) for row in content}
        assert len(kinds) == len(content) - 1


# --------------------------------------------------------------------------------------------------------- drawing


def test_the_ingredient_task_always_has_a_target() -> None:
    for seed in range(100):
        params = SUITE.instance("RecipeDeleteMultipleRecipesWithConstraint", seed).params
        assert 1 <= len(params["row_objects"]) <= 3
        assert all(params["ingredient"] in row["directions"].lower() for row in params["row_objects"])
        assert not any(params["ingredient"] in row["directions"].lower() for row in params["noise_row_objects"])
    for name in INGREDIENTS:
        assert any(name.replace("_", " ") in text.lower() for text in DIRECTIONS.values()), name


def test_notes_hold_what_the_goal_speaks_of() -> None:
    for seed in range(4):
        params = SUITE.instance("ExpenseAddMultipleFromMarkor", seed).params
        note = read(started("ExpenseAddMultipleFromMarkor", seed).phone, f"{MARKOR}/my_expenses.txt")
        marked = {tuple(line.split("|")[::3]) for line in note.splitlines() if "Reimbursable" in line}
        assert marked == {(row["name"], f"{row['note']}. Reimbursable.") for row in params["row_objects"]}
        assert len(note.splitlines()) == 103
        params = SUITE.instance("RecipeAddMultipleRecipesFromMarkor2", seed).params
        note = read(started("RecipeAddMultipleRecipesFromMarkor2", seed).phone, f"{MARKOR}/recipes.txt")
        assert all(row["preparationTime"] == params["prep_time"] for row in params["row_objects"])
        assert all(row["preparationTime"] != params["prep_time"] for row in params["noise_row_objects"])
        assert all(row["directions"] in note for row in (*params["row_objects"], *params["noise_row_objects"]))


def test_both_forms_of_a_list_say_the_same() -> None:
    records = [{"Recipe": "Soup", "time": "1 h"}, {"Recipe": "Pie", "time": "2 h"}]
    assert format_records(records, "csv") == "Recipe|time\nSoup|1 h\nPie|2 h"
    assert format_records(records, "text_block") == "Recipe: Soup\n time: 1 h\n\nRecipe: Pie\n time: 2 h"


# ---------------------------------------------------------------------------------------------------- rows and screens


@given(st.integers(min_value=0, max_value=99_999_999))
def test_amounts_survive_writing_and_reading(amount: int) -> None:
    assert parse_cents(format_dollars(amount)) == amount
    assert parse_cents(f" {format_dollars(amount)} USD") == amount


@pytest.mark.parametrize(("text", "amount"), [("7", 700), ("7.5", 750), (".05", 5), ("", 0), ("1.2.3", 0), ("abc", 0)])
def test_amounts_as_typed(text: str, amount: int) -> None:
    assert parse_cents(text) == amount


@pytest.mark.parametrize("name", ["ExpenseDeleteMultiple2", "RecipeDeleteMultipleRecipesWithNoise"])
def test_database_files_have_the_apps_schema(name: str) -> None:
    table, _ = group(name)
    phone = started(name).phone
    tables = [table for app in STANDARD.all for table in app.tables]
    data = state.dump(phone, table.path, tables)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
        assert columns == [column for column, _ in table.columns]
        assert connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0] == len(rows(phone, table))
    emptied = with_rows(phone, table, ())
    assert rows(load_database(emptied, table.path, data), table) == rows(phone, table)


@pytest.mark.parametrize("junk", [None, "abc", -(10**17), 10**17])
def test_junk_in_a_pushed_database_is_shown_somehow(junk: Any) -> None:
    phone = started("SystemWifiTurnOn").phone
    for table, screens in ((EXPENSE, ("home", "logs", "statistics", "detail")), (RECIPES, ("list", "detail"))):
        row = {table.columns[0][0]: 1, **{column: junk for column, _ in table.columns[1:]}}
        phone = with_rows(phone, table, (row,))
        package, app = (expense_app.PACKAGE, "expense") if table is EXPENSE else (recipe_app.PACKAGE, "recipe")
        for screen in screens:
            stacks = {**phone.stacks, package: (Page(screen=f"{app}.{screen}", data={"id": 1}),)}
            assert look(replace(phone, stacks=stacks, foreground=package)).observation.elements


def test_an_expense_is_written_changed_and_deleted_by_hand() -> None:
    phone = started("SystemWifiTurnOn")
    phone.step(open_app("pro expense"))
    before = rows(phone.phone, EXPENSE)
    tap(phone, EXPENSES + "fb_add")
    tap(phone, EXPENSES + "edt_name", "input_text", text="Tea")
    tap(phone, EXPENSES + "btn_save")
    assert phone.phone.notice == "Cost is Empty"
    tap(phone, EXPENSES + "edt_amount", "input_text", text="3.20")
    tap(phone, EXPENSES + "category/Food")
    tap(phone, EXPENSES + "btn_save")
    new = rows(phone.phone, EXPENSE)[-1]
    assert (new["name"], new["amount"], new["category"], new["note"]) == ("Tea", 320, 3, "")
    key = f"{EXPENSES}expense/{new['expense_id']}"
    tap(phone, EXPENSES + "btn_more")
    tap(phone, key)
    tap(phone, EXPENSES + "btn_edit")
    tap(phone, EXPENSES + "edt_note", "input_text", text="green")
    tap(phone, EXPENSES + "btn_save")
    changed = rows(phone.phone, EXPENSE)[-1]
    assert changed == {**new, "note": "green"}
    tap(phone, key)
    tap(phone, EXPENSES + "btn_delete")
    tap(phone, EXPENSES + "btn_confirm")
    assert rows(phone.phone, EXPENSE) == before
    assert phone.phone.page.screen == "expense.logs"


def test_the_drawer_leads_to_logs_and_sums() -> None:
    phone = started("ExpenseDeleteMultiple")
    phone.step(open_app("Pro Expense"))
    tap(phone, EXPENSES + "drawer")
    tap(phone, EXPENSES + "dest_statistics")
    total = sum(int(row["amount"] or 0) for row in rows(phone.phone, EXPENSE))
    shown = [parse_cents(element.value or "") for element in phone.frame.observation.elements if element.value]
    assert sum(shown) == total
    tap(phone, EXPENSES + "drawer")
    tap(phone, EXPENSES + "dest_expense_logs")
    phone.step(MOBILE.make("navigate_back"))
    assert phone.phone.page.screen == "expense.home"


def test_a_recipe_is_written_marked_and_changed_by_hand() -> None:
    phone = started("SystemWifiTurnOn")
    phone.step(open_app("broccoli recipe app"))
    tap(phone, RECIPE_BOOK + "fab_recipes")
    tap(phone, RECIPE_BOOK + "button_save_recipe")
    assert phone.phone.notice == "Please add a title."
    tap(phone, RECIPE_BOOK + "new_title", "input_text", text="AA Toast")
    tap(phone, RECIPE_BOOK + "new_directions", "input_text", text="Toast it.\nEat it.")
    tap(phone, RECIPE_BOOK + "close")
    assert phone.phone.page.screen == "recipe.discard"
    tap(phone, RECIPE_BOOK + "cancel")
    tap(phone, RECIPE_BOOK + "button_save_recipe")
    new = rows(phone.phone, RECIPES)[-1]
    assert (new["title"], new["directions"], new["favorite"]) == ("AA Toast", "Toast it.\nEat it.", 0)
    tap(phone, f"{RECIPE_BOOK}recipe/{new['recipeId']}")
    tap(phone, RECIPE_BOOK + "action_details_like")
    assert rows(phone.phone, RECIPES)[-1] == {**new, "favorite": 1}
    tap(phone, RECIPE_BOOK + "action_details_like")
    tap(phone, RECIPE_BOOK + "more")
    tap(phone, RECIPE_BOOK + "action_details_edit")
    tap(phone, RECIPE_BOOK + "new_source", "input_text", text="Aunt")
    tap(phone, RECIPE_BOOK + "button_save_recipe")
    assert rows(phone.phone, RECIPES)[-1] == {**new, "source": "Aunt"}


def test_the_search_does_not_look_into_directions() -> None:
    phone = add_recipe(FACTORY, {"title": "Plain Toast", "directions": "Butter it."})
    phone = add_recipe(phone, {"title": "Butter Cake", "ingredients": "flour"})
    assert [row["title"] for row in find_recipes(phone, "BUTTER")] == ["Butter Cake"]
    assert [row["title"] for row in find_recipes(phone, "flour")] == ["Butter Cake"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_row_is_taken_away_again(name: str) -> None:
    """A row that nobody asked for, saved by mistake, does not end the task: the plan deletes it."""
    table, wrong = group(name)
    phone = started(name)
    phone.step(open_app("Pro Expense" if table is EXPENSE else "Broccoli"))
    if table is EXPENSE:
        tap(phone, EXPENSES + "fb_add")
        tap(phone, EXPENSES + "edt_amount", "input_text", text="1")
        tap(phone, EXPENSES + "btn_save")
    else:
        tap(phone, RECIPE_BOOK + "fab_recipes")
        tap(phone, RECIPE_BOOK + "new_title", "input_text", text=str(wrong["title"]))
        tap(phone, RECIPE_BOOK + "button_save_recipe")
    assert phone.oracle(), "solved with full score on a copy"
