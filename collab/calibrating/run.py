"""Starting a calibration, and going on with one that stopped."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collab.calibrating.configure import CalibrationConfig
from collab.calibrating.workplace import Workplace, opened
from collab.config import Budget, validate_recorded, without_secrets
from collab.credit.asking import text_hash
from collab.credit.calibration import Pass, measure, passes
from collab.credit.calibration_picture import to_svg
from collab.credit.calibration_record import (
    FILE,
    PICTURE,
    CalibrationRecord,
    read_record,
    write_record,
)
from collab.credit.critic import Judgement
from collab.credit.known import KnownCase
from collab.credit.labelling import Labelling, label
from collab.credit.labels import LabelHead, LabelWriter, read_labels
from collab.errors import EnvironmentFailure, RunFormatError, boundary
from collab.store.cost import total
from collab.store.files import write_atomic, writing
from collab.store.run_dir import check_free, new_directory
from collab.wording import amount


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far it is; a live object."""

    planned: int = 0
    """Judgements in all passes; 0 while the known steps are made."""
    labelling: Labelling = field(default_factory=Labelling)
    """Counts all passes of this process."""

    @property
    def done(self) -> int:
        """Judgements that are there, those of earlier processes included."""
        return self.labelling.known + self.labelling.judged


Watch = Callable[[Progress], None]
"""Called once, with a live object that changes while the work goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """How a calibration went."""

    path: Path
    record: CalibrationRecord
    progress: Progress
    stopped: str | None
    """Why it ended early; None when it is finished."""


def resume_command(directory: Path) -> str:
    """What to type to go on with a calibration."""
    return f"collab critic calibrate --resume {shlex.quote(str(directory))}"


async def start(
    config: CalibrationConfig, out: Path, *, watch: Watch = lambda progress: None, stop: asyncio.Event | None = None
) -> CalibrationResult:
    """Calibrate a critic, recorded in the new directory `out`.

    Raises:
        UsageError: something does not fit, or `out` already holds something; nothing was started.
        EnvironmentFailure: no environment can be opened, or it broke.
        ModelFailure: the critic's server does not answer.
        StoreFailure: the directory cannot be written; what was recorded stays.
    """
    config = without_secrets(config)
    check_free(out, FILE, noun="calibration", resume=resume_command(out))
    async with opened(config) as place:
        with boundary(EnvironmentFailure, f"opening {place.suite.label}"):
            await (await place.suite.open()).close()
        record = CalibrationRecord(
            critic=config.critic_name,
            label=place.bench.label,
            digest=place.bench.digest,
            config=config.model_dump(mode="json"),
            environment=place.suite.label,
            environment_version=place.suite.version,
            model=await place.about(),
            prompts={name: text_hash(text) for name, text in config.texts.items()},
            seeds={one.name: place.seed(one.seed) for one in passes((), config.permutations)},
        )
        with new_directory(out, FILE, noun="calibration", resume=resume_command(out)):
            write_record(out, record)
        return await _work(record, place, out, watch, stop)


async def resume(
    path: Path,
    *,
    budget: Budget | None = None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> CalibrationResult:
    """Go on where a calibration stopped or died; of a finished one, only tell again what came of it.

    Args:
        budget: what may be spent from here on; None grants the calibration's own budget once more.

    Raises:
        RunFormatError: it cannot be read, or the environment or the critic is not what it was.
        UsageError: another process is writing it.
    """
    record = read_record(path)
    if record.numbers is not None:
        return CalibrationResult(path=path, record=record, progress=Progress(), stopped=None)
    config = validate_recorded(CalibrationConfig, record.config, f"{path}/{FILE}")
    if budget is not None:
        config = config.model_copy(update={"budget": budget})
    async with opened(config) as place:
        _check_unchanged(path, record, place)
        await place.about()
        return await _work(record, place, path, watch, stop)


def _check_unchanged(path: Path, record: CalibrationRecord, place: Workplace) -> None:
    """Refuse to mix what two critics said, or of two versions of an environment."""
    if record.environment_version != place.suite.version:
        raise RunFormatError(
            f"{path}: made with {record.environment} version {record.environment_version}, this is version "
            f"{place.suite.version}; resume it with the Collab version that wrote it"
        )
    if record.digest != place.bench.digest:
        raise RunFormatError(
            f"{path}: was begun with {record.label}, which judged otherwise than {place.bench.label} does now; "
            "resume it with the Collab version that wrote it, or calibrate anew"
        )


async def _work(
    record: CalibrationRecord, place: Workplace, path: Path, watch: Watch, stop: asyncio.Event | None
) -> CalibrationResult:
    config, progress = place.config, Progress()
    watch(progress)
    known = await place.known()
    asked = passes(known, config.permutations)
    progress.planned = len(asked) * len(known)
    for one in asked:
        await _ask(one, place, path, progress, stop)
        if progress.labelling.stopped is not None:
            return CalibrationResult(path=path, record=record, progress=progress, stopped=progress.labelling.stopped)
    judged = {one.name: _judged(path, one) for one in asked}
    failures = [why for _, found in judged.values() for why in found]
    if failures:
        told = f"{len(failures)} of {amount(progress.planned, 'judgement')} failed ({failures[0]})"
        return CalibrationResult(path=path, record=record, progress=progress, stopped=told)
    lost = [one for known_pass in asked for one in read_labels(path, known_pass.name).lost]
    record = _finished(record, known, {name: found for name, (found, _) in judged.items()}, config.bins)
    record = replace(record, spent=total([*([] if record.spent is None else [record.spent]), *lost]))
    with writing(path, f"go on with: {resume_command(path)}"):
        write_atomic(path / PICTURE, to_svg(record).encode())
        write_record(path, record)
    return CalibrationResult(path=path, record=record, progress=progress, stopped=None)


async def _ask(one: Pass, place: Workplace, path: Path, progress: Progress, stop: asyncio.Event | None) -> None:
    """Have all steps of a pass judged that are not judged yet; each is on the disk before the next question."""
    bench, config = place.bench, place.config
    head = LabelHead(critic=bench.label, options={"digest": bench.digest}, seed=place.seed(one.seed))
    with LabelWriter(path, one.name, head, home=read_record) as writer:
        await label(
            one.cases,
            place.critic(one.seed, one.attempt),
            writer,
            concurrency=config.concurrency,
            budget=config.budget,
            stop=stop,
            so_far=progress.labelling,
            most_silent=None,  # how much a critic leaves unsaid is what is to be found
        )


def _judged(path: Path, one: Pass) -> tuple[list[Judgement], list[str]]:
    """What is on the disk of a pass, in the order of its steps; and why a step is not."""
    labels = read_labels(path, one.name)
    found = [labels.of(case) for case in one.cases]
    return [judgement for judgement in found if judgement is not None], [why.message for why in labels.failed.values()]


def _finished(
    record: CalibrationRecord, known: Sequence[KnownCase], judged: Mapping[str, Sequence[Judgement]], bins: int
) -> CalibrationRecord:
    """The record with its numbers."""
    total = Labelling()
    prompts = hashlib.sha256()
    for judgement in (judgement for found in judged.values() for judgement in found):
        total.count(judgement)
        for call in judgement.calls:
            prompts.update(call.prompt.encode())
    return replace(
        record,
        numbers=measure(record.label, known, judged, bins),
        asked=prompts.hexdigest() if total.calls else None,
        spent=total.spent,
    )
