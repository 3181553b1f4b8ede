"""The few file operations that must not go wrong: whole files at once, and errors that say what to do."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from collab.errors import RunFormatError, StoreFailure
from collab.plain import foreign_entries, read_plain
from collab.redact import hide_values


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it: beside it first, then renamed into place.

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


def read_json(path: Path, absent: str) -> Any:
    """What a JSON file holds.

    Args:
        absent: what to say where there is no such file.

    Raises:
        RunFormatError: it is not there, or cannot be read.
    """
    try:
        return json.loads(read_plain(path))
    except FileNotFoundError:
        raise RunFormatError(absent) from None
    except OSError as error:
        raise RunFormatError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}") from None


def check_plain(directory: Path, what: str = "run", leaving: Collection[str] = ()) -> None:
    """Check that a folder, which may have been received, holds plain files and folders only.

    Args:
        what: the folder is, for the message.
        leaving: names in it that are not looked at.

    Raises:
        RunFormatError: names the first link, pipe, socket or device.
    """
    try:
        foreign = [one for one in foreign_entries(directory) if one[0].relative_to(directory).parts[0] not in leaving]
    except OSError as error:
        raise RunFormatError(f"{error.filename or directory}: cannot be read: {error.strerror}") from None
    if foreign:
        more = f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""
        raise RunFormatError(
            f"{foreign[0][0]}: is {foreign[0][1]}{more}; a {what} holds plain files and folders only: remove it, or "
            "put there what it leads to"
        )


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path, next_move: str = "") -> Iterator[None]:
    """Turn whatever the file system refuses into one StoreFailure that says how to go on.

    Args:
        path: what is written, a run unless `next_move` says otherwise.
        next_move: what to do once there is room; by default, resume the run.
    """
    try:
        yield
    except OSError as error:
        raise StoreFailure(
            f"{error.filename or path}: cannot write: {error.strerror or error}; what was written before is kept:"
            f" make room or fix the rights, then {next_move or f'collab runs resume {path}'}"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file at once, secrets hidden."""
    write_atomic(path, (json.dumps(hide_values(value), indent=2, ensure_ascii=False) + "\n").encode("utf-8"))


def sync_files(folder: Path) -> None:
    """Make the files of a directory, and their names, survive a power cut."""
    for path in folder.rglob("*"):
        sync_directory(path)  # a descriptor is a descriptor
    sync_directory(folder)
