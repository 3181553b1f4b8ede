"""Which rows are kept: each once, none of a kind in excess, nothing that is kept for evaluation.

    chosen = select(rows, seed=0, cap=500)
    refuse_leaks(chosen.rows, splits.values())

What is dropped is counted by cause. Which rows of an over-full group stay depends on the seed and the rows' ids alone,
not on the order in which they were made, so that a resumed synthesis ends with the same set.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from collab.errors import UsageError
from collab.seeds import derive
from collab.splits.overlap import Overlap, kept_by, refuse_overlap
from collab.splits.split import Split
from collab.synth.rows import Row

Group: TypeAlias = tuple[str, str, str, str]
"""Level, kind, app and action type; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is kept of the rows that were made."""

    rows: tuple[Row, ...]
    """In the order in which they were made."""
    dropped: Mapping[str, int]
    """Cause → rows: "already there", "more than N of (kind, app, action type)"."""


def group_of(row: Row) -> Group:
    """What a row is balanced within. Of several apps the last counts: that of its screen."""
    app = row.provenance.apps[-1].casefold() if row.provenance.apps else ""
    return row.level, row.kind, app, row.action_type or ""


def select(rows: Iterable[Row], *, seed: int, cap: int | None = None) -> Selection:
    """Keep every row once, and at most `cap` of a group.

    Args:
        cap: None keeps all.

    Raises:
        UsageError: the cap is below 1, or there are no rows at all.
    """
    if cap is not None and cap < 1:
        raise UsageError(f"balance: at most {cap} rows per kind, app and action type; allowed: 1 or more")
    first: dict[str, Row] = {}
    made = 0
    for row in rows:
        made += 1
        first.setdefault(row.id, row)
    if not first:
        raise UsageError("no row was made; ask for more screens, more tasks or other levels")
    kept = set(first) if cap is None else _within(first, seed, cap)
    dropped = Counter({"already there": made - len(first)})
    if cap is not None:
        dropped[f"more than {cap} of a kind, app and action type"] = len(first) - len(kept)
    return Selection(rows=tuple(row for name, row in first.items() if name in kept), dropped=+dropped)


def _within(rows: Mapping[str, Row], seed: int, cap: int) -> set[str]:
    """Ids of the rows that stay: of each group those that the seed ranks first."""
    groups: defaultdict[Group, list[str]] = defaultdict(list)
    for name, row in rows.items():
        groups[group_of(row)].append(name)
    ranked = (sorted(names, key=lambda name: (derive(seed, "balance", name), name)) for names in groups.values())
    return {name for names in ranked for name in names[:cap]}


def refuse_leaks(rows: Iterable[Row], splits: Iterable[Split], *, allow_overlap: bool = False) -> Overlap:
    """Make sure that no row holds what is kept for evaluation.

    Raises:
        OverlapError: one does; the message has counts and the first offenders.
        UsageError: there are no rows to check.
    """
    found = refuse_overlap((row.instance for row in rows), kept_by(splits), allow_overlap=allow_overlap)
    if found.checked == 0:
        raise UsageError("there are no rows to check for what is kept for evaluation; an empty set cannot be used")
    return found
