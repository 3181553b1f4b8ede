"""The file that a finished unit leaves: all that tables and curves are made of, and how to get it again.

    write(folder, record)
    records = read_all(folder, plan)          # UsageError where they are of different bases

It names no place of any machine. Files are small enough to be committed; two that began with different weights are
never set side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field

from collab.config import Definition, validate
from collab.errors import RunFormatError, StoreFailure, UsageError
from collab.evaluation.metrics import EpisodeResult
from collab.utils.files import report_write_errors, write_atomic
from evidence.plan import Plan
from evidence.units import Unit, needs, queue

FORMAT = 1
LARGEST = 200_000
"""Bytes of a file."""

Row: TypeAlias = tuple[str, int, int, bool, int, str | None]
"""Task, instance seed, step budget, success, steps, class of the error that broke it (None for none)."""


class Measured(Definition):
    """Episodes of one place."""

    environment: str
    """As results are labelled."""
    version: str
    """Of the environment."""
    split: str | None
    """None for tasks that were chosen freely."""
    episodes: list[Row]

    @property
    def results(self) -> tuple[EpisodeResult, ...]:
        """The same as the package's reports take them."""
        return tuple(
            EpisodeResult(
                id=f"{task}/{place}",
                task=task,
                difficulty="",
                seed=seed,
                success=success,
                steps=steps,
                max_steps=most,
                error=broken,
            )
            for place, (task, seed, most, success, steps, broken) in enumerate(self.episodes)
        )


class EpochNumbers(Definition):
    """One epoch of a training; see `collab.loop.record.EpochRecord`, of which these are parts."""

    epoch: int
    steps: int = 0
    """Environment steps that were learned from."""
    rollout: list[Row] = Field(default_factory=list)
    held_out: list[Row] = Field(default_factory=list)
    """Empty where it was not measured."""
    pairs: int = 0
    """Rows that were trained, older ones included."""
    loss: float | None = None
    """None where nothing was trained, as all below."""
    margin: float | None = None
    accuracy: float | None = None
    logp_chosen: float | None = None
    logp_chosen_first: float | None = None
    chosen_gain: float | None = None
    alarm: str | None = None
    agreement: float | None = None
    weights: dict[str, str] = Field(default_factory=dict)
    """Policy → digest of what it became; empty where nothing was trained."""
    hash: str


class Seconds(Definition):
    """What a unit took, by part. None where nobody could tell, e.g. because a process died."""

    whole: float
    """Of all commands that worked on it, loading included."""
    playing: float | None = None
    """From the first reset of a run to its last step, over all runs. In files that do not tell the next two, loading
    is in it: a training's rollouts and evaluations from end to end, an evaluation's whole time."""
    environment: float | None = None
    """Of playing, the time in which at least one environment was at work; see `playing`."""
    inference: float | None = None
    """The rest of playing: agents alone."""
    critic: float | None = None
    adversary: float | None = None
    training: float | None = None


class UnitRecord(Definition):
    """A finished unit."""

    format: int = FORMAT
    arm: str
    seed: int | None
    phase: str
    base: str
    """Digest of the weights that every arm began with."""
    policy: str
    """Digest of the weights that were played, or that training began with."""
    code: list[str]
    """Digests of the package's files in all processes that worked on it; one, unless it was changed meanwhile."""
    commit: str | None
    """Of the checkout at the end; None outside of one."""
    command: str
    """As it was given, in one line."""
    machine: dict[str, str | int | None]
    """In words; the processor's "model" and what was "preloaded" are missing in files that were written before they
    were told."""
    config: dict[str, Any]
    """Resolved: of a training, or of the first run of an evaluation."""
    seeds: list[int]
    """Run seeds of the evaluation, or the held-out ones of the training."""
    steps: int
    """Environment steps of its episodes; of a training, of all that was learned from."""
    seconds: Seconds
    hashes: dict[str, str]
    """Run hashes: "training", or run seed → hash."""
    measured: Measured | None = None
    """Of an evaluation."""
    critics: list[str] | None = None
    """Of a training: name and version of all that judged it, e.g. "oracle-2". None where it was not told, as in files
    that were written before it was."""
    best: int | None = None
    """Of a training: its best epoch on the held-out seeds."""
    epochs: list[EpochNumbers] = Field(default_factory=list)
    """Of a training."""

    @property
    def unit(self) -> Unit:
        """What it is of."""
        return Unit(arm=self.arm, seed=self.seed, phase=self.phase)


