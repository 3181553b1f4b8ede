"""What an app is: a package, its names, its screens and what it puts on a fresh phone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from collab.envs.phone.databases import Table
from collab.envs.phone.state import Page, Phone
from collab.envs.phone.widgets import Screen


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

    @property
    def name(self) -> str:
        """The visible name."""
        return self.names[0]
