"""Read a run, finished or being written, and report its unreadable parts.

    reader = RunReader(directory)
    for summary in reader.list_episodes():
        trajectory = reader.read_trajectory(summary.id)

A reader changes nothing in the run directory. It shows the run as it was when the reader was made or last refreshed.
Summaries come from the index; nothing is read in full for them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, overload

from collab.errors import RunFormatError, UnknownName
from collab.store import log
from collab.store.blobs import read_blob
from collab.store.events import (
    BadLine,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Record,
    RunStarted,
    SpentRecorded,
    StepRecorded,
    TextRecorded,
    decode,
)
from collab.store.index import Index, build_lookup_key
from collab.store.log import Place
from collab.store.manifest import FILE, DamagedHead, Manifest, read_manifest
from collab.store.run_dir import find_owner
from collab.types import EpisodeError, Outcome, Step, Trajectory, Usage
from collab.utils.files import check_plain

Status: TypeAlias = Literal["running", "finished", "stopped", "dead"]
"""running: a process writes it; finished: all was done; stopped: ended early on purpose; dead: its process vanished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSummary:
    """Summary of one episode."""

    id: str
    task: str
    environment: str
    difficulty: str | None
    epoch: int
    episode: int
    seed: int
    max_steps: int
    """Step budget of the instance."""
    attempt: int
    """Number of earlier attempts."""
    state: Literal["unfinished", "finished", "failed"]
    steps: int
    """Readable steps."""
    missing: tuple[int, ...]
    """Recorded steps that cannot be read."""
    outcome: Outcome | None
    """None unless finished."""
    error: EpisodeError | None
    """None unless failed."""
    seconds: float
    """0 while unfinished."""
    privileged: bool

    @property
    def lost(self) -> str:
        """The first missing steps, in words."""
        shown = ", ".join(str(step) for step in self.missing[:10])
        return shown if len(self.missing) <= 10 else f"{shown} and {len(self.missing) - 10} more"


PlayEnd: TypeAlias = Literal["ended", "broken", "cut off", "running"]
"""With an outcome, with an error, with the death of a worker or process, or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A worker's time with an episode: from its start, or a resumption, to its end or to the next play of it."""

    episode: str
    epoch: int
    worker: str
    """Empty if unknown."""
    version: int | None
    """Newest version among the policies that replied; None before the first step."""
    started: datetime
    updated: datetime
    """When the last thing of it was recorded."""
    first: int
    """Step that it begins with."""
    steps: int
    """Made in it."""
    again: bool
    """Whether the episode was begun before."""
    end: PlayEnd

    @property
    def seconds(self) -> float:
        """From its start to the last thing that was recorded of it."""
        return max(0.0, (self.updated - self.started).total_seconds())


_PLAYS = """
SELECT trajectory, epoch, plays.worker, version, plays.started, plays.updated, step, plays.steps, number, plays.state,
    number = max(number) OVER (PARTITION BY trajectory)
FROM plays JOIN episodes USING (trajectory) ORDER BY plays.started, trajectory, number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An unreadable part of the run."""

    file: str
    """Relative to the run directory."""
    line: int | None
    """From 1; None if it is not about a line."""
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.reason}"


COLUMNS = """
key, trajectory, task, environment, difficulty, epoch, episode, seed, max_steps, attempt, state,
success, score, reason, error, error_message, error_step, steps, seconds,
privileged OR EXISTS (SELECT 1 FROM steps WHERE steps.key = episodes.key AND steps.privileged)
"""
"""Columns of the index's table `episodes`, as `summarise` takes them."""


def summarise(row: tuple[Any, ...], present: Sequence[int]) -> EpisodeSummary:
    """Return a summary of one row and the steps that are in the index."""
    # In the order of the index's columns: `index.py` names them.
    (_, id, task, environment, difficulty, epoch, episode, seed, max_steps, attempt, state), rest = row[:11], row[11:]
    success, score, reason, error, message, error_step, steps, seconds, privileged = rest
    # Running episodes have no count yet; then the last step that was seen is the least that is expected.
    expected = steps if steps is not None else max(present, default=-1) + 1
    return EpisodeSummary(
        id=id,
        task=task,
        environment=environment,
        difficulty=difficulty,
        epoch=epoch,
        episode=episode,
        seed=int(seed),
        max_steps=int(max_steps),
        attempt=attempt,
        state=state,
        steps=len(present),
        missing=tuple(sorted(set(range(expected)).difference(present))),
        outcome=Outcome(success=bool(success), score=score, reason=reason) if state == "finished" else None,
        error=EpisodeError(type=error, message=message, step=error_step) if state == "failed" else None,
        seconds=seconds or 0.0,
        privileged=bool(privileged),
    )


