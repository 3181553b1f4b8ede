"""Shade, quick settings, overview and notifications from the command line and through uiautomator2's methods."""

from __future__ import annotations

import asyncio

import pytest

from collab.envs.simphone.adb.automator import PhoneHandle, call
from collab.envs.simphone.apps import messages, settings
from collab.envs.simphone.content.messages import list_conversations
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import console, run
from collab.envs.simphone.state import LAUNCHER, Phone, start
from collab.envs.simphone.ui.screen import look

SETTINGS = start(FACTORY, settings.PACKAGE, settings.APP.pages)


def after(command: str, phone: Phone = SETTINGS) -> Phone:
    result = run(phone, command)
    assert result.exit_code == 0, result.stderr
    return result.phone


def shown(phone: Phone) -> str | None:
    return phone.panel.screen if phone.panel else None


@pytest.mark.parametrize(
    ("command", "panel"),
    [
        ("cmd statusbar expand-notifications", "system.shade"),
        ("cmd statusbar expand-settings", "system.quick_settings"),
        ("cmd statusbar expand-notifications; cmd statusbar collapse", None),
        ("service call statusbar 1", "system.shade"),
        ("service call statusbar 1; service call statusbar 2", None),
        ("input keyevent 83", "system.shade"),
        ("input keyevent KEYCODE_NOTIFICATION; input keyevent BACK", None),
        ("input swipe 500 0 500 1500", "system.shade"),
        ("input swipe 500 0 500 1500; input swipe 500 0 500 1500", "system.quick_settings"),
        ("input swipe 540 30 540 720 10", "system.shade"),
        ("cmd statusbar expand-settings; am start -n com.android.settings/.Settings", None),
        ("cmd statusbar expand-settings; input keyevent 3", None),
    ],
)
def test_the_status_bar_obeys(command: str, panel: str | None) -> None:
    assert shown(after(command)) == panel


def test_the_window_in_focus_is_the_shade_and_the_activity_stays_the_apps() -> None:
    phone = after("cmd statusbar expand-notifications")
    assert "mCurrentFocus=Window{5c0ffee u0 NotificationShade}" in run(phone, "dumpsys window").stdout
    assert "com.android.settings/com.android.settings.Settings" in run(phone, "dumpsys activity activities").stdout
    assert "visible=true topActivity=ComponentInfo{com.android.settings" in run(phone, "am stack list").stdout


def test_the_overview_is_the_launchers() -> None:
    phone = after("input keyevent 187")
    assert phone.foreground == LAUNCHER
    assert look(phone).observation.title == "Home: Recent apps"
    assert shown(after("cmd statusbar expand-notifications; input keyevent APP_SWITCH")) is None


def test_notifications_are_posted_listed_and_dumped() -> None:
    phone = after("cmd notification post -t Parcel door 'It is at the door'")
    assert phone.notifications[0].title == "Parcel"
    assert run(phone, "cmd notification list").stdout == "0|com.android.shell|0|shell/door|10000\n"
    assert "android.text=String (It is at the door)" in run(phone, "dumpsys notification --noredact").stdout
    assert run(phone, "cmd notification post door").exit_code == 255
    assert 'list item "Android System: Parcel"' in look(after("input keyevent 83", phone)).observation.text


def test_a_message_that_arrives_is_notified_until_it_is_read() -> None:
    phone = console(SETTINGS, "sms send +15550001 Hello there").phone
    phone = console(phone, "sms send +15550001 Are you in?").phone
    (told,) = phone.notifications
    assert (told.package, told.title, told.text) == (messages.PACKAGE, "+15550001", "Are you in?")
    frame = look(after("input keyevent 83", phone))
    box = frame.placed.boxes[frame.index("com.android.systemui:id/notification/sms/+15550001") or 0]
    seen = after(f"input keyevent 83; input tap {box.left + 9} {box.top + 9}", phone)
    assert seen.page.screen == "messages.conversation"
    assert seen.notifications == ()
    more = console(seen, "sms send +15550001 Good").phone
    assert more.notifications == (), "its conversation is in sight"
    assert list_conversations(more)[0].unread
    assert not list_conversations(after("input keyevent 4", more))[0].unread
    elsewhere = messages.open_conversation(phone, "+15550001")
    assert elsewhere.notifications == ()


def test_uiautomators_methods_open_them() -> None:
    handle = PhoneHandle()
    for method, panel in (("openNotification", "system.shade"), ("openQuickSettings", "system.quick_settings")):
        assert asyncio.run(call(handle, method, [])) is True
        assert shown(handle.phone) == panel
    assert asyncio.run(call(handle, "deviceInfo", []))["currentPackageName"] == "com.android.systemui"
    assert asyncio.run(call(handle, "pressKey", ["recent"])) is True
    assert handle.phone.page.screen == "system.recents"
