"""SQL, emoji, right-to-left and very long texts: typed, pasted, stored, shown and drawn like any other text."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.content.people import list_people
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.shell import run, tree
from collab.envs.simphone.state import Phone, is_file
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.render import render
from collab.envs.simphone.ui.screen import Frame, look

SUITE = SimPhoneSuite()
TEXTS = {
    "sql": "Robert'); DROP TABLE events;--",
    "emoji": "👩‍👩‍👧‍👦 Büro 🎉",
    "right to left": "שלום עולם مرحبا",
    "quotes": "\"a\" `b` 'c' <d> & {e} %s \\n",
    "spaces": "two  spaces\tand a tab",
}
LONG = "All work and no play. " * 4_700
"""A bit more than 100 kB."""
DATA = "/data/data"
SMS = f"{DATA}/com.android.providers.telephony/databases/mmssms.db"


def in_rows(column: str) -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    """Puts a text into the rows that a task asks for."""
    return lambda params, text: {"row_objects": [{**row, column: text} for row in params["row_objects"]]}


PUT: Mapping[str, tuple[Callable[[Mapping[str, Any], str], dict[str, Any]], str]] = {
    "ContactsAddContact": (
        lambda _, text: {"name": " ".join(text.split())},
        f"{DATA}/com.android.providers.contacts/databases/contacts2.db",
    ),
    "SimpleSmsSend": (lambda _, text: {"message": text}, SMS),
    "SimpleCalendarAddOneEvent": (
        in_rows("title"),
        f"{DATA}/com.simplemobiletools.calendar.pro/databases/events.db",
    ),
    "ExpenseAddSingle": (in_rows("name"), f"{DATA}/com.arduia.expense/databases/accounting.db"),
    "RecipeAddSingleRecipe": (in_rows("title"), f"{DATA}/com.flauschcode.broccoli/databases/broccoli"),
}
"""Task → how it takes the text, and the database in which it ends up."""


def pulled(phone: Phone, path: str) -> list[str]:
    """All texts in a database, read from its bytes by plain SQLite."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(tree.read_bytes(phone, path))
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for name in tables for row in connection.execute(f'SELECT * FROM "{name}"')]
    return [value for row in rows for value in row if isinstance(value, str)]


def solved(task_name: str, **params: Any) -> SimPhone:
    """The phone after the oracle has solved an instance with other parameters; every screen is drawn once."""
    task = SUITE.instance(task_name, 3)
    phone = SimPhone()
    phone.reset(replace(task, params={**task.params, **params}, max_steps=200))
    for action in phone.oracle() or pytest.fail("no solution"):
        render(phone.frame.observation, marks=True)
        result = phone.step(action)
    assert result.outcome is not None
    assert result.outcome.success
    return phone


@pytest.mark.parametrize("name", PUT)
@pytest.mark.parametrize("kind", TEXTS)
def test_a_strange_text_is_stored_as_it_is(name: str, kind: str) -> None:
    put, path = PUT[name]
    params = SUITE.instance(name, 3).params
    phone = solved(name, **put(params, TEXTS[kind]))
    stored = pulled(phone.phone, path)
    if name == "ContactsAddContact":  # in two columns, first name and the rest
        assert " ".join(TEXTS[kind].split()) in " ".join(stored)
    else:
        assert TEXTS[kind] in stored
    assert run(phone.phone, f"sqlite3 {path} 'PRAGMA integrity_check'").stdout == "ok\n"


@pytest.mark.parametrize("kind", TEXTS)
def test_a_file_with_a_strange_name_is_shown_moved_and_deleted(kind: str) -> None:
    name = TEXTS[kind].replace("/", "-").replace("\t", " ").strip() + ".md"
    phone = solved("MarkorDeleteNote", file_name=name)
    assert not is_file(phone.phone, f"/storage/emulated/0/Documents/Markor/{name}")
    solved("FilesMoveFile", file_name=name)


def frame_of(phone: Phone) -> Frame:
    """Look, and fail when it takes long."""
    start = time.perf_counter()
    frame = look(phone)
    assert time.perf_counter() - start < 2
    return frame


def touched(phone: Phone, key: str, type: str = "click") -> Phone:
    frame = frame_of(phone)
    return act(frame, MOBILE.make(type, index=frame.index(key)))


def test_a_pasted_text_of_100_kb_is_kept_whole() -> None:
    state = replace(FACTORY, clipboard=LONG)
    state = act(frame_of(state), MOBILE.make("open_app", app_name="contacts"))
    contacts = "com.google.android.contacts:id/"
    for key, type in (
        (contacts + "floating_action_button", "click"),
        (contacts + "first", "long_press"),
        ("android:id/paste", "click"),
    ):
        state = touched(state, key, type)
    assert state.page.fields["first"] == LONG
    render(frame_of(state).observation, marks=True)
    state = touched(state, contacts + "toolbar_button")
    assert list_people(state)[0].first == LONG.strip()
    render(frame_of(state).observation)


def test_a_message_of_100_kb_is_sent_whole() -> None:
    phone = SimPhone()
    task = SUITE.instance("SimpleSmsSend", 0)
    phone.reset(replace(task, params={**task.params, "message": LONG.strip()}))
    start = time.perf_counter()
    for action in phone.oracle() or pytest.fail("no solution"):
        result = phone.step(action)
    assert time.perf_counter() - start < 10
    assert result.outcome is not None
    assert result.outcome.success
    assert LONG.strip() in pulled(phone.phone, SMS)
    assert LONG[:2000] in run(phone.phone, "content query --uri content://sms").stdout
