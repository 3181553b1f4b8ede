"""Simple Calendar Pro tasks that add or delete events: judged by the rows of its database.

Adding and deleting events by Simple Calendar Pro's form and its dialogs, step by step.

Ways through Simple Calendar Pro that its tasks share.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from collab.envs.simphone.apps.calendar import cell_key, entry_key
from collab.envs.simphone.apps.calendar_pickers import EVERY, PACKAGE, WEEKDAY_NAMES, date_key
from collab.envs.simphone.content.calendar import (
    DAY,
    EVENTS,
    WEEK,
    compute_day,
    compute_month,
    compute_span,
    compute_weekday_bit,
    draw_event,
    find_event,
    put_events,
    to_date,
)
from collab.envs.simphone.state import START_MS, Phone
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.records import RecordTable, TaskRecord
from collab.envs.simphone.tasks.spec import Draw, Params, TaskSpec, make_phrasings
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

ID = PACKAGE + ":id/"
APP_NAME = "Simple Calendar Pro"


def to_view(frame: Frame, view: str) -> Action | None:
    """Show the month or the list; None when it is in front."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    if plans.name_page(frame) == f"calendar.main/{view}":
        return None
    if frame.page.screen == "calendar.main":
        return plans.aim_at(frame, ID + "change_view")
    if frame.page.screen == "calendar.views":
        return plans.aim_at(frame, f"{ID}view/{view}")
    return leave(frame)


def to_day(frame: Frame, day: int) -> Action | None:
    """Show a day's events; None when they are in front."""
    if plans.is_in_app(frame, PACKAGE) and frame.page.screen == "calendar.day" and frame.page.data["day"] == day:
        return None
    step = to_view(frame, "month")
    if step is not None:
        return step
    if frame.index(cell_key(day)) is not None or cell_key(day) in frame.placed.hidden:
        return plans.aim_at(frame, cell_key(day))
    later = compute_month(day) > int(frame.page.data["month"])
    return plans.aim_at(frame, ID + ("top_right_arrow" if later else "top_left_arrow"))


def to_search(frame: Frame, words: str) -> Action | None:
    """Search for words; None when the results are in front."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    if frame.page.screen == "calendar.search":
        return plans.fill(frame, ID + "top_toolbar_search", words)
    return plans.aim_at(frame, ID + "search") if frame.page.screen == "calendar.main" else leave(frame)


def leave(frame: Frame) -> Action:
    """Close the page in front without saving anything."""
    if frame.page.screen == "calendar.discard":
        return plans.aim_at(frame, ID + "discard")
    return plans.press_back()


def delete(frame: Frame, ids: set[int]) -> Action:
    """Delete the event that is open, or else the earliest of these."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    page = frame.page
    if page.screen == "calendar.delete" and page.data["id"] in ids:
        whole = page.data["choice"] == "all"
        return plans.aim_at(frame, ID + ("ok" if whole else "delete_event/all"))
    if page.screen == "calendar.editor" and page.data["id"] in ids:
        return plans.aim_at(frame, ID + "delete")
    when = {id: compute_span(row)[0] for id in ids if (row := find_event(frame.phone, id)) is not None}
    id = min(when, key=lambda one: (when[one], one))
    day = compute_day(when[id])
    return to_day(frame, day) or plans.aim_at(frame, entry_key(id, day))


