"""What Tasks keeps: things to do, in the app's own database. Times are milliseconds; 0 stands for none."""

from __future__ import annotations

from types import MappingProxyType

from collab.envs.simphone.content.calendar import day_name, day_of, time_name
from collab.envs.simphone.state import Phone, Row, Table, insert, remove, rows, update, whole
from collab.types import Scalar

_NUMBER = "INTEGER NOT NULL"
TODOS = Table(
    path="/data/data/org.tasks/databases/database",
    name="tasks",
    columns=(
        ("_id", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"),
        ("title", "TEXT"),
        *((name, _NUMBER) for name in ("importance", "dueDate", "hideUntil", "created", "modified")),
        *((name, _NUMBER) for name in ("completed", "deleted")),
        ("notes", "TEXT"),
        *((name, _NUMBER) for name in ("estimatedSeconds", "elapsedSeconds", "timerStart")),
        *((name, _NUMBER) for name in ("notificationFlags", "lastNotified")),
        *(("recurrence", "TEXT"), ("repeat_from", _NUMBER), ("calendarUri", "TEXT"), ("remoteId", "TEXT")),
        *(("collapsed", _NUMBER), ("parent", _NUMBER), ("order", "INTEGER"), ("read_only", _NUMBER)),
    ),
)
HIGH, LOW = 0, 2
NONE = "None"
PRIORITIES = {HIGH: "High", 1: "Medium", LOW: "Low", 3: NONE}
"""Names of the column `importance`."""
BLANK: Row = MappingProxyType({name: 0 if kind == _NUMBER else None for name, kind in TODOS.columns[1:]})
"""What the app writes where nobody chose anything."""


def todos(phone: Phone, *, completed: bool, unstarted: bool) -> list[Row]:
    """What is to do, by due date, what is never due last; with or without what is done, or hidden until later."""
    found = [
        row
        for row in rows(phone, TODOS)
        if not whole(row["deleted"])
        and (completed or not whole(row["completed"]))
        and (unstarted or whole(row["hideUntil"]) <= phone.now_ms)
    ]
    return sorted(found, key=lambda row: (not due(row), due(row), whole(row["_id"])))


def todo(phone: Phone, id: int) -> Row | None:
    """One of them by its id."""
    return next((row for row in rows(phone, TODOS) if row["_id"] == id), None)


def add_todo(phone: Phone, **values: Scalar) -> Phone:
    """Store something to do."""
    return insert(phone, TODOS, **{**BLANK, "created": phone.now_ms, "modified": phone.now_ms, **values})[0]


def change_todo(phone: Phone, id: int, **values: Scalar) -> Phone:
    """Change columns of one of them."""
    return update(phone, TODOS, lambda row: row["_id"] == id, **values, modified=phone.now_ms)


def remove_todo(phone: Phone, id: int) -> Phone:
    """Delete one of them."""
    return remove(phone, TODOS, lambda row: row["_id"] == id)


def due(row: Row) -> int:
    """When it is due."""
    return whole(row["dueDate"])


def due_day(row: Row) -> int | None:
    """The day on which it is due, counted from 1970; None when it is never due."""
    return day_of(due(row) // 1000) if due(row) else None


def moment_name(milliseconds: int) -> str:
    """A time in words, "Mon, 16 October 2023, 17:00"; without the hour at midnight, which stands for the whole day."""
    if not milliseconds:
        return "No due date"
    seconds = milliseconds // 1000
    hour = time_name(seconds)
    return day_name(day_of(seconds)) + ("" if hour == "00:00" else f", {hour}")
