"""How a phone behaves under the fingers: focus, keyboard, typing, scrolling, back stack, dialogs, menus."""

from __future__ import annotations

from dataclasses import replace

from collab.envs.grammar import MOBILE, WEB
from collab.envs.simphone.apps import clock, contacts, markor, messages, settings
from collab.envs.simphone.apps.markor import MARKOR
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.distractions.presets import Distractions
from collab.envs.simphone.state import LAUNCHER, read
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.ui.layout import KEYBOARD_TOP
from collab.types import StepResult

SUITE = SimPhoneSuite(noise="none")
CONTACTS, MARKOR_ID, SETTINGS = contacts.PACKAGE + ":id/", markor.PACKAGE + ":id/", settings.PACKAGE + ":id/"


def phone_with(task: str = "SystemWifiTurnOn", seed: int = 0) -> SimPhone:
    phone = SimPhone(distractions=Distractions(noise="none"))
    phone.reset(replace(SUITE.instance(task, seed), max_steps=1000))
    return phone


def do(phone: SimPhone, type: str, key: str | None = None, **fields: object) -> StepResult:
    if key is not None:
        fields["index"] = phone.frame.index(key)
        assert fields["index"] is not None, f"{key} is not on\n{phone.frame.observation.text}"
    return phone.step(MOBILE.make(type, **fields))


def open_app(phone: SimPhone, name: str) -> StepResult:
    return do(phone, "open_app", app_name=name)


# ---------------------------------------------------------------------------------------------------------- typing


def contact_form() -> SimPhone:
    phone = phone_with()
    open_app(phone, "Contacts")
    do(phone, "click", CONTACTS + "floating_action_button")
    return phone


def test_input_text_taps_types_and_enter_moves_to_the_next_field() -> None:
    phone = contact_form()
    assert not phone.phone.keyboard
    result = do(phone, "input_text", CONTACTS + "first", text="Ada")
    assert phone.phone.page.fields["first"] == "Ada"
    assert phone.phone.page.focus == "last"
    assert phone.phone.keyboard
    assert result.info["effect"] == "typed into First name"
    do(phone, "input_text", text="Lovelace")  # no target: into the focused field
    assert phone.phone.page.fields["last"] == "Lovelace"


def test_typing_appends_and_clear_text_empties_first() -> None:
    phone = contact_form()
    do(phone, "input_text", CONTACTS + "first", text="Ad")
    do(phone, "input_text", CONTACTS + "first", text="a")
    assert phone.phone.page.fields["first"] == "Ada"
    do(phone, "input_text", CONTACTS + "first", text="Bo", clear_text=True)
    assert phone.phone.page.fields["first"] == "Bo"


def test_empty_text_does_nothing_but_empty_the_field() -> None:
    phone = contact_form()
    do(phone, "input_text", CONTACTS + "first", text="Ada")
    before = phone.phone
    result = do(phone, "input_text", CONTACTS + "phone", text="")
    assert phone.phone == before
    assert result.info["effect"] == "nothing changed"
    result = do(phone, "input_text", CONTACTS + "first", text="", clear_text=True, press_enter=False)
    assert result.info["effect"] == "emptied First name"
    assert phone.phone.page.fields["first"] == ""
    assert phone.phone.page.focus == "first"


def test_a_line_break_in_the_text_is_an_enter() -> None:
    phone = contact_form()
    do(phone, "input_text", CONTACTS + "first", text="Ada\nLovelace")
    assert phone.phone.page.fields["first"] == "Ada"
    assert phone.phone.page.fields["last"] == "Lovelace"


def test_enter_in_the_last_field_closes_the_keyboard() -> None:
    phone = contact_form()
    do(phone, "input_text", CONTACTS + "email", text="ada@example.org")
    assert not phone.phone.keyboard


def test_typing_without_focus_does_nothing() -> None:
    phone = phone_with()
    result = do(phone, "input_text", text="hello")
    assert result.info["effect"] == "nothing changed"


