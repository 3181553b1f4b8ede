"""Simple Calendar Pro: the month, a day, the list of what comes next, and the search.

The form of an event, and the questions before it is deleted or left unsaved, for Simple Calendar Pro.

As in the app, the form is also what a tap on an event shows. Deviation: a change to a repeating event counts for all
its occurrences, without a question.
"""

from __future__ import annotations

import random
from functools import lru_cache, partial

from collab.envs.simphone.app import (
    App,
    Item,
    NodeLine,
    UiNode,
    View,
    button,
    grid,
    heading,
    icon,
    item,
    line,
    radio,
    row,
    text,
    text_field,
)
from collab.envs.simphone.apps import calendar_pickers
from collab.envs.simphone.apps.calendar_pickers import (
    PACKAGE,
    REMINDERS,
    WEEKDAY_LINE,
    format_month,
    format_weekdays,
    list_month_days,
    pick_date,
    pick_time,
    turn_month,
)
from collab.envs.simphone.content.calendar import (
    DAY,
    EVENTS,
    REPETITIONS,
    WEEK,
    add_event,
    change_event,
    compute_day,
    compute_month,
    compute_span,
    draw_event,
    end_repetition,
    find_event,
    find_events,
    format_day,
    format_time,
    list_days,
    list_occurrences,
    remove_event,
    skip_occurrence,
    to_date,
)
from collab.envs.simphone.state import START_MS, Page, Phone, TableRow, edit_page, keep, pop, push, toast

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
    row = find_event(phone, id)
    return phone if row is None else push(phone, _make_page(row, day))


def _make_page(row: TableRow, day: int) -> Page:
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
    """Show an event; nothing is stored before Save."""
    # The form works on the page's data, so leaving without Save changes nothing.
    data, new = page.data, page.data["id"] is None
    delete = icon("Delete", _ID + "delete", _ask)
    body: list[Item] = [
        text_field(page, "title", "Title", _ID + "event_title"),
        text_field(page, "location", "Location", _ID + "event_location"),
        text_field(page, "description", "Description", _ID + "event_description"),
        _time_line("Start", "start", int(data["start"])),
        _time_line("End", "end", int(data["end"])),
        _choice("Reminder", "event_reminder_1", "calendar.reminder", _name_reminder(int(data["reminder"]))),
        _choice("Repetition", "event_repetition", "calendar.repetition", _name_interval(int(data["interval"]))),
    ]
    # Weekdays are asked for weekly events alone, as in the app.
    if data["interval"] == WEEK:
        chosen = Page(screen="calendar.weekdays", data={"rule": data["rule"]})
        name = format_weekdays(int(data["rule"]))
        body.append(item("Repeat on", _ID + "event_repetition_rule", partial(push, page=chosen), value=name))
    return View(
        title="New Event" if new else "Edit Event",
        navigation=icon("Close", _ID + "close", _close),
        # A new event cannot be deleted.
        actions=(*(() if new else (delete,)), icon("Save", _ID + "save", _save)),
        body=body,
        back=_close,
    )


def _time_line(name: str, part: str, seconds: int) -> NodeLine:
    day, time = format_day(compute_day(seconds)), format_time(seconds)
    return line(
        item(f"{name} date", f"{_ID}event_{part}_date", partial(pick_date, part=part), value=day),
        item(f"{name} time", f"{_ID}event_{part}_time", partial(pick_time, part=part), value=time),
    )


def _choice(label: str, key: str, screen: str, value: str) -> Item:
    return item(label, _ID + key, partial(push, page=Page(screen=screen)), value=value)


def _name_reminder(minutes: int) -> str:
    return REMINDERS.get(minutes, f"{minutes} minutes before")


def _name_interval(interval: int) -> str:
    return REPETITIONS.get(interval, f"Every {interval // DAY} days")


