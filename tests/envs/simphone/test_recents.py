"""The overview of running apps."""

from __future__ import annotations

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps import clock, files, settings
from collab.envs.simphone.apps.system import open_recents
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell.input import KEYS, drag, press
from collab.envs.simphone.state import LAUNCHER, Phone, list_recent_apps
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import look

CARD = LAUNCHER + ":id/task/"
NAMES = ("Clock", "Files", "Contacts", "Markor", "Camera", "Settings")


def do(phone: Phone, type: str, key: str | None = None, **fields: object) -> Phone:
    frame = look(phone)
    if key is not None:
        fields["index"] = frame.index(key)
        assert fields["index"] is not None, f"{key} is not on\n{frame.observation.text}"
    return act(frame, MOBILE.canonical(MOBILE.make(type, **fields), frame.observation))


def opened(*names: str) -> Phone:
    phone = FACTORY
    for name in names:
        phone = do(phone, "open_app", app_name=name)
    return phone


def cards(phone: Phone) -> list[str]:
    return [element.label for element in look(phone).observation.elements if element.role == "app"]


def test_cards_show_the_apps_used_last_first_four_at_a_time() -> None:
    phone = open_recents(opened(*NAMES))
    assert cards(phone) == ["Settings", "Camera", "Markor", "Contacts"]
    assert "1 to 4 of 6" in look(phone).observation.text
    older = do(phone, "swipe", direction="right")
    assert cards(older) == ["Files", "Clock"]
    assert do(older, "swipe", direction="right") == older
    assert do(older, "swipe", direction="left") == phone
    again = open_recents(do(opened(*NAMES), "open_app", app_name="Files"))
    assert cards(again)[:2] == ["Files", "Settings"]


def test_a_card_says_which_page_it_returns_to_and_keeps_the_back_stack() -> None:
    phone = do(opened("Settings"), "click", settings.PACKAGE + ":id/network")
    seen = open_recents(do(phone, "open_app", app_name="Clock"))
    card = look(seen).observation.elements[look(seen).index(CARD + settings.PACKAGE) or 0]
    assert card.value == "Network & internet"
    back = do(seen, "click", CARD + settings.PACKAGE)
    assert back.stacks[settings.PACKAGE] == phone.stacks[settings.PACKAGE]
    assert do(back, "navigate_back").page.data["page"] == "main"


def test_back_returns_to_where_one_came_from_and_home_leads_home() -> None:
    phone = opened("Clock", "Files")
    seen = open_recents(phone)
    assert do(seen, "navigate_back") == phone
    assert do(seen, "navigate_home") == do(phone, "navigate_home")
    home = do(phone, "navigate_home")
    assert do(open_recents(home), "navigate_back") == home


def test_a_swipe_upwards_closes_an_app() -> None:
    seen = open_recents(opened("Clock", "Files"))
    left = do(seen, "swipe", CARD + files.PACKAGE, direction="up")
    assert list_recent_apps(left) == [clock.PACKAGE]
    assert cards(left) == ["Clock"]
    assert do(left, "navigate_back").foreground == LAUNCHER, "the app one came from is closed"
    box = look(left).placed.boxes[look(left).index(CARD + clock.PACKAGE) or 0]
    middle = (box.left + box.right) // 2
    none = drag(left, (middle, box.bottom - 100), (middle, box.top), 200)
    assert none == FACTORY


def test_the_last_page_of_cards_goes_with_its_last_card() -> None:
    phone = do(open_recents(opened(*NAMES[:5])), "swipe", direction="right")
    assert cards(phone) == ["Clock"]
    assert cards(do(phone, "swipe", CARD + clock.PACKAGE, direction="up")) == ["Camera", "Markor", "Contacts", "Files"]


def test_clear_all_closes_everything() -> None:
    cleared = do(open_recents(opened(*NAMES)), "click", LAUNCHER + ":id/clear_all")
    assert cleared == FACTORY
    empty = open_recents(cleared)
    assert "No recent items" in look(empty).observation.text
    assert do(empty, "navigate_back") == FACTORY


def test_the_key_opens_it_and_pressed_again_goes_to_the_app_before() -> None:
    phone = opened("Clock", "Files")
    seen = press(phone, KEYS["APP_SWITCH"])
    assert seen == open_recents(phone)
    before = press(seen, KEYS["APP_SWITCH"])
    assert before.foreground == clock.PACKAGE
    assert press(press(before, KEYS["APP_SWITCH"]), KEYS["APP_SWITCH"]).foreground == files.PACKAGE
    only = opened("Clock")
    assert press(press(only, KEYS["APP_SWITCH"]), KEYS["APP_SWITCH"]) == only
