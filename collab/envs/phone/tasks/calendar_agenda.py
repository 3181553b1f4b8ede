"""What Simple Calendar Pro's question tasks are about: spans of time, the events in them, and how they are drawn."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from collab.envs.phone.apps.calendar_pickers import WEEKDAY_NAMES
from collab.envs.phone.events import DAY, date_of, day_at, day_of
from collab.envs.phone.pools import draw_other
from collab.envs.phone.state import START_MS, Row
from collab.envs.phone.tasks.spec import Params

TODAY = day_of(START_MS // 1000)
_TITLES = (
    "Pottery class",
    "Tax advisor",
    "Boat trip",
    "Eye test",
    "House viewing",
    "Quiz evening",
    "Late brunch",
    "Car inspection",
    "Flute lesson",
    "Blood donation",
    "Street festival",
    "Book launch",
    "Chess final",
    "Tree planting",
    "Fire drill",
    "Job fair",
    "Wine tasting",
    "Swimming gala",
)
_PLACES = (
    "Old Town Hall",
    "Pier 4",
    "Room 210",
    "Botanical Garden",
    "Harbour Cinema",
    "Market Square",
    "Corner Bakery",
    "Indoor pool",
    "North Library",
    "Video call",
    "Rosa's terrace",
    "Museum of Glass",
)
_PEOPLE = ("Tessa", "Imani", "Jonas", "Selma", "Pablo", "Wanda", "Yusuf", "Nadia", "Viktor", "Priya")
_DURATIONS = ("15 min", "30 m", "45 minutes", "1 h", "1.5 hours", "2 hours", "50 min", "75 minutes")
Span: TypeAlias = Callable[[Params], tuple[int, int]]
"""Parameters → the first and the last second, since 1970."""


# ------------------------------------------------------------------------------------------- what parameters mean


@lru_cache(maxsize=1 << 8)
def _day(text: str) -> int:
    """The day that a date like "October 28 2023" names, or the words that AndroidWorld puts in its place."""
    if text in ("today", "tomorrow"):
        return TODAY + (text == "tomorrow")
    weekday = re.fullmatch(r"(?:this |the )?(\w+day)( after next)?", text)
    if weekday is not None:
        ahead = (WEEKDAY_NAMES.index(weekday[1]) - date_of(TODAY).weekday() - 1) % 7 + 1
        return TODAY + ahead + 7 * (weekday[2] is not None)
    full = text if text[-4:].isdecimal() else f"{text} {date_of(TODAY).year}"
    return day_at(datetime.datetime.strptime(full, "%B %d %Y").date())


@lru_cache(maxsize=1 << 8)
def _seconds(text: str) -> int:
    """Seconds since midnight of "16:15", "4:15pm" or "4pm"."""
    found = re.fullmatch(r"(\d{1,2})(?::(\d\d))?(am|pm)?", text)
    if found is None:
        raise ValueError(f"time: expected one like 16:15, 4:15pm or 4pm, got {text!r}")
    hour = int(found[1]) if found[3] is None else int(found[1]) % 12 + 12 * (found[3] == "pm")
    return 3600 * hour + 60 * int(found[2] or 0)


def _length(text: str) -> int:
    """Seconds in "45 min", "90 minutes" or "1.5 hours"."""
    return int(float(re.sub(r"[^\d.]", "", text)) * (3600 if "h" in text else 60))


def _start(params: Params) -> int:
    day = _day(params["date"]) if "date" in params else TODAY
    return day * DAY + _seconds(params["time"] if "time" in params else params["start_time"])


def _event(start: int, title: str, duration: str = "30 m", location: str = "") -> dict[str, Any]:
    return {"start_ts": start, "end_ts": start + _length(duration), "title": title, "location": location}


def one_event(params: Params, rng: random.Random) -> list[Row]:
    """The event that the parameters describe."""
    title = str(params["title"]).replace("{person}", str(params.get("person")))
    more = {name: str(params[name]) for name in ("duration", "location") if name in params}
    return [_event(_start(params), title, **more)]


def three_on_a_day(params: Params, rng: random.Random) -> list[Row]:
    """The one of the parameters, and two at other hours of the same day."""
    (first,) = one_event({**params, "duration": "1 h"}, rng)
    midnight = whole_day(params)[0]
    hours = rng.sample([hour for hour in range(6, 23) if abs(midnight + 3600 * hour - _start(params)) >= 3600], 2)
    titles = rng.sample([title for title in _TITLES if title != first["title"]], 2)
    return [first, *(_event(midnight + 3600 * hour, title, "1 h") for hour, title in zip(hours, titles, strict=True))]


def two_in_a_week(params: Params, rng: random.Random) -> list[Row]:
    """The one of the parameters, and one on another day of the coming week."""
    (first,) = one_event(params, rng)
    day = rng.choice([day for day in range(TODAY + 1, TODAY + 8) if day != _day(params["date"])])
    return [first, _event(day * DAY + 3600 * rng.randint(6, 22), draw_other(rng, _TITLES, str(first["title"])))]


def meeting(params: Params, rng: random.Random) -> list[Row]:
    """A meeting with the person of the parameters."""
    return [_event(_start(params), f"Coffee with {params['person']}")]


# ----------------------------------------------------------------------------------------------------------- spans


def whole_day(params: Params) -> tuple[int, int]:
    """The day named by `date`."""
    first = _day(params["date"]) * DAY
    return first, first + DAY - 1


def moment(params: Params) -> tuple[int, int]:
    """Just the time of that day."""
    return _start(params), _start(params)


def rest_of_day(params: Params) -> tuple[int, int]:
    """From that time to midnight."""
    return _start(params), whole_day(params)[1]


def until_eight(params: Params) -> tuple[int, int]:
    """From that time to eight in the evening."""
    return _start(params), whole_day(params)[0] + _seconds("8pm")


def until_next(params: Params) -> tuple[int, int]:
    """From now to the event; the other way round for a time that is over, which AndroidWorld draws now and then."""
    first, last = sorted((TODAY * DAY + _seconds("15:30"), _start(params)))
    return first, last


def coming_week(params: Params) -> tuple[int, int]:
    """From today to the Sunday of next week."""
    return TODAY * DAY, (TODAY + 8) * DAY - 1


# --------------------------------------------------------------------------------------------------------- drawing


def goal_with_date(*templates: str) -> Callable[[Params, random.Random], str]:
    """Goals in which the date may be said in other words."""

    def goal(params: Params, rng: random.Random) -> str:
        words = {**params, "date": _reworded(rng, str(params["date"]))} if "date" in params else params
        return rng.choice(templates).format(**words)

    return goal


def _reworded(rng: random.Random, text: str) -> str:
    day = _day(text)
    date, ahead = date_of(day), day - TODAY
    options = [f"on {text}", f"on {date:%B} {date.day}"]
    options += {0: ["today"], 1: ["tomorrow"]}.get(ahead, [])
    return rng.choice([*options, f"this {date:%A}"] if 0 < ahead < 7 else options)


def _draw_date(rng: random.Random, first: int, last: int) -> str:
    date = date_of(TODAY + rng.randint(first, last))
    return f"{date:%B} {date.day} {date.year}"


def _draw_time(rng: random.Random, first: int = 6, last: int = 22) -> str:
    """A quarter of an hour, not before and not at the end of the given hours, in one of two ways to write it."""
    hour, minute = rng.randint(first, last), rng.choice((0, 15, 30, 45))
    if rng.random() < 0.5:
        return f"{hour}:{minute:02d}"
    return f"{(hour - 1) % 12 + 1}:{minute:02d}{'pm' if hour >= 12 else 'am'}"


def draw(
    rng: random.Random, *, names: str, days: tuple[int, int] = (0, 14), hours: tuple[int, int] = (6, 22)
) -> dict[str, Any]:
    """The named parameters; days are counted from today."""
    time = _draw_time(rng, *hours)
    drawn = {
        **{"date": _draw_date(rng, *days), "time": time, "start_time": time},
        **{"title": rng.choice(_TITLES), "duration": rng.choice(_DURATIONS)},
        **{"location": rng.choice(_PLACES), "person": rng.choice(_PEOPLE)},
    }
    return {name: drawn[name] for name in names.split()}
