"""The built-in apps: modules with an `APP`, listed here; docs/simphone.md shows how an app comes from outside."""

from __future__ import annotations

from collections.abc import Iterable

from collab.envs.simphone.app import App, Apps, combine_apps
from collab.envs.simphone.apps import (
    calendar,
    camera,
    clipper,
    clock,
    contacts,
    dialer,
    expense,
    files,
    joplin,
    markor,
    messages,
    recipe,
    settings,
    system,
    todos,
)
from collab.envs.simphone.apps.launcher import launcher
from collab.envs.simphone.apps.system import TEXT_MENU

INSTALLED: tuple[App, ...] = (
    calendar.APP,
    camera.APP,
    clipper.APP,
    clock.APP,
    contacts.APP,
    dialer.APP,
    expense.APP,
    files.APP,
    joplin.APP,
    markor.APP,
    messages.APP,
    recipe.APP,
    settings.APP,
    todos.APP,
)
"""In the order of their names."""


def build_apps(apps: Iterable[App]) -> Apps:
    """Combine apps, their launcher and the system's own screens; ConfigError when two clash."""
    apps = tuple(apps)
    return combine_apps(launcher(apps), apps, system.SCREENS)


STANDARD = build_apps(INSTALLED)
"""What is on every phone by default."""

__all__ = ["INSTALLED", "STANDARD", "TEXT_MENU", "phone_with"]
