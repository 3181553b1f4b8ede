"""What is pulled down from the top: notifications and quick settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps import settings
from collab.envs.simphone.apps.settings import BRIGHTNESS, WIFI
from collab.envs.simphone.apps.system import PACKAGE, TILES
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.distractions.presets import Distractions
from collab.envs.simphone.shell.input import drag, tap
from collab.envs.simphone.state import LAUNCHER, Notification, Page, Phone, dismiss, go_home, notify, start
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import find_foreground_package, look

ID = PACKAGE + ":id/"
MUM = Notification(
    key="sms/1",
    package="com.simplemobiletools.smsmessenger",
    title="Mum",
    text="Dinner at seven?",
    opens=Page(screen="messages.conversation", data={"address": "+15550001"}),
)
TIMER = Notification(key="timer", package="com.google.android.deskclock", title="Time's up")
SETTINGS = start(FACTORY, settings.PACKAGE, settings.APP.pages)


def do(phone: Phone, type: str, key: str | None = None, **fields: object) -> Phone:
    frame = look(phone)
    if key is not None:
        fields["index"] = frame.index(key)
        assert fields["index"] is not None, f"{key} is not on\n{frame.observation.text}"
    return act(frame, MOBILE.canonical(MOBILE.make(type, **fields), frame.observation))


def shown(phone: Phone) -> str | None:
    return phone.panel.screen if phone.panel else None


def shade(phone: Phone = FACTORY) -> Phone:
    return do(phone, "swipe", direction="down")


# ------------------------------------------------------------------------------------------------ opening and closing


@pytest.mark.parametrize("phone", [FACTORY, SETTINGS])
def test_two_swipes_from_the_top_open_quick_settings_over_any_app(phone: Phone) -> None:
    once = shade(phone)
    assert shown(once) == "system.shade"
    assert once.foreground == phone.foreground
    assert find_foreground_package(once) == PACKAGE
    assert look(once).observation.title == "Notification shade"
    twice = shade(once)
    assert shown(twice) == "system.quick_settings"
    assert shown(shade(twice)) == "system.quick_settings"


def test_a_finger_on_the_launcher_pulls_them_down_and_a_list_scrolls() -> None:
    assert shown(do(FACTORY, "scroll", direction="up")) == "system.shade"
    assert do(SETTINGS, "scroll", direction="up") == SETTINGS
    low = do(SETTINGS, "scroll", direction="down")
    assert do(low, "scroll", direction="up").page.scroll == 0
    assert shown(drag(FACTORY, (500, 1200), (500, 1900), 300)) == "system.shade"
    assert drag(low, (500, 1200), (500, 1900), 300).page.scroll == 0


def test_a_drag_from_the_status_bar_opens_them_as_adb_swipes_do() -> None:
    assert shown(drag(SETTINGS, (500, 0), (500, 1500), 300)) == "system.shade"
    assert shown(drag(SETTINGS, (500, 127), (510, 400), 300)) == "system.shade"
    assert shown(drag(SETTINGS, (500, 128), (510, 400), 300)) is None
    assert drag(SETTINGS, (100, 10), (900, 10), 300) == SETTINGS


def test_back_up_home_and_a_tap_on_nothing_close_them() -> None:
    open_, quick = shade(SETTINGS), shade(shade(SETTINGS))
    assert do(open_, "navigate_back") == SETTINGS
    assert do(open_, "swipe", direction="up") == SETTINGS
    assert do(open_, "scroll", direction="down") == SETTINGS
    assert tap(open_, 540, 2000) == SETTINGS
    assert do(open_, "navigate_home") == go_home(SETTINGS)
    assert do(quick, "navigate_back") == open_
    assert do(quick, "swipe", direction="up") == open_
    assert do(quick, "navigate_home") == go_home(SETTINGS)


def test_the_keyboard_goes_and_what_was_typed_stays() -> None:
    phone = do(do(FACTORY, "swipe", direction="up"), "click", LAUNCHER + ":id/search_container_all_apps")
    assert phone.keyboard
    open_ = shade(phone)
    assert not open_.keyboard
    assert do(open_, "navigate_back") == replace(phone, keyboard=False)


# ------------------------------------------------------------------------------------------------------ notifications


def test_notifications_come_newest_first_and_one_key_is_one_entry() -> None:
    phone = notify(notify(notify(FACTORY, MUM), TIMER), replace(MUM, text="Or eight?"))
    assert [one.key for one in phone.notifications] == ["sms/1", "timer"]
    text = look(shade(phone)).observation.text
    assert 'list item "Simple SMS Messenger: Mum"' in text
    assert "Or eight?" in text
    assert "Dinner" not in text
    assert dismiss(dismiss(phone, "timer"), "timer").notifications == (replace(MUM, text="Or eight?"),)


def test_a_tap_opens_what_a_notification_is_about_and_takes_it_away() -> None:
    phone = notify(notify(SETTINGS, TIMER), MUM)
    mum = do(shade(phone), "click", ID + "notification/sms/1")
    assert (mum.foreground, mum.panel) == (MUM.package, None)
    assert mum.page.data == {"address": "+15550001"}
    assert mum.notifications == (TIMER,)
    assert do(mum, "navigate_back").page.screen == "messages.list"
    timer = do(shade(mum), "click", ID + "notification/timer")
    assert timer.foreground == TIMER.package
    assert timer.notifications == ()
    assert timer.stacks[settings.PACKAGE] == SETTINGS.stacks[settings.PACKAGE]


def test_an_editor_below_the_shade_saves_before_another_app_opens() -> None:
    phone = SimPhone(distractions=Distractions(noise="none"))
    suite = SimPhoneSuite(noise="none")
    phone.reset(replace(suite.instance("MarkorCreateNote", 0), max_steps=50))
    markor = "net.gsantner.markor:id/"
    for type, key, fields in (
        ("open_app", None, {"app_name": "Markor"}),
        ("click", markor + "fab_add_new_item", {}),
        ("input_text", None, {"text": "plan"}),
        ("click", markor + "new_file_dialog__ok", {}),
        ("input_text", markor + "document__edit", {"text": "milk"}),
    ):
        if key is not None:
            fields = {**fields, "index": phone.frame.index(key)}
        phone.step(MOBILE.make(type, **fields))
    asked = do(shade(notify(phone.phone, TIMER)), "click", ID + "notification/timer")
    assert [entry.content for path, entry in asked.files.items() if path.endswith("/plan.md")] == ["milk\n"]


def test_a_notification_goes_by_a_sideways_swipe_and_all_by_clear_all() -> None:
    phone = shade(notify(notify(FACTORY, MUM), TIMER))
    for direction in ("left", "right"):
        assert do(phone, "swipe", ID + "notification/timer", direction=direction).notifications == (MUM,)
    box = look(phone).placed.boxes[look(phone).index(ID + "notification/timer") or 0]
    assert drag(phone, (200, box.top + 5), (900, box.top + 9), 200).notifications == (MUM,)
    cleared = do(phone, "click", ID + "dismiss_text")
    assert cleared == FACTORY
    assert "No notifications" in look(shade(cleared)).observation.text
    assert look(shade(cleared)).index(ID + "dismiss_text") is None


def test_more_notifications_than_fit_scroll_before_the_shade_closes() -> None:
    phone = FACTORY
    for number in range(20):
        phone = notify(phone, replace(TIMER, key=f"timer/{number}"))
    phone = shade(phone)
    assert look(phone).index(ID + "notification/timer/0") is None
    scrolls = 0
    while shown(phone):
        scrolls += 1
        last = phone
        phone = do(phone, "scroll", direction="down")
    assert scrolls > 1
    assert look(last).index(ID + "notification/timer/0") is not None
    back = do(last, "scroll", direction="up")
    assert shown(back) == "system.shade", "a finger downwards scrolls up before it opens quick settings"


# ----------------------------------------------------------------------------------------------------- quick settings


@pytest.mark.parametrize("tile", TILES[1:], ids=lambda tile: tile.label)
def test_a_tile_switches_the_setting_that_the_settings_app_shows(tile) -> None:
    phone = shade(shade())
    before = phone.settings[tile.setting]
    turned = do(phone, "click", f"{ID}tile/{tile.setting}")
    assert {before, turned.settings[tile.setting]} == {"0", "1"}
    assert shown(turned) == "system.quick_settings"
    assert do(turned, "click", f"{ID}tile/{tile.setting}") == phone
    if tile.page != "main":
        held = do(turned, "long_press", f"{ID}tile/{tile.setting}")
        assert held.foreground == settings.PACKAGE
        node = look(held).placed.nodes[look(held).index(f"{settings.PACKAGE}:id/{tile.setting}") or 0]
        assert ("checked" in node.flags) == (turned.settings[tile.setting] == "1")


def test_the_internet_tile_asks_in_a_dialog() -> None:
    asked = do(shade(shade(SETTINGS)), "click", f"{ID}tile/{WIFI}")
    assert look(asked).view.style == "dialog"
    off = do(asked, "click", f"{settings.PACKAGE}:id/{WIFI}")
    assert off.settings[WIFI] == "0"
    assert do(off, "click", ID + "done_button").panel is None
    assert tap(off, 540, 200).panel is None
    assert do(off, "navigate_back").page == SETTINGS.page


def test_the_brightness_slider_moves_to_both_ends() -> None:
    phone = shade(shade())
    box = look(phone).placed.boxes[look(phone).index(ID + "slider") or 0]
    y = (box.top + box.bottom) // 2
    for x, level in ((box.right - 1, "255"), (box.left, "1")):
        assert tap(phone, x, y).settings[BRIGHTNESS] == level
        assert drag(phone, (540, y), (x, y), 300).settings[BRIGHTNESS] == level


def test_the_history_tells_what_was_pulled_down_and_closed() -> None:
    phone = SimPhone()
    phone.reset(replace(SimPhoneSuite().instance("SystemWifiTurnOn", 5), max_steps=100))

    def effect(type: str, key: str | None = None, **fields: object) -> object:
        if key is not None:
            fields["index"] = phone.frame.index(key)
        return phone.step(MOBILE.make(type, **fields)).info["effect"]

    effect("open_app", app_name="Settings")
    assert effect("swipe", direction="down") == "opened Notification shade"
    assert effect("swipe", direction="down") == "opened Quick settings"
    assert effect("click", ID + "tile/global/airplane_mode_on") == "turned on Airplane mode"
    assert effect("navigate_back") == "opened Notification shade"
    assert effect("navigate_back") == "went back to Settings"
    effect("swipe", direction="down")
    assert effect("click", ID + "manage_text") == "opened Settings: Notifications"


# --------------------------------------------------------------------------------------------------------- solutions


@pytest.mark.parametrize("name", ["SystemWifiTurnOn", "OpenAppTaskEval", "ClockStopWatchRunning", "MarkorCreateNote"])
def test_solutions_find_their_way_from_under_the_shade(name: str) -> None:
    phone = SimPhone()
    phone.reset(replace(SimPhoneSuite().instance(name, 5), max_steps=100))
    for swipes in (1, 2):
        lost = phone.fork()
        for _ in range(swipes):
            lost.step(MOBILE.make("swipe", direction="down"))
        solution = lost.oracle()
        assert solution is not None
        results = [lost.step(action) for action in solution]
        assert results[-1].outcome is not None
        assert results[-1].outcome.success
