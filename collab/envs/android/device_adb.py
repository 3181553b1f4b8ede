"""Finding a device through an adb server, before anything is driven on it.

adbutils starts a real adb server wherever none answers, and that one goes on after us. The client here never does.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collab.errors import EnvironmentGone, MissingExtra, UsageError

if TYPE_CHECKING:
    import adbutils


_USUAL_PORT = 5037
_VARIABLE = "ANDROID_ADB_SERVER_PORT"
_CONNECT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a device is."""

    serial: str | None
    """As `adb devices` shows it; None for the only one."""
    host: str
    """Where the adb server listens."""
    port: int | None
    """Its port; None for ANDROID_ADB_SERVER_PORT or 5037."""


def find(place: Place) -> adbutils.AdbDevice:
    """The device that is meant. No adb server is started: it would go on after us.

    Raises:
        MissingExtra: adbutils is not installed.
        UsageError: no adb server, no such device, or several and none was named.
    """
    MissingExtra.unless("adbutils", extra="android", purpose="driving a device")
    missing = missing_server(place)
    if missing is not None:
        raise UsageError(f"device: {missing}")
    client = _client(place.host, _port(place))
    online = [device.serial for device in client.device_list()]
    if not online:
        named = f" {place.serial!r}" if place.serial is not None else ""
        raise UsageError(f"device: no device{named}; connect one, until adb devices shows it")
    if place.serial is None and len(online) > 1:
        shown = ", ".join(online)
        raise UsageError(f"device: {len(online)} devices ({shown}); name one with --serial or the option serial")
    if place.serial is not None and place.serial not in online:
        raise UsageError(f"device: no device {place.serial!r}; adb devices shows: {', '.join(online)}")
    return client.device(place.serial or online[0])


def missing_server(place: Place) -> str | None:
    """Return what to do when no adb server answers there; None when one does."""
    port = _port(place)
    if _listens(place.host, port):
        return None
    start = "adb start-server" if port == _USUAL_PORT else f"adb -P {port} start-server"
    return f"no adb server answers at {place.host}:{port}; start it with: {start}"


@contextmanager
def noticing_its_end(place: Place) -> Iterator[None]:
    """Tell a failure of the block that comes from an adb server that was there and is gone.

    Raises:
        EnvironmentGone: the block failed, and no adb server answers any more.
    """
    try:
        yield
    except Exception as error:
        missing = missing_server(place)
        if missing is None:
            raise
        raise EnvironmentGone(f"device: the adb server has ended: {missing}, and resume the run") from error


def _client(host: str, port: int) -> adbutils.AdbClient:
    """Return adbutils' client of a server, which fails when that is not there, instead of starting another one."""
    import adbutils
    from adbutils.errors import AdbConnectionError, AdbTimeout

    class Connection(adbutils.AdbConnection):  # type: ignore[misc]
        def _safe_connect(self) -> socket.socket:
            try:
                connected = socket.create_connection((host, port), timeout=_CONNECT_S)
            except TimeoutError as error:
                raise AdbTimeout("connect to adb server timeout") from error
            except OSError as error:
                raise AdbConnectionError(f"connect to adb server failed: {error}") from error
            connected.settimeout(None)
            return connected

    class Client(adbutils.AdbClient):  # type: ignore[misc]
        def make_connection(self, timeout: float | None = None) -> Connection:
            connection = Connection(host, port)
            if timeout:
                connection.conn.settimeout(timeout)
            return connection

    return Client(host=host, port=port)


def _port(place: Place) -> int:
    """Where the adb server is, by what adb itself goes by."""
    if place.port is not None:
        return place.port
    told = os.environ.get(_VARIABLE, str(_USUAL_PORT))
    if not (told.isascii() and told.isdecimal() and 0 < int(told) < 65536):
        raise UsageError(f"device: {_VARIABLE}={told!r}, allowed: a port from 1 to 65535")
    return int(told)


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=3):
            return True
    except OSError:
        return False
