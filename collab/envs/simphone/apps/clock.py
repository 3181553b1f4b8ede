"""Clock: alarms, world clock, timers and a stopwatch, each on its tab."""

from __future__ import annotations

import datetime
from functools import partial

from collab.envs.simphone.app import App, Item, UiNode, View, button, grid, icon, line, switch, tab, text
from collab.envs.simphone.state import Page, Phone, keep, recall, remember

PACKAGE = "com.google.android.deskclock"
_ID = PACKAGE + ":id/"
_TABS = {"alarm": "Alarm", "clock": "Clock", "timer": "Timer", "stopwatch": "Stopwatch"}
_ALARMS = (("08:30", "Mon, Tue, Wed, Thu, Fri", False), ("09:00", "Sun, Sat", False))
_STOPPED = (None, 0, ())
"""A stopwatch: (running since, in ms of the device clock, or None; ms before that; laps in ms)."""


def main(phone: Phone, page: Page) -> View:
    """Show the tab that is chosen."""
    chosen = str(page.data["page"])
    tabs = (tab(name, f"{_ID}tab_{key}", key == chosen, partial(keep, page=key)) for key, name in _TABS.items())
    view = {"alarm": _alarm, "clock": _clock, "timer": _timer, "stopwatch": _stopwatch}[chosen](phone, page)
    view.title = _TABS[chosen]
    view.footer = line(*tabs)
    return view


def _alarm(phone: Phone, page: Page) -> View:
    alarms = recall(phone, PACKAGE, "alarms", _ALARMS)
    body: list[Item] = [
        switch(f"Alarm {time}", f"{_ID}alarm/{place}", on, partial(_flip_alarm, place=place), value=days)
        for place, (time, days, on) in enumerate(alarms)
    ]
    return View(title="", body=body)


def _clock(phone: Phone, page: Page) -> View:
    now = datetime.datetime.fromtimestamp(phone.now_ms / 1000, tz=datetime.UTC)
    body: list[Item] = [text(f"{now:%H:%M}", _ID + "digital_clock"), text(f"{now:%a, %b} {now.day}", _ID + "date")]
    return View(title="", body=body)


# ---------------------------------------------------------------------------------------------------------- timer


def format_timer(digits: str) -> str:
    """Format typed digits as hours, minutes and seconds: "1635" → "00h 16m 35s"."""
    padded = digits.rjust(6, "0")
    return f"{padded[:2]}h {padded[2:4]}m {padded[4:]}s"


def load_timers(phone: Phone) -> tuple[tuple[int, int | None, int], ...]:
    """Load timers: (length, end in ms of the device clock or None while paused, ms left while paused)."""
    found: tuple[tuple[int, int | None, int], ...] = recall(phone, PACKAGE, "timers", ())
    return found


def _timer(phone: Phone, page: Page) -> View:
    if load_timers(phone) and not page.data.get("adding"):
        return _running_timers(phone)
    digits = str(page.data.get("digits", ""))
    keys = [*"123456789", "00", "0"]
    nodes = [button(key, f"{_ID}timer_setup_digit_{key}", partial(_press, key=key)) for key in keys]
    nodes.append(UiNode("button", "Backspace", _ID + "timer_setup_delete", tap=partial(_press, key="")))
    body: list[Item] = [text(format_timer(digits), _ID + "timer_setup_time"), *grid(nodes, columns=3)]
    return View(title="", body=body, fab=icon("Start", _ID + "fab", _start_timer) if digits else None)


def _running_timers(phone: Phone) -> View:
    body: list[Item] = []
    for place, (_, ends, left) in enumerate(load_timers(phone)):
        # Running timers are stored by their end, paused ones by what is left: the clock needs no ticking.
        rest = max(0, ends - phone.now_ms) if ends is not None else left
        word = "Start" if ends is None else "Pause"
        body += [
            text(_format_clock(rest), f"{_ID}timer_time/{place}", value="Time's up" if rest == 0 else None),
            line(
                button(word, f"{_ID}play_pause/{place}", partial(_pause_timer, place=place)),
                button("Delete", f"{_ID}close/{place}", partial(_delete_timer, place=place)),
            ),
        ]
    return View(title="", body=body, fab=icon("Add timer", _ID + "fab", partial(keep, adding=True, digits="")))


