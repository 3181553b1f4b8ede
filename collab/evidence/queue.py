"""The queue at work: do what is missing, one unit after the other or several side by side.

    done = work_off(plan, place, records, jobs=2, say=print)

A unit is begun by its command and resumed by `collab`'s own means. Its folder lies under the digest of the base, so
another checkpoint begins anew. Beside it a small file notes the command that began it, how long it was worked on and by
which code; the notes go with the folder. What was begun by another recipe than today's is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, TypeAlias

from collab.errors import RunError, UsageError
from collab.evaluation.comparison import check_result
from collab.evidence.gather import gather_unit, hash_base, hash_code, is_finished
from collab.evidence.plan import EvidenceUnit, Plan
from collab.evidence.record import Records, UnitRecord, check_base, check_begun, file_of, write
from collab.library import Library
from collab.loop.record import TrainingDir
from collab.utils.files import report_write_errors, write_atomic

State: TypeAlias = Literal["done", "begun", "missing", "waits", "lost"]
"""waits: for a training that is not done; lost: that training is done, but its weights are not on this machine: they
were removed, or another training replaced them."""
Run: TypeAlias = Callable[[str, Sequence[str]], int]
"""Runs a command of `collab`, given a unit's name and all words but the program's; returns the exit code."""
Say: TypeAlias = Callable[[str], None]
"""Prints a line."""
_THREADS = "OMP_NUM_THREADS"
_HEARD_S = 1.0
"""Longest wait of the main thread: one that begins just behind a signal would delay its handler until it ends."""


class NotOver(RunError):
    """A command ended before its unit was over."""


class QueueStopped(RunError):
    """This process was asked to end."""

    def __init__(self) -> None:
        super().__init__("stopped on request; repeat the same command to resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Directories of a measurement."""

    work: Path
    """Folder of all that `collab` writes, of this base."""
    units: Path
    """Folder of the files that finished units leave."""
    base: str
    """Digest of the weights that every arm begins with."""

    @classmethod
    def find(cls, plan: Plan, work: Path, units: Path | None = None, records: Records | None = None) -> Workspace:
        """Return the place of the checkpoint that a plan begins with; UsageError where records began with another one.

        Args:
            plan: names the agents file.
            work: folder of all bases.
            units: of the files; None for a folder in `work`.
            records: of the finished units.
        """
        base = hash_base(plan.agents, Library())
        place = cls(work=work / base[:12], units=units or work / base[:12] / "units", base=base)
        check_base(records or {}, place.units, base)
        return place

    def folder(self, unit: EvidenceUnit) -> Path:
        """Return the folder that `collab` writes for a unit."""
        return self.work / unit.name

    def notes(self, unit: EvidenceUnit) -> Path:
        """Return the file of a unit's `Notes`."""
        return self.work / f"{unit.name}.notes.json"


@dataclass(slots=True, kw_only=True)
class Notes:
    """Times of all processes that worked on a unit."""

    command: str | None = None
    """That began it, as its file holds it; None where it was not noted."""
    seconds: float = 0.0
    begun: float | None = None
    """When the process that is at work began, in seconds since 1970; None between processes, unless one was killed."""
    code: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, place: Workspace, unit: EvidenceUnit) -> Notes:
        """Read what is noted so far: nothing where a unit was not begun, or where its folder was removed."""
        path = place.notes(unit)
        is_there = path.exists() and place.folder(unit).exists()
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if is_there else cls()

    def add_code(self) -> None:
        """Note the code as it is now, where it is not noted yet."""
        self.code = list(dict.fromkeys([*self.code, hash_code()]))

    def write(self, place: Workspace, unit: EvidenceUnit) -> None:
        """Write the notes; StoreFailure where they cannot be written."""
        path = place.notes(unit)
        with report_write_errors(path, "give the same command again"):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, json.dumps(asdict(self)).encode())


def _measure_life(folder: Path, begun: float) -> float:
    """Return the seconds from when a process began to the last file that it wrote into a folder; 0 without any."""
    return max([begun, *(path.lstat().st_mtime for path in folder.rglob("*"))]) - begun


