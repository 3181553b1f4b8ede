"""The listed runs and trainings, each under an id, and their rows.

Only listed runs have an id, so nothing else can be requested:

    roots = RunList([Path("runs")])
    roots.top()                 # runs and trainings, as named or found in the named folders
    roots.find("first-3fa9c1b2d0").path

A directory is a run when it has `run.json`, or the log of one that lost it; a training when it has `training.json`. A
log without the first event of a process is no run's: syntheses keep journals in folders of the same name. An id is the
directory's name and the beginning of the SHA-256 of its path, so it is the same in every session. No link leads out of
the named paths: links to folders are not followed, and `collab.view.common` checks links to files.

Success, tasks and votes count over the same episodes as in `collab runs show`. A run counts all planned episodes:
unfinished ones count as not solved, because short episodes end first and are solved more often. A rollout with a step
budget (`collab.loop.step_budget`) counts the episodes from which its training learns, and before its steps are
complete, the finished ones. One that is played on while its training learns counts what is over.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from collab.errors import CollabError, RunFormatError, UnknownName, UsageError
from collab.evaluation.metrics import Rate, Report, describe_sampling
from collab.evaluation.report import report_of
from collab.loop.interfaces import Algorithm, EpochSummary, load_algorithm, load_config
from collab.loop.record import (
    FILE,
    EpochDir,
    EpochRecord,
    Success,
    TrainingDir,
    find_best_epoch,
    find_training,
    read_record,
)
from collab.loop.record import FILE as TRAINING
from collab.loop.step_budget import is_open_ended, list_counted, read_step_budget, report_run
from collab.seeds import Seeds
from collab.store import log
from collab.store.manifest import FILE as RUN
from collab.store.reader import RunReader
from collab.store.run_dir import LOCK, find_owner
from collab.view.common import explain_unreadable, list_unreadable, shorten
from collab.view.estimates import WRITTEN, find_estimate_problems
from collab.view.labels import add_spent, sum_known, take_first_line
from collab.view.metrics import LOGS, MOST, find_metrics_problems, measure_training
from collab.view.readers import OpenRun, format_updated, measure_seconds, read_updated, sum_paid
from collab.view.schema.runs import PartRole, ProblemView, RateView, RunRow, RunStatus

_BEGINNING = re.compile(rb'^\{"format_version":"[^"]*","type":"run_(started|resumed)"', re.MULTILINE)
"""Bytes of the event with which a process begins to write a run."""
_LOOK = 1 << 20
"""Bytes at the beginning of a segment that are searched for it: the first line may be damaged or lost."""
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS = 10
_LONGEST = 60
_INSIDE = frozenset({log.FOLDER, "blobs", "labels", "verdicts", "pairs", "proposals", "checkpoints"})
"""Folders that are not searched for runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run or a training."""

    id: str
    path: Path
    kind: Literal["run", "training"]
    training: str | None = None
    """Id of the training that a run is a part of; None for one of its own."""
    epoch: int = 0
    role: PartRole = "rollout"
    """Both of a part."""


class RunList:
    """All runs and trainings under the named paths; safe to use from several threads.

    Args:
        paths: runs, trainings, or folders with some.

    Raises:
        UsageError: a path holds neither.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._mutex = threading.Lock()
        self._known: dict[str, ListedRun] = {}
        for path in paths:
            if not path.is_dir():
                raise UsageError(f"{path}: no such folder; collab runs list shows the runs there are")
            if next(_find_runs(path), None) is None:
                raise UsageError(f"{path}: no run and no training in it; collab runs list shows the runs there are")

    def top(self) -> list[ListedRun]:
        """List the present runs and trainings; parts of trainings are not among them."""
        found = {root.id: root for path in self._paths for root in _find_runs(path)}
        with self._mutex:
            self._known |= found
        return list(found.values())

    def list_named(self) -> list[ListedRun]:
        """List the runs among the named paths themselves."""
        return [root for root in self.top() if root.kind == "run" and root.path in self._paths]

    def find_newest(self) -> list[ListedRun]:
        """Return the run that was begun or ended last, by its folder's time; empty where there are trainings only."""
        there = [root for root in self.top() if root.kind == "run"]
        return sorted(there, key=_read_changed)[-1:]

    def parts(self, training: ListedRun) -> list[ListedRun]:
        """List the present runs of a training: by epoch, rollout first, then evaluations by name."""
        found = list(_list_parts(training))
        with self._mutex:
            self._known |= {root.id: root for root in found}
        return found

    def find(self, id: str) -> ListedRun:
        """Return the run or training of that id; UnknownName when there is none."""
        if id not in self._known:
            for root in self.top():
                if root.kind == "training":
                    self.parts(root)
        with self._mutex:
            found = self._known.get(id)
        if found is None:
            raise UnknownName(f"no run has the id {id[:80]!r}")
        return found


