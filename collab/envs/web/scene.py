"""What a scripted solution may look at, and what it may say: the words that solutions are written in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from collab.types import Element


class Deed(NamedTuple):
    """An action that was carried out in this episode."""

    type: str
    element: Element | None
    """Its target as it was then; None for an action without one."""


class Move(NamedTuple):
    """What to do next, whatever the action space calls it."""

    element: Element | None
    verb: str = "click"
    """click, type, choose or wait."""
    text: str = ""


class Lost(Exception):
    """The screen does not show what the solution looks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a solution may look at."""

    goal: str
    elements: tuple[Element, ...]
    deeds: tuple[Deed, ...]

    def all(self, *roles: str, label: str | None = None) -> list[Element]:
        """Elements of these roles (any role when none is given), of exactly this label when one is given."""
        fits = (element for element in self.elements if not roles or element.role in roles)
        return [element for element in fits if label is None or element.label == label]

    def one(self, *roles: str, label: str | None = None, nth: int = 0) -> Element:
        """The nth of them."""
        found = self.all(*roles, label=label)
        if not 0 <= nth < len(found):
            raise Lost(f"no {roles} {label!r} number {nth}")
        return found[nth]

    def after(self, label: str, *roles: str) -> Element:
        """The first of these roles that follows a text."""
        at = self.one(label=label).index
        for element in self.elements[at + 1 :]:
            if element.role in roles:
                return element
        raise Lost(f"no {roles} after {label!r}")

    def quoted(self, nth: int = 0) -> str:
        """The nth text in quotation marks of the goal."""
        return self.told(r'"([^"]*)"', nth)

    def told(self, pattern: str, nth: int = 0) -> str:
        """The group of a pattern's nth match in the goal."""
        found = re.findall(pattern, self.goal)
        if nth >= len(found):
            raise Lost(f"the goal has no {pattern!r}")
        return str(found[nth])

    def clicked(self, among: Iterable[Element]) -> list[str]:
        """Keys of those of these elements that were clicked, in order, one entry per click.

        Raises:
            Lost: a key press may have clicked, too, and cannot be told.
        """
        keys = {element.key for element in among}
        if any(deed.type == "keyboard_enter" for deed in self.deeds):
            raise Lost("Enter clicks what has the focus")
        hits = [(deed.element.key, CLICKS.get(deed.type, 0)) for deed in self.deeds if deed.element]
        return [key for key, times in hits if key in keys for _ in range(times)]


CLICKS = {"click": 1, "long_press": 1, "double_tap": 2}
"""How often a deed clicks."""

Solution = Callable[[Scene], Iterable[Move]]


def fill(field: Element, text: str) -> Iterator[Move]:
    """Type unless it stands there; of a password only the length can be seen."""
    shown = "•" * len(text) if "password" in field.flags else " ".join(text.split())
    if field.value != shown:
        yield Move(field, "type", text)


def submit(scene: Scene, label: str = "Submit") -> Move:
    """Click the button of this name."""
    return Move(scene.one("button", "link", "item", label=label))
