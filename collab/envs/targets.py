"""What an action points at: the element under a point, and the words for it."""

from __future__ import annotations

import math

from collab.envs.text import flat
from collab.types import Element, ElementTarget, Observation, Point, Target


def locate(point: Point, observation: Observation) -> Target:
    """The element that a point means, or the point in whole pixels where it means none (outside all, on a surface)."""
    x, y = point.x, point.y
    if point.space == "normalised":
        x, y = min(x * observation.width, observation.width - 1), min(y * observation.height, observation.height - 1)
    x, y = math.floor(x), math.floor(y)
    element = element_at(observation, x, y)
    if element is None or "surface" in element.flags:
        return Point(x=x, y=y)
    return ElementTarget(index=element.index)


def element_at(observation: Observation, x: float, y: float) -> Element | None:
    """The innermost element that contains a pixel: smallest box, of equal ones the last; None outside all."""
    inside = [element for element in observation.elements if element.box is not None and element.box.contains(x, y)]
    return min(inside, key=lambda element: (element.box.area if element.box else 0, -element.index), default=None)


def target_words(target: Target | None, observation: Observation | None) -> str:
    """A target for people: an element by role and label, by its index where it is not on the screen."""
    if target is None:
        return ""
    if isinstance(target, Point):
        unit = "" if target.space == "pixel" else " of the screen"
        return f"({target.x:g}, {target.y:g}){unit}"
    if observation is None or target.index >= len(observation.elements):
        return f"element {target.index}"
    element = observation.elements[target.index]
    label = flat(element.label)
    return f'{element.role} "{label}"' if label else f"{element.role} without a label"
