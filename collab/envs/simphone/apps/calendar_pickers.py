"""Dialogs in which dates, times and choices are picked, for Simple Calendar Pro."""

from __future__ import annotations

from functools import partial

from collab.envs.simphone.app import (
    Item,
    NodeLine,
    UiNode,
    View,
    button,
    grid,
    heading,
    icon,
    line,
    radio,
    row,
    switch,
    tab,
)
from collab.envs.simphone.content.calendar import (
    DAY,
    REPETITIONS,
    WEEK,
    compute_day,
    compute_month,
    compute_weekday_bit,
    find_month_start,
    format_day,
    format_time,
    to_date,
)
from collab.envs.simphone.state import Handler, Page, Phone, edit_page, keep, pop, push, swap

PACKAGE = "com.simplemobiletools.calendar.pro"
_ID = PACKAGE + ":id/"
WEEKDAY_LINE = NodeLine(
    tuple(
        heading(name, f"{_ID}weekday/{name}")._replace(height=80) for name in ("Su", "Mo", "Tu", "We", "Th", "Fr", "Sa")
    )
)
"""What stands above the days of a month."""
WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""In the order of a weekly rule's bits."""
REMINDERS = {
    -1: "No reminder",
    0: "At start",
    5: "5 minutes before",
    10: "10 minutes before",
    30: "30 minutes before",
    60: "1 hour before",
    1440: "1 day before",
}
"""By minutes."""
EVERY = 5
"""Minutes between two cells of the time picker."""


# ------------------------------------------------------------------------------------------------------------- dates


def format_month(month: int) -> str:
    """Return a month in words, "October 2023"."""
    return f"{to_date(find_month_start(month)):%B %Y}"


def list_month_days(month: int) -> range:
    """Return the days of all weeks, Sunday to Saturday, that a month touches."""
    first, after = find_month_start(month), find_month_start(month + 1)
    start = first - to_date(first).isoweekday() % 7
    return range(start, after + (start - after) % 7)


def turn_month(phone: Phone, by: int) -> Phone:
    """Turn the calendar's leaves, within the years that the app knows."""
    month = min(max(int(phone.page.data["month"]) + by, 1970 * 12 + 1), 2100 * 12 + 10)
    return edit_page(keep(phone, month=month), scroll=0)


def pick_date(phone: Phone, part: str) -> Phone:
    """Open the date dialog for the start or the end of the event below."""
    day = compute_day(int(phone.page.data[part]))
    return push(phone, Page(screen="calendar.date", data={"part": part, "day": day, "month": compute_month(day)}))


def date_dialog(phone: Phone, page: Page) -> View:
    """Ask for the day of the start or the end of an event."""
    return _date_view(page, _take_date)


def goto_dialog(phone: Phone, page: Page) -> View:
    """Ask for a day to look at."""
    return _date_view(page, _look_at)


def _date_view(page: Page, take: Handler) -> View:
    month, chosen = int(page.data["month"]), int(page.data["day"])
    cells = [_date_cell(day, day == chosen, compute_month(day) == month) for day in list_month_days(month)]
    body: list[Item] = [
        row(
            heading(format_month(month), _ID + "date_picker_header"),
            icon("Previous month", _ID + "prev", partial(turn_month, by=-1)),
            icon("Next month", _ID + "next", partial(turn_month, by=1)),
        ),
        WEEKDAY_LINE,
        *grid(cells, 7),
    ]
    return View(title=format_day(chosen), style="dialog", body=body, actions=_buttons(take))


def _date_cell(day: int, chosen: bool, enabled: bool) -> UiNode:
    flags = (*(("selected",) if chosen else ()), *(() if enabled else ("disabled",)))
    return UiNode("chip", str(to_date(day).day), date_key(day), None, flags, partial(keep, day=day))


def date_key(day: int) -> str:
    """Return the key of a day in the date dialog."""
    return f"{_ID}date/{to_date(day).isoformat()}"


def _buttons(take: Handler) -> tuple[UiNode, ...]:
    return button("Cancel", _ID + "cancel", pop), button("OK", _ID + "ok", take)


def _take_date(phone: Phone) -> Phone:
    part, day = str(phone.page.data["part"]), int(phone.page.data["day"])
    phone = pop(phone)
    return put_time(phone, part, day * DAY + int(phone.page.data[part]) % DAY)


def _look_at(phone: Phone) -> Phone:
    day = int(phone.page.data["day"])
    return swap(phone, Page(screen="calendar.day", data={"day": day}))


def put_time(phone: Phone, part: str, seconds: int) -> Phone:
    """Set the start or the end in the form; the end moves along with the start, and so does a weekly rule."""
    data = phone.page.data
    if part == "end":
        return keep(phone, end=seconds)
    before, rule = compute_day(int(data["start"])), data["rule"]
    if data["interval"] == WEEK and rule == compute_weekday_bit(before):
        rule = compute_weekday_bit(compute_day(seconds))
    return keep(phone, start=seconds, end=seconds + int(data["end"]) - int(data["start"]), rule=rule)


