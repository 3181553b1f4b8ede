"""Epochs of a training: all of one as a list of lines, and all of them as a table, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collab.cli.count_text import cause_lines, count_lines
from collab.cli.output import amount, plain, table_lines
from collab.cli.watch import clock, counted, short

if TYPE_CHECKING:
    from collab.marl.summary import Record, RowCounts, Spending, Success, Trained

COLUMNS = (
    *("epoch", "held-out success", "95 % interval", "rewarded", "agreement", "pairs"),
    *("loss", "margin", "accuracy", "log p(chosen)", "tokens", "USD", "time"),
)

SPARED = ("95 % interval", "agreement", "rewarded", "margin", "accuracy", "tokens")
"""Columns that a narrow terminal goes without, in this order: the list of each epoch has them all."""


def epoch_table(records: Sequence[Record], room: int | None) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of the epochs side by side.

    Args:
        room: columns of a terminal, which so many columns of the table are left out for as it takes; None for all.
    """
    columns, rows = list(COLUMNS), [list(epoch_row(record)) for record in records]
    for name in SPARED:
        if room is None or max(map(len, table_lines(columns, rows))) <= room:
            break
        place = columns.index(name)
        columns.pop(place)
        for row in rows:
            row.pop(place)
    return columns, rows


def epoch_row(record: Record) -> Sequence[object]:
    """The line of a table under `COLUMNS`; of several policies that were trained, the mean."""
    from collab.marl.pace import epoch_seconds, total

    success, trained = record.success, list(record.trained.values())
    names = ("loss", "margin", "accuracy", "logp_chosen", "chosen_gain")
    *means, gain = (_mean([getattr(one, name) for one in trained]) for name in names)
    shown = [None if value is None else f"{value:.3f}" for value in means]
    if gain is not None and shown[-1] is not None:
        shown[-1] += f" ({gain:+.2f})"
    asked = total(one for part, one in record.spent.items() if part != "training")
    seconds = epoch_seconds(record)
    return [
        record.epoch,
        None if success is None else f"{success.value:.1%}",
        None if success is None else _interval(success),
        None if record.rewarded is None else f"{record.rewarded:.0%}",
        None if record.agreement is None else f"{record.agreement:.0%}",
        sum(one.pairs for one in record.rows.values()) if record.rows else None,
        *shown,
        short(asked.prompt_tokens + asked.completion_tokens),
        f"{asked.cost_usd:.2f}" if asked.cost_usd else None,
        None if seconds is None else clock(seconds),
    ]


def epoch_lines(record: Record) -> list[str]:
    """All that is known of an epoch, one line for each kind of it that came up.

    What a low screen may cut off stands last: causes and costs, not what was learned.
    """
    return [
        *([] if record.success is None else [f"held out {_success(record.success)}"]),
        *_silent(record.success, "held out"),
        *_heat(record),
        *([] if record.played is None else [f"played   {_success(record.played)}, {amount(record.steps, 'step')}"]),
        *_silent(record.played, "played"),
        *([f"tasks    {len(record.tasks)}: {', '.join(record.tasks)}"] if record.tasks else []),
        *_rewards(record),
        *(
            []
            if record.agreement is None
            else [f"agreed   {record.agreement:.0%} of all replies voted for what was done"]
        ),
        *(line for name, one in record.trained.items() for line in _trained(name, one)),
        *(f"trained  {name} stays as it was: {why}" for name, why in record.untrained.items()),
        *count_lines(record.pairs),
        *(line for name, rows in record.rows.items() for line in _rows(name, rows)),
        *cause_lines("no score", record.missing),
        *cause_lines("unasked", record.unasked),
        *_spent(record),
    ]


def told_epochs(records: Sequence[Record]) -> list[str]:
    """All lines of all epochs, each told of which."""
    return [plain(f"epoch {record.epoch} | {line}") for record in records for line in epoch_lines(record)]


def _heat(record: Record) -> list[str]:
    """By what the rollout was hotter than declared; one number where all agents share a policy."""
    told = {slot: f"{factor:.2f}" for slot, factor in record.heat.items()}
    different = set(told.values())
    values = ", ".join(different if len(different) == 1 else (f"{slot} {factor}" for slot, factor in told.items()))
    return [f"heat     temperatures of the rollout times {values}"] if told else []


