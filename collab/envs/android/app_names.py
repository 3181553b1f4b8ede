"""Apps by the names that `open_app` understands, as AndroidWorld spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from collab.errors import ConfigError

PACKAGES: Mapping[str, str] = {
    "audio recorder": "com.dimowner.audiorecorder",
    "broccoli": "com.flauschcode.broccoli",
    "camera": "com.android.camera2",
    "chrome": "com.android.chrome",
    "clipper": "ca.zgrs.clipper",
    "clock": "com.google.android.deskclock",
    "contacts": "com.google.android.contacts",
    "dialer": "com.google.android.dialer",
    "files": "com.google.android.documentsui",
    "gmail": "com.google.android.gm",
    "google maps": "com.google.android.apps.maps",
    "joplin": "net.cozic.joplin",
    "markor": "net.gsantner.markor",
    "messages": "com.google.android.apps.messaging",
    "open tracks sports tracker": "de.dennisguse.opentracks",
    "osmand": "net.osmand",
    "phone": "com.google.android.dialer",
    "pro expense": "com.arduia.expense",
    "retro music": "code.name.monkey.retromusic",
    "settings": "com.android.settings",
    "simple calendar pro": "com.simplemobiletools.calendar.pro",
    "simple draw pro": "com.simplemobiletools.draw.pro",
    "simple gallery pro": "com.simplemobiletools.gallery.pro",
    "simple sms messenger": "com.simplemobiletools.smsmessenger",
    "tasks": "org.tasks",
    "vlc": "org.videolan.vlc",
}

_PACKAGE = re.compile(r"[a-z]\w*(\.[a-z]\w*)+|android", re.ASCII | re.IGNORECASE)
"""A package; the system's own, which some dialogs belong to, is the only one without a dot."""


def allowed_apps(entries: Iterable[str]) -> dict[str, str]:
    """Name (lower case) → package of the apps that a user has allowed.

    Args:
        entries: known names ("Contacts"), packages ("org.example.app") or "Name=package".

    Raises:
        ConfigError: a name that is not known, or something that is no package.
    """
    found: dict[str, str] = {}
    for entry in entries:
        name, given, package = (part.strip() for part in entry.partition("="))
        if given:
            if not name or not _PACKAGE.fullmatch(package):
                raise ConfigError(f"allow_apps: {entry!r}, allowed: Name=package, e.g. Notes=org.example.notes")
            found[name.casefold()] = package
        elif _PACKAGE.fullmatch(name):
            found |= {known: one for known, one in PACKAGES.items() if one == name} or {name.casefold(): name}
        elif name.casefold() in PACKAGES:
            package = PACKAGES[name.casefold()]
            found |= {known: one for known, one in PACKAGES.items() if one == package}
        else:
            known = ", ".join(sorted(PACKAGES))
            raise ConfigError(f"allow_apps: {name!r}, allowed: a package, Name=package, or one of {known}")
    return found


def package_of(app: str, allowed: Mapping[str, str]) -> str:
    """Package of an app by its name, the user's own names first; a package is its own."""
    return allowed.get(app.casefold()) or PACKAGES.get(app.casefold(), app)


def title_of(package: str, allowed: Mapping[str, str]) -> str:
    """A readable name of a package; the package itself when none is known."""
    names = [name for name, one in {**PACKAGES, **allowed}.items() if one == package]
    if "launcher" in package:
        return "Home"
    return names[0].title() if names else package
