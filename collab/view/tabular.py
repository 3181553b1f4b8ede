"""Markdown that others' words cannot break: text from outside made harmless, and tables of such cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

DASH = "–"
"""For what is not known."""
_MARKUP = re.compile(r"([\\`*\[\]<>|~&#$!@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LINK = re.compile(r"(?i)(://|\bwww\.)")


def safe(text: str) -> str:
    """Text from outside on one line, in which Markdown finds nothing to do."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    quiet = _MARKUP.sub(r"\\\1", plain)
    quiet = _LINK.sub(lambda found: found[0].replace(":", "\\:").replace(".", "\\."), quiet)
    return re.sub(r"^(\d+)([.)])|^([-+=])", lambda found: f"{found[1] or ''}\\{found[2] or found[3]}", quiet)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table, and the empty line behind it; columns of numbers are aligned right."""
    found = [[DASH if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [bool(found) and all(_is_number(row[place]) for row in found) for place in range(len(heads))]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('---:' if right else '---' for right in numeric)}|"
    for row in found:
        yield f"| {' | '.join(row)} |"
    yield ""


def without_empty(
    heads: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """The table without columns in which nothing is known."""
    kept = [place for place in range(len(heads)) if any(row[place] not in (None, DASH) for row in rows)]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _is_number(cell: str) -> bool:
    return re.fullmatch(rf"-?\d+(\.\d+)?|{DASH}", cell) is not None
