"""Make units of work concurrently, and write the rows; each unit is kept whole or not at all.

    stopped = await work(config, resources, journal, units, ledger)

Workers, each with an environment of its own, take units from one queue. A walk explores and is taught at the steps
that its unit names. An episode follows the environment's solution, or the teacher's own way, and is taught on every
screen. A broken unit (a dead browser, a silent model server) is recorded with its reason, and a resume makes it again.

Work ends with the queue, on request, with the budget, after ten broken units in a row, or after ten in a row without a
usable reply. Units in flight are then dropped, but their logged replies are reused by a resume.

`finish` turns the journal into one Parquet file per level, the instructions as tasks, the card and the manifest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import TypeAdapter

from collab.data.example import LEVELS, Example, Level
from collab.data.parquet import ExampleWriter
from collab.data.splits import HeldOutInstances, Split, split_words
from collab.envs.base import Environment, Suite, limit_environments
from collab.errors import EnvironmentFailure, ModelFailure, RunError, boundary
from collab.models.base import Reply
from collab.rollout.collector import RolloutProgress
from collab.rollout.executors.base import OwnEnvironment
from collab.store.manifest import format_now
from collab.synthesis.card import (
    Made,
    SynthesisReport,
    format_most_refused,
    gather,
    refuse_leaks,
    report,
    select,
    write_card,
)
from collab.synthesis.config import WALK_STEPS, SynthConfig, Unit
from collab.synthesis.journal import INSTRUCTIONS, Done, Head, Journal, Said, SynthesisDir, read_records
from collab.synthesis.screens import explore, follow
from collab.synthesis.teacher import SUITED, Scene, StoredInstruction, Teacher, TeacherOutput
from collab.types import Task
from collab.utils.concurrency import PATIENCE, WorkerPool
from collab.utils.files import hash_file, report_write_errors, write_atomic
from collab.utils.redact import redact

KEPT_WORD = "a word that is kept for evaluation"
"""Cause of a refusal: the teacher's reply has such a word, but neither screen nor task does."""


ItemT = TypeVar("ItemT")


@runtime_checkable
class Player(Protocol):
    """A teacher that finds its own way through a task instead of following the environment's."""

    def follow(
        self, suite: Suite, environment: Environment, task: Task, *, seed: int
    ) -> AsyncIterator[Scene | TeacherOutput]:
        """Yield the scenes of an episode, and refusals on the way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisResources:
    """Resources that units are made with."""

    suite: Suite
    teacher: Teacher
    kept: Sequence[HeldOutInstances] = ()
    """Instances reserved for evaluation."""


async def make(unit: Unit, environment: Environment, config: SynthConfig, resources: SynthesisResources) -> Done:
    """Make all rows of a unit; the same unit gives the same rows if the teacher is deterministic.

    Raises:
        EnvironmentFailure: the environment broke.
        ModelFailure: the teacher's model cannot be reached.
    """
    rows: list[Example] = []
    instructions: list[StoredInstruction] = []
    refused: dict[str, Counter[str]] = {}
    screens = 0
    async with _close_at_end(_meet_scenes(unit, environment, config, resources)) as met:
        async for item in met:
            if isinstance(item, TeacherOutput):
                refused.setdefault(_choose_level(config), Counter()).update(item.refused)
                continue
            screens += 1
            for level in _list_levels(item, config, resources.teacher):
                output = await resources.teacher.teach(item, level)
                kept, words = _without_kept_words(output, item, resources.kept)
                rows += kept
                instructions += output.instructions
                if words or output.refused:
                    refused.setdefault(level, Counter()).update(output.refused)
                    refused[level].update({KEPT_WORD: words} if words else {})
            await asyncio.sleep(0)  # let other tasks run, e.g. a stop request
    # Of a row that was left out, the instruction is, too.
    ids = {row.id for row in rows} if instructions else set()
    instructions = [one for one in instructions if one.row in ids]
    return Done(unit=unit.id, rows=tuple(rows), instructions=tuple(instructions), refused=refused, screens=screens)


async def _meet_scenes(
    unit: Unit, environment: Environment, config: SynthConfig, resources: SynthesisResources
) -> AsyncIterator[Scene | TeacherOutput]:
    """Yield a unit's scenes to teach, and refusals on the way."""
    suite, teacher = resources.suite, resources.teacher
    task = suite.instance(unit.task, unit.instance)
    if unit.kind == "walk":
        task = replace(task, max_steps=WALK_STEPS + 1)  # so that the task's own budget ends no walk
        async with _close_at_end(explore(suite, environment, task, seed=unit.seed, steps=WALK_STEPS)) as scenes:
            async for scene in scenes:
                if scene.step in unit.scenes:
                    yield scene
    elif isinstance(teacher, Player):
        async with _close_at_end(teacher.follow(suite, environment, task, seed=unit.seed)) as played:
            async for item in played:
                yield item
    else:
        async with _close_at_end(follow(suite, environment, task, seed=unit.seed, mistakes=config.mistakes)) as scenes:
            async for scene in scenes:
                yield scene


