"""The runs that may be looked at, each under an id: nothing else has one, so nothing else can be asked for.

    roots = Roots([Path("runs")])
    roots.top()                 # runs and trainings, as named or found in the folders that were named
    roots.find("first-3fa9c1b2d0").path

A directory is a run when it has `run.json`, or the log of one that lost it; a training when it has `training.json`. A
log in which no process says that it begins is none of a run: syntheses keep journals in folders of the same name. An
id is the name of the directory and the beginning of the SHA-256 of where it is, so it is the same in every session. No
link leads out of what was named: those to folders are not followed, and `links` says of files which are not read.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from collab.errors import UnknownName, UsageError
from collab.loop.layout import FILE as TRAINING
from collab.loop.layout import EpochDir, TrainingDir
from collab.store import log
from collab.store.manifest import FILE as RUN
from collab.view.links import trouble

_BEGINNING = re.compile(rb'^\{"format_version":"[^"]*","type":"run_(started|resumed)"', re.MULTILINE)
"""Of an event with which a process begins to write a run."""
_LOOK = 1 << 20
"""Bytes at the beginning of a segment in which it is looked for: its first line may be spoilt, or be what is lost."""
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS = 10
_LONGEST = 60
_INSIDE = frozenset({log.FOLDER, "blobs", "labels", "pairs", "proposals", "checkpoints"})
"""Folders in which no run is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A run or a training."""

    id: str
    path: Path
    kind: Literal["run", "training"]
    training: str | None = None
    """Id of the training that a run is a part of; None for one of its own."""
    epoch: int = 0
    role: Literal["rollout", "evaluation"] = "rollout"
    """Both of a part."""


class Roots:
    """Everything under the paths that were named; safe to use from several threads.

    Args:
        paths: runs, trainings, or folders with some.

    Raises:
        UsageError: a path holds neither.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._mutex = threading.Lock()
        self._known: dict[str, Root] = {}
        for path in paths:
            if not path.is_dir():
                raise UsageError(f"{path}: no such folder; collab runs list shows the runs there are")
            if next(_found(path), None) is None:
                raise UsageError(f"{path}: no run and no training in it; collab runs list shows the runs there are")

    def top(self) -> list[Root]:
        """Runs and trainings as they are now; parts of trainings are not among them."""
        found = {root.id: root for path in self._paths for root in _found(path)}
        with self._mutex:
            self._known |= found
        return list(found.values())

    def named(self) -> list[Root]:
        """The runs among the paths themselves."""
        return [root for root in self.top() if root.kind == "run" and root.path in self._paths]

    def newest(self) -> list[Root]:
        """The run that was begun or ended last, by the time of its folder; none where there are trainings only."""
        there = [root for root in self.top() if root.kind == "run"]
        return sorted(there, key=_changed)[-1:]

    def parts(self, training: Root) -> list[Root]:
        """The runs of a training as they are now: by epoch, rollout first, then evaluations by name."""
        found = list(_parts(training))
        with self._mutex:
            self._known |= {root.id: root for root in found}
        return found

    def find(self, id: str) -> Root:
        """The run or training of that id; UnknownName when there is none."""
        if id not in self._known:
            for root in self.top():
                if root.kind == "training":
                    self.parts(root)
        with self._mutex:
            found = self._known.get(id)
        if found is None:
            raise UnknownName(f"no run has the id {id[:80]!r}")
        return found


def _found(folder: Path) -> Iterator[Root]:
    """Runs and trainings at or below a folder, sorted by path."""
    for at, folders, files in os.walk(folder):
        path = Path(at)
        kind = _kind(path, folders, files)
        if kind is not None:
            yield Root(id=_id(path, path.resolve().name), path=path, kind=kind)
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in _INSIDE and not name.startswith("."))


def _kind(path: Path, folders: Sequence[str], files: Sequence[str]) -> Literal["run", "training"] | None:
    if TRAINING in files:
        return "training"
    return "run" if RUN in files or (log.FOLDER in folders and _was_run(path)) else None


def _was_run(path: Path) -> bool:
    """Whether a folder without a head has the log of a run: journals of syntheses lie in such folders, too."""
    if trouble(path, path / log.FOLDER) is not None:
        return False
    segments = (path / log.FOLDER / name for name in log.segments(path))
    return any(trouble(path, segment) is None and _BEGINNING.search(_first(segment)) for segment in segments)


def _first(segment: Path) -> bytes:
    try:
        with segment.open("rb") as file:
            return file.read(_LOOK)
    except OSError:
        return b""


def _changed(root: Root) -> float:
    try:
        return root.path.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0


def _parts(training: Root) -> Iterator[Root]:
    epochs = training.path / "epochs"
    numbers = sorted(int(one.name) for one in epochs.iterdir() if one.name.isdecimal()) if epochs.is_dir() else []
    for number in numbers:
        folder: EpochDir = TrainingDir(training.path).epoch(number)
        if _is_part(training, folder.rollout):
            yield _part(training, folder.rollout, number, "rollout")
        for path in sorted(folder.evaluation.iterdir()) if folder.evaluation.is_dir() else ():
            if _is_part(training, path):
                yield _part(training, path, number, "evaluation")


def _is_part(training: Root, path: Path) -> bool:
    """Whether a run is there, with its head or without, and lies in the training."""
    there = (path / RUN).is_file() or (path / log.FOLDER).is_dir()
    return there and trouble(training.path, path) is None


def _part(training: Root, path: Path, epoch: int, role: Literal["rollout", "evaluation"]) -> Root:
    name = f"{training.path.resolve().name}-{epoch}-{path.name}"
    return Root(id=_id(path, name), path=path, kind="run", training=training.id, epoch=epoch, role=role)


def _id(path: Path, name: str) -> str:
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:_DIGITS]
    return f"{_UNFIT.sub('-', name)[:_LONGEST]}-{digest}"
