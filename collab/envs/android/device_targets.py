"""Find what an agent aimed at again on the screen, when it is about to be touched.

A team takes seconds or minutes to agree on an action, and a phone's screen changes by itself meanwhile. So the screen
is looked at again before a touch: the action hits the element that was seen, wherever it is now, or nothing.

An element is the one that was seen if the screen is still the same (app, title, size, four fifths of its elements;
numbers in texts may tick) and its role, label, resource id and other texts are. What is written above it must not have
been replaced, as the question above "OK". Of several such elements it is the one between the same neighbours, and it
must not be covered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from collab.envs.android.device_guard import TOUCHING
from collab.envs.grammar import MOBILE
from collab.envs.text import find_element_at
from collab.types import Action, Element, ElementTarget, Observation, Point

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_KEPT = 0.8
"""Part of a screen that must still be there."""
_SET_BY_USE = frozenset({"input", "slider", "progress", "spinner", "switch", "checkbox", "radio"})
"""Roles whose value is a state, not a part of what the element is."""
_WORDS_ABOVE = 3
"""Number of the nearest texts above an element that say what it is about."""
_CLOCK = re.compile(r"-?\d+(:\d\d)+([.,]\d+)?")
"""A label that ticks."""
_TICKING = re.compile(
    r"\d+(:\d\d)+([.,]\d+)?|\d+([.,]\d+)?(?= ?(%|(s|secs?|seconds?|min|minutes?|[kKMG]?B|unread|new)\b))"
)
"""Numbers of a text that change by themselves: clocks, durations, progress and counts of what is unread. Any other
number says what a text is about: a telephone number, an amount, an order."""
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
    end = MOBILE.find_end(action)
    if isinstance(end, ElementTarget) and end.index < len(before.elements):
        over = _find_element(before.elements[end.index], before, now)
        if over is None:
            return None
        action = replace(action, arguments=(("to_index", over.index),))
    if isinstance(action.target, ElementTarget):
        if action.target.index >= len(before.elements):
            return action  # aims at nothing, whatever the screen shows
        found = _find_element(before.elements[action.target.index], before, now)
        return None if found is None else replace(action, target=ElementTarget(index=found.index))
    if isinstance(action.target, Point):
        return _find_point(action, action.target, before, now)
    # Without a target, keys go to the focused field: another question above it makes it another field.
    focused = _find_focused(before)
    if focused is None:
        return action if _find_focused(now) is None else None
    found = _find_element(focused, before, now)
    return action if found is not None and "focused" in found.flags else None


def has_same_look(action: Action, before: NDArray[np.uint8], now: NDArray[np.uint8]) -> bool:
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
    if (before.width, before.height) != (now.width, now.height) or _strip_ticks(before.title) != _strip_ticks(
        now.title
    ):
        return False
    seen, there = Counter(map(_shape, before.elements)), Counter(map(_shape, now.elements))
    return (seen & there).total() >= _KEPT * seen.total()


def _find_element(element: Element, before: Observation, now: Observation) -> Element | None:
    """Return the same element on the present screen; None when it is gone, covered or ambiguous."""
    if _is_reworded(element, before, now):
        return None
    twins, found = (_list_alike(element, screen, before) for screen in (before, now))
    if not found and _CLOCK.fullmatch(element.label):
        found = [one for one in now.elements if _shape(one) == _shape(element) and one.box == element.box]
    if max(len(twins), len(found)) > 1:
        found = _match_by_neighbours(element, twins, found, before, now)
    if len(found) != 1:
        return None
    return found[0] if _find_topmost(element, before) == _find_topmost(found[0], now) else None


def _list_alike(element: Element, screen: Observation, before: Observation) -> list[Element]:
    """Return the elements of a screen that may be this one of the screen `before`."""
    alike = [one for one in screen.elements if _identify(one) == _identify(element)]
    if element.role in _SET_BY_USE:
        return alike
    exact = [one for one in alike if one.value == element.value]
    if exact or sum(_is_worded_alike(element, one) for one in before.elements) > 1:
        return exact
    # A clock or a count may tick where it tells no twins apart.
    return [one for one in alike if _is_worded_alike(element, one)]


def _is_worded_alike(one: Element, other: Element) -> bool:
    """Return whether two elements differ at most by what ticks in their value."""
    return _identify(one) == _identify(other) and _strip_ticks(one.value or "") == _strip_ticks(other.value or "")


def _is_reworded(element: Element, before: Observation, now: Observation) -> bool:
    """Return whether another text stands in the place of one of those above an element."""
    above = [one for one in before.elements[: element.index] if one.role in ("text", "heading")][-_WORDS_ABOVE:]
    seen, there = set(map(_word, before.elements)), set(map(_word, now.elements))
    gone = {_find_height(one) for one in above if _word(one) not in there}
    return any(_find_height(one) in gone and _word(one) not in seen for one in now.elements)


def _find_height(element: Element) -> tuple[str, str, int | None]:
    """Return where a text begins; its width and left edge depend on its words."""
    return element.role, element.key, None if element.box is None else element.box.top


def _match_by_neighbours(
    element: Element, twins: Sequence[Element], found: Sequence[Element], before: Observation, now: Observation
) -> list[Element]:
    """Return those of several equal elements whose neighbours are those of the one that was seen."""
    if [(_identify(one), one.box) for one in before.elements] == [(_identify(one), one.box) for one in now.elements]:
        return [one for one in found if one.index == element.index]
    around = _find_neighbours(element, twins, before)
    if sum(_do_agree(around, _find_neighbours(one, twins, before)) for one in twins) > 1:
        return []
    return [one for one in found if _do_agree(around, _find_neighbours(one, found, now))]


def _find_neighbours(
    element: Element, twins: Sequence[Element], screen: Observation
) -> tuple[list[Identity], list[Identity]]:
    """Return what stands between an element and its twins: before it, nearest first, and behind it."""
    first = max((one.index for one in twins if one.index < element.index), default=-1)
    last = min((one.index for one in twins if one.index > element.index), default=len(screen.elements))
    ahead = [_identify(one) for one in screen.elements[first + 1 : element.index]]
    return ahead[::-1], [_identify(one) for one in screen.elements[element.index + 1 : last]]


def _do_agree(one: tuple[list[Identity], list[Identity]], other: tuple[list[Identity], list[Identity]]) -> bool:
    """Check that neighbours are equal as far as both are there, on at least one side."""
    pairs = [list(zip(mine, theirs, strict=False)) for mine, theirs in zip(one, other, strict=True)]
    return any(pairs) and all(mine == theirs for side in pairs for mine, theirs in side)


def _find_point(action: Action, point: Point, before: Observation, now: Observation) -> Action | None:
    """Return an action on a point, which moves with the surface that it lies on."""
    surface = find_element_at(before, point.x, point.y)
    if surface is None or surface.box is None:
        return action if find_element_at(now, point.x, point.y) is None else None
    found = _find_element(surface, before, now)
    if found is None or found.box is None:
        return None
    x, y = point.x + found.box.left - surface.box.left, point.y + found.box.top - surface.box.top
    return replace(action, target=replace(point, x=x, y=y)) if found.box.contains(x, y) else None


def _find_topmost(element: Element, screen: Observation) -> Identity | None:
    """Return what a touch in the middle of an element would hit."""
    if element.box is None:
        return None
    hit = find_element_at(screen, *element.box.center)
    return None if hit is None else _shape(hit)


def _find_focused(screen: Observation) -> Element | None:
    return next((one for one in screen.elements if "focused" in one.flags), None)


def _identify(element: Element) -> Identity:
    return element.role, element.label, element.key


def _shape(element: Element) -> Identity:
    return element.role, _strip_numbers(element.label), element.key


def _word(element: Element) -> Identity:
    return element.role, _strip_ticks(element.label), element.key


def _strip_numbers(text: str) -> str:
    return re.sub(r"\d+([.,]\d+)*", "0", text)


def _strip_ticks(text: str) -> str:
    return _TICKING.sub("0", text)
