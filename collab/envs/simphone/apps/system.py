"""Screens that belong to the system and show over any app: the menu of a text field.

The overview of running apps: a page of the launcher with one card per app, the one used last first.

What is pulled down from the top of the screen: notifications, quick settings, and the dialog behind one tile.

The tiles are switches over the very entries of the settings tables that the Settings app shows.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from collab.envs.simphone.app import (
    Item,
    UiNode,
    View,
    button,
    grid,
    icon,
    item,
    line,
    row,
    switch,
    text,
)
from collab.envs.simphone.apps import settings
from collab.envs.simphone.apps.settings import BLUETOOTH, FLASHLIGHT, WIFI
from collab.envs.simphone.state import (
    LAUNCHER,
    Notification,
    Page,
    Phone,
    close_app,
    close_panel,
    dismiss,
    focus_on,
    go_home,
    keep,
    list_recent_apps,
    open_panel,
    pop,
    push,
    put_field,
    start,
    toast,
)
from collab.envs.simphone.ui.screen import build_view, leave

RECENTS = "system.recents"
_LAUNCHER_ID = LAUNCHER + ":id/"
_CARD_COLUMNS, _CARDS = 2, 4
"""Cards side by side, and on the screen at once."""
_CARD_HEIGHT = 1000


def open_recents(phone: Phone) -> Phone:
    """Show the overview; when it shows already, the app used before the present one."""
    if phone.panel is None and phone.page.screen == RECENTS:
        others = [package for package in list_recent_apps(phone) if package != phone.page.data["came_from"]]
        return _resume(phone, others[0]) if others else _back(phone)
    came_from = phone.foreground if phone.foreground != LAUNCHER else None
    page = Page(screen=RECENTS, data={"came_from": came_from, "first": 0})
    return push(go_home(leave(phone)), page)


def recents(phone: Phone, page: Page) -> View:
    """Show four cards; a swipe to the right brings older ones, one upwards closes a card's app."""
    running, first = list_recent_apps(phone), int(page.data["first"])
    if not running:
        return View(
            title="Recent apps", style="overview", body=[text("No recent items", _LAUNCHER_ID + "empty")], back=_back
        )
    # Four cards at a time: more would not fit, and agents would not see the rest.
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


