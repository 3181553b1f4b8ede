"""Rows that begin alike, packed so that what they share stands there once: pure arithmetic over token ids.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

    def row(self, number: int) -> Ids:
        """The tokens of a row again."""
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
    tokens = [np.asarray(row, np.int64).reshape(-1) for row in rows]
    places: list[list[Ids]] = [[np.zeros(0, np.int64)] for _ in tokens]
    pieces, positions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    starts, parents = [0], list[int]()
    left: list[tuple[list[int], int, int]] = [(list(range(len(tokens))), 0, -1)] if tokens else []
    while left:
        group, offset, parent = left.pop()
        stop = _common(tokens, group, offset)
        branches = _branches(tokens, group, stop)
        if stop - offset >= (shortest if len(branches) > 1 else 1):
            start, node = starts[-1], len(parents)
            for row in group:
                places[row].append(np.arange(start, start + stop - offset))
            pieces.append(tokens[group[0]][offset:stop])
            positions.append(np.arange(offset, stop))
            parents.append(parent)
            starts.append(start + stop - offset)
            left += [(branch, stop, node) for ended, branch in reversed(branches) if not ended]
        elif len(branches) > 1:
            left += [(branch, offset, parent) for _, branch in reversed(branches)]
    return Packing(
        ids=np.concatenate(pieces),
        positions=np.concatenate(positions),
        nodes=tuple(_nodes(starts, parents)),
        places=tuple(np.concatenate(parts) for parts in places),
    )


def scored(packing: Packing, masks: Sequence[ArrayLike], width: int) -> Scored:
    """Which tokens are scored.

    Args:
        packing: of the rows.
        masks: for each row and token, whether it is scored, at least as long as the row; a row's first token never is,
            since nothing stands before it.
        width: tokens of the longest row, padding included.
    """
    keys, cells, wanted = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)], packing.ids
    for number, (places, mask) in enumerate(zip(packing.places, masks, strict=True)):
        at = np.flatnonzero(np.asarray(mask)[1 : len(places)])
        keys.append(np.stack([places[at], wanted[places[at + 1]]], 1))
        cells.append(number * (width - 1) + at)
    found, which = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    return Scored(predictors=found[:, 0], wanted=found[:, 1], which=which.reshape(-1), cells=np.concatenate(cells))


def packed_tokens(rows: Sequence[ArrayLike], *, shortest: int = SHORTEST) -> int:
    """Tokens that are computed when rows are packed; with `shortest` 1 the number of their different beginnings."""
    return len(pack(rows, shortest=shortest))


def token_ratio(prompt: int, reply: int, pairs: int) -> float:
    """How many times fewer tokens are computed: 2K(P + C) / (P + 2KC).

    Args:
        prompt: P, tokens that all pairs begin with.
        reply: C, tokens of each reply.
        pairs: K.
    """
    return 2 * pairs * (prompt + reply) / (prompt + 2 * pairs * reply)


def _common(tokens: Sequence[Ids], group: Sequence[int], offset: int) -> int:
    """Position up to which the rows of a group are equal; they are up to `offset`."""
    first = tokens[group[0]]
    stop = len(first)
    for row in group[1:]:
        stop = min(stop, len(tokens[row]))
        differ = np.flatnonzero(first[offset:stop] != tokens[row][offset:stop])
        if len(differ):
            stop = offset + int(differ[0])
    return stop


def _branches(tokens: Sequence[Ids], group: Sequence[int], at: int) -> list[tuple[bool, list[int]]]:
    """Rows of a group by what follows there; whether it is nothing comes first."""
    found: dict[int | None, list[int]] = {}
    for row in group:
        found.setdefault(int(tokens[row][at]) if at < len(tokens[row]) else None, []).append(row)
    return [(token is None, rows) for token, rows in found.items()]


def _nodes(starts: Sequence[int], parents: Sequence[int]) -> Iterator[Node]:
    ends = list(starts[1:])
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] >= 0:
            ends[parents[node]] = max(ends[parents[node]], ends[node])
    for node, end in enumerate(ends):
        yield Node(start=starts[node], stop=starts[node + 1], end=end)