Records: TypeAlias = Mapping[Unit, UnitRecord]


def file_of(folder: Path, unit: Unit) -> Path:
    """Where the file of a unit lies."""
    return folder / f"{unit.name}.json"


def write(folder: Path, record: UnitRecord) -> Path:
    """Write a finished unit; returns the file.

    Raises:
        StoreFailure: it would be too large to be committed, or cannot be written.
    """
    path = file_of(folder, record.unit)
    text = encode(record)
    if len(text) > LARGEST:
        raise StoreFailure(f"{path}: {len(text)} bytes, at most {LARGEST} are committed; play fewer episodes in a unit")
    with report_write_errors(path, "give the same command again"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    return path


def encode(record: UnitRecord) -> bytes:
    """JSON with an episode per line, so that a file can be read and its changes be seen."""
    data = record.model_dump(mode="json")
    rows: list[str] = []
    for holder, name in _lists_of_rows(data):
        rows.append(_rows(holder[name]))
        holder[name] = f"rows {len(rows) - 1}"
    text = json.dumps(data, indent=1, ensure_ascii=False)
    for place, told in enumerate(rows):
        text = text.replace(f'"rows {place}"', told, 1)
    return f"{text}\n".encode()


def _lists_of_rows(data: dict[str, Any]) -> Iterable[tuple[dict[str, Any], str]]:
    if data["measured"] is not None:
        yield data["measured"], "episodes"
    for epoch in data["epochs"]:
        yield from ((epoch, "rollout"), (epoch, "held_out"))


def _rows(rows: list[Row]) -> str:
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]" if rows else "[]"


def read(path: Path) -> UnitRecord:
    """Read one file; RunFormatError when it cannot be read or another version wrote it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and the unit is done again") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RunFormatError(f"{path}: not of format {FORMAT}; remove it, and the unit is done again")
    return validate(UnitRecord, data, str(path))


def read_all(folder: Path, plan: Plan) -> dict[Unit, UnitRecord]:
    """The finished units of a plan; files of others are left alone.

    Raises:
        RunFormatError: one cannot be read, or says that it is another.
        UsageError: they are of different bases, or an evaluation played another training than the one beside it.
    """
    found: dict[Unit, UnitRecord] = {}
    for unit in queue(plan):
        path = file_of(folder, unit)
        if not path.exists():
            continue
        found[unit] = read(path)
        if found[unit].unit != unit:
            raise RunFormatError(f"{path}: says that it is {found[unit].unit}; put it back where it belongs")
    _check_base(found, folder)
    _check_trainings(found, plan, folder)
    return found


def check_base(records: Records, folder: Path, base: str) -> None:
    """UsageError where finished units began with other weights than those that are there now."""
    for unit, record in records.items():
        if record.base != base:
            raise UsageError(
                f"{file_of(folder, unit)}: began with weights {record.base:.12}, the checkpoint is {base:.12} now; "
                "bring that checkpoint back, or remove the files of the other one"
            )


def _check_base(records: Records, folder: Path) -> None:
    bases = {record.base: unit for unit, record in records.items()}
    if len(bases) > 1:
        (one, first), (other, second) = list(bases.items())[:2]
        raise UsageError(
            f"{file_of(folder, first)} began with weights {one:.12}, {file_of(folder, second)} with {other:.12}: "
            "results of different checkpoints are not set side by side; remove the files of one of them"
        )


def _check_trainings(records: Records, plan: Plan, folder: Path) -> None:
    """Refuse an evaluation of a policy that the training beside it did not make."""
    for unit, record in records.items():
        before = needs(plan, unit)
        if before is None and record.policy != record.base:
            raise UsageError(f"{file_of(folder, unit)}: played {record.policy:.12}, not the base; remove it")
        if before is None or before not in records:
            continue
        training = records[before]
        made = {training.policy, *(digest for epoch in training.epochs for digest in epoch.weights.values())}
        if record.policy not in made:
            raise UsageError(
                f"{file_of(folder, unit)}: weights {record.policy:.12} are of no epoch of {before}; "
                "it is of an earlier training: remove it, and it is done again"
            )
