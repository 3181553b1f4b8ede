"""Batches: in which order rows are trained, and how rows that begin alike share what they have in common.

`pack` is pure arithmetic over token ids:

    packing = pack([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6]])
    packing.ids                 # 1 2 3 4 5 6
    packing.places[1]           # 0 1 2 4: where the second row's tokens stand

All pairs of a state begin with the same task, history and observation, and TRL's trainer computes that beginning once
per reply: with K pairs of a prompt of P and replies of C tokens 2K(P + C) tokens, where P + 2KC are different ones.
Rows become a *trie*: a node is a run of tokens that the same rows have in common, so prompts that begin with each other
share all they have in common, and two equal replies are one. Nodes stand in the order in which one walks down the
trie, so what stands under a node follows it without a gap.

The idea is not new: dpo-prefix-sharing (arXiv 2410.20305) packs a prompt with both replies, flash-preference does so
inside the kernel, Prefix Grouper (2506.05433) shares a prompt among a group of samples, Tree Training (2511.00413) and
AReaL-DTA (2602.00482) train on tries of trajectories. Here are all pairs of a multi-agent state, with equality tested.

`order_by_state` is the order where prefixes are shared: all pairs of a state in one forward pass, where they fit.

    batch = Batch(rows=32, tokens=None, window=50, parts=1)
    steps = by_state(groups, states, work, {"preference": 1}, batch=batch, most=8, seed=0)

A pass over a level is shuffled by states, cut into windows, each window sorted by how much a state is to compute and
cut into steps, and the steps of a window are shuffled. A step has as many forward passes as its states need, so that
none is torn apart to make their number come out; of several processes each has as many, of about equal work.

`order_curriculum` is the order elsewhere: every optimizer step's rows, written down before the first is trained.

    steps = curriculum(lengths, groups, passes, batch=Batch(rows=64, tokens=None, window=50, parts=4), seed=0)

A pass over a level is shuffled, cut into windows, each window sorted by length and cut into steps, and the steps of a
window are shuffled: rows of a step are about equally long, so little is padded, and steps of all lengths alternate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collab.data.tokenize import Encoded, EncodedPair
from collab.errors import ConfigError
from collab.seeds import derive, generator
from collab.trainers.recipe import DpoRecipe, Recipe, SftRecipe

Ids = NDArray[np.int64]

SHORTEST = 4
"""Tokens below which a common part is repeated: attending to it apart costs more than computing it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A run of tokens that all rows through it have in common."""

    start: int
    """Place of its first token."""
    stop: int
    """Place after its last token."""
    end: int
    """Place after the last token that stands under it; `stop` where nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """Rows without what they repeat."""

    ids: Ids
    """Tokens, (T,)."""
    positions: Ids
    """Each token's position in its rows, (T,)."""
    nodes: tuple[Node, ...]
    """In the order of their places."""
    places: tuple[Ids, ...]
    """For each row, where its tokens stand, in order."""

    def __len__(self) -> int:
        return len(self.ids)

    def get_row(self, number: int) -> Ids:
        """Return the tokens of a row again."""
        return self.ids[self.places[number]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """Which tokens are scored, each once however many rows hold it in the same place of the trie."""

    predictors: Ids
    """Place of the token after which it is expected, (M,)."""
    wanted: Ids
    """The token expected, (M,)."""
    which: Ids
    """For each scored token of the rows, its number among these M, (S,)."""
    cells: Ids
    """For each scored token of the rows, its place in a table of rows x (width - 1), flattened, (S,)."""


def pack(rows: Sequence[ArrayLike], *, shortest: int = SHORTEST) -> Packing:
    """Make the trie of some rows.

    Args:
        rows: token ids; they may be of any length, equal, or have nothing in common.
        shortest: a common part of fewer tokens is repeated in each branch; 1 repeats nothing.

    Raises:
        ValueError: `shortest` is below 1.
    """
    if shortest < 1:
        raise ValueError(f"shortest is {shortest}, at least 1")
    # An explicit stack and not recursion: a trie of long rows is deeper than Python calls go.
    tokens = [np.asarray(row, np.int64).reshape(-1) for row in rows]
    places: list[list[Ids]] = [[np.zeros(0, np.int64)] for _ in tokens]
    pieces, positions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    starts, parents = [0], list[int]()
    left: list[tuple[list[int], int, int]] = [(list(range(len(tokens))), 0, -1)] if tokens else []
    # `starts` has one entry more than `parents`: each node's start, then the end of the last.
    while left:
        group, offset, parent = left.pop()
        # The longest run of tokens that all rows of this group have in common.
        stop = _find_common(tokens, group, offset)
        branches = _group_branches(tokens, group, stop)
        # A short shared run costs more as a node of its own than computed again in each branch.
        if stop - offset >= (shortest if len(branches) > 1 else 1):
            start, node = starts[-1], len(parents)
            for row in group:
                places[row].append(np.arange(start, start + stop - offset))
            pieces.append(tokens[group[0]][offset:stop])
            positions.append(np.arange(offset, stop))
            parents.append(parent)
            starts.append(start + stop - offset)
            # Reversed, so that the stack gives branches in their order: what stands under a node follows it directly.
            left += [(branch, stop, node) for ended, branch in reversed(branches) if not ended]
        elif len(branches) > 1:
            # Repeated: each branch begins anew at the offset, and so holds the short run itself.
            left += [(branch, offset, parent) for _, branch in reversed(branches)]
    return Packing(
        ids=np.concatenate(pieces),
        positions=np.concatenate(positions),
        nodes=tuple(_iterate_nodes(starts, parents)),
        places=tuple(np.concatenate(parts) for parts in places),
    )


def find_scored(packing: Packing, masks: Sequence[ArrayLike], width: int) -> Scored:
    """Return which tokens are scored.

    Args:
        packing: of the rows.
        masks: for each row and token, whether it is scored, at least as long as the row; a row's first token never is,
            since nothing stands before it.
        width: tokens of the longest row, padding included.
    """
    keys, cells, wanted = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)], packing.ids
    for number, (places, mask) in enumerate(zip(packing.places, masks, strict=True)):
        # The first token of a row is never scored: nothing predicts it.
        at = np.flatnonzero(np.asarray(mask)[1 : len(places)])
        # Predictor and wanted token together: one place may be followed by several tokens, one per branch.
        keys.append(np.stack([places[at], wanted[places[at + 1]]], 1))
        cells.append(number * (width - 1) + at)
    # Rows through the same node share a prediction, which is computed once.
    found, which = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    return Scored(predictors=found[:, 0], wanted=found[:, 1], which=which.reshape(-1), cells=np.concatenate(cells))


