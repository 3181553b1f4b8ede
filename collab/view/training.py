"""A training in numbers: the records of its epochs, with its runs and logs.

`ViewContext` opens runs and trainings by id, and keeps their readers and computed values.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from collab.errors import CollabError, RunFormatError, UnknownName, UsageError
from collab.loop.record import EpochDir, EpochRecord, Spending, TrainingDir, find_best_epoch
from collab.utils.files import read_json
from collab.view import runs
from collab.view.common import explain_unreadable, shorten
from collab.view.estimates import build_calibrations
from collab.view.labels import LEARNED, Sums, add_spent, take_first_line
from collab.view.metrics import (
    build_recorded_policy,
    build_untrained_policy,
    list_policies_in_training,
    measure_training,
)
from collab.view.overview import (
    add_graph_differences,
    build_epochs,
    build_failures,
    build_graph_view,
    build_heat,
    build_task_rates,
    shorten_names,
)
from collab.view.readers import (
    OpenRun,
    ReaderPool,
    build_spending,
    list_asked,
    measure_seconds,
    stat_run,
    subtract_known,
    sum_paid,
)
from collab.view.runs import ListedRun, RunList, build_recorded_rate, read_epoch_records, summarize_record
from collab.view.schema.runs import (
    EpochView,
    FailureModeView,
    GraphView,
    HeatView,
    PartRow,
    PredictionView,
    RunOverview,
    RunRow,
    SpendingView,
    TaskRateView,
)

_T = TypeVar("_T")

UNREADABLE = (CollabError, OSError, sqlite3.Error, ValueError, TypeError, ArithmeticError, RecursionError)
"""Errors of an unreadable run."""


class ViewContext:
    """Runs and trainings by id, with open readers and cached values; safe to use from several threads.

    Args:
        paths: runs, trainings, or folders with some.
        index_cache: folder for indices of runs whose own is of no use.

    Raises:
        UsageError: a path holds none.
    """

    def __init__(self, paths: Sequence[Path], index_cache: Path) -> None:
        self.roots = RunList(paths)
        self._pool = ReaderPool(index_cache)
        self._kept: dict[tuple[str, str], tuple[str, Any]] = {}
        self._mutex = threading.Lock()

    def close(self) -> None:
        """Free memory."""
        self._pool.close()

    def open_run(self, path: Path) -> contextlib.AbstractContextManager[OpenRun]:
        """Open a run by its directory; raises as `ReaderPool.open_run`."""
        return self._pool.open_run(path)

    @contextlib.contextmanager
    def run(self, id: str) -> Iterator[tuple[ListedRun, OpenRun]]:
        """Open a run by its id.

        Raises:
            UnknownName: there is none.
            UsageError: it is a training.
            RunFormatError: it cannot be read.
        """
        root = self.roots.find(id)
        if root.kind == "training":
            raise UsageError(f"{root.path}: is a training; ask for one of its runs")
        with self.open_run(root.path) as run:
            yield root, run

    def list_played(self, id: str) -> list[ListedRun]:
        """List the run itself; of a training, its rollouts."""
        root = self.roots.find(id)
        if root.kind == "run":
            return [root]
        return [part for part in self.roots.parts(root) if part.role == "rollout"]

    def iterate_readable(self, id: str) -> Iterator[tuple[ListedRun, OpenRun]]:
        """Yield the run itself; of a training, its rollouts one at a time, where unreadable ones are problems.

        Raises:
            RunFormatError: the run that was asked for cannot be read.
        """
        asked = self.roots.find(id)
        for root in self.list_played(id):
            try:
                with self.open_run(root.path) as run:
                    yield root, run
            except RunFormatError:
                if root is asked:
                    raise

    def row(self, id: str) -> RunRow:
        """Return the row of a run or training, also of an unreadable one."""
        root = self.roots.find(id)
        try:
            return self.fresh(root, "row", lambda: self._build_row(root))
        except UNREADABLE as error:  # the others can be read
            return runs.build_unreadable_row(root, RunFormatError(take_first_line(error)))

    def get_known_row(self, root: ListedRun) -> RunRow | None:
        """Return the row, if it was computed from the present files."""
        with self._mutex:
            state, row = self._kept.get((root.id, "row"), ("", None))
        return row if state == self.state(root) else None

    def state(self, root: ListedRun) -> str:
        """Return a text that changes when something is written; reads no run."""
        if root.kind == "run":
            return stat_run(root.path)
        stats = (path.stat() for path in runs.list_written(root.path))
        parts = (stat_run(part.path) for part in self.roots.parts(root))
        written = [*(f"{one.st_mtime_ns} {one.st_size}" for one in stats), stat_run(root.path), *parts]
        return hashlib.sha256(" ".join(written).encode()).hexdigest()

    def fresh(self, root: ListedRun, what: str, compute: Callable[[], _T]) -> _T:
        """Return the cached value of this name, or compute it from the present files."""
        state = self.state(root)
        with self._mutex:
            known = self._kept.get((root.id, what))
        if known is not None and known[0] == state:
            found: _T = known[1]
            return found
        made = compute()
        with self._mutex:
            self._kept[root.id, what] = (state, made)
        return made

    def _build_row(self, root: ListedRun) -> RunRow:
        if root.kind == "training":
            return runs.build_training_row(root, [(part, self.row(part.id)) for part in self.roots.parts(root)])
        with self.open_run(root.path) as run:
            return runs.run_row(root, run)


UNUSED = "rollout, not learned from"
"""Part of an epoch: episodes beyond its steps, episodes that broke, and steps that never ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RolloutNumbers:
    """The rollout of an epoch in numbers."""

    epoch: EpochView | None
    """None before its first episode."""
    tasks: Sequence[TaskRateView]
    failures: Sequence[FailureModeView]
    took: Sums
    """Calls of its agents."""
    spent: Sequence[SpendingView]
    """Seconds by part, by the clock."""
    label_sets: Sequence[str]
    labels: str | None
    """Label set of its rewards, or None."""


