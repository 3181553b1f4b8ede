"""Examples of an epoch on disk: a folder per policy, with this epoch's examples and the older ones that are mixed in.

    counts = store(made, folder, 2, file="demonstration.parquet")
    read_counts(folder.get_epoch(2).examples, ExampleCounts) == counts

Examples are written before they are learned, so that a resumed process learns the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from collab.config import validate
from collab.data.example import Example
from collab.data.parquet import ExampleWriter, read_rows
from collab.data.tokenize import hash_examples
from collab.errors import RunFormatError, StoreFailure
from collab.loop.config import TrainingConfig
from collab.loop.examples import ExampleBuilder, Target
from collab.loop.record import ExampleCounts, TrainingDir
from collab.seeds import derive, generator
from collab.utils.files import read_plain, report_write_errors, write_json

OLDER, COUNTS = "older.parquet", "examples.json"
"""Older examples that are mixed in; and the counts of all policies, written last."""

CountsT = TypeVar("CountsT", bound=ExampleCounts)


@dataclass(slots=True, kw_only=True)
class Examples:
    """Examples of a rollout by policy, and counts of replies that gave none."""

    rows: dict[str, list[Example]]
    refused: dict[str, Counter[str]]
    retokenised: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, config: TrainingConfig) -> Self:
        """Return a set without any example, for each policy of a team."""
        groups = list(config.groups)
        return cls(rows={group: [] for group in groups}, refused={group: Counter() for group in groups})

    def add(self, group: str, builder: ExampleBuilder, target: Target) -> bool:
        """Add a reply to the examples of a policy, or count why not; returns whether it was added."""
        row, again = builder.build(target)
        self.retokenised[group] += again
        if isinstance(row, Example):
            self.rows[group].append(row)
            return True
        self.refused[group][row] += 1
        return False

    def count_group(self, group: str, older: Sequence[Example] = ()) -> ExampleCounts:
        """Return the counts of a policy, with older examples."""
        rows = [*self.rows[group], *older]
        return ExampleCounts(
            examples=len(self.rows[group]),
            written=len(self.rows[group]),
            older=len(older),
            refused=dict(self.refused[group]),
            repeated=len(rows) - len({row.id for row in rows}),
            retokenised=self.retokenised[group],
            digest=hash_examples(rows),
        )


def get_examples_file(folder: TrainingDir, number: int, group: str, file: str) -> Path:
    """Return the file of a policy's examples of an epoch; it exists only if there are any."""
    return folder.get_epoch(number).examples / group / file


def store(
    made: Examples, folder: TrainingDir, number: int, *, file: str, older: Mapping[str, Sequence[Example]] | None = None
) -> dict[str, ExampleCounts]:
    """Write an epoch's examples; the counts are written last.

    Args:
        file: name of the file in each policy's folder, as `collab.data.tokenize` reads it.
        older: by policy, examples of older epochs that are mixed in; None for none.

    Raises:
        StoreFailure: the disk is full or permissions are missing.
    """
    epoch, counts = folder.get_epoch(number), {}
    for group, rows in made.rows.items():
        mixed = (older or {}).get(group, ())
        _write(get_examples_file(folder, number, group, file), rows, folder.resume)
        _write(epoch.examples / group / OLDER, mixed, folder.resume)
        counts[group] = made.count_group(group, mixed)
    write_counts(folder, number, counts)
    return counts


def write_counts(folder: TrainingDir, number: int, counts: Mapping[str, ExampleCounts]) -> None:
    """Write the counts of an epoch's examples, after the examples themselves; StoreFailure if the disk is full."""
    examples = folder.get_epoch(number).examples
    with report_write_errors(examples, folder.resume):
        examples.mkdir(parents=True, exist_ok=True)
        write_json(examples / COUNTS, {group: one.model_dump() for group, one in counts.items()})


def read_counts(examples: Path, model: type[CountsT]) -> dict[str, CountsT] | None:
    """Return the counts of examples that were written completely; None if they were not.

    Args:
        model: the algorithm's type of counts.

    Raises:
        RunFormatError: they are spoilt.
    """
    path = examples / COUNTS
    if not path.exists():
        return None
    try:
        content = json.loads(read_plain(path))
        return {group: validate(model, one, str(path)) for group, one in content.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and the examples are made again") from None


def draw_older(
    config: TrainingConfig,
    folder: TrainingDir,
    number: int,
    group: str,
    *,
    file: str,
    share: float,
    own: int,
    purpose: str,
) -> list[Example]:
    """Draw examples of older epochs, those of the original training included; return them in their order.

    Args:
        share: of older examples among all that are learned, as far as there are enough.
        own: number of examples of this epoch.
        purpose: of the draw, for its seed.

    Raises:
        RunFormatError: examples of older epochs, or the original training, are gone.
    """
    wanted = round(share / (1 - share) * own)
    if not wanted:
        return []
    epochs = [*_list_rehearsed(config), *((folder, one) for one in range(1, number))]
    there = [row for training, one in epochs for row in _read_examples(training, one, group, file)]
    rng = generator(derive(config.run.seed, purpose, number, group))
    return [there[place] for place in sorted(rng.sample(range(len(there)), min(wanted, len(there))))]


# ------------------------------------------------------------------------------------------------------ inside


def _list_rehearsed(config: TrainingConfig) -> list[tuple[TrainingDir, int]]:
    """List the epochs of the training that the team comes from; RunFormatError if that training is gone."""
    if config.origin is None:
        return []
    folder = TrainingDir(Path(config.origin.run))
    if not folder.file.is_file():
        raise RunFormatError(f"{folder.path}: the training with the examples to mix in is missing; put it back")
    return [(folder, number) for number in range(1, config.origin.epoch + 1)]


def _read_examples(folder: TrainingDir, number: int, group: str, name: str) -> Iterator[Example]:
    """Yield a policy's examples of an epoch; RunFormatError if they are gone."""
    file, counts = get_examples_file(folder, number, group, name), _read_written(folder.get_epoch(number).examples)
    if file.exists():
        yield from read_rows(file)
    elif counts.get(group, 1):
        raise RunFormatError(
            f"{file}: the examples to mix in are missing; put them back, or train without older examples"
        )


def _read_written(examples: Path) -> dict[str, int]:
    """Return the number of written examples of each policy, whatever else its algorithm counts."""
    path = examples / COUNTS
    try:
        return {group: int(one["written"]) for group, one in json.loads(read_plain(path)).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; put it back, or train without older examples") from None


def _write(path: Path, rows: Sequence[Example], next_move: str) -> None:
    """Write a file of rows; none if there are none."""
    with report_write_errors(path.parent, next_move):
        path.unlink(missing_ok=True)
        if rows:
            _write_all(path, rows)


def _write_all(path: Path, rows: Sequence[Example]) -> None:
    """Write rows; raises a plain OSError, because the writer's own advice is for a synthesis."""
    try:
        with ExampleWriter(path, sampled=True) as out:
            for row in rows:
                out.add(row)
    except StoreFailure as failure:
        raise failure.__cause__ or failure from None
