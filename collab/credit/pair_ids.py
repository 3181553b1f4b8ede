"""Short names of pairs: as many letters of an ID as tell it from all others, and back from any such beginning.

short = short_ids(pair.id for pair in stored.pairs)
name, pair = find_pair(run, "8a3f21c0")
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from collab.credit.pair_store import StoredPairs, pair_names, read_pairs
from collab.errors import UnknownName, UsageError
from collab.types import PreferencePair

LETTERS = 8
"""An ID is not told in fewer."""


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """ID → its shortest beginning of at least `LETTERS` letters that no other of them has; all in equal length."""
    distinct = set(ids)
    letters = next(count for count in itertools.count(LETTERS) if len({id[:count] for id in distinct}) == len(distinct))
    return {id: id[:letters] for id in distinct}


def letters_of(run: Path) -> dict[str, str]:
    """ID → short ID, over all pairs of a run; RunFormatError when some cannot be read."""
    return short_ids(pair.id for name in pair_names(run) for pair in read_pairs(run, name).pairs)


def find_pair(run: Path, beginning: str, name: str | None = None) -> tuple[StoredPairs, PreferencePair]:
    """The pair whose ID begins so, and the set that it is found in.

    Args:
        name: of the set to look in; None looks in all, and of equal pairs finds the one that was stored last.

    Raises:
        UnknownName: there is none, or no such set.
        UsageError: there are several.
        RunFormatError: a set cannot be read.
    """
    names = pair_names(run)[::-1] if name is None else [name]
    found: dict[str, tuple[StoredPairs, PreferencePair]] = {}
    for each in names:
        stored = read_pairs(run, each)
        for pair in stored.pairs:
            if beginning and pair.id.startswith(beginning.lower()):
                found.setdefault(pair.id, (stored, pair))
    if not found:
        where = f"among {', '.join(names)}" if names else f"for there are none: collab pairs rebuild {run}"
        raise UnknownName(f"{run}: no pair {beginning[:64]!r} {where}; see them with: collab pairs list {run}")
    if len(found) > 1:
        shown = ", ".join(list(short_ids(found).values())[:4])
        raise UsageError(
            f"{run}: {len(found)} pairs begin with {beginning!r} ({shown}{' …' if len(found) > 4 else ''}); "
            "give more letters"
        )
    (only,) = found.values()
    return only
