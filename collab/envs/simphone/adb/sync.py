"""The sync service: pushing, pulling and listing files, in the first and second version of its messages.

Frames of the adb protocols: what is read, how much at most, and what is answered.

Host protocol: four hexadecimal digits of length, then a service name; answers OKAY, or FAIL with a text. Sync: four
letters and a little-endian number. Shell version 2: a stream number, a length, the data.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import posixpath
import stat
import struct

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.shell import tree
from collab.envs.simphone.shell.tree import MAX_FILE_BYTES, Info, TreeProblem

MAX_SYNC_PATH = 1024
"""As in adb."""
MAX_SYNC_DATA = 64 * 1024
MAX_SHELL_PACKET = 1024 * 1024
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN, WINDOW_SIZE = 0, 1, 2, 3, 4, 5
"""Streams of shell version 2."""


class ProtocolError(Exception):
    """The peer does not speak the protocol, or too much of it at once."""


async def read_service(reader: asyncio.StreamReader) -> str | None:
    """Read a service name; None when the peer closed before it began one.

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


def pack_text(text: str) -> bytes:
    """Return a text with its length before it."""
    data = text.encode("utf-8", "replace")[:0xFFFF]
    return b"%04x" % len(data) + data


def pack_okay(text: str | None = None) -> bytes:
    """Pack OKAY, with a text when there is something to say."""
    return b"OKAY" if text is None else b"OKAY" + pack_text(text)


def fail(text: str) -> bytes:
    """Pack FAIL with the reason."""
    return b"FAIL" + pack_text(text)


