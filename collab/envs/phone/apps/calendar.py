"""Simple Calendar Pro: the month, a day, the list of what comes next, and the search."""

from __future__ import annotations

import random
from functools import lru_cache, partial

from collab.envs.phone.app import App
from collab.envs.phone.appointments import draw_event
from collab.envs.phone.apps import calendar_editor, calendar_pickers
from collab.envs.phone.apps.calendar_editor import open_event, open_new
from collab.envs.phone.apps.calendar_pickers import PACKAGE, WEEKDAY_LINE, month_name, month_weeks, turned
from collab.envs.phone.events import (
    EVENTS,
    add_event,
    agenda,
    date_of,
    day_name,
    day_of,
    days_of,
    find_events,
    month_of,
    span,
    time_name,
)
from collab.envs.phone.state import START_MS, Page, Phone, Row, edit_page, keep, pop, push
from collab.envs.phone.widgets import (
    Item,
    Node,
    View,
    grid,
    heading,
    icon,
    item,
    radio,
    row,
    text,
    text_field,
)

_ID = PACKAGE + ":id/"
_LISTED = 60
"""How many days the list of what comes next looks ahead."""
_WEEKS_HEIGHT = 1500
"""Of all weeks of a month together, in pixels."""
_TODAY = day_of(START_MS // 1000)


def cell_key(day: int) -> str:
    """Key of a day in the month view."""
    return f"{_ID}day/{date_of(day).isoformat()}"


def entry_key(id: int, day: int) -> str:
    """Key of an event in a list, by the day its occurrence starts on."""
    return f"{_ID}event/{id}/{date_of(day).isoformat()}"


def main(phone: Phone, page: Page) -> View:
    """The view that is chosen."""
    view = {"month": _month, "list": _list}[str(page.data["page"])](phone, page)
    view.actions = (
        icon("Search", _ID + "search", partial(push, page=Page(screen="calendar.search", focus="words"))),
        icon("Change view", _ID + "change_view", partial(push, page=Page(screen="calendar.views"))),
        icon("Go to date", _ID + "go_to_date", _go_to),
    )
    view.fab = icon("New Event", _ID + "calendar_fab", partial(open_new, day=_today(phone)))
    return view


def _today(phone: Phone) -> int:
    return day_of(phone.now_ms // 1000)


def _month(phone: Phone, page: Page) -> View:
    month = int(page.data["month"])
    weeks = month_weeks(month)
    counts = dict.fromkeys(weeks, 0)
    for start, one in agenda(phone, weeks[0], weeks[-1]):
        for day in days_of(start, one):
            if day in counts:
                counts[day] += 1
    height = _WEEKS_HEIGHT * 7 // len(weeks)
    cells = [_cell(day, counts[day], month, _today(phone), height) for day in weeks]
    earlier, later = partial(turned, by=-1), partial(turned, by=1)
    body: list[Item] = [
        row(
            heading(month_name(month), _ID + "top_value"),
            icon("Previous month", _ID + "top_left_arrow", earlier),
            icon("Next month", _ID + "top_right_arrow", later),
        ),
        WEEKDAY_LINE,
        *grid(cells, 7),
    ]
    return View(title="Simple Calendar", body=body, swipes={"left": later, "right": earlier})


@lru_cache(maxsize=1 << 12)
def _cell(day: int, count: int, month: int, today: int, height: int) -> Node:
    date = date_of(day)
    label = str(date.day) if month_of(day) == month else f"{date.day} {date:%b}"
    value = f"{count} event{'s' * (count > 1)}" if count else None
    flags = ("selected",) if day == today else ()
    return Node("chip", label, cell_key(day), value, flags, partial(_open_day, day=day), height=height)


def _list(phone: Phone, page: Page) -> View:
    """What has not ended yet, by day."""
    now, today = phone.now_ms // 1000, _today(phone)
    body: list[Item] = []
    shown = -1
    for start, one in agenda(phone, today, today + _LISTED):
        begin, end = span(one)
        if start + end - begin < now:
            continue
        if day_of(start) != shown:
            shown = day_of(start)
            body.append(_section(shown))
        body.append(_entry(start, one, _hours(start, one)))
    return View(title="Simple Calendar", body=body or [text("No events", _ID + "empty")])


@lru_cache(maxsize=1 << 12)
def _section(day: int) -> Node:
    return heading(day_name(day), f"{_ID}section/{date_of(day).isoformat()}")


def day_list(phone: Phone, page: Page) -> View:
    """One day."""
    day = int(page.data["day"])
    earlier, later = partial(_open_other, day=day - 1), partial(_open_other, day=day + 1)
    body: list[Item] = [
        row(
            heading(day_name(day), _ID + "top_value"),
            icon("Previous day", _ID + "top_left_arrow", earlier),
            icon("Next day", _ID + "top_right_arrow", later),
        ),
        *(_entry(start, one, _hours(start, one)) for start, one in agenda(phone, day, day)),
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
    """Events that hold the words."""
    words = page.fields.get("words", "").strip()
    found = find_events(phone, words) if words else []
    body: list[Item] = [text_field(page, "words", "Search", _ID + "top_toolbar_search")]
    for one in found:
        start = span(one)[0]
        body.append(_entry(start, one, f"{day_name(day_of(start))}, {_hours(start, one)}"))
    if words and not found:
        body.append(text("No items found.", _ID + "search_placeholder"))
    return View(title="Search", body=body)


def views(phone: Phone, page: Page) -> View:
    """The choice of a view."""
    now = phone.stacks[PACKAGE][-2].data["page"]
    names = {"month": "Monthly view", "list": "Simple event list"}
    body: list[Item] = [
        radio(name, f"{_ID}view/{key}", key == now, partial(_show, view=key)) for key, name in names.items()
    ]
    return View(title="Change view", style="menu", body=body)


def _hours(start: int, one: Row) -> str:
    first, last = int(one["start_ts"] or 0), int(one["end_ts"] or 0)
    return time_name(start) if first == last else f"{time_name(start)} - {time_name(start + last - first)}"


def _entry(start: int, one: Row, value: str) -> Node:
    return _event_item(int(one["id"] or 0), day_of(start), str(one["title"]), value)


@lru_cache(maxsize=1 << 12)
def _event_item(id: int, day: int, title: str, value: str) -> Node:
    return item(title, entry_key(id, day), partial(open_event, id=id, day=day), value=value)


def _open_day(phone: Phone, day: int) -> Phone:
    return push(phone, Page(screen="calendar.day", data={"day": day}))


def _open_other(phone: Phone, day: int) -> Phone:
    return edit_page(keep(phone, day=day), scroll=0)


def _show(phone: Phone, view: str) -> Phone:
    return edit_page(keep(pop(phone), page=view), scroll=0)


def _go_to(phone: Phone) -> Phone:
    today = _today(phone)
    return push(phone, Page(screen="calendar.goto", data={"day": today, "month": month_of(today)}))


def _noise(phone: Phone, rng: random.Random) -> Phone:
    for _ in range(rng.randint(2, 6)):
        phone = add_event(phone, **draw_event(rng, rng.randrange(_TODAY - 14, _TODAY + 17)))
    return phone


APP = App(
    package=PACKAGE,
    names=("Simple Calendar Pro", "Calendar"),
    activity=".activities.MainActivity",
    pages=(Page(screen="calendar.main", data={"page": "month", "month": month_of(_TODAY)}),),
    screens={
        "calendar.main": main,
        "calendar.day": day_list,
        "calendar.search": search,
        "calendar.views": views,
        **calendar_editor.SCREENS,
        **calendar_pickers.SCREENS,
    },
    tables=(EVENTS,),
    noise=_noise,
)
