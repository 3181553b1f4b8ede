"""Short names of pairs: as many letters of an ID as tell it from all others, and back from any such beginning.

short = short_ids(pair.id for pair in stored.pairs)
name, pair = find_pair(run, "8a3f21c0")
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from pathlib import Path

from collab.credit.pair_store import StoredPairs, pair_names, read_pairs
from collab.errors import RunFormatError, UnknownName, UsageError
from collab.types import PreferencePair

LETTERS = 8
"""An ID is not told in fewer."""


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """ID → its shortest beginning of at least `LETTERS` letters that no other of them has; all in equal length."""
    distinct = set(ids)
    letters = next(count for count in itertools.count(LETTERS) if len({id[:count] for id in distinct}) == len(distinct))
    return {id: id[:letters] for id in distinct}


def letters_of(run: Path) -> dict[str, str]:
    """ID → short ID, over all pairs of a run; a set that cannot be read is left out."""
    ids: list[str] = []
    for name in pair_names(run):
        with contextlib.suppress(RunFormatError):
            ids += [pair.id for pair in read_pairs(run, name).pairs]
    return short_ids(ids)


def find_pair(run: Path, beginning: str, name: str | None = None) -> tuple[StoredPairs, PreferencePair]:
    """The pair whose ID begins so, and the set that it is found in.

    Args:
        name: of the set to look in; None looks in all, and of equal pairs finds the one that was stored last. Sets that
            cannot be read are passed over as long as another one has the pair.

    Raises:
        UnknownName: there is none, or no such set.
        UsageError: there are several.
        RunFormatError: that set cannot be read; or one of all, and none of the others has the pair.
    """
    names = pair_names(run)[::-1] if name is None else [name]
    found: dict[str, tuple[StoredPairs, PreferencePair]] = {}
    spoilt: RunFormatError | None = None
    for each in names:
        try:
            stored = read_pairs(run, each)
        except RunFormatError as error:
            spoilt = error
            continue
        for pair in stored.pairs:
            if beginning and pair.id.startswith(beginning.lower()):
                found.setdefault(pair.id, (stored, pair))
    if spoilt is not None and not found:
        raise spoilt
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
