"""Actions on a device need permission: apps, effects, and the question at the terminal."""

import logging
import os
from pathlib import Path

import pytest

from collab.envs.android import device_guard
from collab.envs.android.device_drive import Driver
from collab.envs.grammar import MOBILE
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME
from collab.types import Box, Element, Observation
from tests.envs.android.served_phone import on, on_device, play


def test_apps_that_were_not_allowed_are_not_touched():
    with on_device(allow_apps=["Settings"]) as (suite, handle):
        results = play(
            suite,
            [
                MOBILE.make("open_app", app_name="Contacts"),
                on("Contacts"),
                on("Settings"),
                on("Display"),
            ],
        )
        assert "not in allow_apps" in results[0].info["effect"]
        assert "not in allow_apps" in results[1].info["effect"]
        assert handle.phone.foreground == "com.android.settings"
        assert "com.google.android.contacts" not in handle.phone.stacks


@pytest.mark.variations
@pytest.mark.parametrize(
    ("said", "opened"),
    [
        ("Settings app", "com.android.settings"),
        ("Simple Calendar", "com.simplemobiletools.calendar.pro"),
        ("net.gsantner.markor", "net.gsantner.markor"),
        ("Notebook (work)", "net.gsantner.markor"),
        ("Clock app", None),
        ("My Settings", None),
    ],
)
def test_an_app_opens_by_a_name_that_begins_what_is_said_if_it_is_allowed(said, opened):
    with on_device(allow_apps=["Settings", "Simple Calendar Pro", "Notebook=net.gsantner.markor"]) as (suite, handle):
        home = handle.phone.foreground
        result = play(suite, [MOBILE.make("open_app", app_name=said)])[0]
        assert handle.phone.foreground == (opened or home)
        assert ("not in allow_apps" in result.info["effect"]) is (opened is None)


def test_pointer_and_keys_reach_the_device_and_are_judged_like_all_touches():
    with on_device(allow_apps=["Settings", "Contacts"]) as (suite, handle):
        results = play(
            suite,
            [
                MOBILE.make("open_app", app_name="Settings"),
                MOBILE.make("drag", x=500, y=1500, to_x=500, to_y=900),
                MOBILE.make("press_keys", keys="power"),
                MOBILE.make("ask_user", question="Which?"),
                MOBILE.make("open_recents"),
                MOBILE.make("press_keys", keys="home"),
                MOBILE.make("open_app", app_name="Contacts"),
            ],
        )
        told = [one.info["effect"] for one in results]
        assert results[1].observation.text != results[0].observation.text
        assert told[2].startswith("nothing changed: the device has no key power, it has back, home")
        assert told[3] == "nothing changed: nobody answers questions here"
        assert 'app "Settings"' in results[4].observation.text
        assert handle.phone.foreground == "com.google.android.contacts"


def test_a_strange_app_in_front_can_only_be_left():
    with on_device(allow_apps=["Settings"]) as (suite, handle):

        def intrude(observation):
            handle.put(run_on(handle.phone, "monkey -p com.google.android.contacts 1"))
            return None

        results = play(
            suite,
            [intrude, on("Create contact"), MOBILE.make("scroll", direction="down"), MOBILE.make("navigate_home")],
        )
        assert "not in allow_apps" in results[1].info["effect"]
        assert "not in allow_apps" in results[2].info["effect"]
        assert handle.phone.foreground.endswith("nexuslauncher")
        assert handle.phone.stacks["com.google.android.contacts"][-1].screen == "contacts.list"


def run_on(phone, command):
    from collab.envs.simphone.shell import run

    return run(phone, command).phone


def test_sending_needs_permission(caplog):
    task = SimPhoneSuite().instance("SimpleSmsSend", 3)
    python = SimPhone()
    python.reset(task)
    actions, start = python.oracle(), python.phone
    with on_device(start) as (suite, handle), caplog.at_level(logging.INFO):
        results = play(suite, actions[:-1])
        assert "needs allow_effects" in results[-1].info["effect"]
        assert BY_NAME["SimpleSmsSend"].score(start, handle.phone, task.params) == 0.0
        assert "refused: tap button" in caplog.text


@pytest.mark.parametrize(
    ("text", "refused"),
    [("Hello", False), ("Hello\n", True), pytest.param("Hello\nthere", True, marks=pytest.mark.slow)],
)
def test_a_line_break_is_an_enter_key_and_needs_permission_too(text, refused, caplog):
    task = SimPhoneSuite().instance("SimpleSmsSend", 3)
    python = SimPhone()
    python.reset(task)
    actions = python.oracle()
    write = on("Type a message…", "input_text", text=text)
    with on_device(python.phone) as (suite, handle), caplog.at_level(logging.INFO):
        result = play(suite, [*(one for one in actions[:-3]), write])[-1]
        assert ("needs allow_effects" in result.info["effect"]) is refused, result.info
        assert handle.phone.page.fields.get("message", "") == ("" if refused else text)


