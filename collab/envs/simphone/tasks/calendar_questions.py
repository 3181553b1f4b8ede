"""Simple Calendar Pro tasks that ask about events: judged by the answer alone.

Each question is about the events that start within a span of time, in which nothing else takes place; where a title or
a person is named, only about the one event with these words in its title.

What Simple Calendar Pro's question tasks are about: spans of time, the events in them, and how they are drawn.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from collab.envs.simphone.apps.calendar import entry_key
from collab.envs.simphone.content.calendar import (
    DAY,
    EVENTS,
    compute_day,
    compute_span,
    draw_event,
    format_time,
    put_events,
    to_date,
)
from collab.envs.simphone.content.pools import draw_other
from collab.envs.simphone.state import Phone, TableRow, rows
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.calendar import ID, leave, to_day, to_search, to_view
from collab.envs.simphone.tasks.dates import (
    TODAY,
    build_question_task,
    compute_day_span,
    compute_moment,
    draw_date,
    draw_time,
    parse_day_words,
    parse_time,
    start_of,
)
from collab.envs.simphone.tasks.spec import Params, TaskSpec, say, score_answers, split_answer
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

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


def _parse_length(text: str) -> int:
    """Return seconds in "45 min", "90 minutes" or "1.5 hours"."""
    return int(float(re.sub(r"[^\d.]", "", text)) * (3600 if "h" in text else 60))


def _build_event(start: int, title: str, duration: str = "30 m", location: str = "") -> dict[str, Any]:
    return {"start_ts": start, "end_ts": start + _parse_length(duration), "title": title, "location": location}


def draw_one_event(params: Params, rng: random.Random) -> list[TableRow]:
    """Draw the event that the parameters describe."""
    title = str(params["title"]).replace("{person}", str(params.get("person")))
    more = {name: str(params[name]) for name in ("duration", "location") if name in params}
    return [_build_event(start_of(params), title, **more)]


def draw_three_on_a_day(params: Params, rng: random.Random) -> list[TableRow]:
    """Draw the event of the parameters, and two at other hours of the same day."""
    (first,) = draw_one_event({**params, "duration": "1 h"}, rng)
    midnight = compute_day_span(params)[0]
    hours = rng.sample([hour for hour in range(6, 23) if abs(midnight + 3600 * hour - start_of(params)) >= 3600], 2)
    titles = rng.sample([title for title in _TITLES if title != first["title"]], 2)
    return [
        first,
        *(_build_event(midnight + 3600 * hour, title, "1 h") for hour, title in zip(hours, titles, strict=True)),
    ]


def draw_two_in_a_week(params: Params, rng: random.Random) -> list[TableRow]:
    """Draw the event of the parameters, and one on another day of the coming week."""
    (first,) = draw_one_event(params, rng)
    day = rng.choice([day for day in range(TODAY + 1, TODAY + 8) if day != parse_day_words(params["date"])])
    return [first, _build_event(day * DAY + 3600 * rng.randint(6, 22), draw_other(rng, _TITLES, str(first["title"])))]


def draw_meeting(params: Params, rng: random.Random) -> list[TableRow]:
    """Draw a meeting with the person of the parameters."""
    return [_build_event(start_of(params), f"Coffee with {params['person']}")]


# ----------------------------------------------------------------------------------------------------------- spans


def rest_of_day(params: Params) -> tuple[int, int]:
    """Return the span from that time to midnight."""
    return start_of(params), compute_day_span(params)[1]


def until_eight(params: Params) -> tuple[int, int]:
    """Return the span from that time to eight in the evening."""
    return start_of(params), compute_day_span(params)[0] + parse_time("8pm")


def until_next(params: Params) -> tuple[int, int]:
    """Return the span from now to the event; only the event when it is over, as AndroidWorld may draw."""
    now, start = TODAY * DAY + parse_time("15:30"), start_of(params)
    return min(now, start), start


def coming_week(params: Params) -> tuple[int, int]:
    """Return the span from today to the Sunday of next week."""
    return TODAY * DAY, (TODAY + 8) * DAY - 1


# --------------------------------------------------------------------------------------------------------- drawing


def draw(
    rng: random.Random, *, names: str, days: tuple[int, int] = (0, 14), hours: tuple[int, int] = (6, 22)
) -> dict[str, Any]:
    """Draw the named parameters; days are counted from today."""
    time = draw_time(rng, *hours)
    drawn = {
        **{"date": draw_date(rng, *days), "time": time, "start_time": time},
        **{"title": rng.choice(_TITLES), "duration": rng.choice(_DURATIONS)},
        **{"location": rng.choice(_PLACES), "person": rng.choice(_PEOPLE)},
    }
    return {name: drawn[name] for name in names.split()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuestion:
    """A question, and the screen that shows its answer."""

    within: Span
    """The first and the last second at which an event that is asked for may start."""
    put: Callable[[Params, random.Random], list[TableRow]]
    """These events, from the parameters."""
    find: Callable[[Frame, Params, Sequence[TableRow]], Action | None]
    """The next step towards a screen that shows them; None when they are in sight."""
    answer: Callable[[TableRow], str]
    """What to answer about one of them."""
    judge: Callable[[Phone, Sequence[str]], float] = score_answers
    named: str | None = None
    """Parameter whose words are in the titles; None when the span alone tells which events are meant."""

    def find_events(self, start: Phone, params: Params) -> list[TableRow]:
        """Return the events that are asked for, by time."""
        first, last = self.within(params)
        words = "" if self.named is None else str(params[self.named]).casefold()
        found = [
            row
            for row in rows(start, EVENTS)
            if first <= compute_span(row)[0] <= last and words in _read_title(row).casefold()
        ]
        return sorted(found, key=compute_span)

    def prepare(self, phone: Phone, params: Params, rng: random.Random) -> Phone:
        """Store only these events and others that are not meant."""
        first, last = self.within(params)
        events = self.put(params, rng)
        for _ in range(rng.randint(30, 75)):
            noise = draw_event(rng, rng.randint(TODAY - 14, TODAY + 30))
            begin, end = noise["start_ts"], noise["end_ts"]
            if self.named is not None or end < first or begin > last:
                events.append(noise)
        rng.shuffle(events)
        return put_events(phone, events)

    def score(self, start: Phone, end: Phone, params: Params) -> float:
        """Return 1 when the answer names what is asked for, else 0."""
        return self.judge(end, [self.answer(row) for row in self.find_events(start, params)])

    def plan(self, frame: Frame, params: Params, start: Phone) -> Action:
        """Look it up, say it, and say that it is done."""
        if self.score(start, frame.phone, params) == 1.0:
            return plans.finish()
        asked = self.find_events(start, params)
        if not asked:
            raise plans.PlanError("the calendar had no event that the question is about")
        return self.find(frame, params, asked) or say([self.answer(row) for row in asked])


# -------------------------------------------------------------------------------------------------------- planning


def _scroll_into_sight(frame: Frame, asked: Sequence[TableRow]) -> Action | None:
    """Scroll to the events on the list in front; None when all are in sight."""
    for row in asked:
        key = entry_key(int(row["id"] or 0), compute_day(compute_span(row)[0]))
        if frame.index(key) is None:
            return plans.aim_at(frame, key)
    return None


def _show_its_day(frame: Frame, params: Params, asked: Sequence[TableRow]) -> Action | None:
    return to_day(frame, compute_day(compute_span(asked[0])[0])) or _scroll_into_sight(frame, asked)


def _show_in_list(frame: Frame, params: Params, asked: Sequence[TableRow]) -> Action | None:
    return to_view(frame, "list") or _scroll_into_sight(frame, asked)


def _search_event(frame: Frame, params: Params, asked: Sequence[TableRow], *, name: str) -> Action | None:
    return to_search(frame, str(params[name])) or _scroll_into_sight(frame, asked)


def _open_form(frame: Frame, params: Params, asked: Sequence[TableRow]) -> Action | None:
    """Search for the event and open it."""
    id, key = int(asked[0]["id"] or 0), ID + "event_location"
    if frame.page.screen == "calendar.editor" and frame.page.data["id"] == id:
        if frame.page.fields["location"] != asked[0]["location"]:
            return leave(frame)
        return None if frame.index(key) is not None else plans.aim_at(frame, key)
    step = _search_event(frame, params, asked, name="title")
    return step or plans.aim_at(frame, entry_key(id, compute_day(compute_span(asked[0])[0])))


# ------------------------------------------------------------------------------------------------------- answering


def _read_title(row: TableRow) -> str:
    return str(row["title"])


def _format_time(row: TableRow) -> str:
    start = compute_span(row)[0]
    date = to_date(compute_day(start))
    return f"{date:%B} {date.day} {date.year} {format_time(start)}"


def _score_times(phone: Phone, expected: Sequence[str]) -> float:
    """Return 1 when the answers name the same points in time, in the one format that counts, else 0."""
    form = "%B %d %Y %H:%M"
    try:
        times = [datetime.datetime.strptime(answer, form) for answer in split_answer(phone)]
    except ValueError:
        return 0.0
    wanted = [datetime.datetime.strptime(one, form) for one in expected]
    return float(len(times) == len(wanted) and all(time in wanted for time in times))


# ----------------------------------------------------------------------------------------------------------- tasks

_LIST = "Answer with the titles, separated by commas."


_build_task = partial(build_question_task, app="simple calendar pro", difficulty="easy")

_titles = partial(EventQuestion, put=draw_one_event, find=_show_its_day, answer=_read_title)

TASKS: tuple[TaskSpec, ...] = (
    _build_task(
        "SimpleCalendarAnyEventsOnDate",
        _titles(within=compute_day_span, put=draw_three_on_a_day),
        partial(draw, names="date title time"),
        f"Is there anything in Simple Calendar Pro {{date}}? {_LIST}",
        f"Have I planned something {{date}}? Look into Simple Calendar Pro. {_LIST}",
        f"Tell me what, if anything, takes place {{date}} according to Simple Calendar Pro. {_LIST}",
    ),
    _build_task(
        "SimpleCalendarEventOnDateAtTime",
        _titles(within=compute_moment),
        partial(draw, names="date time duration title"),
        f"What does Simple Calendar Pro say I do {{date}} at {{time}}? {_LIST}",
        f"Something begins {{date}} at {{time}} in Simple Calendar Pro. What? {_LIST}",
        f"According to Simple Calendar Pro, what is planned {{date}} for {{time}}? {_LIST}",
        difficulty="medium",
    ),
    _build_task(
        "SimpleCalendarEventsInNextWeek",
        _titles(within=coming_week, put=draw_two_in_a_week, find=_show_in_list),
        partial(draw, names="date duration title person time", days=(1, 7)),
        f"What does next week, Monday to Sunday, bring in Simple Calendar Pro? {_LIST}",
        f"Tell me my events of the coming week (it starts on Monday) in Simple Calendar Pro. {_LIST}",
        f"Which events are in Simple Calendar Pro from tomorrow, Monday, to the Sunday after? {_LIST}",
    ),
    _build_task(
        "SimpleCalendarEventsInTimeRange",
        _titles(within=until_eight),
        partial(draw, names="start_time date title duration", hours=(6, 19)),
        f"What have I got between {{start_time}} and 8pm {{date}} in Simple Calendar Pro? {_LIST}",
        f"Which events begin {{date}} from {{start_time}} to 8pm in Simple Calendar Pro? {_LIST}",
        f"Am I busy {{date}} between {{start_time}} and 8pm? See Simple Calendar Pro. {_LIST}",
    ),
    _build_task(
        "SimpleCalendarEventsOnDate",
        _titles(within=compute_day_span),
        partial(draw, names="time date duration title"),
        f"Which events does Simple Calendar Pro list {{date}}? {_LIST}",
        f"Look up in Simple Calendar Pro what happens {{date}}. {_LIST}",
        f"What have I got in Simple Calendar Pro {{date}}? {_LIST}",
        difficulty="medium",
    ),
    _build_task(
        "SimpleCalendarFirstEventAfterStartTime",
        _titles(within=rest_of_day),
        partial(draw, names="date title time duration"),
        f"From {{time}} {{date}} on, which event comes first in Simple Calendar Pro? {_LIST}",
        f"What is the first thing at or after {{time}} {{date}} in Simple Calendar Pro? {_LIST}",
        f"See in Simple Calendar Pro what I do first {{date}}, counting from {{time}}. {_LIST}",
    ),
    _build_task(
        "SimpleCalendarLocationOfEvent",
        _titles(within=compute_day_span, find=_open_form, answer=lambda row: str(row["location"]), named="title"),
        partial(draw, names="title location date time"),
        "Where does {title} take place, according to Simple Calendar Pro? Answer with nothing but the place.",
        "Look up the place of the event {title} in Simple Calendar Pro and answer with it alone.",
        "Which location does Simple Calendar Pro give for {title}? Only the location, please.",
    ),
    _build_task(
        "SimpleCalendarNextEvent",
        _titles(within=until_next),
        partial(draw, names="time duration title", hours=(16, 22)),
        f"What comes up next in Simple Calendar Pro? {_LIST}",
        f"Look into Simple Calendar Pro: which event is next? {_LIST}",
        f"Which event in Simple Calendar Pro is the next to begin? {_LIST}",
    ),
    _build_task(
        "SimpleCalendarNextMeetingWithPerson",
        _titles(
            within=compute_day_span,
            put=draw_meeting,
            find=partial(_search_event, name="person"),
            answer=_format_time,
            judge=_score_times,
            named="person",
        ),
        partial(draw, names="person date time", days=(1, 14)),
        "When do I meet {person} next? Simple Calendar Pro knows. Answer like this: October 3 2023 18:05",
        "Find my next meeting with {person} in Simple Calendar Pro. Answer with month, day, year and the time on the "
        "24-hour clock, in the form November 21 2023 07:45",
        "What are day and time of my next meeting with {person} in Simple Calendar Pro? Write them as in "
        "May 9 2024 16:30",
        difficulty="medium",
    ),
)
