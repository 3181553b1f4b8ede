"""The few file operations that must not go wrong: whole files at once, and errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from collab.errors import StoreFailure


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


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(run: Path) -> Iterator[None]:
    """Turn whatever the file system refuses into one StoreFailure that says how to go on."""
    try:
        yield
    except OSError as error:
        where = error.filename or run
        raise StoreFailure(
            f"{where}: cannot write: {error.strerror or error}; what was recorded is kept: make room or fix the rights,"
            f" then: collab runs resume {run}"
        ) from error
