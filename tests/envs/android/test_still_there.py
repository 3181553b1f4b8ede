"""A screen that changes by itself between the agents' look and their touch, and one that turns."""

import asyncio
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from collab.envs.android import device_guard
from collab.envs.android.device import CHANGED, DeviceSuite
from collab.envs.android.device_drive import Driver
from collab.envs.android.device_targets import find_again, has_same_look
from collab.envs.grammar import MOBILE
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.types import Box, Element, Observation

SERIAL = "emulator-5554"
APP = "org.example.app"


def view(text, box, kind="Button", key=""):
    clickable = "true" if kind in ("Button", "EditText") else "false"
    left, top, right, bottom = box
    return (
        f'<node text="{text}" resource-id="{key}" class="android.widget.{kind}" package="{APP}" '
        f'clickable="{clickable}" enabled="true" visible-to-user="true" bounds="[{left},{top}][{right},{bottom}]" />'
    )


def screen(*views, size=(1080, 2400), rotation=0):
    inside = "".join(views)
    return (
        f'<hierarchy rotation="{rotation}"><node class="android.widget.FrameLayout" package="{APP}" '
        f'bounds="[0,0][{size[0]},{size[1]}]">{inside}</node></hierarchy>'
    )


class Scripted:
    """A device whose screen is what a test says; it notes where it is touched."""

    def __init__(self):
        self.xml, self.size, self.touches, self.package = screen(), (1080, 2400), [], APP


@pytest.fixture
def device(monkeypatch, tmp_path):
    told = Scripted()
    monkeypatch.setattr(device_guard, "TERMINAL", tmp_path / "none" / "tty")
    monkeypatch.setattr(Driver, "_dump", lambda driver: told.xml)
    monkeypatch.setattr(Driver, "_read_size", lambda driver: told.size)
    monkeypatch.setattr(Driver, "package", lambda driver: told.package)
    monkeypatch.setattr(Driver, "_touch", lambda driver, kind, x, y: told.touches.append((kind, x, y)))
    monkeypatch.setattr(Driver, "_type", lambda driver, text, place, **_: told.touches.append((text, *place.center)))
    monkeypatch.setattr(Driver, "_drag", lambda driver, kind, way, place: told.touches.append((kind, way)))
    return told


@contextmanager
def on_device(**options):
    tasks = [{"name": "anything", "goal": "Do it.", "success": {"package": "x"}, "max_steps": 20}]
    with serve_phones({SERIAL: PhoneHandle()}) as port:
        usual = {"serial": SERIAL, "adb_port": port, "tasks": tasks, "allow_apps": [f"App={APP}"], "settle_s": 0.0}
        yield DeviceSuite(**usual | options)


def step_on(device, before, now, make, **options):
    """Let agents see one screen and act on it when it has become another: what the history says."""
    device.xml = before

    async def run(suite):
        environment = await suite.open()
        observation = await environment.reset(suite.instance("anything", 0))
        device.xml = now
        result = await environment.step(make(observation))
        return result.info["effect"], result.observation

    with on_device(**options) as suite:
        return asyncio.run(run(suite))


def on(label, type="click", place=0, **fields):
    def make(observation):
        indices = [one.index for one in observation.elements if one.label == label]
        return MOBILE.make(type, index=indices[place], **fields)

    return make


NEXT = (100, 2100, 980, 2250)


@pytest.mark.variations
@pytest.mark.parametrize(
    "act",
    [
        on("Next"),
        on("Next", "double_tap"),
        on("Next", "long_press"),
        on("Next", "swipe", direction="up"),
        on("Next", "input_text", text="x"),
        lambda observation: MOBILE.make("click", x=540, y=2200),
    ],
)
@pytest.mark.parametrize("free", [False, True])
def test_a_touch_never_lands_on_what_was_not_seen(device, act, free):
    before, now = (
        screen(view("Welcome", (0, 200, 1080, 300), "TextView"), view(w, NEXT)) for w in ("Next", "Delete account")
    )
    said, observation = step_on(device, before, now, act, allow_effects=free)
    assert said == CHANGED == "the screen changed; nothing happened"
    assert device.touches == []
    assert observation.elements[-1].label == "Delete account"  # what the agents see next


def test_a_button_of_the_same_name_on_another_screen_is_another_button(device):
    before, now = (
        screen(view(f"{what} everything?", (0, 200, 1080, 300), "TextView", "android:id/message"), view("OK", NEXT))
        for what in ("Save", "Erase")
    )
    assert step_on(device, before, now, on("OK"))[0] == CHANGED
    assert device.touches == []


