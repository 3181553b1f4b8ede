"""Playing a solution: how it ends, and where it stands still."""

import json

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.conformance.fidelity import (
    MAX_ACTIONS,
    ActionExecutor,
    JudgedInstance,
    JudgeRefusal,
    Stuck,
    as_json,
    build_androidworld_executor,
    build_own_executor,
    play,
    strip_non_ascii,
)
from collab.envs.simphone.content.people import list_people
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import run
from collab.envs.simphone.tasks import BY_NAME
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import look

WIFI_OFF = JudgedInstance(spec=BY_NAME["SystemWifiTurnOff"], params={"on_or_off": "off"}, start=FACTORY)


class Asked:
    """A judge that executes actions on the phone as our engine would, and keeps what it was asked."""

    def __init__(self, handle):
        self.handle, self.requests = handle, []

    def ask(self, do, **values):
        self.requests.append((do, values))
        frame = look(self.handle.phone)
        action = MOBILE.parse(json.dumps(values["action"]))
        self.handle.put(act(frame, MOBILE.canonical(action, frame.observation)))
        return {"ok": True}


def test_both_hands_reach_the_same_phone():
    ours, theirs = PhoneHandle(), PhoneHandle()
    steps, phone = play(WIFI_OFF, ours, build_own_executor(ours))
    judge = Asked(theirs)
    assert play(WIFI_OFF, theirs, build_androidworld_executor(theirs, judge)) == (steps, phone)
    assert phone.settings["global/wifi_on"] == "0"
    assert [do for do, _ in judge.requests] == ["act"] * (steps - 1)
    assert WIFI_OFF.score(phone) == 1.0 > WIFI_OFF.score(FACTORY)


def test_an_element_becomes_its_middle():
    frame = look(FACTORY)
    box = frame.observation.elements[2].box
    told = as_json(MOBILE.make("click", index=2), frame)
    assert told == {
        "action_type": "click",
        "x": (box.left + box.right) // 2,
        "y": (box.top + box.bottom) // 2,
    }
    assert as_json(MOBILE.make("scroll", direction="down"), frame)["direction"] == "down"
    assert as_json(MOBILE.make("open_app", app_name="Clock"), frame)["app_name"] == "Clock"


def test_a_slider_is_tapped_at_its_end():
    start = run(FACTORY, "am start -n com.android.settings/.Settings").phone
    level = JudgedInstance(spec=BY_NAME["SystemBrightnessMax"], params={"max_or_min": "max"}, start=start)
    handle = PhoneHandle()
    judge = Asked(handle)
    _, phone = play(level, handle, build_androidworld_executor(handle, judge))
    assert phone.settings["system/screen_brightness"] == "255"
    assert judge.requests[-1][1]["action"]["action_type"] == "click"


def test_texts_are_planned_as_they_come_out():
    contact = {"name": "Chloé Ñuñez", "number": "+15550001"}
    instance = JudgedInstance(spec=BY_NAME["ContactsAddContact"], params=contact, start=FACTORY)
    handle = PhoneHandle()
    executor = build_own_executor(handle)
    _, phone = play(instance, handle, ActionExecutor(execute=executor.execute, typed=strip_non_ascii))
    assert [(one.name, one.number) for one in list_people(phone)] == [("Chloe Nunez", "+15550001")]
    assert strip_non_ascii("Sauté 日 ½") == "Saute  12"


def test_an_action_without_effect_is_named():
    handle = PhoneHandle()
    with pytest.raises(Stuck, match=r"step 1 changes nothing: open"):
        play(WIFI_OFF, handle, ActionExecutor(execute=lambda action, frame: None))


def test_a_refused_action_is_told():
    handle = PhoneHandle()

    def refuse(action, frame):
        raise JudgeRefusal("ValueError: no such app")

    with pytest.raises(Stuck, match="step 1: ValueError: no such app"):
        play(WIFI_OFF, handle, ActionExecutor(execute=refuse))


def test_a_solution_that_goes_round_in_circles_ends():
    handle = PhoneHandle()

    def elsewhere(action, frame):
        name = "Clock" if frame.phone.foreground != "com.google.android.deskclock" else "Contacts"
        handle.put(act(frame, MOBILE.canonical(MOBILE.make("open_app", app_name=name), frame.observation)))

    with pytest.raises(Stuck, match=f"after {MAX_ACTIONS} actions"):
        play(WIFI_OFF, handle, ActionExecutor(execute=elsewhere))
