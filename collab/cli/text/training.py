"""Format a training: a table of its epochs, while it runs and at its end, and JSON data."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collab.cli.output import format_table, print_table, say
from collab.utils.text import clean_line, format_clock, shorten_number

if TYPE_CHECKING:
    from collab.loop.loop import TrainingResult
    from collab.loop.record import EpochRecord
    from collab.loop.state import TrainingProgress


SPARED = ("95 % interval", "agreement", "rewarded", "margin", "accuracy", "tokens")
"""Columns dropped on a narrow terminal, in this order; the lines of each epoch hold all of them."""


def build_epoch_table(records: Sequence[EpochRecord], room: int | None) -> tuple[list[str], list[list[object]]]:
    """Build columns and rows of the epochs side by side.

    Args:
        room: width of the terminal, to which the table is cut by dropping columns; None keeps all.
    """
    cells = [build_epoch_row(record) for record in records]
    # Columns of all epochs, in the order of first use: algorithms add their own.
    columns = list(dict.fromkeys(name for row in cells for name in row))
    rows = [[row.get(name) for name in columns] for row in cells]
    # Columns are given up one by one until the table fits the terminal.
    for name in SPARED:
        if room is None or max(map(len, format_table(columns, rows))) <= room:
            break
        if name in columns:
            place = columns.index(name)
            columns.pop(place)
            for row in rows:
                row.pop(place)
    return columns, rows


def build_epoch_row(record: EpochRecord) -> dict[str, object]:
    """Build an epoch's row, by column; for several trained policies, the mean."""
    from collab.loop.interfaces import load_algorithm
    from collab.loop.record import average
    from collab.loop.state import sum_epoch_seconds, total_asked

    success = record.success
    loss = average([one.loss for one in record.trained.values()])
    # Tokens of training are computed here, and paid to no server.
    asked = total_asked(record)
    seconds = sum_epoch_seconds(record)
    return {
        "epoch": record.epoch,
        "held-out success": None if success is None else f"{success.value:.1%}",
        "95 % interval": None if success is None else f"{success.low:.1%} - {success.high:.1%}",
        "agreement": None if record.agreement is None else f"{record.agreement:.0%}",
        **load_algorithm(record.algorithm).build_columns(record),
        "loss": None if loss is None else f"{loss:.3f}",
        "tokens": shorten_number(asked.tokens),
        "USD": f"{asked.cost_usd:.2f}" if asked.cost_usd else None,
        "time": None if seconds is None else format_clock(seconds),
    }


_SHOWN = 6
"""Epochs in the table, if the screen is high enough."""
_LINE = 4
"""Lines kept free: the progress line, wrapped on a narrow screen, and one more."""


def format_below(progress: TrainingProgress) -> list[str]:
    """Return the lines below the progress line.

    They hold a table of the last epochs, the facts of the running epoch so far, and all lines of the last finished one.
    A low screen shows fewer epochs in the table, at least one.
    """
    width, height = shutil.get_terminal_size()
    for epochs in range(_SHOWN, 0, -1):
        lines = _format_epochs_below(progress, epochs, width)
        if sum(-(-max(len(line), 1) // width) for line in lines) <= height - _LINE:
            break
    return lines


def _format_epochs_below(progress: TrainingProgress, epochs: int, room: int) -> list[str]:
    from collab.loop.report import format_epoch, format_forgetting

    records, now = progress.records[-epochs:], progress.so_far
    lines: list[str] = []
    if records:
        rows = format_table(*build_epoch_table(records, room), room)
        lines += ["", *(line for row in rows for line in row.splitlines())]
    if now is not None:
        forgotten = format_forgetting(now, progress.records)
        lines += ["", f"epoch {now.epoch}, so far", *map(clean_line, [*format_epoch(now), *forgotten])]
    if records:
        lines += ["", f"epoch {records[-1].epoch}", *map(clean_line, format_epoch(records[-1]))]
    return lines


def format_news(progress: TrainingProgress) -> list[str]:
    """Return log lines about finished epochs."""
    from collab.loop.report import format_epochs

    return format_epochs(progress.records)


def build_result_data(result: TrainingResult) -> dict[str, Any]:
    """Return the result as JSON data."""
    return {
        "out": str(result.path),
        "stopped": result.stopped,
        "summary": None if result.summary is None else result.summary.model_dump(mode="json"),
        "epochs": [record.model_dump(mode="json") for record in result.records],
    }


def show_result(result: TrainingResult) -> None:
    """Print the epochs side by side, all that is known of each, and the best."""
    from collab.evaluation.metrics import FEW, FEW_TOLD
    from collab.loop.loop import describe_best
    from collab.loop.report import format_epochs

    # On a terminal the table fits its width; in a file nothing is left out.
    print_table(*build_epoch_table(result.records, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))
    if any(one.success is not None and one.success.episodes < FEW for one in result.records):
        say(f"held-out episodes are {FEW_TOLD}")
    say()
    for line in format_epochs(result.records):
        say(line)
    if result.summary is not None:
        summary = result.summary
        why = ", patience is over" if summary.stopped_early else ""
        named = "" if summary.best is None else f": --agents {result.path}@best"
        say(f"\nbest  {describe_best(summary).removeprefix('best ')}{why}{named}")
        say(f"hash  {summary.hash}")