def _find_runs(folder: Path) -> Iterator[ListedRun]:
    """Find runs and trainings at or below a folder, sorted by path."""
    for at, folders, files in os.walk(folder):
        path = Path(at)
        kind = _find_kind(path, folders, files)
        if kind is not None:
            yield ListedRun(id=_make_id(path, path.resolve().name), path=path, kind=kind)
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in _INSIDE and not name.startswith("."))


def _find_kind(path: Path, folders: Sequence[str], files: Sequence[str]) -> Literal["run", "training"] | None:
    if TRAINING in files:
        return "training"
    return "run" if RUN in files or (log.FOLDER in folders and _was_run(path)) else None


def _was_run(path: Path) -> bool:
    """Return whether a folder without a head has the log of a run; journals of syntheses are in such folders, too."""
    if explain_unreadable(path, path / log.FOLDER) is not None:
        return False
    segments = (path / log.FOLDER / name for name in log.list_segments(path))
    return any(
        explain_unreadable(path, segment) is None and _BEGINNING.search(_read_first_event(segment))
        for segment in segments
    )


def _read_first_event(segment: Path) -> bytes:
    try:
        with segment.open("rb") as file:
            return file.read(_LOOK)
    except OSError:
        return b""


def _read_changed(root: ListedRun) -> float:
    try:
        return root.path.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0


def _list_parts(training: ListedRun) -> Iterator[ListedRun]:
    epochs = training.path / "epochs"
    numbers = sorted(int(one.name) for one in epochs.iterdir() if one.name.isdecimal()) if epochs.is_dir() else []
    for number in numbers:
        folder: EpochDir = TrainingDir(training.path).get_epoch(number)
        if _is_part(training, folder.rollout):
            yield _build_part(training, folder.rollout, number, "rollout")
        if _is_part(training, folder.branches):
            yield _build_part(training, folder.branches, number, "branches")
        for path in sorted(folder.evaluation.iterdir()) if folder.evaluation.is_dir() else ():
            if _is_part(training, path):
                yield _build_part(training, path, number, "evaluation")


def _is_part(training: ListedRun, path: Path) -> bool:
    """Return whether a run is there, with its head or without, and inside the training."""
    there = (path / RUN).is_file() or (path / log.FOLDER).is_dir()
    return there and explain_unreadable(training.path, path) is None


def _build_part(training: ListedRun, path: Path, epoch: int, role: PartRole) -> ListedRun:
    name = f"{training.path.resolve().name}-{epoch}-{path.name}"
    return ListedRun(id=_make_id(path, name), path=path, kind="run", training=training.id, epoch=epoch, role=role)


def _make_id(path: Path, name: str) -> str:
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:_DIGITS]
    return f"{_UNFIT.sub('-', name)[:_LONGEST]}-{digest}"


_UNREADABLE = (CollabError, LookupError, TypeError, ValueError)
"""Errors of a damaged configuration of a run or of its training."""


def select_learned(root: ListedRun, reader: RunReader) -> frozenset[str] | None:
    """Select the episodes of a rollout that belong to its epoch; None where all do, or while they are unknown.

    They are unknown before the rollout has its steps, and where its plan cannot be read (one of its problems).
    """
    try:
        names = list_counted(reader, read_step_budget(root.path) if _is_readable_part(root) else None)
    except _UNREADABLE:
        return None
    return None if names is None else frozenset(names)


def _is_readable_part(root: ListedRun) -> bool:
    """Return whether a run is a part of a training, and that is not damaged."""
    training = find_training(root.path)  # also where the rollout alone was named
    return training is not None and explain_unreadable(training.path, training.file) is None


def report_in(root: ListedRun, reader: RunReader) -> Report:
    """Report on a run, over the episodes that count."""
    try:
        return report_run(root.path, reader, so_far=True) if _is_readable_part(root) else report_of(reader)
    except _UNREADABLE:
        return report_of(reader)


