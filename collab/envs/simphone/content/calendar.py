"""Simple Calendar Pro's events, in the app's own database, and the days on which they take place.

Times are seconds since 1970, as in the database; days are whole days since 1970. The device lives in UTC.

What people put into their calendars, drawn by seed.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from collab.envs.simphone.state import Phone, Row, Table, insert, remove, rows, update
from collab.types import Scalar

_INTEGERS = (
    *("reminder_1_minutes", "reminder_2_minutes", "reminder_3_minutes"),
    *("reminder_1_type", "reminder_2_type", "reminder_3_type"),
    *("repeat_interval", "repeat_rule", "repeat_limit"),
)
EVENTS = Table(
    path="/data/data/com.simplemobiletools.calendar.pro/databases/events.db",
    name="events",
    columns=(
        ("id", "INTEGER PRIMARY KEY AUTOINCREMENT"),
        *((name, "INTEGER NOT NULL") for name in ("start_ts", "end_ts")),
        *((name, "TEXT NOT NULL") for name in ("title", "location", "description")),
        *((name, "INTEGER NOT NULL") for name in _INTEGERS),
        *((name, "TEXT NOT NULL") for name in ("repetition_exceptions", "attendees", "import_id", "time_zone")),
        *((name, "INTEGER NOT NULL") for name in ("flags", "event_type", "parent_id", "last_updated")),
        ("source", "TEXT NOT NULL"),
        *((name, "INTEGER NOT NULL") for name in ("availability", "color", "type")),
    ),
)
_BLANK: Row = MappingProxyType(
    {name: 0 if kind.startswith("INTEGER") else "" for name, kind in EVENTS.columns[1:]}
    | dict.fromkeys(("reminder_1_minutes", "reminder_2_minutes", "reminder_3_minutes"), -1)
    | {"repetition_exceptions": "[]", "time_zone": "UTC", "event_type": 1, "source": "simple-calendar"}
)
"""What the app writes where nobody chose anything."""
DAY, WEEK, MONTH, YEAR = 86_400, 604_800, 2_592_001, 31_536_000
"""Intervals as the app stores them; those of months and years only stand for "every month" and "every year"."""
REPETITIONS = {0: "No repetition", DAY: "Daily", WEEK: "Weekly", MONTH: "Monthly", YEAR: "Yearly"}
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()
_LAST_DAY = datetime.date(2100, 12, 31).toordinal() - _FIRST_DAY


# ---------------------------------------------------------------------------------------------------- days and times


def day_of(seconds: int) -> int:
    """The day a time lies in; no day is later than the calendar's last."""
    return min(max(seconds // DAY, 0), _LAST_DAY)


def day_at(date: datetime.date) -> int:
    """A date as a day."""
    return date.toordinal() - _FIRST_DAY


@lru_cache(maxsize=1 << 12)
def date_of(day: int) -> datetime.date:
    """A day as a date."""
    return datetime.date.fromordinal(day + _FIRST_DAY)


def month_of(day: int) -> int:
    """The month a day lies in, counted from year 0."""
    date = date_of(day)
    return 12 * date.year + date.month - 1


def month_start(month: int) -> int:
    """First day of a month."""
    return day_at(datetime.date(month // 12, month % 12 + 1, 1))


def weekday_bit(day: int) -> int:
    """How a weekly rule writes the weekday of a day: 1 for Monday, 2 for Tuesday, ..., 64 for Sunday."""
    return 1 << date_of(day).weekday()


@lru_cache(maxsize=1 << 12)
def day_name(day: int) -> str:
    """A day in words, "Sun, 15 October 2023"."""
    date = date_of(day)
    return f"{date:%a}, {date.day} {date:%B %Y}"


@lru_cache(maxsize=1 << 12)
def time_name(seconds: int) -> str:
    """Time of the day, "15:34"."""
    minutes = seconds // 60 % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


# ------------------------------------------------------------------------------------------------------------ reading


def event(phone: Phone, id: int) -> Row | None:
    """An event by its id."""
    return next((row for row in rows(phone, EVENTS) if row["id"] == id), None)


def span(row: Row) -> tuple[int, int]:
    """First second and last second of an event's first occurrence."""
    start, end = int(row["start_ts"] or 0), int(row["end_ts"] or 0)
    return start, max(start, end - 1)


def agenda(phone: Phone, first: int, last: int) -> list[tuple[int, Row]]:
    """All occurrences that touch the days from `first` to `last`: (start in seconds, event), by time."""
    found = [(start, row) for row in rows(phone, EVENTS) for start in _starts(row, first, last)]
    return sorted(found, key=lambda one: (one[0], int(one[1]["id"] or 0)))


def days_of(start: int, row: Row) -> range:
    """The days one occurrence touches."""
    begin, end = span(row)
    return range(day_of(start), day_of(start + end - begin) + 1)


def find_events(phone: Phone, words: str) -> list[Row]:
    """Events with these words in title, location or description, by time."""
    words = words.casefold()
    fields = ("title", "location", "description")
    found = [row for row in rows(phone, EVENTS) if any(words in str(row[name]).casefold() for name in fields)]
    return sorted(found, key=lambda row: (span(row), int(row["id"] or 0)))


def _starts(row: Row, first: int, last: int) -> Iterator[int]:
    start, end = span(row)
    length = day_of(end) - day_of(start)
    if not row["repeat_interval"]:
        if day_of(start) <= last and day_of(end) >= first:
            yield start
        return
    for day in range(max(day_of(start), first - length), last + 1):
        if _repeats_on(row, day):
            yield start + (day - day_of(start)) * DAY


def _repeats_on(row: Row, day: int) -> bool:
    """Whether a repeating event has an occurrence that starts on a day not before its first."""
    begin, limit, interval = day_of(span(row)[0]), int(row["repeat_limit"] or 0), int(row["repeat_interval"] or 0)
    if 0 < limit < day * DAY or date_of(day).strftime("%Y%m%d") in str(row["repetition_exceptions"]):
        return False
    date, origin = date_of(day), date_of(begin)
    if interval % YEAR == 0:
        return (date.month, date.day) == (origin.month, origin.day) and (date.year - origin.year) % (
            interval // YEAR
        ) == 0
    if interval % MONTH == 0:
        return date.day == origin.day and (month_of(day) - month_of(begin)) % (interval // MONTH) == 0
    if interval % WEEK == 0:
        weeks = (day - begin + origin.weekday()) // 7
        return bool(int(row["repeat_rule"] or 0) & weekday_bit(day)) and weeks % (interval // WEEK) == 0
    return (day - begin) * DAY % interval == 0


# ------------------------------------------------------------------------------------------------------------ writing


def add_event(phone: Phone, **values: Scalar) -> Phone:
    """Store a new event; columns left out get what the app writes there."""
    return insert(phone, EVENTS, **{**_BLANK, **values, "last_updated": phone.now_ms})[0]


def put_events(phone: Phone, records: Iterable[Row]) -> Phone:
    """Replace all events."""
    content = tuple({"id": id, **_BLANK, **record} for id, record in enumerate(records, 1))
    return replace(phone, rows={**phone.rows, (EVENTS.path, EVENTS.name): content})


def change_event(phone: Phone, id: int, **values: Scalar) -> Phone:
    """Change what an event says, for all its occurrences."""
    return update(phone, EVENTS, lambda row: row["id"] == id, **values, last_updated=phone.now_ms)


def remove_event(phone: Phone, id: int) -> Phone:
    """Delete an event with all its occurrences."""
    return remove(phone, EVENTS, lambda row: row["id"] == id)


def skip_occurrence(phone: Phone, id: int, day: int) -> Phone:
    """Delete the one occurrence that starts on a day."""
    row = event(phone, id)
    if row is None:
        return phone
    known = str(row["repetition_exceptions"] or "").strip("[]")
    exceptions = f'{known}{"," if known else ""}"{date_of(day):%Y%m%d}"'
    return change_event(phone, id, repetition_exceptions=f"[{exceptions}]")


def end_repetition(phone: Phone, id: int, day: int) -> Phone:
    """Delete the occurrence that starts on a day and all later ones."""
    row = event(phone, id)
    if row is None or day <= day_of(span(row)[0]):
        return remove_event(phone, id)
    return change_event(phone, id, repeat_limit=day * DAY - 1)


_WITH = ("Breakfast with", "Interview with", "Phone call with", "Planning with", "Rehearsal with", "Walk with")
_ABOUT = ("Briefing on", "Deadline for", "Handover of", "Lecture on", "Notes for", "Training on")
_WHO = ("Milan", "Greta", "Dr. Okafor", "Accounting", "the Choir", "the Neighbours")
_WHAT = ("Garden Fair", "New Website", "Summer Festival", "Travel Costs", "Safety Rules", "Bridge Project")
_VERBS = (
    "agree on",
    "compare",
    "go over",
    "improve",
    "sketch",
    "sort out",
    "sum up",
    "test",
    "write down",
    "decide on",
)
_TOPICS = (
    "the guest list",
    "open questions",
    "our spending so far",
    "the seating plan",
    "next year's dates",
    "who does what",
    "the first drafts",
    "delivery times",
)
_REMARKS = (
    "Bring your own cup.",
    "Room 3 is booked.",
    "It may run late.",
    "Send apologies early.",
    "No slides, please.",
)
LENGTHS = (15, 30, 45, 60)
"""In minutes."""


def draw_title(rng: random.Random) -> str:
    """What an event is called."""
    first = rng.choice((_WITH, _ABOUT))
    return f"{rng.choice(first)} {rng.choice(_WHO if first is _WITH else _WHAT)}"


def draw_description(rng: random.Random) -> str:
    """A sentence or two about an event."""
    words = f"We want to {rng.choice(_VERBS)} {rng.choice(_TOPICS)}."
    return f"{words} {rng.choice(_REMARKS)}" if rng.random() < 0.5 else words


def draw_event(rng: random.Random, day: int) -> dict[str, Any]:
    """An event that starts at some full hour of a day; by column of the database."""
    start = day * DAY + 3600 * rng.randrange(24)
    return {
        "start_ts": start,
        "end_ts": start + 60 * rng.choice(LENGTHS),
        "title": draw_title(rng),
        "location": "",
        "description": draw_description(rng),
        "repeat_interval": 0,
        "repeat_rule": 0,
    }
