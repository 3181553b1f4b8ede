"""File operations that must not go wrong: atomic writes, and errors with a next move.

Files from elsewhere are opened only if they are plain, never through a link, and never waiting:

    with open_plain(run / "events" / name, within=run) as file: ...
    text = read_plain(path, limit=2**21).decode()

A received folder may hold a link to a private file, a pipe that never ends, a socket or a device. Each is refused by
name, as an `OSError` whose `strerror` names its kind.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from collab.errors import RunFormatError, StoreFailure
from collab.utils.concurrency import note_doing
from collab.utils.redact import hide_values

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
_WHY = "only plain files and folders are read here"


class NotPlain(OSError):
    """A link, pipe, socket or device instead of a plain file or folder."""


def open_plain(path: Path, *, within: Path | None = None, follow: bool = False) -> BinaryIO:
    """Open a plain file for reading, without waiting or following links.

    Args:
        within: folder that the caller chose; every folder between it and the file must be plain, too.
        follow: whether `path` itself may be a link, because the user named it.

    Raises:
        NotPlain: it, or a folder on the way, is something else.
        OSError: as the file system says.
    """
    return os.fdopen(open_descriptor(path, os.O_RDONLY, within=within, follow=follow), "rb")


def open_descriptor(
    path: Path, flags: int, mode: int = 0o644, *, within: Path | None = None, follow: bool = False
) -> int:
    """Open a plain file as `os.open` does, with the checks of `open_plain`."""
    if within is not None:
        check_folders(path.parent, within)
    kind = _read_kind(path, follow=follow)
    if kind is not None and kind != stat.S_IFREG:  # before it is opened: that alone can set a device in motion
        raise _build_refusal(path, kind)
    try:
        descriptor = os.open(path, flags | (0 if follow else os.O_NOFOLLOW) | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _build_refusal(path, stat.S_IFLNK) from None
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:  # it was exchanged meanwhile
        os.close(descriptor)
        raise _build_refusal(path, kind)
    return descriptor


def read_plain(path: Path, *, limit: int | None = None, within: Path | None = None, follow: bool = False) -> bytes:
    """Return the content of a plain file.

    Args:
        limit: most bytes; a longer file is refused.
        within, follow: as for `open_plain`.

    Raises:
        NotPlain: it is no plain file.
        OSError: as the file system says, or it is too long.
    """
    with open_plain(path, within=within, follow=follow) as file:
        if limit is None:
            return file.read()
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"longer than {limit:,} bytes", str(path))
    return content


def check_folders(folder: Path, within: Path) -> None:
    """Check that all folders from below `within` down to `folder` are plain; missing ones count as plain.

    Raises:
        NotPlain: names the first that is not.
    """
    for part in reversed([folder, *folder.parents]):
        if part != within and part.is_relative_to(within):
            kind = _read_kind(part)
            if kind not in (None, stat.S_IFDIR):
                raise _build_refusal(part, kind)


def list_foreign_entries(folder: Path) -> list[tuple[Path, str]]:
    """List everything in a folder, at any depth, that is neither a plain file nor a plain folder, with its kind."""
    found: list[tuple[Path, str]] = []
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    kind = _read_kind(Path(entry.path))
                    found.append((Path(entry.path), _KINDS.get(kind or 0, "no plain file")))
    return sorted(found)


def _read_kind(path: Path, *, follow: bool = False) -> int | None:
    """Return the kind of a path as `stat.S_IFMT` gives it; None if nothing is there."""
    try:
        return stat.S_IFMT((path.stat() if follow else path.lstat()).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _build_refusal(path: Path, kind: int) -> OSError:
    what = _KINDS.get(kind, "no plain file")
    if kind == stat.S_IFDIR:
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return NotPlain(errno.ELOOP, f"is {what}; {_WHY}", str(path))


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically: beside it first, then renamed into place.

    Raises:
        OSError: as the file system says; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path, absent: str | None = None, *, advice: str = "") -> Any:
    """Read a JSON file.

    Args:
        absent: message for a missing file; None for that of an unreadable one.
        advice: the next move for a file that cannot be read.

    Raises:
        RunFormatError: it is missing, or cannot be read.
    """
    # Each cause has its own message: a missing file, an unreadable one and foreign content need different next moves.
    then = f"; {advice}" if advice else ""
    try:
        return json.loads(read_plain(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFormatError(absent or f"{path}: cannot be read: {error.strerror}{then}") from None
    except OSError as error:
        raise RunFormatError(f"{path}: cannot be read: {error.strerror}{then}") from None
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: cannot be read: not JSON: {error}{then}") from None


def check_plain(directory: Path, what: str = "run", leaving: Collection[str] = ()) -> None:
    """Check that a folder, which may have been received, holds plain files and folders only.

    Args:
        what: noun for the folder, for the message.
        leaving: names in it that are not checked.

    Raises:
        RunFormatError: names the first link, pipe, socket or device.
    """
    try:
        foreign = [
            one for one in list_foreign_entries(directory) if one[0].relative_to(directory).parts[0] not in leaving
        ]
    except OSError as error:
        raise RunFormatError(f"{error.filename or directory}: cannot be read: {error.strerror}") from None
    if foreign:
        more = f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""
        raise RunFormatError(
            f"{foreign[0][0]}: is {foreign[0][1]}{more}; a {what} holds plain files and folders only: remove it, or "
            "replace it by its target"
        )


def sync_directory(path: Path) -> None:
    """Sync the names in a directory, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def report_write_errors(path: Path, next_move: str = "") -> Iterator[None]:
    """Turn errors of the file system into one StoreFailure with a next move.

    Args:
        path: written path, a run unless `next_move` says otherwise.
        next_move: advice once there is room; by default, resume the run.
    """
    try:
        yield
    except OSError as error:
        raise StoreFailure(
            f"{error.filename or path}: cannot write: {error.strerror or error}; what was written before is kept:"
            f" make room or fix the rights, then {next_move or f'collab runs resume {path}'}"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, with secrets hidden."""
    text = json.dumps(hide_values(value), indent=2, ensure_ascii=False) + "\n"
    write_atomic(path, text.encode("utf-8", "backslashreplace"))  # as JSON itself writes half a surrogate pair


def list_differing(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the places at which two JSON values differ, with both values; None for a missing one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from list_differing(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    elif old != new:
        yield where, old, new


def sync_files(folder: Path) -> None:
    """Sync the files of a directory, and their names, so that they survive a power cut."""
    for path in folder.rglob("*"):
        sync_directory(path)  # a descriptor is a descriptor
    sync_directory(folder)


def place_within(folder: Path, path: str) -> str:
    """Return an absolute path as "./…" below the folder if it lies within, so that the whole can be moved."""
    inside = Path(path).is_absolute() and Path(path).is_relative_to(folder.resolve())
    return f"./{Path(path).relative_to(folder.resolve())}" if inside else path


def resolve_within(folder: Path, path: str) -> str:
    """Return the absolute path of what `place_within` has returned."""
    return str(folder.resolve() / path) if path.startswith("./") else path


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file; a large unchanged one is read once per process."""
    there = path.stat()
    if there.st_size < _LARGE:
        return _hash_contents(path)
    return _hash_cached(path.resolve(), there.st_ino, there.st_size, there.st_mtime_ns)


_LARGE = 64 * 2**20
"""Bytes. Reading so many takes longer than a time stamp's resolution, so a later change is visible in it."""


@functools.lru_cache(maxsize=256)
def _hash_cached(path: Path, inode: int, size: int, changed: int) -> str:
    return _hash_contents(path)


def _hash_contents(path: Path) -> str:
    with note_doing(f"hashing {path}"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
