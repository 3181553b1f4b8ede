"""MiniWoB++ pages that need drags, points or keys are solved by the pointer's actions, and by no scripted solution."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import pytest

from collab.envs.grammar import WEB
from collab.envs.web.miniwob import MiniwobSuite
from collab.envs.web.solutions import SOLVED
from collab.types import Action, Element, Observation
from tests.envs.web.conftest import Check

SUITE = MiniwobSuite
SEEDS = range(3)
Plan: TypeAlias = Iterator[Action]


def find(seen: Observation, role: str = "", label: str = "") -> list[Element]:
    return [one for one in seen.elements if role in one.role and label in one.label]


def middle(element: Element) -> tuple[int, int]:
    assert element.box is not None
    return element.box.center


def press(seen: Observation, label: str = "Submit") -> Action:
    return WEB.make("click", id=find(seen, "button", label)[-1].index)


def drag(start: tuple[float, float], end: tuple[float, float]) -> Action:
    return WEB.make("drag", x=start[0], y=start[1], to_x=end[0], to_y=end[1])


def drag_over_text(goal: str, seen: Observation) -> Plan:
    number = re.search(r"(\d)(?:st|nd|rd|th) paragraph", goal)
    box = find(seen, "text")[int(number[1]) - 1 if number else 0].box
    assert box is not None
    yield drag((box.left, box.top + 3), (box.right + 8, box.bottom - 3))
    yield press(seen)


def drag_box(goal: str, seen: Observation) -> Plan:
    small, large = find(seen, "item")
    yield WEB.make("drag", id=small.index, to_x=middle(large)[0], to_y=middle(large)[1])
    yield press(seen)


def drag_in_direction(goal: str, seen: Observation) -> Plan:
    x, y = middle(find(seen, "shape")[0])
    dx, dy = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}[re.findall(r"(\w+) then", goal)[0]]
    yield drag((x, y), (x + 35 * dx, y + 35 * dy))
    yield press(seen)


def drag_shapes(goal: str, seen: Observation) -> Plan:
    kind = re.findall(r"all (\w+)s", goal)[0]
    kind = {"rectangle": "rect", "triangle": "polygon"}.get(kind, kind)
    *_, field = (one for one in find(seen, "shape", "rect black") if one.box and one.box.area > 1000)
    for one in find(seen, "shape", kind):
        if one != field:
            yield drag(middle(one), middle(field))
    yield press(seen)


def sort_numbers(goal: str, seen: Observation) -> Plan:
    texts = find(seen, "text")
    values = [int(one.label) for one in texts]
    wrong = next((place for place, value in enumerate(sorted(values)) if values[place] != value), None)
    if wrong is None:
        yield press(seen)
        return
    start, end = texts[values.index(sorted(values)[wrong])], texts[wrong]
    yield drag(middle(start), (middle(start)[0], middle(end)[1] - 8))


def draw(goal: str, seen: Observation) -> Plan:
    x, y = middle(find(seen, "shape")[0])
    dx, dy = (20, 0) if "horizontal" in goal else (0, 20)
    yield drag((x - dx, y - dy), (x + dx, y + dy))
    yield press(seen)


def add_point(goal: str, seen: Observation) -> Plan:
    """Put the point on the line that stands upright on the other two."""
    black, blue = middle(find(seen, "shape", "circle black")[0]), middle(find(seen, "shape", "circle blue")[0])
    dx, dy = (black[0] - blue[0]) / 2, (black[1] - blue[1]) / 2
    drawing = seen.elements[0].box
    assert drawing is not None
    x, y = blue[0] - dy, blue[1] + dx
    x, y = (x, y) if drawing.contains(x, y) else (blue[0] + dy, blue[1] - dx)
    yield WEB.make("click", x=x, y=y)
    yield press(seen)


def resize(goal: str, seen: Observation) -> Plan:
    box = find(seen, "input")[0].box
    assert box is not None
    x, y = box.right - 6, box.bottom - 6
    sign = -1 if "smaller" in goal else 1
    yield drag((x, y), (x + 20 * sign, y + 20 * sign))
    yield press(seen)


def slide(goal: str, seen: Observation) -> Plan:
    """Drag as near as the pixels allow, then by the keys."""
    wanted = [int(one) for one in re.findall(r"\[([^\]]*)\]", goal)[0].split(",")] if "[" in goal else []
    wanted = wanted or [int(re.findall(r"Select (-?\d+)", goal)[0])]
    for slider, value in zip(find(seen, "slider"), wanted, strict=True):
        left = value - int(slider.value or 0)
        if left:
            yield WEB.make("click", x=middle(slider)[0], y=middle(slider)[1])
            for _ in range(abs(left)):
                yield WEB.make("press_keys", keys="right" if left > 0 else "left")
            return
    yield press(seen)


def copy(goal: str, seen: Observation) -> Plan:
    number = re.search(r"(\d)(?:st|nd|rd|th) text", goal)
    full = [one for one in find(seen, "input") if one.value]
    source = full[int(number[1]) - 1 if number else 0]
    target = next(one for one in find(seen, "input") if not one.value)
    yield WEB.make("click", id=source.index)
    yield WEB.make("press_keys", keys="ctrl+a")
    yield WEB.make("press_keys", keys="ctrl+c")
    yield WEB.make("click", id=target.index)
    yield WEB.make("press_keys", keys="ctrl+v")
    yield press(seen)


PAGES: dict[str, Callable[[str, Observation], Plan]] = {
    "copy-paste": copy,
    "copy-paste-2": copy,
    "drag-box": drag_box,
    "drag-circle": drag_in_direction,
    "drag-shapes": drag_shapes,
    "drag-single-shape": drag_in_direction,
    "drag-sort-numbers": sort_numbers,
    "draw-line": draw,
    "highlight-text": drag_over_text,
    "highlight-text-2": drag_over_text,
    "resize-textarea": resize,
    "right-angle": add_point,
    "use-slider": slide,
    "use-slider-2": slide,
}
"""Page → plan of the present screen, by the pointer."""
LIKE_OTHERS = ("copy-paste-2", "drag-circle", "highlight-text-2", "use-slider-2")
"""Pages that the plan of another one solves."""


def test_no_solution_by_elements_is_known() -> None:
    assert not PAGES.keys() & SOLVED


@pytest.mark.medium
@pytest.mark.browser
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LIKE_OTHERS else name for name in PAGES]
)
def test_a_page_is_solved(play: Callable[[Check], None], name: str) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        for seed in SEEDS:
            seen = await environment.reset(replace(suite.instance(name, seed), max_steps=60))
            goal, done = environment.goal(), None
            for _ in range(40):
                for action in PAGES[name](goal, seen):
                    done = await environment.step(action)
                    if done.done:
                        break
                assert done is not None
                if done.done:
                    break
                seen = done.observation
            assert done is not None
            least = 0.8 if name == "right-angle" else 1.0  # the nearer, the more: pixels are whole
            assert float(str(done.info["raw_reward"])) >= least, (name, seed, goal, done.info, done.observation.text)

    play(check)
