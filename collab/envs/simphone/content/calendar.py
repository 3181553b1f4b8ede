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

from collab.envs.simphone.state import Phone, Table, TableRow, insert, remove, rows, update
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
_BLANK: TableRow = MappingProxyType(
    {name: 0 if kind.startswith("INTEGER") else "" for name, kind in EVENTS.columns[1:]}
    | dict.fromkeys(("reminder_1_minutes", "reminder_2_minutes", "reminder_3_minutes"), -1)
    | {"repetition_exceptions": "[]", "time_zone": "UTC", "event_type": 1, "source": "simple-calendar"}
)
"""What the app writes by default."""
DAY, WEEK, MONTH, YEAR = 86_400, 604_800, 2_592_001, 31_536_000
"""Intervals as the app stores them; those of months and years only stand for "every month" and "every year"."""
REPETITIONS = {0: "No repetition", DAY: "Daily", WEEK: "Weekly", MONTH: "Monthly", YEAR: "Yearly"}
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()
_LAST_DAY = datetime.date(2100, 12, 31).toordinal() - _FIRST_DAY


# ---------------------------------------------------------------------------------------------------- days and times


def compute_day(seconds: int) -> int:
    """Return the day a time lies in; no day is later than the calendar's last."""
    return min(max(seconds // DAY, 0), _LAST_DAY)


def parse_day(date: datetime.date) -> int:
    """Return a date as a day."""
    return date.toordinal() - _FIRST_DAY


@lru_cache(maxsize=1 << 12)
def to_date(day: int) -> datetime.date:
    """Return a day as a date."""
    return datetime.date.fromordinal(day + _FIRST_DAY)


def compute_month(day: int) -> int:
    """Return the month a day lies in, counted from year 0."""
    date = to_date(day)
    return 12 * date.year + date.month - 1


def find_month_start(month: int) -> int:
    """Return the first day of a month."""
    return parse_day(datetime.date(month // 12, month % 12 + 1, 1))


def compute_weekday_bit(day: int) -> int:
    """Return how a weekly rule writes the weekday of a day: 1 for Monday, 2 for Tuesday, ..., 64 for Sunday."""
    return 1 << to_date(day).weekday()


@lru_cache(maxsize=1 << 12)
def format_day(day: int) -> str:
    """Return a day in words, "Sun, 15 October 2023"."""
    date = to_date(day)
    return f"{date:%a}, {date.day} {date:%B %Y}"


@lru_cache(maxsize=1 << 12)
def format_time(seconds: int) -> str:
    """Format the time of the day, "15:34"."""
    minutes = seconds // 60 % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


# ------------------------------------------------------------------------------------------------------------ reading


def find_event(phone: Phone, id: int) -> TableRow | None:
    """Return an event by its id."""
    return next((row for row in rows(phone, EVENTS) if row["id"] == id), None)


def compute_span(row: TableRow) -> tuple[int, int]:
    """Return the first and the last second of an event's first occurrence."""
    start, end = int(row["start_ts"] or 0), int(row["end_ts"] or 0)
    return start, max(start, end - 1)


def list_occurrences(phone: Phone, first: int, last: int) -> list[tuple[int, TableRow]]:
    """Return all occurrences that touch the days from `first` to `last`: (start in seconds, event), by time."""
    found = [(start, row) for row in rows(phone, EVENTS) for start in _iterate_starts(row, first, last)]
    return sorted(found, key=lambda one: (one[0], int(one[1]["id"] or 0)))


def list_days(start: int, row: TableRow) -> range:
    """Return the days one occurrence touches."""
    begin, end = compute_span(row)
    return range(compute_day(start), compute_day(start + end - begin) + 1)


def find_events(phone: Phone, words: str) -> list[TableRow]:
    """Return events with these words in title, location or description, by time."""
    words = words.casefold()
    fields = ("title", "location", "description")
    found = [row for row in rows(phone, EVENTS) if any(words in str(row[name]).casefold() for name in fields)]
    return sorted(found, key=lambda row: (compute_span(row), int(row["id"] or 0)))


def _iterate_starts(row: TableRow, first: int, last: int) -> Iterator[int]:
    start, end = compute_span(row)
    length = compute_day(end) - compute_day(start)
    if not row["repeat_interval"]:
        if compute_day(start) <= last and compute_day(end) >= first:
            yield start
        return
    for day in range(max(compute_day(start), first - length), last + 1):
        if _is_repeated_on(row, day):
            yield start + (day - compute_day(start)) * DAY


def _is_repeated_on(row: TableRow, day: int) -> bool:
    """Return whether a repeating event has an occurrence that starts on a day not before its first."""
    begin, limit, interval = (
        compute_day(compute_span(row)[0]),
        int(row["repeat_limit"] or 0),
        int(row["repeat_interval"] or 0),
    )
    # The end of the repetition, and single days that were deleted from it.
    if 0 < limit < day * DAY or to_date(day).strftime("%Y%m%d") in str(row["repetition_exceptions"]):
        return False
    date, origin = to_date(day), to_date(begin)
    if interval % YEAR == 0:
        return (date.month, date.day) == (origin.month, origin.day) and (date.year - origin.year) % (
            interval // YEAR
        ) == 0
    if interval % MONTH == 0:
        return date.day == origin.day and (compute_month(day) - compute_month(begin)) % (interval // MONTH) == 0
    if interval % WEEK == 0:
        # Weeks count from the Monday of the first one, so that several weekdays repeat together.
        weeks = (day - begin + origin.weekday()) // 7
        return bool(int(row["repeat_rule"] or 0) & compute_weekday_bit(day)) and weeks % (interval // WEEK) == 0
    return (day - begin) * DAY % interval == 0


# ------------------------------------------------------------------------------------------------------------ writing


def add_event(phone: Phone, **values: Scalar) -> Phone:
    """Store a new event; columns left out get what the app writes there."""
    return insert(phone, EVENTS, **{**_BLANK, **values, "last_updated": phone.now_ms})[0]


def put_events(phone: Phone, records: Iterable[TableRow]) -> Phone:
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
    row = find_event(phone, id)
    if row is None:
        return phone
    known = str(row["repetition_exceptions"] or "").strip("[]")
    exceptions = f'{known}{"," if known else ""}"{to_date(day):%Y%m%d}"'
    return change_event(phone, id, repetition_exceptions=f"[{exceptions}]")


def end_repetition(phone: Phone, id: int, day: int) -> Phone:
    """Delete the occurrence that starts on a day and all later ones."""
    row = find_event(phone, id)
    if row is None or day <= compute_day(compute_span(row)[0]):
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
    """Return what an event is called."""
    first = rng.choice((_WITH, _ABOUT))
    return f"{rng.choice(first)} {rng.choice(_WHO if first is _WITH else _WHAT)}"


def draw_description(rng: random.Random) -> str:
    """Draw a sentence or two about an event."""
    words = f"We want to {rng.choice(_VERBS)} {rng.choice(_TOPICS)}."
    return f"{words} {rng.choice(_REMARKS)}" if rng.random() < 0.5 else words


def draw_event(rng: random.Random, day: int) -> dict[str, Any]:
    """Draw an event that starts at some full hour of a day; by column of the database."""
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