def _save(phone: Phone) -> Phone:
    page = phone.page
    texts = {name: page.fields.get(name, "").strip() for name in _FIELDS}
    # The app's own two checks; anything else may be stored, mistakes included.
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
    row = None if page.data["id"] is None else find_event(phone, int(page.data["id"]))
    if row is None:
        changed = any(page.fields.values())
    else:
        before = _make_page(row, int(page.data["day"]))
        changed = (before.data, before.fields) != (page.data, page.fields)
    return push(phone, Page(screen="calendar.discard")) if changed else pop(phone)


def discard(phone: Phone, page: Page) -> View:
    """Show what the form asks when it is closed with something in it."""
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
    """Show the question before an event is deleted; of a repeating one, also how much of it."""
    row = find_event(phone, int(page.data["id"]))
    body: list[Item] = [text("Delete this event?", _ID + "delete_event_description")]
    # Only a repeating event needs to know how much of it is meant.
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


_LISTED = 60
"""How many days the list of what comes next looks ahead."""
_WEEKS_HEIGHT = 1500
"""Height of all weeks of a month together, in pixels."""
_TODAY = compute_day(START_MS // 1000)


def cell_key(day: int) -> str:
    """Return the key of a day in the month view."""
    return f"{_ID}day/{to_date(day).isoformat()}"


def entry_key(id: int, day: int) -> str:
    """Return the key of an event in a list, by the day its occurrence starts on."""
    return f"{_ID}event/{id}/{to_date(day).isoformat()}"


def main(phone: Phone, page: Page) -> View:
    """Show the view that is chosen."""
    view = {"month": _month, "list": _list}[str(page.data["page"])](phone, page)
    view.actions = (
        icon("Search", _ID + "search", partial(push, page=Page(screen="calendar.search", focus="words"))),
        icon("Change view", _ID + "change_view", partial(push, page=Page(screen="calendar.views"))),
        icon("Go to date", _ID + "go_to_date", _go_to),
    )
    view.fab = icon("New Event", _ID + "calendar_fab", partial(open_new, day=_find_today(phone)))
    return view


def _find_today(phone: Phone) -> int:
    return compute_day(phone.now_ms // 1000)


def _month(phone: Phone, page: Page) -> View:
    month = int(page.data["month"])
    weeks = list_month_days(month)
    counts = dict.fromkeys(weeks, 0)
    # Events count on every day that they touch.
    for start, one in list_occurrences(phone, weeks[0], weeks[-1]):
        for day in list_days(start, one):
            if day in counts:
                counts[day] += 1
    height = _WEEKS_HEIGHT * 7 // len(weeks)
    cells = [_cell(day, counts[day], month, _find_today(phone), height) for day in weeks]
    earlier, later = partial(turn_month, by=-1), partial(turn_month, by=1)
    body: list[Item] = [
        row(
            heading(format_month(month), _ID + "top_value"),
            icon("Previous month", _ID + "top_left_arrow", earlier),
            icon("Next month", _ID + "top_right_arrow", later),
        ),
        WEEKDAY_LINE,
        *grid(cells, 7),
    ]
    return View(title="Simple Calendar", body=body, swipes={"left": later, "right": earlier})


@lru_cache(maxsize=1 << 12)
def _cell(day: int, count: int, month: int, today: int, height: int) -> UiNode:
    date = to_date(day)
    label = str(date.day) if compute_month(day) == month else f"{date.day} {date:%b}"
    value = f"{count} event{'s' * (count > 1)}" if count else None
    flags = ("selected",) if day == today else ()
    return UiNode("chip", label, cell_key(day), value, flags, partial(_open_day, day=day), height=height)


def _list(phone: Phone, page: Page) -> View:
    """Show what has not ended yet, by day."""
    now, today = phone.now_ms // 1000, _find_today(phone)
    body: list[Item] = []
    shown = -1
    for start, one in list_occurrences(phone, today, today + _LISTED):
        begin, end = compute_span(one)
        # What has ended today is over; what still runs is shown.
        if start + end - begin < now:
            continue
        if compute_day(start) != shown:
            shown = compute_day(start)
            body.append(_section(shown))
        body.append(_entry(start, one, _format_hours(start, one)))
    return View(title="Simple Calendar", body=body or [text("No events", _ID + "empty")])


@lru_cache(maxsize=1 << 12)
def _section(day: int) -> UiNode:
    return heading(format_day(day), f"{_ID}section/{to_date(day).isoformat()}")


def day_list(phone: Phone, page: Page) -> View:
    """Show one day."""
    day = int(page.data["day"])
    earlier, later = partial(_open_other, day=day - 1), partial(_open_other, day=day + 1)
    body: list[Item] = [
        row(
            heading(format_day(day), _ID + "top_value"),
            icon("Previous day", _ID + "top_left_arrow", earlier),
            icon("Next day", _ID + "top_right_arrow", later),
        ),
        *(_entry(start, one, _format_hours(start, one)) for start, one in list_occurrences(phone, day, day)),
    ]
    if len(body) == 1:
        body.append(text("No events", _ID + "empty"))
    return View(
        title="Simple Calendar",
        body=body,
        fab=icon("New Event", _ID + "calendar_fab", partial(open_new, day=day)),
        swipes={"left": later, "right": earlier},
    )


def search(phone: Phone, page: Page) -> View:
    """Show events that hold the words."""
    words = page.fields.get("words", "").strip()
    found = find_events(phone, words) if words else []
    body: list[Item] = [text_field(page, "words", "Search", _ID + "top_toolbar_search")]
    for one in found:
        start = compute_span(one)[0]
        body.append(_entry(start, one, f"{format_day(compute_day(start))}, {_format_hours(start, one)}"))
    if words and not found:
        body.append(text("No items found.", _ID + "search_placeholder"))
    return View(title="Search", body=body)


def views(phone: Phone, page: Page) -> View:
    """Show the choice of a view."""
    now = phone.stacks[PACKAGE][-2].data["page"]
    names = {"month": "Monthly view", "list": "Simple event list"}
    body: list[Item] = [
        radio(name, f"{_ID}view/{key}", key == now, partial(_show, view=key)) for key, name in names.items()
    ]
    return View(title="Change view", style="menu", body=body)


def _format_hours(start: int, one: TableRow) -> str:
    first, last = int(one["start_ts"] or 0), int(one["end_ts"] or 0)
    return format_time(start) if first == last else f"{format_time(start)} - {format_time(start + last - first)}"


def _entry(start: int, one: TableRow, value: str) -> UiNode:
    return _event_item(int(one["id"] or 0), compute_day(start), str(one["title"]), value)


@lru_cache(maxsize=1 << 12)
def _event_item(id: int, day: int, title: str, value: str) -> UiNode:
    return item(title, entry_key(id, day), partial(open_event, id=id, day=day), value=value)


def _open_day(phone: Phone, day: int) -> Phone:
    return push(phone, Page(screen="calendar.day", data={"day": day}))


def _open_other(phone: Phone, day: int) -> Phone:
    return edit_page(keep(phone, day=day), scroll=0)


def _show(phone: Phone, view: str) -> Phone:
    return edit_page(keep(pop(phone), page=view), scroll=0)


def _go_to(phone: Phone) -> Phone:
    today = _find_today(phone)
    return push(phone, Page(screen="calendar.goto", data={"day": today, "month": compute_month(today)}))


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    for _ in range(rng.randint(2, 6)):
        phone = add_event(phone, **draw_event(rng, rng.randrange(_TODAY - 14, _TODAY + 17)))
    return phone


APP = App(
    package=PACKAGE,
    names=("Simple Calendar Pro", "Calendar"),
    activity=".activities.MainActivity",
    pages=(Page(screen="calendar.main", data={"page": "month", "month": compute_month(_TODAY)}),),
    screens={
        "calendar.main": main,
        "calendar.day": day_list,
        "calendar.search": search,
        "calendar.views": views,
        **SCREENS,
        **calendar_pickers.SCREENS,
    },
    tables=(EVENTS,),
    noise=_add_noise,
)
