"""Starting a synthesis, and going on with one that stopped."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.collector import Progress as Calls
from collab.config import Budget, validate_recorded, without_secrets
from collab.errors import RunFormatError, UsageError
from collab.models.meter import lost_by
from collab.splits.split import TRAIN
from collab.synth.finish import finish, finished
from collab.synth.journal import Head, Journal, Unanswered, check_free, create, read_head, read_records
from collab.synth.plan import SynthConfig, Unit, units_of
from collab.synth.report import Report, gather
from collab.synth.synth import Ledger, Progress, work
from collab.synthesis.workshop import Opened, opened

Watch = Callable[[Progress], None]
"""Called once, with a live object that changes while the work goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthResult:
    """How a synthesis went."""

    path: Path
    label: str
    report: Report | None
    """None while units are left; those that it names as broken are made again by `resume`."""
    progress: Progress
    """Of this process; rows and units of earlier ones are counted in."""
    stopped: str | None
    """Why it ended early; None when every unit was tried."""


async def start(
    config: SynthConfig, out: Path, *, watch: Watch = lambda progress: None, stop: asyncio.Event | None = None
) -> SynthResult:
    """Make a new set of rows in the directory `out`.

    Raises:
        UsageError: something does not fit, or `out` already holds something; nothing was started.
        OverlapError: a row holds what is kept for evaluation; no table is written.
        StoreFailure: the directory cannot be written; what was recorded stays.
    """
    config = without_secrets(config)
    _check_budget(config)
    check_free(out)
    ledger = Ledger(Progress(calls=Calls(planned=len(units_of(config)))))
    async with opened(config, ledger) as workplace:
        suite = workplace.workshop.suite
        head = Head(
            config=config.model_dump(mode="json"),
            environment=suite.label,
            environment_version=suite.version,
            model=workplace.model,
        )
        create(out, head)
        return await _make(config, head, workplace, out, ledger, watch, stop)


async def resume(
    path: Path,
    *,
    budget: Budget | None = None,
    concurrency: int | None = None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> SynthResult:
    """Go on where a synthesis stopped or died; of a finished one, only tell again what it made.

    Args:
        budget: what may be spent from here on; None grants the synthesis's own budget once more.
        concurrency: units at once; None as before.

    Raises:
        RunFormatError: it cannot be read, or its environment or split is not what it was.
        UsageError: another process is writing it.
    """
    head = read_head(path)
    config = validate_recorded(SynthConfig, head.config, f"{path}/synth.json")
    changes: Mapping[str, Any] = {"budget": budget, "concurrency": concurrency}
    config = config.model_copy(update={name: value for name, value in changes.items() if value is not None})
    _check_budget(config)
    over = finished(path, head)
    if over is not None:
        calls = Calls(planned=over.units, done=over.units, before=over.units)
        progress = Progress(calls=calls, rows=Counter(over.by_level))
        return SynthResult(path=path, label=head.environment, report=over, progress=progress, stopped=None)
    ledger = Ledger(Progress(calls=Calls(planned=len(units_of(config)))))
    async with opened(config, ledger) as workplace:
        _check_unchanged(path, head, config, workplace)
        return await _make(config, head, workplace, path, ledger, watch, stop)


def _check_budget(config: SynthConfig) -> None:
    if config.teacher is None and (config.budget.usd is not None or config.budget.tokens is not None):
        raise UsageError("--budget: the oracle costs neither money nor tokens; limit minutes, or leave it out")


def _check_unchanged(path: Path, head: Head, config: SynthConfig, workplace: Opened) -> None:
    """Refuse to mix rows of two versions of an environment, or of two splits."""
    version = workplace.workshop.suite.version
    if head.environment_version != version:
        raise RunFormatError(
            f"{path}: made with {head.environment} version {head.environment_version}, this is version {version}; "
            "resume it with the Collab version that wrote it"
        )
    if config.split is None or workplace.splits[TRAIN].hash != config.split.hash:
        raise RunFormatError(f"{path}: the training split is not what it was when this was begun; synthesise anew")


async def _make(
    config: SynthConfig,
    head: Head,
    workplace: Opened,
    path: Path,
    ledger: Ledger,
    watch: Watch,
    stop: asyncio.Event | None,
) -> SynthResult:
    units, progress = units_of(config), ledger.progress
    with Journal(path) as journal:
        left = _left(path, units, ledger, journal)
        watch(progress)
        before = lost_by(workplace.teacher)
        try:
            stopped = await work(config, workplace.workshop, journal, left, ledger, stop) if left else None
        finally:
            lost = progress.calls.lost = lost_by(workplace.teacher) - before
            if lost:
                journal.record(Unanswered(lost=lost))
        report = None if stopped else finish(path, head, config, units, workplace.splits)
    return SynthResult(path=path, label=head.environment, report=report, progress=progress, stopped=stopped)


def _left(path: Path, units: Sequence[Unit], ledger: Ledger, journal: Journal) -> list[Unit]:
    """The units that are not made yet; the others are counted in, and what was said is remembered."""
    made, progress = gather(read_records(path)), ledger.progress
    ledger.open(journal, made.said)
    progress.rows.update(row.level for row in made.rows(units))
    progress.calls.done = progress.calls.before = sum(unit.id in made.units for unit in units)
    return [unit for unit in units if unit.id not in made.units]
