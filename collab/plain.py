"""Open files that came from elsewhere: plain ones only, never through a link, and never one that waits.

    with open_plain(run / "events" / name, within=run) as file: ...
    text = read_plain(path, limit=2**21).decode()

A received folder may hold a link to a file of yours, a pipe that never ends, a socket or a device. Each is refused by
name, as an `OSError` whose `strerror` says what it is.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

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
    """A link, pipe, socket or device stands where a plain file or folder belongs."""


def open_plain(path: Path, *, within: Path | None = None, follow: bool = False) -> BinaryIO:
    """Open a plain file for reading; it neither waits nor leads elsewhere.

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
    kind = _kind(path, follow=follow)
    if kind is not None and kind != stat.S_IFREG:  # before it is opened: that alone can set a device in motion
        raise _refusal(path, kind)
    try:
        descriptor = os.open(path, flags | (0 if follow else os.O_NOFOLLOW) | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refusal(path, stat.S_IFLNK) from None
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:  # it was exchanged meanwhile
        os.close(descriptor)
        raise _refusal(path, kind)
    return descriptor


def read_plain(path: Path, *, limit: int | None = None, within: Path | None = None, follow: bool = False) -> bytes:
    """Return what a plain file holds.

    Args:
        limit: most bytes that are read; a longer file is refused.
        within, follow: as of `open_plain`.

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


def is_plain_folder(path: Path) -> bool:
    """Whether a folder is there that is no link."""
    return _kind(path) == stat.S_IFDIR


def check_folders(folder: Path, within: Path) -> None:
    """Check that all folders from below `within` down to `folder` are plain; those that are not there count as plain.

    Raises:
        NotPlain: names the first that is not.
    """
    for part in reversed([folder, *folder.parents]):
        if part != within and part.is_relative_to(within):
            kind = _kind(part)
            if kind not in (None, stat.S_IFDIR):
                raise _refusal(part, kind)


def foreign_entries(folder: Path) -> list[tuple[Path, str]]:
    """Everything in a folder, at any depth, that is neither a plain file nor a plain folder, and what it is."""
    found: list[tuple[Path, str]] = []
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    kind = _kind(Path(entry.path))
                    found.append((Path(entry.path), _KINDS.get(kind or 0, "no plain file")))
    return sorted(found)


def _kind(path: Path, *, follow: bool = False) -> int | None:
    """What stands at a path, as `stat.S_IFMT` gives it; None where nothing does."""
    try:
        return stat.S_IFMT((path.stat() if follow else path.lstat()).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _refusal(path: Path, kind: int) -> OSError:
    what = _KINDS.get(kind, "no plain file")
    if kind == stat.S_IFDIR:
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return NotPlain(errno.ELOOP, f"is {what}; {_WHY}", str(path))
