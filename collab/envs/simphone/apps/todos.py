"""Tasks: what is to do by due date, a menu for what the list hides, and the form of one task.

What Tasks keeps: things to do, in the app's own database. Times are milliseconds; 0 stands for none.
"""

from __future__ import annotations

import random
from functools import partial
from types import MappingProxyType

from collab.envs.simphone.app import App, Item, UiNode, View, button, grid, icon, item, row, text, text_field
from collab.envs.simphone.content.calendar import DAY, compute_day, format_day, format_time
from collab.envs.simphone.state import (
    Handler,
    Page,
    Phone,
    Table,
    TableRow,
    insert,
    keep,
    pop,
    push,
    recall,
    remember,
    remove,
    rows,
    to_whole,
    toast,
    update,
)
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
BLANK: TableRow = MappingProxyType({name: 0 if kind == _NUMBER else None for name, kind in TODOS.columns[1:]})
"""What the app writes by default."""


def list_todos(phone: Phone, *, completed: bool, unstarted: bool) -> list[TableRow]:
    """Return the tasks by due date, those never due last.

    With or without what is done, or hidden until later.
    """
    found = [
        row
        for row in rows(phone, TODOS)
        if not to_whole(row["deleted"])
        and (completed or not to_whole(row["completed"]))
        and (unstarted or to_whole(row["hideUntil"]) <= phone.now_ms)
    ]
    return sorted(found, key=lambda row: (not find_due_time(row), find_due_time(row), to_whole(row["_id"])))


def find_todo(phone: Phone, id: int) -> TableRow | None:
    """Return a task by its id."""
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


def find_due_time(row: TableRow) -> int:
    """Return when a task is due."""
    return to_whole(row["dueDate"])


