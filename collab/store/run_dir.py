"""A new directory for work that is recorded: made by one process alone, and whole or free again after any kill.

    check_free(out, "run.json", noun="run", resume=f"collab runs resume {out}")     # before anything is paid
    with new_directory(out, "run.json", noun="run", resume=...):
        write_manifest(out, manifest)

A directory is what its head file says. A process that died before it wrote the head left at most a lock that nobody
holds, empty folders and a half-written head: such a directory is free.

One writer at a time: a lock on a run directory that dies with its owner.

The operating system holds the lock (flock), so a killed process leaves none behind and nothing has to guess whether
an old one is stale. The file says who owns it, for people.

JSON files that say in which format they are written: heads of labellings, pairs, calibrations and syntheses.

The file that makes a directory what it is: its whole configuration, written before anything else.

What work in a directory may spend and where it trains: kept in its head file, so that it goes on as it was begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from collab.config import Budget, Definition, validate
from collab.errors import (
    EnvironmentFailure,
    ModelFailure,
    RunError,
    RunFormatError,
    StoreFailure,
    TrainingFailure,
    UsageError,
)
from collab.store import blobs, log
from collab.store.manifest import now
from collab.utils.files import NotPlain, check_plain, open_descriptor, read_json, read_plain, write_json, writing

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
                    (directory / FILE).unlink()
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
    return path.is_file() and (path.name == FILE or half_written is not None)


def _remove_empty(directory: Path, *, itself: bool) -> None:
    for folder in (directory / log.FOLDER, directory / blobs.FOLDER, *([directory] if itself else [])):
        with contextlib.suppress(OSError):
            folder.rmdir()


ContentT = TypeVar("ContentT")


def read_versioned(path: Path, kind: TypeAdapter[ContentT], *, readable: int, absent: str | None = None) -> ContentT:
    """What a file holds, if it is of a format that can be read. One that names no format is read as of this one.

    Args:
        readable: the format that the caller reads.
        absent: what to say where there is no such file; None for the same as of one that cannot be read.

    Raises:
        RunFormatError: it is missing, cannot be read, is not JSON, of another format, or does not fit `kind`.
    """
    try:
        content = json.loads(read_plain(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFormatError(absent or f"{path}: cannot be read: {error.strerror}") from None
    except OSError as error:
        raise RunFormatError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: not JSON: {error}") from None
    if isinstance(content, dict) and content.get("format") not in (None, readable):
        raise RunFormatError(f"{path}: written in format {content['format']!r}, this version reads {readable}")
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunFormatError(f"{path}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from None


_KINDS: tuple[type[RunError], ...] = (EnvironmentFailure, ModelFailure, TrainingFailure, StoreFailure, RunError)
"""Failures, the general one last."""
_ALONE = "then collab runs resume "
"""What comes before the directory of a run that cannot be written, at the end of the message; see `writing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFile:
    """One such file."""

    path: Path
    noun: str
    """What the directory is with it, e.g. "training"."""
    format: int
    """Version of the file and of what lies beside it."""
    resume: str
    """The command that goes on with the directory."""

    def create(self, head: Mapping[str, Any]) -> None:
        """Make the directory.

        Raises:
            UsageError: something is there already.
            StoreFailure: it cannot be written.
        """
        with new_directory(self.path.parent, self.path.name, noun=self.noun, resume=self.resume):
            write_json(self.path, {"format": self.format, **head})

    def check_free(self) -> None:
        """Check that a new one can begin in the directory; UsageError otherwise."""
        check_free(self.path.parent, self.path.name, noun=self.noun, resume=self.resume)

    def read(self) -> dict[str, Any]:
        """What it holds.

        Raises:
            RunFormatError: it is not there, or another version wrote it.
        """
        folder = self.path.parent
        missing = f"no {self.path.name} in it, so it is no {self.noun}" if folder.exists() else "no such directory"
        head = read_json(
            self.path, f"{folder}: {missing}; name the directory of a {self.noun}; see them with: collab runs list"
        )
        if not isinstance(head, dict) or head.get("format") != self.format:
            found = head.get("format") if isinstance(head, dict) else None
            raise RunFormatError(
                f"{self.path}: has format {found}, this version reads format {self.format}; go on with the Collab "
                f"version that wrote it, or begin another {self.noun}"
            )
        return head

    def write(self, head: Mapping[str, Any]) -> None:
        """Replace it; StoreFailure when it cannot be written."""
        with writing(self.path, self.resume):
            write_json(self.path, {"format": self.format, **head})

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the right to write the directory; what fails in it says how to go on with all of it.

        Raises:
            UsageError: another process has that right.
        RunFormatError: something in it is no plain file or folder.
            RunError: as the block raises it, with that command, unless it says how to go on itself.
        """
        folder = self.path.parent
        check_plain(folder, self.noun)
        with writing(folder, self.resume):
            lock = RunLock(folder, self.resume)
        try:
            yield
        except RunError as error:
            if self.resume in str(error):
                raise
            kind = next(one for one in _KINDS if isinstance(error, one))
            what, alone, _ = str(error).partition(_ALONE)  # of a part, that command would be refused
            how = f"then {self.resume}" if alone else f"; all of the {self.noun} goes on with: {self.resume}"
            raise kind(what + how) from error
        finally:
            lock.release()


KEY = "granted"
"""Of the head file."""


class Grant(Definition):
    """What a process may use."""

    budget: Budget = Budget()
    """For all that one process does; each that goes on has as much again."""
    device: str = "auto"
    """Where policies are trained, "auto" (a GPU when there is one) or "cpu"."""

    reports: tuple[str, ...] = ()
    """Further places for metrics of training: "tensorboard", "trackio"."""

    @property
    def head(self) -> dict[str, Any]:
        """Its entry of the head file."""
        return {KEY: self.model_dump(mode="json")}


def granted(
    head: Mapping[str, Any],
    where: str,
    *,
    budget: Budget | None,
    device: str | None,
    report_to: Sequence[str] | None = None,
) -> Grant:
    """What a process that goes on may use.

    Args:
        head: of the directory.
        where: it was read, for errors.
        budget: None grants what the directory was begun with once more.
        device: None for the one that it was begun with.
        report_to: None for those that it was begun with.

    Raises:
        RunFormatError: the head does not say.
        ConfigError: what it says does not fit.
    """
    if KEY not in head:
        raise RunFormatError(f"{where}: does not say what may be spent and where to train; begin anew")
    stored = validate(Grant, head[KEY], where)
    reports = stored.reports if report_to is None else tuple(report_to)
    return Grant(budget=budget or stored.budget, device=device or stored.device, reports=reports)
