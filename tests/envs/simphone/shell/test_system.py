"""Settings, clock, apps, fingers and screen from the phone's shell."""

import io
import struct
from dataclasses import replace

import pytest
from PIL import Image

from collab.envs.simphone.content.messages import list_conversations
from collab.envs.simphone.content.people import list_people
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import console, run
from collab.envs.simphone.state import LAUNCHER
from collab.envs.simphone.ui.screen import look
from tests.envs.simphone.shell.commands import MESSAGES, after, out


def test_settings_are_read_written_and_listed():
    phone = after("settings put system screen_brightness 255; settings put global made_up 'a b'")
    assert out(
        "settings get system screen_brightness; settings get global made_up; settings get secure none", phone
    ) == ("255\na b\nnull\n")
    assert "made_up=a b\n" in out("settings list global", phone)
    assert after("settings delete global made_up", phone).settings.get("global/made_up") is None


@pytest.mark.parametrize("value", ["abc", "-5", "99999999999999999999", "'1; rm'", "''"])
def test_a_setting_that_no_app_could_read_is_refused(value):
    result = run(FACTORY, f"settings put system screen_brightness {value}")
    assert "Invalid value" in result.stderr
    assert result.phone.settings == FACTORY.settings


def test_radios_are_switched():
    assert after("svc wifi disable").settings["global/wifi_on"] == "0"
    assert after("svc bluetooth enable").settings["global/bluetooth_on"] == "1"
    assert run(FACTORY, "svc toaster enable").exit_code == 1


def test_the_clock_is_read_and_set():
    assert out("date") == "Sun Oct 15 15:34:00 UTC 2023\n"
    assert out("date +%s") == "1697384040\n"
    phone = after("date 1015153423.00")
    assert phone.now_ms == FACTORY.now_ms
    assert out("date '+%Y-%m-%d %H:%M:%S'", after("date 0102030424.05")) == "2024-01-02 03:04:05\n"
    assert run(FACTORY, "date 9999999999").exit_code == 1
    assert after("sleep 1.5").now_ms == FACTORY.now_ms + 1500


def test_the_screen_is_told_as_tools_read_it():
    assert out("wm size") == "Physical size: 1080x2400\n"
    assert "logicalFrame=[0, 0, 1080, 2400]" in out("dumpsys input | grep logicalFrame")
    assert "mCurrentRotation=ROTATION_0" in out("dumpsys window | grep mCurrentRotation")
    assert "mCallState=0" in out("dumpsys telephony.registry")
    assert out("whoami") == "root\n"
    assert out("getprop ro.build.version.sdk") == "33\n"
    assert run(FACTORY, "service call alarm 3 s16 UTC").exit_code == 0
    assert run(FACTORY, "restorecon -RD /data/data/x").exit_code == 0


# ---------------------------------------------------------------------------------------------------------- apps


def test_activities_start_by_component_and_intent():
    phone = after("am start -W -n com.android.settings/.Settings")
    assert phone.foreground == "com.android.settings"
    assert "visible=true topActivity=ComponentInfo{com.android.settings/com.android.settings.Settings}" in out(
        "am stack list | grep -E visible=true", phone
    )
    assert run(FACTORY, "am start -n com.android.settings/.Nope").exit_code == 1
    assert run(FACTORY, "am start -n org.nope/.Main").exit_code == 1
    assert after("am start -a android.intent.action.VIEW -d content://contacts/people/").foreground.endswith("contacts")
    assert run(FACTORY, "am start -a android.intent.action.VIEW -d https://example.org").exit_code == 1


def test_a_contact_is_added_the_way_androidworld_adds_one():
    command = (
        'am start -a android.intent.action.INSERT -t vnd.android.cursor.dir/contact -e name "Ada Lovelace" -e phone 555'
    )
    phone = after(command)
    save = next(one for one in look(phone).observation.elements if one.label == "Save")
    phone = after(f"input tap {save.box.center[0]} {save.box.center[1]}; input keyevent 4", phone)
    assert [(one.name, one.number) for one in list_people(phone)] == [("Ada Lovelace", "555")]


def test_a_message_is_written_by_intent():
    phone = after("am start -a android.intent.action.SENDTO -d sms:5551234 --es sms_body 'on my way'")
    assert look(phone).observation.title.endswith("5551234")
    assert phone.page.fields["message"] == "on my way"


