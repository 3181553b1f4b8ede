"""The real uiautomator2 client drives SimPhone."""

import xml.etree.ElementTree as ElementTree

import adbutils
import pytest
import uiautomator2

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.content.people import list_people

CONTACTS = "com.google.android.contacts"
SETTINGS = "com.android.settings"


@pytest.fixture(scope="module")
def both():
    handle = PhoneHandle()
    with serve_phones({"emulator-5554": handle}) as port:
        device = adbutils.AdbClient(host="127.0.0.1", port=port).device("emulator-5554")
        yield uiautomator2.connect(device), handle


@pytest.fixture
def device(both):
    both[0].press("home")
    return both[0]


@pytest.fixture
def handle(both):
    return both[1]


def test_it_says_what_it_is(device):
    assert device.info["currentPackageName"] == "com.google.android.apps.nexuslauncher"
    assert device.window_size() == (1080, 2400)
    assert device.device_info["sdk"] == 33
    assert device.orientation == "natural"


def test_apps_start_and_stop(device, handle):
    device.app_start(SETTINGS, stop=True)
    assert device.app_current()["package"] == SETTINGS
    assert device.app_wait(SETTINGS, front=True) > 0
    assert SETTINGS in device.app_list_running()
    device.app_stop(SETTINGS)
    assert SETTINGS not in handle.phone.stacks


def test_selectors_and_xpath_find_what_is_on_the_screen(device, handle):
    device.app_start(SETTINGS, stop=True)
    device(text="Network & internet").click()
    device(textStartsWith="Inter", className="android.widget.TextView").click()
    switch = device(className="android.widget.Switch")
    assert switch.info["checked"]
    device.xpath('//*[@text="Wi-Fi"]').click()
    assert handle.phone.settings["global/wifi_on"] == "0"
    assert not switch.info["checked"]
    row = device(className="android.widget.LinearLayout").child(text="Wi-Fi")
    assert row.exists
    assert not device(text="No such thing").exists
    with pytest.raises(uiautomator2.exceptions.UiObjectNotFoundError):
        device(text="No such thing").get_text(timeout=0.1)


def test_lists_scroll_to_what_is_below(device):
    device.app_start(SETTINGS, stop=True)
    assert not device(text="About phone").exists
    device(scrollable=True).scroll.to(text="About phone")
    assert device(text="About phone").exists
    device(scrollable=True).scroll.toBeginning()
    assert not device(text="About phone").exists


def test_typing_fills_a_form(device, handle):
    device.app_start(CONTACTS, stop=True)
    device(description="Create contact").click()
    device(text="First name").click()
    device.send_keys("Zoë 🎉")
    assert device(focused=True).get_text() == "Zoë 🎉"
    device(text="Last name").set_text("Ünal")
    device(text="Phone").set_text("+49 170 1234")
    device.clear_text()
    assert device(text="First name").exists
    device(text="First name").set_text("Ada")
    device(description="Save").click()
    assert [(one.name, one.number) for one in list_people(handle.phone)] == [("Ada Ünal", "+49 170 1234")]


def test_long_texts_and_other_scripts_arrive_whole(device):
    device.app_start(CONTACTS, stop=True)
    device(description="Create contact").click()
    for text in ("x" * 100_000, "שלום עולם", "👩‍👩‍👧‍👦 family", "a\tb", "<&>\"'"):
        device(className="android.widget.EditText").set_text(text)
        assert device(className="android.widget.EditText").get_text() == text
        nodes = ElementTree.fromstring(device.dump_hierarchy().encode()).iter("node")
        assert next(node.get("text") for node in nodes if node.get("class") == "android.widget.EditText") == text


def test_keys_clipboard_toast_and_shell(device, handle):
    device.clipboard = "hello"
    assert device.clipboard == "hello"
    device.toast.show("Hi", 1)
    assert device.last_toast == "Hi"
    assert device.shell("nosuch").exit_code == 127
    assert device.shell(["echo", "a b;c"]).output == "a b;c\n"
    device.app_start(SETTINGS, stop=True)
    device.press("back")
    assert device.app_current()["package"].endswith("nexuslauncher")


def test_notifications_quick_settings_and_recents_open(device, handle):
    device.app_start(SETTINGS, stop=True)
    device.open_notification()
    assert device(text="No notifications").exists
    device.swipe(540, 10, 540, 1400)
    device(text="Airplane mode").click()
    assert handle.phone.settings["global/airplane_mode_on"] == "1"
    device.press("home")
    device.open_quick_settings()
    assert device.info["currentPackageName"] == "com.android.systemui"
    device.press("recent")
    device(text="Settings").click()
    assert device.app_current()["package"] == SETTINGS


def test_pictures_are_taken(device):
    assert device.screenshot().size == (1080, 2400)


def test_files_are_pushed_and_pulled(device, tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(256)) * 300)
    device.push(str(tmp_path / "a"), "/sdcard/Download/a")
    device.pull("/sdcard/Download/a", str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


def test_gestures_of_two_fingers_are_answered(device, handle):
    device.app_start(SETTINGS, stop=True)
    view, before = device(scrollable=True), handle.phone
    assert view.pinch_in(percent=80, steps=5)
    assert view.pinch_out()
    assert device().gesture((300, 900), (700, 900), (100, 900), (900, 900), steps=5)
    assert device().gesture((300, 900), (700, 900), (700, 900), (300, 900))
    assert handle.phone == before  # no app of this phone zooms
    assert device().gesture((0.3, 0.8), (0.7, 0.8), (0.3, 0.2), (0.7, 0.2))
    assert handle.phone != before  # side by side two fingers scroll like one
    with pytest.raises(uiautomator2.UiObjectNotFoundError):
        device.jsonrpc.pinchIn(device(text="nowhere").selector, 100, 50)
    with pytest.raises(uiautomator2.RPCError, match="between 0 and 100"):
        view.pinch_in(percent=400)
    with pytest.raises(uiautomator2.RPCError):
        device.jsonrpc.gesture(view.selector, 1, 2, 3, 4, 5)