def dialog(question, width):
    return screen(
        view(question, (540 - width, 200, 540 + width, 300), "TextView"),
        view("This cannot be undone.", (0, 300, 1080, 400), "TextView"),
        view("Do not ask again", (0, 500, 1080, 600), "CheckBox"),
        view("Cancel", (0, 700, 500, 800)),
        view("OK", (500, 700, 1080, 800)),
        view("Help", (0, 900, 1080, 1000)),
    )


def test_a_button_below_another_question_is_another_button(device):
    said, _ = step_on(device, dialog("Delete Al?", 100), dialog("Delete Barbara?", 180), on("OK"), allow_effects=True)
    assert (said, device.touches) == (CHANGED, [])


CARD = (0, 500, 1080, 640)


@pytest.mark.parametrize(
    ("was", "became", "touched"),
    [
        ("+1 238 181 3575", "+1 354 322 1466", False),
        ("Transfer 10 dollars?", "Transfer 900 dollars?", False),
        ("Order 12", "Order 13", False),
        ("Resend in 30 s", "Resend in 7 s", True),
        ("12 unread", "13 unread", True),
        ("Loading: 7.5 %", "Loading: 90 %", True),
    ],
)
@pytest.mark.parametrize("type", ["click", "keyboard_enter"])
@pytest.mark.parametrize("heading", ["android:id/title", pytest.param("app:id/about", marks=pytest.mark.slow)])
def test_numbers_say_what_a_screen_is_about_unless_they_tick(device, was, became, touched, type, heading):
    field = view("hello", CARD, "EditText").replace('enabled="true"', 'enabled="true" focused="true"')
    before, now = (
        screen(view(words, (0, 200, 1080, 300), "TextView", heading), field, view("Next", NEXT))
        for words in (was, became)
    )
    act = on("Next") if type == "click" else lambda _: MOBILE.make("keyboard_enter")
    assert (step_on(device, before, now, act)[0] == CHANGED) is not touched
    assert bool(device.touches) is (touched and type == "click")


def messages(*rows):
    """Rows of a list, each one element of several texts."""
    views = [view("Inbox", (0, 100, 1080, 250), "TextView")]
    for top, words in zip(range(300, 2300, 200), rows, strict=False):
        texts = "".join(view(w, (0, top + 60 * n, 900, top + 60 * n + 50), "TextView") for n, w in enumerate(words))
        layout = view("", (0, top, 1080, top + 150), key="app:id/row").replace("widget.Button", "widget.LinearLayout")
        views.append(layout.replace(" />", f">{texts}</node>"))
    return screen(*views)


MORE = [("Bob", "noon?"), ("Carl", "later"), ("Dan", "no"), ("Eve", "yes")]


@pytest.mark.parametrize(
    ("before", "now", "touched"),
    [
        ([("Ann", "hello"), ("Ann", "bye")], [("Ann", "bye")], None),
        ([("Ann", "hello"), ("Ann", "bye")], [("Ann", "bye"), ("Ann", "hello")], 575),
        ([("Reply", "to Ann")], [("Reply", "to Bob")], None),
        ([("Order", "no. 1"), ("Order", "no. 2")], [("Order", "no. 2")], None),
        ([("Order", "no. 1")], [("Order", "no. 2")], None),
        ([("Chats", "2 unread")], [("Chats", "3 unread")], 375),
    ],
)
def test_a_row_is_the_one_with_the_same_words(device, before, now, touched):
    name = before[0][0]
    said, _ = step_on(device, messages(*before, *MORE), messages(*now, *MORE), on(name))
    assert device.touches == ([] if touched is None else [("click", 540, touched)])
    assert (said == CHANGED) is (touched is None)


def test_an_element_that_has_moved_is_touched_where_it_is(device):
    words = [view(f"Line {number}", (0, 100 + 90 * number, 1080, 180 + 90 * number), "TextView") for number in range(9)]
    before, now = screen(*words, view("Next", NEXT)), screen(*words, view("Next", (100, 1700, 980, 1850)))
    step_on(device, before, now, on("Next"))
    assert device.touches == [("click", 540, 1775)]


def rows(*names):
    views = []
    for place, name in enumerate(names):
        top = 300 + 200 * place
        views += [
            view(name, (0, top, 700, top + 150), "TextView", "app:id/name"),
            view("Remind", (700, top, 1080, top + 150), key="app:id/remind"),
        ]
    return screen(view("People", (0, 100, 1080, 250), "TextView"), *views)