_T = TypeVar("_T")
_E = TypeVar("_E", bound=Event)


class _Disagreement(RunFormatError):
    """The log does not hold the event that the index names."""


_BESIDE = ("labels", "verdicts", "pairs", "proposals")
"""Folders beside the run, checked by their own readers: a fault in them hides no run."""


class RunReader:
    """Reads a run. Safe to use from several threads.

    Args:
        spare: file outside the run for an index, if its own is of no use; see `Index.load`.

    Raises:
        RunFormatError: the directory is no run, cannot be read, or is of a newer major version.
    """

    def __init__(self, directory: Path, *, spare: Path | None = None, manifest: Manifest | None = None) -> None:
        self.directory = directory
        self._spare = spare
        self._mutex = threading.RLock()
        if directory.is_dir():
            check_plain(directory, leaving=_BESIDE)
        try:
            self.index = Index.load(directory, spare=spare)
        except OSError as error:
            raise RunFormatError(f"{error.filename or directory}: cannot be read: {error.strerror or error}") from None
        self._head_problem: Problem | None = None
        self.manifest = manifest or self._read_head()

    def refresh(self) -> int:
        """Read events written since the last refresh; return their number."""
        with self._mutex:
            return self.index.update(self.directory)

    def close(self) -> None:
        """Close the index and free memory."""
        self.index.close()

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the index (tables: `collab.store.tables`)."""
        with self._mutex:
            return self.index.connection.execute(sql, values).fetchall()

    # ------------------------------------------------------------------------------------------------ the run

    @property
    def status(self) -> Status:
        """Current status of the run."""
        if find_owner(self.directory) is not None:
            return "running"
        last = self.query("SELECT type FROM events WHERE type LIKE 'run\\_%' ESCAPE '\\' ORDER BY rowid DESC LIMIT 1")
        match last:
            case [("run_finished",)]:
                return "finished"
            case [("run_stopped",)]:
                return "stopped"
            case _:
                return "dead"

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All unreadable parts; empty for a whole run."""
        lines = [
            Problem(file=f"{log.FOLDER}/{segment}", line=line, reason=reason)
            for segment, line, reason in self.query("SELECT segment, line, reason FROM problems ORDER BY segment, line")
        ]
        gaps = [
            Problem(file=log.FOLDER, line=None, reason=f"episode {one.id}: steps {one.lost} are lost")
            for one in self.list_episodes()
            if one.missing
        ]
        head = [self._head_problem] if self._head_problem else []
        return (*head, *lines, *self._list_tails(), *gaps)

    # ------------------------------------------------------------------------------------------- the episodes

    def list_episodes(self) -> list[EpisodeSummary]:
        """List all episodes, by epoch, task and number; only the last attempt of each."""
        present: dict[int, Sequence[int]] = {}
        for key, first, last, count in self.query("SELECT key, min(step), max(step), count(*) FROM steps GROUP BY key"):
            if count == last - first + 1:
                present[key] = range(first, last + 1)
            else:
                present[key] = [step for (step,) in self.query("SELECT step FROM steps WHERE key = ?", key)]
        rows = self.query(f"SELECT {COLUMNS} FROM episodes ORDER BY epoch, task, episode, trajectory")
        return [summarise(row, present.get(row[0], ())) for row in rows]

    def list_plays(self) -> list[Play]:
        """List the plays of all episodes, in the order in which they began."""
        ends: dict[str, PlayEnd] = {"finished": "ended", "failed": "broken"}
        is_running, found = self.status == "running", list[Play]()
        for episode, epoch, worker, version, started, updated, first, steps, number, state, is_last in self.query(
            _PLAYS
        ):
            unfinished: PlayEnd = "running" if is_running and is_last else "cut off"
            # A play whose times cannot be read is left out: nothing rests on it.
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                found.append(
                    Play(
                        episode=episode,
                        epoch=epoch,
                        worker=worker,
                        version=version,
                        started=datetime.fromisoformat(started).astimezone(UTC),
                        updated=datetime.fromisoformat(updated).astimezone(UTC),
                        first=first,
                        steps=steps,
                        again=number > 0,
                        end=ends.get(state, unfinished),
                    )
                )
        return found

    def read_trajectory(self, id: str) -> Trajectory:
        """Read an episode with its readable steps; UnknownName if missing. An unfinished one has no outcome."""
        return self._retry_whole(lambda: self._read_trajectory(id))

    def read_head(self, id: str) -> Trajectory:
        """Read an episode without its steps: task, end and last screen, two lines of the log. UnknownName as above."""
        return self._retry_whole(lambda: self._read_trajectory(id, steps=False))

    def step(self, id: str, step: int) -> Step:
        """Return one step of an episode; UnknownName if there is none."""
        sql = (
            "SELECT segment, offset, length, trajectory, attempt, step FROM steps JOIN episodes USING (key)"
            " WHERE trajectory = ? AND step = ?"
        )
        # Tried again if the log grew meanwhile.
        found = self._retry_whole(lambda: self._read_events(StepRecorded, sql, id, step))
        if not found:
            # Which of both is missing, the message says: the episode or the step.
            known = [one.id for one in self.list_episodes()]
            if id not in known:
                raise UnknownName.of("episode", id, known)
            (count,) = self.query("SELECT count(*) FROM steps JOIN episodes USING (key) WHERE trajectory = ?", id)[0]
            raise UnknownName(f"{self.directory}: no step {step} of episode {id}; it has {count}, counted from 0")
        return found[0].step

    def iterate_trajectories(self) -> Iterator[Trajectory]:
        """Yield all finished episodes, one at a time, in the order of `episodes`."""
        return (self.read_trajectory(one.id) for one in self.list_episodes() if one.state == "finished")

    def list_unfinished(self) -> list[Trajectory]:
        """List unfinished episodes, with their steps up to the first missing one."""
        open_ones = [self.read_trajectory(one.id) for one in self.list_episodes() if one.state == "unfinished"]
        return [_take_prefix(trajectory) for trajectory in open_ones]

    def list_spent(self) -> list[Usage]:
        """List the usage that each process wrote at its end, in log order."""
        sql = "SELECT segment, offset, length FROM events WHERE type = 'spent' ORDER BY segment, offset"
        found = self._retry_whole(lambda: self._read_events(SpentRecorded, sql))
        return [event.spent for event in found]

    # -------------------------------------------------------------------------------------- texts and pictures

    def read_prefix(self, hash: str) -> str:
        """Return a stored text by its SHA-256; UnknownName if the run has none."""
        sql = "SELECT segment, offset, length, hash FROM texts WHERE hash = ?"
        found = self._retry_whole(lambda: self._read_events(TextRecorded, sql, hash))
        if not found:
            raise UnknownName(f"{self.directory}: no text {hash[:80]!r}")
        return found[0].text

    def read_blob(self, hash: str) -> bytes:
        """Return a stored picture as WebP bytes; UnknownName if the run has none, UsageError for no hash."""
        return read_blob(self.directory, hash)

    def iterate_events(self) -> Iterator[Record]:
        """Yield every readable event in log order, those of unknown type included."""
        for segment in log.list_segments(self.directory):
            for line in log.scan(self.directory, segment):
                try:
                    record = decode(line.content)
                except BadLine:
                    continue  # among `problems`
                yield record

    # -------------------------------------------------------------------------------------------------- inside

    def _read_head(self) -> Manifest:
        """Read `run.json`, or its copy in the log if the file is damaged."""
        try:
            return read_manifest(self.directory)
        except DamagedHead as error:
            sql = "SELECT segment, offset, length FROM events WHERE type = 'run_started'"
            found = self._retry_whole(lambda: self._read_events(RunStarted, sql))
            if not found:
                raise
            self._head_problem = Problem(file=FILE, line=None, reason=f"{error}; its copy in the log is used")
            return found[0].manifest

    def _read_trajectory(self, id: str, *, steps: bool = True) -> Trajectory:
        whole = "SELECT {0}_segment, {0}_offset, {0}_length, trajectory, attempt FROM episodes WHERE trajectory = ?"
        # Start, steps and end stand in the log by their places; the index knows them.
        found = self._read_events(EpisodeStarted, whole.format("start"), id)
        if not found:
            raise UnknownName.of("episode", id, (row[0] for row in self.query("SELECT trajectory FROM episodes")))
        sql = (
            "SELECT segment, offset, length, trajectory, attempt, step FROM steps JOIN episodes USING (key)"
            " WHERE trajectory = ? ORDER BY step"
        )
        played = tuple(event.step for event in self._read_events(StepRecorded, sql, id)) if steps else ()
        ended = f"{whole.format('end')} AND end_segment IS NOT NULL"
        # An episode that runs has no end: it is returned as far as it goes.
        end = next(iter(self._read_events(EpisodeFinished, ended, id)), None)
        return _build_trajectory(found[0], played, end)

    def _retry_whole(self, get: Callable[[], _T]) -> _T:
        """Call `get`; if index and log disagree, rebuild the index from the log and call again."""
        with self._mutex:
            try:
                return get()
            except _Disagreement:
                self.index.close()
                self.index = Index.load(self.directory, trust=False, spare=self._spare)
                return get()

    def _read_events(self, kind: type[_E], sql: str, *values: object) -> list[_E]:
        """Read events at the places of a query; it selects segment, offset, length and the lookup key."""
        return [self._read_event(Place(*row[:3]), kind, row[3:]) for row in self.query(sql, *values)]

    def _read_event(self, place: Place, kind: type[_E], asked: tuple[object, ...]) -> _E:
        try:
            event = decode(log.read(self.directory, place)).event
        except (OSError, BadLine):
            event = None
        if not isinstance(event, kind) or build_lookup_key(event) != asked:
            raise _Disagreement(f"{self.directory}/{log.FOLDER}/{place.segment}: changed while it was read; try again")
        return event

    def _list_tails(self) -> list[Problem]:
        """List half-written last lines; none while a process writes, since it may still finish them."""
        if find_owner(self.directory) is not None:
            return []
        with self._mutex:
            tails = self.index.list_tails(self.directory)
        return [Problem(file=f"{log.FOLDER}/{one.segment}", line=one.line, reason=one.reason) for one in tails]


