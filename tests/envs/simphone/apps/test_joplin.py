"""Joplin: its notebooks, its search, its database, and questions about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone import state
from collab.envs.simphone.apps.joplin import (
    APP,
    FOLDERS,
    NORMALIZED,
    NOTES,
    PACKAGE,
    entry_key,
    find_notes,
    folder_key,
    list_folders,
    put_library,
)
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.shell.tree import load_database
from collab.envs.simphone.state import rows
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME, TASKS

ID = PACKAGE + ":id/"
SUITE = SimPhoneSuite()
NAMES = [spec.name for spec in TASKS if spec.name.startswith("Notes")]


def started(name: str, seed: int = 2) -> SimPhone:
    phone = SimPhone()
    phone.reset(replace(SUITE.instance(name, seed), max_steps=1000))
    return phone


def tap(phone: SimPhone, key: str, type: str = "click", **fields: Any) -> None:
    index = phone.frame.index(key)
    assert index is not None, (key, phone.frame.observation.text)
    phone.step(MOBILE.make(type, index=index, **fields))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_right_answer_counts(name: str) -> None:
    phone = started(name)
    solution = phone.oracle()
    assert solution is not None
    right = str(dict(solution[-2].arguments)["text"])
    params = SUITE.instance(name, 2).params
    answers = [right, None, "", f"{right}, {right}", "Maybe", "-1"]
    scores = [BY_NAME[name].score(phone.phone, replace(phone.phone, answer=one), params) for one in answers]
    assert scores == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", NAMES)
def test_the_note_is_there_once_among_others(name: str) -> None:
    for seed in range(4):
        phone = started(name, seed).phone
        titles = [row["title"] for row in rows(phone, NOTES)]
        assert titles.count(SUITE.instance(name, seed).params["title"]) == 1
        assert len(titles) > 30
        assert not any("{" in str(row["body"]) for row in rows(phone, NOTES))
        assert {row["parent_id"] for row in rows(phone, NOTES)} <= {row["id"] for row in list_folders(phone)}


def test_titles_are_found_before_bodies() -> None:
    phone = put_library(FACTORY, [("A", {"title": "Boots", "body": "warm SOUP"}), ("B", {"title": "Soup", "body": ""})])
    assert [row["title"] for row in find_notes(phone, "soup")] == ["Soup", "Boots"]
    assert [row["title"] for row in list_folders(phone)] == ["A", "B"]


def test_a_to_do_is_written_checked_changed_and_deleted_by_hand() -> None:
    phone = started("NotesTodoItemCount")
    before = rows(phone.phone, NOTES)
    folder = str(list_folders(phone.phone)[0]["id"])
    phone.step(MOBILE.make("open_app", app_name="joplin"))
    tap(phone, ID + "sidebar")
    tap(phone, folder_key(folder))
    tap(phone, ID + "add")
    tap(phone, ID + "new/1")
    tap(phone, ID + "title", "input_text", text="AA first")
    tap(phone, ID + "save")
    new = rows(phone.phone, NOTES)[-1]
    assert (new["title"], new["is_todo"], new["parent_id"]) == ("AA first", 1, folder)
    tap(phone, f"{ID}todo/{new['id']}")
    assert rows(phone.phone, NOTES)[-1]["todo_completed"]
    tap(phone, entry_key(str(new["id"])))
    tap(phone, ID + "edit")
    tap(phone, ID + "body", "input_text", text="Now.")
    tap(phone, ID + "save")
    assert rows(phone.phone, NOTES)[-1]["body"] == "Now."
    assert rows(phone.phone, NORMALIZED)[-1]["title"] == "aa first"
    tap(phone, ID + "delete")
    tap(phone, ID + "ok")
    assert rows(phone.phone, NOTES) == before
    assert phone.phone.page.screen == "joplin.list"


def test_all_three_tables_survive_a_dump() -> None:
    phone = started("NotesIsTodo").phone
    again = load_database(replace(phone, rows={}), NOTES.path, state.dump(phone, NOTES.path, APP.tables))
    for table in (FOLDERS, NOTES, NORMALIZED):
        assert again.rows[table.path, table.name] == tuple(sorted(rows(phone, table), key=lambda row: str(row["id"])))
