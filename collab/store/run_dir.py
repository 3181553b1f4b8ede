"""The directory of resumable work: its head, its lock, and whether new work can begin in it.

    class TrainingDir(RunDir):
        HEAD, NOUN, FORMAT, COMMAND = "training.json", "training", 3, "collab train --resume"

    folder = TrainingDir(Path("runs/trained"))
    folder.check_free()                     # before anything is paid
    folder.begin({"config": config})        # of two processes that make the same directory, one wins
    with folder.lock():                     # one writer at a time
        ...
        folder.write({**folder.read(), "summary": summary})

The head file holds the whole configuration and is written first. A process that died before it leaves at most an
unheld lock, empty folders and a half-written head; such a directory is free.

The operating system holds the lock (flock), so it ends with its owner and is never stale. The file names the owner, for
people.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from collab.config import Budget, Definition, validate
from collab.errors import (
    EnvironmentFailure,
    ModelFailure,
    NothingToLearn,
    RunError,
    RunFormatError,
    StoreFailure,
    TrainingFailure,
    UsageError,
)
from collab.store import blobs, log
from collab.store.manifest import format_now
from collab.utils.files import NotPlain, check_plain, open_descriptor, read_json, report_write_errors, write_json

LOCK = "lock"
LIMITS_KEY = "granted"
"""Field of a head: the limits."""

_ATTEMPTS, _PAUSE_S = 5, 0.02
"""A reader that looks at the lock holds it for an instant; a writer tries again."""
_KINDS: tuple[type[RunError], ...] = (EnvironmentFailure, ModelFailure, TrainingFailure, StoreFailure, RunError)
"""Kinds of failures, the general one last."""
_ALONE = "then collab runs resume "
"""End of a message about a run that cannot be written, before its directory; see `report_write_errors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that writes a directory."""

    pid: int
    since: str
    """UTC, ISO 8601."""


class RunLock:
    """The right to write a directory; held from construction to `release`, or to the end of a `with` block.

    Args:
        directory: to be written.
        next_move: advice if another process writes it; None: wait, then resume it as a run.

    Raises:
        UsageError: another process (or another writer of this one) holds it.
        RunFormatError: the file is a link, a pipe or a device.
        OSError: the file cannot be opened or the file system has no locks.
    """

    def __init__(self, directory: Path, next_move: str | None = None) -> None:
        try:
            self._descriptor: int | None = open_descriptor(directory / LOCK, os.O_RDWR | os.O_CREAT)
        except NotPlain as error:  # a link's target would be overwritten
            raise RunFormatError(f"{error.filename}: {error.strerror}; remove it") from None
        # A held lock is the owner's proof of life; the file's content is only for the message.
        try:
            is_ours = _acquire(self._descriptor)
        except OSError:  # a file system without locks
            self.release()
            raise
        if not is_ours:
            current = _read(self._descriptor)
            self.release()
            who = f"process {current.pid} since {current.since}" if current else "another process"
            what = next_move or f"wait for it or stop it, then: collab runs resume {directory}"
            raise UsageError(f"{directory}: is being written by {who}; {what}")
        # Truncated, not replaced: another process may hold the old file open and would lock a file without a name.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps({"pid": os.getpid(), "since": format_now()}).encode(), 0)

    def release(self) -> None:
        """Release the lock; may be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()


def find_owner(directory: Path) -> Owner | None:
    """Return the process that writes a directory now, or None."""
    try:
        descriptor = open_descriptor(directory / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        # A shared lock fails only while a writer has its exclusive one; it is dropped with the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor) or Owner(pid=0, since="")
    except OSError:  # a file system without locks: no process can hold one
        return None
    else:
        return None
    finally:
        os.close(descriptor)


def _acquire(descriptor: int) -> bool:
    # Viewers take the lock for an instant to look for an owner; without another try they would stop a run's start.
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
    # The content may be half-written or of a process that died: it decides nothing, so any error is "not known".
    try:
        content = json.loads(os.pread(descriptor, 4096, 0))
        return Owner(pid=int(content["pid"]), since=str(content["since"]))
    except (ValueError, KeyError, TypeError, OSError):
        return None


ContentT = TypeVar("ContentT")
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def read_versioned(
    path: Path, kind: TypeAdapter[ContentT], *, readable: int, absent: str | None = None, otherwise: str = ""
) -> ContentT:
    """Read a JSON file that names its format.

    Args:
        readable: the format that the caller reads.
        absent: message for a missing file; None for that of an unreadable one.
        otherwise: advice for a file of another format.

    Raises:
        RunFormatError: it is missing, cannot be read, is not JSON, of another format, or does not fit `kind`.
    """
    content = read_json(path, absent)
    # The format is checked before the content: fields of another version would fail with misleading messages.
    if isinstance(content, dict) and content.get("format") != readable:
        found = content.get("format")
        raise RunFormatError(f"{path}: has format {found!r}, this version reads format {readable}{otherwise}")
    # Only the first of pydantic's errors: the others mostly follow from it.
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunFormatError(f"{path}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from None


class RunLimits(Definition):
    """Limits of one process in a directory, stored in its head so that resuming uses the same."""

    budget: Budget = Budget()
    """For all work of one process; each that resumes gets as much again."""
    device: str = "auto"
    """Where policies are trained, "auto" (a GPU when there is one) or "cpu"."""
    reports: tuple[str, ...] = ()
    """Further places for metrics of training: "tensorboard", "trackio"."""

    @property
    def head(self) -> dict[str, Any]:
        """The limits as the field of a head."""
        return {LIMITS_KEY: self.model_dump(mode="json")}


@dataclass(frozen=True)
class RunDir:
    """A directory of resumable work. Each kind of work names its head in a subclass."""

    HEAD: ClassVar[str]
    """Name of the head."""
    NOUN: ClassVar[str]
    """Noun for the directory, e.g. "training"."""
    FORMAT: ClassVar[int]
    """Version of the head and of what lies beside it."""
    COMMAND: ClassVar[str]
    """Command that resumes it, before the directory, e.g. "collab train --resume"."""
    LISTED: ClassVar[bool] = False
    """Whether `collab runs list` shows it."""

    path: Path
    whole: str | None = None
    """Command that resumes the whole to which this belongs; None if it is resumed by itself."""

    @property
    def file(self) -> Path:
        """Path of the head."""
        return self.path / self.HEAD

    @property
    def resume(self) -> str:
        """Command that resumes it."""
        return self.whole or f"{self.COMMAND} {shlex.quote(str(self.path))}"

    # ------------------------------------------------------------------------------------------------ beginning

    @property
    def is_free(self) -> bool:
        """Return whether new work can begin: the directory is missing, empty, or a kill left it without its head."""
        # A dangling link exists for the file system but not for `exists`; new work must not go through it.
        if not self.path.exists() and not self.path.is_symlink():
            return True
        return self.path.is_dir() and all(map(self._is_left_over, self.path.iterdir()))

    def check_free(self) -> None:
        """Check that new work can begin; the UsageError names the content and the next move."""
        # The head first: a directory with a head gets the command that resumes it.
        if self.file.exists():
            raise UsageError(
                f"{self.path}: a {self.NOUN} is there already; give another --out, or resume it: {self.resume}"
            )
        if not self.is_free:
            raise UsageError(f"{self.path}: something is there already; give another --out")

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Create the directory; the block writes its head. Of two processes that create it, one enters the block.

        Raises:
            UsageError: something is there already, or another process is making it.
            StoreFailure: the file system refuses; a directory that this call made is removed again.
        """
        self.check_free()
        again = f"start the {self.NOUN} again"
        # Remembered, so that after a refusal only a directory of our own is removed.
        with report_write_errors(self.path, again):
            is_new = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
        with self.lock(again):
            self.check_free()  # again: another process may have been faster
            with report_write_errors(self.path, again):
                try:
                    # Half-written heads of a kill are ours: `is_free` has allowed nothing else by that name.
                    for path in self.path.glob(f".{self.HEAD}.*"):
                        path.unlink()
                    yield
                except OSError:
                    # A file system that refuses, e.g. a full disk, leaves no directory behind that this call made.
                    with contextlib.suppress(OSError):
                        (self.path / LOCK).unlink()
                        _remove_empty(self.path, itself=is_new)
                    raise

    def begin(self, head: object, *, folders: Sequence[str] = ()) -> None:
        """Create the directory with its head (a mapping or a dataclass) and empty folders; raises as `claim`."""
        with self.claim():
            for name in folders:
                (self.path / name).mkdir(exist_ok=True)
            # The head comes last: a directory with a head is complete.
            self._write(head)

    def _is_left_over(self, path: Path) -> bool:
        """Return whether a process that died before it wrote the head may have left this."""
        # A link could lead outside the directory; no process of ours leaves one.
        if path.is_symlink():
            return False
        if path.name in (log.FOLDER, blobs.FOLDER):
            return path.is_dir() and not any(path.iterdir())
        # `write_json` writes under this name and then renames, so a kill leaves exactly such a file.
        half_written = re.fullmatch(rf"\.{re.escape(self.HEAD)}\.[0-9a-f]{{8}}", path.name)
        return path.is_file() and (path.name == LOCK or half_written is not None)

    def clear_unbegun(self) -> None:
        """Remove a part that was killed before its head was written: nothing lies deeper in it yet.

        A run whose head is lost is left, for its log holds a copy.

        Raises:
            RunFormatError: the head of another part is lost, and with it what lies in the directory.
        """
        # A log holds a copy of its run's head, so such a directory is restored, not removed.
        if not self.path.is_dir() or self.file.exists() or log.list_segments(self.path):
            return
        # Files deeper down are work that was paid for: without its head nothing here may decide to delete it.
        if any(part.is_file() for part in self.path.rglob("*") if part.parent != self.path):
            raise RunFormatError(
                f"{self.path}: {self.HEAD}, which describes its content, is missing; put it back, or remove the "
                "directory to have all of it made again"
            )
        shutil.rmtree(self.path)

    # ----------------------------------------------------------------------------------------------------- head

    def read(self) -> dict[str, Any]:
        """Return the content of the head; RunFormatError if there is none, or another version wrote it."""
        return self.read_as(_OBJECT)

    def read_as(self, kind: TypeAdapter[ContentT]) -> ContentT:
        """Return the head as `kind`; RunFormatError also if it does not fit."""
        missing = f"no {self.HEAD} in it, so it is no {self.NOUN}" if self.path.exists() else "no such directory"
        found_by = "; see them with: collab runs list" if self.LISTED else ", as it was given to --out"
        return read_versioned(
            self.file,
            kind,
            readable=self.FORMAT,
            absent=f"{self.path}: {missing}; name the directory of a {self.NOUN}{found_by}",
            otherwise=f"; resume it with the Collab version that wrote it, or begin another {self.NOUN}",
        )

    def write(self, head: object) -> None:
        """Replace the head by a mapping or a dataclass; StoreFailure if it cannot be written."""
        with report_write_errors(self.file, self.resume):
            self._write(head)

    def _write(self, head: object) -> None:
        write_json(self.file, {**to_jsonable_python(head), "format": self.FORMAT})

    def read_limits(
        self, *, budget: Budget | None = None, device: str | None = None, report_to: Sequence[str] | None = None
    ) -> RunLimits:
        """Return the limits of a resuming process; each None stands for the head's value.

        Raises:
            RunFormatError: the head cannot be read, or has no limits.
            ConfigError: they do not fit.
        """
        # From the head, not from defaults: a resume without options must train where and as it was begun.
        head = self.read()
        if LIMITS_KEY not in head:
            raise RunFormatError(f"{self.file}: names no budget and no device; begin again")
        stored = validate(RunLimits, head[LIMITS_KEY], str(self.file))
        reports = stored.reports if report_to is None else tuple(report_to)
        return RunLimits(budget=budget or stored.budget, device=device or stored.device, reports=reports)

    # --------------------------------------------------------------------------------------------------- writing

    def lock(self, next_move: str | None = None) -> RunLock:
        """Lock the directory for writing.

        Args:
            next_move: advice if it cannot be written; None to resume.

        Raises:
            UsageError: another process has it.
            RunFormatError: the lock is no plain file.
            StoreFailure: the directory cannot be written.
        """
        with report_write_errors(self.path, next_move or self.resume):
            return RunLock(self.path, f"wait for it or stop it, then: {self.resume}")

    @contextlib.contextmanager
    def lock_parts(self) -> Iterator[None]:
        """Lock work of many parts; an error in a part names the command that resumes the whole.

        Raises:
            UsageError, StoreFailure: as `lock`.
            RunFormatError: something in it is no plain file or folder.
            RunError: as the block raises it, with that command, unless it names its own.
        """
        check_plain(self.path, self.NOUN)
        with self.lock():
            try:
                yield
            except RunError as error:
                if self.resume in str(error) or isinstance(error, NothingToLearn):
                    raise
                kind = next(one for one in _KINDS if isinstance(error, one))
                what, alone, _ = str(error).partition(_ALONE)  # of a part, that command would be refused
                how = f"then {self.resume}" if alone else f"; all of the {self.NOUN} is resumed with: {self.resume}"
                raise kind(what + how) from error


def _remove_empty(directory: Path, *, itself: bool) -> None:
    for folder in (directory / log.FOLDER, directory / blobs.FOLDER, *([directory] if itself else [])):
        with contextlib.suppress(OSError):
            folder.rmdir()