def add(frame: Frame, record: TaskRecord) -> Action:
    """Open a new form on the day of the event, fill it in and save it."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    page, below = frame.page, frame.phone.stacks[PACKAGE][-2:][0]
    if page.screen == "calendar.editor" and page.data["id"] is None:
        return _fill(frame, record)
    if below.screen == "calendar.editor" and below.data["id"] is None:
        return _choose(frame, record)
    return to_day(frame, compute_day(int(record["start_ts"]))) or plans.aim_at(frame, ID + "calendar_fab")


def _fill(frame: Frame, record: TaskRecord) -> Action:
    """Set the next field of the form that is not as it should be; Save when all are."""
    for name in ("title", "location", "description"):
        if not record[name]:
            if frame.page.fields.get(name, "").strip():
                return plans.press_back()  # an empty text cannot be typed: start again
            continue
        step = plans.fill(frame, f"{ID}event_{name}", str(record[name]))
        if step is not None:
            return step
    data = frame.page.data
    for part in ("start", "end"):
        now, wanted = int(data[part]), int(record[f"{part}_ts"])
        if compute_day(now) != compute_day(wanted):
            return plans.aim_at(frame, f"{ID}event_{part}_date")
        if now != wanted:
            return plans.aim_at(frame, f"{ID}event_{part}_time")
    if data["interval"] != record["repeat_interval"]:
        return plans.aim_at(frame, ID + "event_repetition")
    if data["rule"] != record["repeat_rule"]:
        return plans.aim_at(frame, ID + "event_repetition_rule")
    return plans.aim_at(frame, ID + "save")


def _choose(frame: Frame, record: TaskRecord) -> Action:
    """Return the action in a dialog above the form."""
    page = frame.page
    if page.screen == "calendar.date":
        return _choose_date(frame, compute_day(int(record[f"{page.data['part']}_ts"])))
    if page.screen == "calendar.time":
        return _choose_time(frame, int(record[f"{page.data['part']}_ts"]) % DAY // 60)
    if page.screen == "calendar.repetition":
        return plans.aim_at(frame, f"{ID}repetition/{record['repeat_interval']}")
    if page.screen == "calendar.weekdays":
        return _choose_weekdays(frame, int(record["repeat_rule"]))
    return leave(frame)


def _choose_date(frame: Frame, day: int) -> Action:
    if frame.page.data["day"] == day:
        return plans.aim_at(frame, ID + "ok")
    month = int(frame.page.data["month"])
    if compute_month(day) != month:
        return plans.aim_at(frame, ID + ("next" if compute_month(day) > month else "prev"))
    return plans.aim_at(frame, date_key(day))


def _choose_time(frame: Frame, minutes: int) -> Action:
    hour, minute = divmod(int(frame.page.data["minutes"]), 60)
    wanted_hour, wanted_minute = divmod(minutes, 60)
    on_hours = frame.page.data["page"] == "hour"
    if hour != wanted_hour:
        return plans.aim_at(frame, f"{ID}hour/{wanted_hour}" if on_hours else ID + "hours")
    if minute == wanted_minute:
        return plans.aim_at(frame, ID + "ok")
    if on_hours:
        return plans.aim_at(frame, ID + "minutes")
    near = wanted_minute // EVERY * EVERY
    return plans.aim_at(frame, ID + "minute_more" if near <= minute < wanted_minute else f"{ID}minute/{near}")


def _choose_weekdays(frame: Frame, rule: int) -> Action:
    now = int(frame.page.data["rule"])
    missing, surplus = rule & ~now, now & ~rule
    if not missing and not surplus:
        return plans.aim_at(frame, ID + "ok")
    place = (missing or surplus).bit_length() - 1
    return plans.aim_at(frame, f"{ID}repeat_on/{WEEKDAY_NAMES[place]}")


_TODAY = compute_day(START_MS // 1000)
_MONTH_START, _MONTH_END = _TODAY - 14, _TODAY + 16
_INTERVALS = {"daily": DAY, "weekly": WEEK}
_LEDGER = RecordTable(
    table=EVENTS,
    text=("title", "location", "description"),
    exact=("start_ts", "end_ts", "repeat_interval", "repeat_rule"),
    add=add,
    delete=delete,
)


# --------------------------------------------------------------------------------------------- preparing and drawing


def _prepare(phone: Phone, params: Params, rng: random.Random, *, targets: bool) -> Phone:
    """Store only the task's events: noise first, then the ones to be deleted, if `targets`."""
    return put_events(phone, (*params["noise_row_objects"], *(params["row_objects"] if targets else ())))


def _find_days(record: TaskRecord) -> set[int]:
    start, end = compute_span(record)
    return {compute_day(start), compute_day(end)}


def _draw_noise(rng: random.Random, wanted: list[dict[str, Any]], count: int, *, others: bool) -> list[dict[str, Any]]:
    """Draw events of October that differ from the wanted ones by title and time, or by day."""
    titles, starts = {record["title"] for record in wanted}, {record["start_ts"] for record in wanted}
    days = {day for record in wanted for day in _find_days(record)}
    found: list[dict[str, Any]] = []
    while len(found) < count:
        record = draw_event(rng, rng.randint(_MONTH_START, _MONTH_END))
        by_title = record["title"] not in titles and record["start_ts"] not in starts
        if by_title if others else not days & _find_days(record):
            found.append(record)
    return found


