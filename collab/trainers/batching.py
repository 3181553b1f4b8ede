"""Batches: the order in which rows are trained, and packing of rows with common beginnings.

`pack` merges common beginnings of rows of token ids:

    packing = pack([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6]])
    packing.ids                 # 1 2 3 4 5 6
    packing.places[1]           # 0 1 2 4: places of the second row's tokens

All pairs of a state begin with the same task, history and observation. TRL computes that beginning once per reply: K
pairs with a prompt of P and replies of C tokens cost 2K(P + C) tokens, of which P + 2KC differ. Here rows become a
*trie* whose nodes are runs of tokens with the same rows. Nodes are in depth-first order, so a node's descendants follow
it without a gap.

Related work: dpo-prefix-sharing (arXiv 2410.20305) packs a prompt with both replies, flash-preference does so in the
kernel, Prefix Grouper (2506.05433) shares a prompt among a group of samples, Tree Training (2511.00413) and AReaL-DTA
(2602.00482) train on tries of trajectories. Here all pairs of a multi-agent state are packed.

`order_by_state` is the order with shared prefixes: all pairs of a state in one forward pass, if they fit.

    batch = Batch(rows=32, tokens=None, window=50, parts=1)
    steps = order_by_state(groups, states, work, {"preference": 1}, batch=batch, most=8, seed=0)

It shuffles the states of a level, cuts them into windows, sorts each window by work, cuts it into steps, and shuffles
the steps of a window. A step has as many forward passes as its states need, so that no state is split. All processes
have equally many passes with about equal work.

`order_curriculum` is the order without sharing:

    steps = order_curriculum(lengths, groups, passes, batch=Batch(rows=64, tokens=None, window=50, parts=4), seed=0)

It does the same with rows, sorted by length: the rows of a step have similar lengths, so padding is small, and steps of
all lengths alternate.
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
from collab.trainers.recipe import DpoRecipe, Recipe, RLRecipe, SftRecipe

Ids = NDArray[np.int64]

SHORTEST = 4
"""Shorter common parts (in tokens) are repeated: sharing them costs more than computing them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A run of tokens common to all rows through it."""

    start: int
    """Place of its first token."""
    stop: int
    """Place after its last token."""
    end: int
    """Place after its last descendant's last token; `stop` without descendants."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """Rows with their common beginnings merged."""

    ids: Ids
    """Tokens, (T,)."""
    positions: Ids
    """Each token's position in its rows, (T,)."""
    nodes: tuple[Node, ...]
    """In the order of their places."""
    places: tuple[Ids, ...]
    """Places of each row's tokens, in order."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """Scored tokens, each once even if several rows share it."""

    predictors: Ids
    """Place of the preceding token, (M,)."""
    wanted: Ids
    """The token expected, (M,)."""
    which: Ids
    """For each scored token of the rows, its number among these M, (S,)."""
    cells: Ids
    """For each scored token of the rows, its flat index in a table of rows x (width - 1), (S,)."""


def pack(rows: Sequence[ArrayLike], *, shortest: int = SHORTEST) -> Packing:
    """Build the trie of some rows.

    Args:
        rows: token ids; any lengths, equal or different.
        shortest: common parts of fewer tokens are repeated in each branch; 1 repeats nothing.

    Raises:
        ValueError: `shortest` is below 1.
    """
    if shortest < 1:
        raise ValueError(f"shortest is {shortest}, at least 1")
    # An explicit stack: a trie of long rows exceeds Python's recursion limit.
    tokens = [np.asarray(row, np.int64).reshape(-1) for row in rows]
    places: list[list[Ids]] = [[np.zeros(0, np.int64)] for _ in tokens]
    pieces, positions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    starts, parents = [0], list[int]()
    left: list[tuple[list[int], int, int]] = [(list(range(len(tokens))), 0, -1)] if tokens else []
    # `starts` has one extra entry: the end of the last node.
    while left:
        group, offset, parent = left.pop()
        # The longest run of tokens common to all rows of this group.
        stop = _find_common(tokens, group, offset)
        branches = _group_branches(tokens, group, stop)
        # A short shared run costs more as a node than repeated in each branch.
        if stop - offset >= (shortest if len(branches) > 1 else 1):
            start, node = starts[-1], len(parents)
            for row in group:
                places[row].append(np.arange(start, start + stop - offset))
            pieces.append(tokens[group[0]][offset:stop])
            positions.append(np.arange(offset, stop))
            parents.append(parent)
            starts.append(start + stop - offset)
            # Reversed, so that the stack yields branches in order and descendants follow their node directly.
            left += [(branch, stop, node) for ended, branch in reversed(branches) if not ended]
        elif len(branches) > 1:
            # Repeated: each branch begins at the old offset and so contains the short run.
            left += [(branch, offset, parent) for _, branch in reversed(branches)]
    return Packing(
        ids=np.concatenate(pieces),
        positions=np.concatenate(positions),
        nodes=tuple(_iterate_nodes(starts, parents)),
        places=tuple(np.concatenate(parts) for parts in places),
    )


def find_scored(packing: Packing, masks: Sequence[ArrayLike], width: int) -> Scored:
    """Find the scored tokens.

    Args:
        packing: of the rows.
        masks: whether each token of a row is scored, at least as long as the row; a row's first token never is.
        width: tokens of the longest row, padding included.
    """
    keys, cells, wanted = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)], packing.ids
    for number, (places, mask) in enumerate(zip(packing.places, masks, strict=True)):
        # Nothing predicts a row's first token.
        at = np.flatnonzero(np.asarray(mask)[1 : len(places)])
        # Key by predictor and wanted token: several tokens may follow one place, one per branch.
        keys.append(np.stack([places[at], wanted[places[at + 1]]], 1))
        cells.append(number * (width - 1) + at)
    # Rows through the same node share a prediction, which is computed once.
    found, which = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    return Scored(predictors=found[:, 0], wanted=found[:, 1], which=which.reshape(-1), cells=np.concatenate(cells))


def count_packed_tokens(rows: Sequence[ArrayLike]) -> int:
    """Return the number of tokens of the packed rows."""
    return len(pack(rows))


def compute_token_ratio(prompt: int, reply: int, pairs: int) -> float:
    """Return the factor of tokens saved, 2K(P + C) / (P + 2KC), for K pairs with P prompt and C reply tokens."""
    return 2 * pairs * (prompt + reply) / (prompt + 2 * pairs * reply)


def _find_common(tokens: Sequence[Ids], group: Sequence[int], offset: int) -> int:
    """Return the position up to which the rows of a group are equal, at least `offset`."""
    first = tokens[group[0]]
    # Comparing with the first row suffices: the common part is the shortest of these.
    stop = len(first)
    for row in group[1:]:
        stop = min(stop, len(tokens[row]))
        differ = np.flatnonzero(first[offset:stop] != tokens[row][offset:stop])
        if len(differ):
            stop = offset + int(differ[0])
    return stop


def _group_branches(tokens: Sequence[Ids], group: Sequence[int], at: int) -> list[tuple[bool, list[int]]]:
    """Group the rows by their next token; the flag is True for rows that end here."""
    found: dict[int | None, list[int]] = {}
    for row in group:
        found.setdefault(int(tokens[row][at]) if at < len(tokens[row]) else None, []).append(row)
    return [(token is None, rows) for token, rows in found.items()]


def _iterate_nodes(starts: Sequence[int], parents: Sequence[int]) -> Iterator[Node]:
    ends = list(starts[1:])
    # From last to first: children come after their parents, so their ends are known.
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] >= 0:
            ends[parents[node]] = max(ends[parents[node]], ends[node])
    for node, end in enumerate(ends):
        yield Node(start=starts[node], stop=starts[node + 1], end=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Size limits of a step."""

    rows: int
    """Most rows; up to `parts` − 1 more if the rest of a window is too small for its own step."""
    tokens: int | None
    """Most tokens with padding; None for no limit. A single longer row is a step of its own."""
    window: int
    """Number of steps that are sorted by length together."""
    parts: int = 1
    """Forward passes per step, over all processes; a step has at least as many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """The rows of one optimizer step."""

    group: str
    """The level of its rows; "mixed" for several."""
    parts: tuple[tuple[int, ...], ...]
    """Positions of rows, one non-empty tuple per forward pass."""

    @property
    def rows(self) -> tuple[int, ...]:
        """All its rows."""
        return tuple(row for part in self.parts for row in part)


def order_curriculum(
    lengths: Sequence[int],
    groups: Mapping[str, Sequence[int]],
    passes: Mapping[str, float],
    *,
    batch: Batch,
    seed: int,
) -> list[BatchStep]:
    """Return the steps, level by level in the order of `passes`.

    Args:
        lengths: tokens of each row.
        groups: level → positions of rows.
        passes: level → number of passes; 1.5 means each row once and half of them twice.
        seed: determines the order.

    Raises:
        ConfigError: a level has fewer rows than a step has parts.
    """
    steps: list[BatchStep] = []
    # A generator per level and pass: adding a level does not change the others' order.
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
    """Return the steps with all levels mixed in every epoch; arguments as `order_curriculum`."""
    streams = {
        name: [row for chunk in _shuffle_passes(groups[name], times, seed, name) for row in chunk]
        for name, times in passes.items()
    }
    steps: list[BatchStep] = []
    # Each epoch gets a slice of every level's stream, so 1.5 passes are spread over all epochs.
    for epoch in range(epochs):
        rng = generator(derive(seed, "steps", "mixed", epoch))
        chunk = [row for stream in streams.values() for row in _share(stream, epoch, epochs)]
        rng.shuffle(chunk)
        steps += _build_row_steps("mixed", chunk, lengths, batch, rng)
    return steps


def select_process(steps: Sequence[BatchStep], rank: int, world: int) -> list[tuple[tuple[int, ...], ...]]:
    """Return one process's forward passes, step by step; all processes have equally many."""
    return [step.parts[rank::world] for step in steps]