def find_due_day(row: TableRow) -> int | None:
    """Return the day on which a task is due, counted from 1970; None when it is never due."""
    return compute_day(find_due_time(row) // 1000) if find_due_time(row) else None


def format_moment(milliseconds: int) -> str:
    """Return a time in words, "Mon, 16 October 2023, 17:00".

    Without the hour at midnight, which stands for the whole day.
    """
    if not milliseconds:
        return "No due date"
    seconds = milliseconds // 1000
    hour = format_time(seconds)
    return format_day(compute_day(seconds)) + ("" if hour == "00:00" else f", {hour}")


PACKAGE = "org.tasks"
_ID = PACKAGE + ":id/"
_DAY_MS = 1000 * DAY
_DATES = {"Today": 0, "Tomorrow": 1, "Next week": 7}
"""Due dates to choose from: days from today."""


def entry_key(id: int) -> str:
    """Return the key of a task in the list."""
    return f"{_ID}task/{id}"


def is_shown(phone: Phone, what: str) -> bool:
    """Return whether the list shows what is "completed" or "unstarted"."""
    return bool(recall(phone, PACKAGE, what, False))


def task_list(phone: Phone, page: Page) -> View:
    """Show the list of tasks."""
    found = list_todos(phone, completed=is_shown(phone, "completed"), unstarted=is_shown(phone, "unstarted"))
    body: list[Item] = [row(_entry(one), _box(one)) for one in found]
    return View(
        title="My Tasks",
        body=body or [text("There are no tasks here.", _ID + "empty")],
        actions=(icon("More options", _ID + "more", partial(push, page=Page(screen="todos.menu"))),),
        fab=icon("Create new task", _ID + "fab", _create),
    )


def menu(phone: Phone, page: Page) -> View:
    """Show what the list hides otherwise."""
    body: list[Item] = [
        item(
            f"{'Hide' if is_shown(phone, what) else 'Show'} {what}",
            f"{_ID}show_{what}",
            partial(_toggle_shown, what=what),
        )
        for what in ("unstarted", "completed")
    ]
    return View(title="More options", style="menu", body=body)


def editor(phone: Phone, page: Page) -> View:
    """Show the form of a new or an existing task; nothing is stored before Save."""
    # The form works on the page's data, so leaving without Save changes nothing.
    id, chosen = page.data["id"], int(page.data["dueDate"])
    one = None if id is None else find_todo(phone, id)
    priorities: list[UiNode] = [
        _chip(name, f"{_ID}priority/{name}", number == page.data["importance"], partial(keep, importance=number))
        for number, name in PRIORITIES.items()
    ]
    # Chips count from the phone's day, not from the machine's: episodes must not depend on today.
    midnight = compute_day(phone.now_ms // 1000) * _DAY_MS
    dates = {"None": 0, **{name: midnight + days * _DAY_MS for name, days in _DATES.items()}}
    choices = [
        _chip(name, f"{_ID}due/{name}", when == chosen, partial(keep, dueDate=when)) for name, when in dates.items()
    ]
    body: list[Item] = [
        text_field(page, "title", "Task name", _ID + "title"),
        text("Due", _ID + "due_date", value=format_moment(chosen)),
        *grid(choices, 4),
        text("Priority", _ID + "priority", value=PRIORITIES.get(int(page.data["importance"]), NONE)),
        *grid(priorities, 4),
        text_field(page, "notes", "Description", _ID + "notes", multiline=True),
    ]
    # When it was completed is shown, and cannot be changed here.
    if one is not None and to_whole(one["completed"]):
        body.append(text("Completed", _ID + "completed", value=format_moment(to_whole(one["completed"]))))
    return View(
        title="New task" if id is None else "Task",
        body=body,
        navigation=icon("Close", _ID + "close", pop),
        actions=(
            *((icon("Delete", _ID + "delete", partial(push, page=_question(id))),) if id is not None else ()),
            icon("Save", _ID + "save", _save),
        ),
    )


def delete(phone: Phone, page: Page) -> View:
    """Show the question before a task is deleted."""
    return View(
        title="Delete task?",
        style="dialog",
        body=[text("This cannot be undone.", _ID + "message")],
        actions=(button("Cancel", _ID + "cancel", pop), button("OK", _ID + "ok", partial(_delete, id=page.data["id"]))),
    )


def _entry(one: TableRow) -> UiNode:
    priority = PRIORITIES.get(to_whole(one["importance"]), NONE)
    details = [format_moment(find_due_time(one)), f"{'No' if priority == NONE else priority} priority"]
    return item(_read_title(one), entry_key(_read_id(one)), partial(_open, one=one), value=" · ".join(details))


def _box(one: TableRow) -> UiNode:
    done = bool(to_whole(one["completed"]))
    flags = ("checked",) if done else ()
    label = f"{'Completed' if done else 'Complete'} {_read_title(one)}"
    return UiNode(
        "checkbox", label, f"{_ID}complete/{_read_id(one)}", None, flags, partial(_complete, id=_read_id(one))
    )


def _chip(name: str, key: str, on: bool, choose: Handler) -> UiNode:
    return UiNode("chip", name, key, None, ("selected",) if on else (), choose)


def _question(id: int) -> Page:
    return Page(screen="todos.delete", data={"id": id})


def _read_title(one: TableRow) -> str:
    return str(one["title"] or "")


def _read_id(one: TableRow) -> int:
    return to_whole(one["_id"])


def _toggle_shown(phone: Phone, what: str) -> Phone:
    return pop(remember(phone, PACKAGE, **{what: not is_shown(phone, what)}))


def _complete(phone: Phone, id: int) -> Phone:
    """Check it off, or take the check away."""
    one = find_todo(phone, id)
    done = one is not None and bool(to_whole(one["completed"]))
    phone = change_todo(phone, id, completed=0 if done else phone.now_ms)
    return phone if done else toast(phone, "Task completed")


def _create(phone: Phone) -> Phone:
    return push(phone, Page(screen="todos.editor", data={"id": None, "importance": LOW, "dueDate": 0}, focus="title"))


def _open(phone: Phone, one: TableRow) -> Phone:
    data = {"id": _read_id(one), "importance": to_whole(one["importance"]), "dueDate": find_due_time(one)}
    fields = {"title": _read_title(one), "notes": str(one["notes"] or "")}
    return push(phone, Page(screen="todos.editor", data=data, fields=fields))


def _save(phone: Phone) -> Phone:
    page = phone.page
    title, notes = (page.fields.get(name, "").strip() for name in ("title", "notes"))
    values = {"title": title or "(No title)", "notes": notes or None}
    id, numbers = page.data["id"], {name: int(page.data[name]) for name in ("importance", "dueDate")}
    if id is None:
        return pop(add_todo(phone, **values, **numbers))
    return pop(change_todo(phone, id, **values, **numbers))


def _delete(phone: Phone, id: int) -> Phone:
    return pop(remove_todo(phone, id), count=2)


_NOISE = ("Buy stamps", "Return the ladder", "Wash the curtains", "Sort old photos", "Oil the bike", "Descale kettle")


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    for title in rng.sample(_NOISE, rng.randint(1, 4)):
        day = compute_day(phone.now_ms // 1000) + rng.randint(-3, 10)
        phone = add_todo(phone, title=title, importance=rng.randint(0, 3), dueDate=day * _DAY_MS)
    return phone


APP = App(
    package=PACKAGE,
    names=("Tasks", "Tasks App"),
    activity="com.todoroo.astrid.activity.MainActivity",
    pages=(Page(screen="todos.list"),),
    screens={"todos.list": task_list, "todos.menu": menu, "todos.editor": editor, "todos.delete": delete},
    tables=(TODOS,),
    noise=_add_noise,
)
