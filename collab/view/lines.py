"""Lines of a file that name an episode, found without taking the other lines apart.

Whoever asks about one step of a large run does not wait until all that stands beside it is read: bytes are looked
through a hundred times as fast as JSON is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 1 << 22
"""Bytes that are looked through at a time."""


def lines_about(path: Path, trajectory: str) -> Iterator[tuple[int, bytes]]:
    """Offset and content of every whole line in which a trajectory is named, as our writers name it: in ASCII.

    Raises:
        OSError: the file cannot be read.
    """
    named = json.dumps(trajectory, ensure_ascii=True).encode("ascii")
    with path.open("rb") as file:
        offset, left = 0, b""
        while block := file.read(_BLOCK):
            content = left + block
            end = content.rfind(b"\n") + 1
            for begin, line in _lines_with(named, content, end):
                yield offset + begin, line
            offset, left = offset + end, content[end:]


def _lines_with(words: bytes, content: bytes, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines of the whole lines before `end`."""
    at = content.find(words, 0, end)
    while at >= 0:
        first, behind = content.rfind(b"\n", 0, at) + 1, content.index(b"\n", at) + 1
        yield first, content[first:behind]
        at = content.find(words, behind, end)
