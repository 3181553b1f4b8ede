"""Simple Calendar Pro: repetition, the form and its dialogs, deleting parts of a series, and judging answers."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE
from collab.envs.simphone import state
from collab.envs.simphone.apps import calendar
from collab.envs.simphone.apps.calendar import cell_key, entry_key
from collab.envs.simphone.apps.calendar_pickers import date_key, list_month_days
from collab.envs.simphone.content import calendar as events
from collab.envs.simphone.content.calendar import (
    DAY,
    EVENTS,
    MONTH,
    WEEK,
    YEAR,
    add_event,
    compute_day,
    list_occurrences,
)
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.shell.tree import load_database
from collab.envs.simphone.state import START_MS, Phone, TableRow
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import Frame, look

SUITE = SimPhoneSuite()
ID = calendar.PACKAGE + ":id/"
TODAY = compute_day(START_MS // 1000)
DONE = MOBILE.make("status", goal_status="complete")


def tapped(phone: Phone, *keys: str) -> Phone:
    for key in keys:
        frame = look(phone)
        index = frame.index(key)
        assert index is not None, f"{key} is not on {frame.observation.text}"
        phone = act(frame, MOBILE.make("click", index=index))
    return phone


def typed(phone: Phone, key: str, text: str) -> Phone:
    frame = look(phone)
    return act(frame, MOBILE.make("input_text", index=frame.index(key), text=text))


def opened(phone: Phone = FACTORY) -> Phone:
    return act(look(phone), MOBILE.make("open_app", app_name="simple calendar pro"))


def stored(phone: Phone) -> tuple[TableRow, ...]:
    return state.rows(phone, EVENTS)


def repeating(interval: int, rule: int = 0, day: int = TODAY) -> Phone:
    times = {"start_ts": day * DAY + 36_000, "end_ts": day * DAY + 39_600}
    return add_event(FACTORY, title="Yoga", **times, repeat_interval=interval, repeat_rule=rule)


def starts(phone: Phone, last: int) -> list[int]:
    return [compute_day(start) - TODAY for start, _ in list_occurrences(phone, TODAY, TODAY + last)]


def test_events_repeat_as_their_interval_says() -> None:
    assert starts(repeating(0), 400) == [0]
    assert starts(repeating(DAY), 5) == [0, 1, 2, 3, 4, 5]
    assert starts(repeating(2 * DAY), 5) == [0, 2, 4]
    assert starts(repeating(WEEK, 1 << 6), 15) == [0, 7, 14]
    assert starts(repeating(WEEK, 1 << 6 | 1), 15) == [0, 1, 7, 8, 14, 15]
    assert starts(repeating(2 * WEEK, 1 << 6), 29) == [0, 14, 28]
    assert starts(repeating(MONTH, 1), 62) == [0, 31, 61]
    assert starts(repeating(YEAR, 1), 400) == [0, 366]


@given(st.dates(datetime.date(1971, 1, 1), datetime.date(2099, 12, 31)))
def test_days_months_and_weeks_agree_with_the_calendar(date: datetime.date) -> None:
    day = events.parse_day(date)
    assert events.to_date(day) == date
    assert events.compute_weekday_bit(day) == 1 << (date.isoweekday() - 1)
    weeks = list_month_days(events.compute_month(day))
    assert day in weeks
    assert len(weeks) % 7 == 0
    assert events.to_date(weeks[0]).isoweekday() == 7
    assert sum(events.compute_month(one) == events.compute_month(day) for one in weeks) >= 28


def test_an_event_past_midnight_is_on_both_days_and_one_that_ends_at_midnight_on_one() -> None:
    late = add_event(FACTORY, title="Late", start_ts=TODAY * DAY + 84_600, end_ts=(TODAY + 1) * DAY + 1800)
    assert list_occurrences(late, TODAY, TODAY)
    assert list_occurrences(late, TODAY + 1, TODAY + 1)
    sharp = add_event(FACTORY, title="Sharp", start_ts=TODAY * DAY + 84_600, end_ts=(TODAY + 1) * DAY)
    assert not list_occurrences(sharp, TODAY + 1, TODAY + 1)


def test_the_database_can_be_pulled_and_pushed() -> None:
    phone = repeating(WEEK, 64)
    data = state.dump(phone, EVENTS.path, [EVENTS])
    assert stored(load_database(FACTORY, EVENTS.path, data)) == stored(phone)


def test_a_new_event_starts_at_the_next_full_hour_and_its_end_moves_along() -> None:
    phone = tapped(opened(), cell_key(TODAY + 2), ID + "calendar_fab")
    assert (phone.page.data["start"], phone.page.data["end"]) == ((TODAY + 2) * DAY + 57_600,) * 2
    phone = tapped(phone, ID + "event_end_time", ID + "hour/17", ID + "minute/45", ID + "ok")
    phone = tapped(phone, ID + "event_start_date", date_key(TODAY + 9), ID + "ok")
    phone = tapped(phone, ID + "event_start_time", ID + "hour/8", ID + "minute/10", ID + "minute_more", ID + "ok")
    phone = typed(phone, ID + "event_title", "Sauna")
    (row,) = stored(tapped(phone, ID + "save"))
    assert row["start_ts"] == (TODAY + 9) * DAY + (8 * 60 + 11) * 60
    assert row["end_ts"] == (TODAY + 9) * DAY + (9 * 60 + 56) * 60
    assert (row["title"], row["location"], row["repeat_interval"]) == ("Sauna", "", 0)


def test_the_form_refuses_what_makes_no_sense_and_asks_before_it_forgets() -> None:
    phone = tapped(opened(), ID + "calendar_fab", ID + "save")
    assert phone.notice is not None
    assert phone.page.screen == "calendar.editor"
    phone = typed(phone, ID + "event_title", "Sauna")
    phone = tapped(phone, ID + "event_end_time", ID + "hour/3", ID + "ok", ID + "save")
    assert phone.notice is not None
    assert not stored(phone)
    asked = tapped(phone, ID + "close")
    assert asked.page.screen == "calendar.discard"
    assert tapped(asked, ID + "discard").page.screen == "calendar.main"
    assert tapped(opened(), ID + "calendar_fab", ID + "close").page.screen == "calendar.main"


def test_weekly_repetition_takes_the_weekday_of_the_start_and_others_on_demand() -> None:
    phone = typed(tapped(opened(), cell_key(TODAY + 1), ID + "calendar_fab"), ID + "event_title", "Choir")
    phone = tapped(act(look(phone), MOBILE.make("navigate_back")), ID + "event_repetition", f"{ID}repetition/{WEEK}")
    assert phone.page.data["rule"] == 1
    phone = tapped(phone, ID + "event_start_date", date_key(TODAY + 3), ID + "ok")
    assert phone.page.data["rule"] == 4, "moves along with the start"
    phone = tapped(phone, ID + "event_repetition_rule", ID + "repeat_on/Wednesday")
    assert phone.page.data["rule"] == 4, "one day always stays"
    phone = tapped(phone, ID + "repeat_on/Friday", ID + "ok", ID + "save")
    assert [(row["repeat_interval"], row["repeat_rule"]) for row in stored(phone)] == [(WEEK, 4 | 16)]


@pytest.mark.parametrize(("choice", "left"), [("one", [0, 14, 21]), ("later", [0]), ("all", [])])
def test_a_series_can_be_deleted_in_part(choice: str, left: list[int]) -> None:
    phone = tapped(opened(repeating(WEEK, 64)), cell_key(TODAY + 7), entry_key(1, TODAY + 7), ID + "delete")
    phone = tapped(phone, f"{ID}delete_event/{choice}", ID + "ok")
    assert phone.page.screen == "calendar.day"
    assert starts(phone, 21) == left


def test_search_list_and_date_lead_to_events() -> None:
    phone = opened(repeating(0, day=TODAY + 20))
    found = typed(tapped(phone, ID + "search"), ID + "top_toolbar_search", "yog")
    assert look(found).index(entry_key(1, TODAY + 20)) is not None
    listed = tapped(phone, ID + "change_view", ID + "view/list")
    assert look(listed).index(entry_key(1, TODAY + 20)) is not None
    gone_to = tapped(phone, ID + "go_to_date", ID + "next", date_key(TODAY + 20), ID + "ok")
    assert look(gone_to).index(entry_key(1, TODAY + 20)) is not None
    assert tapped(gone_to, ID + "top_left_arrow").page.data["day"] == TODAY + 19


def judged(name: str, seed: int, answer: str) -> float:
    phone = SimPhone()
    phone.reset(SUITE.instance(name, seed))
    phone.step(MOBILE.make("answer", text=answer))
    outcome = phone.step(DONE).outcome
    assert outcome is not None
    return outcome.score


def right_answer(name: str, seed: int) -> str:
    phone = SimPhone()
    phone.reset(SUITE.instance(name, seed))
    solution = phone.oracle()
    assert solution is not None
    return next(str(action["text"]) for action in solution if action.type == "answer")


@pytest.mark.parametrize("name", [spec.name for spec in SUITE.tasks() if "wave-2" in spec.tags and "Cal" in spec.name])
def test_answers_count_only_when_they_are_complete_and_right(name: str) -> None:
    for seed in range(2):
        answer = right_answer(name, seed)
        assert judged(name, seed, answer) == 1.0
        assert judged(name, seed, answer.upper() if ":" not in answer else answer) == 1.0
        assert judged(name, seed, f"{answer}, Underwater rugby") == 0.0
        assert judged(name, seed, "Underwater rugby") == 0.0
        assert judged(name, seed, ", ".join(answer.split(", ")[1:]) or "none") == 0.0


def test_times_are_compared_as_times() -> None:
    name, seed = "SimpleCalendarNextMeetingWithPerson", 0
    answer = right_answer(name, seed)
    month, day, year, time = answer.split()
    assert judged(name, seed, f"{month} {int(day):02d} {year} {time}") == 1.0
    assert judged(name, seed, f"{day} {month} {year} {time}") == 0.0
    assert judged(name, seed, f"{month} {day} {year}") == 0.0


@pytest.mark.parametrize("change", [{"start_ts": -3600}, {"end_ts": 900}, {"repeat_interval": DAY}, {"repeat_rule": 3}])
def test_one_wrong_field_of_an_added_event_is_too_much(change: dict[str, int]) -> None:
    phone = SimPhone()
    phone.reset(SUITE.instance("SimpleCalendarAddOneEvent", 2))
    for action in (phone.oracle() or ())[:-1]:
        phone.step(action)
    assert phone.score() == 1.0
    *others, added = stored(phone.phone)
    ((column, amount),) = change.items()
    wrong = {**added, column: int(added[column] or 0) + amount}
    episode = phone._episode
    assert episode is not None
    rows = {**phone.phone.rows, (EVENTS.path, EVENTS.name): (*others, wrong)}
    assert episode.score(replace(phone.phone, rows=rows)) == 0.0


def test_a_questions_span_holds_nothing_but_its_events() -> None:
    for seed in range(20):
        task = SUITE.instance("SimpleCalendarEventsInTimeRange", seed)
        phone = SimPhone()
        phone.reset(task)
        found = [row for row in stored(phone.phone) if row["title"] == task.params["title"]]
        assert len(found) == 1
        begin, end = int(found[0]["start_ts"] or 0), compute_day(int(found[0]["start_ts"] or 0)) * DAY + 72_000
        inside = [
            row for row in stored(phone.phone) if int(row["end_ts"] or 0) > begin and int(row["start_ts"] or 0) <= end
        ]
        assert inside == found


def test_a_stranger_event_far_in_the_future_breaks_nothing() -> None:
    phone = opened(add_event(FACTORY, title="Far", start_ts=10**18, end_ts=10**18 + 5, repeat_interval=DAY))
    found: Frame = look(typed(tapped(phone, ID + "search"), ID + "top_toolbar_search", "far"))
    assert "Far" in found.observation.text


@pytest.mark.parametrize(
    ("words", "date"),
    [
        ("today", "October 15 2023"),
        ("tomorrow", "October 16 2023"),
        ("Friday", "October 20 2023"),
        ("this Sunday", "October 22 2023"),
        ("the Tuesday after next", "October 24 2023"),
        ("October 28", "October 28 2023"),
    ],
)
def test_a_date_in_other_words_is_the_same_date(words: str, date: str) -> None:
    task = SUITE.instance("SimpleCalendarEventsOnDate", 0)
    phones = []
    for value in (words, date):
        phone = SimPhone()
        phone.reset(replace(task, params={**task.params, "date": value}))
        assert phone.oracle()
        phones.append(stored(phone.phone))
    assert phones[0] == phones[1]


@pytest.mark.parametrize(("time", "asked"), [("12:00am", "Over"), ("7pm", "Later, Soon")])
def test_the_next_event_is_the_one_named_even_where_its_time_is_over(time: str, asked: str) -> None:
    hours = {"Over": 0, "Between": 9, "Soon": 17, "Later": 19}
    at = {title: TODAY * DAY + hour * 3600 for title, hour in hours.items()}
    phone = events.put_events(
        FACTORY, [{"start_ts": begin, "end_ts": begin + 1800, "title": title} for title, begin in at.items()]
    )
    score = BY_NAME["SimpleCalendarNextEvent"].score
    params = {"time": time, "duration": "30 min", "title": "not looked at"}
    assert score(phone, replace(phone, answer=asked), params) == 1.0
    assert score(phone, replace(phone, answer="Between"), params) == 0.0
