"""Shared code of tasks about database rows: prepare a table, judge added and removed rows, plan the rest.

A task's target names two things: rows that must be as they were at the start, and rows that must come in addition.
Judge and plan both read it, so they cannot disagree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from collab.envs.simphone.apps.markor import was_opened
from collab.envs.simphone.state import Phone, Table, TableRow, fill, rows, to_whole
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.markor_writing import open_note
from collab.envs.simphone.tasks.spec import Params, TaskSpec, is_similar
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

TaskRecord: TypeAlias = Mapping[str, Any]
"""A row as a task's parameters name it: AndroidWorld's columns, in AndroidWorld's units."""
Expected: TypeAlias = tuple[Sequence[TableRow], Sequence[TaskRecord]]
"""(rows that must be there unaltered, rows that must come besides)."""
RecordTarget: TypeAlias = Callable[[Phone, Phone, Params], Expected]
"""Returns the target, given the phone at the start, the phone now, and the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTable:
    """A table, how its rows are compared with the rows a task asks for, and how its app adds and deletes them."""

    table: Table
    text: tuple[str, ...]
    """Columns in which similar words are enough."""
    exact: tuple[str, ...]
    add: Callable[[Frame, TaskRecord], Action]
    """The next step towards a missing row."""
    delete: Callable[[Frame, set[int]], Action]
    """The next step towards deleting the rows with these keys."""

    @property
    def key(self) -> str:
        """The primary key's column."""
        return self.table.columns[0][0]

    def matches(self, row: TableRow, wanted: TaskRecord) -> bool:
        """Return whether a row says what a task asked for."""
        return all(row[name] == wanted[name] for name in self.exact) and all(
            is_similar(str(wanted[name] or ""), str(row[name] or "")) for name in self.text
        )

    def build_form(self, target: RecordTarget, *, targets: bool, **fields: Any) -> partial[TaskSpec]:
        """Return what tasks of one target share; `targets` as in `prepare`."""
        prepare, plan = partial(self.prepare, targets=targets), partial(self.plan, target=target)
        return partial(TaskSpec, prepare=prepare, score=self.score(target), plan=plan, **fields)

    def prepare(self, phone: Phone, params: Params, rng: random.Random, *, targets: bool) -> Phone:
        """Return the table with nothing but the task's rows: noise first, then the rows to be deleted, if `targets`."""
        records = [*params.get("noise_row_objects", ()), *(params["row_objects"] if targets else ())]
        return fill(phone, self.table, records)

    def plan(
        self, frame: Frame, params: Params, start: Phone, *, target: RecordTarget, note: str | None = None
    ) -> Action:
        """Plan the next step towards the target; a note that names the rows is read first."""
        step = None if note is None or was_opened(frame.phone, note) else open_note(frame, note)
        if step is not None:
            return step
        missing, surplus = self.find_remaining(target, start, frame.phone, params)
        if surplus:
            return self.delete(frame, surplus)
        return self.add(frame, missing[0]) if missing else plans.finish()

    def expect_added(self, start: Phone, now: Phone, params: Params) -> Expected:
        """Expect that the rows asked for come to those that were there."""
        return rows(start, self.table), params["row_objects"]

    def expect_removed(self, start: Phone, now: Phone, params: Params) -> Expected:
        """Expect that the rows asked for, last in the table at the start, are gone."""
        before = rows(start, self.table)
        return before[: len(before) - len(params["row_objects"])], ()

    def expect_thinned(self, start: Phone, now: Phone, params: Params) -> Expected:
        """Expect that one of the two equal rows, last in the table at the start, is gone."""
        *others, first, second = rows(start, self.table)
        return (*others, second if first not in rows(now, self.table) else first), ()

    def score(self, target: RecordTarget) -> Callable[[Phone, Phone, Params], float]:
        """Return 1 when exactly the target is in the table, else 0."""

        def score(start: Phone, end: Phone, params: Params) -> float:
            kept, wanted = target(start, end, params)
            after = rows(end, self.table)
            by_key = {row[self.key]: row for row in after}
            unaltered = all(by_key.get(row[self.key]) == row for row in kept)
            present = all(any(self.matches(row, record) for row in after) for record in wanted)
            return float(len(after) == len(kept) + len(wanted) and unaltered and present)

        return score

    def find_remaining(
        self, target: RecordTarget, start: Phone, now: Phone, params: Params
    ) -> tuple[list[TaskRecord], set[int]]:
        """Return what is still to be done: (records to add, keys of rows to delete).

        Raises:
            PlanError: a row that should have stayed was altered or deleted.
        """
        kept, wanted = target(start, now, params)
        by_key = {row[self.key]: row for row in rows(now, self.table)}
        if any(by_key.pop(row[self.key], None) != row for row in kept):
            raise plans.PlanError(f"a row of {self.table.name} that should have stayed is not as it was")
        missing, surplus = list(wanted), set[int]()
        for row in by_key.values():
            match = next((record for record in missing if self.matches(row, record)), None)
            if match is None:
                surplus.add(to_whole(row[self.key]))
            else:
                missing.remove(match)
        return missing, surplus


def format_records(records: Sequence[Mapping[str, str]], form: str) -> str:
    """Format records: for "csv" a header and a line each, with bars between the fields; else blocks."""
    if form == "csv":
        return "\n".join("|".join(line) for line in (records[0], *(record.values() for record in records)))
    blocks = ("\n ".join(f"{name}: {value}" for name, value in record.items()) for record in records)
    return "\n\n".join(blocks)


def make_goal(
    describe: Callable[[Params], Mapping[str, str]], *templates: str
) -> Callable[[Params, random.Random], str]:
    """Return goals from templates whose parts in braces are filled from the parameters."""

    def goal(params: Params, rng: random.Random) -> str:
        return rng.choice(templates).format(**describe(params))

    return goal


def draw_distinct(
    rng: random.Random, draw: Callable[[random.Random], dict[str, Any]], count: int, *by: str
) -> list[Any]:
    """Draw `count` records, no two equal in the columns `by` (all columns when none is named)."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    while len(found) < count:
        record = draw(rng)
        found.setdefault(tuple(record[name] for name in by or record), record)
    return list(found.values())
