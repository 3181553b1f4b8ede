"""Words for elements: the element that an action points at, and the lines of an observation.

A policy reads one line per element, label before index. A reply that has named an
element then copies the index behind it: a small model learns that in minutes, and never learns the other order.

    button "Save" [7]
    input "Name": "Ada" [8] (focused)
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, TypeAlias

from collab.types import Element, ElementTarget, Observation, Point, Target

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line separators and half characters; joiners inside emoji and scripts stay."""

MAX_LABEL, MAX_VALUE, MAX_TITLE, MAX_NOTICE = 1000, 12_000, 200, 400
"""Characters of texts of a phone that an observation tells; tasks ask for what is in files of up to 11,155."""

MAX_ELEMENTS = 600
"""Elements that an observation tells."""

Direction: TypeAlias = Literal["up", "down", "left", "right"]

_JOINER = "\u200d"
_LONGEST_CHARACTER = 32
"""Code points that a reader may take for one character: a letter with its accents, an emoji with its joiners."""

HIDDEN_FLAGS = frozenset({"surface"})
"""Flags that matter to the canonical form and mean nothing to a reader."""


def format_element(element: Element) -> str:
    """Return one element in one line; line breaks in its text become spaces."""
    label = f' "{flatten(element.label)}"' if element.label else ""
    value = f': "{flatten(element.value)}"' if element.value is not None else ""
    flags = [flag for flag in element.flags if flag not in HIDDEN_FLAGS]
    return f"{element.role}{label}{value} [{element.index}]" + (f" ({', '.join(flags)})" if flags else "")


def describe_screen(title: str, elements: Iterable[Element], extra: Iterable[str] = ()) -> str:
    """Format the screen: title, what the environment adds (tabs, notices), then one line per element."""
    return "\n".join([f"Screen: {flatten(title)}", *extra, *(format_element(element) for element in elements)])


def cut(text: str, length: int) -> str:
    """Return the text on one line, at most `length` characters; "…" at its end says that something was left out."""
    whole = flatten(text[: 20 * length])
    if len(whole) <= length and len(text) <= 20 * length:
        return whole
    return whole[: _find_boundary(whole, min(length - 1, len(whole)))] + "…"


def cut_middle(text: str, length: int) -> str:
    """Return the text, or its beginning and end with the number of characters left out between; about `length` long."""
    if len(text) <= length:
        return text
    begin, end = _find_boundary(text, length * 2 // 3), _find_boundary(text, len(text) - length // 4)
    return f"{text[:begin]} … {end - begin} characters left out … {text[end:]}"


def bound_elements(elements: Iterable[Element]) -> tuple[Element, ...]:
    """Return the first elements, those with long texts cut; the very same ones where nothing is too long."""
    return tuple(bound_element(element) for element, _ in zip(elements, range(MAX_ELEMENTS), strict=False))


def bound_element(element: Element) -> Element:
    """Return the element with its texts cut where they are too long; the very same one where none is."""
    label, value = len(element.label) > MAX_LABEL, len(element.value or "") > MAX_VALUE
    if not (label or value or len(element.key) > MAX_TITLE):
        return element
    shown = cut_middle(element.value, MAX_VALUE) if element.value is not None else None
    return replace(element, label=cut_middle(element.label, MAX_LABEL), value=shown, key=element.key[:MAX_TITLE])


def _find_boundary(text: str, at: int) -> int:
    """Return where a character begins: `at`, or somewhat before it where that lies within one."""
    for place in range(at, max(0, at - _LONGEST_CHARACTER), -1):
        if place >= len(text) or not (_is_joined(text[place]) or text[place - 1] == _JOINER):
            return place
    return at


def _is_joined(character: str) -> bool:
    """Return whether a code point belongs to the character before it: an accent, a joiner, a colour of skin."""
    is_skin = "\U0001f3fb" <= character <= "\U0001f3ff"
    return character == _JOINER or is_skin or unicodedata.category(character).startswith("M")


def flatten(text: str) -> str:
    """Return the text on one line, without characters that cannot be shown or stored."""
    return text if text.isprintable() and "  " not in text else " ".join(_UNPRINTABLE.sub(" ", text).split())


def locate(point: Point, observation: Observation) -> Target:
    """Return the element at a point, or the point in whole pixels outside all elements or on a surface."""
    x, y = point.x, point.y
    if point.space == "normalised":
        x, y = min(x * observation.width, observation.width - 1), min(y * observation.height, observation.height - 1)
    x, y = math.floor(x), math.floor(y)
    element = find_element_at(observation, x, y)
    if element is None or "surface" in element.flags:
        return Point(x=x, y=y)
    return ElementTarget(index=element.index)


def locate_middle(point: Point, observation: Observation) -> Target:
    """Return the element whose middle a drag is aimed at, or the point in whole pixels.

    A point means an element in the inner half of its box. Surfaces are drawn upon, and texts and fields selected from
    point to point: there only the point counts.
    """
    place = Point(x=math.floor(point.x), y=math.floor(point.y))
    element = find_element_at(observation, place.x, place.y)
    if element is None or element.box is None or element.role in _SELECTED:
        return place
    if {"surface", "editable"} & {*element.flags}:
        return place
    (x, y), box = element.box.center, element.box
    is_inner = 4 * abs(place.x - x) <= box.right - box.left and 4 * abs(place.y - y) <= box.bottom - box.top
    return ElementTarget(index=element.index) if is_inner else place


_SELECTED = frozenset({"text", "heading", "input"})
"""Roles whose text is selected by dragging over it."""


def find_direction(start: tuple[float, float], end: tuple[float, float]) -> Direction:
    """Return the direction of a finger that moves from one point to another: that of the longer part of its way."""
    across, down = end[0] - start[0], end[1] - start[1]
    if abs(across) > abs(down):
        return "right" if across > 0 else "left"
    return "down" if down > 0 else "up"


def find_place(target: Target, observation: Observation) -> tuple[float, float] | None:
    """Return the point that a target means, in pixels; None for an element that is not on the screen or has no box."""
    if isinstance(target, ElementTarget):
        box = observation.elements[target.index].box if target.index < len(observation.elements) else None
        return None if box is None else box.center
    scale = (observation.width, observation.height) if target.space == "normalised" else (1, 1)
    return target.x * scale[0], target.y * scale[1]


def find_element_at(observation: Observation, x: float, y: float) -> Element | None:
    """Return the innermost element that contains a pixel: smallest box, of equal ones the last; None outside all."""
    inside = [element for element in observation.elements if element.box is not None and element.box.contains(x, y)]
    return min(inside, key=lambda element: (element.box.area if element.box else 0, -element.index), default=None)


def describe_target(target: Target | None, observation: Observation | None) -> str:
    """Return a target for people: an element by role and label, by its index where it is not on the screen."""
    if target is None:
        return ""
    if isinstance(target, Point):
        unit = "" if target.space == "pixel" else " of the screen"
        return f"({target.x:g}, {target.y:g}){unit}"
    if observation is None or target.index >= len(observation.elements):
        return f"element {target.index}"
    element = observation.elements[target.index]
    label = flatten(element.label)
    return f'{element.role} "{label}"' if label else f"{element.role} without a label"
