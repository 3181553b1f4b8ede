"""Helpers of the inspector's answers: links out of a run, JSON, text lengths, and lines about an episode.

Links that lead out of a run are never read, as a run from elsewhere may point anywhere with them. Answers are JSON in
ASCII, so that all recorded text arrives unchanged, without numbers that JSON lacks. Recorded text may be of any length:
names are answered through `shorten`, texts through `to_text`.

Lines about an episode are found by their bytes, a hundred times faster than by parsing JSON. So a request for one step
of a large run does not wait until all labels and pairs are read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, overload

from collab.errors import RunFormatError
from collab.store import index, log, manifest, run_dir
from collab.types import CellRef
from collab.view.schema.runs import CUT, LongTextView
from collab.view.schema.step import CellKey

OUTWARD = "is a link out of the run; its target is not read"
ODD = "is neither a file nor a folder"
_TRAINING = (
    *("training.json", "epochs", "epochs/*", "epochs/*/*", "epochs/*/evaluation/*"),
    *("epochs/*/training/metrics.jsonl", "epochs/*/training/*", "epochs/*/training/*/metrics.jsonl"),
)


def explain_unreadable(directory: Path, path: Path) -> str | None:
    """Explain why a path is not read: it leads outside, or is a pipe or a device; None where it may be read."""
    try:
        real = os.path.realpath(path)
        root = os.path.realpath(directory)
        if real != root and not real.startswith(root + os.sep):
            return OUTWARD
        mode = os.stat(real).st_mode
    except OSError:
        return None  # missing: its reader reports that
    return None if S_ISREG(mode) or S_ISDIR(mode) else ODD


def find_unreadable(directory: Path, paths: Iterable[Path]) -> tuple[Path, str] | None:
    """Return the first path that is not read, and why; None where all may be read."""
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
    """List all parts of a training that are not read, beside those of its runs."""
    paths = sorted(path for pattern in _TRAINING for path in training.glob(pattern))
    return [(path, why) for path in paths if (why := explain_unreadable(training, path)) is not None]


def _list_path_parts(directory: Path) -> Iterator[Path]:
    yield from (directory / name for name in (manifest.FILE, index.FILE, run_dir.LOCK, log.FOLDER))
    if explain_unreadable(directory, directory / log.FOLDER) is None:
        yield from _find_odd_segments(directory / log.FOLDER)


def _find_odd_segments(folder: Path) -> Iterator[Path]:
    """Find segments that are no plain files; only those are checked, as a run of many writers has thousands."""
    try:
        with os.scandir(folder) as entries:
            odd = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    except OSError:
        return  # missing: its reader reports that
    yield from (folder / name for name in sorted(odd) if log.is_segment(name))


SHORT = 300
"""Most characters of a text in a table, a label or an argument."""


def to_json(value: Any) -> bytes:
    """Convert dataclasses, mappings, sequences and scalars to JSON."""
    plain = _to_plain(value)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def to_text(whole: str) -> LongTextView:
    """Cut a text where it is long."""
    return LongTextView(text=whole[:CUT], cut=max(0, len(whole) - CUT))


@overload
def shorten(whole: str) -> str: ...


@overload
def shorten(whole: str | None) -> str | None: ...


def shorten(whole: str | None) -> str | None:
    """Return the beginning of a text; None for None."""
    if whole is None:
        return None
    return whole if len(whole) <= SHORT else f"{whole[: SHORT - 1]}…"


def build_cell_key(cell: CellRef) -> CellKey:
    """Build the key of a cell, with the name that is shown."""
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
"""Bytes that are searched at a time."""


def find_lines_about(path: Path, trajectory: str) -> Iterator[tuple[int, bytes]]:
    """Yield offset and content of every whole line that names a trajectory in ASCII, as our writers do.

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
    """Yield the whole lines before `end`."""
    at = content.find(words, 0, end)
    while at >= 0:
        first, behind = content.rfind(b"\n", 0, at) + 1, content.index(b"\n", at) + 1
        yield first, content[first:behind]
        at = content.find(words, behind, end)
