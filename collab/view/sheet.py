"""The sheet that charts are drawn on: colours, texts, and a stand-alone SVG document around them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import TypeGuard

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A7B00", "#4D4D4D")
"""Of Okabe and Ito, yellow and black exchanged for what can be read on white."""
INK, PALE, GRID, GROUND, EMPTY = "#1B1F24", "#57606A", "#E3E6EA", "#FFFFFF", "#F3F4F6"
BAR = "#9CC7E4"

_LETTER = 6.6
"""Pixels of a letter of size 12, estimated on the large side."""
_LONGEST = 48
"""Letters of a name that are shown."""
_LONGEST_NOTE = 160
_SIZE = re.compile(r'<svg [^>]*?width="(\d+)" height="(\d+)"')
_END = "</svg>\n"


def document(title: str, note: str, width: float, height: float, body: Sequence[str]) -> str:
    """A whole picture, as wide as its title needs; `note` stands below that, empty for none."""
    note = shortened(note, _LONGEST_NOTE)
    wide = max(width, 32 + breadth(title) * 15 / 12, 32 + breadth(note, _LONGEST_NOTE))
    size = f"{wide:.0f}", f"{height:.0f}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        f'viewBox="0 0 {size[0]} {size[1]}" font-family="system-ui, sans-serif" role="img">',
        f"<title>{_escaped(f'{title}: {note}' if note else title)}</title>",
        f'<rect width="{size[0]}" height="{size[1]}" fill="{GROUND}"/>',
        text(16, 24, title, size=15, weight=600, fill=INK),
        *([text(16, 43, note)] if note else []),
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def footed(picture: str, words: Sequence[str]) -> str:
    """A picture of `collab.graphs.draw` with lines of text below it; the same without any."""
    if not words:
        return picture
    found = _SIZE.search(picture)
    if found is None:
        raise ValueError("a picture tells its size in its first line, width before height")
    wide, high = int(found[1]), int(found[2])
    below = high + 18 * len(words) + 12
    broad = max(wide, round(48 + max(breadth(line, _LONGEST_NOTE) for line in words)))
    lines = [text(24, high + 18 * place + 6, shortened(line, _LONGEST_NOTE)) for place, line in enumerate(words)]
    grown = picture.replace(f'width="{wide}" height="{high}"', f'width="{broad}" height="{below}"', 2)  # and its ground
    grown = grown.replace(f'"0 0 {wide} {high}"', f'"0 0 {broad} {below}"', 1)
    return "\n".join([grown.removesuffix(_END).rstrip(), *lines, _END])


def text(
    x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", weight: int = 400, fill: str = PALE
) -> str:
    """One line of text, its baseline at y."""
    place = f'x="{x:.2f}" y="{y:.2f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {place}>{_escaped(words)}</text>"


def breadth(words: str, longest: int = _LONGEST) -> float:
    """Pixels that a text of size 12 takes, as far as it is shown."""
    shown = shortened(words, longest)
    return _LETTER * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in shown)


def shortened(words: str, longest: int = _LONGEST) -> str:
    """The first letters of a name that is too long."""
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def _escaped(words: str) -> str:
    """Escaped for XML, which also knows no control characters and no half ones."""
    return escape("".join(letter if letter.isprintable() else " " for letter in words))


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number, and a finite one."""
    return value is not None and math.isfinite(value)
