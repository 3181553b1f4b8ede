"""Lines about the epochs of a training: for a terminal, a log, a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from collab.evaluation.metrics import FEW, FEW_TOLD, Replies
from collab.loop.interfaces import load_algorithm
from collab.loop.record import EpochRecord, ExampleCounts, Spending, Success, Trained
from collab.utils.text import clean_line, format_amount, format_clock, format_count

FORGOTTEN = 0.1
"""By how much the share of replies without an action may rise without a warning."""


def format_epoch(record: EpochRecord) -> list[str]:
    """Format all facts of an epoch, one line for each kind that occurred.

    Causes and costs stand last, since a low screen may cut them off.
    """
    # In the order of the phases, so that an epoch reads like its course.
    return [
        *([] if record.success is None else [f"held out {_format_success(record.success)}"]),
        *_format_silent(record.success, "held out"),
        *(
            []
            if record.played is None
            else [
                f"{'recorded' if record.recorded else 'played  '} {_format_success(record.played)}, "
                f"{format_amount(record.steps, 'step')}"
            ]
        ),
        *_format_silent(record.played, "played"),
        *([f"tasks    {len(record.tasks)}: {', '.join(record.tasks)}"] if record.tasks else []),
        *(
            []
            if record.agreement is None
            else [
                f"agreed   {record.agreement:.0%} of a step's cells, those without an action included, "
                "voted for the winner"
            ]
        ),
        *(line for name, one in record.trained.items() for line in _format_trained(name, one)),
        *(f"trained  {name} stays as it was: {why}" for name, why in record.untrained.items()),
        *load_algorithm(record.algorithm).format_lines(record),
        *(line for name, found in record.examples.items() for line in _format_examples(name, found)),
        *_format_spent(record),
    ]


def format_epochs(records: Sequence[EpochRecord]) -> list[str]:
    """Format all lines of all epochs, each with its epoch, and a warning where a policy forgets how to reply."""
    return [
        clean_line(f"epoch {record.epoch} | {line}")
        for place, record in enumerate(records)
        for line in [*format_epoch(record), *format_forgetting(record, records[:place])]
    ]


def format_forgetting(record: EpochRecord, earlier: Sequence[EpochRecord]) -> list[str]:
    """Format a warning if many more replies have no action than at first; empty if not.

    Rollouts are compared with the first rollout, held-out evaluations with the first one. "Many more" is a share that
    lies `FORGOTTEN` above, with 95 % intervals that are apart. So ends a policy whose failed replies are pushed down
    at too high a rate.
    """
    found = []
    for where, now, begun in (
        ("played", record.played, next((one.played for one in earlier if one.played is not None), None)),
        ("held-out", record.success, next((one.success for one in earlier if one.success is not None), None)),
    ):
        if now is not None and begun is not None:
            share, first = now.silence, begun.silence
            if share.value - first.value > FORGOTTEN and share.interval[0] > first.interval[1]:
                found.append(f"{share.value:.0%} of {where} replies have no action ({first.value:.0%} at first)")
    if not found:
        return []
    remedy = "the policy forgets how to reply; lower the learning rate, or play the best epoch (@best)"
    return [f"warning  {', '.join(found)}: {remedy}"]


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
    parts = [
        *([] if one.seconds is None else [format_clock(one.seconds)]),
        *([f"{format_count(one.calls, 'call')}"] if one.calls else []),
        *([f"{format_count(one.tokens, 'token')}"] if one.tokens else []),
        *([f"{one.cost_usd:.2f} USD"] if one.cost_usd else []),
        *([f"and {format_amount(one.lost, 'call')} of unknown cost"] if one.lost else []),
    ]
    return " ".join(parts)


def _format_success(rate: Success) -> str:
    broken = f", {rate.broken} broken" if rate.broken else ""
    cut = f", {rate.cut_short} ended with the first error" if rate.cut_short else ""
    few = f" ({FEW_TOLD})" if rate.episodes < FEW else ""
    sampled = f", at {rate.sampled}" if rate.sampled else ""
    solved = f"{rate.successes} of {format_amount(rate.episodes, 'episode')}"
    return f"{rate}, {solved}{few}{broken}{cut}{sampled}"


def _format_silent(rate: Success | None, of: str) -> list[str]:
    """Format replies without an action, by cause."""
    if rate is None or not rate.replies:
        return []
    return [f"replies without an action, {of}: {Replies(total=rate.replies, causes=rate.without_action)}"]
