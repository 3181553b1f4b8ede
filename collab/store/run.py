"""Run directories: `RunStore` opens one, `RunWriter` writes it, `RunRecorder` records episodes as they happen.

Every event reaches the operating system before the writer's call returns:

    with RunWriter(directory) as writer:
        writer.begin_episode(id, task, episode=0, epoch=0, environment="miniwob", environment_version="1")
        writer.store_text(prefix_hash, prefix)
        writer.step(id, step)
        writer.end_episode(id, outcome=outcome, final=observation, seconds=3.2)
        writer.finish()

So a killed process loses no event. Ends of episodes are also synced to the disk, so a power cut loses at most the
running episodes. All methods may be called from any thread.

A run directory from outside:

    store = RunStore.create(Path("runs/first"), Manifest(command="rollout", config=config, seed=0))
    with store.open_writer() as writer: ...
    with store.open_reader() as reader: ...

    store = RunStore.open(Path("runs/first"))      # later, or from another process
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from collab.errors import StoreFailure
from collab.store import blobs, log
from collab.store import index as indexing
from collab.store.blobs import BlobWriter
from collab.store.events import (
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Event,
    Note,
    Record,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    SpentRecorded,
    StepRecorded,
    TextRecorded,
    without_secrets,
)
from collab.store.index import Index
from collab.store.log import Appender
from collab.store.manifest import FILE, Manifest, collect_versions, find_manifest, write_manifest
from collab.store.reader import RunReader
from collab.store.run_dir import RunDir, RunLock
from collab.types import EpisodeError, Observation, Outcome, Step, Task, Trajectory, Usage
from collab.utils.files import report_write_errors
from collab.utils.redact import list_secrets, redact


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Progress of an episode."""

    attempt: int
    steps: int = 0
    """Recorded steps without a gap."""
    state: str = "unfinished"
    """"unfinished", "finished" or "failed"."""
    running: bool = False
    """Begun or resumed by this writer, and not ended."""


def read_progress(index: Index) -> dict[str, RunProgress]:
    """Return the progress of all episodes in the log."""
    steps: dict[int, int] = {}
    for key, step in index.connection.execute("SELECT key, step FROM steps ORDER BY key, step"):
        if step == steps.get(key, 0):
            steps[key] = step + 1
    rows = index.connection.execute("SELECT key, trajectory, attempt, state FROM episodes")
    return {id: RunProgress(attempt=attempt, state=state, steps=steps.get(key, 0)) for key, id, attempt, state in rows}


logger = logging.getLogger(__name__)