def _press(phone: Phone, key: str) -> Phone:
    digits = str(phone.page.data.get("digits", ""))
    now = (digits + key).lstrip("0") if key else digits[:-1]
    return phone if len(now) > 6 or now == digits else keep(phone, digits=now)


def _start_timer(phone: Phone) -> Phone:
    digits = str(phone.page.data["digits"]).rjust(6, "0")
    length = 1000 * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:]))
    phone = remember(phone, PACKAGE, timers=(*load_timers(phone), (length, phone.now_ms + length, length)))
    return keep(phone, digits="", adding=False)


def _pause_timer(phone: Phone, place: int) -> Phone:
    length, ends, left = load_timers(phone)[place]
    changed = (length, phone.now_ms + left, left) if ends is None else (length, None, max(0, ends - phone.now_ms))
    return _put_timers(phone, place, (changed,))


def _delete_timer(phone: Phone, place: int) -> Phone:
    return _put_timers(phone, place, ())


def _put_timers(phone: Phone, place: int, changed: tuple[tuple[int, int | None, int], ...]) -> Phone:
    now = load_timers(phone)
    return remember(phone, PACKAGE, timers=(*now[:place], *changed, *now[place + 1 :]))


# ------------------------------------------------------------------------------------------------------ stopwatch


def is_stopwatch_running(phone: Phone) -> bool:
    """Return whether the stopwatch is running."""
    return recall(phone, PACKAGE, "stopwatch", _STOPPED)[0] is not None


def _stopwatch(phone: Phone, page: Page) -> View:
    since, before, laps = recall(phone, PACKAGE, "stopwatch", _STOPPED)
    # Elapsed time is computed when it is looked at, for the same reason.
    elapsed = before + (phone.now_ms - since if since is not None else 0)
    body: list[Item] = [text(_format_clock(elapsed, hundredths=True), _ID + "stopwatch_time")]
    body += [
        text(f"Lap {place + 1}: {_format_clock(lap, hundredths=True)}", f"{_ID}lap/{place}")
        for place, lap in enumerate(laps)
    ]
    if since is not None:
        buttons = [icon("Pause", _ID + "fab", _pause_stopwatch), icon("Lap", _ID + "right_button", _add_lap)]
    elif elapsed:
        buttons = [icon("Start", _ID + "fab", _run_stopwatch), icon("Reset", _ID + "left_button", _reset)]
    else:
        buttons = [icon("Start", _ID + "fab", _run_stopwatch)]
    return View(title="", body=[*body[:1], line(*buttons), *body[1:]])


def _run_stopwatch(phone: Phone) -> Phone:
    _, before, laps = recall(phone, PACKAGE, "stopwatch", _STOPPED)
    return remember(phone, PACKAGE, stopwatch=(phone.now_ms, before, laps))


def _pause_stopwatch(phone: Phone) -> Phone:
    since, before, laps = recall(phone, PACKAGE, "stopwatch", _STOPPED)
    # A pause in the moment of the start has run for a hundredth, so that it differs from a stopwatch never started.
    return remember(phone, PACKAGE, stopwatch=(None, before + max(10, phone.now_ms - since), laps))


def _add_lap(phone: Phone) -> Phone:
    since, before, laps = recall(phone, PACKAGE, "stopwatch", _STOPPED)
    return remember(phone, PACKAGE, stopwatch=(since, before, (*laps, before + phone.now_ms - since)))


def _reset(phone: Phone) -> Phone:
    return remember(phone, PACKAGE, stopwatch=_STOPPED)


def _flip_alarm(phone: Phone, place: int) -> Phone:
    alarms = recall(phone, PACKAGE, "alarms", _ALARMS)
    time, days, on = alarms[place]
    return remember(phone, PACKAGE, alarms=(*alarms[:place], (time, days, not on), *alarms[place + 1 :]))


def _format_clock(milliseconds: int, *, hundredths: bool = False) -> str:
    seconds = milliseconds // 1000
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    short = f"{seconds // 60:02d}:{seconds % 60:02d}"
    if hundredths:
        return f"{short if seconds < 3600 else clock}.{milliseconds // 10 % 100:02d}"
    return clock


APP = App(
    package=PACKAGE,
    names=("Clock",),
    activity="com.android.deskclock.DeskClock",
    pages=(Page(screen="clock.main", data={"page": "clock"}),),
    screens={"clock.main": main},
)
