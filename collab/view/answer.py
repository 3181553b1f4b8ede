"""Answers as JSON bytes: ASCII, so that whatever was recorded arrives as it was, and no number that JSON lacks.

What was recorded may be of any length: what names something is answered `short`, what is read as `text`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from collab.types import CellRef
from collab.view.shapes.cell import CellKey
from collab.view.shapes.common import CUT, Text

SHORT = 300
"""Characters of a text in a table, a label or an argument."""


def encoded(value: Any) -> bytes:
    """A value of dataclasses, mappings, sequences and scalars as JSON."""
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def text(whole: str) -> Text:
    """A text, cut where it is long."""
    return Text(text=whole[:CUT], cut=max(0, len(whole) - CUT))


def short(whole: str) -> str:
    """The beginning of a text."""
    return whole if len(whole) <= SHORT else f"{whole[: SHORT - 1]}…"


def key(cell: CellRef) -> CellKey:
    """Which cell of the matrix, by the name that is shown."""
    return CellKey(agent=short(cell.agent), round=cell.round)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(one) for one in value]