def _choose_level(config: SynthConfig) -> Level:
    """Return the level that counts refusals on the way through an episode."""
    return "demonstration" if "demonstration" in config.levels else config.levels[-1]


def _list_levels(scene: Scene, config: SynthConfig, teacher: Teacher) -> list[Level]:
    """Return the levels to teach on a scene, in order."""
    # Candidates come with their judgements.
    taught = SUITED[scene.met] & teacher.levels - {"candidate"}
    return [level for level in LEVELS if level in config.levels and level in taught]


def _without_kept_words(
    output: TeacherOutput, scene: Scene, kept: Sequence[HeldOutInstances]
) -> tuple[list[Example], int]:
    """Drop rows in which the teacher adds an evaluation word; return the rest and the number dropped.

    A word on the screen or in the task is a leak of the split, which the final check refuses.
    """
    words = frozenset(word for one in kept for word in one.words)
    own = words - split_words(scene.observation.text) - split_words(scene.task.goal)
    rows = [row for row in output.rows if not own & {word for text in row.instance.texts for word in split_words(text)}]
    return rows, len(output.rows) - len(rows)


@contextlib.asynccontextmanager
async def _close_at_end(items: AsyncIterator[ItemT]) -> AsyncIterator[AsyncIterator[ItemT]]:
    """Close a generator at the block's end instead of at garbage collection."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


@dataclass(slots=True, kw_only=True)
class SynthesisProgress:
    """Live progress of a synthesis."""

    calls: RolloutProgress
    """Units (planned, done, broken), model calls and what they cost."""
    rows: Counter[str] = field(default_factory=Counter)
    """By level, those of earlier processes included; before anything is left out at the end."""
    refused: int = 0


class Ledger:
    """Counts and logs every reply of the teacher's model, and reuses replies of earlier processes."""

    def __init__(self, progress: SynthesisProgress) -> None:
        self.progress = progress
        self._said: Mapping[str, str] = {}
        self._journal: Journal | None = None
        self._changed: Callable[[], object] = lambda: None

    def open(self, journal: Journal, said: Mapping[str, str]) -> None:
        """Write into this journal from now on.

        Args:
            said: replies of earlier processes, by the calls that they answer.
        """
        self._journal, self._said = journal, said

    def watch(self, changed: Callable[[], object]) -> None:
        """Call this after every reply."""
        self._changed = changed

    def recall(self, call: str) -> str | None:
        """Return an earlier process's reply; see `ReplyMemory`."""
        return self._said.get(call)

    def keep(self, call: str, reply: Reply) -> None:
        """Count and log a reply; StoreFailure if it cannot be written."""
        self.progress.calls.count_reply(reply)
        if self._journal is not None:
            cost = RolloutProgress(planned=0)
            cost.count_reply(reply)
            self._journal.record(Said(said=call, text=reply.text, spent=cost.spent))
        self._changed()


