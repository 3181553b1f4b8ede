"""What tasks about database rows share: preparing a table, judging what was added or removed, and what is left to do.

A task's target names two things: rows that must be as they were at the start, and rows that must come in addition.
Judge and plan both read it, so they cannot disagree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from collab.envs.simphone.state import Phone, Row, Table, fill, rows, whole
from collab.envs.simphone.tasks.plans import Lost
from collab.envs.simphone.tasks.spec import Params, similar

Record: TypeAlias = Mapping[str, Any]
"""A row as a task's parameters name it: AndroidWorld's columns, in AndroidWorld's units."""
Target: TypeAlias = Callable[[Phone, Phone, Params], tuple[Sequence[Row], Sequence[Record]]]
"""(phone at the start, phone now, parameters) → (rows that must be there unaltered, rows that must come besides)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A table, and how its rows are compared with the rows a task asks for."""

    table: Table
    text: tuple[str, ...]
    """Columns in which similar words are enough."""
    exact: tuple[str, ...]

    @property
    def key(self) -> str:
        """The primary key's column."""
        return self.table.columns[0][0]

    def matches(self, row: Row, wanted: Record) -> bool:
        """Whether a row says what a task asked for."""
        return all(row[name] == wanted[name] for name in self.exact) and all(
            similar(str(wanted[name] or ""), str(row[name] or "")) for name in self.text
        )

    def prepare(self, phone: Phone, params: Params, *, targets: bool) -> Phone:
        """The table with nothing but the task's rows: noise first, then the rows to be deleted, if `targets`."""
        return fill(
            phone, self.table, [*params.get("noise_row_objects", ()), *(params["row_objects"] if targets else ())]
        )

    def added(self, start: Phone, now: Phone, params: Params) -> tuple[Sequence[Row], Sequence[Record]]:
        """Target: the rows asked for come to those that were there."""
        return rows(start, self.table), params["row_objects"]

    def removed(self, start: Phone, now: Phone, params: Params) -> tuple[Sequence[Row], Sequence[Record]]:
        """Target: the rows asked for, last in the table at the start, are gone."""
        before = rows(start, self.table)
        return before[: len(before) - len(params["row_objects"])], ()

    def thinned(self, start: Phone, now: Phone, params: Params) -> tuple[Sequence[Row], Sequence[Record]]:
        """Target: one of the two equal rows, last in the table at the start, is gone; the one that is left stays."""
        *others, first, second = rows(start, self.table)
        return (*others, second if first not in rows(now, self.table) else first), ()

    def score(self, target: Target) -> Callable[[Phone, Phone, Params], float]:
        """1 when exactly the target is in the table, else 0."""

        def score(start: Phone, end: Phone, params: Params) -> float:
            kept, wanted = target(start, end, params)
            after = rows(end, self.table)
            by_key = {row[self.key]: row for row in after}
            unaltered = all(by_key.get(row[self.key]) == row for row in kept)
            present = all(any(self.matches(row, record) for row in after) for record in wanted)
            return float(len(after) == len(kept) + len(wanted) and unaltered and present)

        return score

    def left(self, target: Target, start: Phone, now: Phone, params: Params) -> tuple[list[Record], set[int]]:
        """What is still to be done: (records to add, keys of rows to delete).

        Raises:
            Lost: a row that should have stayed was altered or deleted.
        """
        kept, wanted = target(start, now, params)
        by_key = {row[self.key]: row for row in rows(now, self.table)}
        if any(by_key.pop(row[self.key], None) != row for row in kept):
            raise Lost(f"a row of {self.table.name} that should have stayed is not as it was")
        missing, surplus = list(wanted), set[int]()
        for row in by_key.values():
            match = next((record for record in missing if self.matches(row, record)), None)
            if match is None:
                surplus.add(whole(row[self.key]))
            else:
                missing.remove(match)
        return missing, surplus


def listed(records: Sequence[Mapping[str, str]], form: str) -> str:
    """Records as text: for "csv" a header and a line each, with bars between the fields; else a block each."""
    if form == "csv":
        return "\n".join("|".join(line) for line in (records[0], *(record.values() for record in records)))
    blocks = ("\n ".join(f"{name}: {value}" for name, value in record.items()) for record in records)
    return "\n\n".join(blocks)


def about(describe: Callable[[Params], Mapping[str, str]], *templates: str) -> Callable[[Params, random.Random], str]:
    """Goals from templates whose parts in braces are told from the parameters."""

    def goal(params: Params, rng: random.Random) -> str:
        return rng.choice(templates).format(**describe(params))

    return goal


def distinct(rng: random.Random, draw: Callable[[random.Random], dict[str, Any]], count: int, *by: str) -> list[Any]:
    """`count` drawn records, no two equal in the columns `by` (all columns when none is named)."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    while len(found) < count:
        record = draw(rng)
        found.setdefault(tuple(record[name] for name in by or record), record)
    return list(found.values())
