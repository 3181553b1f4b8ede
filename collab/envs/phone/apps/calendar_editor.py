"""The form of an event, and the questions before it is deleted or left unsaved, for Simple Calendar Pro.

As in the app, the form is also what a tap on an event shows. Deviation: a change to a repeating event counts for all
its occurrences, without a question.
"""

from __future__ import annotations

from functools import partial

from collab.envs.phone.apps.calendar_pickers import PACKAGE, REMINDERS, pick_date, pick_time, weekday_names
from collab.envs.phone.events import (
    DAY,
    REPETITIONS,
    WEEK,
    add_event,
    change_event,
    day_name,
    day_of,
    end_repetition,
    event,
    remove_event,
    skip_occurrence,
    time_name,
)
from collab.envs.phone.state import Page, Phone, Row, edit_page, keep, pop, push, toast
from collab.envs.phone.widgets import Item, Line, View, button, icon, item, line, radio, text, text_field

_ID = PACKAGE + ":id/"
_FIELDS = ("title", "location", "description")
_CHOICES = {
    "one": "Delete the selected occurrence only",
    "later": "Delete this and all future occurrences",
    "all": "Delete all occurrences",
}


def open_new(phone: Phone, day: int) -> Phone:
    """Show the form of a new event on a day, at the next full hour."""
    start = day * DAY + (phone.now_ms // 1000 // 3600 + 1) * 3600 % DAY
    data = {"id": None, "start": start, "end": start, "interval": 0, "rule": 0, "reminder": -1}
    return push(phone, Page(screen="calendar.editor", data=data))


def open_event(phone: Phone, id: int, day: int) -> Phone:
    """Show an event, whose occurrence on that day was touched."""
    row = event(phone, id)
    return phone if row is None else push(phone, _page_of(row, day))


def _page_of(row: Row, day: int) -> Page:
    return Page(
        screen="calendar.editor",
        data={
            "id": int(row["id"] or 0),
            "day": day,
            "start": int(row["start_ts"] or 0),
            "end": int(row["end_ts"] or 0),
            "interval": int(row["repeat_interval"] or 0),
            "rule": int(row["repeat_rule"] or 0),
            "reminder": int(row["reminder_1_minutes"] or 0),
        },
        fields={name: str(row[name] or "") for name in _FIELDS},
    )


def editor(phone: Phone, page: Page) -> View:
    """An event; nothing is stored before Save."""
    data, new = page.data, page.data["id"] is None
    delete = icon("Delete", _ID + "delete", _ask)
    body: list[Item] = [
        text_field(page, "title", "Title", _ID + "event_title"),
        text_field(page, "location", "Location", _ID + "event_location"),
        text_field(page, "description", "Description", _ID + "event_description"),
        _when("Start", "start", int(data["start"])),
        _when("End", "end", int(data["end"])),
        _choice("Reminder", "event_reminder_1", "calendar.reminder", _reminder_name(int(data["reminder"]))),
        _choice("Repetition", "event_repetition", "calendar.repetition", _interval_name(int(data["interval"]))),
    ]
    if data["interval"] == WEEK:
        chosen = Page(screen="calendar.weekdays", data={"rule": data["rule"]})
        name = weekday_names(int(data["rule"]))
        body.append(item("Repeat on", _ID + "event_repetition_rule", partial(push, page=chosen), value=name))
    return View(
        title="New Event" if new else "Edit Event",
        navigation=icon("Close", _ID + "close", _close),
        actions=(*(() if new else (delete,)), icon("Save", _ID + "save", _save)),
        body=body,
        back=_close,
    )


def _when(name: str, part: str, seconds: int) -> Line:
    day, time = day_name(day_of(seconds)), time_name(seconds)
    return line(
        item(f"{name} date", f"{_ID}event_{part}_date", partial(pick_date, part=part), value=day),
        item(f"{name} time", f"{_ID}event_{part}_time", partial(pick_time, part=part), value=time),
    )


def _choice(label: str, key: str, screen: str, value: str) -> Item:
    return item(label, _ID + key, partial(push, page=Page(screen=screen)), value=value)


def _reminder_name(minutes: int) -> str:
    return REMINDERS.get(minutes, f"{minutes} minutes before")


def _interval_name(interval: int) -> str:
    return REPETITIONS.get(interval, f"Every {interval // DAY} days")


def _save(phone: Phone) -> Phone:
    page = phone.page
    texts = {name: page.fields.get(name, "").strip() for name in _FIELDS}
    if not texts["title"]:
        return toast(phone, "The title cannot be empty")
    if page.data["end"] < page.data["start"]:
        return toast(phone, "The event cannot end before it starts")
    times = {"start_ts": int(page.data["start"]), "end_ts": int(page.data["end"])}
    repetition = {"repeat_interval": int(page.data["interval"]), "repeat_rule": int(page.data["rule"])}
    reminder = {"reminder_1_minutes": int(page.data["reminder"])}
    if page.data["id"] is None:
        return pop(add_event(phone, **texts, **times, **repetition, **reminder))
    return pop(change_event(phone, int(page.data["id"]), **texts, **times, **repetition, **reminder))


def _close(phone: Phone) -> Phone:
    """Leave the form; ask first when something in it would be lost."""
    page = phone.page
    row = None if page.data["id"] is None else event(phone, int(page.data["id"]))
    if row is None:
        changed = any(page.fields.values())
    else:
        before = _page_of(row, int(page.data["day"]))
        changed = (before.data, before.fields) != (page.data, page.fields)
    return push(phone, Page(screen="calendar.discard")) if changed else pop(phone)


def discard(phone: Phone, page: Page) -> View:
    """What the form asks when it is closed with something in it."""
    return View(
        title="",
        style="dialog",
        body=[text("You have unsaved changes. What should be done with them?", _ID + "message")],
        actions=(
            button("Discard", _ID + "discard", partial(pop, count=2)),
            button("Save", _ID + "save_changes", _save_below),
        ),
    )


def _save_below(phone: Phone) -> Phone:
    return _save(pop(phone))


# ---------------------------------------------------------------------------------------------------------- deleting


def _ask(phone: Phone) -> Phone:
    data = phone.page.data
    question = {"id": data["id"], "day": data["day"], "choice": "one" if data["interval"] else "all"}
    return push(phone, Page(screen="calendar.delete", data=question))


def delete(phone: Phone, page: Page) -> View:
    """The question before an event is deleted; of a repeating one, also how much of it."""
    row = event(phone, int(page.data["id"]))
    body: list[Item] = [text("Delete this event?", _ID + "delete_event_description")]
    if row is not None and row["repeat_interval"]:
        body = [text("This event repeats.", _ID + "delete_event_description")]
        body += [
            radio(name, f"{_ID}delete_event/{key}", key == page.data["choice"], partial(keep, choice=key))
            for key, name in _CHOICES.items()
        ]
    return View(
        title="Delete event",
        style="dialog",
        body=body,
        actions=(button("No", _ID + "cancel", pop), button("Yes", _ID + "ok", _delete)),
    )


def _delete(phone: Phone) -> Phone:
    id, day, choice = int(phone.page.data["id"]), int(phone.page.data["day"]), phone.page.data["choice"]
    phone = edit_page(pop(phone, 2), scroll=0)
    if choice == "all":
        return remove_event(phone, id)
    return skip_occurrence(phone, id, day) if choice == "one" else end_repetition(phone, id, day)


SCREENS = {
    "calendar.editor": editor,
    "calendar.discard": discard,
    "calendar.delete": delete,
}