def count_packed_tokens(rows: Sequence[ArrayLike], *, shortest: int = SHORTEST) -> int:
    """Return the tokens computed when rows are packed; with `shortest` 1 the number of their different beginnings."""
    return len(pack(rows, shortest=shortest))


def compute_token_ratio(prompt: int, reply: int, pairs: int) -> float:
    """Return how many times fewer tokens are computed: 2K(P + C) / (P + 2KC).

    Args:
        prompt: P, tokens that all pairs begin with.
        reply: C, tokens of each reply.
        pairs: K.
    """
    return 2 * pairs * (prompt + reply) / (prompt + 2 * pairs * reply)


def _find_common(tokens: Sequence[Ids], group: Sequence[int], offset: int) -> int:
    """Return the position up to which the rows of a group are equal; they are up to `offset`."""
    first = tokens[group[0]]
    # Compared with the first row alone: what all share is at most what it shares with each.
    stop = len(first)
    for row in group[1:]:
        stop = min(stop, len(tokens[row]))
        differ = np.flatnonzero(first[offset:stop] != tokens[row][offset:stop])
        if len(differ):
            stop = offset + int(differ[0])
    return stop


def _group_branches(tokens: Sequence[Ids], group: Sequence[int], at: int) -> list[tuple[bool, list[int]]]:
    """Return the rows of a group by what follows there; first, whether nothing does."""
    found: dict[int | None, list[int]] = {}
    for row in group:
        found.setdefault(int(tokens[row][at]) if at < len(tokens[row]) else None, []).append(row)
    return [(token is None, rows) for token, rows in found.items()]


