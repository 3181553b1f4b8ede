"""What commands print: tables and notes for people, one JSON document for scripts.

Results go to stdout; progress, notes and errors go to stderr, so that `collab … --json | jq` always works. Text from
outside (page titles, task names, file names) is printed without control characters and never read as markup.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

REHEARSAL = "rehearsal: not a language model"
"""The mark that stands in every output of a run whose agents look at solutions."""

_WIDE = 10_000
"""Columns where nobody watches: a file or a pipe gets whole lines."""


def console(stream: TextIO | None = None) -> Console:
    """A rich console on stdout (or `stream`) that takes text as it is: no markup, no emoji codes, no guessing."""
    from rich.console import Console

    target = stream or sys.stdout
    width = None if target.isatty() else _WIDE
    return Console(file=target, width=width, markup=False, emoji=False, highlight=False, soft_wrap=True)


def say(text: str = "") -> None:
    """One or more lines of a result, on stdout."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """One line beside the result, on stderr."""
    _write(sys.stderr, plain(text))


def fail(text: str) -> None:
    """The one line that tells what went wrong, on stderr."""
    note(f"error: {text}")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout; None prints as a dash. Columns whose cells are all numbers are aligned right."""
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        numeric = all(isinstance(row[place], int | float | None) for row in cells)
        drawn.add_column(column, justify="right" if numeric and cells else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*(Text("-" if cell is None else plain(str(cell))) for cell in row))
    screen = console()
    with screen.capture() as captured:
        screen.print(drawn, soft_wrap=False)
    say("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def emit(value: object) -> None:
    """Print one JSON document on stdout."""
    say(json.dumps(data(value), indent=2, ensure_ascii=not _is_unicode(sys.stdout), allow_nan=False))


def data(value: Any) -> Any:
    """The value as JSON data: dataclasses become objects, paths strings, NaN null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): data(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(data(item) for item in value)
    if isinstance(value, list | tuple):
        return [data(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def plain(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _is_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _write(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