def test_enter_makes_a_new_line_in_an_editor_and_leaving_saves() -> None:
    phone = new_note("plan")
    path = f"{MARKOR}/plan.md"
    do(phone, "input_text", MARKOR_ID + "document__edit", text="first\nsecond")
    assert phone.phone.page.fields["content"] == "first\nsecond\n"
    do(phone, "keyboard_enter")
    assert phone.phone.page.fields["content"] == "first\nsecond\n\n"
    assert read(phone.phone, path) == ""
    do(phone, "navigate_home")
    assert read(phone.phone, path) == "first\nsecond\n\n"


def new_note(name: str) -> SimPhone:
    phone = phone_with("MarkorCreateNote")
    open_app(phone, "Markor")
    do(phone, "click", MARKOR_ID + "fab_add_new_item")
    assert phone.phone.keyboard, "the name field has the focus at once"
    do(phone, "input_text", text=name)
    do(phone, "click", MARKOR_ID + "new_file_dialog__ok")
    return phone


def test_an_editor_under_a_menu_is_saved_too_when_the_app_is_left() -> None:
    phone = new_note("plan")
    do(phone, "input_text", MARKOR_ID + "document__edit", text="first")
    do(phone, "long_press", MARKOR_ID + "document__edit")
    assert phone.phone.page.screen == "system.text_menu"
    open_app(phone, "Settings")
    assert read(phone.phone, f"{MARKOR}/plan.md") == "first\n"


# -------------------------------------------------------------------------------------------------------- keyboard


def test_keyboard_hides_what_lies_under_it_and_back_closes_it_first() -> None:
    phone = phone_with("SimpleSmsReply")
    open_app(phone, "Simple SMS Messenger")
    list_key = next(node.key for node in phone.frame.placed.nodes if "/conversation/" in node.key)
    do(phone, "click", list_key)
    send = messages.PACKAGE + ":id/thread_send_message"
    resting = phone.frame.placed.boxes[phone.frame.index(send) or 0]
    assert resting.top > KEYBOARD_TOP
    do(phone, "click", messages.PACKAGE + ":id/thread_type_message")
    assert "The keyboard is open." in phone.frame.observation.text
    assert all(
        element.box is not None and element.box.bottom <= KEYBOARD_TOP for element in phone.frame.observation.elements
    )
    result = do(phone, "navigate_back")
    assert result.info["effect"] == "closed the keyboard"
    assert phone.phone.page.screen == "messages.conversation"
    do(phone, "navigate_back")
    assert phone.phone.page.screen == "messages.list"


# ------------------------------------------------------------------------------------------------------- scrolling


def test_scrolling_shows_what_is_hidden_and_stops_at_the_ends() -> None:
    phone = phone_with()
    open_app(phone, "Settings")
    about = SETTINGS + "about"
    assert phone.frame.index(about) is None
    assert phone.frame.placed.hidden[about] == "down"
    assert "There is more below." in phone.frame.observation.text
    assert do(phone, "scroll", direction="up").info["effect"] == "nothing changed"
    assert do(phone, "scroll", direction="down").info["effect"] == "scrolled down"
    assert phone.frame.index(about) is not None
    assert phone.frame.placed.hidden[SETTINGS + "network"] == "up"
    assert do(phone, "scroll", direction="down").info["effect"] == "nothing changed"
    do(phone, "swipe", SETTINGS + "about", direction="down")  # the finger goes down, so the content does
    assert phone.frame.index(SETTINGS + "network") is not None


def test_scroll_from_an_element_moves_the_list_it_lies_in() -> None:
    one, other = phone_with(), phone_with()
    for phone in (one, other):
        open_app(phone, "Settings")
    do(one, "scroll", SETTINGS + "apps", direction="down")
    do(other, "scroll", direction="down")
    assert one.phone == other.phone


def test_sideways_scroll_does_nothing_on_a_list() -> None:
    phone = phone_with()
    open_app(phone, "Settings")
    assert do(phone, "scroll", direction="left").info["effect"] == "nothing changed"


