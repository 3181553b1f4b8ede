"""The queue at work: look what is there, do what is missing, one unit after the other or several side by side.

A unit is begun by its command and gone on with by the product's own way to go on. Its folder lies under the digest of
the base, so that another checkpoint begins anew. Beside it a few lines say by which command it was begun, how long it
has been worked on and by which code; they go with the folder. What was begun by another recipe than today's is refused.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, TypeAlias

from collab.errors import RunError, UsageError
from collab.evaluation.comparison import check_result
from collab.loop.record import TrainingDir
from collab.utils.files import report_write_errors, write_atomic
from evidence.commands import Commands, Stopped
from evidence.figures import report
from evidence.gather import code_digest, gathered, is_over
from evidence.plan import MOST, Plan
from evidence.recipe import check_begun
from evidence.record import Records, UnitRecord, file_of, write
from evidence.units import Unit, command, going_on, needs, phase_of, queue, shown_command

State: TypeAlias = Literal["done", "begun", "missing", "waits", "lost"]
"""waits: for a training that is not done; lost: that training is done, but its weights are not on this machine, be
they gone or another training's."""
Run: TypeAlias = Callable[[str, Sequence[str]], int]
"""Does a command of `collab`, given a unit's name and all words but the program's; returns the exit code."""


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
        """By which command it was begun, how long it has been worked on, and by which code."""
        return self.work / f"{unit.name}.notes.json"


@dataclass(slots=True, kw_only=True)
class Notes:
    """What all processes that worked on a unit took."""

    command: str | None = None
    """That began it, as its file tells it; None where nobody noted it."""
    seconds: float = 0.0
    code: list[str] = field(default_factory=list)


def state(plan: Plan, unit: Unit, records: Records, place: Place) -> State:
    """How far a unit is."""
    if unit in records:
        return "done"
    before = needs(plan, unit)
    if before is not None and before not in records:
        return "waits"
    if before is not None and not _lies_there(records[before], place.folder(before)):
        return "lost"
    return "begun" if place.folder(unit).exists() else "missing"


def _lies_there(training: UnitRecord, folder: Path) -> bool:
    """Whether the training that a file tells of is there, and not another one of the same unit."""
    head = TrainingDir(folder)
    return head.file.exists() and head.read().get("summary", {}).get("hash") == training.hashes["training"]


def expected(plan: Plan, unit: Unit, records: Records) -> float:
    """Minutes that a unit takes: the median of its like, else the plan's guess."""
    like = [record.seconds.whole / 60 for one, record in records.items() if one.phase == unit.phase]
    return statistics.median(like) if like else phase_of(plan, unit).minutes


def left(plan: Plan, unit: Unit, records: Records, place: Place) -> float:
    """Minutes that are left of a unit; of one that takes longer than expected, a tenth of that."""
    minutes = expected(plan, unit, records)
    return max(minutes - noted(place, unit).seconds / 60, minutes / 10)


def too_long(record: UnitRecord) -> str | None:
    """In words, where a finished unit took longer than units are meant to; None where it did not."""
    minutes = record.seconds.whole / 60
    return f"took {minutes:.1f} minutes, a unit is meant to take at most {MOST:g}" if minutes > MOST else None


def check_recipe(plan: Plan, unit: Unit, place: Place) -> None:
    """UsageError where a unit, or the training that it plays, was begun by another recipe than today's."""
    for one in (needs(plan, unit), unit):
        if one is not None:
            check_begun(plan, one, place.work, base=place.base, began=noted(place, one).command)


