"""A screen with its elements, an action on it, and what changed from one to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from collab.view.shapes.common import Text

Rectangle: TypeAlias = tuple[int, int, int, int]
"""Left, top, right, bottom."""
Spot: TypeAlias = tuple[float, float]
"""x, y."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementView:
    """One thing on the screen; texts are cut at 300 characters, flags beyond ten left out."""

    index: int
    role: str
    label: str
    box: Rectangle | None
    """None when the environment knows no geometry."""
    value: str | None
    flags: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TabView:
    """A browser tab; texts are cut at 300 characters."""

    title: str
    url: str
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What the agents saw."""

    space: str
    """"mobile" or "web"."""
    title: str
    url: str | None
    """None on a phone; as text only, never a link."""
    width: int
    height: int
    tabs: Sequence[TabView]
    notice: str | None
    """What happened beside the screen since the last step."""
    text: Text
    """As the agents read it."""
    elements: Sequence[ElementView]
    more: int
    """Elements beyond the first 2,000, which are left out."""
    picture: str | None
    """Address of its picture, below /api/; None where there is none: draw the elements."""
    unpictured: str | None
    """Why a picture that was taken cannot be shown; None when it can or none was taken."""
    digest: str
    """Equal screens have equal ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenWhole:
    """The long parts of a screen uncut."""

    text: str
    elements: Sequence[ElementView]
    """All of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """An action on the screen of its step."""

    type: str
    """Name in the grammar: "click", "input_text", "scroll" …"""
    words: str
    """For people, its element by label; cut at 300 characters."""
    element: int | None
    """Index of its element; None when it names none."""
    box: Rectangle | None
    """Of that element, where its geometry is known."""
    spot: Spot | None
    """Where it touches: the named point, or the middle of the box; None when it points nowhere."""
    arguments: Mapping[str, str | int | float | bool | None]
    """Texts cut at 300 characters, e.g. {"direction": "down"}, {"text": "Marta"}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """An element before and after."""

    before: ElementView
    after: ElementView


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """From this screen to the next one."""

    same: bool
    """Nothing that an agent can see changed."""
    title: str | None
    url: str | None
    notice: str | None
    """The new ones; None where they are the same, or gone."""
    appeared: Sequence[ElementView]
    gone: Sequence[ElementView]
    changed: Sequence[Changed]
    """Label, value or flags; what only moved is none of these."""
    moved: int
    """Elements that are the same elsewhere."""
    more: int
    """Elements beyond the first 500 each that appeared, went or changed, which are left out."""
