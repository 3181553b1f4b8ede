"""What an app is: a package, its names, its screens and what it puts on a fresh phone; and the apps of a phone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from collab.envs.phone.databases import Table
from collab.envs.phone.state import EMPTY, Page, Phone
from collab.envs.phone.widgets import Screen
from collab.errors import ConfigError

ItemT = TypeVar("ItemT")


def _nothing(phone: Phone, rng: random.Random) -> Phone:
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
    screens: Mapping[str, Screen]
    """By name; names are unique over all apps ("contacts.editor")."""
    tables: tuple[Table, ...] = ()
    """Tables of its databases."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Values of the settings tables on a fresh phone."""
    noise: Callable[[Phone, random.Random], Phone] = _nothing
    """Adds data that no task asks about."""
    version: str = "1"
    """Of an app from outside: changes whenever its screens or handlers do, so that old episodes are not rebuilt on
    it."""

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
    screens: Mapping[str, Screen]
    """Those that belong to no app included."""
    tables: Mapping[str, tuple[Table, ...]]
    """Tables of every database, by the path of its file."""


def together(launcher: App, installed: Iterable[App], shared: Mapping[str, Screen] = EMPTY) -> Apps:
    """The apps of one phone.

    Args:
        shared: screens that belong to no app.

    Raises:
        ConfigError: two of them share a package, a name, a screen or a table.
    """
    installed = tuple(installed)
    every = (launcher, *installed)
    tables = [table for app in every for table in app.tables]
    _unique("table", [(f"{table.name} of {table.path}", table) for table in tables])
    return Apps(
        all=every,
        by_package=_unique("package", [(app.package, app) for app in every]),
        by_name=_unique("name", [(name.casefold(), app) for app in installed for name in app.names]),
        screens=_unique("screen", [*shared.items(), *(pair for app in every for pair in app.screens.items())]),
        tables={table.path: tuple(one for one in tables if one.path == table.path) for table in tables},
    )


def _unique(what: str, pairs: list[tuple[str, ItemT]]) -> dict[str, ItemT]:
    found: dict[str, ItemT] = {}
    for name, item in pairs:
        if name in found:
            raise ConfigError(f"two apps of one phone have the {what} {name!r}; give one of them another")
        found[name] = item
    return found
