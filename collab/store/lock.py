"""One writer at a time: a lock on a run directory that dies with its owner.

The operating system holds the lock (flock), so a killed process leaves none behind and nothing has to guess whether
an old one is stale. The file says who owns it, for people.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from collab.errors import RunFormatError, UsageError
from collab.plain import NotPlain, open_descriptor
from collab.store.manifest import now

FILE = "lock"

_ATTEMPTS, _PAUSE_S = 5, 0.02
"""A reader that looks at the lock holds it for an instant; a writer tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that writes a run."""

    pid: int
    since: str
    """UTC, ISO 8601."""


class RunLock:
    """The right to write a run; held from construction to `release`.

    Args:
        directory: of the run.
        resume: the command that goes on with it, for whoever has to wait; None for `collab runs resume`.

    Raises:
        UsageError: another process (or another writer of this one) holds it.
        RunFormatError: the file is a link, a pipe or a device.
        OSError: the file cannot be opened or the file system has no locks.
    """

    def __init__(self, directory: Path, resume: str | None = None) -> None:
        try:
            self._descriptor: int | None = open_descriptor(directory / FILE, os.O_RDWR | os.O_CREAT)
        except NotPlain as error:  # what a link leads to would be overwritten
            raise RunFormatError(f"{error.filename}: {error.strerror}; remove it") from None
        if not _acquire(self._descriptor):
            current = _read(self._descriptor)
            self.release()
            who = f"process {current.pid} since {current.since}" if current else "another process"
            raise UsageError(
                f"{directory}: is being written by {who}; wait for it or stop it, then: "
                f"{resume or f'collab runs resume {directory}'}"
            )
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps({"pid": os.getpid(), "since": now()}).encode(), 0)

    def release(self) -> None:
        """Give it back; may be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def owner(directory: Path) -> Owner | None:
    """Who writes the run now; None when nobody does. Changes nothing."""
    try:
        descriptor = open_descriptor(directory / FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor) or Owner(pid=0, since="")
    except OSError:  # a file system without locks: nobody can hold one
        return None
    else:
        return None
    finally:
        os.close(descriptor)


def _acquire(descriptor: int) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt < _ATTEMPTS - 1:
                time.sleep(_PAUSE_S)
        else:
            return True
    return False


def _read(descriptor: int) -> Owner | None:
    try:
        content = json.loads(os.pread(descriptor, 4096, 0))
        return Owner(pid=int(content["pid"]), since=str(content["since"]))
    except (ValueError, KeyError, TypeError, OSError):
        return None