@pytest.mark.slow
def test_a_line_break_opens_nothing_from_the_home_screen():
    drawer = MOBILE.make("swipe", direction="up")
    for text, found in (("Clock\n", ""), ("Clock", "Clock")):
        with on_device() as (suite, handle):
            result = play(suite, [drawer, on("Search apps", "input_text", text=text)])[-1]
            assert handle.phone.foreground.endswith("nexuslauncher")
            assert handle.phone.page.fields.get("search", "") == found, result.info


@pytest.mark.parametrize("kind", ["swipe", pytest.param("scroll", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("direction", "asked"),
    [
        *(("left", True), ("up", False)),
        pytest.param("right", True, marks=pytest.mark.slow),
        pytest.param("down", False, marks=pytest.mark.slow),
    ],
)
def test_a_finger_sideways_over_a_row_needs_permission(kind, direction, asked):
    way = [MOBILE.make("open_app", app_name="Settings"), on("Display", kind, direction=direction)]
    with on_device() as (suite, _):
        said = play(suite, way)[-1].info["effect"]
    assert ("needs allow_effects" in said) is asked, said
    with on_device(allow_effects=True) as (suite, _):
        assert "allow_effects" not in play(suite, way)[-1].info["effect"]


def test_a_finger_sideways_elsewhere_is_free():
    row = Element(index=0, role="list item", label="Mail", key="a:id/row", box=Box(0, 1100, 1080, 1300))
    text = Element(index=0, role="text", label="Mail", key="a:id/text", box=Box(0, 1100, 1080, 1300))
    low = Element(index=0, role="list item", label="Mail", key="a:id/row", box=Box(0, 1900, 1080, 2100))
    sweep = MOBILE.make("swipe", direction="left")
    for element, asked in ((row, True), (text, False), (low, False)):
        screen = Observation(space="mobile", title="", text="", elements=(element,), width=1080, height=2400)
        verdict = device_guard.judge(sweep, screen, "a", {"A": "a"})
        assert (verdict.effect == 'swipe left on list item "Mail" in a') is asked


def test_what_is_done_before_the_first_step_is_logged_too(caplog):
    task = {"name": "one", "goal": "Do it.", "success": {"package": "x"}, "max_steps": 3}
    task |= {"start": "Settings"}
    with on_device(tasks=[task]) as (suite, _), caplog.at_level(logging.INFO, logger="collab.envs.android"):
        play(suite, [], "one")
    lines = [record.getMessage() for record in caplog.records if " start: " in record.getMessage()]
    assert lines == [
        "device[emulator-5554] start: stop com.android.settings",
        "device[emulator-5554] start: go to the home screen",
        "device[emulator-5554] start: open com.android.settings",
    ]


@pytest.mark.slow
def test_permissions_are_granted_only_when_allowed():
    way = [MOBILE.make("open_app", app_name="Camera"), on("While using the app")]
    with on_device() as (suite, handle):
        assert "needs allow_effects" in play(suite, way)[-1].info["effect"]
        assert "com.android.camera2" not in handle.phone.memory
    with on_device(allow_effects=True) as (suite, handle):
        play(suite, way)
        assert handle.phone.memory["com.android.camera2"]["camera"] is True
    with on_device() as (suite, handle):
        play(suite, [way[0], on("Don't allow")])
        assert handle.phone.foreground.endswith("nexuslauncher")


def test_a_user_at_the_terminal_can_allow_it_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "collab.envs.android.device.ask_for_confirmation", lambda question: asked.append(question) or True
    )
    with on_device() as (suite, handle):
        play(suite, [MOBILE.make("open_app", app_name="Camera"), on("While using the app")])
        assert handle.phone.memory["com.android.camera2"]["camera"] is True
    assert len(asked) == 1
    assert '"While using the app"' in asked[0]


@pytest.mark.parametrize(("typed", "allowed"), [(b"y\n", True), (b"\n", False), (b"no\n", False)])
def test_the_question_is_asked_at_the_terminal(monkeypatch, typed, allowed):
    here, there = os.openpty()
    monkeypatch.setattr(device_guard, "TERMINAL", Path(os.ttyname(there)))
    os.write(here, typed)
    try:
        assert device_guard.ask_for_confirmation("really?") is allowed
        shown = b""
        while b"[y/N]" not in shown:  # after what was typed, which the terminal echoes
            shown += os.read(here, 1000)
        assert b"really?: allow this once? [y/N]" in shown
    finally:
        os.close(here)
        os.close(there)


def test_without_a_terminal_the_answer_is_no():
    assert not device_guard.ask_for_confirmation("really?")


def test_every_action_is_logged_before_it_is_executed(caplog, monkeypatch):
    said = []

    def perform(driver, *args, **options):
        said.append([record.getMessage() for record in caplog.records][-1])
        carry_out(driver, *args, **options)

    carry_out = Driver.perform
    monkeypatch.setattr(Driver, "perform", perform)
    with on_device() as (suite, _), caplog.at_level(logging.INFO, logger="collab.envs.android.device"):
        play(suite, [MOBILE.make("open_app", app_name="Settings"), on("Display")])
        lines = [record.getMessage() for record in caplog.records if "step" in record.getMessage()]
        assert lines == [
            'device[emulator-5554] step 1: open the app "settings"',
            'device[emulator-5554] step 2: tap list item "Display"',
        ]
        assert said == lines
