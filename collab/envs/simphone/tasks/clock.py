"""Clock tasks: judged by what the clock's screen shows, as AndroidWorld does."""

from __future__ import annotations

import random

from collab.envs.simphone.apps.clock import PACKAGE, format_timer, is_stopwatch_running, load_timers
from collab.envs.simphone.state import Phone
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.spec import Params, TaskSpec, as_it_is, draw_nothing, make_phrasings
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"


def _to_tab(frame: Frame, name: str) -> Action | None:
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Clock")
    return None if frame.page.data["page"] == name else plans.aim_at(frame, f"{_ID}tab_{name}")


def _is_on_tab(phone: Phone, name: str) -> bool:
    return phone.foreground == PACKAGE and phone.page.data["page"] == name


def _format_digits(params: Params) -> str:
    return f"{int(params['hours']):02d}{int(params['minutes']):02d}{int(params['seconds']):02d}".lstrip("0")


def _plan_timer(frame: Frame, params: Params, start: Phone) -> Action:
    step = _to_tab(frame, "timer")
    if step is not None:
        return step
    if load_timers(frame.phone) and not frame.page.data.get("adding"):
        return plans.aim_at(frame, _ID + "fab")
    typed, wanted = str(frame.page.data.get("digits", "")), _format_digits(params)
    if typed == wanted:
        return plans.finish()
    if not wanted.startswith(typed):
        return plans.aim_at(frame, _ID + "timer_setup_delete")
    rest = wanted[len(typed) :]
    return plans.aim_at(frame, f"{_ID}timer_setup_digit_{'00' if rest.startswith('00') and typed else rest[0]}")


def _score_timer(start: Phone, end: Phone, params: Params) -> float:
    if not _is_on_tab(end, "timer") or (load_timers(end) and not end.page.data.get("adding")):
        return 0.0
    return float(format_timer(str(end.page.data.get("digits", ""))) == format_timer(_format_digits(params)))


def _draw_timer(rng: random.Random) -> dict[str, int]:
    return {"hours": rng.randint(0, 23), "minutes": rng.randint(0, 59), "seconds": rng.randint(1, 59)}


def _plan_stopwatch(frame: Frame, params: Params, start: Phone, *, run: bool) -> Action:
    step = _to_tab(frame, "stopwatch")
    if step is not None:
        return step
    return plans.finish() if is_stopwatch_running(frame.phone) == run else plans.aim_at(frame, _ID + "fab")


TASKS: tuple[TaskSpec, ...] = (
    TaskSpec(
        name="ClockTimerEntry",
        apps=("clock",),
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
            "Prepare a timer of {hours} h, {minutes} min and {seconds} s in the clock app, but leave it unstarted.",
            "Enter {hours} hours {minutes} minutes {seconds} seconds as a new timer. It must not run yet.",
            "Type in a timer for {hours} hours, {minutes} minutes, {seconds} seconds without pressing start.",
        ),
        draw=_draw_timer,
        prepare=as_it_is,
        score=_score_timer,
        plan=_plan_timer,
    ),
    TaskSpec(
        name="ClockStopWatchPausedVerify",
        apps=("clock",),
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
            "See to it that the stopwatch is paused.",
            "The stopwatch should not be running: show it paused.",
            "Make sure the stopwatch stands still.",
        ),
        draw=draw_nothing,
        prepare=as_it_is,
        score=lambda start, end, params: float(_is_on_tab(end, "stopwatch") and not is_stopwatch_running(end)),
        plan=lambda frame, params, start: _plan_stopwatch(frame, params, start, run=False),
        verify=True,
    ),
    TaskSpec(
        name="ClockStopWatchRunning",
        apps=("clock",),
        complexity=1,
        difficulty="easy",
        goal=make_phrasings("Start the stopwatch.", "Let the stopwatch run.", "Set the stopwatch going."),
        draw=draw_nothing,
        prepare=as_it_is,
        score=lambda start, end, params: float(_is_on_tab(end, "stopwatch") and is_stopwatch_running(end)),
        plan=lambda frame, params, start: _plan_stopwatch(frame, params, start, run=True),
    ),
)
