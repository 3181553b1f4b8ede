"""The overview of running apps: a page of the launcher with one card per app, the one used last first."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from collab.envs.phone.screen import leave, view_of
from collab.envs.phone.state import LAUNCHER, Page, Phone, close_app, go_home, keep, pop, push, recent_apps, start
from collab.envs.phone.widgets import Node, View, button, grid, line, text

RECENTS = "system.recents"
_LAUNCHER_ID = LAUNCHER + ":id/"
_CARD_COLUMNS, _CARDS = 2, 4
"""Cards side by side, and on the screen at once."""
_CARD_HEIGHT = 1000


def open_recents(phone: Phone) -> Phone:
    """Show the overview; when it shows already, the app used before the present one."""
    if phone.panel is None and phone.page.screen == RECENTS:
        others = [package for package in recent_apps(phone) if package != phone.page.data["came_from"]]
        return _resume(phone, others[0]) if others else _back(phone)
    came_from = phone.foreground if phone.foreground != LAUNCHER else None
    page = Page(screen=RECENTS, data={"came_from": came_from, "first": 0})
    return push(go_home(leave(phone)), page)


def recents(phone: Phone, page: Page) -> View:
    """Four cards at a time; a finger to the right brings older ones, one upwards closes a card's app."""
    running, first = recent_apps(phone), int(page.data["first"])
    if not running:
        return View(
            title="Recent apps", style="overview", body=[text("No recent items", _LAUNCHER_ID + "empty")], back=_back
        )
    last = min(first + _CARDS, len(running))
    swipes = {}
    if last < len(running):
        swipes["right"] = partial(keep, first=first + _CARDS)
    if first:
        swipes["left"] = partial(keep, first=max(0, first - _CARDS))
    count = text(f"{first + 1} to {last} of {len(running)}", _LAUNCHER_ID + "count")
    return View(
        title="Recent apps",
        style="overview",
        body=grid([_card(phone, package) for package in running[first:last]], _CARD_COLUMNS),
        footer=line(count, button("Clear all", _LAUNCHER_ID + "clear_all", _close_all_apps)),
        back=_back,
        swipes=swipes,
    )


def _card(phone: Phone, package: str) -> Node:
    name, title = phone.apps.by_package[package].name, view_of(replace(phone, foreground=package)).title
    return Node(
        "app",
        name,
        f"{_LAUNCHER_ID}task/{package}",
        value=title if title not in ("", name) else None,
        tap=partial(_resume, package=package),
        height=_CARD_HEIGHT,
        swipes={"up": partial(_close_app, package=package)},
    )


def _resume(phone: Phone, package: str) -> Phone:
    return start(go_home(phone), package, phone.apps.by_package[package].pages)


def _back(phone: Phone) -> Phone:
    """Where one came from: the app, unless it has been closed here."""
    came_from = phone.page.data["came_from"]
    return _resume(phone, came_from) if came_from in phone.stacks else pop(phone)


def _close_app(phone: Phone, package: str) -> Phone:
    phone = close_app(phone, package)
    left = len(recent_apps(phone))
    if not left:
        return go_home(phone)
    return keep(phone, first=min(int(phone.page.data["first"]), (left - 1) // _CARDS * _CARDS))


def _close_all_apps(phone: Phone) -> Phone:
    for package in recent_apps(phone):
        phone = close_app(phone, package)
    return go_home(phone)


RECENTS_SCREENS = {RECENTS: recents}
