"""What the quick form tells: whether a little training made the team better, and what took how long."""

from __future__ import annotations

from collab.evaluation.comparison import compare
from collab.evaluation.metrics import Report, wilson_interval
from collab.evaluation.report import show_difference, show_share
from evidence.figures import filled, report, table
from evidence.plan import Plan
from evidence.record import Records
from evidence.times import time_table, time_words
from evidence.units import phase_of, queue

SURE = 0.9
"""How sure it must be that the team is better: with so few episodes, a training that changes nothing wins by chance."""
BEFORE, AFTER = "untrained-team", "full"


def verdict(plan: Plan, records: Records) -> tuple[str, bool]:
    """In words, and whether the trained team is shown to be better on the same instances.

    It is where the lower bound of the difference, one-sided with `SURE`, lies above 0.

    Raises:
        ValueError: a part of what one of both plays was not measured.
        UsageError: too many episodes broke.
    """
    before, after = (_whole(plan, records, arm) for arm in (BEFORE, AFTER))
    found, sure = compare(before, after), compare(before, after, level=2 * SURE - 1)
    least, better = sure.interval[0], sure.interval[0] > 0
    shown = "better" if better else "not shown better"
    rows = [[plan.arms[arm].told, _rate(told)] for arm, told in ((BEFORE, before), (AFTER, after))]
    lines = [
        *table(["", "success in % [95 %] (episodes)"], rows),
        "",
        f"difference in points {show_difference(found)}, 95 % interval over {found.pairs} paired episodes of "
        f"{found.tasks} tasks; at least {100 * least:+.1f} with {SURE:.0%}: {shown}",
        "",
        *time_table(plan, records, whole=True),
        "",
        *filled(time_words(records)),
    ]
    return "\n".join(lines), better


def _whole(plan: Plan, records: Records, arm: str) -> Report:
    """All that an arm plays, whatever the units."""
    parts = []
    for unit in (one for one in queue(plan) if one.arm == arm and phase_of(plan, one).kind == "eval"):
        if unit not in records or (measured := records[unit].measured) is None:
            raise ValueError(f"{unit}: not measured")
        parts.append(measured)
    episodes = [row for part in parts for row in part.episodes]
    return report(parts[0].model_copy(update={"episodes": episodes}))


def _rate(told: Report) -> str:
    rate = told.planned
    return show_share(
        rate.successes / rate.episodes, wilson_interval(rate.successes, rate.episodes), f"{rate.episodes}"
    )
