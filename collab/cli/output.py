"""Output of commands: tables and notes for people, one JSON document for scripts.

Results go to stdout; progress, notes and errors go to stderr, so that `collab … --json | jq` always works. Text from
outside (page titles, task names, file names) is printed without control characters and never read as markup.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from collab.errors import StoreFailure
from collab.utils.progress import note, write_line
from collab.utils.text import clean_line

REHEARSAL = "rehearsal: not a language model"
"""Mark in every output of a run whose agents read solutions."""

_GAP = "  "
"""Gap between two columns of a table."""
_NARROW = 8
"""Smallest width of a folded column."""


def say(text: str = "") -> None:
    """Print lines of a result on stdout.

    Raises:
        StoreFailure: they cannot be written (the disk is full).
        BrokenPipeError: the reader is gone.
    """
    from collab.utils.redact import hide_text

    _print(hide_text(text))


def _print(text: str) -> None:
    try:
        write_line(sys.stdout, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreFailure(f"the output cannot be written: {error.strerror}") from None


def describe_lost(lost: int) -> str:
    """Format how many calls are missing in the cost, and why."""
    calls = "call was" if lost == 1 else "calls were"
    return f"{lost} {calls} sent and never answered whole; what they cost is not known"


def fail(text: str) -> None:
    """Print the error's one line on stderr."""
    from collab.utils.redact import redact

    note(f"error: {redact(text)}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout; None prints as a dash. Columns whose cells are all numbers are aligned right.

    On a terminal that is too narrow, the widest cells are folded; elsewhere lines stay whole.
    """
    watched = sys.stdout.isatty()
    head, *body = format_table(columns, rows, shutil.get_terminal_size().columns if watched else None)
    say("\n".join([_format_bold(head) if watched else head, *body]))


def format_table(columns: Sequence[str], rows: Iterable[Sequence[object]], room: int | None = None) -> list[str]:
    """Format a table, its head first; a row of folded cells is one entry.

    Args:
        room: columns of a terminal, to which it is folded; None for no fold.
    """
    from rich.cells import cell_len

    values = [list(row) for row in rows]
    # Widths are counted in cells of a terminal: some characters take two.
    cells = [["-" if value is None else clean_line(str(value)) for value in row] for row in values]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    # Numbers stand on the right, where their digits line up.
    right = [
        bool(values) and all(isinstance(row[place], int | float | None) for row in values)
        for place in range(len(columns))
    ]
    if room is not None:
        widths = _narrow_widths(widths, room - len(_GAP) * (len(columns) - 1))
    return [_format_row(row, widths, right) for row in (columns, *cells)]


def _narrow_widths(widths: Sequence[int], room: int) -> list[int]:
    """Shrink the widest columns until all fit."""
    narrow = list(widths)
    while sum(narrow) > room and max(narrow) > _NARROW:
        narrow[narrow.index(max(narrow))] -= 1
    return narrow


def _format_row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    """Format a row of a table, on as many lines as its longest cell needs."""
    from rich.cells import cell_len

    folded = [_fold_text(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for parts in zip_longest(*folded, fillvalue=""):
        padded = [
            " " * (width - cell_len(part)) + part if numeric else part + " " * (width - cell_len(part))
            for part, width, numeric in zip(parts, widths, right, strict=True)
        ]
        lines.append(_GAP.join(padded).rstrip())
    return "\n".join(lines)


def _fold_text(text: str, width: int) -> list[str]:
    """Fold a text into lines of at most `width` columns, broken between words where possible."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return [text]
    from rich.console import Console
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(Console(width=width), width, overflow="fold")]


def _format_bold(text: str) -> str:
    """Format a text in bold, if the terminal can show it."""
    from rich.console import Console
    from rich.text import Text

    page = io.StringIO()
    Console(file=page, width=len(text) + 1, force_terminal=True).print(Text(text, style="bold"), end="")
    return page.getvalue()


def emit(value: object) -> None:
    """Print one JSON document on stdout."""
    from collab.utils.redact import hide_values

    said = hide_values(to_data(value))
    _print(json.dumps(said, indent=2, ensure_ascii=not _is_unicode(sys.stdout), allow_nan=False))


def to_data(value: Any) -> Any:
    """Convert a value to JSON data: dataclasses become objects, paths strings, NaN null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(to_data(item) for item in value)
    if isinstance(value, list | tuple):
        return [to_data(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _is_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")
