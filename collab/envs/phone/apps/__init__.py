"""All installed apps. A new app is one module (or folder) with an `APP`, and one line here."""

from __future__ import annotations

from collab.envs.phone.app import App
from collab.envs.phone.apps import (
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
from collab.envs.phone.apps.launcher import launcher
from collab.envs.phone.apps.system import TEXT_MENU
from collab.envs.phone.widgets import Screen

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
"""What the app drawer shows."""

APPS: tuple[App, ...] = (launcher(INSTALLED), *INSTALLED)
BY_PACKAGE = {app.package: app for app in APPS}
BY_NAME = {name.casefold(): app for app in INSTALLED for name in app.names}
"""Every name `open_app` understands, in lower case."""
SCREENS: dict[str, Screen] = {
    **system.SCREENS,
    **{name: screen for app in APPS for name, screen in app.screens.items()},
}

__all__ = ["APPS", "BY_NAME", "BY_PACKAGE", "INSTALLED", "SCREENS", "TEXT_MENU"]
