"""What screens are made of: nodes that say what they look like and what a touch does, and the view around them.

A screen function returns a `View`; nobody but `layout` knows where things end up. A node carries its own handlers,
so reading one screen function tells everything about the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from collab.envs.phone.state import EMPTY, Handler, Page, Phone


class Node(NamedTuple):
    """One thing on a screen."""

    role: str
    label: str
    key: str
    """Resource id, unique on its screen."""
    value: str | None = None
    """Text of an input, second line of a list item, position of a slider."""
    flags: tuple[str, ...] = ()
    """Besides those that follow from the rest (focused, long-clickable, surface)."""
    tap: Handler | None = None
    hold: Handler | None = None
    """Long press; None: the same as a tap."""
    field: str | None = None
    """Name of the page's field that an input edits."""
    enter: Handler | None = None
    """What the Enter key does in a single-line input; None: on to the next input, or the keyboard closes."""
    multiline: bool = False
    slide: Callable[[Phone, float], Phone] | None = None
    """Slider: set the position, 0 at the left end and 1 at the right."""
    height: int = 0
    """In pixels; 0 for the usual height of its role."""
    swipes: Mapping[str, Handler] = EMPTY
    """What a finger does that starts on it, by its direction, instead of scrolling what lies around."""
    picture: str = ""
    """What the picture of an icon or an app shows, where the label says it in other words; empty: the label."""


class Line(NamedTuple):
    """Several nodes on one line."""

    nodes: tuple[Node, ...]
    split: bool = True
    """True: side by side, equally wide. False: the first is as wide as the screen and the others lie on its right
    end."""
    columns: int = 0
    """Of how many equally wide columns `nodes` fill the first; 0: as many as there are nodes."""


Item: TypeAlias = Node | Line


@dataclass(slots=True, kw_only=True)
class View:
    """A screen, before anything has a place."""

    title: str
    """What the app bar or the dialog says."""
    body: list[Item]
    """Scrolls when it does not fit."""
    actions: tuple[Node, ...] = ()
    """Icons on the right of the app bar; in a dialog its buttons."""
    navigation: Node | None = None
    """Icon on the left of the app bar; None for the usual arrow on every page but the first."""
    footer: Item | None = None
    """Fixed at the bottom: tabs, a compose line."""
    fab: Node | None = None
    """Floating button at the bottom right."""
    style: Literal["screen", "plain", "dialog", "menu", "sheet", "shade", "overview"] = "screen"
    """"plain" is a screen without an app bar; so are the system's "shade" and "overview", which look different."""
    back: Handler | None = None
    """What back does; None: close the page."""
    leave: Handler | None = None
    """What happens when the page goes out of sight by back, home or another app; None: nothing."""
    swipes: Mapping[str, Handler] = field(default_factory=lambda: EMPTY)
    """What a finger does, by its direction, where nothing can be scrolled that way."""
    package: str | None = None
    """Package the page belongs to; None: the foreground app (permission dialogs belong to the system)."""


Screen: TypeAlias = Callable[[Phone, Page], View]
"""A pure function of the state."""


def line(*nodes: Node) -> Line:
    """Nodes side by side."""
    return Line(nodes)


def row(main: Node, *controls: Node) -> Line:
    """A node with small controls on its right end."""
    return Line((main, *controls), split=False)


def heading(label: str, key: str) -> Node:
    """A title or section header."""
    return Node("heading", label, key)


def text(label: str, key: str, *, value: str | None = None, hold: Handler | None = None) -> Node:
    """Text that is only read."""
    return Node("text", label, key, value, hold=hold)


def button(label: str, key: str, tap: Handler, *, enabled: bool = True) -> Node:
    """A button with words on it."""
    return Node("button", label, key, None, () if enabled else ("disabled",), tap)


def icon(label: str, key: str, tap: Handler) -> Node:
    """A button with a picture on it; the label is its content description."""
    return Node("icon", label, key, None, (), tap)


def item(
    label: str,
    key: str,
    tap: Handler | None,
    *,
    value: str | None = None,
    hold: Handler | None = None,
    selected: bool = False,
) -> Node:
    """A list item; `value` is its second line."""
    return Node("list item", label, key, value, ("selected",) if selected else (), tap, hold)


def spinner(label: str, key: str, value: str, tap: Handler) -> Node:
    """A field that shows one of several choices; `tap` opens the others."""
    return Node("spinner", label, key, value, tap=tap)


def switch(label: str, key: str, on: bool, tap: Handler, *, value: str | None = None) -> Node:
    """A switch with its label."""
    return Node("switch", label, key, value, ("checked",) if on else (), tap)


def radio(label: str, key: str, on: bool, tap: Handler) -> Node:
    """One of several choices."""
    return Node("radio", label, key, None, ("checked",) if on else (), tap)


def tab(label: str, key: str, selected: bool, tap: Handler) -> Node:
    """A tab."""
    return Node("tab", label, key, None, ("selected",) if selected else (), tap)


def slider(label: str, key: str, position: float, slide: Callable[[Phone, float], Phone]) -> Node:
    """A slider; `position` in [0, 1]."""
    return Node("slider", label, key, f"{round(position * 100)}%", (), slide=slide)


def text_field(
    page: Page, field: str, label: str, key: str, *, enter: Handler | None = None, multiline: bool = False
) -> Node:
    """A text field that edits `page.fields[field]`; the label is its hint."""
    content = page.fields.get(field, "")
    return Node("input", label, key, content, field=field, enter=enter, multiline=multiline)


def grid(nodes: list[Node], columns: int) -> list[Item]:
    """Nodes in rows of `columns`, the last row filled from the left."""
    return [Line(tuple(nodes[start : start + columns]), columns=columns) for start in range(0, len(nodes), columns)]
