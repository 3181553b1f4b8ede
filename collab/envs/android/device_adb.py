"""Finding a device through an adb server, before anything is driven on it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collab.errors import EnvironmentFailure, MissingExtra, UsageError

if TYPE_CHECKING:
    import adbutils


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a device is."""

    serial: str | None
    """As `adb devices` shows it; None for the only one."""
    host: str
    """Where the adb server listens."""
    port: int | None
    """Its port; None for ANDROID_ADB_SERVER_PORT or 5037, where a server is started when there is none."""


def find(place: Place) -> adbutils.AdbDevice:
    """The device that is meant.

    Raises:
        MissingExtra: uiautomator2 is not installed.
        UsageError: no such device, or several and none was named.
        EnvironmentFailure: no adb server.
    """
    try:
        import adbutils
    except ImportError:
        raise MissingExtra.of("uiautomator2", "android", "driving a device") from None
    if place.port is not None and not _listens(place.host, place.port):
        raise EnvironmentFailure(f"device: no adb server at {place.host}:{place.port}; start one with adb start-server")
    client = adbutils.AdbClient(host=place.host, port=place.port)
    online = [device.serial for device in client.device_list()]
    if place.serial is None and len(online) != 1:
        shown = ", ".join(online) or "none"
        raise UsageError(f"device: {len(online)} devices ({shown}); name one with --serial or the option serial")
    if place.serial is not None and place.serial not in online:
        raise UsageError(f"device: no device {place.serial!r}; adb devices shows: {', '.join(online) or 'none'}")
    return client.device(place.serial or online[0])


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=3):
            return True
    except OSError:
        return False
