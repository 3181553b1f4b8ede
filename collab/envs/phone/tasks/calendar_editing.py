"""Simple Calendar Pro tasks that add or delete events: judged by the rows of its database."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from collab.envs.phone.appointments import draw_event
from collab.envs.phone.events import (
    DAY,
    EVENTS,
    WEEK,
    date_of,
    day_of,
    put_events,
    span,
    weekday_bit,
)
from collab.envs.phone.screen import Frame
from collab.envs.phone.state import START_MS, Phone
from collab.envs.phone.tasks import plans
from collab.envs.phone.tasks.calendar_form import add, delete
from collab.envs.phone.tasks.records import Ledger, Record, Target
from collab.envs.phone.tasks.spec import Draw, Params, TaskSpec, phrasings
from collab.types import Action

_TODAY = day_of(START_MS // 1000)
_MONTH_START, _MONTH_END = _TODAY - 14, _TODAY + 16
_INTERVALS = {"daily": DAY, "weekly": WEEK}
_LEDGER = Ledger(
    table=EVENTS,
    text=("title", "location", "description"),
    exact=("start_ts", "end_ts", "repeat_interval", "repeat_rule"),
)


# -------------------------------------------------------------------------------------------------------- planning


def _plan(frame: Frame, params: Params, start: Phone, *, target: Target) -> Action:
    missing, surplus = _LEDGER.left(target, start, frame.phone, params)
    if surplus:
        return delete(frame, surplus)
    return add(frame, missing[0]) if missing else plans.done()


# --------------------------------------------------------------------------------------------- preparing and drawing


def _prepare(phone: Phone, params: Params, rng: random.Random, *, targets: bool) -> Phone:
    """No events but the task's: noise first, then the ones to be deleted, if `targets`."""
    return put_events(phone, (*params["noise_row_objects"], *(params["row_objects"] if targets else ())))


def _days(record: Record) -> set[int]:
    start, end = span(record)
    return {day_of(start), day_of(end)}


def _noise(rng: random.Random, wanted: list[dict[str, Any]], count: int, *, others: bool) -> list[dict[str, Any]]:
    """Events of October that cannot be mistaken for the wanted ones: others by title and time, or on other days."""
    titles, starts = {record["title"] for record in wanted}, {record["start_ts"] for record in wanted}
    days = {day for record in wanted for day in _days(record)}
    found: list[dict[str, Any]] = []
    while len(found) < count:
        record = draw_event(rng, rng.randint(_MONTH_START, _MONTH_END))
        by_title = record["title"] not in titles and record["start_ts"] not in starts
        if by_title if others else not days & _days(record):
            found.append(record)
    return found