def _iterate_nodes(starts: Sequence[int], parents: Sequence[int]) -> Iterator[Node]:
    ends = list(starts[1:])
    # From the last to the first: children come after their parents, so their ends are known.
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] >= 0:
            ends[parents[node]] = max(ends[parents[node]], ends[node])
    for node, end in enumerate(ends):
        yield Node(start=starts[node], stop=starts[node + 1], end=end)


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
class BatchStep:
    """What one optimizer step is computed from."""

    group: str
    """The level of its rows; "mixed" when there may be several."""
    parts: tuple[tuple[int, ...], ...]
    """Positions of rows, one tuple per forward pass; none is empty."""

    @property
    def rows(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(row for part in self.parts for row in part)


def order_curriculum(
    lengths: Sequence[int],
    groups: Mapping[str, Sequence[int]],
    passes: Mapping[str, float],
    *,
    batch: Batch,
    seed: int,
) -> list[BatchStep]:
    """Return the steps, one level after the other, in the order of `passes`.

    Args:
        lengths: tokens of each row.
        groups: positions of rows, by level.
        passes: how often the rows of a level are seen; 1.5 sees each once and half of them twice.
        seed: the same seed gives the same order.

    Raises:
        ConfigError: a level has fewer rows than a step has parts.
    """
    steps: list[BatchStep] = []
    # A generator per level and pass: another level does not change this one's order.
    for name, times in passes.items():
        for number, chunk in enumerate(_shuffle_passes(groups[name], times, seed, name)):
            rng = generator(derive(seed, "steps", name, number))
            steps += _build_row_steps(name, chunk, lengths, batch, rng)
    return steps


def order_mixed(
    lengths: Sequence[int],
    groups: Mapping[str, Sequence[int]],
    passes: Mapping[str, float],
    *,
    epochs: int,
    batch: Batch,
    seed: int,
) -> list[BatchStep]:
    """Return the steps, all levels in every epoch, each with its share of passes; arguments as `order_curriculum`."""
    streams = {
        name: [row for chunk in _shuffle_passes(groups[name], times, seed, name) for row in chunk]
        for name, times in passes.items()
    }
    steps: list[BatchStep] = []
    # Each epoch sees a slice of every level's stream, so a level with 1.5 passes is spread over all epochs.
    for epoch in range(epochs):
        rng = generator(derive(seed, "steps", "mixed", epoch))
        chunk = [row for stream in streams.values() for row in _share(stream, epoch, epochs)]
        rng.shuffle(chunk)
        steps += _build_row_steps("mixed", chunk, lengths, batch, rng)
    return steps


def select_process(steps: Sequence[BatchStep], rank: int, world: int) -> list[tuple[tuple[int, ...], ...]]:
    """Return the forward passes of one process, step by step: every process has as many, each computed by one."""
    return [step.parts[rank::world] for step in steps]


def count_padded(lengths: Sequence[int], part: Sequence[int]) -> int:
    """Return the tokens that a forward pass computes, padding included."""
    return len(part) * max(lengths[row] for row in part)


def _shuffle_passes(rows: Sequence[int], times: float, seed: int, name: str) -> Iterator[list[int]]:
    """Yield shuffled passes over the rows; the last one is cut short where `times` is no whole number."""
    # `times` may be a fraction: the last pass is cut short after its shuffle, so no row is preferred.
    left = round(times * len(rows))
    number = 0
    while left > 0:
        chunk = list(rows)
        generator(derive(seed, "pass", name, number)).shuffle(chunk)
        yield chunk[:left]
        left -= len(chunk)
        number += 1


def _share(stream: Sequence[int], epoch: int, epochs: int) -> Sequence[int]:
    """Return the part of a level's rows that belongs to an epoch."""
    return stream[round(epoch * len(stream) / epochs) : round((epoch + 1) * len(stream) / epochs)]


def _build_row_steps(
    name: str, chunk: Sequence[int], lengths: Sequence[int], batch: Batch, rng: random.Random
) -> list[BatchStep]:
    """Return the steps of one pass, rows of a window sorted by length."""
    if not chunk:
        return []
    if len(chunk) < batch.parts:
        raise ConfigError(
            f"{name}: {len(chunk)} rows are too few for {batch.parts} forward passes per step; "
            "use more data, fewer processes or a larger rows_at_once"
        )
    steps: list[BatchStep] = []
    # Sorting within windows, not over all: padding shrinks, and the order stays random enough.
    width = max(batch.window * batch.rows, batch.parts)
    bounds = [*range(0, len(chunk), width), len(chunk)]
    if len(bounds) > 2 and bounds[-1] - bounds[-2] < batch.parts:
        del bounds[-2]  # the rest alone would be too few rows for a step
    for start, stop in pairwise(bounds):
        # Of similar length, so little is padded …
        window = sorted(chunk[start:stop], key=lengths.__getitem__)
        made = [
            BatchStep(group=name, parts=_split_parts(rows, batch.parts)) for rows in _cut_rows(window, lengths, batch)
        ]
        # … and shuffled again, so that training does not run from short to long.
        rng.shuffle(made)
        steps += made
    return steps


def _cut_rows(window: Sequence[int], lengths: Sequence[int], batch: Batch) -> list[list[int]]:
    """Return rows sorted by length as steps within the limits, the last one filled up to a row per part."""
    cut: list[list[int]] = [[]]
    for row in window:  # the row at hand is the longest so far
        full = len(cut[-1]) >= batch.rows
        heavy = batch.tokens is not None and (len(cut[-1]) + 1) * lengths[row] > batch.tokens
        # At least one row per forward pass of each process, even where the limits are reached.
        if (full or heavy) and len(cut[-1]) >= batch.parts:
            cut.append([])
        cut[-1].append(row)
    if len(cut) > 1 and len(cut[-1]) < batch.parts:
        rest = cut.pop()
        cut[-1] += rest
    return cut


def _split_parts(rows: Sequence[int], parts: int) -> tuple[tuple[int, ...], ...]:
    """Return neighbours in length together, in sizes that differ by at most one."""
    bounds = [part * len(rows) // parts for part in range(parts + 1)]
    return tuple(tuple(rows[start:stop]) for start, stop in pairwise(bounds))


Unit: TypeAlias = tuple[int, ...]
"""Rows that stay together: those of one state, or as many of them as fit."""
Work: TypeAlias = Callable[[Unit], int]
"""Tokens that a forward pass over some rows computes, what they share counted once."""


def order_by_state(
    groups: Mapping[str, Sequence[int]],
    states: Sequence[Hashable],
    work: Work,
    passes: Mapping[str, int],
    *,
    batch: Batch,
    most: int,
    seed: int,
) -> list[BatchStep]:
    """Return the steps by state, one level after the other, in the order of `passes`.

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
    steps: list[BatchStep] = []
    # Many cuts ask for the same units; packing them once is enough.
    known = cache(work)
    for name, times in passes.items():
        units = _group_units(groups[name], states, min(most, batch.rows))
        if sum(map(len, units)) < batch.parts:
            raise ConfigError(
                f"{name}: {len(groups[name])} rows are too few for {batch.parts} processes; use more data or fewer "
                "processes"
            )
        for number in range(times):
            # Units are shuffled: a state's rows stay together.
            chunk = list(units)
            generator(derive(seed, "pass", name, number)).shuffle(chunk)
            steps += _build_unit_steps(name, chunk, known, batch, most, generator(derive(seed, "steps", name, number)))
    return steps


def _group_units(rows: Sequence[int], states: Sequence[Hashable], most: int) -> list[Unit]:
    """Return rows of a state together, too many in pieces; in the order in which they are met."""
    found: dict[Hashable, list[int]] = {}
    for row in rows:
        found.setdefault(states[row], []).append(row)
    return [piece for those in found.values() for piece in _split_unit(tuple(those), math.ceil(len(those) / most))]


def _split_unit(unit: Unit, count: int) -> list[Unit]:
    """Return neighbours together, in sizes that differ by at most one."""
    return [unit[part * len(unit) // count : (part + 1) * len(unit) // count] for part in range(count)]


def _build_unit_steps(
    name: str, chunk: Sequence[Unit], work: Work, batch: Batch, most: int, rng: random.Random
) -> list[BatchStep]:
    """Return the steps of one pass over a level."""
    steps: list[BatchStep] = []
    for window in _split_windows(chunk, max(batch.window * batch.rows, batch.parts), batch.parts):
        # By work and not by length: what states share is counted once.
        cut = _cut_units(sorted(window, key=work), work, batch)
        made = [BatchStep(group=name, parts=_forward_passes(units, work, most, batch.parts)) for units in cut]
        rng.shuffle(made)
        steps += made
    return steps


def _split_windows(chunk: Sequence[Unit], width: int, least: int) -> list[list[Unit]]:
    """Return units in windows of at most so many rows; a rest of fewer than `least` joins the window before it."""
    windows: list[list[Unit]] = [[]]
    for unit in chunk:
        if windows[-1] and _count_rows(windows[-1]) + len(unit) > width:
            windows.append([])
        windows[-1].append(unit)
    return _join_last(windows, least)


def _cut_units(window: Sequence[Unit], work: Work, batch: Batch) -> list[list[Unit]]:
    """Return units as steps within the limits, a rest that is too little for all processes with the step before it."""
    cut: list[list[Unit]] = [[]]
    for unit in window:
        full = _count_rows(cut[-1]) + len(unit) > batch.rows
        heavy = batch.tokens is not None and sum(map(work, cut[-1])) + work(unit) > batch.tokens
        if (full or heavy) and _count_rows(cut[-1]) >= batch.parts:
            cut.append([])
        cut[-1].append(unit)
    return _join_last(cut, batch.parts)


def _join_last(lists: list[list[Unit]], least: int) -> list[list[Unit]]:
    if len(lists) > 1 and _count_rows(lists[-1]) < least:
        rest = lists.pop()
        lists[-1] += rest
    return lists


def _count_rows(units: Sequence[Unit]) -> int:
    return sum(map(len, units))


def _forward_passes(units: Sequence[Unit], work: Work, most: int, processes: int) -> tuple[Unit, ...]:
    """Return the forward passes of a step, the one with most work first: as few as hold its units whole.

    They are a multiple of the processes; where there are fewer units than that, the largest ones are halved.
    """
    rows = _count_rows(units)
    # As few passes as hold the units whole; more only where they do not fit.
    for count in range(processes * math.ceil(rows / (most * processes)), rows + 1, processes):
        found = _divide_units(_split_largest(units, count), work, most, count)
        if found is not None:
            return found
    # Units may be too unequal for `most`: then it is given up, for a state is rather torn than the step refused.
    count = rows // processes * processes
    found = _divide_units(_split_largest(units, count), work, rows, count)
    assert found is not None, "with room for all rows in each, every unit finds a place"
    return found


def _split_largest(units: Sequence[Unit], count: int) -> list[Unit]:
    """Return the same rows in at least so many units."""
    pieces = list(units)
    while len(pieces) < count:
        largest = max(range(len(pieces)), key=lambda place: len(pieces[place]))
        pieces[largest : largest + 1] = _split_unit(pieces[largest], 2)
    return pieces


def _divide_units(units: Sequence[Unit], work: Work, most: int, count: int) -> tuple[Unit, ...] | None:
    """Return units in so many forward passes, each put where the least work is; None where one finds no room."""
    parts: list[list[int]] = [[] for _ in range(count)]
    rows, loads = [0] * count, [0] * count
    # Largest first, each to the lightest pass: the usual heuristic for equal loads.
    for number in sorted(range(len(units)), key=lambda number: work(units[number]), reverse=True):
        size = len(units[number])
        free = [place for place in range(count) if not parts[place] or rows[place] + size <= most]
        if not free:
            return None
        least = min(free, key=loads.__getitem__)
        parts[least].append(number)
        rows[least] += size
        loads[least] += work(units[number])
    # The heaviest first: memory that is too small shows in the first pass, and not after hours.
    heaviest = sorted(range(count), key=loads.__getitem__, reverse=True)
    return tuple(tuple(row for number in sorted(parts[place]) for row in units[number]) for place in heaviest)


RecipeT = TypeVar("RecipeT", bound=Recipe)


def build_steps(recipe: Recipe, encoded: Encoded[Any], *, seed: int, processes: int) -> list[BatchStep]:
    """Return the order of a training.

    Raises:
        ConfigError: a level has too few rows for all processes.
    """
    # With sharing, states decide the order; without, lengths do.
    if is_prefix_shared(recipe):
        return _order_by_state(recipe, encoded, seed, processes)
    groups, lengths = encoded.groups, [len(item) for item in encoded.items]
    batch = Batch(
        rows=recipe.batch_rows, tokens=recipe.batch_tokens, window=recipe.window, parts=count_passes(recipe, processes)
    )
    if not isinstance(recipe, SftRecipe):
        passes: Mapping[str, float] = {name: float(recipe.epochs) for name in groups}
        return order_curriculum(lengths, groups, passes, batch=batch, seed=seed)
    # A level's weight is how often it is seen, not a factor in the loss.
    passes = {
        level: recipe.epochs * recipe.weights_by_level.get(level, 1.0) for level in recipe.levels if level in groups
    }
    if recipe.order == "mixed":
        return order_mixed(lengths, groups, passes, epochs=recipe.epochs, batch=batch, seed=seed)
    return order_curriculum(lengths, groups, passes, batch=batch, seed=seed)


def fit_recipe(recipe: RecipeT, rows: int, processes: int) -> tuple[RecipeT, int]:
    """Return recipe and processes for so many rows of one level, one at least: few make one smaller step.

    Args:
        processes: at most.

    Returns:
        A recipe that leaves something to each process in every step, and how many processes that are.
    """
    # A step must leave something to each process, or the others would wait for ever.
    processes = min(processes, rows)
    most = rows // processes * processes
    return recipe.model_copy(update={"batch_rows": min(recipe.batch_rows, most)}), processes


def is_prefix_shared(recipe: Recipe) -> bool:
    """Whether pairs of a forward pass are computed once in what they share."""
    return isinstance(recipe, DpoRecipe) and recipe.sharing == "prefix"


def count_shared_tokens(items: Sequence[Any]) -> int:
    """Return the tokens of pairs that are computed together, what they share counted once."""
    return count_packed_tokens([side for item in items for side in item.sides])


def count_passes(recipe: Recipe, processes: int) -> int:
    """Return the forward passes of each step that shares nothing, a multiple of the number of processes."""
    return math.ceil(recipe.batch_rows / (_count_rows_at_once(recipe, processes) * processes)) * processes


def _order_by_state(recipe: Recipe, encoded: Encoded[EncodedPair], seed: int, processes: int) -> list[BatchStep]:
    items = encoded.items
    return order_by_state(
        encoded.groups,
        [item.state for item in items],
        lambda unit: count_shared_tokens([items[row] for row in unit]),
        dict.fromkeys(encoded.groups, recipe.epochs),
        batch=Batch(rows=recipe.batch_rows, tokens=recipe.batch_tokens, window=recipe.window, parts=processes),
        most=_count_rows_at_once(recipe, processes),
        seed=seed,
    )


def _count_rows_at_once(recipe: Recipe, processes: int) -> int:
    """Return the most rows of a forward pass."""
    return recipe.rows_at_once or math.ceil(recipe.batch_rows / processes)
