"""The order of training where prefixes are shared: all pairs of a state in one forward pass, where they fit.

    batch = Batch(rows=32, tokens=None, window=50, parts=1)
    steps = by_state(groups, states, work, {"preference": 1}, batch=batch, most=8, seed=0)

A pass over a level is shuffled by states, cut into windows, each window sorted by how much a state is to compute and
cut into steps, and the steps of a window are shuffled. A step has as many forward passes as its states need, so that
none is torn apart to make their number come out; of several processes each has as many, of about equal work.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from collab.errors import ConfigError
from collab.learn.order import Batch, Step
from collab.seeds import derive, generator

Unit: TypeAlias = tuple[int, ...]
"""Rows that stay together: those of one state, or as many of them as fit."""
Work: TypeAlias = Callable[[Unit], int]
"""Tokens that a forward pass over some rows computes, what they share counted once."""


def by_state(
    groups: Mapping[str, Sequence[int]],
    states: Sequence[Hashable],
    work: Work,
    passes: Mapping[str, int],
    *,
    batch: Batch,
    most: int,
    seed: int,
) -> list[Step]:
    """One level after the other, in the order of `passes`.

    Args:
        groups: positions of rows, by level.
        states: of each row, what it belongs to.
        work: tokens that some rows are to compute together.
        passes: how often the rows of a level are seen.
        batch: its `parts` are processes; a step's forward passes are a multiple of them. Its `tokens` are counted as
            `work` does.
        most: rows of a forward pass at most; a state with more is cut into pieces of about equal size. One more where a
            step has fewer rows than forward passes would be needed.
        seed: the same seed gives the same order.

    Raises:
        ConfigError: a level has fewer rows than there are processes.
    """
    steps: list[Step] = []
    known = cache(work)
    for name, times in passes.items():
        units = _units(groups[name], states, min(most, batch.rows))
        if sum(map(len, units)) < batch.parts:
            raise ConfigError(
                f"{name}: {len(groups[name])} rows are too few for {batch.parts} processes; use more data or fewer "
                "processes"
            )
        for number in range(times):
            chunk = list(units)
            generator(derive(seed, "pass", name, number)).shuffle(chunk)
            steps += _unit_steps(name, chunk, known, batch, most, generator(derive(seed, "steps", name, number)))
    return steps


def _units(rows: Sequence[int], states: Sequence[Hashable], most: int) -> list[Unit]:
    """Rows of a state together, a state of too many rows in pieces; in the order in which they are met."""
    found: dict[Hashable, list[int]] = {}
    for row in rows:
        found.setdefault(states[row], []).append(row)
    return [piece for those in found.values() for piece in _pieces(tuple(those), math.ceil(len(those) / most))]


def _pieces(unit: Unit, count: int) -> list[Unit]:
    """Neighbours together, sizes that differ by at most one."""
    return [unit[part * len(unit) // count : (part + 1) * len(unit) // count] for part in range(count)]


def _unit_steps(
    name: str, chunk: Sequence[Unit], work: Work, batch: Batch, most: int, rng: random.Random
) -> list[Step]:
    """The steps of one pass over a level."""
    steps: list[Step] = []
    for window in _windows(chunk, max(batch.window * batch.rows, batch.parts), batch.parts):
        cut = _cut_units(sorted(window, key=work), work, batch)
        made = [Step(group=name, parts=_forward_passes(units, work, most, batch.parts)) for units in cut]
        rng.shuffle(made)
        steps += made
    return steps


def _windows(chunk: Sequence[Unit], width: int, least: int) -> list[list[Unit]]:
    """Units in windows of at most so many rows; a rest of fewer than `least` rows goes to the window before it."""
    windows: list[list[Unit]] = [[]]
    for unit in chunk:
        if windows[-1] and _rows(windows[-1]) + len(unit) > width:
            windows.append([])
        windows[-1].append(unit)
    return _joined(windows, least)


def _cut_units(window: Sequence[Unit], work: Work, batch: Batch) -> list[list[Unit]]:
    """Units as steps within the limits, a rest that is too little for all processes with the step before it."""
    cut: list[list[Unit]] = [[]]
    for unit in window:
        full = _rows(cut[-1]) + len(unit) > batch.rows
        heavy = batch.tokens is not None and sum(map(work, cut[-1])) + work(unit) > batch.tokens
        if (full or heavy) and _rows(cut[-1]) >= batch.parts:
            cut.append([])
        cut[-1].append(unit)
    return _joined(cut, batch.parts)


def _joined(lists: list[list[Unit]], least: int) -> list[list[Unit]]:
    if len(lists) > 1 and _rows(lists[-1]) < least:
        rest = lists.pop()
        lists[-1] += rest
    return lists


def _rows(units: Sequence[Unit]) -> int:
    return sum(map(len, units))


def _forward_passes(units: Sequence[Unit], work: Work, most: int, processes: int) -> tuple[Unit, ...]:
    """The forward passes of a step, the one with most work first: as few as hold its units whole.

    They are a multiple of the processes; where there are fewer units than that, the largest ones are halved.
    """
    rows = _rows(units)
    for count in range(processes * math.ceil(rows / (most * processes)), rows + 1, processes):
        found = _divided(_at_least(units, count), work, most, count)
        if found is not None:
            return found
    count = rows // processes * processes
    found = _divided(_at_least(units, count), work, rows, count)
    assert found is not None, "with room for all rows in each, every unit finds a place"
    return found


def _at_least(units: Sequence[Unit], count: int) -> list[Unit]:
    """The same rows in at least so many units."""
    pieces = list(units)
    while len(pieces) < count:
        largest = max(range(len(pieces)), key=lambda place: len(pieces[place]))
        pieces[largest : largest + 1] = _pieces(pieces[largest], 2)
    return pieces


def _divided(units: Sequence[Unit], work: Work, most: int, count: int) -> tuple[Unit, ...] | None:
    """Units in so many forward passes, each where the least work is so far; None where one finds no room."""
    parts: list[list[int]] = [[] for _ in range(count)]
    rows, loads = [0] * count, [0] * count
    for number in sorted(range(len(units)), key=lambda number: work(units[number]), reverse=True):
        size = len(units[number])
        free = [place for place in range(count) if not parts[place] or rows[place] + size <= most]
        if not free:
            return None
        least = min(free, key=loads.__getitem__)
        parts[least].append(number)
        rows[least] += size
        loads[least] += work(units[number])
    heaviest = sorted(range(count), key=loads.__getitem__, reverse=True)
    return tuple(tuple(row for number in sorted(parts[place]) for row in units[number]) for place in heaviest)
