"""Days and times as tasks name them: parse, reword and draw them."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from collab.envs.simphone.apps.calendar_pickers import WEEKDAY_NAMES
from collab.envs.simphone.content.calendar import DAY, compute_day, parse_day, to_date
from collab.envs.simphone.state import START_MS, Phone
from collab.envs.simphone.tasks.spec import Draw, Params, TaskSpec
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

TODAY = compute_day(START_MS // 1000)
"""The day on which every task begins, in days since 1970."""


@lru_cache(maxsize=1 << 8)
def parse_day_words(text: str) -> int:
    """Return the day that a date like "October 28 2023" names, or the words that AndroidWorld puts in its place."""
    if text in ("today", "tomorrow"):
        return TODAY + (text == "tomorrow")
    weekday = re.fullmatch(r"(?:this |the )?(\w+day)( after next)?", text)
    if weekday is not None:
        ahead = (WEEKDAY_NAMES.index(weekday[1]) - to_date(TODAY).weekday() - 1) % 7 + 1
        return TODAY + ahead + 7 * (weekday[2] is not None)
    full = text if text[-4:].isdecimal() else f"{text} {to_date(TODAY).year}"
    return parse_day(datetime.datetime.strptime(full, "%B %d %Y").date())


@lru_cache(maxsize=1 << 8)
def parse_time(text: str) -> int:
    """Return seconds since midnight of "16:15", "4:15pm" or "4pm"."""
    found = re.fullmatch(r"(\d{1,2})(?::(\d\d))?(am|pm)?", text)
    if found is None:
        raise ValueError(f"time: expected one like 16:15, 4:15pm or 4pm, got {text!r}")
    hour = int(found[1]) if found[3] is None else int(found[1]) % 12 + 12 * (found[3] == "pm")
    return 3600 * hour + 60 * int(found[2] or 0)


def start_of(params: Params) -> int:
    """Return the second, since 1970, that `date` (today without one) and `time` or `start_time` name."""
    day = parse_day_words(params["date"]) if "date" in params else TODAY
    return day * DAY + parse_time(params["time"] if "time" in params else params["start_time"])


def compute_day_span(params: Params) -> tuple[int, int]:
    """Return the day named by `date`."""
    first = parse_day_words(params["date"]) * DAY
    return first, first + DAY - 1


def compute_moment(params: Params) -> tuple[int, int]:
    """Return just the time of that day."""
    return start_of(params), start_of(params)


def make_dated_goal(*templates: str) -> Callable[[Params, random.Random], str]:
    """Return goals in which the date may be reworded."""

    def goal(params: Params, rng: random.Random) -> str:
        words = {**params, "date": _reword_date(rng, str(params["date"]))} if "date" in params else params
        return rng.choice(templates).format(**words)

    return goal


class DatedQuestion(Protocol):
    """Question that a task asks about a phone's data."""

    def prepare(self, phone: Phone, params: Params, rng: random.Random) -> Phone:
        """Return the phone with the data in it."""

    def score(self, start: Phone, end: Phone, params: Params) -> float:
        """Return 1 for the right answer, else 0."""

    def plan(self, frame: Frame, params: Params, start: Phone) -> Action:
        """Return the next action of the solution."""


def build_question_task(
    name: str, question: DatedQuestion, drawn: Draw, *goals: str, app: str, difficulty: str
) -> TaskSpec:
    """Build a task that asks about one app's data; its goals may reword the date."""
    return TaskSpec(
        name=name,
        apps=(app,),
        complexity=1,
        difficulty=difficulty,
        wave=2,
        goal=make_dated_goal(*goals),
        draw=drawn,
        prepare=question.prepare,
        score=question.score,
        plan=question.plan,
    )


def _reword_date(rng: random.Random, text: str) -> str:
    day = parse_day_words(text)
    date, ahead = to_date(day), day - TODAY
    options = [f"on {text}", f"on {date:%B} {date.day}"]
    options += {0: ["today"], 1: ["tomorrow"]}.get(ahead, [])
    return rng.choice([*options, f"this {date:%A}"] if 0 < ahead < 7 else options)


def draw_date(rng: random.Random, first: int, last: int) -> str:
    """Draw a date, not before `first` and not after `last` days from today."""
    date = to_date(TODAY + rng.randint(first, last))
    return f"{date:%B} {date.day} {date.year}"


def draw_time(rng: random.Random, first: int = 6, last: int = 22) -> str:
    """Draw a quarter of an hour within the given hours, in one of two ways to write it."""
    hour, minute = rng.randint(first, last), rng.choice((0, 15, 30, 45))
    if rng.random() < 0.5:
        return f"{hour}:{minute:02d}"
    return f"{(hour - 1) % 12 + 1}:{minute:02d}{'pm' if hour >= 12 else 'am'}"