# ------------------------------------------------------------------------------------------------------------- times


def pick_time(phone: Phone, part: str) -> Phone:
    """Open the time dialog for the start or the end of the event below."""
    minutes = int(phone.page.data[part]) % DAY // 60
    return push(phone, Page(screen="calendar.time", data={"part": part, "minutes": minutes, "page": "hour"}))


def time_dialog(phone: Phone, page: Page) -> View:
    """Ask first for the hour, then for the minute."""
    # Minutes since midnight, in the page's data: both steps edit one number.
    minutes, page_name = int(page.data["minutes"]), str(page.data["page"])
    hour, minute = divmod(minutes, 60)
    body: list[Item] = [
        line(
            tab(f"{hour:02d}", _ID + "hours", page_name == "hour", partial(keep, page="hour")),
            tab(f"{minute:02d}", _ID + "minutes", page_name == "minute", partial(keep, page="minute")),
        )
    ]
    # All 24 hours fit as chips; minutes are offered in steps.
    if page_name == "hour":
        chips = [_time_chip("hour", one, one == hour, one * 60 + minute) for one in range(24)]
        body += grid(chips, 6)
    else:
        chips = [_time_chip("minute", one, one == minute, hour * 60 + one) for one in range(0, 60, EVERY)]
        # Single minutes by buttons: tasks ask for times that stand on no chip.
        fewer, more = hour * 60 + (minute - 1) % 60, hour * 60 + (minute + 1) % 60
        body += grid(chips, 6)
        body.append(
            line(
                button("- 1 min", _ID + "minute_less", partial(keep, minutes=fewer)),
                button("+ 1 min", _ID + "minute_more", partial(keep, minutes=more)),
            )
        )
    return View(title=format_time(60 * minutes), style="dialog", body=body, actions=_buttons(_take_time))


def _time_chip(part: str, number: int, chosen: bool, minutes: int) -> UiNode:
    flags = ("selected",) if chosen else ()
    return UiNode("chip", f"{number:02d}", f"{_ID}{part}/{number}", None, flags, _turn_to(minutes))


def _turn_to(minutes: int) -> Handler:
    """Take over the hour, or the minute; in either case the minutes are shown next."""
    return partial(keep, minutes=minutes, page="minute")


def _take_time(phone: Phone) -> Phone:
    part, minutes = str(phone.page.data["part"]), int(phone.page.data["minutes"])
    phone = pop(phone)
    return put_time(phone, part, compute_day(int(phone.page.data[part])) * DAY + 60 * minutes)


# ----------------------------------------------------------------------------------------------------------- choices


def repetition_menu(phone: Phone, page: Page) -> View:
    """Show how often an event repeats."""
    now = phone.stacks[PACKAGE][-2].data["interval"]
    body: list[Item] = [
        radio(name, f"{_ID}repetition/{interval}", interval == now, partial(_repeat, interval=interval))
        for interval, name in REPETITIONS.items()
    ]
    return View(title="Repetition", style="dialog", body=body)


def _repeat(phone: Phone, interval: int) -> Phone:
    phone = pop(phone)
    rule = {0: 0, DAY: 0, WEEK: compute_weekday_bit(compute_day(int(phone.page.data["start"])))}.get(interval, 1)
    return keep(phone, interval=interval, rule=rule)


def weekdays_dialog(phone: Phone, page: Page) -> View:
    """Show the days of the week on which an event repeats; the last one cannot be switched off."""
    rule = int(page.data["rule"])
    body: list[Item] = [
        switch(name, f"{_ID}repeat_on/{name}", bool(rule & 1 << place), partial(keep, rule=rule ^ 1 << place or rule))
        for place, name in enumerate(WEEKDAY_NAMES)
    ]
    return View(title="Repeat on", style="dialog", body=body, actions=_buttons(_take_weekdays))


def _take_weekdays(phone: Phone) -> Phone:
    return keep(pop(phone), rule=int(phone.page.data["rule"]))


def format_weekdays(rule: int) -> str:
    """Return a weekly rule in words."""
    return ", ".join(name for place, name in enumerate(WEEKDAY_NAMES) if rule & 1 << place)


def reminder_menu(phone: Phone, page: Page) -> View:
    """Show when the phone reminds of an event."""
    now = phone.stacks[PACKAGE][-2].data["reminder"]
    body: list[Item] = [
        radio(name, f"{_ID}reminder/{minutes}", minutes == now, partial(_set_reminder, minutes=minutes))
        for minutes, name in REMINDERS.items()
    ]
    return View(title="Reminder", style="dialog", body=body)


def _set_reminder(phone: Phone, minutes: int) -> Phone:
    return keep(pop(phone), reminder=minutes)


SCREENS = {
    "calendar.date": date_dialog,
    "calendar.goto": goto_dialog,
    "calendar.time": time_dialog,
    "calendar.repetition": repetition_menu,
    "calendar.weekdays": weekdays_dialog,
    "calendar.reminder": reminder_menu,
}