def _card(phone: Phone, package: str) -> UiNode:
    name, title = phone.apps.by_package[package].name, build_view(replace(phone, foreground=package)).title
    return UiNode(
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
    """Go back to the app, unless it has been closed here."""
    came_from = phone.page.data["came_from"]
    return _resume(phone, came_from) if came_from in phone.stacks else pop(phone)


def _close_app(phone: Phone, package: str) -> Phone:
    phone = close_app(phone, package)
    left = len(list_recent_apps(phone))
    if not left:
        return go_home(phone)
    return keep(phone, first=min(int(phone.page.data["first"]), (left - 1) // _CARDS * _CARDS))


def _close_all_apps(phone: Phone) -> Phone:
    for package in list_recent_apps(phone):
        phone = close_app(phone, package)
    return go_home(phone)


RECENTS_SCREENS = {RECENTS: recents}


PACKAGE = "com.android.systemui"
_SHADE_ID = PACKAGE + ":id/"
_SHADE, _QUICK_SETTINGS, _INTERNET = "system.shade", "system.quick_settings", "system.internet"


class Tile(NamedTuple):
    """A tile of quick settings."""

    label: str
    setting: str
    page: str
    """Page of the Settings app that holding the tile opens."""


TILES = (
    Tile("Internet", WIFI, "internet"),
    Tile("Bluetooth", BLUETOOTH, "bluetooth"),
    Tile("Flashlight", FLASHLIGHT, "main"),
    Tile("Do Not Disturb", "global/zen_mode", "notifications"),
    Tile("Airplane mode", "global/airplane_mode_on", "network"),
    Tile("Auto-rotate", "system/accelerometer_rotation", "display"),
    Tile("Battery Saver", "global/low_power", "battery"),
    Tile("Dark theme", "secure/dark_theme", "display"),
)
_TILE_COLUMNS = 2
_CHARACTERS = 42
"""About as many fit on one line of a notification."""
_FIRST = 4
"""So many tiles stand above the notifications."""


# ------------------------------------------------------------------------------------------------ opening and closing


def open_shade(phone: Phone) -> Phone:
    """Pull down the notifications."""
    return open_panel(phone, _SHADE)


def open_quick_settings(phone: Phone) -> Phone:
    """Pull down all tiles."""
    return open_panel(phone, _QUICK_SETTINGS)


def pull_down(phone: Phone) -> Phone:
    """Swipe down from the status bar: the notifications first, the second time all tiles."""
    if phone.panel is None:
        return open_shade(phone)
    return open_quick_settings(phone) if phone.panel.screen == _SHADE else phone


# ----------------------------------------------------------------------------------------------------------- screens


def shade(phone: Phone, page: Page) -> View:
    """Show the notifications, the newest first, below the first tiles."""
    entries: list[Item] = [_entry(phone, one) for one in phone.notifications]
    manage = button("Manage", _SHADE_ID + "manage_text", partial(_open_settings, name="notifications"))
    return View(
        title="Notification shade",
        style="shade",
        body=[
            text(_format_date(phone), _SHADE_ID + "date"),
            *grid([_tile(phone, tile) for tile in TILES[:_FIRST]], _TILE_COLUMNS),
            *(entries or [text("No notifications", _SHADE_ID + "no_notifications")]),
            line(manage, button("Clear all", _SHADE_ID + "dismiss_text", _clear_all)) if entries else line(manage),
        ],
        back=close_panel,
        swipes={"down": open_quick_settings, "up": close_panel},
        package=PACKAGE,
    )


def quick_settings(phone: Phone, page: Page) -> View:
    """Show brightness and all tiles."""
    gear = icon("Open settings", _SHADE_ID + "settings_button_container", partial(_open_settings, name="main"))
    return View(
        title="Quick settings",
        style="shade",
        body=[
            settings.brightness_slider(phone, _SHADE_ID + "slider"),
            *grid([_tile(phone, tile) for tile in TILES], _TILE_COLUMNS),
            row(text(_format_date(phone), _SHADE_ID + "date"), gear),
        ],
        back=open_shade,
        swipes={"up": open_shade},
        package=PACKAGE,
    )


def internet(phone: Phone, page: Page) -> View:
    """Show what the Internet tile opens."""
    return View(
        title="Internet",
        style="dialog",
        body=settings.networks(phone),
        actions=(button("Done", _SHADE_ID + "done_button", close_panel),),
        back=close_panel,
        package=PACKAGE,
    )


def _format_date(phone: Phone) -> str:
    now = datetime.datetime.fromtimestamp(phone.now_ms / 1000, tz=datetime.UTC)
    return f"{now:%a}, {now:%b} {now.day}"


def _tile(phone: Phone, tile: Tile) -> UiNode:
    on = settings.is_on(phone, tile.setting)
    if tile.setting == WIFI:
        tap, state = partial(open_panel, screen=_INTERNET), "AndroidWifi" if on else "T-Mobile"
    else:
        tap, state = partial(settings.flip, name=tile.setting), "On" if on else "Off"
    node = switch(tile.label, f"{_SHADE_ID}tile/{tile.setting}", on, tap, value=state)
    return node._replace(hold=partial(_open_settings, name=tile.page))


def _entry(phone: Phone, one: Notification) -> UiNode:
    app = phone.apps.by_package.get(one.package)
    label = f"{app.name if app else 'Android System'}: {one.title}"
    away = partial(dismiss, key=one.key)
    open_it = partial(open_notification, key=one.key)
    node = item(label, f"{_SHADE_ID}notification/{one.key}", open_it, value=one.text or None)
    return node._replace(height=_measure_height(one.text), swipes={"left": away, "right": away})


def _measure_height(words: str) -> int:
    """Measure a notification: app and title, and up to two lines of text."""
    return 150 if not words else 205 if len(words) < _CHARACTERS else 255


# ----------------------------------------------------------------------------------------------------- what they do


def open_notification(phone: Phone, key: str) -> Phone:
    """Remove a notification and show in its app what it is about; without one, close the shade."""
    found = next((one for one in phone.notifications if one.key == key), None)
    phone = dismiss(close_panel(phone), key)
    app = phone.apps.by_package.get(found.package) if found is not None else None
    if found is None or app is None:
        return phone
    phone = start(leave(phone), app.package, app.pages)
    return phone if found.opens in (None, phone.page) else push(phone, found.opens)


def _clear_all(phone: Phone) -> Phone:
    for one in phone.notifications:
        phone = dismiss(phone, one.key)
    return close_panel(phone)


def _open_settings(phone: Phone, name: str) -> Phone:
    phone = start(leave(phone), settings.PACKAGE, settings.APP.pages)
    return phone if phone.page.data.get("page") == name else settings.open_page(phone, name)


SHADE_SCREENS = {_SHADE: shade, _QUICK_SETTINGS: quick_settings, _INTERNET: internet}


TEXT_MENU = "system.text_menu"
_MENU_ID = "android:id/"


def text_menu(phone: Phone, page: Page) -> View:
    """Show what a long press on a text field offers; it acts on the field's whole text."""
    text = str(page.data["text"])
    body: list[Item] = []
    if text:
        body += [
            item("Cut", _MENU_ID + "cut", partial(_cut, page)),
            item("Copy", _MENU_ID + "copy", partial(_copy, page)),
        ]
    if phone.clipboard:
        body.append(item("Paste", _MENU_ID + "paste", partial(_paste, page)))
    body.append(item("Done", _MENU_ID + "done", partial(_close_menu, page)))
    return View(title="Text selection", body=body, style="menu")


def _close_menu(page: Page, phone: Phone) -> Phone:
    return focus_on(pop(phone), str(page.data["field"]))


def _copy(page: Page, phone: Phone) -> Phone:
    return toast(replace(_close_menu(page, phone), clipboard=str(page.data["text"])), "Copied")


def _cut(page: Page, phone: Phone) -> Phone:
    return put_field(_copy(page, phone), str(page.data["field"]), "")


def _paste(page: Page, phone: Phone) -> Phone:
    phone = _close_menu(page, phone)
    field = str(page.data["field"])
    return put_field(phone, field, phone.page.fields.get(field, "") + phone.clipboard)


SCREENS = {TEXT_MENU: text_menu, **SHADE_SCREENS, **RECENTS_SCREENS}