def test_app_drawer_opens_and_closes_by_swipe_and_searches() -> None:
    phone = phone_with()
    do(phone, "swipe", direction="up")
    assert phone.phone.page.screen == "launcher.drawer"
    assert {"Markor", "Files", "Clock"} <= {element.label for element in phone.frame.observation.elements}
    do(phone, "scroll", direction="up")
    assert phone.phone.page.screen == "launcher.home"
    do(phone, "scroll", direction="down")
    do(phone, "input_text", LAUNCHER + ":id/search_container_all_apps", text="mark")
    assert phone.phone.foreground == markor.PACKAGE, "Enter opens the first match"


# --------------------------------------------------------------------------------------------------------- sliders


def test_the_last_word_holds_the_answer_unless_one_was_given() -> None:
    phone = phone_with()
    do(phone, "status", goal_status="complete", answer="7")
    assert phone.phone.answer == "7"
    phone = phone_with()
    do(phone, "answer", text="Ada")
    do(phone, "status", goal_status="complete", answer="It is done.")
    assert phone.phone.answer == "Ada"


def brightness() -> SimPhone:
    phone = phone_with("SystemBrightnessMax")
    open_app(phone, "Settings")
    do(phone, "click", SETTINGS + "display")
    do(phone, "click", SETTINGS + "brightness")
    return phone


def test_slider_by_tap_point_and_drag() -> None:
    phone = brightness()
    slider = phone.frame.observation.elements[phone.frame.index(SETTINGS + "slider") or 0]
    assert "surface" in slider.flags
    assert slider.box is not None
    do(phone, "click", SETTINGS + "slider")
    assert phone.phone.settings["system/screen_brightness"] == "128"
    do(
        phone,
        "click",
        x=slider.box.left + slider.box.area // (slider.box.bottom - slider.box.top) // 4,
        y=slider.box.top + 5,
    )
    assert 60 <= int(phone.phone.settings["system/screen_brightness"]) <= 68
    do(phone, "swipe", SETTINGS + "slider", direction="right")
    assert phone.phone.settings["system/screen_brightness"] == "255"
    result = do(phone, "scroll", SETTINGS + "slider", direction="right")  # the finger goes left
    assert phone.phone.settings["system/screen_brightness"] == "1"
    assert result.info["effect"] == "set Display brightness to 0%"


def test_tap_at_both_ends_of_the_slider_reaches_them() -> None:
    phone = brightness()
    box = phone.frame.observation.elements[phone.frame.index(SETTINGS + "slider") or 0].box
    assert box is not None
    do(phone, "click", x=box.right - 1, y=box.top)
    assert phone.phone.settings["system/screen_brightness"] == "255"
    do(phone, "click", x=box.left, y=box.top)
    assert phone.phone.settings["system/screen_brightness"] == "1"


def test_a_drag_carries_the_knob_of_a_slider_to_where_it_ends() -> None:
    phone = brightness()
    box = phone.frame.observation.elements[phone.frame.index(SETTINGS + "slider") or 0].box
    assert box is not None
    half = (box.left + box.right) // 2
    do(phone, "drag", x=box.left + 9, y=box.top + 5, to_x=half, to_y=box.top + 9)
    assert 120 <= int(phone.phone.settings["system/screen_brightness"]) <= 136
    do(phone, "drag", x=half, y=box.top + 5, to_x=1079, to_y=box.top)
    assert phone.phone.settings["system/screen_brightness"] == "255"


def test_a_drag_takes_the_list_along_as_far_as_the_finger_goes() -> None:
    phone = phone_with()
    open_app(phone, "Settings")
    row = next(one.box for one in phone.frame.observation.elements if one.box is not None and one.box.top > 1000)
    # Within one element, so that both ends stay points.
    moved = do(phone, "drag", x=500, y=row.top + 40, to_x=520, to_y=row.top + 10)
    assert moved.info["effect"] == "scrolled down"
    assert phone.phone.page.scroll == 30
    assert do(phone, "drag", x=500, y=1000, to_x=500, to_y=1700).info["effect"] == "scrolled up"
    assert phone.phone.page.scroll == 0
    assert do(phone, "drag", x=500, y=5, to_x=500, to_y=900).info["effect"].startswith("opened")
    assert phone.phone.panel is not None


