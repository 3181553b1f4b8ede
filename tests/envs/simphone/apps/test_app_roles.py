"""What a person recognises apps by: pictures in lists, bubbles, large digits, texts that are not cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PIL import Image, ImageChops

from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.state import Page
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.ui.paint import fit, measure_text, wrap
from collab.envs.simphone.ui.render import RENDERER, render
from collab.envs.simphone.ui.screen import look
from collab.envs.simphone.ui.theme import LIGHT
from collab.types import Box, Element, Observation

ROW, DAY = Box(0, 400, 1080, 550), Box(463, 350, 617, 600)
PICTURE = (42, 400, 150, 548)
"""Where the picture at the beginning of a row is."""


def drawn(
    role: str, key: str, label: str = "Ada", flags: tuple[str, ...] = (), value: str | None = None
) -> Image.Image:
    element = Element(
        index=0, role=role, label=label, box=DAY if role == "chip" else ROW, key=key, flags=flags, value=value
    )
    drawing = {"app": "x", "app_bar": "x", "clock": "15:34"}
    return render(
        Observation(space="mobile", title="", text="", elements=(element,), renderer=RENDERER, drawing=drawing)
    )


def colours(image: Image.Image) -> set[tuple[int, int, int]]:
    return {colour for _, colour in image.crop(PICTURE).getcolors(1 << 20) or ()}


def test_people_have_a_disc_of_their_own_colour() -> None:
    rows = {name: drawn("list item", "a.b:id/contact/1", name) for name in ("Ada", "Grace", "+1555")}
    assert len(colours(rows["Ada"]) & colours(rows["Grace"])) < len(colours(rows["Ada"]))
    plain = drawn("list item", "a.b:id/other/1", "Ada")
    difference = ImageChops.difference(plain, rows["Ada"]).getbbox()
    assert difference is not None
    assert ROW.top <= difference[1] < difference[3] <= ROW.bottom


@pytest.mark.parametrize(
    ("one", "other"), [("a.md", "a.mp3"), ("a.mp3", "a.jpg"), ("a.jpg", "folder"), ("folder", "a.md")]
)
def test_files_look_like_what_they_are(one: str, other: str) -> None:
    first, second = (drawn("list item", f"a.b:id/item/deep/{name}", "same") for name in (one, other))
    assert first.crop(PICTURE).tobytes() != second.crop(PICTURE).tobytes()
    assert first.crop((160, 400, 1080, 548)).tobytes() == second.crop((160, 400, 1080, 548)).tobytes()


def test_a_message_has_a_bubble_and_a_chosen_one_another() -> None:
    plain, bubble = drawn("text", "a.b:id/note"), drawn("text", "a.b:id/message/7")
    chosen = drawn("text", "a.b:id/message/7", flags=("selected",))
    assert len({picture.getpixel((70, 415)) for picture in (plain, bubble, chosen)}) == 3


@pytest.mark.parametrize("mine", ["You: Ada", "Du: Ada"])
def test_sent_messages_are_on_the_right_in_the_accent_colour(mine: str) -> None:
    ground = LIGHT.ground
    sent, received = (drawn("text", "a.b:id/message/7", label) for label in (mine, "Ada: You: Du: "))
    assert (sent.getpixel((1000, 415)), sent.getpixel((70, 415))) == (LIGHT.accent, ground)
    assert (received.getpixel((1000, 415)), received.getpixel((70, 415))) == (ground, LIGHT.line)
    long = drawn("text", "a.b:id/message/7", mine + " and so on" * 40)
    assert long.getpixel((540, 408)) == LIGHT.accent


def test_a_day_with_events_has_a_dot() -> None:
    day, free = (drawn("chip", "a.b:id/day/2023-10-15", "15", value=value) for value in ("2 events", None))
    other = drawn("chip", "a.b:id/hour/15", "15", value="2 events")
    low = (540, 555)
    assert [picture.getpixel(low) for picture in (day, free, other)] == [LIGHT.accent, LIGHT.ground, LIGHT.ground]


def test_clocks_have_large_digits() -> None:
    def height(image: Image.Image) -> int:
        box = ImageChops.difference(image, drawn("text", "a.b:id/x", "")).getbbox()
        assert box is not None
        return box[3] - box[1]

    assert height(drawn("text", "a.b:id/digital_clock", "15:34")) > 1.6 * height(drawn("text", "a.b:id/x", "15:34"))


def test_the_end_of_a_long_text_is_shown_where_one_types() -> None:
    text = "0123456789" * 30
    end = fit(text, 42, 500, end=True)
    assert end.startswith("…")
    assert text.endswith(end[1:])
    assert 450 < measure_text(end, 42) <= 500
    assert fit(text, 42, 500) == "…".join((fit(text, 42, 500)[:-1], ""))
    assert fit("short", 42, 500, end=True) == "short"
    typed = [drawn("input", "k", "Name", ("focused",), text + last) for last in "xy"]
    assert typed[0].tobytes() != typed[1].tobytes()
    left = [drawn("input", "k", "Name", (), text + last) for last in "xy"]
    assert left[0].tobytes() == left[1].tobytes()


def test_no_question_of_a_dialog_is_cut() -> None:
    """The box of a text in a window is high enough for all of its lines, which are shorter there."""
    stack = (*FACTORY.stacks[FACTORY.foreground], Page(screen="messages.delete", data={"id": 1, "chosen": 1}))
    frame = look(replace(FACTORY, stacks={**FACTORY.stacks, FACTORY.foreground: stack}))
    (message,) = [element for element in frame.observation.elements if element.role == "text"]
    assert message.box is not None
    lines = wrap(message.label, 42, message.box.right - message.box.left - 84)
    assert len(lines) == 2
    assert message.box.bottom - message.box.top >= 20 + 55 * len(lines)


def test_the_screens_of_the_suite_have_pictures() -> None:
    """Keys that the painters know are keys that the apps use."""
    suite = SimPhoneSuite()
    found = set()
    for name in ("ContactsAddContact", "FilesDeleteFile", "SimpleSmsReply", "ClockTimerEntry"):
        phone = SimPhone()
        phone.reset(suite.instance(name, 1))
        for action in phone.oracle() or ():
            found |= {
                element.key.partition(":id/")[2].partition("/")[0] for element in phone.frame.observation.elements
            }
            phone.step(action)
    assert {"item", "conversation", "message", "timer_setup_time"} <= found