def work_off(
    plan: Plan,
    place: Place,
    records: Mapping[Unit, UnitRecord],
    *,
    only: str = "*",
    minutes: float | None = None,
    jobs: int = 1,
    run: Run | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[Unit, UnitRecord]:
    """Do what is missing, until all is done or the next unit would not fit.

    Args:
        records: of the units that are done.
        only: pattern of the names of units that are done; what they wait for must be done or match, too.
        minutes: for everything; a unit that takes longer than expected is stopped, and gone on with next time.
        jobs: how many units are worked on side by side.
        run: of what `collab` is asked; None for `Commands`.

    Returns:
        Records of all units that are done now.

    Raises:
        NotOver: a command failed; what it has done is kept. What was begun beside it has ended, too.
        Stopped: this process was told to end; what ran has stopped in good order.
        UsageError: a unit was begun by another recipe than today's.
        StoreFailure: a unit's file cannot be written.
    """
    done, begun = dict(records), clock()
    working: dict[Future[UnitRecord | None], Unit] = {}
    failed: list[BaseException] = []
    ending = False
    with Commands(jobs) as commands, ThreadPoolExecutor(jobs) as workers:
        while True:
            while not (ending or commands.stopping) and len(working) < jobs:
                unit = _next(plan, place, done, only, working.values())
                if unit is None:
                    break
                rest = None if minutes is None else minutes - (clock() - begun) / 60
                if _fits(unit, left(plan, unit, done, place), rest):
                    working[workers.submit(_worked_on, plan, unit, place, rest, run or commands, clock)] = unit
                else:
                    ending = True
            if not working:
                break
            for future in wait(working, return_when=FIRST_COMPLETED).done:
                unit = working.pop(future)
                if (error := future.exception()) is not None:
                    failed.append(error)
                elif (record := future.result()) is not None:
                    done[unit] = record
                    continue
                ending = True
    if commands.stopping and (failed or _next(plan, place, done, only, ())):
        failed = [*(error for error in failed if not isinstance(error, NotOver | Stopped)), Stopped()]
    for error in failed[1:]:
        print(f"error: {error}", file=sys.stderr)
    if failed:
        raise failed[0]
    return done


def _next(plan: Plan, place: Place, done: Records, only: str, taken: Collection[Unit]) -> Unit | None:
    """The first unit that is asked for, can be worked on and is not; None where there is none now."""
    for unit in queue(plan):
        if fnmatch(unit.name, only) and unit not in taken and state(plan, unit, done, place) in ("missing", "begun"):
            return unit
    return None


def _fits(unit: Unit, needed: float, rest: float | None) -> bool:
    """Whether a unit that needs so many minutes ends in those that are left; tells where it does not."""
    if rest is None or needed <= rest:
        return True
    print(f"{unit}: takes some {needed:.0f} minutes, {max(rest, 0):.0f} are left; stopping here")
    return False


def _worked_on(
    plan: Plan, unit: Unit, place: Place, rest: float | None, run: Run, clock: Callable[[], float]
) -> UnitRecord | None:
    """Do a unit and write its file; None where its time was over before it was. Errors as of `work_off`."""
    if _finish(plan, unit, place, rest, run, clock):
        return _record(plan, unit, place)
    print(f"{unit}: stopped, for the time is over; the same command goes on with it", flush=True)
    return None


def undone(plan: Plan, place: Place, records: Records, only: str = "*") -> list[str]:
    """In words, the units that were asked for and cannot be done as things are, and the next move for each of them."""
    told = []
    for unit in queue(plan):
        before = needs(plan, unit)
        if before is None or not fnmatch(unit.name, only):
            continue
        found = state(plan, unit, records, place)
        if found == "lost":
            told.append(
                f"{unit}: not done: the weights of {before} are not on this machine; remove "
                f"{file_of(place.units, before)}, and that training is done again"
            )
        elif found == "waits" and not fnmatch(before.name, only):
            told.append(f"{unit}: not done: it plays {before}, which is not done and not asked for; widen --only")
    return told


def _finish(plan: Plan, unit: Unit, place: Place, rest: float | None, run: Run, clock: Callable[[], float]) -> bool:
    """Do a unit, from wherever it stands; False where its time was over before it was. NotOver where it failed."""
    check_recipe(plan, unit, place)
    begun = TrainingDir(place.folder(unit)).file.exists()
    words = (going_on if begun else command)(plan, unit, place.work)
    if rest is not None:
        words = [*words, "--budget", f"minutes={rest:.1f}"]
    notes = noted(place, unit)
    notes.command = notes.command if place.folder(unit).exists() else shown_command(plan, unit, place.base)
    _note(place.notes(unit), notes)
    started, code = clock(), code_digest()
    try:
        exit_code = run(unit.name, words)
    finally:
        notes.seconds += clock() - started
        notes.code = list(dict.fromkeys([*notes.code, code, code_digest()]))  # files may have changed meanwhile
        _note(place.notes(unit), notes)
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
    notes = noted(place, unit)
    record = gathered(plan, unit, place.work, base=place.base, code=notes.code, seconds=notes.seconds)
    if record.measured is not None:
        try:
            check_result(report(record.measured))
        except UsageError as error:
            raise NotOver(f"{unit}: {error} (the same command plays them again)") from None
    print(f"{unit}: done, {write(place.units, record)}", flush=True)
    if (told := too_long(record)) is not None:
        print(f"warning: {unit}: {told}; see what else runs on this machine", file=sys.stderr, flush=True)
    return record


def noted(place: Place, unit: Unit) -> Notes:
    """What is noted so far; nothing where a unit was not begun, or where its folder was removed."""
    path = place.notes(unit)
    there = path.exists() and place.folder(unit).exists()
    return Notes(**json.loads(path.read_text(encoding="utf-8"))) if there else Notes()


def _note(path: Path, notes: Notes) -> None:
    with report_write_errors(path, "give the same command again"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(asdict(notes)).encode())