@pytest.mark.parametrize(
    ("before", "now", "place", "touched"),
    [
        (("Ann", "Bob"), ("Ann", "Bob"), 1, 575),
        (("Ann", "Bob"), ("Zoe", "Ann", "Bob"), 1, 775),
        (("Ann", "Bob"), ("Zoe", "Ann", "Bob"), 0, 575),
        (("Ann", "Bob"), ("Ann", "Bob", "Carl"), 1, 575),
        (("Ann", "Bob", "Carl", "Dan"), ("Ann", "Carl", "Dan"), 1, None),
        (("Ann", "Bob"), ("Bob", "Ann"), 0, 575),
        (("Room 1", "Room 2"), ("Room 0", "Room 1", "Room 2"), 1, 775),
    ],
)
def test_one_of_several_equal_buttons_is_the_one_beside_the_same_words(device, before, now, place, touched):
    said, _ = step_on(device, rows(*before), rows(*now), on("Remind", place=place))
    assert device.touches == ([] if touched is None else [("click", 890, touched)])
    assert (said == CHANGED) is (touched is None)


def test_a_clock_that_ticks_is_no_other_screen(device):
    before, now = (
        screen(view(f"00:0{second}", (0, 200, 1080, 300), "TextView", "app:id/time"), view("Lap", NEXT))
        for second in (1, 5)
    )
    assert step_on(device, before, now, on("Lap"))[0] != CHANGED
    assert device.touches == [("click", 540, 2175)]


def test_what_has_come_over_an_element_is_not_touched(device):
    words = [view(f"Line {number}", (0, 100 + 90 * number, 1080, 180 + 90 * number), "TextView") for number in range(9)]
    before = screen(*words, view("Next", NEXT))
    now = screen(*words, view("Next", NEXT), view("Allow", (440, 2150, 640, 2200)))
    assert step_on(device, before, now, on("Next"), allow_effects=True)[0] == CHANGED
    assert device.touches == []


def test_another_app_in_front_is_another_screen(device):
    same = screen(view("Next", NEXT))
    device.xml = same

    async def run(suite):
        environment = await suite.open()
        observation = await environment.reset(suite.instance("anything", 0))
        device.package = "org.example.other"
        return (await environment.step(on("Next")(observation))).info["effect"]

    with on_device(allow_apps=[f"App={APP}", "Other=org.example.other"]) as suite:
        assert asyncio.run(run(suite)) == CHANGED
    assert device.touches == []


@pytest.mark.parametrize("changed", [False, True])
def test_a_yes_at_the_terminal_is_for_what_was_asked(device, monkeypatch, changed):
    asked = screen(view("Delete draft", NEXT))

    def agree(question):
        device.xml = screen(view("Delete account", NEXT)) if changed else asked
        return True

    monkeypatch.setattr("collab.envs.android.device.ask_for_confirmation", agree)
    said, _ = step_on(device, asked, asked, on("Delete draft"))
    assert (said == CHANGED) is changed
    assert device.touches == ([] if changed else [("click", 540, 2175)])


def test_keys_of_the_phone_work_on_every_screen(device):
    said, _ = step_on(device, screen(view("Next", NEXT)), screen(view("Other", NEXT)), lambda _: MOBILE.make("wait"))
    assert said == "one second passed"


def test_pictures_may_blink_but_not_where_they_are_touched():
    seen = np.full((240, 108, 3), 200, dtype=np.uint8)
    caret, word, dialog = seen.copy(), seen.copy(), seen.copy()
    caret[50:53, 50] = 0
    word[50:53, 48:58] = 0
    dialog[60:200] = 0
    touch = MOBILE.make("click", x=50, y=51)
    assert [has_same_look(touch, seen, now) for now in (seen, caret, word, dialog)] == [True, True, False, False]
    assert has_same_look(MOBILE.make("click", x=50, y=200), seen, word)
    assert not has_same_look(touch, seen, seen.swapaxes(0, 1))


# ------------------------------------------------------------------------------------------------------- turning