def find_state(plan: Plan, unit: EvidenceUnit, records: Records, place: Workspace) -> State:
    """Return how far a unit is."""
    if unit in records:
        return "done"
    for before in plan.list_awaited(unit):
        if before not in records:
            return "waits"
        head = TrainingDir(place.folder(before))
        made = head.read().get("summary", {}).get("hash") if head.file.exists() else None
        if made != records[before].hashes["training"]:
            return "lost"
    return "begun" if place.folder(unit).exists() else "missing"


def estimate_left(plan: Plan, unit: EvidenceUnit, records: Records, place: Workspace) -> float:
    """Return the minutes left of a unit: from the median of finished ones of its phase, else from the plan's guess.

    For a unit that takes longer than expected, it is a tenth of that.
    """
    like = [record.seconds.whole / 60 for one, record in records.items() if one.phase == unit.phase]
    minutes = statistics.median(like) if like else plan.phases[unit.phase].minutes
    return max(minutes - Notes.read(place, unit).seconds / 60, minutes / 10)


def describe_long(plan: Plan, record: UnitRecord) -> str:
    """Say that a finished unit took longer than units are meant to; empty where it did not."""
    minutes, most = record.seconds.whole / 60, plan.most_minutes
    return f"took {minutes:.1f} minutes, a unit is meant to take at most {most:g}" if minutes > most else ""


def list_units(plan: Plan, place: Workspace, records: Records, asked: Sequence[EvidenceUnit]) -> str:
    """Return a line per unit that is asked for, and how long the rest takes."""
    lines, rest = [], 0.0
    for unit in asked:
        state = find_state(plan, unit, records, place)
        if state == "begun":
            check_recipe(plan, unit, place)
        minutes = 0.0 if state == "done" else estimate_left(plan, unit, records, place)
        rest += minutes
        words = describe_long(plan, records[unit]) if state == "done" else f"{minutes:4.0f} min"
        lines.append(f"{unit.name:44}{state:10}{words}".rstrip())
    return "\n".join([*lines, "", f"{rest / 60:.1f} hours are left on one core"])


def select_units(plan: Plan, only: str) -> list[EvidenceUnit]:
    """Return the units whose names match a pattern; UsageError where there is none."""
    found = [unit for unit in plan.units if fnmatch(unit.name, only)]
    if not found:
        raise UsageError(f"--only {only}: no unit is called so; --list shows all")
    return found


def check_recipe(plan: Plan, unit: EvidenceUnit, place: Workspace) -> None:
    """Raise UsageError where a unit, or the training that it plays, was begun by another recipe than today's."""
    for one in (plan.needs(unit), unit):
        if one is not None:
            check_begun(plan, one, place.work, base=place.base, began=Notes.read(place, one).command)