async def work(
    config: SynthConfig,
    resources: SynthesisResources,
    journal: Journal,
    units: Sequence[Unit],
    ledger: Ledger,
    stop: asyncio.Event | None = None,
) -> str | None:
    """Make all units; each is in the journal before the next one of its worker begins.

    Args:
        ledger: receives every reply of the teacher's model; open on the same journal.
        stop: set it to end the work at once.

    Returns:
        Why it ended early; None when every unit was tried.

    Raises:
        StoreFailure: the journal cannot be written; units in flight are given up.
    """
    # Budgets are known before work begins, so that the time left can be estimated.
    budgets = {info.name: config.environment.limits.limit_steps(info.max_steps) for info in resources.suite.tasks()}
    for unit in units:
        budget = len(unit.scenes) if unit.kind == "walk" else budgets.get(unit.task, 1)
        ledger.progress.calls.workload.plan(unit.id, budget, unit.kind)
    calls = ledger.progress.calls
    pool = WorkerPool(
        units,
        exceeded=lambda: calls.explain_exceeded(config.budget),
        stop=stop,
        failing="units in a row broke",
        has_clock=config.budget.minutes is not None,
    )
    worker = _SynthesisWork(config=config, resources=resources, journal=journal, ledger=ledger, pool=pool)
    # Limits are looked at after every call, not only between units.
    ledger.watch(pool.can_continue)
    await pool.run(limit_environments(resources.suite, min(config.concurrency, len(units))), worker.work)
    return pool.stopped if worker.tried < len(units) else None


@dataclass(slots=True, kw_only=True)
class _SynthesisWork:
    config: SynthConfig
    resources: SynthesisResources
    journal: Journal
    ledger: Ledger
    pool: WorkerPool[Unit]
    tried: int = 0
    """Units that came to their end."""
    _fruitless: list[Done] = field(default_factory=list)

    async def work(self) -> None:
        """Make units until none is left or the pool stops."""
        async with OwnEnvironment(self.resources.suite) as own:
            for unit in self.pool.take():
                self.ledger.progress.calls.workload.begin(unit.id)
                try:
                    done = await self._make(unit, await own.get())
                except (EnvironmentFailure, ModelFailure) as failure:
                    done = Done(unit=unit.id, broken=redact(str(failure)))
                    await own.discard()
                self._keep(done)

    async def _make(self, unit: Unit, environment: Environment) -> Done:
        limit = self.config.environment.limits.episode_s
        with boundary(EnvironmentFailure, f"{unit.id} of {self.resources.suite.label} (limit {limit:g} s)"):
            async with asyncio.timeout(limit):
                return await make(unit, environment, self.config, self.resources)

    def _keep(self, done: Done) -> None:
        # Recorded first: a kill must not leave a count without its unit.
        self.journal.record(done)
        self.tried += 1
        progress = self.ledger.progress
        progress.calls.done += 1
        progress.calls.workload.count(done.unit, done.screens)
        progress.calls.workload.end(done.unit)
        progress.calls.broken += done.broken is not None
        progress.rows.update(row.level for row in done.rows)
        progress.refused += sum(sum(causes.values()) for causes in done.refused.values())
        self.pool.count(done.broken)
        # Units without a row, though questions were answered, are a sign of a teacher that does not fit.
        self._fruitless = [] if done.rows or done.broken or not done.refused else [*self._fruitless, done]
        if self.config.teacher is not None and len(self._fruitless) >= PATIENCE:
            causes = format_most_refused(self._fruitless)
            self.pool.halt(f"nothing of {PATIENCE} units in a row could be used; refused most often: {causes}")


CARD = "card.md"

_REPORT: TypeAdapter[SynthesisReport] = TypeAdapter(SynthesisReport)


