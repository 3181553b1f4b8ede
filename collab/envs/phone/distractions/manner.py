"""How a phone presents itself for a whole episode: language, words, order, sizes, colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Language: TypeAlias = Literal["english", "german"]
ACCENTS = ("green", "red", "violet", "orange")
"""Colours of buttons and headings besides the usual blue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The looks of a phone. Whether it is dark is one of its settings instead, as its user may switch that."""

    language: Language = "english"
    wording: int | None = None
    """Seed of the words that are replaced by others of the same meaning; None: the usual words."""
    order: int | None = None
    """Seed of the order of apps, settings and menu entries; None: the usual order."""
    rows: float = 1.0
    """Height of rows, relative to the usual one."""
    inset: int = 0
    """Pixels between the sides of the screen and its rows."""
    font: float = 1.0
    """Size of text, relative to the usual one."""
    accent: str | None = None
    """Name of the colour of buttons and headings (one of `ACCENTS`); None: the usual blue."""


USUAL = Manner()
