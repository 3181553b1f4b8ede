"""The home screen and the drawer with all apps."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import partial

from collab.envs.simphone.app import App, UiNode, View, grid, line, text, text_field
from collab.envs.simphone.apps.system import open_shade
from collab.envs.simphone.distractions.looks import name_app
from collab.envs.simphone.state import LAUNCHER, Handler, Page, Phone, pop, push, start

_ID = LAUNCHER + ":id/"
_DOCK = ("Phone", "Simple SMS Messenger", "Contacts", "Camera", "Settings")


def launcher(apps: Sequence[App]) -> App:
    """Return the launcher of a phone that has `apps`."""
    # Sorted as the real drawer sorts; the dock keeps its own order.
    in_order = sorted(apps, key=lambda app: app.name.casefold())
    dock = [app for name in _DOCK for app in apps if app.name == name]

    def home(phone: Phone, page: Page) -> View:
        # UTC: the phone's clock has no zone, and runs must not depend on the machine's.
        date = datetime.datetime.fromtimestamp(phone.now_ms / 1000, tz=datetime.UTC)
        return View(
            title="Home",
            style="plain",
            body=[text(f"{date:%a}, {date:%b} {date.day}", _ID + "clock")],
            footer=line(*(_app(app, "hotseat") for app in dock)),
            swipes={"up": _open_drawer, "down": open_shade},
        )

    def drawer(phone: Phone, page: Page) -> View:
        wanted = page.fields.get("search", "").strip().casefold()
        # Searched by the real name and by the one shown, which may be reworded.
        shown = (f"{app.name}\n{name_app(app.name, phone.manner)}".casefold() for app in in_order)
        found = [app for app, names in zip(in_order, shown, strict=True) if wanted in names]
        # Enter opens the first match, as on a real phone.
        first: Handler | None = _launcher_of(found[0]) if found else None
        search = text_field(page, "search", "Search apps", _ID + "search_container_all_apps", enter=first)
        return View(
            title="All apps",
            style="plain",
            body=[search, *grid([_app(app, "app") for app in found], columns=4)],
            swipes={"down": pop},
        )

    return App(
        package=LAUNCHER,
        names=("Home",),
        activity=".NexusLauncherActivity",
        pages=(Page(screen="launcher.home"),),
        screens={"launcher.home": home, "launcher.drawer": drawer},
    )


def _open_drawer(phone: Phone) -> Phone:
    return push(phone, Page(screen="launcher.drawer"))


def _launcher_of(app: App) -> Handler:
    return partial(start, package=app.package, pages=app.pages)


def _app(app: App, place: str) -> UiNode:
    return UiNode("app", app.name, f"{_ID}{place}/{app.package}", tap=_launcher_of(app))
