"""A new directory for work that is recorded: made by one process alone, and whole or free again after any kill.

    check_free(out, "run.json", noun="run", resume=f"collab runs resume {out}")     # before anything is paid
    with new_directory(out, "run.json", noun="run", resume=...):
        write_manifest(out, manifest)

A directory is what its head file says. A process that died before it wrote the head left at most a lock that nobody
holds, empty folders and a half-written head: such a directory is free.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from collab.errors import UsageError
from collab.store import blobs, lock, log
from collab.store.files import writing
from collab.store.lock import RunLock


def is_free(directory: Path, head: str) -> bool:
    """Whether new work can begin in a directory: it is missing, empty, or was left by a kill before its head was there.

    Args:
        head: name of the file that makes the directory what it is.
    """
    if not directory.exists() and not directory.is_symlink():
        return True
    return directory.is_dir() and all(_is_left_over(path, head) for path in directory.iterdir())


def check_free(directory: Path, head: str, *, noun: str, resume: str) -> None:
    """Check that new work can begin in a directory; see `is_free`.

    Args:
        noun: what the directory is with that head, e.g. "run".
        resume: the command that resumes what is there already.

    Raises:
        UsageError: something is there; says what and the next move.
    """
    if (directory / head).exists():
        raise UsageError(f"{directory}: a {noun} is there already; give another --out, or resume it: {resume}")
    if not is_free(directory, head):
        raise UsageError(f"{directory}: something is there already; give another --out")


@contextlib.contextmanager
def new_directory(directory: Path, head: str, *, noun: str, resume: str) -> Iterator[None]:
    """Make a directory, alone; the block writes its head.

    Of two processes that make the same directory one enters the block; the other is refused.

    Args:
        head, noun, resume: as of `check_free`.

    Raises:
        UsageError: something is there already, or another process is making it.
        StoreFailure: the file system refuses; a directory that this call made is gone again.
    """
    check_free(directory, head, noun=noun, resume=resume)
    with writing(directory, f"start the {noun} again"):
        is_new = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        held = RunLock(directory, resume)
    try:
        check_free(directory, head, noun=noun, resume=resume)  # again: another process may have been faster
        with writing(directory, f"start the {noun} again"):
            try:
                for path in directory.glob(f".{head}.*"):
                    path.unlink()
                yield
            except OSError:
                with contextlib.suppress(OSError):
                    (directory / lock.FILE).unlink()
                    _remove_empty(directory, itself=is_new)
                raise
    finally:
        held.release()


def _is_left_over(path: Path, head: str) -> bool:
    """Whether a process that died before it wrote the head may have left this."""
    if path.is_symlink():
        return False
    if path.name in (log.FOLDER, blobs.FOLDER):
        return path.is_dir() and not any(path.iterdir())
    half_written = re.fullmatch(rf"\.{re.escape(head)}\.[0-9a-f]{{8}}", path.name)
    return path.is_file() and (path.name == lock.FILE or half_written is not None)


def _remove_empty(directory: Path, *, itself: bool) -> None:
    for folder in (directory / log.FOLDER, directory / blobs.FOLDER, *([directory] if itself else [])):
        with contextlib.suppress(OSError):
            folder.rmdir()