def build_training_overview(context: ViewContext, root: ListedRun, labels: str | None) -> RunOverview:
    """Return a training in numbers. Those of its runs that have grown are read again.

    Args:
        labels: whose rewards to count, in the epochs whose rollout has them; None for those that were learned from,
            "" for none.

    Raises:
        UnknownName: no rollout has a label set of that name.
    """
    # A misspelt label set is refused before anything is counted.
    if labels and labels not in (names := list_label_sets(context, root)):
        raise UnknownName.of(f"label set of {root.path}", labels, names)
    records, _ = read_epoch_records(root.path)
    known = {record.epoch: record for record in records}
    played = _list_played(context, root, labels)
    measured = _list_evaluations(context, root)
    parts = list_part_rows(context, root)
    # Epochs of records and of runs: a running epoch has no record, a pruned one no run.
    numbers = sorted({*known, *(part.epoch for part in context.roots.parts(root))})
    epochs = [
        # A record counts where there is one; runs fill in the rest.
        _add_spending(
            TrainingDir(root.path).get_epoch(number),
            _build_epoch(root, number, known.get(number), played.get(number), parts, labels),
            known.get(number),
            played.get(number),
            measured.get(number, ()),
        )
        for number in numbers
    ]
    calibrations, unestimated = build_calibrations(root.path)
    return RunOverview(
        run=context.row(root.id),
        # The labels that were counted are named, so that a default is no riddle.
        labels=next((one.labels for one in played.values() if one.labels is not None), None),
        # Tasks of the latest rollout: they are drawn anew in every epoch.
        tasks=played[max(played)].tasks if played else (),
        tasks_epoch=max(played, default=None),
        failures=played[max(played)].failures if played else (),
        epochs=add_graph_differences(epochs),
        best=find_best_epoch(records),
        calibrations=calibrations,
        unestimated=unestimated,
    )


def list_part_rows(context: ViewContext, root: ListedRun) -> list[PartRow]:
    """List the rows of a training's runs; unreadable ones are among its problems."""
    rows = [(part, context.row(part.id)) for part in context.roots.parts(root)]
    return [
        PartRow(id=part.id, epoch=part.epoch, role=part.role, seed=row.seed)
        for part, row in rows
        if row.unreadable is None
    ]


