"""What the quick form tells: whether a little training made the team better, and what took how long."""

from __future__ import annotations

from collab.tables import show_difference
from evidence.figures import Spot, difference, rate_cell, table, time_table
from evidence.plan import Plan
from evidence.record import Records

SURE = 0.9
"""How sure it must be that the team is better: with so few episodes, a training that changes nothing wins by chance."""
BEFORE, AFTER = (Spot(arm=arm, phase="new-seeds") for arm in ("untrained-team", "full"))


def verdict(plan: Plan, records: Records) -> tuple[str, bool]:
    """In words, and whether the trained team is shown to be better on the same instances.

    It is where the lower bound of the difference, one-sided with `SURE`, lies above 0.

    Raises:
        ValueError: one of both was not measured.
        UsageError: too many episodes broke.
    """
    found = difference(plan, records, BEFORE, AFTER)
    sure = difference(plan, records, BEFORE, AFTER, level=2 * SURE - 1)
    if found is None or sure is None:
        raise ValueError("both teams must have been measured")
    least, better = sure.interval[0], sure.interval[0] > 0
    shown = "better" if better else "not shown better"
    rows = [[plan.arms[spot.arm].told, rate_cell(plan, records, spot)] for spot in (BEFORE, AFTER)]
    lines = [
        *table(["", "success in % [95 %] (episodes)"], rows),
        "",
        f"difference in points {show_difference(found)}, 95 % interval over {found.pairs} paired episodes of "
        f"{found.tasks} tasks; at least {100 * least:+.1f} with {SURE:.0%}: {shown}",
        "",
        *time_table(plan, records, whole=True),
    ]
    return "\n".join(lines), better
