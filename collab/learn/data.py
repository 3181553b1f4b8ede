"""Rows from directories, as a stage wants them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collab.errors import ConfigError, UsageError
from collab.synth.rows import LEVELS, Level, Row
from collab.synth.table import read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What was read."""

    rows: Sequence[Row]
    """Of the levels that were asked for, each once, in the order of the files."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Rows that cannot be used and were left out, by field."""
    repeated: int = 0
    """Rows that stood there before and were left out."""

    @property
    def levels(self) -> dict[str, int]:
        """Rows by level."""
        return dict(Counter(row.level for row in self.rows))


def read_data(folders: Sequence[Path], levels: Sequence[Level], *, max_broken: int = 0) -> Data:
    """The rows of some levels, from every Parquet file of some directories.

    Args:
        max_broken: broken rows that are left out and counted; one more is refused. 0 refuses the first, by file, row
            and field.

    Raises:
        UsageError: a directory is missing or holds no rows at all.
        ConfigError: a row is broken, or there is none of these levels.
        MissingExtra: pyarrow is not installed.
    """
    kept: dict[str, Row] = {}
    repeated = 0
    broken: Counter[str] = Counter()
    for file in _files(folders, levels):
        for row in read_rows(file, skipped=broken if max_broken else None):
            if row.level in levels and row.id in kept:
                repeated += 1
            elif row.level in levels:
                kept[row.id] = row
        if broken.total() > max_broken:
            fields = ", ".join(f"{name} {count}" for name, count in broken.items())
            raise ConfigError(
                f"{file}: {broken.total()} broken rows so far ({fields}), {max_broken} are allowed; "
                "make the data again, or raise --max-broken"
            )
    if not kept:
        places = ", ".join(map(str, folders))
        raise ConfigError(
            f"--data {places}: no rows of level {', '.join(levels)}; files there: "
            f"{', '.join(file.name for folder in folders for file in sorted(folder.glob('*.parquet')))}"
        )
    return Data(rows=list(kept.values()), broken=dict(broken), repeated=repeated)


def _files(folders: Sequence[Path], levels: Sequence[Level]) -> Iterator[Path]:
    """The files that may hold rows of these levels: a file named for another level does not."""
    others = set(LEVELS) - set(levels)
    for folder in folders:
        if folder.is_file():
            raise UsageError(f"--data {folder}: is a file; name the directory that holds it: {folder.parent}")
        if not folder.is_dir():
            raise UsageError(f"--data {folder}: no such directory; make rows with: collab synth --out {folder}")
        found = sorted(folder.glob("*.parquet"))
        if not found:
            raise UsageError(f"--data {folder}: no *.parquet in it; make rows with: collab synth")
        yield from (file for file in found if file.stem not in others)