def list_label_sets(context: ViewContext, root: ListedRun) -> list[str]:
    """List the label sets of a training's rollouts, each name once."""
    return sorted({name for one in _list_played(context, root, None).values() for name in one.label_sets})


# ------------------------------------------------------------------------------------------------------ inside


def _list_played(context: ViewContext, root: ListedRun, labels: str | None) -> dict[int, _RolloutNumbers]:
    """Return epoch → its rollouts that can be read."""
    found: dict[int, _RolloutNumbers] = {}
    for part in context.list_played(root.id):
        with contextlib.suppress(RunFormatError):
            found[part.epoch] = context.fresh(
                part, f"played {labels!r}", partial(_build_rollout, context, part, labels)
            )
    return found


def _build_rollout(context: ViewContext, part: ListedRun, labels: str | None) -> _RolloutNumbers:
    with context.open_run(part.path) as run:
        chosen, took = run.beside.choose_label_set(labels, known=False), sum_paid(run.reader)
        return _RolloutNumbers(
            epoch=next(iter(build_epochs(part, run, chosen)), None),
            tasks=build_task_rates(part, run.reader),
            failures=build_failures(part, run.reader),
            took=took,
            spent=[
                build_spending("rollout", measure_seconds(part.path), took),
                *list_asked(run, lambda episode: True, alone=True),
            ],
            label_sets=run.beside.list_label_sets(),
            labels=chosen,
        )


def _build_epoch(
    root: ListedRun,
    number: int,
    record: EpochRecord | None,
    played: _RolloutNumbers | None,
    parts: Sequence[PartRow],
    labels: str | None,
) -> EpochView:
    folder = TrainingDir(root.path).get_epoch(number)
    seen = None if played is None else played.epoch
    epoch = replace(
        seen or _build_empty_epoch(number),
        epoch=number,
        over=record is not None,
        graph=_read_graph(folder, seen),
        runs=[part for part in parts if part.epoch == number],
        trained=list_policies_in_training(folder),
    )
    if record is None:
        return epoch
    recorded = _apply_record(epoch, record, folder)
    if labels in (None, LEARNED):
        return recorded
    # Another critic's labels, or none.
    return replace(recorded, rewards=epoch.rewards, missing=epoch.missing, inverted_labels=None)


def _apply_record(epoch: EpochView, record: EpochRecord, folder: EpochDir) -> EpochView:
    """Apply an epoch's record; values that it lacks stay as they were read from runs."""
    critic = epoch.rewards.critic if epoch.rewards else None
    found = summarize_record(record)
    agreement = record.agreement if epoch.agreement is None else epoch.agreement
    heat = build_heat(found.rewards, epoch.graph.agents if epoch.graph else (), critic)
    # The record wins where it has a number: it holds what the training learned from.
    return replace(
        epoch,
        played=build_recorded_rate(record.played),
        measured=build_recorded_rate(record.success),
        steps=record.steps or epoch.steps,
        rewards=_count_labelled(heat, epoch.rewards),
        missing=shorten_names(found.missing),
        inverted_labels=found.inverted_labels,
        agreement=agreement,
        pairs=shorten_names(found.comparisons),
        unpaired=shorten_names(found.uncompared),
        older=sum(one.older for one in record.examples.values()) if record.trained else None,
        metrics={shorten(name): f"{value:.3g}" for name, value in found.numbers.items()},
        curves={
            shorten(title): {shorten(name): value for name, value in lines.items()}
            for title, lines in found.curves.items()
        },
        histograms={shorten(title): shorten_names(bins) for title, bins in found.histograms.items()},
        kept={shorten(name): counts for name, counts in found.kept.items()},
        left_out=shorten_names(found.left_out),
        predictions={
            shorten(name): PredictionView(
                held_out=one.held_out, accuracy=one.accuracy, auc=one.auc, ece=one.ece, note=shorten(one.note)
            )
            for name, one in found.predictions.items()
        },
        trained=[
            *(build_recorded_policy(policy, one, folder) for policy, one in sorted(record.trained.items())),
            *(build_untrained_policy(policy, why) for policy, why in sorted(record.untrained.items())),
        ],
    )


