"""The order of training: every optimizer step's rows, written down before the first is trained.

    steps = curriculum(lengths, groups, passes, batch=Batch(rows=64, tokens=None, window=50, parts=4), seed=0)

A pass over a level is shuffled, cut into windows, each window sorted by length and cut into steps, and the steps of a
window are shuffled: rows of a step are about equally long, so little is padded, and steps of all lengths alternate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collab.errors import ConfigError
from collab.seeds import derive, generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How large a step is."""

    rows: int
    """At most; up to `parts` − 1 are added where the rest of a window is too little for a step of its own."""
    tokens: int | None
    """At most, padding included; None for no limit. A single longer row is a step of its own."""
    window: int
    """Steps that are sorted by length together."""
    parts: int = 1
    """Forward passes that a step is divided into, over all processes; a step has at least as many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one optimizer step is computed from."""

    group: str
    """The level of its rows; "mixed" when there may be several."""
    parts: tuple[tuple[int, ...], ...]
    """Positions of rows, one tuple per forward pass; none is empty."""

    @property
    def rows(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(row for part in self.parts for row in part)


def curriculum(
    lengths: Sequence[int],
    groups: Mapping[str, Sequence[int]],
    passes: Mapping[str, float],
    *,
    batch: Batch,
    seed: int,
) -> list[Step]:
    """One level after the other, in the order of `passes`.

    Args:
        lengths: tokens of each row.
        groups: positions of rows, by level.
        passes: how often the rows of a level are seen; 1.5 sees each once and half of them twice.
        seed: the same seed gives the same order.

    Raises:
        ConfigError: a level has fewer rows than a step has parts.
    """
    steps: list[Step] = []
    for name, times in passes.items():
        for number, chunk in enumerate(_shuffled_passes(groups[name], times, seed, name)):
            rng = generator(derive(seed, "steps", name, number))
            steps += _row_steps(name, chunk, lengths, batch, rng)
    return steps


def mixed(
    lengths: Sequence[int],
    groups: Mapping[str, Sequence[int]],
    passes: Mapping[str, float],
    *,
    epochs: int,
    batch: Batch,
    seed: int,
) -> list[Step]:
    """All levels in every epoch, each with its share of its passes; arguments as `curriculum`."""
    streams = {
        name: [row for chunk in _shuffled_passes(groups[name], times, seed, name) for row in chunk]
        for name, times in passes.items()
    }
    steps: list[Step] = []
    for epoch in range(epochs):
        rng = generator(derive(seed, "steps", "mixed", epoch))
        chunk = [row for stream in streams.values() for row in _share(stream, epoch, epochs)]
        rng.shuffle(chunk)
        steps += _row_steps("mixed", chunk, lengths, batch, rng)
    return steps


def of_process(steps: Sequence[Step], rank: int, world: int) -> list[tuple[tuple[int, ...], ...]]:
    """The forward passes of one process, step by step: every process has as many, and each part is computed by one."""
    return [step.parts[rank::world] for step in steps]


def padded(lengths: Sequence[int], part: Sequence[int]) -> int:
    """Tokens that a forward pass computes, padding included."""
    return len(part) * max(lengths[row] for row in part)


def _shuffled_passes(rows: Sequence[int], times: float, seed: int, name: str) -> Iterator[list[int]]:
    """Shuffled passes over the rows; the last one is cut short where `times` is no whole number."""
    left = round(times * len(rows))
    number = 0
    while left > 0:
        chunk = list(rows)
        generator(derive(seed, "pass", name, number)).shuffle(chunk)
        yield chunk[:left]
        left -= len(chunk)
        number += 1


def _share(stream: Sequence[int], epoch: int, epochs: int) -> Sequence[int]:
    """The part of a level's rows that belongs to an epoch."""
    return stream[round(epoch * len(stream) / epochs) : round((epoch + 1) * len(stream) / epochs)]


def _row_steps(name: str, chunk: Sequence[int], lengths: Sequence[int], batch: Batch, rng: random.Random) -> list[Step]:
    """The steps of one pass, rows of a window sorted by length."""
    if not chunk:
        return []
    if len(chunk) < batch.parts:
        raise ConfigError(
            f"{name}: {len(chunk)} rows are too few for {batch.parts} forward passes per step; "
            "use more data, fewer processes or a larger rows_at_once"
        )
    steps: list[Step] = []
    width = max(batch.window * batch.rows, batch.parts)
    bounds = [*range(0, len(chunk), width), len(chunk)]
    if len(bounds) > 2 and bounds[-1] - bounds[-2] < batch.parts:
        del bounds[-2]  # the rest alone would be too few rows for a step
    for start, stop in pairwise(bounds):
        window = sorted(chunk[start:stop], key=lengths.__getitem__)
        made = [Step(group=name, parts=_parts(rows, batch.parts)) for rows in _cut_rows(window, lengths, batch)]
        rng.shuffle(made)
        steps += made
    return steps


def _cut_rows(window: Sequence[int], lengths: Sequence[int], batch: Batch) -> list[list[int]]:
    """Rows sorted by length as steps within the limits, the last one filled up to a row per part."""
    cut: list[list[int]] = [[]]
    for row in window:  # the row at hand is the longest so far
        full = len(cut[-1]) >= batch.rows
        heavy = batch.tokens is not None and (len(cut[-1]) + 1) * lengths[row] > batch.tokens
        if (full or heavy) and len(cut[-1]) >= batch.parts:
            cut.append([])
        cut[-1].append(row)
    if len(cut) > 1 and len(cut[-1]) < batch.parts:
        rest = cut.pop()
        cut[-1] += rest
    return cut


def _parts(rows: Sequence[int], parts: int) -> tuple[tuple[int, ...], ...]:
    """Neighbours in length together, sizes that differ by at most one."""
    bounds = [part * len(rows) // parts for part in range(parts + 1)]
    return tuple(tuple(rows[start:stop]) for start, stop in pairwise(bounds))
