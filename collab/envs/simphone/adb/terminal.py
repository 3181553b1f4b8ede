"""Shell services of a transport: one command, or a terminal that runs line after line."""

from __future__ import annotations

import asyncio
import re

from collab.envs.simphone.adb import sync
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.sync import HELPER
from collab.envs.simphone.shell import ShellResult, run, tree

PROMPT = "simphone:/ # "
MAX_LINE = 64 * 1024
_DIGEST = re.compile(rf"(?:toybox )?md5(?:sum)? {HELPER}")
_SERVER = re.compile(r"(?:CLASSPATH=\S+ )?app_process / com\.wetest\.uia2\.Main\b")


def answer(handle: PhoneHandle, command: str) -> ShellResult:
    """Run a command on the shared phone."""
    if _DIGEST.fullmatch(command.strip()) and handle.helper is not None:
        text = f"{handle.helper[0]}  {HELPER}\n"
        return ShellResult(phone=handle.phone, stdout=text, stderr="", exit_code=0, output=text)
    result = run(handle.phone, command)
    handle.put(result.phone)
    return result


async def serve_plain(
    handle: PhoneHandle, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """`shell:` and `exec:`: both streams of output as they are, then the end."""
    if _SERVER.match(command):  # the automation program, whose work this server does: runs until it is killed
        await reader.read(1)
        return
    if command:
        writer.write(answer(handle, command).output_bytes)
        await writer.drain()
        return
    await _terminal(handle, _Raw(reader, writer))


async def serve_packets(
    handle: PhoneHandle, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, echo: bool
) -> None:
    """`shell,v2:`: output and errors apart, and an exit code.

    Args:
        echo: whether the peer's terminal leaves echoing to us.
    """
    code = 0
    if command:
        result = answer(handle, command)
        writer.write(_packets(sync.STDOUT, tree.encode(result.stdout)))
        writer.write(_packets(sync.STDERR, tree.encode(result.stderr)))
        code = result.exit_code
    else:
        code = await _terminal(handle, _Packets(reader, writer, echo=echo))
    writer.write(sync.shell_packet(sync.EXIT, bytes([code])))
    await writer.drain()


def _packets(stream: int, data: bytes) -> bytes:
    step = 32 * 1024
    return b"".join(sync.shell_packet(stream, data[start : start + step]) for start in range(0, len(data), step))


class _Raw:
    """A terminal on a plain stream."""

    echo = True

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """What was typed; empty at the end."""
        return await self._reader.read(4096)

    def write(self, data: bytes) -> None:
        """Show something."""
        self._writer.write(data)


class _Packets:
    """A terminal in packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, echo: bool) -> None:
        self._reader, self._writer, self.echo = reader, writer, echo

    async def read(self) -> bytes:
        """What was typed; empty at the end."""
        while True:
            stream, data = await sync.read_shell_packet(self._reader)
            if stream == sync.CLOSE_STDIN:
                return b""
            if stream == sync.STDIN and data:
                return data

    def write(self, data: bytes) -> None:
        """Show something."""
        self._writer.write(_packets(sync.STDOUT, data))


async def _terminal(handle: PhoneHandle, peer: _Raw | _Packets) -> int:
    """Run line after line until `exit` or the end of input; returns the last exit code."""
    line, code = b"", 0
    _show(peer, PROMPT.encode() if peer.echo else b"")
    while data := await peer.read():
        for letter in (data[place : place + 1] for place in range(len(data))):
            if letter == b"\x04" and not line:
                return code
            if letter in (b"\x7f", b"\x08"):
                _show(peer, b"\b \b" if line and peer.echo else b"")
                line = line[:-1]
            elif letter == b"\x03":
                line = b""
                _show(peer, b"^C\r\n" + PROMPT.encode())
            elif letter not in (b"\r", b"\n"):
                if len(line) >= MAX_LINE:
                    raise sync.ProtocolError("line is too long")
                line += letter
                _show(peer, letter if peer.echo else b"")
            else:
                command, line = line.decode("utf-8", "replace").strip(), b""
                if re.fullmatch(r"exit(\s+\d+)?", command):
                    return int(command[4:] or code) & 255
                code = _ran(handle, peer, command, code)
    if line.strip():
        code = _ran(handle, peer, line.decode("utf-8", "replace"), code)
    return code


def _show(peer: _Raw | _Packets, data: bytes) -> None:
    if data:
        peer.write(data)


def _ran(handle: PhoneHandle, peer: _Raw | _Packets, command: str, code: int) -> int:
    output = b""
    if command:
        result = answer(handle, command)
        output, code = result.output_bytes, result.exit_code
    if peer.echo:
        output = b"\r\n" + output.replace(b"\n", b"\r\n") + PROMPT.encode()
    _show(peer, output)
    return code
