"""Cache of prompt pieces' keys and values: a tree within a memory budget, and one row per running sequence.

Keys and values depend on all earlier tokens, so a node is a piece after a given beginning. Each root is an adapter with
its version: two policies never share a node.

    path = cache.path(policy, pieces)      nodes; those not ready must still be computed
    cache.release(path)                    no sequence uses them now; they stay until memory is needed
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True, eq=False)
class PrefixNode:
    """One piece of a prompt after a given beginning."""

    ids: tuple[int, ...]
    start: int
    """Position of its first token."""
    parent: PrefixNode | None
    """None directly below a root."""
    policy: Hashable
    kv: Tensor | None = None
    """(L, 2, G, tokens, D); None until it is about to be computed."""
    ready: bool = False
    """Whether `kv` is computed."""
    users: int = 0
    """Number of sequences that attend to it."""
    children: dict[tuple[int, ...], PrefixNode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """Shape and type of a model's keys and values."""

    layers: int
    groups: int
    size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Return the memory of one token."""
        return self.layers * 2 * self.groups * self.size * self.dtype.itemsize

    def empty(self, tokens: int) -> Tensor:
        """Return an empty tensor for a piece, (L, 2, G, tokens, D)."""
        return torch.empty((self.layers, 2, self.groups, tokens, self.size), dtype=self.dtype, device=self.device)


class PrefixCache:
    """The tree of all policies.

    Args:
        shape: of the model's keys and values.
        budget_bytes: for unused nodes; nodes in use do not count.
    """

    def __init__(self, shape: CacheShape, budget_bytes: int) -> None:
        self.shape = shape
        self.budget_bytes = budget_bytes
        self.held_bytes = 0
        """Memory of all nodes."""
        self.idle_bytes = 0
        """Memory of unused nodes."""
        self._roots: dict[Hashable, dict[tuple[int, ...], PrefixNode]] = {}
        self._nodes: OrderedDict[PrefixNode, None] = OrderedDict()
        """Least recently used first; a child before its parent."""

    def path(self, policy: Hashable, pieces: Iterable[tuple[int, ...]]) -> list[PrefixNode]:
        """Return the nodes of a prompt's beginning, in use until `release`; add missing ones, not ready."""
        level, parent, start = self._roots.setdefault(policy, {}), None, 0
        path: list[PrefixNode] = []
        # Look up each piece under its parent: after another beginning its keys differ.
        for ids in pieces:
            node = level.get(ids)
            if node is None:
                node = level[ids] = PrefixNode(ids=ids, start=start, parent=parent, policy=policy)
            # Mark as used: idle nodes may be dropped at any time, used ones never.
            if not node.users:
                self.idle_bytes -= self._count_bytes(node)
            node.users += 1
            path.append(node)
            level, parent, start = node.children, node, start + len(ids)
        self._touch(path)
        return path

    def allocate(self, node: PrefixNode) -> Tensor:
        """Return the tensor for keys and values of a node in use."""
        if node.kv is None:
            node.kv = self.shape.empty(len(node.ids))
            self.held_bytes += self._count_bytes(node)
        return node.kv

    def release(self, path: Sequence[PrefixNode]) -> None:
        """Note that a sequence no longer attends to these nodes; drop nodes that were never computed."""
        # From the end, so that a child is dropped before its parent loses its last user.
        for node in reversed(path):
            node.users -= 1
            if not node.users:
                self.idle_bytes += self._count_bytes(node)
                if not node.ready and not node.children:
                    self._drop(node)
        self.shrink(self.budget_bytes)

    def forget(self, policy: Hashable) -> None:
        """Drop a policy's unused nodes: its weights have changed."""
        # Children stand before parents in `_nodes`, so one pass takes whole branches.
        for node in [node for node in self._nodes if node.policy == policy]:
            if not node.users and not node.children:
                self._drop(node)

    def shrink(self, budget_bytes: int) -> None:
        """Drop unused nodes, least recently used first, until they fit into the budget."""
        if self.idle_bytes <= budget_bytes:
            return
        # Drop only leaves: a node without its parent could never be found again.
        for node in list(self._nodes):
            if not node.users and not node.children:
                self._drop(node)
                if self.idle_bytes <= budget_bytes:
                    return

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[PrefixNode]:
        return iter(self._nodes)

    def _touch(self, path: Sequence[PrefixNode]) -> None:
        # From the end of the path, so that a parent counts as used more recently than its children.
        for node in reversed(path):
            self._nodes[node] = None
            self._nodes.move_to_end(node)

    def _drop(self, node: PrefixNode) -> None:
        level = self._roots[node.policy] if node.parent is None else node.parent.children
        del level[node.ids]
        del self._nodes[node]
        self.held_bytes -= self._count_bytes(node)
        self.idle_bytes -= self._count_bytes(node)
        node.kv = None

    def _count_bytes(self, node: PrefixNode) -> int:
        return 0 if node.kv is None else len(node.ids) * self.shape.token_bytes


