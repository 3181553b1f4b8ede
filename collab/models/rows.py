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

    def reserve(self, rows: int, tokens: int) -> None:
        """Make room for so many rows, of so many tokens or as many as there is room for: what is added takes none."""
        old = self._kv
        if old is not None and rows <= old.shape[2] and tokens <= old.shape[4]:
            return
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

    def add(self, pieces: Sequence[Tensor]) -> None:
        """Append a row, for which room was reserved.

        Args:
            pieces: what it starts with, (L, 2, G, tokens, D) each.
        """
        assert self._kv is not None, "room was reserved"
        row, at = len(self.lengths), 0
        for piece in pieces:
            self._kv[:, :, row, :, at : at + piece.shape[3]] = piece
            at += piece.shape[3]
        self.lengths.append(at)

    def remove(self, row: int) -> int:
        """Take a row out; returns the number of the row that took its place (itself when it was the last).

        What it held is wiped: a product reads beyond a row's end with weight zero, and zero times NaN is NaN.
        """
        assert self._kv is not None, "there is a row"
        last, gone = len(self.lengths) - 1, self.lengths[row]
        length = self.lengths.pop()
        if row != last:
            self._kv[:, :, row, :, :length] = self._kv[:, :, last, :, :length]
            self._kv[:, :, row, :, length:gone] = 0
            self.lengths[row] = length
        self._kv[:, :, last, :, :length] = 0
        if not self.lengths:
            self._kv = None
        return last
