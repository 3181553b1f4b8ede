"""Links that lead out of a run: never read, for a run from elsewhere may point anywhere with them.

Answers as JSON bytes: ASCII, so that whatever was recorded arrives as it was, and no number that JSON lacks.

What was recorded may be of any length: what names something is answered `shorten`, what is read as `to_text`.

Lines of a file that name an episode, found without taking the other lines apart.

Whoever asks about one step of a large run does not wait until all that stands beside it is read: bytes are looked
through a hundred times as fast as JSON is.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from collab.errors import RunFormatError
from collab.store import index, log, manifest, run_dir
from collab.types import CellRef
from collab.view.schema.runs import CUT, LongTextView
from collab.view.schema.step import CellKey

OUTWARD = "is a link out of the run; what it leads to is not read"
ODD = "is neither a file nor a folder"
_TRAINING = (
    *("training.json", "epochs", "epochs/*", "epochs/*/*", "epochs/*/evaluation/*"),
    *("epochs/*/training/metrics.jsonl", "epochs/*/training/*", "epochs/*/training/*/metrics.jsonl"),
)


def explain_unreadable(directory: Path, path: Path) -> str | None:
    """Why a path in a directory is not read: it leads out of it, or is a pipe or a device; None where it may be."""
    try:
        real = os.path.realpath(path)
        root = os.path.realpath(directory)
        if real != root and not real.startswith(root + os.sep):
            return OUTWARD
        mode = os.stat(real).st_mode
    except OSError:
        return None  # not there: whoever reads it says so
    return None if S_ISREG(mode) or S_ISDIR(mode) else ODD


def find_unreadable(directory: Path, paths: Iterable[Path]) -> tuple[Path, str] | None:
    """The first of some paths that is not read, and why; None where all may be."""
    return next(((path, why) for path in paths if (why := explain_unreadable(directory, path))), None)


def check(directory: Path) -> None:
    """Check that head, log and index of a run lie in it; RunFormatError where one does not."""
    found = find_unreadable(directory, _list_path_parts(directory))
    if found is not None:
        raise RunFormatError(f"{found[0]}: {found[1]}")


def stamp_folders(directory: Path) -> tuple[int, ...]:
    """Return when a run's folders were changed last: as long as that is equal, no file in them was exchanged."""
    return tuple(_read_changed_ns(folder) for folder in (directory, directory / log.FOLDER))


def _read_changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return -1


def list_unreadable(training: Path) -> list[tuple[Path, str]]:
    """All that is not read of a training, beside what is in its runs."""
    paths = sorted(path for pattern in _TRAINING for path in training.glob(pattern))
    return [(path, why) for path in paths if (why := explain_unreadable(training, path)) is not None]


def _list_path_parts(directory: Path) -> Iterator[Path]:
    yield from (directory / name for name in (manifest.FILE, index.FILE, run_dir.LOCK, log.FOLDER))
    if explain_unreadable(directory, directory / log.FOLDER) is None:
        yield from _find_odd_segments(directory / log.FOLDER)


def _find_odd_segments(folder: Path) -> Iterator[Path]:
    """Segments that are no plain files: only those can lead anywhere. A run of many writers has thousands."""
    try:
        with os.scandir(folder) as entries:
            odd = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    except OSError:
        return  # not there: whoever reads it says so
    yield from (folder / name for name in sorted(odd) if log.is_segment(name))


SHORT = 300
"""Characters of a text in a table, a label or an argument."""


def to_json(value: Any) -> bytes:
    """A value of dataclasses, mappings, sequences and scalars as JSON."""
    plain = _to_plain(value)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def to_text(whole: str) -> LongTextView:
    """A text, cut where it is long."""
    return LongTextView(text=whole[:CUT], cut=max(0, len(whole) - CUT))


def shorten(whole: str) -> str:
    """The beginning of a text."""
    return whole if len(whole) <= SHORT else f"{whole[: SHORT - 1]}…"


def build_cell_key(cell: CellRef) -> CellKey:
    """Which cell of the matrix, by the name that is shown."""
    return CellKey(agent=shorten(cell.agent), round=cell.round)


def _to_plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _to_plain(one) for key, one in value.items()}
    if is_dataclass(value):
        return {field.name: _to_plain(getattr(value, field.name)) for field in fields(value)}
    return [_to_plain(one) for one in value]


_BLOCK = 1 << 22
"""Bytes that are looked through at a time."""


def find_lines_about(path: Path, trajectory: str) -> Iterator[tuple[int, bytes]]:
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
            for begin, line in _find_lines(named, content, end):
                yield offset + begin, line
            offset, left = offset + end, content[end:]


def _find_lines(words: bytes, content: bytes, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines of the whole lines before `end`."""
    at = content.find(words, 0, end)
    while at >= 0:
        first, behind = content.rfind(b"\n", 0, at) + 1, content.index(b"\n", at) + 1
        yield first, content[first:behind]
        at = content.find(words, behind, end)