def count_padded(lengths: Sequence[int], part: Sequence[int]) -> int:
    """Return the tokens that a forward pass computes, padding included."""
    return len(part) * max(lengths[row] for row in part)


def _shuffle_passes(rows: Sequence[int], times: float, seed: int, name: str) -> Iterator[list[int]]:
    """Yield shuffled passes over the rows; a fraction of `times` cuts the last pass after its shuffle."""
    left = round(times * len(rows))
    number = 0
    while left > 0:
        chunk = list(rows)
        generator(derive(seed, "pass", name, number)).shuffle(chunk)
        yield chunk[:left]
        left -= len(chunk)
        number += 1


def _share(stream: Sequence[int], epoch: int, epochs: int) -> Sequence[int]:
    """Return an epoch's slice of a level's rows."""
    return stream[round(epoch * len(stream) / epochs) : round((epoch + 1) * len(stream) / epochs)]


def _build_row_steps(
    name: str, chunk: Sequence[int], lengths: Sequence[int], batch: Batch, rng: random.Random
) -> list[BatchStep]:
    """Return the steps of one pass, sorted by length within windows."""
    if not chunk:
        return []
    if len(chunk) < batch.parts:
        raise ConfigError(
            f"{name}: {len(chunk)} rows are too few for {batch.parts} forward passes per step; "
            "use more data, fewer processes or a larger rows_at_once"
        )
    steps: list[BatchStep] = []
    # Sorting within windows reduces padding and keeps the order random enough.
    width = max(batch.window * batch.rows, batch.parts)
    bounds = [*range(0, len(chunk), width), len(chunk)]
    if len(bounds) > 2 and bounds[-1] - bounds[-2] < batch.parts:
        del bounds[-2]  # too few rows remain for a step of their own
    for start, stop in pairwise(bounds):
        # Similar lengths, so little padding …
        window = sorted(chunk[start:stop], key=lengths.__getitem__)
        made = [
            BatchStep(group=name, parts=_split_parts(rows, batch.parts)) for rows in _cut_rows(window, lengths, batch)
        ]
        # … then shuffled, so that training does not run from short to long.
        rng.shuffle(made)
        steps += made
    return steps


