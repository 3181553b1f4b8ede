"""What Simple Calendar Pro's question tasks are about: spans of time, the events in them, and how they are drawn."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from collab.envs.phone.events import DAY
from collab.envs.phone.pools import draw_other
from collab.envs.phone.state import Row
from collab.envs.phone.tasks.dates import TODAY, day_named, draw_date, draw_time, seconds_of, start_of, whole_day
from collab.envs.phone.tasks.spec import Params

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


def _length(text: str) -> int:
    """Seconds in "45 min", "90 minutes" or "1.5 hours"."""
    return int(float(re.sub(r"[^\d.]", "", text)) * (3600 if "h" in text else 60))


def _event(start: int, title: str, duration: str = "30 m", location: str = "") -> dict[str, Any]:
    return {"start_ts": start, "end_ts": start + _length(duration), "title": title, "location": location}


def one_event(params: Params, rng: random.Random) -> list[Row]:
    """The event that the parameters describe."""
    title = str(params["title"]).replace("{person}", str(params.get("person")))
    more = {name: str(params[name]) for name in ("duration", "location") if name in params}
    return [_event(start_of(params), title, **more)]


def three_on_a_day(params: Params, rng: random.Random) -> list[Row]:
    """The one of the parameters, and two at other hours of the same day."""
    (first,) = one_event({**params, "duration": "1 h"}, rng)
    midnight = whole_day(params)[0]
    hours = rng.sample([hour for hour in range(6, 23) if abs(midnight + 3600 * hour - start_of(params)) >= 3600], 2)
    titles = rng.sample([title for title in _TITLES if title != first["title"]], 2)
    return [first, *(_event(midnight + 3600 * hour, title, "1 h") for hour, title in zip(hours, titles, strict=True))]


def two_in_a_week(params: Params, rng: random.Random) -> list[Row]:
    """The one of the parameters, and one on another day of the coming week."""
    (first,) = one_event(params, rng)
    day = rng.choice([day for day in range(TODAY + 1, TODAY + 8) if day != day_named(params["date"])])
    return [first, _event(day * DAY + 3600 * rng.randint(6, 22), draw_other(rng, _TITLES, str(first["title"])))]


def meeting(params: Params, rng: random.Random) -> list[Row]:
    """A meeting with the person of the parameters."""
    return [_event(start_of(params), f"Coffee with {params['person']}")]


# ----------------------------------------------------------------------------------------------------------- spans


def rest_of_day(params: Params) -> tuple[int, int]:
    """From that time to midnight."""
    return start_of(params), whole_day(params)[1]


def until_eight(params: Params) -> tuple[int, int]:
    """From that time to eight in the evening."""
    return start_of(params), whole_day(params)[0] + seconds_of("8pm")


def until_next(params: Params) -> tuple[int, int]:
    """From now to the event; the event alone when its time is over, which AndroidWorld draws now and then."""
    now, start = TODAY * DAY + seconds_of("15:30"), start_of(params)
    return min(now, start), start


def coming_week(params: Params) -> tuple[int, int]:
    """From today to the Sunday of next week."""
    return TODAY * DAY, (TODAY + 8) * DAY - 1


# --------------------------------------------------------------------------------------------------------- drawing


def draw(
    rng: random.Random, *, names: str, days: tuple[int, int] = (0, 14), hours: tuple[int, int] = (6, 22)
) -> dict[str, Any]:
    """The named parameters; days are counted from today."""
    time = draw_time(rng, *hours)
    drawn = {
        **{"date": draw_date(rng, *days), "time": time, "start_time": time},
        **{"title": rng.choice(_TITLES), "duration": rng.choice(_DURATIONS)},
        **{"location": rng.choice(_PLACES), "person": rng.choice(_PEOPLE)},
    }
    return {name: drawn[name] for name in names.split()}