def _is_open(root: ListedRun) -> bool:
    """Return whether a run plans more episodes than are ever begun."""
    try:
        return _is_readable_part(root) and is_open_ended(root.path)
    except _UNREADABLE:
        return False


CONFIG = 200_000
"""Most shown characters of a configuration."""

NO_RATE = RateView(successes=0, episodes=0, value=None, low=None, high=None)


def build_rate(counted: Rate) -> RateView:
    """Build the view of a rate."""
    if not counted.episodes:
        return NO_RATE
    low, high = counted.interval
    return RateView(successes=counted.successes, episodes=counted.episodes, value=counted.value, low=low, high=high)


def build_recorded_rate(success: Success | None) -> RateView | None:
    """Build the view of a recorded rate."""
    if success is None:
        return None
    value = success.value if success.episodes else None
    return RateView(
        successes=success.successes, episodes=success.episodes, value=value, low=success.low, high=success.high
    )


def run_row(root: ListedRun, run: OpenRun) -> RunRow:
    """Return a run in one line."""
    # What is beside a run (labels, pairs) is read for its costs, and may be damaged by itself.
    reader, beside = run.reader, run.beside
    manifest, report = reader.manifest, report_in(root, reader)
    # Judging and pairing are paid for beside the run, and count as its costs.
    took = add_spent([sum_paid(reader), beside.sum_critic_spent(), beside.sum_adversary_spent()])
    calls, prompt_tokens, completion_tokens, cost_usd = took
    (over,) = reader.query("SELECT count(*) FROM episodes WHERE state != 'unfinished'")[0]
    return RunRow(
        id=root.id,
        path=str(root.path),
        kind="run",
        unreadable=None,
        command=shorten(manifest.command),
        algorithm="",
        environment=shorten(manifest.environment),
        graph=shorten(manifest.graph),
        agents=shorten(manifest.agents),
        seed=str(manifest.seeds),
        created=shorten(manifest.created),
        updated=format_updated(_read_written(root)),
        status=reader.status,
        privileged=report.privileged,
        planned=None if _is_open(root) else manifest.planned,
        done=over,
        episodes=over,
        broken=report.broken,
        success=build_rate(report.planned),
        success_of="",
        replies=report.replies.total,
        without_action=report.replies.without_action,
        sampling=shorten(describe_sampling(report.sampling)) if report.sampling else "",
        steps=reader.query("SELECT count(*) FROM steps")[0][0],
        calls=calls,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=cost_usd,
        seconds=measure_seconds(reader.directory),
        # Problems of the log and of labels and pairs: both make numbers incomplete.
        problems=len(reader.problems) + len(beside.problems()),
    )


def _read_seeds(run: Mapping[str, Any]) -> str:
    """Read the seeds of a configuration that may be damaged."""
    seed, beside = run.get("seed", ""), run.get("sampling_seed")
    return str(Seeds(seed, beside)) if isinstance(seed, int) and isinstance(beside, int) else str(seed)


def build_unreadable_row(root: ListedRun, why: CollabError) -> RunRow:
    """Return the row of an unreadable run or training."""
    return RunRow(
        id=root.id,
        path=str(root.path),
        kind=root.kind,
        unreadable=str(why),
        command="",
        algorithm="",
        environment="",
        graph="",
        agents="",
        seed="",
        created="",
        updated=format_updated(_read_written(root)),
        status="dead",
        privileged=False,
        planned=None,
        done=0,
        episodes=0,
        broken=0,
        success=NO_RATE,
        success_of="",
        replies=0,
        without_action=0,
        sampling="",
        steps=0,
        calls=0,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        seconds=0.0,
        problems=1,
    )


