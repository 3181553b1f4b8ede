"""Tasks: its list, its form, its database, and questions about it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone import state
from collab.envs.simphone.apps.todos import PACKAGE, TODOS, add_todo, entry_key, format_moment, list_todos
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.state import START_MS, rows
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME, TASKS

ID = PACKAGE + ":id/"
SUITE = SimPhoneSuite()
NAMES = [spec.name for spec in TASKS if spec.name.startswith("Tasks")]


def started(name: str, seed: int = 2) -> SimPhone:
    phone = SimPhone()
    phone.reset(replace(SUITE.instance(name, seed), max_steps=1000))
    return phone


def tap(phone: SimPhone, key: str, type: str = "click", **fields: Any) -> None:
    index = phone.frame.index(key)
    assert index is not None, (key, phone.frame.observation.text)
    phone.step(MOBILE.make(type, index=index, **fields))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_whole_answer_counts(name: str) -> None:
    phone = started(name)
    solution = phone.oracle()
    assert solution is not None
    right = str(dict(solution[-2].arguments)["text"])
    params = SUITE.instance(name, 2).params

    def score(answer: str | None) -> float:
        return BY_NAME[name].score(phone.phone, replace(phone.phone, answer=answer), params)

    first = right.partition(",")[0]
    assert score(right) == 1.0
    wrong = [None, "", f"{right}, {first}", "Nothing", "-1", *([first] if first != right else [])]
    assert [score(answer) for answer in wrong] == [0.0] * len(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_other_rows_are_there_but_not_meant(name: str) -> None:
    for seed in range(4):
        content = rows(started(name, seed).phone, TODOS)
        wanted = {"TasksDueNextWeek": 6, "TasksHighPriorityTasks": 1, "TasksHighPriorityTasksDueOnDate": 1}.get(name, 3)
        assert len(content) == 20 + wanted
        titles = [row["title"] for row in content]
        params = SUITE.instance(name, seed).params
        assert titles.count(params.get("title", params.get("task_title"))) == 1


def test_the_list_hides_what_is_done_and_what_starts_later() -> None:
    phone = add_todo(FACTORY, title="Open", dueDate=START_MS)
    phone = add_todo(phone, title="Whenever")
    phone = add_todo(phone, title="Done", completed=START_MS)
    phone = add_todo(phone, title="Later", hideUntil=START_MS + 1)

    def titles(**shown: bool) -> list[object]:
        return [row["title"] for row in list_todos(phone, **shown)]

    assert titles(completed=False, unstarted=False) == ["Open", "Whenever"]
    assert titles(completed=True, unstarted=False) == ["Open", "Whenever", "Done"]
    assert titles(completed=False, unstarted=True) == ["Open", "Whenever", "Later"]


def test_a_task_is_written_done_shown_again_and_deleted_by_hand() -> None:
    phone = started("SystemWifiTurnOn")
    phone.step(MOBILE.make("open_app", app_name="tasks"))
    before = rows(phone.phone, TODOS)
    tap(phone, ID + "fab")
    tap(phone, ID + "title", "input_text", text="Knit")
    tap(phone, ID + "due/Today")
    tap(phone, ID + "priority/High")
    tap(phone, ID + "save")
    new = rows(phone.phone, TODOS)[-1]
    key = int(new["_id"] or 0)
    assert (new["title"], new["importance"], format_moment(int(new["dueDate"] or 0))) == (
        "Knit",
        0,
        "Sun, 15 October 2023",
    )
    tap(phone, f"{ID}complete/{key}")
    assert phone.frame.index(entry_key(key)) is None
    tap(phone, ID + "more")
    tap(phone, ID + "show_completed")
    tap(phone, f"{ID}complete/{key}")
    assert rows(phone.phone, TODOS)[-1] == {**new, "modified": rows(phone.phone, TODOS)[-1]["modified"]}
    tap(phone, entry_key(key))
    tap(phone, ID + "notes", "input_text", text="blue")
    tap(phone, ID + "save")
    assert rows(phone.phone, TODOS)[-1]["notes"] == "blue"
    tap(phone, entry_key(key))
    tap(phone, ID + "delete")
    tap(phone, ID + "ok")
    assert rows(phone.phone, TODOS) == before
    assert phone.phone.page.screen == "todos.list"


def test_a_dump_holds_every_row_with_a_column_called_order() -> None:
    phone = started("TasksDueOnDate").phone
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(state.dump(phone, TODOS.path, [TODOS]))
        found = connection.execute(f"SELECT title, `order` FROM {TODOS.name} ORDER BY rowid").fetchall()
    defaults = TODOS.defaults
    assert found == [(row["title"], row.get("order", defaults["order"])) for row in rows(phone, TODOS)]