def _cut_rows(window: Sequence[int], lengths: Sequence[int], batch: Batch) -> list[list[int]]:
    """Cut rows, sorted by length, into steps within the limits; the last one gets at least a row per part."""
    cut: list[list[int]] = [[]]
    for row in window:  # this row is the longest so far
        full = len(cut[-1]) >= batch.rows
        heavy = batch.tokens is not None and (len(cut[-1]) + 1) * lengths[row] > batch.tokens
        # At least one row per forward pass, even beyond the limits.
        if (full or heavy) and len(cut[-1]) >= batch.parts:
            cut.append([])
        cut[-1].append(row)
    if len(cut) > 1 and len(cut[-1]) < batch.parts:
        rest = cut.pop()
        cut[-1] += rest
    return cut


def _split_parts(rows: Sequence[int], parts: int) -> tuple[tuple[int, ...], ...]:
    """Split rows into consecutive parts whose sizes differ by at most one."""
    bounds = [part * len(rows) // parts for part in range(parts + 1)]
    return tuple(tuple(rows[start:stop]) for start, stop in pairwise(bounds))


Unit: TypeAlias = tuple[int, ...]
"""Rows that stay together: those of one state, or a piece of a large state."""
Work: TypeAlias = Callable[[Unit], int]
"""Computes the tokens of a forward pass over some rows, shared ones counted once."""


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
    """Return the steps by state, level by level in the order of `passes`.

    Args:
        groups: level → positions of rows.
        states: the state of each row.
        work: tokens that given rows compute together.
        passes: level → number of passes.
        batch: its `parts` are processes; a step's forward passes are a multiple of them. `work` counts its `tokens`.
        most: rows per forward pass; a larger state is cut into pieces of about equal size. One more if a step has
            fewer rows than it would need passes.
        seed: determines the order.

    Raises:
        ConfigError: a level has fewer rows than processes.
    """
    steps: list[BatchStep] = []
    # Many cuts measure the same units; pack each once.
    known = cache(work)
    for name, times in passes.items():
        units = _group_units(groups[name], states, min(most, batch.rows))
        if sum(map(len, units)) < batch.parts:
            raise ConfigError(
                f"{name}: {len(groups[name])} rows are too few for {batch.parts} processes; use more data or fewer "
                "processes"
            )
        for number in range(times):
            # Shuffle units, so that a state's rows stay together.
            chunk = list(units)
            generator(derive(seed, "pass", name, number)).shuffle(chunk)
            steps += _build_unit_steps(name, chunk, known, batch, most, generator(derive(seed, "steps", name, number)))
    return steps


def _group_units(rows: Sequence[int], states: Sequence[Hashable], most: int) -> list[Unit]:
    """Group rows by state in order of appearance; split groups of more than `most`."""
    found: dict[Hashable, list[int]] = {}
    for row in rows:
        found.setdefault(states[row], []).append(row)
    return [piece for those in found.values() for piece in _split_unit(tuple(those), math.ceil(len(those) / most))]


def _split_unit(unit: Unit, count: int) -> list[Unit]:
    """Split a unit into consecutive pieces whose sizes differ by at most one."""
    return [unit[part * len(unit) // count : (part + 1) * len(unit) // count] for part in range(count)]


def _build_unit_steps(
    name: str, chunk: Sequence[Unit], work: Work, batch: Batch, most: int, rng: random.Random
) -> list[BatchStep]:
    """Return the steps of one pass over a level."""
    steps: list[BatchStep] = []
    for window in _split_windows(chunk, max(batch.window * batch.rows, batch.parts), batch.parts):
        # Sort by work, not length: shared tokens count once.
        cut = _cut_units(sorted(window, key=work), work, batch)
        made = [BatchStep(group=name, parts=_forward_passes(units, work, most, batch.parts)) for units in cut]
        rng.shuffle(made)
        steps += made
    return steps


def _split_windows(chunk: Sequence[Unit], width: int, least: int) -> list[list[Unit]]:
    """Cut units into windows of at most `width` rows; a rest of fewer than `least` joins the window before it."""
    windows: list[list[Unit]] = [[]]
    for unit in chunk:
        if windows[-1] and _count_rows(windows[-1]) + len(unit) > width:
            windows.append([])
        windows[-1].append(unit)
    return _join_last(windows, least)


def _cut_units(window: Sequence[Unit], work: Work, batch: Batch) -> list[list[Unit]]:
    """Cut units into steps within the limits; a rest too small for all processes joins the step before it."""
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
    """Return a step's forward passes, most work first: as few as hold its units whole.

    Their number is a multiple of the processes; with fewer units than that, the largest are halved.
    """
    rows = _count_rows(units)
    # Start with as few passes as possible; add more only if the units do not fit.
    for count in range(processes * math.ceil(rows / (most * processes)), rows + 1, processes):
        found = _divide_units(_split_largest(units, count), work, most, count)
        if found is not None:
            return found
    # Units may be too unequal for `most`: rather exceed it than refuse the step.
    count = rows // processes * processes
    found = _divide_units(_split_largest(units, count), work, rows, count)
    assert found is not None, "with room for all rows in each, every unit finds a place"
    return found


def _split_largest(units: Sequence[Unit], count: int) -> list[Unit]:
    """Split the largest units until there are at least so many."""
    pieces = list(units)
    while len(pieces) < count:
        largest = max(range(len(pieces)), key=lambda place: len(pieces[place]))
        pieces[largest : largest + 1] = _split_unit(pieces[largest], 2)
    return pieces


def _divide_units(units: Sequence[Unit], work: Work, most: int, count: int) -> tuple[Unit, ...] | None:
    """Distribute units over so many forward passes, each to the lightest one; None if one does not fit."""
    parts: list[list[int]] = [[] for _ in range(count)]
    rows, loads = [0] * count, [0] * count
    # Largest first: the usual heuristic for equal loads.
    for number in sorted(range(len(units)), key=lambda number: work(units[number]), reverse=True):
        size = len(units[number])
        free = [place for place in range(count) if not parts[place] or rows[place] + size <= most]
        if not free:
            return None
        least = min(free, key=loads.__getitem__)
        parts[least].append(number)
        rows[least] += size
        loads[least] += work(units[number])
    # Heaviest first: too little memory shows in the first pass, not after hours.
    heaviest = sorted(range(count), key=loads.__getitem__, reverse=True)
    return tuple(tuple(row for number in sorted(parts[place]) for row in units[number]) for place in heaviest)


RecipeT = TypeVar("RecipeT", bound=Recipe)


def build_steps(recipe: Recipe, encoded: Encoded[Any], *, seed: int, processes: int) -> list[BatchStep]:
    """Return the order of a training, with `max_steps` of its steps at most.

    Raises:
        ConfigError: a level has too few rows for all processes.
    """
    return _order(recipe, encoded, seed, processes)[: recipe.max_steps]


def _order(recipe: Recipe, encoded: Encoded[Any], seed: int, processes: int) -> list[BatchStep]:
    # With sharing, order by states; without, by lengths.
    if is_prefix_shared(recipe):
        return _order_by_state(recipe, encoded, seed, processes)
    groups, lengths = encoded.groups, [len(item) for item in encoded.items]
    batch = Batch(
        rows=recipe.batch_rows, tokens=recipe.batch_tokens, window=recipe.window, parts=count_passes(recipe, processes)
    )
    if not isinstance(recipe, SftRecipe):
        passes: Mapping[str, float] = {name: float(recipe.epochs) for name in groups}
        return order_curriculum(lengths, groups, passes, batch=batch, seed=seed)
    # A level's weight is its number of passes, not a factor in the loss.
    passes = {
        level: recipe.epochs * recipe.weights_by_level.get(level, 1.0) for level in recipe.levels if level in groups
    }
    if recipe.order == "mixed":
        return order_mixed(lengths, groups, passes, epochs=recipe.epochs, batch=batch, seed=seed)
    return order_curriculum(lengths, groups, passes, batch=batch, seed=seed)


def fit_recipe(recipe: RecipeT, rows: int, processes: int) -> tuple[RecipeT, int]:
    """Shrink step size and number of processes to so many rows (at least one) of one level."""
    # Every step needs a row for each process, or the others would wait for ever.
    processes = min(processes, rows)
    most = rows // processes * processes
    return recipe.model_copy(update={"batch_rows": min(recipe.batch_rows, most)}), processes


def is_prefix_shared(recipe: Recipe) -> bool:
    """Return whether the recipe computes shared prefixes of pairs or turns once."""
    return isinstance(recipe, DpoRecipe | RLRecipe) and recipe.sharing == "prefix"


def count_shared_tokens(items: Sequence[Any]) -> int:
    """Return the tokens of pairs or turns computed together, shared ones counted once."""
    return count_packed_tokens([side for item in items for side in item.sides])


def count_passes(recipe: Recipe, processes: int) -> int:
    """Return the forward passes per step without sharing, a multiple of the processes."""
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