def test_apps_are_stopped_and_cleared():
    phone = after("monkey -p com.google.android.contacts -c android.intent.category.LAUNCHER 1")
    assert after("am force-stop com.google.android.contacts", phone).foreground == LAUNCHER
    recents = out("dumpsys activity recents", phone)
    number = recents.split(" id=")[1].split()[0]
    assert "com.google.android.contacts" not in after(f"am stack remove {number}", phone).stacks
    granted = after("pm grant com.android.camera2 android.permission.CAMERA")
    assert granted.memory["com.android.camera2"]["camera"] is True
    cleared = run(granted, "pm clear com.android.camera2")
    assert cleared.stdout == "Success\n"
    assert "com.android.camera2" not in cleared.phone.memory
    assert run(FACTORY, "pm clear org.nope").stdout == "Failed\n"
    assert "package:com.google.android.contacts\n" in out("pm list packages")


def test_the_clipboard_is_reached_only_from_its_app():
    assert "result=0\n" in out("am broadcast -a clipper.get")
    phone = after("am start -n ca.zgrs.clipper/.Main && am broadcast -a clipper.set -e text 'a \"b\" c'")
    assert phone.clipboard == 'a "b" c'
    assert 'result=-1, data="a "b" c"\n' in out("am broadcast -a clipper.get", phone)


def test_fingers_and_keys_act_on_the_screen():
    phone = after("am start -n com.google.android.contacts/com.android.contacts.activities.PeopleActivity")
    phone = after("input tap 540 371 && input text hello%sworld && input keyevent 67", phone)
    assert phone.page.fields["search"] == "hello worl"
    phone = after("input keycombination 113 29 && input keyevent 67", phone)
    assert phone.page.fields["search"] == ""
    assert after("input keyevent HOME", phone).foreground == LAUNCHER
    assert run(phone, "input text ü").exit_code == 255
    assert run(phone, "input tap x y").exit_code == 255
    assert run(phone, "input dance").exit_code == 255


def test_a_long_press_is_a_swipe_that_stays():
    phone = MESSAGES
    phone = after("monkey -p com.simplemobiletools.smsmessenger 1; input swipe 540 1200 540 1200 50", phone)
    assert phone.foreground == "com.simplemobiletools.smsmessenger"


def test_a_slider_follows_the_finger():
    phone = after("am start -n com.android.settings/.Settings")
    for label in ("Display", "Brightness level"):
        box = next(one.box for one in look(phone).observation.elements if one.label == label)
        phone = after(f"input tap {box.center[0]} {box.center[1]}", phone)
    box = next(one.box for one in look(phone).observation.elements if one.role == "slider")
    y = box.center[1]
    assert (
        after(f"input swipe {box.left + 400} {y} {box.right - 1} {y}", phone).settings["system/screen_brightness"]
        == "255"
    )
    assert after(f"input swipe {box.left + 400} {y} {box.left} {y}", phone).settings["system/screen_brightness"] == "1"


def test_the_screen_is_dumped_to_a_file():
    phone = after("uiautomator dump /sdcard/window_dump.xml")
    assert out("cat /sdcard/window_dump.xml", phone).startswith("<?xml")
    assert run(FACTORY, "screencap -p").output_bytes.startswith(b"\x89PNG")


def test_a_raw_picture_has_the_size_before_its_pixels():
    raw = run(FACTORY, "screencap").output_bytes
    assert struct.unpack("<II", raw[:8]) == (1080, 2400)
    assert len(raw) == 16 + 4 * 1080 * 2400
    picture = Image.open(io.BytesIO(run(FACTORY, "screencap -p").output_bytes)).convert("RGBA")
    assert picture.tobytes() == raw[16:]


def test_the_console_brings_messages():
    phone = console(FACTORY, "sms send +15550001 Hello, how are you?").phone
    (one,) = list_conversations(phone)
    assert (one.address, one.latest["body"], one.unread) == ("+15550001", "Hello, how are you?", True)
    assert console(FACTORY, "fold proteins").exit_code == 1


def test_running_changes_nothing_of_the_phone_given():
    before = replace(FACTORY)
    run(FACTORY, "rm -r /sdcard/*; settings put global wifi_on 0; pm clear com.android.settings; input keyevent 3")
    assert before == FACTORY


def test_packages_without_a_screen_are_listed_and_not_the_users() -> None:
    listed = out("pm list packages").split()
    assert {"package:com.android.systemui", "package:com.android.providers.telephony"} <= set(listed)
    assert len(listed) == len(set(listed))
    assert "package:com.android.systemui\n" in out("pm list packages -s")
    assert "com.android.systemui" not in out("pm list packages -3")
    assert out("pm path com.android.systemui").startswith("package:/")
