"""Tasks tasks: questions about what is to do, judged by the answer alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from collab.envs.simphone.apps.todos import (
    BLANK,
    HIGH,
    LOW,
    PACKAGE,
    TODOS,
    entry_key,
    find_due_day,
    find_todo,
    is_shown,
)
from collab.envs.simphone.content.calendar import DAY, to_date
from collab.envs.simphone.state import Phone, TableRow, fill, rows, to_whole
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.dates import TODAY, build_question_task, compute_day_span, compute_moment
from collab.envs.simphone.tasks.spec import Params, TaskSpec, say, score_answers, score_number
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"
_NOISE = 20
_TITLES = (
    "Book a piano tuner",
    "Draft the press release",
    "Order new name tags",
    "Invite the quartet",
    "Translate the leaflet",
    "Pay the water bill",
    "Repair the garden gate",
    "Measure the attic window",
    "Renew the parking permit",
    "Wrap Ida's present",
    "Bake for the school fair",
)
_OTHERS = (
    "Feed the neighbour's cat",
    "Sharpen kitchen knives",
    "Learn ten Welsh words",
    "Prune the pear tree",
    "Empty the rain barrel",
    "Label moving boxes",
    "Mend the tent",
    "Try the new swimming pool",
    "Vaccinate the hamster",
    "Dust the bookshelves",
    "Replace smoke alarm battery",
    "Collect parcel from depot",
)
_NOTES = ("Ask Bo first.", "Takes an hour.", "Receipt in the drawer.", "Not before noon.", "Can wait for rain.")
_TIMES = ("7:30am", "9:15", "11am", "12:45pm", "14:30", "4pm", "6:45pm", "20:10")
RowFilter: TypeAlias = Callable[[TableRow, Params], bool]


# ------------------------------------------------------------------------------------------------- what is asked for


def _is_on_date(row: TableRow, params: Params) -> bool:
    return find_due_day(row) == _parse_day(params)


def _is_completed_on_date(row: TableRow, params: Params) -> bool:
    return _is_on_date(row, params) and to_whole(row["completed"]) != 0


def _is_due_and_incomplete(row: TableRow, params: Params) -> bool:
    day = find_due_day(row)
    return day is not None and day <= _parse_day(params) and not to_whole(row["completed"])


def _is_next_week(row: TableRow, params: Params) -> bool:
    """Check for a due date from tomorrow, a Monday, to the Sunday after."""
    day = find_due_day(row)
    return day is not None and TODAY < day <= TODAY + 7


def _is_high(row: TableRow, params: Params) -> bool:
    return row["importance"] == HIGH


def _is_high_on_date(row: TableRow, params: Params) -> bool:
    return _is_high(row, params) and _is_on_date(row, params)


def _parse_day(params: Params) -> int:
    return compute_day_span(params)[0] // DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoQuestion:
    """Kind of question: for the titles of some rows, or for their number."""

    asked: RowFilter
    put: int
    """How many such rows there are."""
    number: bool = False

    def find_rows(self, start: Phone, params: Params) -> list[TableRow]:
        """Return the rows that are asked for."""
        return [row for row in rows(start, TODOS) if self.asked(row, params)]

    def prepare(self, phone: Phone, params: Params, rng: random.Random) -> Phone:
        """Store only these rows and others that are not meant."""
        records = _draw_wanted(params, rng, self.put, high=self.asked in (_is_high, _is_high_on_date))
        while len(records) < self.put + _NOISE:
            other = _draw_other(rng)
            if not self.asked(other, params):
                records.append(other)
        rng.shuffle(records)
        return fill(phone, TODOS, records)

    def score(self, start: Phone, end: Phone, params: Params) -> float:
        """Return 1 when the answer is right, else 0."""
        found = self.find_rows(start, params)
        return (
            score_number(end, len(found)) if self.number else score_answers(end, [str(row["title"]) for row in found])
        )

    def plan(self, frame: Frame, params: Params, start: Phone) -> Action:
        """Look through the list, answer, and say that it is done."""
        if self.score(start, frame.phone, params) == 1.0:
            return plans.finish()
        found = self.find_rows(start, params)
        titles = [str(row["title"]) for row in found]
        return _show(frame, found) or say([str(len(found))] if self.number else titles)


def _show(frame: Frame, found: list[TableRow]) -> Action | None:
    """Return the next step towards having seen them all in the list; None when the last of them is in sight."""
    now = [find_todo(frame.phone, to_whole(row["_id"])) for row in found]
    if not now or None in now:
        raise plans.PlanError("what the question is about is not in the list any more")
    hidden = {
        "completed": any(row is not None and to_whole(row["completed"]) for row in now),
        "unstarted": any(row is not None and to_whole(row["hideUntil"]) > frame.phone.now_ms for row in now),
    }
    missing = next((what for what, needed in hidden.items() if needed and not is_shown(frame.phone, what)), None)
    route = {"todos.list": "" if missing is None else _ID + "more"}
    if missing is not None:
        route["todos.menu"] = f"{_ID}show_{missing}"
    step = plans.follow(frame, "Tasks", PACKAGE, route)
    if step is not None:
        return step
    last = max(found, key=lambda row: (to_whole(row["dueDate"]), to_whole(row["_id"])))
    key = entry_key(to_whole(last["_id"]))
    return plans.aim_at(frame, key) if frame.index(key) is None else None


# ---------------------------------------------------------------------------------------------------------- preparing


def _draw_wanted(params: Params, rng: random.Random, count: int, *, high: bool) -> list[dict[str, Any]]:
    """Return the rows that are asked for: the first as the parameters say, the others like it under other titles.

    A parameter names the date, under either of two names; without a `date`, every row is due on a day of its own.
    """
    first = str(params["title"] if "title" in params else params["task_title"])
    titles = [first, *rng.sample([title for title in _TITLES if title != first], count - 1)]
    dates = [str(params["date"] if "date" in params else params["due_date"])]
    week = [_format_date(TODAY + ahead) for ahead in range(1, 8)]
    others = [date for date in week if date != dates[0]]
    dates = dates * count if "date" in params else [*dates, *rng.sample(others, count - 1)]
    importance = HIGH if high else int(params.get("importance", LOW))
    return [
        _record(
            title=title,
            importance=importance if title == first or high else rng.choice((HIGH, 1, LOW, 3)),
            dueDate=_to_milliseconds(date, params.get("time", "0:00") if high else "0:00"),
            hideUntil=_to_milliseconds(params.get("hide_until_date", _format_date(TODAY - rng.randint(4, 6))), "8:00"),
            completed=_to_milliseconds(params["completed_date"], params["time"]) if "completed_date" in params else 0,
            notes=params.get("notes") if title == first else rng.choice(_NOTES),
        )
        for title, date in zip(titles, dates, strict=True)
    ]


def _draw_other(rng: random.Random) -> dict[str, Any]:
    day = TODAY + rng.randint(-12, 20)
    minutes = rng.randrange(24 * 4) * 15
    return _record(
        title=rng.choice(_OTHERS),
        importance=rng.randint(0, 3),
        dueDate=1000 * (day * DAY + 60 * minutes),
        hideUntil=1000 * (day - rng.randint(2, 9)) * DAY,
        completed=1000 * (TODAY - rng.randint(1, 14)) * DAY if rng.random() < 0.5 else 0,
        notes=rng.choice((*_NOTES, None)),
    )


def _record(**values: Any) -> dict[str, Any]:
    created = values["dueDate"] - 7 * DAY * 1000
    return {**BLANK, "created": created, "modified": created, **values}


def _to_milliseconds(date: str, time: str) -> int:
    return 1000 * compute_moment({"date": date, "time": time})[0]


def _format_date(day: int) -> str:
    date = to_date(day)
    return f"{date:%B} {date.day} {date.year}"


# ----------------------------------------------------------------------------------------------------------- drawing


def _make_drawing(names: str, first: int, last: int) -> Callable[[random.Random], dict[str, Any]]:
    """Build the drawing of the named parameters, dates between two days counted from today."""

    def draw(rng: random.Random) -> dict[str, Any]:
        date, title = _format_date(TODAY + rng.randint(first, last)), rng.choice(_TITLES)
        drawn = {
            **{"date": date, "due_date": date, "title": title, "task_title": title},
            **{"notes": rng.choice(_NOTES), "importance": str(rng.randint(0, 3)), "time": rng.choice(_TIMES)},
            "completed_date": _format_date(TODAY - rng.randint(1, 5)),
            "hide_until_date": _format_date(TODAY - rng.randint(1, 5)),
        }
        return {name: drawn[name] for name in names.split()}

    return draw


# ------------------------------------------------------------------------------------------------------------- tasks

_LIST = "Answer with the titles, separated by commas."


_build_task = partial(build_question_task, app="tasks", difficulty="medium")

TASKS: tuple[TaskSpec, ...] = (
    _build_task(
        "TasksCompletedTasksForDate",
        TodoQuestion(asked=_is_completed_on_date, put=3),
        _make_drawing("title notes date completed_date time", -5, 5),
        f"Which tasks that are due {{date}} are completed in Tasks? {_LIST}",
        f"Look into Tasks: of what is due {{date}}, what have I done already? {_LIST}",
        f"What is due {{date}} and checked off in Tasks? {_LIST}",
    ),
    _build_task(
        "TasksDueNextWeek",
        TodoQuestion(asked=_is_next_week, put=6, number=True),
        _make_drawing("title notes due_date", 1, 7),
        "How many tasks are due next week in Tasks? A week begins on Monday. Answer with the number alone.",
        "Count what Tasks says is due from Monday to Sunday of next week. Only the number, please.",
        "See in Tasks how much is due next week (Monday to Sunday) and answer with a whole number.",
    ),
    _build_task(
        "TasksDueOnDate",
        TodoQuestion(asked=_is_on_date, put=3),
        _make_drawing("date importance title notes", 0, 14),
        f"What is due {{date}} in Tasks? {_LIST}",
        f"Which of my tasks must be done {{date}}, according to Tasks? {_LIST}",
        f"Look up in Tasks what is due {{date}}. {_LIST}",
        difficulty="easy",
    ),
    _build_task(
        "TasksHighPriorityTasks",
        TodoQuestion(asked=_is_high, put=1),
        _make_drawing("task_title notes due_date time hide_until_date", 1, 7),
        f"Which tasks have high priority in Tasks? {_LIST}",
        f"Look for everything of high priority in Tasks. {_LIST}",
        f"What is marked in Tasks as high priority? {_LIST}",
    ),
    _build_task(
        "TasksHighPriorityTasksDueOnDate",
        TodoQuestion(asked=_is_high_on_date, put=1),
        _make_drawing("date time title", 0, 14),
        f"Which tasks of high priority are due {{date}} in Tasks? {_LIST}",
        f"Of what is due {{date}} in Tasks, what has high priority? {_LIST}",
        f"What is due {{date}} and of high priority? See Tasks. {_LIST}",
    ),
    _build_task(
        "TasksIncompleteTasksOnDate",
        TodoQuestion(asked=_is_due_and_incomplete, put=3),
        _make_drawing("title importance notes date time", 0, 14),
        f"Which tasks that are due {{date}} or earlier are still open in Tasks? {_LIST}",
        f"Look into Tasks: what is not done yet, though it is due {{date}} or before? {_LIST}",
        f"What have I still to do of all that Tasks says is due {{date}} or before that day? {_LIST}",
        difficulty="easy",
    ),
)