def test_keys_recents_and_questions() -> None:
    phone = contact_form()
    do(phone, "input_text", CONTACTS + "first", text="Ada", press_enter=False)
    do(phone, "press_keys", keys="KEYCODE_DEL")
    assert phone.phone.page.fields["first"] == "Ad"
    do(phone, "press_keys", keys="Tab")
    assert phone.phone.page.focus == "last"
    before = phone.phone
    told = do(phone, "press_keys", keys="Volume_Up").info["effect"]
    assert told.startswith("nothing changed: the phone has no key volume_up, it has back, escape, home, recents")
    assert do(phone, "ask_user", question="Which?").info["effect"] == "nothing changed: nobody answers questions here"
    assert phone.phone == before
    assert do(phone, "open_recents").info["effect"] == "opened Home: Recent apps"
    assert 'app "Contacts"' in phone.frame.observation.text


# ------------------------------------------------------------------------------------------------------ back stack


def test_back_walks_the_stack_and_ends_at_home() -> None:
    phone = phone_with()
    open_app(phone, "Settings")
    do(phone, "click", SETTINGS + "network")
    do(phone, "click", SETTINGS + "internet")
    assert phone.phone.page.screen == "settings.internet"
    assert do(phone, "navigate_back").info["effect"] == "went back to Settings: Network & internet"
    do(phone, "click", "android:id/up")
    assert phone.phone.page.data["page"] == "main"
    do(phone, "navigate_back")
    assert phone.phone.foreground == LAUNCHER
    assert settings.PACKAGE not in phone.phone.stacks, "the app has ended"
    assert do(phone, "navigate_back").info["effect"] == "nothing changed"


def test_home_keeps_an_app_where_it_was() -> None:
    phone = phone_with()
    open_app(phone, "settings")
    do(phone, "click", SETTINGS + "display")
    do(phone, "navigate_home")
    assert phone.phone.foreground == LAUNCHER
    open_app(phone, " SETTINGS ")
    assert phone.phone.page.data["page"] == "display"


def test_unknown_app_is_said_so() -> None:
    phone = phone_with()
    assert open_app(phone, "Solitaire").info["effect"] == "nothing changed"


# --------------------------------------------------------------------------------------------------------- dialogs


def test_a_tap_beside_a_dialog_closes_it_and_one_inside_does_not() -> None:
    phone = brightness()
    do(phone, "navigate_back")
    do(phone, "click", SETTINGS + "timeout")
    assert phone.phone.page.screen == "settings.timeout"
    do(phone, "click", x=540, y=200)
    assert phone.phone.page.screen == "settings.page"


def test_form_asks_before_it_throws_text_away() -> None:
    phone = contact_form()
    do(phone, "input_text", CONTACTS + "first", text="Ada")
    do(phone, "navigate_back")
    do(phone, "navigate_back")
    assert phone.phone.page.screen == "contacts.discard"
    do(phone, "click", CONTACTS + "keep")
    assert phone.phone.page.fields["first"] == "Ada"
    do(phone, "click", CONTACTS + "close")
    do(phone, "click", CONTACTS + "discard")
    assert phone.phone.page.screen == "contacts.list"


def test_permission_dialogs_belong_to_the_system() -> None:
    phone = phone_with()
    open_app(phone, "Camera")
    assert phone.frame.view.package == "com.android.permissioncontroller"
    allow = "com.android.permissioncontroller:id/permission_allow_foreground_only_button"
    do(phone, "click", allow)
    do(phone, "click", allow)
    assert phone.frame.view.package is None
    do(phone, "click", "com.android.camera2:id/shutter_button")
    assert phone.frame.observation.notice == "Picture saved"
    assert any("DCIM/Camera/IMG" in path for path in phone.phone.files)
    do(phone, "wait")
    assert phone.frame.observation.notice is None


def test_a_denied_camera_closes_the_app_and_asks_again() -> None:
    phone = phone_with()
    open_app(phone, "Camera")
    do(phone, "click", "com.android.permissioncontroller:id/permission_deny_button")
    assert phone.phone.foreground == LAUNCHER
    open_app(phone, "Camera")
    assert phone.frame.view.package == "com.android.permissioncontroller"


# ------------------------------------------------------------------------------------------------ selecting, pasting


