"""How a training of a team is told: live while it goes on, as tables and lists in the end, as JSON data.

An epoch is a list of lines, and all epochs are a table, side by side.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collab.cli.output import clean_line, format_table, print_table, say
from collab.cli.progress import describe as describe_collection
from collab.cli.progress import format_clock, format_count, shorten_number
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.loop.loop import TrainingResult
    from collab.loop.record import EpochRecord, ExampleCounts, Spending, Success, Trained
    from collab.loop.state import TrainingProgress


SPARED = ("95 % interval", "agreement", "rewarded", "margin", "accuracy", "tokens")
"""Columns that a narrow terminal goes without, in this order: the list of each epoch has them all."""


def build_epoch_table(records: Sequence[EpochRecord], room: int | None) -> tuple[list[str], list[list[object]]]:
    """Build columns and rows of the epochs side by side.

    Args:
        room: columns of a terminal, which so many columns of the table are left out for as it takes; None for all.
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
    from collab.loop.state import sum_epoch_seconds, total

    success = record.success
    loss = _mean([one.loss for one in record.trained.values()])
    # Tokens of training are computed here, and paid to no server.
    asked = total(one for part, one in record.spent.items() if part != "training")
    seconds = sum_epoch_seconds(record)
    return {
        "epoch": record.epoch,
        "held-out success": None if success is None else f"{success.value:.1%}",
        "95 % interval": None if success is None else _format_interval(success),
        "agreement": None if record.agreement is None else f"{record.agreement:.0%}",
        **load_algorithm(record.algorithm).build_columns(record),
        "loss": None if loss is None else f"{loss:.3f}",
        "tokens": shorten_number(asked.prompt_tokens + asked.completion_tokens),
        "USD": f"{asked.cost_usd:.2f}" if asked.cost_usd else None,
        "time": None if seconds is None else format_clock(seconds),
    }


def format_epoch(record: EpochRecord) -> list[str]:
    """Format all that is known of an epoch, one line for each kind.

    Causes and costs come last, where a low screen may cut them off.
    """
    from collab.loop.interfaces import load_algorithm

    # In the order of the phases, so that an epoch reads like its course.
    return [
        *([] if record.success is None else [f"held out {_format_success(record.success)}"]),
        *_format_silent(record.success, "held out"),
        *_format_scale(record),
        *(
            []
            if record.played is None
            else [f"played   {_format_success(record.played)}, {format_amount(record.steps, 'step')}"]
        ),
        *_format_silent(record.played, "played"),
        *([f"tasks    {len(record.tasks)}: {', '.join(record.tasks)}"] if record.tasks else []),
        *(
            []
            if record.agreement is None
            else [f"agreed   {record.agreement:.0%} of all replies voted for the executed action"]
        ),
        *(line for name, one in record.trained.items() for line in _format_trained(name, one)),
        *(f"trained  {name} stays as it was: {why}" for name, why in record.untrained.items()),
        *load_algorithm(record.algorithm).format_lines(record),
        *(line for name, found in record.examples.items() for line in _format_examples(name, found)),
        *_format_spent(record),
    ]


def format_epochs(records: Sequence[EpochRecord]) -> list[str]:
    """Format all lines of all epochs, each with its epoch."""
    return [clean_line(f"epoch {record.epoch} | {line}") for record in records for line in format_epoch(record)]


def _format_scale(record: EpochRecord) -> list[str]:
    """Format the temperature scale of the rollout; one number where all agents share a policy."""
    told = {slot: f"{factor:.2f}" for slot, factor in record.temperature_scale.items()}
    different = set(told.values())
    values = ", ".join(different if len(different) == 1 else (f"{slot} {factor}" for slot, factor in told.items()))
    return [f"scale    temperatures of the rollout times {values}"] if told else []


def _format_examples(name: str, found: ExampleCounts) -> list[str]:
    lines = [f"left out {name}: {format_amount(count, 'example')}: {why}" for why, count in found.refused.items()]
    if found.older:
        lines.append(f"older    {name}: {format_amount(found.older, 'example')} of older epochs mixed in")
    if found.repeated:
        lines.append(
            f"repeated {name}: {format_amount(found.repeated, 'example')} with the words of another one, learned once"
        )
    if found.retokenised:
        lines.append(
            f"tokens   {name}: {format_amount(found.retokenised, 'example')} with a sampled reply "
            "whose tokens are not known"
        )
    return lines


def _format_trained(name: str, one: Trained) -> list[str]:
    parts = [f"loss {one.loss:.3f}", f"{format_amount(one.steps, 'step')}, {format_count(one.tokens, 'token')}"]
    if one.dropped:
        parts.append(f"{format_amount(one.dropped, 'example')} longer than the context")
    lines = [f"trained  {name}: {', '.join(parts)}"]
    return lines if one.alarm is None else [*lines, f"alarm    {name}: {one.alarm}"]


def _format_spent(record: EpochRecord) -> list[str]:
    """Format time, calls, tokens and money by part; parts that did not run are left out."""
    lines = [f"{part} {told}" for part, one in record.spent.items() if (told := _format_spending(one))]
    return [f"spent    {'; '.join(lines)}"] if lines else []