def build_training_row(root: ListedRun, parts: Sequence[tuple[ListedRun, RunRow]]) -> RunRow:
    """Return a training in one line.

    Args:
        parts: its runs, by epoch, those that cannot be read included; what they took is added up.
    """
    # Unreadable parts are counted as problems, and in no sum.
    rows = [row for _, row in parts if row.unreadable is None]
    rollouts = [row for part, row in parts if part.role == "rollout" and row.unreadable is None]
    measured = [row for part, row in parts if part.role == "evaluation" and row.unreadable is None]
    # The head may name an algorithm or fields that this version does not know, so it is read as plain data.
    head, records = read_training_head(root.path)[0], read_epoch_records(root.path)[0]
    config = _as_mapping(head.get("config"))
    run, method = (_as_mapping(config.get(part)) for part in ("run", "method"))
    # The unreadable row has a value for every field, which those below replace.
    empty = build_unreadable_row(root, CollabError())
    first = rows[0] if rows else empty
    return replace(
        empty,
        unreadable=None,
        command="train",
        algorithm=shorten(_read_name(config, "algorithm")),
        # Rollouts know their environment; before the first one the configuration does.
        environment=first.environment or shorten(_read_name(run, "environment_name")),
        graph=first.graph or shorten(_read_name(run, "graph_name")),
        agents=first.agents,
        seed=shorten(_read_seeds(run)),
        created=shorten(str(head.get("created", ""))),
        updated=max([empty.updated, *(one.updated for one in rows)]),
        status=_read_status(root.path, head, rows),
        privileged=any(one.privileged for one in rows),
        planned=epochs if isinstance(epochs := method.get("epochs"), int) else None,
        done=max((one.epoch for one in records), default=0),
        episodes=sum(one.episodes for one in rows),
        broken=sum(one.broken for one in rows),
        # Measured success, else that of the last rollouts: only the former compares trainings.
        success=_build_success(records, rollouts),
        success_of=_describe_success(records, rollouts),
        replies=sum(one.replies for one in rows),
        without_action=sum(one.without_action for one in rows),
        sampling=_describe_both(rollouts, measured),
        steps=sum(one.steps for one in rows),
        calls=sum(one.calls for one in rows),
        # A sum over parts of which some report nothing is unknown, not smaller.
        prompt_tokens=sum_known(one.prompt_tokens for one in rows),
        completion_tokens=sum_known(one.completion_tokens for one in rows),
        cost_usd=sum_known(one.cost_usd for one in rows),
        seconds=_sum_seconds(root.path, records, parts),
        problems=len(list_training_problems(root)) + sum(row.problems for _, row in parts),
    )


_WRITTEN = (FILE, "epochs/*/epoch.json", "epochs/*/graph.json", *LOGS, WRITTEN)
"""Files of a training that grow or appear, beside its runs."""


def list_written(training: Path) -> list[Path]:
    """List the files of a training that grow or appear, beside those of its runs."""
    return [path for pattern in _WRITTEN for path in sorted(training.glob(pattern)) if path.is_file()]


def _read_written(root: ListedRun) -> float:
    """Return when a file of a run was last written, or one of a training beside its runs; in seconds since 1970."""
    if root.kind == "run":
        return read_updated(root.path)
    return max((path.stat().st_mtime for path in list_written(root.path)), default=0.0)


def _describe_both(rollouts: Sequence[RunRow], measured: Sequence[RunRow]) -> str:
    """Return how the runs of a training were sampled; rollouts and evaluations apart where they differ."""
    explored, played = (
        ", ".join(dict.fromkeys(filter(None, (row.sampling for row in rows)))) for rows in (rollouts, measured)
    )
    if explored and played and explored != played:
        return shorten(f"{explored} in rollouts, {played} in evaluations")
    return explored or played


def read_training_head(training: Path) -> tuple[dict[str, Any], list[ProblemView]]:
    """Read `training.json`; empty, with the reason, where it cannot be read."""
    file = TrainingDir(training).file
    why = explain_unreadable(training, file)
    try:
        return ({}, [ProblemView(file=file.name, line=None, reason=why)]) if why else (TrainingDir(training).read(), [])
    except RunFormatError as error:
        return {}, [ProblemView(file=file.name, line=None, reason=str(error))]


def read_epoch_records(training: Path) -> tuple[list[EpochRecord], list[ProblemView]]:
    """Read the records of all finished epochs, by epoch, and the problems of unreadable ones."""
    records: list[EpochRecord] = []
    problems: list[ProblemView] = []
    for path in sorted((training / "epochs").glob("*/epoch.json")):
        if explain_unreadable(training, path) is not None:
            continue
        try:
            record = read_record(path)
            if not _is_told(record.model_dump()) or str(record.epoch) != path.parent.name:
                raise RunFormatError(f"{path}: cannot be read: a number in it is none that an epoch can have")
            summarize_record(record)
            records.append(record)
        except CollabError as error:
            problems.append(ProblemView(file=str(path.relative_to(training)), line=None, reason=str(error)))
    return sorted(records, key=lambda one: one.epoch), problems


