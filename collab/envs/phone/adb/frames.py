"""Frames of the adb protocols: what is read, how much at most, and what is answered.

Host protocol: four hexadecimal digits of length, then a service name; answers OKAY, or FAIL with a text. Sync: four
letters and a little-endian number. Shell version 2: a stream number, a length, the data.
"""

from __future__ import annotations

import asyncio
import struct

MAX_SYNC_PATH = 1024
"""As in adb."""
MAX_SYNC_DATA = 64 * 1024
MAX_SHELL_PACKET = 1024 * 1024
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN, WINDOW_SIZE = 0, 1, 2, 3, 4, 5
"""Streams of shell version 2."""


class ProtocolError(Exception):
    """The peer does not speak the protocol, or too much of it at once."""


async def read_service(reader: asyncio.StreamReader) -> str | None:
    """A service name; None when the peer closed before it began one.

    Raises:
        ProtocolError: what came is none.
    """
    head = await reader.read(1)
    if not head:
        return None
    head += await reader.readexactly(3)
    if any(letter not in b"0123456789abcdefABCDEF" for letter in head):
        raise ProtocolError("length is no hexadecimal number")
    return (await reader.readexactly(int(head, 16))).decode("utf-8", "replace")


def text_block(text: str) -> bytes:
    """A text with its length before it."""
    data = text.encode("utf-8", "replace")[:0xFFFF]
    return b"%04x" % len(data) + data


def okay(text: str | None = None) -> bytes:
    """OKAY, with a text when there is something to say."""
    return b"OKAY" if text is None else b"OKAY" + text_block(text)


def fail(text: str) -> bytes:
    """FAIL with the reason."""
    return b"FAIL" + text_block(text)


async def read_sync(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """The head of a sync request: its four letters and its number."""
    data = await reader.readexactly(8)
    return data[:4], struct.unpack("<I", data[4:])[0]


async def read_sync_path(reader: asyncio.StreamReader, size: int) -> str:
    """The path of a sync request."""
    if size > MAX_SYNC_PATH:
        raise ProtocolError("path is too long")
    return (await reader.readexactly(size)).decode("utf-8", "replace")


def shell_packet(stream: int, data: bytes) -> bytes:
    """A packet of shell version 2."""
    return struct.pack("<BI", stream, len(data)) + data


async def read_shell_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """A packet of shell version 2: its stream and its data."""
    stream, size = struct.unpack("<BI", await reader.readexactly(5))
    if size > MAX_SHELL_PACKET:
        raise ProtocolError("packet is too long")
    return stream, await reader.readexactly(size)
