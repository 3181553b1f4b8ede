"""Apps of the phone: a package with its names, its screens and its data on a fresh phone.

Screens consist of nodes, which define their look and the effect of a touch, and the view around them.

A screen function returns a `View`; only `layout` knows where things end up. A node carries its own handlers,
so reading one screen function tells everything about the screen.

Long-press selection of list entries, as file managers do it: the first press selects, taps then add and remove.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from collab.envs.simphone.state import EMPTY, Handler, Page, Phone, Table, keep
from collab.errors import ConfigError


class UiNode(NamedTuple):
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


class NodeLine(NamedTuple):
    """Several nodes on one line."""

    nodes: tuple[UiNode, ...]
    split: bool = True
    """True: side by side, equally wide. False: the first is as wide as the screen and the others lie on its right
    end."""
    columns: int = 0
    """Number of equally wide columns of which `nodes` fill the first; 0: as many as there are nodes."""


Item: TypeAlias = UiNode | NodeLine


@dataclass(slots=True, kw_only=True)
class View:
    """A screen, before anything has a place."""

    title: str
    """What the app bar or the dialog says."""
    body: list[Item]
    """Scrolls when it does not fit."""
    actions: tuple[UiNode, ...] = ()
    """Icons on the right of the app bar; in a dialog its buttons."""
    navigation: UiNode | None = None
    """Icon on the left of the app bar; None for the usual arrow on every page but the first."""
    footer: Item | None = None
    """Fixed at the bottom: tabs, a compose line."""
    fab: UiNode | None = None
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


ScreenFunction: TypeAlias = Callable[[Phone, Page], View]
"""A pure function of the state."""


def line(*nodes: UiNode) -> NodeLine:
    """Build nodes side by side."""
    return NodeLine(nodes)


def row(main: UiNode, *controls: UiNode) -> NodeLine:
    """Build a node with small controls on its right end."""
    return NodeLine((main, *controls), split=False)


def heading(label: str, key: str) -> UiNode:
    """Build a title or section header."""
    return UiNode("heading", label, key)


def text(label: str, key: str, *, value: str | None = None, hold: Handler | None = None) -> UiNode:
    """Build a text that is only read."""
    return UiNode("text", label, key, value, hold=hold)


def button(label: str, key: str, tap: Handler) -> UiNode:
    """Build a button with words on it."""
    return UiNode("button", label, key, None, (), tap)


def icon(label: str, key: str, tap: Handler) -> UiNode:
    """Build a button with a picture on it; the label is its content description."""
    return UiNode("icon", label, key, None, (), tap)


def item(
    label: str,
    key: str,
    tap: Handler | None,
    *,
    value: str | None = None,
    hold: Handler | None = None,
    selected: bool = False,
) -> UiNode:
    """Build a list item; `value` is its second line."""
    return UiNode("list item", label, key, value, ("selected",) if selected else (), tap, hold)


def spinner(label: str, key: str, value: str, tap: Handler) -> UiNode:
    """Build a field that shows one of several choices; `tap` opens the others."""
    return UiNode("spinner", label, key, value, tap=tap)


def switch(label: str, key: str, on: bool, tap: Handler, *, value: str | None = None) -> UiNode:
    """Build a switch with its label."""
    return UiNode("switch", label, key, value, ("checked",) if on else (), tap)


def radio(label: str, key: str, on: bool, tap: Handler) -> UiNode:
    """Build one of several choices."""
    return UiNode("radio", label, key, None, ("checked",) if on else (), tap)


def tab(label: str, key: str, selected: bool, tap: Handler) -> UiNode:
    """Build a tab."""
    return UiNode("tab", label, key, None, ("selected",) if selected else (), tap)


def slider(label: str, key: str, position: float, slide: Callable[[Phone, float], Phone]) -> UiNode:
    """Build a slider; `position` in [0, 1]."""
    return UiNode("slider", label, key, f"{round(position * 100)}%", (), slide=slide)


def text_field(
    page: Page, field: str, label: str, key: str, *, enter: Handler | None = None, multiline: bool = False
) -> UiNode:
    """Build a text field that edits `page.fields[field]`; the label is its hint."""
    content = page.fields.get(field, "")
    return UiNode("input", label, key, content, field=field, enter=enter, multiline=multiline)


def grid(nodes: list[UiNode], columns: int) -> list[Item]:
    """Build nodes in rows of `columns`, the last row filled from the left."""
    return [NodeLine(tuple(nodes[start : start + columns]), columns=columns) for start in range(0, len(nodes), columns)]


ItemT = TypeVar("ItemT")


def _do_nothing(phone: Phone, rng: random.Random) -> Phone:
    return phone


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One installed app."""

    package: str
    names: tuple[str, ...]
    """The visible name first, then others that `open_app` understands."""
    activity: str
    """Class name of the main activity, relative to the package or complete."""
    pages: tuple[Page, ...]
    """Back stack of a fresh start."""
    screens: Mapping[str, ScreenFunction]
    """By name; names are unique over all apps ("contacts.editor")."""
    tables: tuple[Table, ...] = ()
    """Tables of its databases."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Values of the settings tables on a fresh phone."""
    noise: Callable[[Phone, random.Random], Phone] = _do_nothing
    """Adds data that no task asks about."""
    version: str = "1"
    """Version of an app from outside. It must change whenever screens or handlers do, so that old episodes are not
    rebuilt on it."""

    @property
    def name(self) -> str:
        """The visible name."""
        return self.names[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Apps:
    """The apps of a phone, found by what is known of them."""

    all: tuple[App, ...]
    """The launcher first."""
    by_package: Mapping[str, App]
    by_name: Mapping[str, App]
    """Every name `open_app` understands, in lower case; the launcher has none."""
    screens: Mapping[str, ScreenFunction]
    """Those that belong to no app included."""
    tables: Mapping[str, tuple[Table, ...]]
    """Tables of every database, by the path of its file."""


def combine_apps(launcher: App, installed: Iterable[App], shared: Mapping[str, ScreenFunction] = EMPTY) -> Apps:
    """Return the apps of one phone.

    Args:
        shared: screens that belong to no app.

    Raises:
        ConfigError: two of them share a package, a name, a screen or a table.
    """
    installed = tuple(installed)
    every = (launcher, *installed)
    tables = [table for app in every for table in app.tables]
    _check_unique("table", [(f"{table.name} of {table.path}", table) for table in tables])
    return Apps(
        all=every,
        by_package=_check_unique("package", [(app.package, app) for app in every]),
        by_name=_check_unique("name", [(name.casefold(), app) for app in installed for name in app.names]),
        screens=_check_unique("screen", [*shared.items(), *(pair for app in every for pair in app.screens.items())]),
        tables={table.path: tuple(one for one in tables if one.path == table.path) for table in tables},
    )


def _check_unique(what: str, pairs: list[tuple[str, ItemT]]) -> dict[str, ItemT]:
    found: dict[str, ItemT] = {}
    for name, item in pairs:
        if name in found:
            raise ConfigError(f"two apps of one phone have the {what} {name!r}; give one of them another")
        found[name] = item
    return found


def list_selected(page: Page) -> tuple[str, ...]:
    """Return what is selected, in the order of selection; empty outside the selection mode."""
    selected: tuple[str, ...] = page.data.get("chosen", ())
    return selected


def toggle(phone: Phone, name: str) -> Phone:
    """Select an entry of the page on top, or take it out again."""
    now = list_selected(phone.page)
    return select(phone, tuple(one for one in now if one != name) if name in now else (*now, name))


def select(phone: Phone, names: tuple[str, ...]) -> Phone:
    """Select exactly these entries."""
    return keep(phone, chosen=names)


def unselect(phone: Phone) -> Phone:
    """End the selection mode."""
    return select(phone, ())