def test_long_press_on_a_field_copies_cuts_and_pastes() -> None:
    phone = contact_form()
    do(phone, "input_text", CONTACTS + "first", text="Ada")
    do(phone, "long_press", CONTACTS + "first")
    assert {"Cut", "Copy"} <= {element.label for element in phone.frame.observation.elements}
    do(phone, "click", "android:id/cut")
    assert phone.phone.clipboard == "Ada"
    assert phone.phone.page.fields["first"] == ""
    do(phone, "long_press", CONTACTS + "last")
    do(phone, "click", "android:id/paste")
    assert phone.phone.page.fields["last"] == "Ada"


def test_long_press_selects_and_taps_extend_the_selection() -> None:
    phone = phone_with("MarkorDeleteAllNotes", seed=3)
    open_app(phone, "Markor")
    notes = [node.key for node in phone.frame.placed.nodes if "/item/" in node.key]
    assert len(notes) >= 2
    do(phone, "long_press", notes[0])
    assert phone.frame.view.title == "1 selected"
    do(phone, "click", notes[1])
    assert phone.frame.view.title == "2 selected"
    assert "selected" in phone.frame.observation.elements[phone.frame.index(notes[1]) or 0].flags
    do(phone, "navigate_back")
    assert phone.frame.view.title == "Markor"


def test_long_press_without_a_long_click_is_a_tap() -> None:
    phone = phone_with()
    open_app(phone, "Settings")
    do(phone, "long_press", SETTINGS + "network")
    assert phone.phone.page.data["page"] == "network"


def test_double_tap_on_a_switch_turns_it_back() -> None:
    phone = phone_with()
    open_app(phone, "Settings")
    do(phone, "click", SETTINGS + "network")
    before = phone.phone.settings
    do(phone, "double_tap", SETTINGS + "global/airplane_mode_on")
    assert phone.phone.settings == before
    do(phone, "click", SETTINGS + "global/airplane_mode_on")
    assert phone.phone.settings["global/airplane_mode_on"] == "1"


# ------------------------------------------------------------------------------------------------------------ time


def test_only_waiting_lets_the_stopwatch_run() -> None:
    phone = phone_with()
    open_app(phone, "Clock")
    do(phone, "click", clock.PACKAGE + ":id/tab_stopwatch")
    do(phone, "click", clock.PACKAGE + ":id/fab")
    assert "00:00.00" in phone.frame.observation.text
    for _ in range(61):
        do(phone, "wait")
    assert "01:01.00" in phone.frame.observation.text
    assert phone.frame.observation.drawing is not None
    assert phone.frame.observation.drawing["clock"] == "15:35"
    do(phone, "click", clock.PACKAGE + ":id/fab")
    do(phone, "wait")
    assert "01:01.00" in phone.frame.observation.text, "paused"


def test_a_timer_counts_down_to_its_end() -> None:
    phone = phone_with()
    open_app(phone, "Clock")
    do(phone, "click", clock.PACKAGE + ":id/tab_timer")
    do(phone, "click", clock.PACKAGE + ":id/timer_setup_digit_3")
    do(phone, "click", clock.PACKAGE + ":id/fab")
    for _ in range(2):
        do(phone, "wait")
    assert '"0:00:01"' in phone.frame.observation.text
    for _ in range(3):
        do(phone, "wait")
    assert "Time's up" in phone.frame.observation.text


# ------------------------------------------------------------------------------------------- actions without a sense


def test_senseless_actions_change_nothing_and_say_so() -> None:
    phone = phone_with()
    before = phone.phone
    assert do(phone, "click", x=5000, y=5000).info["effect"] == "nothing changed"
    assert do(phone, "unknown").info["effect"] == "nothing changed"
    assert do(phone, "keyboard_enter").info["effect"] == "nothing changed"
    result = do(phone, "click", index=99)
    assert result.info["effect"] == "nothing changed: the screen has no element 99"
    assert phone.phone == before


def test_a_web_action_is_refused_without_an_error() -> None:
    phone = phone_with()
    result = phone.step(WEB.make("hover", id=1))
    assert "not an action of a phone" in str(result.info["effect"])