def _rewards(record: Record) -> list[str]:
    """Share of rewarded cells, per agent and round."""
    if not any(rate is not None for row in record.rewards.values() for rate in row):
        return []
    rows = [
        f"{agent} {' '.join('-' if one is None else f'{one:.0%}' for one in row)}"
        for agent, row in record.rewards.items()
    ]
    rounds = max(len(row) for row in record.rewards.values())
    return [f"rewarded {', '.join(rows)}{f' (rounds 1 to {rounds})' if rounds > 1 else ''}"]


def _rows(name: str, rows: RowCounts) -> list[str]:
    lines = [f"left out {name}: {amount(count, 'example')}: {why}" for why, count in rows.refused.items()]
    if rows.anchors:
        replies = "1 rewarded reply" if rows.anchors == 1 else f"{rows.anchors} rewarded replies"
        lines.append(f"anchors  {name}: {replies} without a pair, held on to")
    if rows.older:
        lines.append(f"older    {name}: {amount(rows.older, 'row')} of older epochs mixed in")
    if rows.repeated:
        lines.append(f"repeated {name}: {amount(rows.repeated, 'row')} with the words of another one, learned once")
    if rows.unjudged:
        lines.append(f"unjudged {name}: {amount(rows.unjudged, 'step')} that nobody could judge")
    if rows.retokenised:
        lines.append(
            f"tokens   {name}: {amount(rows.retokenised, 'example')} with a sampled reply whose tokens are not known"
        )
    return lines


def _trained(name: str, one: Trained) -> list[str]:
    parts = [f"loss {one.loss:.3f}"]
    if one.margin is not None:
        parts.append(f"margin {one.margin:.3f}")
    if one.accuracy is not None:
        parts.append(f"accuracy {one.accuracy:.1%}")
    if one.logp_chosen is not None:
        gain = "" if one.chosen_gain is None else f" ({one.chosen_gain:+.2f} against the reference)"
        parts.append(f"log p(chosen) {one.logp_chosen:.1f}{gain}")
    parts.append(f"{amount(one.steps, 'step')}, {counted(one.tokens, 'token')}")
    if one.dropped:
        parts.append(f"{amount(one.dropped, 'example')} longer than the context")
    lines = [f"trained  {name}: {', '.join(parts)}"]
    return lines if one.alarm is None else [*lines, f"alarm    {name}: {one.alarm}"]


def _spent(record: Record) -> list[str]:
    """Time, calls, tokens and money by part; what did not take place is left out."""
    lines = [f"{part} {told}" for part, one in record.spent.items() if (told := _spending(one))]
    return [f"spent    {'; '.join(lines)}"] if lines else []


def _spending(one: Spending) -> str:
    tokens = one.prompt_tokens + one.completion_tokens
    parts = [
        *([] if one.seconds is None else [clock(one.seconds)]),
        *([f"{counted(one.calls, 'call')}"] if one.calls else []),
        *([f"{counted(tokens, 'token')}"] if tokens else []),
        *([f"{one.cost_usd:.2f} USD"] if one.cost_usd else []),
    ]
    return " ".join(parts)


def _success(rate: Success) -> str:
    from collab.evaluation import FEW, FEW_TOLD

    broken = f", {rate.broken} broken" if rate.broken else ""
    few = f" ({FEW_TOLD})" if rate.episodes < FEW else ""
    sampled = f", at {rate.sampled}" if rate.sampled else ""
    solved = f"{rate.successes} of {amount(rate.episodes, 'episode')}"
    return f"{rate.value:.1%} ({_interval(rate)}), {solved}{few}{broken}{sampled}"


def _silent(rate: Success | None, of: str) -> list[str]:
    """Replies without an action, by cause."""
    from collab.evaluation import Replies

    if rate is None or not rate.replies:
        return []
    return [f"replies without an action, {of}: {Replies(total=rate.replies, causes=rate.without_action)}"]


def _interval(rate: Success) -> str:
    return f"{rate.low:.1%} - {rate.high:.1%}"


def _mean(values: Sequence[float | None]) -> float | None:
    """None where there is no value, or not everywhere one."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
