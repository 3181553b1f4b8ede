"""How a training of a team is told: live while it goes on, as tables and lists in the end, as JSON data."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from collab.cli.epoch_text import epoch_lines, epoch_table, told_epochs
from collab.cli.output import plain, say, table, table_lines
from collab.cli.watch import clock, counted
from collab.cli.watch import describe as describe_collection
from collab.wording import amount

if TYPE_CHECKING:
    from collab.loop.loop import TrainingResult
    from collab.loop.state import Progress

_SHOWN = 6
"""Epochs side by side that a screen shows, where it is high enough."""
_LINE = 4
"""Lines that `describe` takes on a narrow screen, and one that stays free."""


def describe(progress: Progress) -> str:
    """One line: epoch, part, how far that is; held-out success; tokens and cost so far, and the time left."""
    parts = [f"epoch {progress.epoch}/{progress.epochs}", progress.part, _inner(progress)]
    last = next((one for one in reversed(progress.records) if one.success is not None), None)
    if last is not None and last.success is not None:
        interval = f"{last.success.low:.1%} - {last.success.high:.1%}"
        parts.append(f"held-out success {last.success.value:.1%} ({interval}) after epoch {last.epoch}")
    parts.append(_in_all(progress))
    return " | ".join(part for part in parts if part)


def below(progress: Progress) -> list[str]:
    """What a screen shows beside that line.

    The last epochs side by side, what is known of the one that goes on, and all of the last one that is over. A low
    screen shows fewer epochs side by side, one at least.
    """
    width, height = shutil.get_terminal_size()
    for epochs in range(_SHOWN, 0, -1):
        lines = _below(progress, epochs, width)
        if sum(-(-max(len(line), 1) // width) for line in lines) <= height - _LINE:
            break
    return lines


def _below(progress: Progress, epochs: int, room: int) -> list[str]:
    records, now = progress.records[-epochs:], progress.so_far
    lines: list[str] = []
    if records:
        rows = table_lines(*epoch_table(records, room), room)
        lines += ["", *(line for row in rows for line in row.splitlines())]
    if now is not None:
        lines += ["", f"epoch {now.epoch}, so far", *map(plain, epoch_lines(now))]
    if records:
        lines += ["", f"epoch {records[-1].epoch}", *map(plain, epoch_lines(records[-1]))]
    return lines


def news(progress: Progress) -> list[str]:
    """What a log is told of epochs that are over."""
    return told_epochs(progress.records)


def result_data(result: TrainingResult) -> dict[str, Any]:
    """For scripts."""
    return {
        "out": str(result.path),
        "stopped": result.stopped,
        "summary": None if result.summary is None else result.summary.model_dump(mode="json"),
        "epochs": [record.model_dump(mode="json") for record in result.records],
    }


def show_result(result: TrainingResult) -> None:
    """Print the epochs side by side, all that is known of each, and the best."""
    from collab.evaluation import FEW, FEW_TOLD
    from collab.loop.loop import describe_best

    table(*epoch_table(result.records, shutil.get_terminal_size().columns if sys.stdout.isatty() else None))
    if any(one.success is not None and one.success.episodes < FEW for one in result.records):
        say(f"held-out episodes are {FEW_TOLD}")
    say()
    for line in told_epochs(result.records):
        say(line)
    if result.summary is not None:
        summary = result.summary
        why = ", patience is over" if summary.stopped_early else ""
        named = "" if summary.best is None else f": --agents {result.path}@best"
        say(f"\nbest  {describe_best(summary).removeprefix('best ')}{why}{named}")
        say(f"hash  {summary.hash}")


def _inner(progress: Progress) -> str:
    """How far the part is that goes on; empty where it does not tell."""
    from collab.collector import Progress as Collecting
    from collab.credit.labelling import Labelling

    inner = progress.inner
    if isinstance(inner, Collecting) and not inner.planned:  # an adversary is asked
        return f"{inner.calls:,} calls, {counted(inner.tokens, 'token')}" if inner.calls else ""
    if isinstance(inner, Collecting):
        return describe_collection(inner)
    if isinstance(inner, Labelling):
        rewarded = f"{inner.rewarded}/{amount(inner.cells, 'cell')} rewarded"
        return f"{amount(inner.judged + inner.known, 'step')} judged, {rewarded}"
    return "" if inner is None else " ".join(str(inner).split())


def _in_all(progress: Progress) -> str:
    """Tokens, cost and time left of the whole training."""
    from collab.loop.pace import seconds_left, spent_so_far

    tokens, usd = spent_so_far(progress)
    left = seconds_left(progress, time.monotonic())
    parts = [
        f"{counted(tokens, 'token')}",
        *([f"{usd:.2f} USD"] if usd else []),
        "time left known after an epoch" if left is None else f"at most about {clock(left)} left",
    ]
    return f"in all {', '.join(parts)}"
