"""What people expect of any phone, app by app: pickers, spinners, menus, validation, toasts, prefilled fields.

Focus, keyboard, scrolling, dialogs, permissions, selection and the back stack are in `test_touch`; the shade in
`test_shade`; the overview in `test_recents`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps import calendar, contacts, expense, files, markor, messages, recipe
from collab.envs.simphone.apps.expense import add_expense, list_expenses
from collab.envs.simphone.apps.markor import MARKOR
from collab.envs.simphone.apps.recipe import FIELDS
from collab.envs.simphone.content.people import add_person, list_people
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell.input import KEYS, press
from collab.envs.simphone.state import ROOT, Phone, write
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.layout import KEYBOARD_TOP
from collab.envs.simphone.ui.screen import look
from collab.types import Element

CONTACTS, MARKOR_ID, FILES = (package + ":id/" for package in (contacts.PACKAGE, markor.PACKAGE, files.PACKAGE))
CALENDAR, EXPENSE, RECIPE = (package + ":id/" for package in (calendar.PACKAGE, expense.PACKAGE, recipe.PACKAGE))
MESSAGES = messages.PACKAGE + ":id/"
ADA, ADA_ID = add_person(FACTORY, "Ada", "Lovelace", "+15550001")


def do(phone: Phone, type: str, key: str | None = None, **fields: object) -> Phone:
    frame = look(phone)
    if key is not None:
        fields["index"] = frame.index(key)
        assert fields["index"] is not None, f"{key} is not on\n{frame.observation.text}"
    return act(frame, MOBILE.canonical(MOBILE.make(type, **fields), frame.observation))


def tapped(phone: Phone, *keys: str) -> Phone:
    for key in keys:
        phone = do(phone, "click", key)
    return phone


def opened(name: str, *keys: str, phone: Phone = FACTORY) -> Phone:
    return tapped(do(phone, "open_app", app_name=name), *keys)


def element(phone: Phone, key: str) -> Element:
    frame = look(phone)
    index = frame.index(key)
    assert index is not None, f"{key} is not on\n{frame.observation.text}"
    return frame.observation.elements[index]


def labels(phone: Phone) -> list[str]:
    return [one.label for one in look(phone).observation.elements]


# ------------------------------------------------------------------------------------------------------------ pickers


def new_event() -> Phone:
    return opened("Simple Calendar Pro", CALENDAR + "calendar_fab")


def test_date_picker_turns_months_takes_a_day_and_can_be_cancelled() -> None:
    form = new_event()
    assert element(form, CALENDAR + "event_start_date").value == "Sun, 15 October 2023"
    picker = tapped(form, CALENDAR + "event_start_date")
    assert look(picker).view.style == "dialog"
    assert "selected" in element(picker, CALENDAR + "date/2023-10-15").flags
    later = tapped(picker, CALENDAR + "next", CALENDAR + "next")
    assert element(later, CALENDAR + "date_picker_header").label == "December 2023"
    chosen = tapped(later, CALENDAR + "date/2023-12-24")
    taken = tapped(chosen, CALENDAR + "ok")
    assert element(taken, CALENDAR + "event_start_date").value == "Sun, 24 December 2023"
    assert tapped(chosen, CALENDAR + "cancel") == form
    assert do(chosen, "navigate_back") == form


def test_time_picker_goes_from_hour_to_minute_and_back() -> None:
    picker = tapped(new_event(), CALENDAR + "event_start_time")
    minutes = tapped(picker, CALENDAR + "hour/7")
    assert "selected" in element(minutes, CALENDAR + "minutes").flags
    hours = tapped(minutes, CALENDAR + "hours")
    assert "selected" in element(hours, CALENDAR + "hour/7").flags
    form = tapped(minutes, CALENDAR + "minute/55", CALENDAR + "minute_more", CALENDAR + "ok")
    assert element(form, CALENDAR + "event_start_time").value == "07:56"


# ----------------------------------------------------------------------------------------------------------- spinners


def test_spinner_shows_its_choice_and_opens_the_others() -> None:
    form = opened("Contacts", CONTACTS + "floating_action_button")
    spinner = element(form, CONTACTS + "label")
    assert (spinner.role, spinner.value) == ("spinner", "Mobile")
    menu = tapped(form, CONTACTS + "label")
    assert {"Mobile", "Home", "Work"} <= set(labels(menu))
    assert element(tapped(menu, CONTACTS + "label/Work"), CONTACTS + "label").value == "Work"
    assert do(menu, "navigate_back") == form


def test_a_spinner_fills_the_field_beside_it() -> None:
    dialog = opened("Markor", MARKOR_ID + "fab_add_new_item")
    assert element(dialog, MARKOR_ID + "new_file_dialog__type").value == "Markdown"
    plain = tapped(dialog, MARKOR_ID + "new_file_dialog__type", MARKOR_ID + "type/.txt")
    assert element(plain, MARKOR_ID + "new_file_dialog__type").value == "Plain text"
    assert element(plain, MARKOR_ID + "new_file_dialog__ext").value == ".txt"


# ------------------------------------------------------------------------------------------------------ overflow menus


def test_overflow_menu_opens_at_the_top_right_and_closes_by_back_or_beside_it() -> None:
    detail = opened("Contacts", f"{CONTACTS}contact/{ADA_ID}", phone=ADA)
    menu = tapped(detail, CONTACTS + "more")
    frame = look(menu)
    assert frame.view.style == "menu"
    assert frame.placed.window.right > 1000
    assert frame.placed.window.top < 200
    assert do(menu, "navigate_back") == detail
    assert do(menu, "click", x=100, y=2000) == detail
    asked = tapped(menu, CONTACTS + "menu_delete")
    assert tapped(asked, CONTACTS + "cancel") == detail, "the menu has gone"
    assert list_people(tapped(asked, CONTACTS + "delete")) == []


# ----------------------------------------------------------------------------------------------------- form validation


@pytest.mark.parametrize(
    ("form", "save", "toast"),
    [
        (opened("Contacts", CONTACTS + "floating_action_button"), CONTACTS + "toolbar_button", "Nothing to save"),
        (new_event(), CALENDAR + "save", "The title cannot be empty"),
        (opened("Pro Expense", EXPENSE + "fb_add"), EXPENSE + "btn_save", "Cost is Empty"),
        (opened("Broccoli", RECIPE + "fab_recipes"), RECIPE + "button_save_recipe", "Please add a title."),
        (opened("Markor", MARKOR_ID + "fab_add_new_item"), MARKOR_ID + "new_file_dialog__ok", "Enter a valid name"),
    ],
    ids=["contacts", "calendar", "expense", "recipe", "markor"],
)
def test_form_validation_says_what_is_missing_and_stays(form: Phone, save: str, toast: str) -> None:
    refused = tapped(form, save)
    assert refused.notice == toast
    assert f"Message: {toast}" in look(refused).observation.text
    assert refused.page == form.page
    assert refused.rows == form.rows
    assert refused.files == form.files


def test_an_amount_that_is_no_number_is_refused() -> None:
    form = do(opened("Pro Expense", EXPENSE + "fb_add"), "input_text", EXPENSE + "edt_amount", text="a lot")
    assert tapped(form, EXPENSE + "btn_save").notice == "Cost is Empty"


def test_a_stranger_without_a_number_is_refused() -> None:
    phone = opened("Simple SMS Messenger", MESSAGES + "conversations_fab")
    phone = do(phone, "input_text", MESSAGES + "new_conversation_address", text="Nobody")
    assert (phone.notice, phone.page.screen) == ("No such contact", "messages.new")


# -------------------------------------------------------------------------------------------------------------- toasts


def test_toast_is_seen_until_the_next_action() -> None:
    form = opened("Contacts", CONTACTS + "floating_action_button", CONTACTS + "toolbar_button")
    assert look(form).observation.notice == "Nothing to save"
    assert look(form).observation.drawing is not None
    assert (look(form).observation.drawing or {})["toast"] == "Nothing to save"
    assert do(form, "wait").notice is None
    assert do(form, "click", CONTACTS + "first").notice is None


# ---------------------------------------------------------------------------------------- fields that hold text already


def edited_contact() -> Phone:
    return opened("Contacts", f"{CONTACTS}contact/{ADA_ID}", CONTACTS + "menu_edit", phone=ADA)


def renamed_note() -> Phone:
    phone = opened("Markor", phone=write(FACTORY, f"{MARKOR}/plan.md", "x"))
    return tapped(do(phone, "long_press", f"{MARKOR_ID}item/plan.md"), MARKOR_ID + "action_rename")


def renamed_file() -> Phone:
    phone = opened("Files", phone=write(FACTORY, f"{ROOT}/Download/plan.md", "x"))
    phone = tapped(phone, FILES + "roots", FILES + "root/" + files.STORAGE)
    phone = tapped(phone, files.entry_key(f"{ROOT}/Download"))
    phone = do(phone, "long_press", files.entry_key(f"{ROOT}/Download/plan.md"))
    return tapped(phone, FILES + "more", FILES + "action_menu_rename")


def changed_expense() -> Phone:
    phone = add_expense(FACTORY, "Tea", 250, 3, "")
    (one,) = list_expenses(phone)
    return opened("Pro Expense", expense.entry_key(int(one["expense_id"] or 0)), EXPENSE + "btn_edit", phone=phone)


@pytest.mark.parametrize(
    ("form", "key", "old"),
    [
        (edited_contact, CONTACTS + "first", "Ada"),
        (renamed_note, MARKOR_ID + "rename__name", "plan.md"),
        (renamed_file, FILES + "name", "plan.md"),
        (changed_expense, EXPENSE + "edt_name", "Tea"),
    ],
    ids=["contacts", "markor", "files", "expense"],
)
def test_a_field_with_text_must_be_cleared_before_it_is_written(form: Callable[[], Phone], key: str, old: str) -> None:
    phone = form()
    assert element(phone, key).value == old

    def written(**how: object) -> str:
        after = do(phone, "input_text", key, text="new", **how)
        return f"{dict(after.page.fields)} {sorted(after.files)}"  # Enter in a dialog renames at once

    assert f"{old}new" in written()
    assert "new" in written(clear_text=True)
    assert f"{old}new" not in written(clear_text=True)


# ------------------------------------------------------------------------------------- fields that the keyboard covers


def long_recipe() -> Phone:
    """The form of a recipe whose lower fields lie behind the keyboard."""
    phone = opened("Broccoli", RECIPE + "fab_recipes")
    phone = do(phone, "input_text", RECIPE + FIELDS["description"], text="\n".join("abcdefghi"))
    return do(phone, "navigate_back")


def test_a_field_that_the_keyboard_would_cover_is_scrolled_into_sight() -> None:
    phone = long_recipe()
    assert not phone.keyboard
    key = RECIPE + FIELDS["directions"]
    box = element(phone, key).box
    assert box is not None
    assert box.top > KEYBOARD_TOP
    focused = do(phone, "click", key)
    assert focused.keyboard
    assert "focused" in element(focused, key).flags


def test_enter_brings_the_next_field_into_sight() -> None:
    phone = do(long_recipe(), "input_text", RECIPE + FIELDS["source"], text="Grandmother")
    assert phone.page.focus == "ingredients"
    assert "focused" in element(phone, RECIPE + FIELDS["ingredients"]).flags
    tabbed = press(do(phone, "click", RECIPE + FIELDS["ingredients"]), KEYS["TAB"])
    assert "focused" in element(tabbed, RECIPE + FIELDS["directions"]).flags
