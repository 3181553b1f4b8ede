"""What commands print: tables and notes for people, one JSON document for scripts.

Results go to stdout; progress, notes and errors go to stderr, so that `collab … --json | jq` always works. Text from
outside (page titles, task names, file names) is printed without control characters and never read as markup.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TextIO

from collab.errors import StoreFailure

REHEARSAL = "rehearsal: not a language model"
"""The mark that stands in every output of a run whose agents look at solutions."""

_WIDE = 10_000
"""Columns where nobody watches: a file or a pipe gets whole lines."""


def say(text: str = "") -> None:
    """One or more lines of a result, on stdout.

    Raises:
        StoreFailure: they cannot be written (the disk is full).
        BrokenPipeError: whoever read them has gone.
    """
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreFailure(f"the output cannot be written: {error.strerror}") from None


def note(text: str) -> None:
    """One line beside the result, on stderr; if nobody can be told, work goes on."""
    with contextlib.suppress(OSError):
        _write(sys.stderr, plain(text))


def fail(text: str) -> None:
    """The one line that tells what went wrong, on stderr."""
    note(f"error: {text}")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout; None prints as a dash. Columns whose cells are all numbers are aligned right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        numeric = all(isinstance(row[place], int | float | None) for row in cells)
        drawn.add_column(column, justify="right" if numeric and cells else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*(Text("-" if cell is None else plain(str(cell))) for cell in row))
    page, watched = io.StringIO(), sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if watched else _WIDE
    Console(file=page, width=width, force_terminal=watched).print(drawn)
    say("\n".join(line.rstrip() for line in page.getvalue().rstrip("\n").split("\n")))


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
