"""The check before any training on rows: nothing of them may be kept for evaluation where they come from.

    await check_rows(rows, Library())       # raises OverlapError, with counts and the first offenders
    undefined(rows, Library())              # environments that no definition names: their rows are not compared

`collab synth` compares rows when it makes them; this is for rows from anywhere, and for splits that have changed since.
"""

from __future__ import annotations

from collections.abc import Sequence

from collab.config import load_environment
from collab.data.example import Row
from collab.data.splits import Overlap, kept_by, refuse_overlap
from collab.library import Library
from collab.rollout.build import splits_in


async def check_rows(rows: Sequence[Row], library: Library, *, allow_overlap: bool = False) -> list[Overlap]:
    """Compare rows with what is kept for evaluation in the environments that they come from.

    Args:
        library: where environments are looked up by the names that rows tell; see `undefined` for those it lacks.
        allow_overlap: say what was found and go on, instead of refusing.

    Returns:
        One per environment some of whose rows are kept; empty unless that was allowed.

    Raises:
        OverlapError: a row is kept for evaluation and this was not allowed.
        UsageError: an environment of that name is defined here and cannot be built.
    """
    overlaps = []
    for name in sorted(_environments(rows) & set(library.names("envs"))):
        splits = await splits_in(name, load_environment(library, name))
        mine = (row.instance for row in rows if _environment(row) == name)
        found = refuse_overlap(mine, kept_by(splits.values()), allow_overlap=allow_overlap)
        overlaps += [found] if found.offenders else []
    return overlaps


def undefined(rows: Sequence[Row], library: Library) -> list[str]:
    """Environments of rows that are not defined here, and so have no splits to compare with."""
    return sorted(_environments(rows) - set(library.names("envs")))


def _environments(rows: Sequence[Row]) -> set[str]:
    return {_environment(row) for row in rows}


def _environment(row: Row) -> str:
    """The name in a label such as "androidworld[simphone]"."""
    return row.provenance.environment.partition("[")[0]