def _named(record: Record) -> dict[str, Any]:
    """What a goal says about an event."""
    start, end = int(record["start_ts"]), int(record["end_ts"])
    date = date_of(day_of(start))
    return {
        **{"year": date.year, "month": date.month, "day": date.day, "hour": start % DAY // 3600},
        "duration_mins": (end - start) // 60,
        "event_title": record["title"],
        "event_description": record["description"],
    }


def _added(rng: random.Random, record: dict[str, Any]) -> dict[str, Any]:
    noise = _noise(rng, [record], rng.randint(0, 20), others=True)
    return {**_named(record), "row_objects": [record], "noise_row_objects": noise}


def _draw_added(rng: random.Random, *, first: int, last: int) -> dict[str, Any]:
    return _added(rng, draw_event(rng, rng.randint(first, last)))


def _draw_weekday_added(rng: random.Random) -> dict[str, Any]:
    params = _draw_added(rng, first=_TODAY + 1, last=_TODAY + 6)
    return {**params, "day_of_week": _weekday(params)}


def _draw_repeating(rng: random.Random) -> dict[str, Any]:
    record, repetition = draw_event(rng, rng.randint(_TODAY, _MONTH_END)), rng.choice(list(_INTERVALS))
    rule = weekday_bit(day_of(record["start_ts"])) if repetition == "weekly" else 0
    repeating = {**record, "repeat_interval": _INTERVALS[repetition], "repeat_rule": rule}
    return {**_added(rng, repeating), "repeat_rule": repetition}


def _weekday(params: Params) -> str:
    return f"{date_of(day_of(params['row_objects'][0]['start_ts'])):%A}"


def _draw_one_deleted(rng: random.Random) -> dict[str, Any]:
    record = draw_event(rng, rng.randint(_TODAY, _MONTH_END))
    return {**_named(record), "row_objects": [record], "noise_row_objects": _noise(rng, [record], 20, others=True)}


def _draw_day_deleted(rng: random.Random, *, first: int, last: int, count: int) -> dict[str, Any]:
    day = rng.randint(first, last)
    wanted = [draw_event(rng, day) for _ in range(count)]
    date = date_of(day)
    return {
        **{"year": date.year, "month": date.month, "day": date.day},
        "row_objects": wanted,
        "noise_row_objects": _noise(rng, wanted, 20, others=False),
    }


def _draw_weekday_deleted(rng: random.Random) -> dict[str, Any]:
    params = _draw_day_deleted(rng, first=_TODAY + 1, last=_TODAY + 6, count=2)
    return {**params, "day_of_week": _weekday(params)}


# ----------------------------------------------------------------------------------------------------------- tasks

_SAYS = "It is called '{event_title}', takes {duration_mins} minutes, and its description reads: {event_description}"
_TITLED = "'{event_title}', {duration_mins} minutes long, described as '{event_description}'"


def _add_task(name: str, difficulty: str, draw: Draw, *when: str) -> TaskSpec:
    """A task that adds one event; `when` says in three ways when it starts."""
    return TaskSpec(
        name=name,
        apps=("simple calendar pro",),
        complexity=3.4,
        difficulty=difficulty,
        goal=phrasings(
            f"Add an event to Simple Calendar Pro that starts {when[0]}. {_SAYS}",
            f"Enter in Simple Calendar Pro, {when[1]}: {_TITLED}.",
            f"I have an appointment {when[2]}: {_TITLED}. Put it into Simple Calendar Pro.",
        ),
        draw=draw,
        prepare=partial(_prepare, targets=False),
        score=_LEDGER.score(_LEDGER.added),
        plan=partial(_plan, target=_LEDGER.added),
    )


_delete_task = partial(
    TaskSpec,
    apps=("simple calendar pro",),
    prepare=partial(_prepare, targets=True),
    score=_LEDGER.score(_LEDGER.removed),
    plan=partial(_plan, target=_LEDGER.removed),
)

TASKS: tuple[TaskSpec, ...] = (
    _add_task(
        "SimpleCalendarAddOneEvent",
        "hard",
        partial(_draw_added, first=_TODAY, last=_MONTH_END),
        "on {year}-{month}-{day} at {hour}:00",
        "for {hour} o'clock (24 hours) on {year}-{month}-{day}",
        "on day {day} of month {month} in {year}, from {hour}:00 on",
    ),
    _add_task(
        "SimpleCalendarAddOneEventInTwoWeeks",
        "medium",
        partial(_draw_added, first=_TODAY + 14, last=_TODAY + 14),
        "two weeks from today at {hour}:00",
        "for {hour} o'clock (24 hours) in exactly two weeks",
        "in fourteen days, from {hour}:00 on",
    ),
    _add_task(
        "SimpleCalendarAddOneEventRelativeDay",
        "easy",
        _draw_weekday_added,
        "this {day_of_week} at {hour}:00",
        "for {hour} o'clock (24 hours) on the coming {day_of_week}",
        "this {day_of_week}, from {hour}:00 on",
    ),
    _add_task(
        "SimpleCalendarAddOneEventTomorrow",
        "easy",
        partial(_draw_added, first=_TODAY + 1, last=_TODAY + 1),
        "tomorrow at {hour}:00",
        "for {hour} o'clock (24 hours) tomorrow",
        "tomorrow, from {hour}:00 on",
    ),
    _add_task(
        "SimpleCalendarAddRepeatingEvent",
        "easy",
        _draw_repeating,
        "on {year}-{month}-{day} at {hour}:00 and repeats {repeat_rule} without an end",
        "from {year}-{month}-{day} at {hour} o'clock (24 hours) on, {repeat_rule} and for ever",
        "that comes back {repeat_rule} for good, first on {year}-{month}-{day} at {hour}:00",
    ),
    _delete_task(
        name="SimpleCalendarDeleteEvents",
        complexity=1.4,
        difficulty="easy",
        goal=phrasings(
            "Clear {year}-{month}-{day} in Simple Calendar Pro: delete every event of that day.",
            "Nothing should be left on {year}-{month}-{day} in Simple Calendar Pro. Delete what is there.",
            "Remove whatever Simple Calendar Pro has for {year}-{month}-{day}, and nothing else.",
        ),
        draw=partial(_draw_day_deleted, first=_TODAY, last=_MONTH_END, count=3),
    ),
    _delete_task(
        name="SimpleCalendarDeleteEventsOnRelativeDay",
        complexity=1.2,
        difficulty="medium",
        goal=phrasings(
            "I am free this {day_of_week} after all: delete that day's events from Simple Calendar Pro.",
            "Delete what Simple Calendar Pro has for this {day_of_week}.",
            "Take all events of the coming {day_of_week} out of Simple Calendar Pro.",
        ),
        draw=_draw_weekday_deleted,
    ),
    _delete_task(
        name="SimpleCalendarDeleteOneEvent",
        complexity=1.2,
        difficulty="easy",
        goal=phrasings(
            "Delete '{event_title}' on {year}-{month}-{day} at {hour}:00 from Simple Calendar Pro.",
            "The event '{event_title}', which Simple Calendar Pro has on {year}-{month}-{day} at {hour} o'clock "
            "(24 hours), was called off. Delete it.",
            "Take '{event_title}' ({year}-{month}-{day}, {hour}:00) out of Simple Calendar Pro and leave the rest.",
        ),
        draw=_draw_one_deleted,
    ),
)
