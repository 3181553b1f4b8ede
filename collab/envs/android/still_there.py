"""Whether what an agent aimed at is still on the screen, when it is about to be touched.

A team takes seconds or minutes to agree on an action, and a phone's screen changes by itself meanwhile. So the screen
is looked at again before a touch: the action hits the element that was seen, wherever it is now, or nothing.

An element is the one that was seen if the screen is still the same (app, title, size, four fifths of its elements;
numbers in texts may tick) and its role, label and resource id are. Of several such elements it is the one between the
same neighbours, and it must not be covered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from collab.envs.android.device_guard import TOUCHING
from collab.envs.targets import element_at
from collab.types import Action, Element, ElementTarget, Observation, Point

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHANGED = "the screen changed; nothing happened"
"""What the history tells of an action whose target is gone."""
_KEPT = 0.8
"""Part of a screen that must still be there."""
_CLOCK = re.compile(r"-?\d+(:\d\d)+([.,]\d+)?")
"""A label that ticks."""
_NEAR = 0.05
"""Half the side of the square around a point that must look the same, as a part of the picture's width."""
_NEAR_KEPT = 0.97
"""Part of that square that must: a blinking caret may differ."""
_TOLERANCE = 24
"""Difference of two colours, of 255, that pictures of the same screen may have."""

Identity: TypeAlias = tuple[str, str, str]


def find_again(action: Action, before: Observation, now: Observation) -> Action | None:
    """Return the action aimed at the same thing on the present screen.

    Args:
        action: a canonical one on the screen `before`. Actions that touch nothing come back as they are.
        before: the screen that the agents saw.
        now: the screen as it is.

    Returns:
        None when what was aimed at is not there any more, or cannot be told from something else.
    """
    if action.type not in TOUCHING:
        return action
    if not _is_same_screen(before, now):
        return None
    if isinstance(action.target, ElementTarget):
        if action.target.index >= len(before.elements):
            return action  # aims at nothing, whatever the screen shows
        found = _find_element(before.elements[action.target.index], before, now)
        return None if found is None else replace(action, target=ElementTarget(index=found.index))
    if isinstance(action.target, Point):
        return _find_point(action, action.target, before, now)
    focused_before, focused_now = _focused(before), _focused(now)
    return action if focused_before == focused_now else None


def looks_the_same(action: Action, before: NDArray[np.uint8], now: NDArray[np.uint8]) -> bool:
    """Check on two pictures that what an action touches still looks as it did.

    Args:
        before: the picture that the agents saw, height × width × 3.
        now: the screen as it is.
    """
    if action.type not in TOUCHING:
        return True
    if before.shape != now.shape:
        return False
    differs = (abs(before.astype("int16") - now.astype("int16")) > _TOLERANCE).any(axis=2)  # height × width
    if 1 - differs.mean() < _KEPT:
        return False
    if not isinstance(action.target, Point):
        return True
    reach, x, y = max(1, round(_NEAR * differs.shape[1])), round(action.target.x), round(action.target.y)
    near = differs[max(0, y - reach) : y + reach + 1, max(0, x - reach) : x + reach + 1]
    return near.size == 0 or bool(1 - near.mean() >= _NEAR_KEPT)


def _is_same_screen(before: Observation, now: Observation) -> bool:
    if (before.width, before.height) != (now.width, now.height) or _without_numbers(before.title) != _without_numbers(
        now.title
    ):
        return False
    seen, there = Counter(map(_shape, before.elements)), Counter(map(_shape, now.elements))
    return (seen & there).total() >= _KEPT * seen.total()


def _find_element(element: Element, before: Observation, now: Observation) -> Element | None:
    """Return the same element on the present screen; None when it is gone, covered or ambiguous."""
    twins = [one for one in before.elements if _identity(one) == _identity(element)]
    found = [one for one in now.elements if _identity(one) == _identity(element)]
    if not found and _CLOCK.fullmatch(element.label):
        found = [one for one in now.elements if _shape(one) == _shape(element) and one.box == element.box]
    if max(len(twins), len(found)) > 1:
        found = _between_the_same(element, twins, found, before, now)
    if len(found) != 1:
        return None
    return found[0] if _on_top(element, before) == _on_top(found[0], now) else None


def _between_the_same(
    element: Element, twins: Sequence[Element], found: Sequence[Element], before: Observation, now: Observation
) -> list[Element]:
    """Return those of several equal elements whose neighbours are those of the one that was seen."""
    if [(_identity(one), one.box) for one in before.elements] == [(_identity(one), one.box) for one in now.elements]:
        return [now.elements[element.index]]
    around = _neighbours(element, twins, before)
    if sum(_agree(around, _neighbours(one, twins, before)) for one in twins) > 1:
        return []
    return [one for one in found if _agree(around, _neighbours(one, found, now))]


def _neighbours(
    element: Element, twins: Sequence[Element], screen: Observation
) -> tuple[list[Identity], list[Identity]]:
    """Return what stands between an element and its twins: before it, nearest first, and behind it."""
    first = max((one.index for one in twins if one.index < element.index), default=-1)
    last = min((one.index for one in twins if one.index > element.index), default=len(screen.elements))
    ahead = [_identity(one) for one in screen.elements[first + 1 : element.index]]
    return ahead[::-1], [_identity(one) for one in screen.elements[element.index + 1 : last]]


def _agree(one: tuple[list[Identity], list[Identity]], other: tuple[list[Identity], list[Identity]]) -> bool:
    """Check that neighbours are equal as far as both are there, on at least one side."""
    pairs = [list(zip(mine, theirs, strict=False)) for mine, theirs in zip(one, other, strict=True)]
    return any(pairs) and all(mine == theirs for side in pairs for mine, theirs in side)


def _find_point(action: Action, point: Point, before: Observation, now: Observation) -> Action | None:
    """Return an action on a point, which moves with the surface that it lies on."""
    surface = element_at(before, point.x, point.y)
    if surface is None or surface.box is None:
        return action if element_at(now, point.x, point.y) is None else None
    found = _find_element(surface, before, now)
    if found is None or found.box is None:
        return None
    x, y = point.x + found.box.left - surface.box.left, point.y + found.box.top - surface.box.top
    return replace(action, target=replace(point, x=x, y=y)) if found.box.contains(x, y) else None


def _on_top(element: Element, screen: Observation) -> Identity | None:
    """Return what a touch in the middle of an element would hit."""
    if element.box is None:
        return None
    hit = element_at(screen, *element.box.center)
    return None if hit is None else _shape(hit)


def _focused(screen: Observation) -> Identity | None:
    return next((_identity(one) for one in screen.elements if "focused" in one.flags), None)


def _identity(element: Element) -> Identity:
    return element.role, element.label, element.key


def _shape(element: Element) -> Identity:
    return element.role, _without_numbers(element.label), element.key


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)
