"""Apps on a device by the names that `open_app` understands: AndroidWorld's, and those that a user gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from collab.envs.androidworld_apps import NAMES, package_called
from collab.errors import ConfigError

PACKAGES: Mapping[str, str] = {name: package for names, package in NAMES for name in names}

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
            known = ", ".join(sorted(names[0] for names, _ in NAMES))
            raise ConfigError(f"allow_apps: {name!r}, allowed: a package, Name=package, or one of {known}")
    return found


def package_of(app: str, allowed: Mapping[str, str]) -> str:
    """Package of an app by its name: exactly one of the user's own, or else a name or the beginning of one.

    A package is its own, and so is a name that nothing is called by.
    """
    name = app.casefold()
    if name in allowed or _PACKAGE.fullmatch(app):
        return allowed.get(name, app)
    begun = sorted((known for known in allowed if name.startswith(known)), key=len)
    return package_called(name) or (allowed[begun[-1]] if begun else app)


def title_of(package: str, allowed: Mapping[str, str]) -> str:
    """A readable name of a package; the package itself when none is known."""
    names = [name for name, one in {**PACKAGES, **allowed}.items() if one == package]
    if "launcher" in package:
        return "Home"
    return names[0].title() if names else package
