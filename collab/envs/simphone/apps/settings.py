"""Settings: pages are data, except the few that show more than rows.

A row is a switch or a slider over one entry of the settings tables, or leads to another page.

The pages of Settings that are rows, and what the settings tables hold on a fresh phone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from collab.envs.simphone.app import (
    App,
    Item,
    UiNode,
    View,
    button,
    heading,
    item,
    radio,
    slider,
    switch,
    text,
    text_field,
)
from collab.envs.simphone.distractions.looks import reword
from collab.envs.simphone.state import Page, Phone, pop, push, put_setting

WIFI, BLUETOOTH, BRIGHTNESS = "global/wifi_on", "global/bluetooth_on", "system/screen_brightness"
FLASHLIGHT = "secure/flashlight_enabled"
TIMEOUT = "system/screen_off_timeout"
DARKEST, BRIGHTEST = 1, 255
"""Android's range of screen_brightness."""


class SettingRow(NamedTuple):
    """One row of a page."""

    label: str
    kind: Literal["page", "switch", "slider", "text"]
    target: str = ""
    """Page to open, or entry of the settings tables; a slider's runs from 0 to 100."""
    note: str | None = None
    """Second line; those that change are made in `settings`."""


PAGES: dict[str, tuple[str, tuple[SettingRow, ...]]] = {
    "main": (
        "Settings",
        (
            SettingRow("Network & internet", "page", "network", "Mobile, Wi-Fi, hotspot"),
            SettingRow("Connected devices", "page", "devices", "Bluetooth, pairing"),
            SettingRow("Apps", "page", "apps", "Recent apps, default apps"),
            SettingRow("Notifications", "page", "notifications", "Notification history, conversations"),
            SettingRow("Battery", "page", "battery", "100%"),
            SettingRow("Storage", "page", "storage", "41% used, 9.4 GB free"),
            SettingRow("Sound & vibration", "page", "sound", "Volume, haptics, Do Not Disturb"),
            SettingRow("Display", "page", "display", "Dark theme, font size, brightness"),
            SettingRow("Accessibility", "page", "accessibility", "Display, interaction, audio"),
            SettingRow("Security & privacy", "page", "security", "App security, device lock, permissions"),
            SettingRow("Location", "page", "location", "On, 3 apps have access"),
            SettingRow("Passwords & accounts", "page", "accounts", "Saved passwords, autofill"),
            SettingRow("System", "page", "system", "Languages, gestures, time, backup"),
            SettingRow("About phone", "page", "about", "sdk_gphone_x86_64"),
        ),
    ),
    "network": (
        "Network & internet",
        (
            SettingRow("Internet", "page", "internet"),
            SettingRow("Calls & SMS", "text", "", "T-Mobile"),
            SettingRow("SIMs", "text", "", "T-Mobile"),
            SettingRow("Airplane mode", "switch", "global/airplane_mode_on"),
            SettingRow("Hotspot & tethering", "switch", "global/tether_enabled", "Share the connection"),
            SettingRow("Data Saver", "switch", "global/data_saver"),
            SettingRow("VPN", "text", "", "None"),
            SettingRow("Private DNS", "text", "", "Automatic"),
        ),
    ),
    "devices": (
        "Connected devices",
        (
            SettingRow("Pair new device", "text"),
            SettingRow("Connection preferences", "page", "connection", "Bluetooth, Android Auto, NFC"),
        ),
    ),
    "connection": (
        "Connection preferences",
        (
            SettingRow("Bluetooth", "page", "bluetooth"),
            SettingRow("NFC", "switch", "global/nfc_on"),
            SettingRow("Cast", "text", "", "Not connected"),
            SettingRow("Printing", "text", "", "1 print service on"),
        ),
    ),
    "bluetooth": (
        "Bluetooth",
        (
            SettingRow("Use Bluetooth", "switch", BLUETOOTH),
            SettingRow("When Bluetooth is on, the phone can find devices nearby", "text"),
        ),
    ),
    "apps": ("Apps", (SettingRow("Default apps", "text"), SettingRow("Unused apps", "switch", "global/unused_apps"))),
    "notifications": (
        "Notifications",
        (
            SettingRow("Notification history", "switch", "secure/notification_history_enabled"),
            SettingRow("Notification dot on app icon", "switch", "secure/notification_badging"),
            SettingRow("Do Not Disturb", "switch", "global/zen_mode"),
        ),
    ),
    "battery": (
        "Battery",
        (
            SettingRow("Battery Saver", "switch", "global/low_power"),
            SettingRow("Adaptive Battery", "switch", "global/adaptive_battery"),
            SettingRow("Battery percentage", "switch", "system/status_bar_show_battery_percent"),
        ),
    ),
    "storage": ("Storage", (SettingRow("Storage manager", "switch", "secure/automatic_storage_manager_enabled"),)),
    "sound": (
        "Sound & vibration",
        (
            SettingRow("Media volume", "slider", "system/volume_music"),
            SettingRow("Call volume", "slider", "system/volume_voice"),
            SettingRow("Ring & notification volume", "slider", "system/volume_ring"),
            SettingRow("Alarm volume", "slider", "system/volume_alarm"),
            SettingRow("Dial pad tones", "switch", "system/dtmf_tone"),
            SettingRow("Screen locking sound", "switch", "system/lockscreen_sounds_enabled"),
            SettingRow("Touch sounds", "switch", "system/sound_effects_enabled"),
        ),
    ),
    "display": (
        "Display",
        (
            SettingRow("Brightness level", "page", "brightness"),
            SettingRow("Adaptive brightness", "switch", "system/screen_brightness_mode"),
            SettingRow("Screen timeout", "page", "timeout"),
            SettingRow("Dark theme", "switch", "secure/dark_theme"),
            SettingRow("Display size and text", "text"),
            SettingRow("Night Light", "switch", "secure/night_display_activated"),
            SettingRow("Auto-rotate screen", "switch", "system/accelerometer_rotation"),
            SettingRow("Screen saver", "switch", "secure/screensaver_enabled"),
        ),
    ),
    "accessibility": (
        "Accessibility",
        (
            SettingRow("Magnification", "switch", "secure/accessibility_display_magnification_enabled"),
            SettingRow("Color inversion", "switch", "secure/accessibility_display_inversion_enabled"),
            SettingRow("Remove animations", "switch", "global/remove_animations"),
            SettingRow("Mono audio", "switch", "system/master_mono"),
        ),
    ),
    "security": (
        "Security & privacy",
        (
            SettingRow("Camera access", "switch", "secure/camera_access"),
            SettingRow("Microphone access", "switch", "secure/mic_access"),
        ),
    ),
    "location": ("Location", (SettingRow("Use location", "switch", "secure/location_mode"),)),
    "accounts": ("Passwords & accounts", (SettingRow("Automatically sync app data", "switch", "global/auto_sync"),)),
    "system": (
        "System",
        (
            SettingRow("Languages & input", "text", "", "English (United States)"),
            SettingRow("Gestures", "text"),
            SettingRow("Use 24-hour format", "switch", "system/time_12_24"),
            SettingRow("Backup", "switch", "secure/backup_enabled"),
        ),
    ),
    "about": (
        "About phone",
        (SettingRow("Device name", "text", "", "sdk_gphone_x86_64"), SettingRow("Android version", "text", "", "13")),
    ),
}

