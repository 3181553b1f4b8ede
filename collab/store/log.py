"""The event log on disk: segments that only ever grow, one per writer.

A line counts once it has a line break. Segments are numbered under the run's lock, so their names give the order of
writers, whatever their clocks: log order is (segment name, offset).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from collab.errors import StoreFailure
from collab.utils.files import open_plain, sync_directory

FOLDER = "events"

_NAME = re.compile(r"(\d{4,})-[0-9a-f]+\.jsonl")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Place of a line, compared in log order."""

    segment: str
    """File name in `events/`."""
    offset: int
    """Bytes before the line."""
    length: int
    """Bytes of the line, line break included."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A whole line of a segment."""

    place: Place
    number: int
    """From 1, as editors count."""
    content: bytes


def list_segments(directory: Path) -> list[str]:
    """Return the file names of all segments of a run, in log order; OSError when the folder cannot be listed."""
    folder = directory / FOLDER
    names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)] if folder.is_dir() else []
    # By number and not as text, or segment 10000 would come before 9999.
    return sorted(names, key=lambda name: (_number(name), name))


def is_segment(name: str) -> bool:
    """Return whether a file name in `events/` is that of a segment."""
    return _NAME.fullmatch(name) is not None


def scan(directory: Path, segment: str, offset: int = 0, number: int = 0) -> Iterator[LogLine]:
    """Yield whole lines of a segment from `offset` (after `number` lines); a last line without a break is left."""
    # `open_plain` refuses links: an archive from elsewhere must not read files outside the run.
    with open_plain(directory / FOLDER / segment, within=directory) as file:
        file.seek(offset)
        for content in file:
            # No line break means that its writer died, or is still writing: the line does not count yet.
            if not content.endswith(b"\n"):
                return
            number += 1
            yield LogLine(Place(segment, offset, len(content)), number, content)
            offset += len(content)


def read(directory: Path, place: Place) -> bytes:
    """Return the bytes at a place; OSError if they cannot be read, or the name is no segment's."""
    # Places come from an index file, which may be foreign: a name such as "../x" must not be opened.
    if not _NAME.fullmatch(place.segment):
        raise FileNotFoundError(errno.ENOENT, "no segment of a log", place.segment)
    with open_plain(directory / FOLDER / place.segment, within=directory) as file:
        file.seek(place.offset)
        return file.read(place.length)


def get_size(directory: Path, segment: str) -> int:
    """Return the bytes of a segment; -1 if there is none."""
    try:
        found = os.stat(directory / FOLDER / segment)
    except OSError:
        return -1
    return found.st_size if S_ISREG(found.st_mode) else -1


class Appender:
    """A new segment, open for writing.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        # The caller holds the run's lock, so no other writer takes this number; the token guards against a lost lock.
        last = list_segments(directory)[-1:]
        self.writer = f"{_number(last[0]) + 1 if last else 1:04d}-{secrets.token_hex(4)}"
        self.segment = f"{self.writer}.jsonl"
        self.offset = 0
        self._path = directory / FOLDER / self.segment
        # O_EXCL: never continue an old segment, whose last line may be half-written.
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._broken = False
        # The directory entry must survive a power cut, or synced lines would have no file.
        sync_directory(directory / FOLDER)

    def append(self, line: bytes) -> Place:
        """Write a line to the operating system: from here on it survives the death of this process.

        Raises:
            StoreFailure: an earlier line failed, nothing can follow it.
            OSError: this line failed; it does not count, and no other will.
        """
        if self._broken:
            raise StoreFailure(f"{self._path}: an earlier event could not be written; resume the run")
        place = Place(self.segment, self.offset, len(line))
        try:
            # `write` may take less than it is given, e.g. on a full disk or after a signal.
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except BaseException:
            self._broken = True  # a part may be on the disk: as the last line it is skipped, another must not follow
            raise
        self.offset += len(line)
        return place

    def sync(self) -> None:
        """Sync appended lines to the disk: from here on they survive a power cut."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and close."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)


class LazyAppender:
    """An `Appender` whose segment is made with the first line: without a line it leaves no file behind.

    The writer must hold the lock from before the first line to after the last one, so that numbers stay in order.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: Appender | None = None

    def append(self, line: bytes) -> Place:
        """Append a line as `Appender.append` does; OSError also if the segment cannot be created."""
        if self._made is None:
            self._made = Appender(self._directory)
        return self._made.append(line)

    def close(self) -> None:
        """Sync and close the segment, if there is one."""
        if self._made is not None:
            self._made.close()


def _number(name: str) -> int:
    return int(name.partition("-")[0])
