"""Interruptions and slow screens: what they hide, how they go, and that they leave everything below as it was."""

import random
from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.simphone.apps.system import open_shade
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.distractions.interruptions import KINDS, STAGES, begin, find_way_out, is_banner
from collab.envs.simphone.distractions.presets import hold
from collab.envs.simphone.state import Manner, Page, Phone, focus_on, push, start
from collab.envs.simphone.touch import act, describe_effect
from collab.envs.simphone.ui.screen import look
from collab.types import Action

CONTACTS = "com.google.android.contacts"
ID = "com.android.systemui:id/"
BACK, HOME, WAIT = MOBILE.make("navigate_back"), MOBILE.make("navigate_home"), MOBILE.make("wait")


def form() -> Phone:
    """A half-filled form with the keyboard open."""
    phone = start(FACTORY, CONTACTS, FACTORY.apps.by_package[CONTACTS].pages)
    page = Page(screen="contacts.editor", data={"id": None, "label": "Mobile"}, fields={"first": "Ada"})
    return focus_on(push(phone, page), "first")


def tap(phone: Phone, key: str) -> Phone:
    frame = look(phone)
    index = frame.index(key)
    assert index is not None, (key, frame.observation.text)
    return act(frame, MOBILE.make("click", index=index))


def uncovered(phone: Phone) -> Phone:
    return replace(phone, cover=None, notifications=())


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_out_leads_back_to_the_same_phone(kind: str) -> None:
    covered = begin(form(), kind, 7)
    assert covered.cover is not None
    assert covered != form()
    assert look(covered).observation.text != look(form()).observation.text
    assert tap(covered, find_way_out(covered.cover)) == form()


@pytest.mark.parametrize("kind", KINDS)
def test_the_wrong_button_leads_astray_and_back(kind: str) -> None:
    on = STAGES[kind, "first"].on
    assert on is not None
    astray = tap(begin(form(), kind, 7), ID + on.id)
    assert astray.cover is not None
    assert astray.cover.stage == on.to
    assert uncovered(astray) == form()
    assert tap(astray, find_way_out(astray.cover)) == form()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_below_is_touched_through_a_cover(kind: str) -> None:
    rng = random.Random(kind)
    phone = begin(form(), kind, 7)
    for _ in range(200):
        if phone.cover is None or is_banner(phone.cover):
            phone = begin(form(), kind, 7)
            if phone.cover is None or is_banner(phone.cover):
                return  # a banner leaves the rest of the screen in use
        frame = look(phone)
        action = draw_action(MOBILE, frame.observation, rng, ending=False)
        if action.type in ("navigate_home", "open_app", "answer", "wait"):
            continue
        phone = act(frame, action)
        assert uncovered(phone) == form()


def test_typing_does_not_reach_the_field_below() -> None:
    phone = begin(form(), "call", 1)
    typed = act(look(phone), MOBILE.make("input_text", text="oops"))
    assert typed.page.fields["first"] == "Ada"
    assert act(look(phone), MOBILE.make("keyboard_enter")) == phone
    assert "The keyboard is open." not in look(phone).observation.text


def test_back_closes_dialogs_but_neither_calls_nor_alarms() -> None:
    assert {kind for kind in KINDS if act(look(begin(form(), kind, 3)), BACK).cover is None} == {
        "battery",
        "update",
        "rating",
    }


def test_a_call_shrinks_when_the_user_goes_home() -> None:
    phone = act(look(begin(form(), "call", 3)), HOME)
    assert phone.cover is not None
    assert phone.cover.small
    shown = look(phone)
    assert shown.index("com.google.android.apps.nexuslauncher:id/hotseat/" + CONTACTS) is not None
    assert tap(phone, ID + "decline").cover is None


def test_a_dialog_goes_when_the_user_goes_home() -> None:
    phone = act(look(begin(form(), "battery", 3)), HOME)
    assert phone == act(look(form()), HOME)


def test_a_snoozed_alarm_rings_again() -> None:
    phone = tap(begin(form(), "alarm", 3), ID + "alarm_snooze")
    stages = []
    for _ in range(3):
        phone = act(look(phone), MOBILE.make("swipe", direction="left"))
        assert phone.cover is not None
        stages.append(phone.cover.stage)
    assert stages == ["snoozed", "snoozed", "first"]


def test_a_banner_covers_the_top_and_goes_by_itself() -> None:
    plain, phone = look(form()), begin(form(), "banner", 3)
    frame = look(phone)
    banner = frame.placed.banner
    assert banner is not None
    assert plain.index("com.google.android.contacts:id/toolbar_button") is not None
    assert frame.index("com.google.android.contacts:id/toolbar_button") is None
    below = [box for node, box in zip(frame.placed.nodes, frame.placed.boxes, strict=True) if ID not in node.key]
    assert below
    assert all(box.top >= banner.bottom for box in below)
    for _ in range(STAGES["banner", "first"].patience):
        assert phone.cover is not None
        phone = act(look(phone), MOBILE.make("swipe", direction="left"))
    assert phone == replace(form(), notifications=phone.notifications)
    assert [one.package for one in phone.notifications] == ["android"]
    shade = look(open_shade(replace(phone, manner=Manner(language="german"))))
    assert any(one.label.startswith("Android-System: ") for one in shade.observation.elements)


def test_what_is_below_a_banner_works() -> None:
    phone = begin(form(), "banner", 3)
    index = look(phone).index("com.google.android.contacts:id/phone")
    typed = act(look(phone), MOBILE.make("input_text", index=index, text="123", clear_text=False))
    assert typed.page.fields["phone"] == "123"
    assert typed.cover is not None


def test_one_interruption_at_a_time_and_no_rating_without_an_app() -> None:
    phone = begin(form(), "call", 3)
    assert begin(phone, "battery", 3) is phone
    at_home = begin(FACTORY, "rating", 3)
    assert at_home.cover is not None
    assert at_home.cover.kind == "battery"


def test_the_history_says_what_came_up() -> None:
    before = look(form())
    words = {kind: describe_effect(before, look(begin(form(), kind, 3)), BACK) for kind in KINDS}
    assert words["call"] == "Incoming call came up"
    assert words["banner"] == "a notification came up"
    assert describe_effect(look(begin(form(), "call", 3)), before, BACK) == "went back to Contacts: Create contact"
    assert describe_effect(before, look(hold(form(), 2)), BACK) == "the screen is loading"


# ------------------------------------------------------------------------------------------------------- slow screens


@pytest.mark.parametrize(
    "action",
    [
        MOBILE.make("click", index=0),
        MOBILE.make("click", x=500, y=500),
        MOBILE.make("input_text", text="lost"),
        MOBILE.make("open_app", app_name="Clock"),
        MOBILE.make("unknown"),
        HOME,
        BACK,
    ],
    ids=lambda action: action.type,
)
def test_touches_are_lost_while_the_screen_loads(action: Action) -> None:
    phone = hold(form(), 2)
    frame = look(phone)
    assert [(one.role, one.label) for one in frame.observation.elements] == [("progress", "Loading…")]
    assert act(frame, action) == hold(form(), 1)
    assert act(look(hold(form(), 1)), action) == form()


def test_waiting_lets_time_pass_while_the_screen_loads() -> None:
    phone = act(look(hold(form(), 1)), WAIT)
    assert phone == replace(form(), now_ms=form().now_ms + 1000)


def test_an_answer_is_heard_while_the_screen_loads() -> None:
    assert act(look(hold(form(), 2)), MOBILE.make("answer", text="42")).answer == "42"