_OFF = ("global/airplane_mode_on", "global/tether_enabled", "global/data_saver", "global/zen_mode", "global/low_power")
DEFAULTS = {
    **{row.target: "1" for _, rows in PAGES.values() for row in rows if row.kind == "switch"},
    **{row.target: "50" for _, rows in PAGES.values() for row in rows if row.kind == "slider"},
    **dict.fromkeys((*_OFF, "secure/dark_theme", "system/screen_brightness_mode", "secure/screensaver_enabled"), "0"),
    WIFI: "1",
    BLUETOOTH: "0",
    FLASHLIGHT: "0",
    BRIGHTNESS: "102",
    TIMEOUT: "60000",
}
"""Values of the settings tables on a fresh phone."""


PACKAGE = "com.android.settings"
_ID = PACKAGE + ":id/"

_TIMEOUTS = {
    "15 seconds": 15_000,
    "30 seconds": 30_000,
    "1 minute": 60_000,
    "2 minutes": 120_000,
    "5 minutes": 300_000,
    "10 minutes": 600_000,
    "30 minutes": 1_800_000,
}
"""Milliseconds; the table may hold any other number."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_LARGEST = 2**31 - 1
"""Android reads a number of the settings tables into 32 bits."""
_NETWORKS = ("Coffee Corner", "Elm Street 12", "Guest-5G")


def page(phone: Phone, page: Page) -> View:
    """Show a page of rows."""
    name = str(page.data["page"])
    title, rows = PAGES[name]
    body = [_row(phone, row) for row in rows]
    if name == "main":
        body.insert(0, item("Search settings", _ID + "search_action_bar", _open_search))
    return View(title=title, body=body)


def search(phone: Phone, page: Page) -> View:
    """Show the rows of all pages whose label, as it is shown, holds the words; each with the page it stands on."""
    words = page.fields.get("words", "").strip().casefold()
    body: list[Item] = [text_field(page, "words", "Search settings", _ID + "search_src_text")]
    for name, (title, rows) in PAGES.items():
        for row in rows:
            key = f"{_ID}result/{name}/{row.label}"
            # Searched as it is shown: a reworded row is found by its new words, too.
            shown = f"{row.label}\n{reword(row.label, key, phone.manner)}".casefold()
            if words and words in shown:
                # A row that leads to a page opens that page, any other the page it stands on.
                target = row.target if row.kind == "page" else name
                body.append(item(row.label, key, partial(open_page, name=target), value=title))
    if words and len(body) == 1:
        body.append(text("No results", _ID + "no_results"))
    return View(title="Search settings", style="plain", body=body)


def _open_search(phone: Phone) -> Phone:
    return push(phone, Page(screen="settings.search", focus="words"))


def internet(phone: Phone, page: Page) -> View:
    """Show Wi-Fi and the networks in reach."""
    return View(title="Internet", body=networks(phone))


def networks(phone: Phone) -> list[Item]:
    """Show the switch of Wi-Fi, and the networks in reach when it is on."""
    on = is_on(phone, WIFI)
    body: list[Item] = [
        heading("T-Mobile", _ID + "carrier"),
        switch("Wi-Fi", _ID + WIFI, on, partial(flip, name=WIFI)),
    ]
    if on:
        body.append(item("AndroidWifi", _ID + "network/AndroidWifi", None, value="Connected"))
        body += [item(name, f"{_ID}network/{name}", None, value="Secured") for name in _NETWORKS]
        body.append(text("Saved networks", _ID + "saved", value="1 network"))
    else:
        body.append(text("To see available networks, turn on Wi-Fi", _ID + "hint"))
    return body


def brightness(phone: Phone, page: Page) -> View:
    """Show the brightness slider."""
    return View(
        title="Brightness level",
        style="sheet",
        body=[brightness_slider(phone, _ID + "slider")],
        actions=(button("Done", _ID + "done", pop),),
    )


def brightness_slider(phone: Phone, key: str) -> UiNode:
    """Show the slider of the display's brightness."""
    return slider("Display brightness", key, _read_brightness(phone), _set_brightness)


