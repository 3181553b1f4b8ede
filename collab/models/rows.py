"""The running sequences' own keys and values: one row each, packed without holes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from collab.models.kv_cache import Shape

_ROOM = 256
"""Rows grow by at least so many tokens."""


class RowStore:
    """Keys and values of rows that grow by one token a step.

    A row leaves by being overwritten with the last one, so that the rows in use are always the first ones and can be
    computed in one product without being gathered.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._kv: Tensor | None = None
        self.lengths: list[int] = []
        """Tokens held by each row."""

    @property
    def kv(self) -> Tensor:
        """All rows in use, (L, 2, rows, G, room, D)."""
        assert self._kv is not None, "there is a row"
        return self._kv[:, :, : len(self.lengths)]

    @property
    def bytes(self) -> int:
        """Memory held."""
        return 0 if self._kv is None else self._kv.numel() * self._kv.element_size()

    def add(self, pieces: Sequence[Tensor], more: int) -> None:
        """Append a row.

        Args:
            pieces: what it starts with, (L, 2, G, tokens, D) each.
            more: how many tokens it may grow by.
        """
        length = sum(piece.shape[3] for piece in pieces)
        kv = self._with_room(len(self.lengths) + 1, length + more)
        at = 0
        for piece in pieces:
            kv[:, :, len(self.lengths), :, at : at + piece.shape[3]] = piece
            at += piece.shape[3]
        self.lengths.append(length)

    def remove(self, row: int) -> int:
        """Take a row out; returns the number of the row that took its place (itself when it was the last)."""
        last = len(self.lengths) - 1
        if row != last:
            assert self._kv is not None, "there is a row"
            length = self.lengths[last]
            self._kv[:, :, row, :, :length] = self._kv[:, :, last, :, :length]
            self.lengths[row] = self.lengths[last]
        self.lengths.pop()
        if not self.lengths:
            self._kv = None
        return last

    def _with_room(self, rows: int, tokens: int) -> Tensor:
        old = self._kv
        if old is not None and rows <= old.shape[2] and tokens <= old.shape[4]:
            return old
        held = (0, 0) if old is None else (old.shape[2], old.shape[4])
        if rows > held[0]:
            rows = max(rows, 2 * held[0])
        room = held[1] if tokens <= held[1] else -(-tokens // _ROOM) * _ROOM
        shape = self._shape
        new = torch.zeros(
            (shape.layers, 2, max(rows, held[0]), shape.groups, room, shape.size),
            dtype=shape.dtype,
            device=shape.device,
        )
        if old is not None:
            new[:, :, : held[0], :, : held[1]] = old
        self._kv = new
        return new