def work_off(
    plan: Plan,
    place: Workspace,
    records: Mapping[EvidenceUnit, UnitRecord],
    *,
    say: Say,
    asked: Sequence[EvidenceUnit] | None = None,
    minutes: float | None = None,
    jobs: int = 1,
    run: Run | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[EvidenceUnit, UnitRecord]:
    """Do what is missing, until all is done or the next unit would not fit.

    Args:
        plan: whose units.
        place: where they lie.
        records: of the units that are done.
        say: prints what is done.
        asked: the units to be done; what they wait for must be done or among them. None for all.
        minutes: for everything; a unit that takes longer than expected is stopped, and resumed next time.
        jobs: how many units are worked on side by side.
        run: runs `collab`; None for `Commands`.
        clock: in seconds.

    Returns:
        Records of all units that are done now.

    Raises:
        NotOver: a command failed; what it has done is kept. What was begun beside it has ended, too.
        QueueStopped: this process was told to end; what ran has stopped in good order.
        UsageError: a unit was begun by another recipe than today's.
        StoreFailure: a unit's file cannot be written.
    """
    done, begun, asked = dict(records), clock(), plan.units if asked is None else asked
    working: dict[Future[UnitRecord | None], EvidenceUnit] = {}
    failed: list[BaseException] = []
    is_ending = False
    with Commands(jobs, say) as commands, ThreadPoolExecutor(jobs) as workers:
        worker = _UnitWorker(plan, place, run or commands, clock, say)
        while True:
            # Begin as many units as may run, unless the next one would not fit into the time.
            while not (is_ending or commands.stopping) and len(working) < jobs:
                unit = _find_next(plan, place, done, asked, working.values())
                if unit is None:
                    break
                rest = None if minutes is None else minutes - (clock() - begun) / 60
                needed = estimate_left(plan, unit, done, place)
                if rest is not None and needed > rest:
                    say(f"{unit}: takes some {needed:.0f} minutes, {max(rest, 0):.0f} are left; stopping here")
                    is_ending = True
                else:
                    working[workers.submit(worker.work_on, unit, rest)] = unit
            if not working:
                break
            for future in _wait_for_any(working):
                unit = working.pop(future)
                if (error := future.exception()) is not None:
                    failed.append(error)
                elif (record := future.result()) is not None:
                    done[unit] = record
                    continue
                is_ending = True
    if commands.stopping and (failed or _find_next(plan, place, done, asked, ())):
        failed = [*(error for error in failed if not isinstance(error, NotOver | QueueStopped)), QueueStopped()]
    for error in failed[1:]:
        say(f"error: {error}")
    if failed:
        raise failed[0]
    return done


def _wait_for_any(working: Collection[Future[UnitRecord | None]]) -> Collection[Future[UnitRecord | None]]:
    """Wait until some are done, which are returned. Signals are handled meanwhile."""
    while not (over := wait(working, timeout=_HEARD_S, return_when=FIRST_COMPLETED).done):
        pass
    return over


def _find_next(
    plan: Plan, place: Workspace, done: Records, asked: Sequence[EvidenceUnit], taken: Collection[EvidenceUnit]
) -> EvidenceUnit | None:
    """Return the first unit that is asked for, can be worked on and is not; None where there is none now."""
    free = (unit for unit in asked if unit not in taken)
    return next((unit for unit in free if find_state(plan, unit, done, place) in ("missing", "begun")), None)


def describe_undone(plan: Plan, place: Workspace, records: Records, asked: Sequence[EvidenceUnit]) -> list[str]:
    """Name the units that were asked for and cannot be done as things are, with the next move for each of them."""
    lines = []
    for unit in asked:
        state = find_state(plan, unit, records, place)
        for before in plan.list_awaited(unit):
            if state == "lost":
                lines.append(
                    f"{unit}: not done: the weights of {before} are not on this machine; remove "
                    f"{file_of(place.units, before)}, and that training is done again"
                )
            elif state == "waits" and before not in asked:
                lines.append(
                    f"{unit}: not done: it begins with {before}, which is not done and not asked for; widen --only"
                )
    return lines


@dataclass(frozen=True, slots=True)
class _UnitWorker:
    """Does single units, in any thread."""

    plan: Plan
    place: Workspace
    run: Run
    clock: Callable[[], float]
    say: Say

    def work_on(self, unit: EvidenceUnit, rest: float | None) -> UnitRecord | None:
        """Do a unit and write its file; None where its time was over before it was. Errors as of `work_off`."""
        if self._finish(unit, rest):
            return self._record(unit)
        self.say(f"{unit}: stopped because the time is over; the same command resumes it")
        return None

    def _finish(self, unit: EvidenceUnit, rest: float | None) -> bool:
        """Do a unit, from wherever it stands; False where its time was over before. NotOver where it failed."""
        plan, place = self.plan, self.place
        check_recipe(plan, unit, place)
        is_begun = TrainingDir(place.folder(unit)).file.exists()
        words = (plan.resume_command if is_begun else plan.command)(unit, place.work)
        if rest is not None:
            words = [*words, "--budget", f"minutes={rest:.1f}"]
        notes = Notes.read(place, unit)
        notes.command = notes.command if place.folder(unit).exists() else plan.shown_command(unit, place.base)
        if notes.begun is not None:  # the process before was killed, and noted no end
            notes.seconds += _measure_life(place.folder(unit), notes.begun)
        notes.add_code()
        notes.begun = time.time()
        notes.write(place, unit)
        started = self.clock()
        try:
            exit_code = self.run(unit.name, words)
        finally:
            notes.seconds += self.clock() - started
            notes.begun = None
            notes.add_code()  # files may have changed meanwhile
            notes.write(place, unit)
        if is_finished(plan, unit, place.work):
            return True
        if rest is not None and exit_code == 1 and (self.clock() - started) / 60 >= rest:
            return False
        raise NotOver(
            f"{unit}: collab ended with exit code {exit_code} before all was done; see above, mend it, "
            "and give the same command again"
        )

    def _record(self, unit: EvidenceUnit) -> UnitRecord:
        """Write the file of a finished unit; NotOver where so much of it broke that it is no result."""
        place, notes = self.place, Notes.read(self.place, unit)
        record = gather_unit(self.plan, unit, place.work, base=place.base, code=notes.code, seconds=notes.seconds)
        if record.measured is not None:
            try:
                check_result(record.measured.report())
            except UsageError as error:
                raise NotOver(f"{unit}: {error} (the same command plays them again)") from None
        self.say(f"{unit}: done, {write(place.units, record)}")
        if words := describe_long(self.plan, record):
            self.say(f"warning: {unit}: {words}; see what else runs on this machine")
        return record


class Commands:
    """Runs `collab`: the program that COLLAB names, or the one of this Python. Entered in the main thread alone.

    A single command has the terminal for itself. Of several, each line is printed with the name that the command was
    begun under, and each has its share of the processors unless OMP_NUM_THREADS says how many threads a process has.

    Ctrl-C, and every other request to end, reach a command exactly once, from here. A command has no terminal of its
    own that would pass a second one on, at which it would leave without finishing what it writes.

    Args:
        jobs: how many run side by side at most.
        say: prints a line.
    """

    def __init__(self, jobs: int, say: Say) -> None:
        self.stopping = False
        """Whether this process was told to end: what runs was asked to stop in good order, nothing more is begun."""
        self._jobs = jobs
        self._say = say
        self._lock = threading.RLock()
        self._untold: list[subprocess.Popen[bytes]] = []
        self._told: list[subprocess.Popen[bytes]] = []
        self._before: dict[signal.Signals, Any] = {}
        self._threads = os.environ.get(_THREADS)

    def __enter__(self) -> Commands:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._stop)
        if self._jobs > 1 and self._threads is None:
            os.environ[_THREADS] = str(max(1, (os.cpu_count() or 1) // self._jobs))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._threads is None:
            os.environ.pop(_THREADS, None)

    def __call__(self, name: str, words: Sequence[str]) -> int:
        """Run a command until it ends; returns its exit code.

        Args:
            name: printed before each of its lines, where it is not alone.
            words: all but the name of the program.

        Raises:
            UsageError: the program cannot be run.
            QueueStopped: this process was told to end before.
        """
        head = "" if self._jobs == 1 else f"{name} | "
        with self._lock:
            if self.stopping:
                raise QueueStopped
            self._say(f"{head}$ {shlex.join(['collab', *words])}")
            process = self._start(words)
            self._untold.append(process)
            if self.stopping:  # the same thread was told while it began this one
                self._tell()
        with process:
            try:
                for line in process.stdout or ():
                    self._say(f"{head}{line.decode(errors='replace').rstrip()}")
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(_HEARD_S)
            finally:
                with self._lock:
                    for listed in (self._untold, self._told):
                        with contextlib.suppress(ValueError):
                            listed.remove(process)

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        program = os.environ.get("COLLAB", os.path.join(os.path.dirname(sys.executable), "collab"))
        output: dict[str, Any] = {} if self._jobs == 1 else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            return subprocess.Popen([program, *words], start_new_session=True, **output)
        except OSError as error:
            raise UsageError(
                f"{program}: cannot be run ({error.strerror}); install Collab beside this Python, or name the program: "
                "COLLAB=PATH"
            ) from None

    def _stop(self, number: int, frame: FrameType | None) -> None:
        with self._lock:  # waits for other threads, so that none of theirs is begun unseen
            self.stopping = True
            for process in self._told:
                process.send_signal(signal.SIGINT)
            self._tell()

    def _tell(self) -> None:
        """Tell each command that heard nothing so far; a signal meanwhile tells none of them a second time."""
        while self._untold:
            process = self._untold.pop()
            self._told.append(process)
            process.send_signal(signal.SIGINT)
