"""An adb client on sockets, as far as android_env uses one: shell, push, pull, root and emulator console commands.

It runs under AndroidWorld's interpreter, without this package, and stands where android_env has its `AdbController`:
the same arguments as `adb -s SERIAL …`, the same bytes back, the same error, but no process for each command.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import NoReturn

from android_env.components import errors

HOST = "127.0.0.1"
TIMEOUT_S = 60.0
_CHUNK = 64 * 1024
_STDOUT, _STDERR, _EXIT = 1, 2, 3


class AdbClient:
    """Commands for one phone.

    Args:
        port: of the adb server on this machine.
        serial: which of its phones.
    """

    def __init__(self, port: int, serial: str) -> None:
        self._port, self._serial = port, serial

    def execute_command(self, args: list[str], timeout: float | None = None, device_specific: bool = True) -> bytes:
        """Run an adb command; its output, errors included.

        Raises:
            AdbControllerError: it failed, took too long, or is none of those above.
        """
        try:
            return self._run(args[0], args[1:], timeout or TIMEOUT_S)
        except OSError as problem:
            self._fail(args, f"adb server on port {self._port}: {problem}")

    def shell(self, command: str) -> bytes:
        """Return the output of a shell command; AdbControllerError when its exit code is not 0."""
        return self.execute_command(["shell", command])

    def _run(self, verb: str, args: list[str], timeout: float) -> bytes:
        if verb == "shell":
            code, output = self._run_shell(" ".join(args), timeout)
            return output if code == 0 else self._fail([verb, *args], output.decode("utf-8", "replace"))
        if verb == "push":
            return self._push(Path(args[0]).read_bytes(), args[1], timeout)
        if verb == "pull":
            Path(args[1]).write_bytes(self._pull(args[0], timeout))
            return b""
        if verb in ("emu", "root"):
            with self._open_service(f"{verb}:" + " ".join(args), timeout) as stream:
                return _rest(stream)
        return self._fail([verb, *args], "SimPhone has no such service")

    def _fail(self, args: list[str], reason: str) -> NoReturn:
        raise errors.AdbControllerError(f"Error executing adb command: [adb {' '.join(args)}]\n{reason}")

    # --------------------------------------------------------------------------------------------------- services

    def _open_service(self, name: str, timeout: float) -> socket.socket:
        """Return a connection to a service of the phone."""
        stream = socket.create_connection((HOST, self._port), timeout=timeout)
        try:
            # First the phone, then the service: a transport is chosen for one connection only.
            for service in (f"host:transport:{self._serial}", name):
                data = service.encode()
                stream.sendall(b"%04x" % len(data) + data)
                if _read_exactly(stream, 4) != b"OKAY":
                    reason = _read_exactly(stream, int(_read_exactly(stream, 4), 16)).decode("utf-8", "replace")
                    self._fail([service], reason)
        except BaseException:
            stream.close()
            raise
        return stream

    def _run_shell(self, command: str, timeout: float) -> tuple[int, bytes]:
        output = bytearray()
        with self._open_service(f"shell,v2,raw:{command}", timeout) as stream:
            while True:
                kind, size = struct.unpack("<BI", _read_exactly(stream, 5))
                data = _read_exactly(stream, size)
                if kind in (_STDOUT, _STDERR):
                    output += data
                elif kind == _EXIT:
                    return data[0], bytes(output)

    def _push(self, data: bytes, path: str, timeout: float) -> bytes:
        target = f"{path},{0o100660}".encode()
        with self._open_service("sync:", timeout) as stream:
            stream.sendall(b"SEND" + struct.pack("<I", len(target)) + target)
            for start in range(0, len(data), _CHUNK):
                chunk = data[start : start + _CHUNK]
                stream.sendall(b"DATA" + struct.pack("<I", len(chunk)) + chunk)
            stream.sendall(b"DONE" + struct.pack("<I", 0))
            kind, size = struct.unpack("<4sI", _read_exactly(stream, 8))
            if kind != b"OKAY":
                self._fail(["push", path], _read_exactly(stream, size).decode("utf-8", "replace"))
        return b"1 file pushed\n"

    def _pull(self, path: str, timeout: float) -> bytes:
        name, data = path.encode(), bytearray()
        with self._open_service("sync:", timeout) as stream:
            stream.sendall(b"RECV" + struct.pack("<I", len(name)) + name)
            while True:
                kind, size = struct.unpack("<4sI", _read_exactly(stream, 8))
                if kind == b"DONE":
                    return bytes(data)
                chunk = _read_exactly(stream, size)
                if kind != b"DATA":
                    self._fail(["pull", path], chunk.decode("utf-8", "replace"))
                data += chunk


def _read_exactly(stream: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = stream.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        data += chunk
    return bytes(data)


def _rest(stream: socket.socket) -> bytes:
    data = bytearray()
    while chunk := stream.recv(_CHUNK):
        data += chunk
    return bytes(data)