def finish(
    directory: Path, head: Head, config: SynthConfig, units: Sequence[Unit], splits: Mapping[str, Split]
) -> SynthesisReport:
    """Select, check and write the journal's rows; a repetition gives the same files.

    With broken units, the tables hold the rows of the others, and card and end date are still missing.

    Raises:
        RunError: no row came out, because units broke.
        UsageError: no row came out, although none broke.
        OverlapError: a row holds an evaluation instance; no table is written.
        StoreFailure: the disk is full.
    """
    made = gather(read_records(directory))
    _check_something(directory, made)
    # Selected over all units by seed, so that the order of making does not matter.
    selection = select(
        made.iterate_rows(units),
        seed=config.seed,
        cap=config.at_most,
        judgements=None if config.judgement is None else config.judgement.rows,
    )
    refuse_leaks(selection.rows, splits.values())
    kept = {row.id for row in selection.rows if row.level == "instruction"}
    instructions = list(made.iterate_instructions(units, kept))
    found = report(made, selection, len(instructions))
    files = _write_tables(directory, config, selection.rows)
    folder = SynthesisDir(directory)
    with report_write_errors(directory, folder.resume):
        files |= _write_instructions(directory, instructions)
        # With a broken unit the set is not finished, and has no card yet.
        if found.broken:
            (directory / CARD).unlink(missing_ok=True)
        else:
            card = write_card(head, config, found, [name for name, split in splits.items() if not split.is_training])
            write_atomic(directory / CARD, card.encode("utf-8", "replace"))
            files[CARD] = {"sha256": hash_file(directory / CARD)}
    # The head comes last: a date in it means that all files are there.
    over = None if found.broken else format_now()
    folder.write(replace(head, finished=over, files=files, report=asdict(found)))
    return found


def read_report(directory: Path, head: Head) -> SynthesisReport | None:
    """Return the report of a finished synthesis; None if units are left or broken, or a file has changed."""
    if head.finished is None or head.report.get("broken"):
        return None
    for name, told in head.files.items():
        path = directory / name
        if not path.is_file() or hash_file(path) != told["sha256"]:
            return None
    return _REPORT.validate_python(head.report)


def describe_missing(directory: Path) -> str | None:
    """Describe in one line what a set of rows lacks; None if it is complete or not from `collab synth`.

    Raises:
        RunFormatError: its manifest cannot be read by this version.
    """
    folder = SynthesisDir(directory)
    if not folder.file.is_file():
        return None
    head = folder.read_head()
    broken = len(head.report.get("broken", ()))
    if broken:
        units = "1 unit is" if broken == 1 else f"{broken} units are"
        return f"{directory}: {units} missing; make the set whole with: {folder.resume}"
    return f"{directory}: is not finished; resume it with: {folder.resume}" if head.finished is None else None


def _check_something(directory: Path, made: Made) -> None:
    if any(done.rows for done in made.units.values()):
        return
    if made.broken:
        last, again = list(made.broken.values())[-1], SynthesisDir(directory).resume
        raise RunError(f"no row was made: {len(made.broken)} units broke, the last: {last}; resume with: {again}")
    causes = format_most_refused(made.units.values())
    if causes:
        raise RunError(f"{directory}: no row was made; refused most often: {causes}; try another teacher")


def _write_tables(directory: Path, config: SynthConfig, rows: Iterable[Example]) -> dict[str, dict[str, Any]]:
    """Write one file per level with rows; remove old files of levels without rows."""
    kept = list(rows)
    files: dict[str, dict[str, Any]] = {}
    for level in config.levels:
        path = directory / f"{level}.parquet"
        own = [row for row in kept if row.level == level]
        # An earlier end may have had rows of a level that this one has not.
        if not own:
            path.unlink(missing_ok=True)
            continue
        with ExampleWriter(path) as out:
            for row in own:
                out.add(row)
        files[path.name] = {"sha256": hash_file(path), "rows": len(own)}
    return files


def _write_instructions(directory: Path, found: Sequence[StoredInstruction]) -> dict[str, dict[str, Any]]:
    """Write the instructions that can be played as tasks, a line each; without any, remove an old file."""
    path = directory / INSTRUCTIONS
    if not found:
        path.unlink(missing_ok=True)
        return {}
    lines = (json.dumps({"name": one.name, **asdict(one)}, ensure_ascii=True) + "\n" for one in found)
    write_atomic(path, "".join(lines).encode())
    return {path.name: {"sha256": hash_file(path), "rows": len(found)}}