def timeout(phone: Phone, page: Page) -> View:
    """Show how long the screen stays on."""
    now = number(phone, TIMEOUT)
    choices: list[Item] = [
        radio(label, f"{_ID}timeout/{value}", value == now, partial(_choose_timeout, value=str(value)))
        for label, value in _TIMEOUTS.items()
    ]
    return View(title="Screen timeout", style="dialog", body=choices, actions=(button("Cancel", _ID + "cancel", pop),))


def open_page(phone: Phone, name: str) -> Phone:
    """Open a page by its name on top of the app's others."""
    if name in PAGES:
        return push(phone, Page(screen="settings.page", data={"page": name}))
    return push(phone, Page(screen=f"settings.{name}"))


def _row(phone: Phone, row: SettingRow) -> Item:
    key = _ID + (row.target or row.label)
    if row.kind == "page":
        return item(row.label, key, partial(open_page, name=row.target), value=_note(phone, row))
    if row.kind == "switch":
        return switch(row.label, key, is_on(phone, row.target), partial(flip, name=row.target), value=row.note)
    if row.kind == "slider":
        volume = min(100, max(0, number(phone, row.target)))
        return slider(row.label, key, volume / 100, partial(_slide, row.target))
    return text(row.label, key, value=row.note)


def _note(phone: Phone, row: SettingRow) -> str | None:
    if row.target == "internet":
        return "AndroidWifi" if is_on(phone, WIFI) else "T-Mobile"
    if row.target == "bluetooth":
        return "On" if is_on(phone, BLUETOOTH) else "Off"
    if row.target == "brightness":
        return f"{round(100 * _read_brightness(phone))}%"
    if row.target == "timeout":
        now = number(phone, TIMEOUT)
        return next((label for label, value in reversed(_TIMEOUTS.items()) if value <= now), next(iter(_TIMEOUTS)))
    return row.note


def number(phone: Phone, name: str) -> int:
    """Read a setting as a number; its default when it is none, as Android does."""
    value = phone.settings.get(name, "")
    found = int(value) if _INTEGER.fullmatch(value) else None
    return found if found is not None and -_LARGEST <= found <= _LARGEST else int(DEFAULTS[name])


def is_on(phone: Phone, name: str) -> bool:
    """Return whether a switch of the settings tables is on."""
    return number(phone, name) != 0


def flip(phone: Phone, name: str) -> Phone:
    """Switch an entry of the settings tables on or off."""
    return put_setting(phone, name, "0" if is_on(phone, name) else "1")


def forget(phone: Phone, name: str) -> Phone:
    """Take an entry out of the settings tables; one that the phone itself made gets its default back."""
    if name in DEFAULTS:
        return put_setting(phone, name, DEFAULTS[name])
    return replace(phone, settings={key: value for key, value in phone.settings.items() if key != name})


def _slide(name: str, phone: Phone, position: float) -> Phone:
    return put_setting(phone, name, str(round(100 * min(1.0, max(0.0, position)))))


def _read_brightness(phone: Phone) -> float:
    """Return the brightness in [0, 1]."""
    return (min(BRIGHTEST, max(DARKEST, number(phone, BRIGHTNESS))) - DARKEST) / (BRIGHTEST - DARKEST)


def _set_brightness(phone: Phone, position: float) -> Phone:
    level = DARKEST + round((BRIGHTEST - DARKEST) * min(1.0, max(0.0, position)))
    return put_setting(phone, BRIGHTNESS, str(level))


def _choose_timeout(phone: Phone, value: str) -> Phone:
    return pop(put_setting(phone, TIMEOUT, value))


APP = App(
    package=PACKAGE,
    names=("Settings", "System settings"),
    activity=".Settings",
    pages=(Page(screen="settings.page", data={"page": "main"}),),
    screens={
        "settings.page": page,
        "settings.search": search,
        "settings.internet": internet,
        "settings.brightness": brightness,
        "settings.timeout": timeout,
    },
    settings=DEFAULTS,
)
