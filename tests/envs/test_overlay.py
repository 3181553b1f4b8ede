"""Touches drawn on a picture."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from PIL import Image, ImageChops

from collab.envs.grammar import MOBILE, WEB
from collab.envs.overlay import TOUCH, draw_touch
from collab.types import Action, Box, Element, Observation

SIZE = (540, 1200)
BUTTON = Element(index=0, role="button", label="Save", box=Box(200, 400, 400, 600))
NOWHERE = Element(index=1, role="text", label="")
SCREEN = Observation(space="mobile", title="", elements=(BUTTON, NOWHERE), text="", width=1080, height=2400)


def touched(action: Action, observation: Observation = SCREEN, size: tuple[int, int] = SIZE) -> Box | None:
    """Smallest box around what an action draws on a grey picture."""
    plain = Image.new("RGB", size, (128, 128, 128))
    image = plain.copy()
    draw_touch(image, action, observation)
    found = ImageChops.difference(plain, image).getbbox()
    return None if found is None else Box(*found)


def test_a_drag_from_where_the_mouse_is_is_a_ring_at_its_end() -> None:
    ring = touched(WEB.make("drag", to_x=600, to_y=1000), replace(SCREEN, space="web"))
    assert ring is not None
    assert ring.contains(300, 500)
    assert ring.area < 10_000


def test_a_tap_is_a_ring_in_the_middle_of_its_element() -> None:
    ring = touched(MOBILE.make("click", index=0))
    assert ring is not None
    assert ring.contains(150, 250)
    assert math.dist(ring.center, (150, 250)) <= 2
    assert ring.right - ring.left == pytest.approx(ring.bottom - ring.top, abs=2)
    assert touched(MOBILE.make("click", x=300, y=500)) == ring
    assert touched(WEB.make("click", id=0)) == ring


def test_a_long_press_is_larger_than_a_tap() -> None:
    tap, hold = touched(MOBILE.make("click", index=0)), touched(MOBILE.make("long_press", index=0))
    assert tap is not None
    assert hold is not None
    assert hold.area > 1.5 * tap.area
    assert touched(MOBILE.make("double_tap", index=0)) == hold


@pytest.mark.parametrize(("swiped", "scrolled"), [("up", "down"), ("down", "up"), ("left", "right"), ("right", "left")])
def test_an_arrow_goes_where_the_finger_goes(swiped: str, scrolled: str) -> None:
    arrows = []
    for action in (MOBILE.make("swipe", direction=swiped), MOBILE.make("scroll", direction=scrolled)):
        image = Image.new("RGB", SIZE, (128, 128, 128))
        draw_touch(image, action, SCREEN)
        arrows.append(image)
    assert arrows[0].tobytes() == arrows[1].tobytes()
    x, y = SIZE[0] // 2, SIZE[1] // 2
    halves = {
        "left": (0, 0, x, SIZE[1]),
        "right": (x, 0, *SIZE),
        "up": (0, 0, SIZE[0], y),
        "down": (0, y, *SIZE),
    }
    count = {
        way: sum(n for n, colour in arrows[0].crop(half).getcolors(1 << 20) if colour == TOUCH)
        for way, half in halves.items()
    }
    assert count[swiped] > 1.1 * count[scrolled], "the head has the larger half"


def test_a_swipe_starts_on_its_element() -> None:
    box = touched(MOBILE.make("swipe", index=0, direction="left"))
    assert box is not None
    assert abs(box.center[1] - 250) <= 2


@pytest.mark.parametrize(
    "action",
    [
        MOBILE.make("navigate_back"),
        MOBILE.make("open_app", app_name="Clock"),
        MOBILE.make("status", goal_status="complete"),
        MOBILE.make("click", index=1),
        MOBILE.make("click", index=77),
    ],
)
def test_what_touches_nothing_is_not_drawn(action: Action) -> None:
    assert touched(action) is None
