"""Links that lead out of a run: never read, for a run from elsewhere may point anywhere with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from collab.errors import RunFormatError
from collab.store import index, lock, log, manifest

OUTWARD = "is a link out of the run; what it leads to is not read"
ODD = "is neither a file nor a folder"
_TRAINING = (
    *("training.json", "epochs", "epochs/*", "epochs/*/*", "epochs/*/evaluation/*"),
    *("epochs/*/training/metrics.jsonl", "epochs/*/training/*", "epochs/*/training/*/metrics.jsonl"),
)


def trouble(directory: Path, path: Path) -> str | None:
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


def first_trouble(directory: Path, paths: Iterable[Path]) -> tuple[Path, str] | None:
    """The first of some paths that is not read, and why; None where all may be."""
    return next(((path, why) for path in paths if (why := trouble(directory, path))), None)


def check(directory: Path) -> None:
    """Check that head, log and index of a run lie in it; RunFormatError where one does not."""
    found = first_trouble(directory, _parts(directory))
    if found is not None:
        raise RunFormatError(f"{found[0]}: {found[1]}")


def stamp_folders(directory: Path) -> tuple[int, ...]:
    """Return when a run's folders were changed last: as long as that is equal, no file in them was exchanged."""
    return tuple(_changed_ns(folder) for folder in (directory, directory / log.FOLDER))


def _changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return -1


def troubles(training: Path) -> list[tuple[Path, str]]:
    """All that is not read of a training, beside what is in its runs."""
    paths = sorted(path for pattern in _TRAINING for path in training.glob(pattern))
    return [(path, why) for path in paths if (why := trouble(training, path)) is not None]


def _parts(directory: Path) -> Iterator[Path]:
    yield from (directory / name for name in (manifest.FILE, index.FILE, lock.FILE, log.FOLDER))
    if trouble(directory, directory / log.FOLDER) is None:
        yield from _odd_segments(directory / log.FOLDER)


def _odd_segments(folder: Path) -> Iterator[Path]:
    """Segments that are no plain files: only those can lead anywhere. A run of many writers has thousands."""
    try:
        with os.scandir(folder) as entries:
            odd = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    except OSError:
        return  # not there: whoever reads it says so
    yield from (folder / name for name in sorted(odd) if log.is_segment(name))