def _describe_event(record: TaskRecord) -> dict[str, Any]:
    """Return what a goal says about an event."""
    start, end = int(record["start_ts"]), int(record["end_ts"])
    date = to_date(compute_day(start))
    return {
        **{"year": date.year, "month": date.month, "day": date.day, "hour": start % DAY // 3600},
        "duration_mins": (end - start) // 60,
        "event_title": record["title"],
        "event_description": record["description"],
    }


def _describe_added(rng: random.Random, record: dict[str, Any]) -> dict[str, Any]:
    noise = _draw_noise(rng, [record], rng.randint(0, 20), others=True)
    return {**_describe_event(record), "row_objects": [record], "noise_row_objects": noise}


def _draw_added(rng: random.Random, *, first: int, last: int) -> dict[str, Any]:
    return _describe_added(rng, draw_event(rng, rng.randint(first, last)))


def _draw_weekday_added(rng: random.Random) -> dict[str, Any]:
    params = _draw_added(rng, first=_TODAY + 1, last=_TODAY + 6)
    return {**params, "day_of_week": _name_weekday(params)}


def _draw_repeating(rng: random.Random) -> dict[str, Any]:
    record, repetition = draw_event(rng, rng.randint(_TODAY, _MONTH_END)), rng.choice(list(_INTERVALS))
    rule = compute_weekday_bit(compute_day(record["start_ts"])) if repetition == "weekly" else 0
    repeating = {**record, "repeat_interval": _INTERVALS[repetition], "repeat_rule": rule}
    return {**_describe_added(rng, repeating), "repeat_rule": repetition}


def _name_weekday(params: Params) -> str:
    return f"{to_date(compute_day(params['row_objects'][0]['start_ts'])):%A}"


def _draw_one_deleted(rng: random.Random) -> dict[str, Any]:
    record = draw_event(rng, rng.randint(_TODAY, _MONTH_END))
    return {
        **_describe_event(record),
        "row_objects": [record],
        "noise_row_objects": _draw_noise(rng, [record], 20, others=True),
    }


def _draw_day_deleted(rng: random.Random, *, first: int, last: int, count: int) -> dict[str, Any]:
    day = rng.randint(first, last)
    wanted = [draw_event(rng, day) for _ in range(count)]
    date = to_date(day)
    return {
        **{"year": date.year, "month": date.month, "day": date.day},
        "row_objects": wanted,
        "noise_row_objects": _draw_noise(rng, wanted, 20, others=False),
    }


def _draw_weekday_deleted(rng: random.Random) -> dict[str, Any]:
    params = _draw_day_deleted(rng, first=_TODAY + 1, last=_TODAY + 6, count=2)
    return {**params, "day_of_week": _name_weekday(params)}


# ----------------------------------------------------------------------------------------------------------- tasks

_SAYS = "It is called '{event_title}', takes {duration_mins} minutes, and its description reads: {event_description}"
_TITLED = "'{event_title}', {duration_mins} minutes long, described as '{event_description}'"


def _add_task(name: str, difficulty: str, draw: Draw, *when: str) -> TaskSpec:
    """Build a task that adds one event; `when` says in three ways when it starts."""
    return TaskSpec(
        name=name,
        apps=("simple calendar pro",),
        complexity=3.4,
        difficulty=difficulty,
        goal=make_phrasings(
            f"Add an event to Simple Calendar Pro that starts {when[0]}. {_SAYS}",
            f"Enter in Simple Calendar Pro, {when[1]}: {_TITLED}.",
            f"I have an appointment {when[2]}: {_TITLED}. Put it into Simple Calendar Pro.",
        ),
        draw=draw,
        prepare=partial(_prepare, targets=False),
        score=_LEDGER.score(_LEDGER.expect_added),
        plan=partial(_LEDGER.plan, target=_LEDGER.expect_added),
    )


_delete_task = partial(
    TaskSpec,
    apps=("simple calendar pro",),
    prepare=partial(_prepare, targets=True),
    score=_LEDGER.score(_LEDGER.expect_removed),
    plan=partial(_LEDGER.plan, target=_LEDGER.expect_removed),
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
        goal=make_phrasings(
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
        goal=make_phrasings(
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
        goal=make_phrasings(
            "Delete '{event_title}' on {year}-{month}-{day} at {hour}:00 from Simple Calendar Pro.",
            "The event '{event_title}', which Simple Calendar Pro has on {year}-{month}-{day} at {hour} o'clock "
            "(24 hours), was called off. Delete it.",
            "Take '{event_title}' ({year}-{month}-{day}, {hour}:00) out of Simple Calendar Pro and leave the rest.",
        ),
        draw=_draw_one_deleted,
    ),
)