def _count_labelled(heat: HeatView | None, read: HeatView | None) -> HeatView | None:
    """Return recorded rewards with the number of labelled cells, which only the labels themselves tell."""
    return heat and read and replace(heat, labelled=read.labelled, cells=read.cells)


def _list_evaluations(context: ViewContext, root: ListedRun) -> dict[int, list[RunRow]]:
    """Return epoch → its evaluations that can be read."""
    found: dict[int, list[RunRow]] = {}
    for part in context.roots.parts(root):
        row = context.row(part.id)
        if part.role == "evaluation" and row.unreadable is None:
            found.setdefault(part.epoch, []).append(row)
    return found


_LOGGED: Mapping[str, str] = {
    "rollout": "by its log, as the training was resumed",
    "training": "of its logged steps, as the training was resumed",
    "evaluation": "by its log, as the training was resumed",
}
"""Part of an epoch with a log of its own → note on a time that is read from there."""
_UNKNOWN = "not known: the training was resumed, and no log tells it"


def _add_spending(
    folder: EpochDir,
    epoch: EpochView,
    record: EpochRecord | None,
    played: _RolloutNumbers | None,
    measured: Sequence[RunRow],
) -> EpochView:
    """Add to an epoch the time of its parts: from its record, else from their logs."""
    logged = {
        "rollout": played.spent[0].seconds if played else None,
        "training": measure_training(folder),
        "evaluation": math.fsum(one.seconds for one in measured) if measured else None,
    }
    if record is None:
        sums = [(one.calls, one.prompt_tokens, one.completion_tokens, one.cost_usd) for one in measured]
        trained: Sums = (0, sum(one.tokens for one in epoch.trained), None, None)
        so_far = [build_spending("training", logged["training"], trained)] if epoch.trained else []
        so_far += [build_spending("evaluation", logged["evaluation"], add_spent(sums))] if measured else []
        return replace(epoch, spent=[*(played.spent if played else ()), *so_far])
    told = [_build_recorded_spending(epoch, part, one, logged.get(part)) for part, one in record.spent.items()]
    rollout = next((_sum_recorded(one) for part, one in record.spent.items() if part == "rollout"), None)
    note = "in the time of the rollout"
    rest = subtract_known(UNUSED, played.took, rollout, note) if played and rollout else ()
    return replace(epoch, spent=[*told, *rest])


def _build_recorded_spending(epoch: EpochView, part: str, spent: Spending, logged: float | None) -> SpendingView:
    """Build the view of a recorded part; its log, where it has one, knows the time of one that was resumed."""
    seconds, note = spent.seconds, None
    if seconds is None and logged is not None:
        seconds, note = logged, _LOGGED[part]
    # Rules judge and pair without a call, so what they made shows that they worked.
    made = {"critic": epoch.rewards, "adversary": epoch.pairs or epoch.unpaired}.get(part)
    if seconds is None and (spent.calls or spent.prompt_tokens or made):
        note = _UNKNOWN
    return build_spending(shorten(part), seconds, _sum_recorded(spent), note)


def _sum_recorded(spent: Spending) -> Sums:
    # A record has 0 also where no price was reported.
    return spent.calls, spent.prompt_tokens, spent.completion_tokens, spent.cost_usd or None


def _read_graph(folder: EpochDir, played: EpochView | None) -> GraphView | None:
    """Return the drawn graph, else the played one."""
    if explain_unreadable(folder.path.parents[1], folder.graph) is not None:
        return None if played is None else played.graph
    try:
        content = read_json(folder.graph, "")
        return build_graph_view(content["slots"], [(speaker, hearer) for speaker, hearer in content["edges"]])
    except (RunFormatError, LookupError, TypeError, ValueError):
        return None if played is None else played.graph


def _build_empty_epoch(number: int) -> EpochView:
    return EpochView(
        epoch=number,
        over=False,
        played=None,
        measured=None,
        steps=0,
        rewards=None,
        missing={},
        agreement=None,
        entropy=None,
        ties=None,
        failures={},
        pairs={},
        unpaired={},
        older=None,
        trained=(),
        spent=(),
        graph=None,
        runs=(),
    )
