"""How a training of a team is told: in one line while it goes on, in a table in the end, as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collab.cli.output import say, table
from collab.cli.watch import describe as describe_collection

if TYPE_CHECKING:
    from collab.marl.loop import MarlResult
    from collab.marl.loop_state import Progress
    from collab.marl.summary import Record


def describe(progress: Progress) -> str:
    """One line: epoch, part, how far that is; and the last held-out success."""
    from collab.collector import Progress as Collecting
    from collab.credit.labelling import Labelling

    parts = [f"epoch {progress.epoch}/{progress.epochs}", progress.part]
    inner = progress.inner
    if isinstance(inner, Collecting):
        parts.append(describe_collection(inner))
    elif isinstance(inner, Labelling):
        parts.append(f"{inner.judged + inner.known} steps judged, {inner.rewarded}/{inner.cells} cells rewarded")
    elif inner is not None:
        parts.append(" ".join(str(inner).split()))
    last = next((one for one in reversed(progress.records) if one.success is not None), None)
    if last is not None and last.success is not None:
        parts.append(f"held-out success {last.success.value:.1%} after epoch {last.epoch}")
    return " | ".join(part for part in parts if part)


def result_data(result: MarlResult) -> dict[str, Any]:
    """For scripts."""
    return {
        "out": str(result.path),
        "stopped": result.stopped,
        "summary": None if result.summary is None else result.summary.model_dump(mode="json"),
        "epochs": [record.model_dump(mode="json") for record in result.records],
    }


def show_result(result: MarlResult) -> None:
    """Print the epochs, what a table has no column for, and the best."""
    columns = ["epoch", "held-out success", "95 % interval", "rewarded", "agreement", "pairs", "loss", "margin"]
    table([*columns, "accuracy", "log p(chosen)"], [_line(record) for record in result.records])
    for record in result.records:
        for line in _notes(record):
            say(line)
    if result.summary is not None:
        summary = result.summary
        why = ", patience is over" if summary.stopped_early else ""
        say(f"\nbest  epoch {summary.best} of {summary.epochs}{why}: --agents {result.path}@best")
        say(f"hash  {summary.hash}")


def _line(record: Record) -> Sequence[object]:
    """A line of the table; of several policies that were trained, the mean."""
    success, trained = record.success, list(record.trained.values())
    rates = [rate for row in record.rewards.values() for rate in row if rate is not None]
    means = [_mean([getattr(one, name) for one in trained]) for name in ("loss", "margin", "accuracy", "logp_chosen")]
    return [
        record.epoch,
        None if success is None else f"{success.value:.1%}",
        None if success is None else f"{success.low:.1%} - {success.high:.1%}",
        f"{sum(rates) / len(rates):.0%}" if rates else None,
        None if record.agreement is None else f"{record.agreement:.0%}",
        sum(one.pairs for one in record.rows.values()) if record.rows else None,
        *(None if value is None else f"{value:.3f}" for value in means),
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    """None where there is no value, or not everywhere one."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _notes(record: Record) -> list[str]:
    """What a table has no column for."""
    lines = [f"epoch {record.epoch}: {name} stays as it was: {why}" for name, why in record.untrained.items()]
    for name, one in record.trained.items():
        if one.alarm is not None:
            lines.append(f"epoch {record.epoch}: {name}: alarm: {one.alarm}")
    for name, rows in record.rows.items():
        lines += [f"epoch {record.epoch}: {name}: {count} pairs left out: {why}" for why, count in rows.refused.items()]
        if rows.retokenised:
            lines.append(f"epoch {record.epoch}: {name}: {rows.retokenised} pairs in other tokens than were sampled")
    return lines