async def read_sync(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """Return the head of a sync request: its four letters and its number."""
    data = await reader.readexactly(8)
    return data[:4], struct.unpack("<I", data[4:])[0]


async def read_sync_path(reader: asyncio.StreamReader, size: int) -> str:
    """Return the path of a sync request."""
    if size > MAX_SYNC_PATH:
        raise ProtocolError("path is too long")
    return (await reader.readexactly(size)).decode("utf-8", "replace")


def pack_shell(stream: int, data: bytes) -> bytes:
    """Return a packet of shell version 2."""
    return struct.pack("<BI", stream, len(data)) + data


async def read_shell_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return a packet of shell version 2: its stream and its data."""
    stream, size = struct.unpack("<BI", await reader.readexactly(5))
    if size > MAX_SHELL_PACKET:
        raise ProtocolError("packet is too long")
    return stream, await reader.readexactly(size)


logger = logging.getLogger(__name__)

HELPER = "/data/local/tmp/u2.jar"
"""Where uiautomator2 puts its program; see `PhoneHandle.helper`."""
_NO_ENTRY = 2
"""Errno of a path that is not there."""


async def serve_sync(handle: PhoneHandle, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer sync requests until the peer quits."""
    while True:
        order, number = await read_sync(reader)
        if order == b"QUIT":
            return
        if order == b"SEND":
            await _receive(handle, reader, writer, await read_sync_path(reader, number))
        elif order in _ANSWERS:
            writer.write(_ANSWERS[order](handle, await read_sync_path(reader, number)))
        else:
            raise ProtocolError("unknown sync request")
        await writer.drain()


def _find_info(handle: PhoneHandle, path: str) -> Info | None:
    place = tree.normalise(path)
    if place == HELPER and handle.helper is not None:
        return Info(path=place, folder=False, size=handle.helper[1], changed_ms=handle.phone.now_ms)
    return tree.find_info(handle.phone, place)


def _compute_mode(info: Info | None) -> int:
    return 0 if info is None else stat.S_IFDIR | 0o771 if info.folder else stat.S_IFREG | 0o660


def _pack_old_numbers(info: Info | None) -> bytes:
    """Pack mode, size and time of version one."""
    size, time = (0, 0) if info is None else (info.size, info.changed_ms // 1000)
    return struct.pack("<III", _compute_mode(info), size, time)


def _pack_new_numbers(info: Info | None) -> bytes:
    """Pack error, device, inode, mode, links, owner, group, size and three times of version two."""
    if info is None:
        return struct.pack("<IQQIIIIQqqq", _NO_ENTRY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    time = info.changed_ms // 1000
    inode = int.from_bytes(hashlib.blake2b(info.path.encode("utf-8", "replace"), digest_size=6).digest(), "big")
    return struct.pack("<IQQIIIIQqqq", 0, 1, inode, _compute_mode(info), 1, 0, 1015, info.size, time, time, time)


def _answer_stat(handle: PhoneHandle, path: str) -> bytes:
    return b"STAT" + _pack_old_numbers(_find_info(handle, path))


def _answer_stat2(order: bytes, handle: PhoneHandle, path: str) -> bytes:
    return order + _pack_new_numbers(_find_info(handle, path))


def _list(handle: PhoneHandle, path: str, *, second: bool = False) -> bytes:
    place = tree.normalise(path)
    names = tree.list_names(handle.phone, place) if tree.is_folder(handle.phone, place) else []
    parts: list[bytes] = []
    for name in (".", "..", *names) if names else ():
        found = tree.find_info(handle.phone, tree.normalise(name, place))
        data = tree.encode(name)
        numbers = _pack_new_numbers(found) if second else _pack_old_numbers(found)
        parts.append((b"DNT2" if second else b"DENT") + numbers + struct.pack("<I", len(data)) + data)
    return b"".join(parts) + b"DONE" + bytes(72 if second else 16)


def _send_file(handle: PhoneHandle, path: str) -> bytes:
    try:
        data = tree.read_bytes(handle.phone, tree.normalise(path))
    except TreeProblem as problem:
        return _pack_failure(f"failed to open '{path}': {problem}")
    chunks = (data[start : start + MAX_SYNC_DATA] for start in range(0, len(data), MAX_SYNC_DATA))
    return b"".join(b"DATA" + struct.pack("<I", len(chunk)) + chunk for chunk in chunks) + b"DONE" + bytes(4)


_ANSWERS = {
    b"STAT": _answer_stat,
    b"STA2": lambda handle, path: _answer_stat2(b"STA2", handle, path),
    b"LST2": lambda handle, path: _answer_stat2(b"LST2", handle, path),
    b"LIST": _list,
    b"LIS2": lambda handle, path: _list(handle, path, second=True),
    b"RECV": _send_file,
}


def _pack_failure(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return b"FAIL" + struct.pack("<I", len(data)) + data


async def _receive(
    handle: PhoneHandle, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str
) -> None:
    """Take a pushed file: `target` is "path,mode"; data follows in chunks."""
    path, _, mode = target.rpartition(",")
    if not path or not mode.isdecimal():
        raise ProtocolError("target has no mode")
    data = bytearray()
    while True:
        order, number = await read_sync(reader)
        if order == b"DONE":
            break
        if order != b"DATA" or number > MAX_SYNC_DATA:
            raise ProtocolError("bad chunk")
        # Refused before it is read: a client could send for ever.
        if len(data) + number > MAX_FILE_BYTES:
            writer.write(_pack_failure("file is too large"))
            raise ProtocolError("file is too large")
        data += await reader.readexactly(number)
    writer.write(_store_file(handle, tree.normalise(path), bytes(data)))


def _store_file(handle: PhoneHandle, path: str, data: bytes) -> bytes:
    if path == HELPER:
        handle.helper = hashlib.md5(data, usedforsecurity=False).hexdigest(), len(data)
        return b"OKAY" + bytes(4)
    try:
        handle.put(tree.write_bytes(handle.phone, path, data, parents=True))
    except TreeProblem as problem:
        return _pack_failure(f"couldn't create file: {problem}")
    logger.debug("pushed %d bytes to %s", len(data), posixpath.basename(path))
    return b"OKAY" + bytes(4)
