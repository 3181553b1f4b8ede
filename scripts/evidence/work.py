"""The queue at work: look what is there, do what is missing, one unit after the other.

A unit is begun by its command and gone on with by the product's own way to go on. Its folder lies under the digest of
the base, so that another checkpoint begins anew. Beside it a few lines say how long it has been worked on and by which
code.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, TypeAlias

from collab.comparison import check_result
from collab.errors import RunError, UsageError
from collab.marl.layout import MarlFolder
from collab.store.files import write_atomic, writing
from evidence.figures import report
from evidence.gather import code_digest, gathered, is_over
from evidence.plan import Plan
from evidence.record import Records, UnitRecord, write
from evidence.units import Unit, command, going_on, needs, phase_of, queue

State: TypeAlias = Literal["done", "begun", "missing", "waits", "lost"]
"""waits: for a training that is not done; lost: that training is done, but its weights are not on this machine."""
Run: TypeAlias = Callable[[Sequence[str]], int]
"""Does a command of `collab`, its name left out; returns the exit code."""


class NotOver(RunError):
    """A command ended before its unit was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a measurement lies."""

    work: Path
    """Folder of all that `collab` writes, of this base."""
    units: Path
    """Folder of the files that finished units leave."""
    base: str
    """Digest of the weights that every arm begins with."""

    def folder(self, unit: Unit) -> Path:
        """What `collab` writes for a unit."""
        return self.work / unit.name

    def notes(self, unit: Unit) -> Path:
        """How long it has been worked on, and by which code."""
        return self.work / f"{unit.name}.notes.json"


@dataclass(slots=True, kw_only=True)
class Notes:
    """What all processes that worked on a unit took."""

    seconds: float = 0.0
    code: list[str] = field(default_factory=list)


def collab(words: Sequence[str]) -> int:
    """Run `collab`: the program that COLLAB names, or the one of this Python."""
    program = os.environ.get("COLLAB", str(Path(sys.executable).with_name("collab")))
    print(f"$ {shlex.join(['collab', *words])}", flush=True)
    with _ending() as running, subprocess.Popen([program, *words]) as process:
        running.append(process)
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # it was told, too, and stops by itself; killing it would lose what it is about to write


@contextlib.contextmanager
def _ending() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Where this process is to end, what runs stops in good order, rather than work on alone."""
    running: list[subprocess.Popen[bytes]] = []

    def end(*_: object) -> None:
        for process in running:
            process.send_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield running
    finally:
        signal.signal(signal.SIGTERM, before)


def state(plan: Plan, unit: Unit, records: Records, place: Place) -> State:
    """How far a unit is."""
    if unit in records:
        return "done"
    before = needs(plan, unit)
    if before is not None and before not in records:
        return "waits"
    if before is not None and not place.folder(before).exists():
        return "lost"
    return "begun" if place.folder(unit).exists() else "missing"


def expected(plan: Plan, unit: Unit, records: Records) -> float:
    """Minutes that a unit takes: the median of its like, else the plan's guess."""
    like = [record.seconds.whole / 60 for one, record in records.items() if one.phase == unit.phase]
    return statistics.median(like) if like else phase_of(plan, unit).minutes


def left(plan: Plan, unit: Unit, records: Records, place: Place) -> float:
    """Minutes that are left of a unit; of one that takes longer than expected, a tenth of that."""
    minutes = expected(plan, unit, records)
    return max(minutes - read_notes(place.notes(unit)).seconds / 60, minutes / 10)


def work_off(
    plan: Plan,
    place: Place,
    records: Mapping[Unit, UnitRecord],
    *,
    only: str = "*",
    minutes: float | None = None,
    run: Run = collab,
    clock: Callable[[], float] = time.monotonic,
) -> dict[Unit, UnitRecord]:
    """Do what is missing, until all is done or the next unit would not fit.

    Args:
        records: of the units that are done.
        only: pattern of the names of units that are done; what they wait for must be done or match, too.
        minutes: for everything; a unit that takes longer than expected is stopped, and gone on with next time.

    Returns:
        Records of all units that are done now.

    Raises:
        NotOver: a command failed; what it has done is kept.
        StoreFailure: a unit's file cannot be written.
    """
    done, begun = dict(records), clock()
    for unit in queue(plan):
        if not fnmatch(unit.name, only) or state(plan, unit, done, place) not in ("missing", "begun"):
            continue
        rest = None if minutes is None else minutes - (clock() - begun) / 60
        needed = left(plan, unit, done, place)
        if rest is not None and needed > rest:
            print(f"{unit}: takes some {needed:.0f} minutes, {max(rest, 0):.0f} are left; stopping here")
            break
        if not _finish(plan, unit, place, rest, run, clock):
            print(f"{unit}: stopped, for the time is over; the same command goes on with it")
            break
        done[unit] = _record(plan, unit, place)
    return done


def _finish(plan: Plan, unit: Unit, place: Place, rest: float | None, run: Run, clock: Callable[[], float]) -> bool:
    """Do a unit, from wherever it stands; False where its time was over before it was. NotOver where it failed."""
    begun = MarlFolder(place.folder(unit)).file.exists()
    words = (going_on if begun else command)(plan, unit, place.work)
    if rest is not None:
        words = [*words, "--budget", f"minutes={rest:.1f}"]
    started, code = clock(), code_digest()
    try:
        exit_code = run(words)
    finally:
        _note(place.notes(unit), clock() - started, code)
    if is_over(plan, unit, place.work):
        return True
    if rest is not None and exit_code == 1 and (clock() - started) / 60 >= rest:
        return False
    raise NotOver(
        f"{unit}: collab ended with exit code {exit_code} before all was done; see above, mend it, "
        "and give the same command again"
    )


def _record(plan: Plan, unit: Unit, place: Place) -> UnitRecord:
    """Write the file of a unit that is over; NotOver where so much of it broke that it is no result."""
    notes = read_notes(place.notes(unit))
    record = gathered(plan, unit, place.work, base=place.base, code=notes.code, seconds=notes.seconds)
    if record.measured is not None:
        try:
            check_result(report([record], [None]))
        except UsageError as error:
            raise NotOver(f"{unit}: {error} (the same command plays them again)") from None
    print(f"{unit}: done, {write(place.units, record)}", flush=True)
    return record


def read_notes(path: Path) -> Notes:
    """What is noted so far; nothing where a unit was not begun."""
    return Notes(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Notes()


def _note(path: Path, seconds: float, code: str) -> None:
    notes = read_notes(path)
    told = {"seconds": notes.seconds + seconds, "code": list(dict.fromkeys([*notes.code, code]))}
    with writing(path, "give the same command again"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(told).encode())
