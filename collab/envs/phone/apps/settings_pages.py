"""The pages of Settings that are rows, and what the settings tables hold on a fresh phone."""

from __future__ import annotations

from typing import Literal, NamedTuple

WIFI, BLUETOOTH, BRIGHTNESS = "global/wifi_on", "global/bluetooth_on", "system/screen_brightness"
FLASHLIGHT = "secure/flashlight_enabled"
TIMEOUT = "system/screen_off_timeout"
DARKEST, BRIGHTEST = 1, 255
"""Android's range of screen_brightness."""


class Row(NamedTuple):
    """One row of a page."""

    label: str
    kind: Literal["page", "switch", "slider", "text"]
    target: str = ""
    """Page to open, or entry of the settings tables; a slider's runs from 0 to 100."""
    note: str | None = None
    """Second line; those that change are made in `settings`."""


PAGES: dict[str, tuple[str, tuple[Row, ...]]] = {
    "main": (
        "Settings",
        (
            Row("Network & internet", "page", "network", "Mobile, Wi-Fi, hotspot"),
            Row("Connected devices", "page", "devices", "Bluetooth, pairing"),
            Row("Apps", "page", "apps", "Recent apps, default apps"),
            Row("Notifications", "page", "notifications", "Notification history, conversations"),
            Row("Battery", "page", "battery", "100%"),
            Row("Storage", "page", "storage", "41% used, 9.4 GB free"),
            Row("Sound & vibration", "page", "sound", "Volume, haptics, Do Not Disturb"),
            Row("Display", "page", "display", "Dark theme, font size, brightness"),
            Row("Accessibility", "page", "accessibility", "Display, interaction, audio"),
            Row("Security & privacy", "page", "security", "App security, device lock, permissions"),
            Row("Location", "page", "location", "On, 3 apps have access"),
            Row("Passwords & accounts", "page", "accounts", "Saved passwords, autofill"),
            Row("System", "page", "system", "Languages, gestures, time, backup"),
            Row("About phone", "page", "about", "sdk_gphone_x86_64"),
        ),
    ),
    "network": (
        "Network & internet",
        (
            Row("Internet", "page", "internet"),
            Row("Calls & SMS", "text", "", "T-Mobile"),
            Row("SIMs", "text", "", "T-Mobile"),
            Row("Airplane mode", "switch", "global/airplane_mode_on"),
            Row("Hotspot & tethering", "switch", "global/tether_enabled", "Share the connection"),
            Row("Data Saver", "switch", "global/data_saver"),
            Row("VPN", "text", "", "None"),
            Row("Private DNS", "text", "", "Automatic"),
        ),
    ),
    "devices": (
        "Connected devices",
        (
            Row("Pair new device", "text"),
            Row("Connection preferences", "page", "connection", "Bluetooth, Android Auto, NFC"),
        ),
    ),
    "connection": (
        "Connection preferences",
        (
            Row("Bluetooth", "page", "bluetooth"),
            Row("NFC", "switch", "global/nfc_on"),
            Row("Cast", "text", "", "Not connected"),
            Row("Printing", "text", "", "1 print service on"),
        ),
    ),
    "bluetooth": (
        "Bluetooth",
        (
            Row("Use Bluetooth", "switch", BLUETOOTH),
            Row("When Bluetooth is on, the phone can find devices nearby", "text"),
        ),
    ),
    "apps": ("Apps", (Row("Default apps", "text"), Row("Unused apps", "switch", "global/unused_apps"))),
    "notifications": (
        "Notifications",
        (
            Row("Notification history", "switch", "secure/notification_history_enabled"),
            Row("Notification dot on app icon", "switch", "secure/notification_badging"),
            Row("Do Not Disturb", "switch", "global/zen_mode"),
        ),
    ),
    "battery": (
        "Battery",
        (
            Row("Battery Saver", "switch", "global/low_power"),
            Row("Adaptive Battery", "switch", "global/adaptive_battery"),
            Row("Battery percentage", "switch", "system/status_bar_show_battery_percent"),
        ),
    ),
    "storage": ("Storage", (Row("Storage manager", "switch", "secure/automatic_storage_manager_enabled"),)),
    "sound": (
        "Sound & vibration",
        (
            Row("Media volume", "slider", "system/volume_music"),
            Row("Call volume", "slider", "system/volume_voice"),
            Row("Ring & notification volume", "slider", "system/volume_ring"),
            Row("Alarm volume", "slider", "system/volume_alarm"),
            Row("Dial pad tones", "switch", "system/dtmf_tone"),
            Row("Screen locking sound", "switch", "system/lockscreen_sounds_enabled"),
            Row("Touch sounds", "switch", "system/sound_effects_enabled"),
        ),
    ),
    "display": (
        "Display",
        (
            Row("Brightness level", "page", "brightness"),
            Row("Adaptive brightness", "switch", "system/screen_brightness_mode"),
            Row("Screen timeout", "page", "timeout"),
            Row("Dark theme", "switch", "secure/dark_theme"),
            Row("Display size and text", "text"),
            Row("Night Light", "switch", "secure/night_display_activated"),
            Row("Auto-rotate screen", "switch", "system/accelerometer_rotation"),
            Row("Screen saver", "switch", "secure/screensaver_enabled"),
        ),
    ),
    "accessibility": (
        "Accessibility",
        (
            Row("Magnification", "switch", "secure/accessibility_display_magnification_enabled"),
            Row("Color inversion", "switch", "secure/accessibility_display_inversion_enabled"),
            Row("Remove animations", "switch", "global/remove_animations"),
            Row("Mono audio", "switch", "system/master_mono"),
        ),
    ),
    "security": (
        "Security & privacy",
        (
            Row("Camera access", "switch", "secure/camera_access"),
            Row("Microphone access", "switch", "secure/mic_access"),
        ),
    ),
    "location": ("Location", (Row("Use location", "switch", "secure/location_mode"),)),
    "accounts": ("Passwords & accounts", (Row("Automatically sync app data", "switch", "global/auto_sync"),)),
    "system": (
        "System",
        (
            Row("Languages & input", "text", "", "English (United States)"),
            Row("Gestures", "text"),
            Row("Use 24-hour format", "switch", "system/time_12_24"),
            Row("Backup", "switch", "secure/backup_enabled"),
        ),
    ),
    "about": (
        "About phone",
        (Row("Device name", "text", "", "sdk_gphone_x86_64"), Row("Android version", "text", "", "13")),
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