class RunWriter:
    """The only writer of a run, from construction to `close`; it may resume a stopped or dead run.

    Calls out of order (a step of an episode that is not running, a step left out, a finished episode begun again)
    raise ValueError and record nothing.

    Raises:
        UsageError: another process writes this run.
        RunFormatError: the directory is no run, or of a newer format.
        StoreFailure: from every method: the disk is full or permissions are missing; nothing half-written counts.
    """

    def __init__(self, directory: Path, *, manifest: Manifest | None = None) -> None:
        self.directory = directory
        # Before the lock: a directory that is no run must not get a lock file.
        manifest = manifest or find_manifest(directory)
        self._mutex = threading.RLock()
        self._texts: set[str] = set()
        self._secrets = list_secrets()
        self._seq = 0
        self._open = True
        # The lock comes before the index: another writer would make both wrong.
        with report_write_errors(directory):
            self._lock = RunLock(directory)
        # From here on the lock is ours, so every failure has to give it back.
        try:
            with report_write_errors(directory):
                index = Index.load(directory)
                self._episodes = read_progress(index)
                # A tail without a line break is of a writer that died: it is logged and skipped, never repaired.
                for tail in index.list_tails(directory):
                    logger.warning("%s: events/%s:%d: %s", directory, tail.segment, tail.line, tail.reason)
                # A kill between head and first event leaves a run that has not begun, which is started and not resumed.
                begun = index.connection.execute("SELECT 1 FROM events WHERE type = 'run_started'").fetchone()
                self._log = Appender(directory)
            self._index = self._keep(index)
            self._append(
                RunResumed(versions=collect_versions()) if begun or not manifest else RunStarted(manifest=manifest)
            )
        except BaseException:
            self._lock.release()
            raise
        # Pictures may be damaged without harm to the run; that is noted in the log.
        self._blobs = BlobWriter(directory, lambda hash, reason: self.note(f"picture {hash} is unreadable: {reason}"))

    @property
    def name(self) -> str:
        """Name of this writer in its events."""
        return self._log.writer

    def begin_episode(
        self,
        id: str,
        task: Task,
        *,
        episode: int,
        epoch: int,
        environment: str,
        environment_version: str,
        privileged: bool = False,
        worker: str = "",
    ) -> None:
        """Start or restart an episode: the new attempt replaces earlier records."""
        # Episodes are recorded from several coroutines and threads.
        with self._mutex:
            known = self._episodes.get(id)
            if known and (known.running or known.state == "finished"):
                raise ValueError(f"episode {id} is {'running' if known.running else 'finished'} and cannot begin again")
            # A new attempt gets a number, by which readers leave the old one's steps out.
            attempt = known.attempt + 1 if known else 0
            self._append(
                EpisodeStarted(
                    trajectory=id,
                    attempt=attempt,
                    task=task,
                    episode=episode,
                    epoch=epoch,
                    environment=environment,
                    environment_version=environment_version,
                    privileged=privileged,
                    worker=worker,
                )
            )
            self._episodes[id] = RunProgress(attempt=attempt, running=True)

    def resume_episode(self, id: str, step: int | None = None, *, worker: str = "") -> int:
        """Resume an unfinished episode of an earlier writer, whose recorded steps were replayed.

        Args:
            step: first new step, dropping later records; None: after the last recorded step.

        Returns:
            The index of the next step.
        """
        with self._mutex:
            known = self._episodes.get(id)
            if known is None or known.running or known.state == "finished":
                raise ValueError(f"episode {id} is not an unfinished episode of an earlier writer")
            next_step = known.steps if step is None else step
            if not 0 <= next_step <= known.steps:
                raise ValueError(f"episode {id} has {known.steps} steps and cannot resume at step {next_step}")
            self._append(EpisodeResumed(trajectory=id, attempt=known.attempt, step=next_step, worker=worker))
            self._episodes[id] = replace(known, steps=next_step, running=True)
            return next_step

    def interrupt_episode(self, id: str, why: str) -> None:
        """Note that a running episode was cut off, or one that was to begin: it may be resumed, or begun again."""
        with self._mutex:
            self._append(Note(text=why))
            known = self._episodes.get(id)
            if known is not None:
                self._episodes[id] = replace(known, running=False)

    def copy_steps(self, id: str, source: RunReader, origin: str, steps: int) -> None:
        """Begin an episode in a state of another one, whose first steps it takes over with their prompts and pictures.

        It is left unfinished, so that a resume continues after them. An episode that has them is left as it is.

        Args:
            source: of the run of `origin`, an episode of the same instance.
            steps: how many, at least 1.
        """
        with self._mutex:
            known = self._episodes.get(id)
            if known is not None and known.steps >= steps:
                return
            trajectory = source.read_trajectory(origin)
            self.begin_episode(
                id,
                trajectory.task,
                episode=int(id.rpartition("/")[2]),
                epoch=trajectory.epoch,
                environment=trajectory.environment,
                environment_version=trajectory.environment_version,
            )
            # Prompts come before the step that refers to them, as when it was played.
            for step in trajectory.steps[:steps]:
                first = [cell.proposal for cell in step.matrix] + [step.summary_reply]
                for said in (*step.matrix, *filter(None, first)):
                    self.store_text(said.prompt.prefix, source.read_prefix(said.prompt.prefix))
                if (picture := step.observation.screenshot) is not None:
                    self._blobs.copy(source.directory, picture)
                self.step(id, replace(step, copied=True))
            self.interrupt_episode(id, f"{id} begins with step {steps} of {origin} of {source.directory.name}")

    def store_text(self, hash: str, text: str) -> None:
        """Store a text under its SHA-256, once per writer."""
        with self._mutex:
            if hash not in self._texts:
                self._append(TextRecorded(hash=hash, text=text))
                self._texts.add(hash)

    def store_picture(self, picture: bytes) -> str:
        """Store a picture (PNG, WebP or JPEG) in the background; return its hash at once."""
        return self._blobs.put(picture)

    def step(self, id: str, step: Step) -> None:
        """Record a step, so that no death of this process loses it."""
        with self._mutex:
            known = self._get_running(id)
            if step.index != known.steps:
                raise ValueError(f"episode {id}: step {step.index} follows {known.steps} recorded steps")
            self._append(StepRecorded(trajectory=id, attempt=known.attempt, step=step))
            self._episodes[id] = replace(known, steps=known.steps + 1)

    def end_episode(
        self,
        id: str,
        *,
        outcome: Outcome | None = None,
        error: EpisodeError | None = None,
        final: Observation | None = None,
        seconds: float = 0.0,
    ) -> None:
        """End an episode with exactly one of outcome and error."""
        # One of both, never neither: an episode without an end is one that still runs.
        if (outcome is None) == (error is None):
            raise ValueError(f"episode {id} ends with an outcome or with an error, not with both or neither")
        with self._mutex:
            known = self._get_running(id)
            self._append(
                EpisodeFinished(
                    trajectory=id,
                    attempt=known.attempt,
                    outcome=outcome,
                    error=error,
                    final=final,
                    steps=known.steps,
                    seconds=seconds,
                )
            )
            state = "failed" if outcome is None else "finished"
            self._episodes[id] = replace(known, state=state, running=False)
            # Synced at each end: after a power cut, finished episodes are there.
            with report_write_errors(self.directory):
                self._log.sync()
        # A picture that could not be written is reported here, behind the event that needs it.
        self._blobs.check()

    def record_spent(self, spent: Usage) -> None:
        """Record what this process spent."""
        with self._mutex:
            self._append(SpentRecorded(spent=spent))

    def note(self, text: str) -> None:
        """Record a remark that changes nothing."""
        with self._mutex:
            self._append(Note(text=text))

    def stop(self, reason: str) -> None:
        """Record that the run ends before its end, resumable."""
        with self._mutex:
            self._append(RunStopped(reason=reason))

    def finish(self) -> None:
        """Record that all planned episodes are done."""
        with self._mutex:
            self._append(RunFinished())

    def close(self) -> None:
        """Wait for pictures, sync everything to the disk, release the lock. May be called twice."""
        if not self._open:
            return
        try:
            self._blobs.close()  # may still record notes
        finally:
            with self._mutex:
                self._close_files()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; if an error left the block, record first that it stopped the run."""
        try:
            if kind is not None and not issubclass(kind, StoreFailure):
                self.stop(f"{kind.__name__}: {error}".removesuffix(": "))
        finally:
            self.close()

    def _get_running(self, id: str) -> RunProgress:
        known = self._episodes.get(id)
        if known is None or not known.running:
            raise ValueError(f"episode {id} is not running; begin or resume it first")
        return known

    def _append(self, event: Event) -> None:
        if not self._open:
            raise ValueError(f"{self.directory}: this writer is closed")
        record = Record.of(event, seq=self._seq, writer=self._log.writer)
        # Secrets are hidden before the line exists, so none is ever on the disk.
        record, line = without_secrets(record, self._secrets)
        with report_write_errors(self.directory):
            place = self._log.append(line)
        self._seq += 1
        # The index can be rebuilt, so its failure costs the index and not the run.
        if self._index is not None:
            try:
                self._index.add(record, place, self._seq)
                self._index.commit_if_due()
            except sqlite3.Error as error:
                self._drop_index(error)

    def _keep(self, index: Index) -> Index | None:
        """Put the index on the disk; without one a run is slower to read but whole."""
        try:
            return index.save(self.directory)
        except (sqlite3.Error, OSError) as error:
            self._drop_index(error)
            return None

    def _drop_index(self, error: Exception) -> None:
        logger.warning("%s: the index cannot be kept (%s); it will be built from the log", self.directory, error)
        self._index = None
        with report_write_errors(self.directory):
            indexing.remove(self.directory)

    def _close_files(self) -> None:
        self._open = False
        try:
            with report_write_errors(self.directory):
                self._log.close()
            if self._index is not None:
                try:
                    self._index.close()
                except sqlite3.Error as error:
                    self._drop_index(error)
        finally:
            self._lock.release()


class Recorder(Protocol):
    """Records an episode while it is played."""

    def with_worker(self, worker: str) -> Self:
        """Return a recorder of the same run that names the worker which begins or resumes an episode."""
        ...

    def begin(self, trajectory: Trajectory) -> None:
        """Begin an episode, or begin it again, without steps."""
        ...

    def resume(self, trajectory: str, step: int) -> None:
        """Resume an interrupted episode at `step`; the steps before it are recorded already and were replayed."""
        ...

    def store_text(self, key: str, text: str) -> None:
        """Store a prompt prefix by its SHA-256; the same one may come often."""
        ...

    def store_picture(self, png: bytes) -> str:
        """Store a screen, encoding it later; return its SHA-256 at once."""
        ...

    def step(self, trajectory: str, step: Step) -> None:
        """Record a finished step, so that it survives the death of the process."""
        ...

    def end(self, trajectory: Trajectory) -> None:
        """End the episode, with an outcome or an error."""
        ...


class InterruptibleRecorder(Recorder, Protocol):
    """Records episodes that may lose the process that plays them."""

    def interrupt(self, trajectory: str, why: str) -> None:
        """Note such a loss: the episode is resumed or begun again."""
        ...


class RunRecorder:
    """A recorder that writes a run directory."""

    def __init__(self, writer: RunWriter, worker: str = "") -> None:
        self._writer, self._worker = writer, worker
        self.interrupt = writer.interrupt_episode
        self.store_text = writer.store_text
        self.store_picture = writer.store_picture
        self.step = writer.step

    def with_worker(self, worker: str) -> Self:
        """Return a recorder that names this worker."""
        return type(self)(self._writer, worker)

    def begin(self, trajectory: Trajectory) -> None:
        """Begin an episode, or begin it again."""
        self._writer.begin_episode(
            trajectory.id,
            trajectory.task,
            episode=trajectory.episode,
            epoch=trajectory.epoch,
            environment=trajectory.environment,
            environment_version=trajectory.environment_version,
            privileged=trajectory.privileged,
            worker=self._worker,
        )

    def resume(self, trajectory: str, step: int) -> None:
        """Resume an interrupted episode."""
        self._writer.resume_episode(trajectory, step, worker=self._worker)

    def end(self, trajectory: Trajectory) -> None:
        """End the episode."""
        error = trajectory.error
        self._writer.end_episode(
            trajectory.id,
            outcome=trajectory.outcome,
            error=error and replace(error, message=redact(error.message)),
            final=trajectory.final,
            seconds=trajectory.seconds,
        )


@dataclass(frozen=True)
class RunStore(RunDir):
    """One run directory, made by `create` or `open`. Its head is a `Manifest`."""

    HEAD, NOUN, COMMAND = FILE, "run", "collab runs resume"

    manifest: Manifest | None = None
    """The head as `open` read it; None before."""

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunStore:
        """Create a new run.

        Raises:
            UsageError: something is there already, or another process is making it.
            StoreFailure: the file system refuses.
        """
        store = cls(path)
        with store.claim():
            (path / log.FOLDER).mkdir(exist_ok=True)
            (path / blobs.FOLDER).mkdir(exist_ok=True)
            write_manifest(path, manifest)
        return store

    @classmethod
    def open(cls, path: Path) -> RunStore:
        """Open an existing run by its head; RunFormatError if there is no run, or a newer major version wrote it."""
        return cls(path, manifest=find_manifest(path))

    def open_writer(self) -> RunWriter:
        """Open the run's only writer, also to resume a stopped or dead run. Raises as `RunWriter` does."""
        return RunWriter(self.path, manifest=self.manifest)

    def open_reader(self) -> RunReader:
        """Open the run as it is now. Raises as `RunReader` does."""
        return RunReader(self.path, manifest=self.manifest)
