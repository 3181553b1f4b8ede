"""Find a device through an adb server, before anything is driven on it.

adbutils starts a real adb server wherever none answers, and that server outlives this process. The client here starts
none.

The module also finds a device's apps by the names that `open_app` understands (AndroidWorld's, and those that a user
gives them), and writes the log of a run on devices: every action, on disk before it is executed.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collab.envs.androidworld_apps import NAMES, find_app_package
from collab.errors import ConfigError, EnvironmentGone, MissingExtra, UsageError
from collab.utils.redact import HidingFormatter

if TYPE_CHECKING:
    import adbutils


_USUAL_PORT = 5037
_VARIABLE = "ANDROID_ADB_SERVER_PORT"
_CONNECT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAddress:
    """Address of a device."""

    serial: str | None
    """As `adb devices` shows it; None for the only one."""
    host: str
    """Where the adb server listens."""
    port: int | None
    """Its port; None for ANDROID_ADB_SERVER_PORT or 5037."""


def find(place: DeviceAddress) -> adbutils.AdbDevice:
    """Return the named device. No adb server is started, because it would outlive this process.

    Raises:
        MissingExtra: adbutils is not installed.
        UsageError: no adb server, no such device, or several and none was named.
    """
    MissingExtra.unless("adbutils", extra="android", purpose="driving a device")
    missing = explain_missing_server(place)
    if missing is not None:
        raise UsageError(f"device: {missing}")
    client = _connect_client(place.host, _find_port(place))
    online = [device.serial for device in client.device_list()]
    if not online:
        named = f" {place.serial!r}" if place.serial is not None else ""
        raise UsageError(f"device: no device{named}; connect one, until adb devices shows it")
    # Several devices and no name: a guess could act on the wrong phone.
    if place.serial is None and len(online) > 1:
        shown = ", ".join(online)
        raise UsageError(f"device: {len(online)} devices ({shown}); name one with --serial or the option serial")
    if place.serial is not None and place.serial not in online:
        raise UsageError(f"device: no device {place.serial!r}; adb devices shows: {', '.join(online)}")
    return client.device(place.serial or online[0])


def explain_missing_server(place: DeviceAddress) -> str | None:
    """Return what to do when no adb server answers there; None when one does."""
    port = _find_port(place)
    if _is_listening(place.host, port):
        return None
    start = "adb start-server" if port == _USUAL_PORT else f"adb -P {port} start-server"
    return f"no adb server answers at {place.host}:{port}; start it with: {start}"


@contextmanager
def notice_lost_server(place: DeviceAddress) -> Iterator[None]:
    """Tell a failure of the block that comes from an adb server that was there and is gone.

    Raises:
        EnvironmentGone: the block failed, and no adb server answers any more.
    """
    try:
        yield
    except Exception as error:
        missing = explain_missing_server(place)
        if missing is None:
            raise
        raise EnvironmentGone(f"device: the adb server has ended: {missing}, and resume the run") from error


def _connect_client(host: str, port: int) -> adbutils.AdbClient:
    """Return adbutils' client of a server, which fails when that is not there, instead of starting another one."""
    import adbutils
    from adbutils.errors import AdbConnectionError, AdbTimeout

    # adbutils starts a server of its own where none answers, which would hide that the device's one is gone.
    class Connection(adbutils.AdbConnection):  # type: ignore[misc]
        def _safe_connect(self) -> socket.socket:
            try:
                connected = socket.create_connection((host, port), timeout=_CONNECT_S)
            except TimeoutError as error:
                # In adbutils' own classes, so that its callers handle them as they always do.
                raise AdbTimeout("connect to adb server timeout") from error
            except OSError as error:
                raise AdbConnectionError(f"connect to adb server failed: {error}") from error
            # Only the connection is bounded here; commands have limits of their own.
            connected.settimeout(None)
            return connected

    class Client(adbutils.AdbClient):  # type: ignore[misc]
        def make_connection(self, timeout: float | None = None) -> Connection:
            connection = Connection(host, port)
            if timeout:
                connection.conn.settimeout(timeout)
            return connection

    return Client(host=host, port=port)


def _find_port(place: DeviceAddress) -> int:
    """Return where the adb server is, by what adb itself goes by."""
    if place.port is not None:
        return place.port
    told = os.environ.get(_VARIABLE, str(_USUAL_PORT))
    if not (told.isascii() and told.isdecimal() and 0 < int(told) < 65536):
        raise UsageError(f"device: {_VARIABLE}={told!r}, allowed: a port from 1 to 65535")
    return int(told)


def _is_listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=3):
            return True
    except OSError:
        return False


PACKAGES: Mapping[str, str] = {name: package for names, package in NAMES for name in names}

_PACKAGE = re.compile(r"[a-z]\w*(\.[a-z]\w*)+|android", re.ASCII | re.IGNORECASE)
"""A package; the system's own, which some dialogs belong to, is the only one without a dot."""


def parse_allowed_apps(entries: Iterable[str]) -> dict[str, str]:
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
            # A package is taken with all names under which it is known.
            found |= {known: one for known, one in PACKAGES.items() if one == name} or {name.casefold(): name}
        elif name.casefold() in PACKAGES:
            package = PACKAGES[name.casefold()]
            found |= {known: one for known, one in PACKAGES.items() if one == package}
        else:
            known = ", ".join(sorted(names[0] for names, _ in NAMES))
            raise ConfigError(f"allow_apps: {name!r}, allowed: a package, Name=package, or one of {known}")
    return found


def find_package(app: str, allowed: Mapping[str, str]) -> str:
    """Return the package of an app by its name: exactly one of the user's own, or else a name or the beginning of one.

    A package is its own, and so is a name that nothing is called by.
    """
    name = app.casefold()
    if name in allowed or _PACKAGE.fullmatch(app):
        return allowed.get(name, app)
    begun = sorted((known for known in allowed if name.startswith(known)), key=len)
    return find_app_package(name) or (allowed[begun[-1]] if begun else app)


def title_package(package: str, allowed: Mapping[str, str]) -> str:
    """Return a readable name of a package; the package itself when none is known."""
    names = [name for name, one in {**PACKAGES, **allowed}.items() if one == package]
    if "launcher" in package:
        return "Home"
    return names[0].title() if names else package


_ROOM = "collab.envs.android"


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Append what the environments of this room log to a file while the block runs, line by line.

    The file is made with the first line. Of several blocks at once each gets all lines; a line names its device.
    """
    logger, handler = logging.getLogger(_ROOM), logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(HidingFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.setLevel(logging.INFO)
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        if not logger.handlers:  # no other block listens any more
            logger.setLevel(logging.NOTSET)