def _format_spending(one: Spending) -> str:
    tokens = one.prompt_tokens + one.completion_tokens
    parts = [
        *([] if one.seconds is None else [format_clock(one.seconds)]),
        *([f"{format_count(one.calls, 'call')}"] if one.calls else []),
        *([f"{format_count(tokens, 'token')}"] if tokens else []),
        *([f"{one.cost_usd:.2f} USD"] if one.cost_usd else []),
        *([f"and {format_amount(one.lost, 'call')} of unknown cost"] if one.lost else []),
    ]
    return " ".join(parts)


def _format_success(rate: Success) -> str:
    from collab.evaluation.metrics import FEW, FEW_TOLD

    broken = f", {rate.broken} broken" if rate.broken else ""
    few = f" ({FEW_TOLD})" if rate.episodes < FEW else ""
    sampled = f", at {rate.sampled}" if rate.sampled else ""
    solved = f"{rate.successes} of {format_amount(rate.episodes, 'episode')}"
    return f"{rate.value:.1%} ({_format_interval(rate)}), {solved}{few}{broken}{sampled}"


def _format_silent(rate: Success | None, of: str) -> list[str]:
    """Format replies without an action, by cause."""
    from collab.evaluation.metrics import Replies

    if rate is None or not rate.replies:
        return []
    return [f"replies without an action, {of}: {Replies(total=rate.replies, causes=rate.without_action)}"]


def _format_interval(rate: Success) -> str:
    return f"{rate.low:.1%} - {rate.high:.1%}"


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


_SHOWN = 6
"""Epochs side by side that a screen shows, where it is high enough."""
_LINE = 4
"""Lines that `describe` takes on a narrow screen, and one that stays free."""


def describe(progress: TrainingProgress) -> str:
    """Format one line: epoch, part, its progress; held-out success; tokens and cost so far, and the time left."""
    parts = [f"epoch {progress.epoch}/{progress.epochs}", progress.part, _format_inner(progress)]
    last = next((one for one in reversed(progress.records) if one.success is not None), None)
    if last is not None and last.success is not None:
        interval = f"{last.success.low:.1%} - {last.success.high:.1%}"
        parts.append(f"held-out success {last.success.value:.1%} ({interval}) after epoch {last.epoch}")
    parts.append(_format_totals(progress))
    return " | ".join(part for part in parts if part)


def format_below(progress: TrainingProgress) -> list[str]:
    """Return the lines for the screen below that line.

    The last epochs side by side, what is known of the one that goes on, and all of the last one that is over. A low
    screen shows fewer epochs side by side, one at least.
    """
    width, height = shutil.get_terminal_size()
    for epochs in range(_SHOWN, 0, -1):
        lines = _format_epochs_below(progress, epochs, width)
        if sum(-(-max(len(line), 1) // width) for line in lines) <= height - _LINE:
            break
    return lines


def _format_epochs_below(progress: TrainingProgress, epochs: int, room: int) -> list[str]:
    records, now = progress.records[-epochs:], progress.so_far
    lines: list[str] = []
    if records:
        rows = format_table(*build_epoch_table(records, room), room)
        lines += ["", *(line for row in rows for line in row.splitlines())]
    if now is not None:
        lines += ["", f"epoch {now.epoch}, so far", *map(clean_line, format_epoch(now))]
    if records:
        lines += ["", f"epoch {records[-1].epoch}", *map(clean_line, format_epoch(records[-1]))]
    return lines


def format_news(progress: TrainingProgress) -> list[str]:
    """Return log lines about finished epochs."""
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


def _format_inner(progress: TrainingProgress) -> str:
    """Format the progress of the current part; empty where it is unknown."""
    from collab.rewards.labelling import Labelling
    from collab.rollout.collector import Progress as Collecting

    inner = progress.inner
    if isinstance(inner, Collecting) and not inner.planned:  # an adversary is asked
        return f"{inner.calls:,} calls, {format_count(inner.tokens, 'token')}" if inner.calls else ""
    if isinstance(inner, Collecting):
        return describe_collection(inner)
    if isinstance(inner, Labelling):
        rewarded = f"{inner.rewarded}/{format_amount(inner.cells, 'cell')} rewarded"
        return f"{format_amount(inner.judged + inner.known, 'step')} judged, {rewarded}"
    return "" if inner is None else " ".join(str(inner).split())


def _format_totals(progress: TrainingProgress) -> str:
    """Format tokens, cost and time left of the whole training."""
    from collab.loop.state import estimate_seconds_left, sum_spent_so_far

    tokens, usd = sum_spent_so_far(progress)
    left = estimate_seconds_left(progress, time.monotonic())
    parts = [
        f"{format_count(tokens, 'token')}",
        *([f"{usd:.2f} USD"] if usd else []),
        "time left known after an epoch" if left is None else f"at most about {format_clock(left)} left",
    ]
    return f"in all {', '.join(parts)}"
