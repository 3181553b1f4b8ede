"""Rows of an epoch on the disk: a folder per policy, what is learned and what of older epochs is learned beside it.

counts = store(made, config, folder, 2)
stored(folder.epoch(2).rows) == counts
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from collab.config import validate
from collab.errors import RunFormatError, StoreFailure
from collab.learn.folder import write_json
from collab.learn.trajectories import TrajectoryRows
from collab.marl.config import MarlConfig
from collab.marl.layout import MarlFolder
from collab.marl.rows import Made
from collab.marl.summary import RowCounts
from collab.plain import read_plain
from collab.seeds import derive, generator
from collab.store.files import writing
from collab.synth.rows import Row
from collab.synth.table import RowWriter, read_rows

OLDER, COUNTS = "older.parquet", "rows.json"
"""Rows that are mixed in; and of all policies what was counted, written last."""
_OWN = {"dpo": "preference.parquet", "rft": "demonstration.parquet", "trajectory-dpo": "trajectory.parquet"}
"""Objective → file of this epoch's rows."""


def own_rows(config: MarlConfig, folder: MarlFolder, number: int, group: str) -> Path:
    """The file of what a policy learns of an epoch; there is none where there is nothing to learn."""
    return folder.epoch(number).rows / group / _OWN[config.method.objective]


def store(made: Made, config: MarlConfig, folder: MarlFolder, number: int) -> dict[str, RowCounts]:
    """Write an epoch's rows, with those of older epochs that are drawn for it; the counts are written last.

    Raises:
        StoreFailure: the disk is full or the rights are missing.
        RunFormatError: rows of older epochs are wanted, and they, or the training that the team comes from, are gone.
    """
    epoch = folder.epoch(number)
    counts = {}
    for group, rows in made.rows.items():
        older = _older(config, folder, number, group, len(rows))
        _write(own_rows(config, folder, number, group), rows, folder.resume)
        _write(epoch.rows / group / OLDER, older, folder.resume)
        counts[group] = made.counts(group, older)
    with writing(epoch.rows, folder.resume):
        epoch.rows.mkdir(parents=True, exist_ok=True)
        write_json(epoch.rows / COUNTS, {group: one.model_dump() for group, one in counts.items()})
    return counts


def stored(rows: Path) -> dict[str, RowCounts] | None:
    """The counts of rows that were written whole; None where they were not. RunFormatError when they are spoilt."""
    path = rows / COUNTS
    if not path.exists():
        return None
    try:
        content = json.loads(read_plain(path))
        return {group: validate(RowCounts, one, str(path)) for group, one in content.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and the rows are made again") from None


def trajectory_rows_of(path: Path, replies: Sequence[tuple[int, int]]) -> list[TrajectoryRows]:
    """Pairs of whole trajectories, read back.

    Args:
        path: of their rows.
        replies: `RowCounts.replies`.

    Raises:
        RunFormatError: there are other rows than were counted.
    """
    rows = list(read_rows(path))
    if len(rows) != sum(map(sum, replies)):
        raise RunFormatError(f"{path}: {len(rows)} rows, but {sum(map(sum, replies))} were written; train anew")
    left = iter(rows)
    return [
        TrajectoryRows(chosen=[next(left) for _ in range(good)], rejected=[next(left) for _ in range(bad)])
        for good, bad in replies
    ]


# ------------------------------------------------------------------------------------------------------ inside


def _older(config: MarlConfig, folder: MarlFolder, number: int, group: str, own: int) -> list[Row]:
    """Rows of older epochs that are drawn for this one, in their order."""
    share = config.method.older
    wanted = round(share / (1 - share) * own)
    if not wanted:
        return []
    epochs = [*_rehearsed(config), *((folder, one) for one in range(1, number))]
    there = [row for training, one in epochs for row in _known(config, training, one, group)]
    rng = generator(derive(config.run.seed, "older pairs", number, group))
    return [there[place] for place in sorted(rng.sample(range(len(there)), min(wanted, len(there))))]


def _rehearsed(config: MarlConfig) -> list[tuple[MarlFolder, int]]:
    """Epochs of the training that the team comes from, none where it comes from before its first.

    Raises:
        RunFormatError: that training is gone.
    """
    if config.origin is None:
        return []
    folder = MarlFolder(Path(config.origin.run))
    if not folder.file.is_file():
        raise RunFormatError(f"{folder.path}: the training is gone whose pairs are to be mixed in; put it back")
    return [(folder, number) for number in range(1, config.origin.epoch + 1)]


def _known(config: MarlConfig, folder: MarlFolder, number: int, group: str) -> Iterator[Row]:
    """What a policy learned of an epoch; RunFormatError where that is gone."""
    file, counts = own_rows(config, folder, number, group), stored(folder.epoch(number).rows)
    if file.exists():
        yield from read_rows(file)
    elif counts is None or group not in counts or counts[group].pairs + counts[group].anchors:
        raise RunFormatError(f"{file}: the rows are gone that are to be mixed in; put them back, or train with older=0")


def _write(path: Path, rows: Sequence[Row], next_move: str) -> None:
    """A file of rows; none where there are none."""
    with writing(path.parent, next_move):
        path.unlink(missing_ok=True)
        if rows:
            _write_all(path, rows)


def _write_all(path: Path, rows: Sequence[Row]) -> None:
    """OSError where they cannot be written: what a table advises is for a synthesis."""
    try:
        with RowWriter(path, sampled=True) as out:
            for row in rows:
                out.add(row)
    except StoreFailure as failure:
        raise failure.__cause__ or failure from None