_ROOM = 256
"""Least number of tokens by which rows grow."""


class RowStore:
    """Keys and values of rows that grow by one token per step.

    The last row replaces a removed one. So the rows in use are always the first ones, and one product serves them
    without gathering.
    """

    def __init__(self, shape: CacheShape) -> None:
        self._shape = shape
        self._kv: Tensor | None = None
        self.lengths: list[int] = []
        """Tokens held by each row."""

    @property
    def kv(self) -> Tensor:
        """Return all rows in use, (L, 2, rows, G, room, D)."""
        assert self._kv is not None, "there is a row"
        return self._kv[:, :, : len(self.lengths)]

    @property
    def bytes(self) -> int:
        """Return the memory held."""
        return 0 if self._kv is None else self._kv.numel() * self._kv.element_size()

    def reserve(self, rows: int, tokens: int) -> None:
        """Allocate memory for so many rows of at least so many tokens; `add` then allocates nothing."""
        old = self._kv
        # Growing copies all rows, so it happens before a pass, never within one.
        if old is not None and rows <= old.shape[2] and tokens <= old.shape[4]:
            return
        held = (0, 0) if old is None else (old.shape[2], old.shape[4])
        # Doubling keeps the total copying constant per row.
        if rows > held[0]:
            rows = max(rows, 2 * held[0])
        room = held[1] if tokens <= held[1] else -(-tokens // _ROOM) * _ROOM
        shape = self._shape
        # Zeros, not `empty`: products read beyond a row's end with weight 0, and 0 × NaN is NaN.
        new = torch.zeros(
            (shape.layers, 2, max(rows, held[0]), shape.groups, room, shape.size),
            dtype=shape.dtype,
            device=shape.device,
        )
        if old is not None:
            new[:, :, : held[0], :, : held[1]] = old
        self._kv = new

    def add(self, pieces: Sequence[Tensor]) -> None:
        """Append a row into reserved memory.

        Args:
            pieces: its first keys and values, (L, 2, G, tokens, D) each.
        """
        assert self._kv is not None, "room was reserved"
        row, at = len(self.lengths), 0
        # (L, 2, rows, G, room, D): short pieces are copied so that one product serves all rows.
        for piece in pieces:
            self._kv[:, :, row, :, at : at + piece.shape[3]] = piece
            at += piece.shape[3]
        self.lengths.append(at)

    def remove(self, row: int) -> int:
        """Remove a row; return the number of the row that took its place (itself if it was the last)."""
        assert self._kv is not None, "there is a row"
        # The last row moves into the gap. The freed one is zeroed, see `reserve`.
        last, gone = len(self.lengths) - 1, self.lengths[row]
        length = self.lengths.pop()
        if row != last:
            self._kv[:, :, row, :, :length] = self._kv[:, :, last, :, :length]
            self._kv[:, :, row, :, length:gone] = 0
            self.lengths[row] = length
        self._kv[:, :, last, :, :length] = 0
        # Other policies may need the memory.
        if not self.lengths:
            self._kv = None
        return last
