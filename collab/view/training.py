"""A training in numbers: the records of its epochs, and what the runs and logs beside them add."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from collab.errors import RunFormatError
from collab.marl.layout import EpochFolder, MarlFolder
from collab.marl.summary import Record, best_of
from collab.store.files import read_json
from collab.view.answer import short
from collab.view.beside import LEARNED
from collab.view.learned import policies_in_training, recorded_policy, untrained_policy
from collab.view.links import trouble
from collab.view.overview import epochs_of, graph_view, heat, tasks_of, with_differences
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.runs import rate_of, records_of
from collab.view.shapes.overview import EpochView, GraphView, Overview, Spending, TaskRate
from collab.view.shapes.runs import PartRow, RunRow

Open: TypeAlias = Callable[[Path], AbstractContextManager[Opened]]
"""How a run is opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """The rollout of an epoch in numbers."""

    epoch: EpochView
    labels: str | None
    """Labelling that its rewards rest on; None for none."""


def overview(root: Root, row: RunRow, parts: Sequence[Root], open_run: Open, labels: str | None) -> Overview:
    """A training in numbers.

    Args:
        row: of the training.
        parts: its runs.
        labels: whose rewards to count, in the epochs whose rollout has them; None for those that were learned from,
            "" for none.
    """
    records, _ = records_of(root.path)
    known = {record.epoch: record for record in records}
    numbers = sorted({*known, *(part.epoch for part in parts)})
    of_epoch = {number: [part for part in parts if part.epoch == number] for number in numbers}
    played = {number: _played(of_epoch[number], open_run, labels) for number in numbers}
    epochs = [
        _epoch(root.path, number, known.get(number), of_epoch[number], open_run, played[number], labels)
        for number in numbers
    ]
    return Overview(
        run=row,
        labels=next((one.labels for one in played.values() if one is not None and one.labels is not None), None),
        tasks=_tasks(parts, open_run),
        epochs=with_differences(epochs),
        best=best_of(records),
    )


def part_row(part: Root, seed: str) -> PartRow:
    """A run of a training; `seed` is the run's."""
    return PartRow(id=part.id, epoch=part.epoch, role=part.role, seed=seed)


def part_rows(parts: Sequence[Root], open_run: Open) -> list[PartRow]:
    """The runs of a training; those that cannot be read are among its problems."""
    return list(_part_rows(parts, open_run))


# ------------------------------------------------------------------------------------------------------ inside


def _epoch(
    root: Path,
    number: int,
    record: Record | None,
    parts: Sequence[Root],
    open_run: Open,
    played: _Played | None,
    labels: str | None,
) -> EpochView:
    folder = MarlFolder(root).epoch(number)
    seen = None if played is None else played.epoch
    epoch = replace(
        seen or _empty(number),
        epoch=number,
        over=record is not None,
        graph=_graph(folder, seen),
        runs=part_rows(parts, open_run),
        trained=policies_in_training(folder),
    )
    if record is None:
        return epoch
    recorded = _recorded(epoch, record, folder)
    if labels in (None, LEARNED):
        return recorded
    return replace(recorded, rewards=epoch.rewards, missing=epoch.missing)  # another critic's, or nobody's


def _recorded(epoch: EpochView, record: Record, folder: EpochFolder) -> EpochView:
    """What the record of an epoch says counts; what it does not say is left as it was seen."""
    pairs = record.pairs
    left = {"not judged": pairs.unjudged, "not tried": pairs.untried}
    causes = {**pairs.refused, **pairs.failed, **{cause: count for cause, count in left.items() if count}}
    critic = epoch.rewards.critic if epoch.rewards else None
    agreement = record.agreement if epoch.agreement is None else epoch.agreement  # of all cells
    return replace(
        epoch,
        played=rate_of(record.played),
        measured=rate_of(record.success),
        steps=record.steps or epoch.steps,
        rewards=heat(record.rewards, epoch.graph.agents if epoch.graph else (), critic),
        missing={short(cause): count for cause, count in record.missing.items()},
        agreement=agreement,
        pairs={short(cause): count for cause, count in {**pairs.counts, **causes}.items()},
        older=sum(rows.older for rows in record.rows.values()) if record.trained else None,
        trained=[
            *(recorded_policy(policy, one, folder) for policy, one in sorted(record.trained.items())),
            *(untrained_policy(policy, why) for policy, why in sorted(record.untrained.items())),
        ],
        spent=[
            Spending(
                part=short(part),
                seconds=one.seconds,
                calls=one.calls,
                prompt_tokens=one.prompt_tokens,
                completion_tokens=one.completion_tokens,
                cost_usd=one.cost_usd or None,  # a record has 0 also where no price was told
            )
            for part, one in record.spent.items()
        ],
    )


def _played(parts: Sequence[Root], open_run: Open, asked: str | None) -> _Played | None:
    """The rollout in numbers; None where there is none that can be read."""
    part = next((part for part in parts if part.role == "rollout"), None)
    if part is None:
        return None
    try:
        with open_run(part.path) as run:
            labels = run.beside.chosen(asked, known=False)
            found = next(iter(epochs_of(run, labels)), None)
            return None if found is None else _Played(epoch=found, labels=labels)
    except RunFormatError:
        return None


def _tasks(parts: Sequence[Root], open_run: Open) -> list[TaskRate]:
    rollouts = [part for part in parts if part.role == "rollout"]
    for part in reversed(rollouts):
        try:
            with open_run(part.path) as run:
                return tasks_of(part, run.reader)
        except RunFormatError:
            continue
    return []


def _part_rows(parts: Sequence[Root], open_run: Open) -> Iterator[PartRow]:
    for part in parts:
        try:
            with open_run(part.path) as run:
                yield part_row(part, str(run.reader.manifest.seed))
        except RunFormatError:
            continue


def _graph(folder: EpochFolder, played: EpochView | None) -> GraphView | None:
    """As it was drawn, else as it was played."""
    if trouble(folder.path.parents[1], folder.graph) is not None:
        return None if played is None else played.graph
    try:
        content = read_json(folder.graph, "")
        return graph_view(content["slots"], [(speaker, hearer) for speaker, hearer in content["edges"]])
    except (RunFormatError, LookupError, TypeError, ValueError):
        return None if played is None else played.graph


def _empty(number: int) -> EpochView:
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
        older=None,
        trained=(),
        spent=(),
        graph=None,
        runs=(),
    )
