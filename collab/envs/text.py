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

from collab.types import Element, ElementTarget, Observation, Point, Target

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line separators and half characters; joiners inside emoji and scripts stay."""

MAX_LABEL, MAX_VALUE, MAX_TITLE, MAX_NOTICE = 1000, 12_000, 200, 400
"""Characters of texts of a phone that an observation tells; tasks ask for what is in files of up to 11,155."""

MAX_ELEMENTS = 600
"""Elements that an observation tells."""

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