def summarize_record(record: EpochRecord) -> EpochSummary:
    """Return what is drawn of a record's metrics; of an algorithm that is not installed, its single numbers.

    Raises:
        RunFormatError: its algorithm cannot have written them.
    """
    try:
        algorithm = load_algorithm(record.algorithm)
    except CollabError:
        algorithm = Algorithm()
    return algorithm.summarize(record)


def list_outside_links(training: Path) -> list[ProblemView]:
    """List parts of a training that are not read, as they are outside."""
    found = [(path.relative_to(training), why) for path, why in list_unreadable(training)]
    return [ProblemView(file=path.as_posix(), line=None, reason=why) for path, why in found if path.name != FILE]


def list_training_problems(training: ListedRun) -> list[ProblemView]:
    """List all unreadable parts of a training, beside those of its runs."""
    path = training.path
    head, told = read_training_head(path)
    plan = told or _plan_of(head)
    beside = [*find_metrics_problems(path), *find_estimate_problems(path)]
    return [*plan, *read_epoch_records(path)[1], *list_outside_links(path), *beside]


def _plan_of(head: Mapping[str, Any]) -> list[ProblemView]:
    """Explain why the episodes from which a training learns are unknown; empty where they are known."""
    try:
        load_config(head["config"], FILE)
    except (CollabError, LookupError, TypeError, ValueError) as error:
        reason = f"{take_first_line(error)}; its rollouts show all episodes played in them"
        return [ProblemView(file=FILE, line=None, reason=reason)]
    return []


def _is_told(value: Any) -> bool:
    """Return whether all counts in it can be added up and drawn."""
    if isinstance(value, Mapping):
        return all(_is_told(one) for one in value.values())
    if isinstance(value, list | tuple):
        return all(_is_told(one) for one in value)
    return not isinstance(value, int) or abs(value) < MOST


def format_config(root: ListedRun, reader: RunReader | None) -> str:
    """Format the configuration of a run or, without a reader, of a training: whole unless it is very long."""
    content: Any = reader.manifest.config if reader else read_training_head(root.path)[0].get("config")
    told = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    return told if len(told) <= CONFIG else f"{told[:CONFIG]}…"


def _sum_seconds(training: Path, records: Sequence[EpochRecord], parts: Sequence[tuple[ListedRun, RunRow]]) -> float:
    """Return the times in its records; for runs and policies without one, those of their logs."""
    told = {
        (one.epoch, part): spent.seconds
        for one in records
        for part, spent in one.spent.items()
        if spent.seconds is not None
    }
    # What begins in states of a rollout is timed with it.
    others = [
        row.seconds
        for part, row in parts
        if (part.epoch, "rollout" if part.role == "branches" else part.role) not in told
    ]
    folders = [path for path in (training / "epochs").glob("*") if path.name.isdecimal()]
    trained = [measure_training(EpochDir(path)) for path in folders if (int(path.name), "training") not in told]
    return math.fsum([*told.values(), *others, *(one for one in trained if one is not None)])


def _read_status(path: Path, head: Mapping[str, Any], parts: Sequence[RunRow]) -> RunStatus:
    if explain_unreadable(path, path / LOCK) is None and find_owner(path) is not None:
        return "running"
    if head.get("summary"):
        return "finished"
    return "dead" if parts and parts[-1].status == "dead" else "stopped"


def _build_success(records: Sequence[EpochRecord], rollouts: Sequence[RunRow]) -> RateView:
    best = find_best_epoch(records)
    found = next((build_recorded_rate(one.success) for one in records if one.epoch == best), None)
    return found or (rollouts[-1].success if rollouts else NO_RATE)


def _describe_success(records: Sequence[EpochRecord], rollouts: Sequence[RunRow]) -> str:
    """Describe the seeds and the epoch that the success of a training is of."""
    best = find_best_epoch(records)
    if best is None:
        return "of its last rollout" if rollouts else ""
    if best > 0:
        return f"on held-out seeds after epoch {best}"
    untrained = "on held-out seeds, of the untrained team"
    return untrained if len(records) == 1 else f"{untrained}: no epoch was better"


def _read_name(config: Mapping[str, Any], name: str) -> str:
    return str(config.get(name) or "")


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