class Trajectories(Sequence[Trajectory]):
    """Episodes of a run by id; none is kept in memory.

    Args:
        opened: opens the reader of the run for each pass over them.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[RunReader]], ids: tuple[str, ...]) -> None:
        self._opened, self._ids = opened, ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Trajectory]:
        with self._opened() as reader:
            for id in self._ids:
                yield reader.read_trajectory(id)

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Trajectory]: ...

    def __getitem__(self, index: int | slice) -> Trajectory | Sequence[Trajectory]:
        if isinstance(index, slice):
            return Trajectories(self._opened, self._ids[index])
        with self._opened() as reader:
            return reader.read_trajectory(self._ids[index])


def _build_trajectory(start: EpisodeStarted, steps: tuple[Step, ...], end: EpisodeFinished | None) -> Trajectory:
    return Trajectory(
        id=start.trajectory,
        task=start.task,
        episode=start.episode,
        epoch=start.epoch,
        steps=steps,
        final=end.final if end else None,
        outcome=end.outcome if end else None,
        error=end.error if end else None,
        environment=start.environment,
        environment_version=start.environment_version,
        privileged=start.privileged or any(cell.privileged for step in steps for cell in step.matrix),
        seconds=end.seconds if end else 0.0,
    )


def _take_prefix(trajectory: Trajectory) -> Trajectory:
    whole = takewhile(lambda pair: pair[0] == pair[1].index, enumerate(trajectory.steps))
    return replace(trajectory, steps=tuple(step for _, step in whole))