def test_a_device_that_turns_shows_all_its_screen(device):
    play_bar = (2000, 900, 2300, 1000)
    upright, turned = screen(view("Next", NEXT)), screen(view("Play", play_bar), size=(2400, 1080), rotation=1)
    device.xml = upright

    async def run(suite):
        environment = await suite.open()
        first = await environment.reset(suite.instance("anything", 0))
        device.xml, device.size = turned, (2400, 1080)
        second = (await environment.step(None)).observation
        await environment.step(MOBILE.make("click", x=0.9, y=0.88, normalised=True))
        device.xml, device.size = upright, (1080, 2400)
        third = (await environment.step(None)).observation
        return first, second, third

    with on_device() as suite:
        first, second, third = asyncio.run(run(suite))
    assert [(one.width, one.height) for one in (first, second, third)] == [(1080, 2400), (2400, 1080), (1080, 2400)]
    assert [(one.label, one.box) for one in second.elements] == [("Play", Box(*play_bar))]
    assert device.touches == [("click", 2150, 950)]


def test_a_device_that_turns_after_it_told_its_size_is_seen_as_the_dump_shows_it(device):
    device.xml = screen(view("Play", (2000, 900, 2300, 1000)), size=(2400, 1080), rotation=1)

    async def run(suite):
        environment = await suite.open()
        return await environment.reset(suite.instance("anything", 0))

    with on_device() as suite:
        observation = asyncio.run(run(suite))
    assert (observation.width, observation.height) == (2400, 1080)
    assert observation.elements[0].label == "Play"


def test_a_touch_on_a_screen_that_has_turned_does_nothing(device):
    said, _ = step_on(
        device, screen(view("Next", NEXT)), screen(view("Next", (100, 900, 980, 1000)), size=(2400, 1080)), on("Next")
    )
    assert said == CHANGED


# ------------------------------------------------------------------------------------------------------ by itself


def test_an_element_that_ticks_is_found_at_its_place():
    one = Element(index=0, role="button", label="00:01", key="app:id/time", box=Box(0, 0, 100, 100))
    before = Observation(space="mobile", title="Clock", text="", elements=(one,))
    click = MOBILE.make("click", index=0)
    for label, found in (("00:09", True), ("Delete", False), ("1", False)):
        now = replace(before, elements=(replace(one, label=label),))
        assert (find_again(click, before, now) == click) is found, label


# ------------------------------------------------------------------------------------------------- long texts


def test_texts_of_a_device_are_bounded_and_say_what_is_cut(device):
    """What a policy reads and what is recorded; a task is judged by the whole texts."""
    rows = [view(f"{n} " + "x" * (20_000 if n == 0 else 9), (0, 10 + n, 900, 12 + n), "TextView") for n in range(700)]
    field = view("v" * 20_000 + " the end", (0, 1000, 900, 1100), "EditText", key="k" * 20_000)
    title = view("t" * 20_000, (0, 0, 900, 9), "TextView", key="android:id/title")
    now = screen(title, field, view("Next", NEXT), *rows)
    word, observation = step_on(device, now, now, on("Next"))
    assert device.touches == [("click", 540, 2175)]
    assert len(observation.elements) == 600
    assert "Left out: everything after the first 600 elements" in observation.text
    assert max(len(one.label) for one in observation.elements) <= 1000
    assert "19086 characters left out" in observation.elements[3].label
    assert len(observation.elements[1].value) <= 12_000
    assert observation.elements[1].value.endswith("characters left out … " + "v" * 2992 + " the end")
    assert len(observation.title) <= 250
    assert "characters left out" in observation.title
    assert len(word) < 300


def test_what_a_device_says_is_bounded(device, monkeypatch):
    monkeypatch.setattr(Driver, "toast", lambda driver: "said " * 4000)
    word, observation = step_on(device, screen(), screen(), lambda _: MOBILE.make("navigate_back"))
    assert len(observation.notice) < 450
    assert "characters left out" in observation.notice
    assert len(word) < 500
    word, _ = step_on(device, screen(), screen(), lambda _: MOBILE.make("open_app", app_name="n" * 20_000))
    assert len(word) < 200


def test_a_task_is_judged_by_texts_that_are_cut(device):
    device.xml = screen(view("x" * 3000 + "the middle" + "x" * 3000, (0, 10, 900, 90), "TextView"))
    task = {"name": "anything", "goal": "Look.", "success": {"text": "the middle"}}

    async def run(suite):
        environment = await suite.open()
        seen = await environment.reset(suite.instance("anything", 0))
        return seen, await environment.step(MOBILE.make("status", goal_status="complete"))

    with on_device(tasks=[task]) as suite:
        seen, result = asyncio.run(run(suite))
    assert "the middle" not in seen.text
    assert result.outcome.success
