"""Adding and deleting events by Simple Calendar Pro's form and its dialogs, step by step."""

from __future__ import annotations

from collab.envs.phone.apps.calendar import entry_key
from collab.envs.phone.apps.calendar_pickers import EVERY, PACKAGE, WEEKDAY_NAMES, date_key
from collab.envs.phone.events import DAY, day_of, event, month_of, span
from collab.envs.phone.screen import Frame
from collab.envs.phone.tasks import plans
from collab.envs.phone.tasks.calendar_views import APP_NAME, ID, leave, to_day
from collab.envs.phone.tasks.records import Record
from collab.types import Action


def delete(frame: Frame, ids: set[int]) -> Action:
    """Delete the event that is open, or else the earliest of these."""
    if not plans.in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    page = frame.page
    if page.screen == "calendar.delete" and page.data["id"] in ids:
        whole = page.data["choice"] == "all"
        return plans.aim(frame, ID + ("ok" if whole else "delete_event/all"))
    if page.screen == "calendar.editor" and page.data["id"] in ids:
        return plans.aim(frame, ID + "delete")
    when = {id: span(row)[0] for id in ids if (row := event(frame.phone, id)) is not None}
    id = min(when, key=lambda one: (when[one], one))
    day = day_of(when[id])
    return to_day(frame, day) or plans.aim(frame, entry_key(id, day))


def add(frame: Frame, record: Record) -> Action:
    """Open a new form on the day of the event, fill it in and save it."""
    if not plans.in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    page, below = frame.page, frame.phone.stacks[PACKAGE][-2:][0]
    if page.screen == "calendar.editor" and page.data["id"] is None:
        return _fill(frame, record)
    if below.screen == "calendar.editor" and below.data["id"] is None:
        return _choose(frame, record)
    return to_day(frame, day_of(int(record["start_ts"]))) or plans.aim(frame, ID + "calendar_fab")


def _fill(frame: Frame, record: Record) -> Action:
    """The next field of the form that is not as it should be; Save when all are."""
    for name in ("title", "location", "description"):
        if not record[name]:
            if frame.page.fields.get(name, "").strip():
                return plans.back()  # an empty text cannot be typed: start again
            continue
        step = plans.fill(frame, f"{ID}event_{name}", str(record[name]))
        if step is not None:
            return step
    data = frame.page.data
    for part in ("start", "end"):
        now, wanted = int(data[part]), int(record[f"{part}_ts"])
        if day_of(now) != day_of(wanted):
            return plans.aim(frame, f"{ID}event_{part}_date")
        if now != wanted:
            return plans.aim(frame, f"{ID}event_{part}_time")
    if data["interval"] != record["repeat_interval"]:
        return plans.aim(frame, ID + "event_repetition")
    if data["rule"] != record["repeat_rule"]:
        return plans.aim(frame, ID + "event_repetition_rule")
    return plans.aim(frame, ID + "save")


def _choose(frame: Frame, record: Record) -> Action:
    """What to touch in a dialog above the form."""
    page = frame.page
    if page.screen == "calendar.date":
        return _choose_date(frame, day_of(int(record[f"{page.data['part']}_ts"])))
    if page.screen == "calendar.time":
        return _choose_time(frame, int(record[f"{page.data['part']}_ts"]) % DAY // 60)
    if page.screen == "calendar.repetition":
        return plans.aim(frame, f"{ID}repetition/{record['repeat_interval']}")
    if page.screen == "calendar.weekdays":
        return _choose_weekdays(frame, int(record["repeat_rule"]))
    return leave(frame)


def _choose_date(frame: Frame, day: int) -> Action:
    if frame.page.data["day"] == day:
        return plans.aim(frame, ID + "ok")
    month = int(frame.page.data["month"])
    if month_of(day) != month:
        return plans.aim(frame, ID + ("next" if month_of(day) > month else "prev"))
    return plans.aim(frame, date_key(day))


def _choose_time(frame: Frame, minutes: int) -> Action:
    hour, minute = divmod(int(frame.page.data["minutes"]), 60)
    wanted_hour, wanted_minute = divmod(minutes, 60)
    on_hours = frame.page.data["page"] == "hour"
    if hour != wanted_hour:
        return plans.aim(frame, f"{ID}hour/{wanted_hour}" if on_hours else ID + "hours")
    if minute == wanted_minute:
        return plans.aim(frame, ID + "ok")
    if on_hours:
        return plans.aim(frame, ID + "minutes")
    near = wanted_minute // EVERY * EVERY
    return plans.aim(frame, ID + "minute_more" if near <= minute < wanted_minute else f"{ID}minute/{near}")


def _choose_weekdays(frame: Frame, rule: int) -> Action:
    now = int(frame.page.data["rule"])
    missing, surplus = rule & ~now, now & ~rule
    if not missing and not surplus:
        return plans.aim(frame, ID + "ok")
    place = (missing or surplus).bit_length() - 1
    return plans.aim(frame, f"{ID}repeat_on/{WEEKDAY_NAMES[place]}")
