"""What the quick form tells: whether a little training made the team better, and what took how long."""

from __future__ import annotations

from collab.tables import show_difference
from evidence.figures import Spot, difference, rate_cell, table, time_table
from evidence.plan import Plan
from evidence.record import Records

BEFORE, AFTER = (Spot(arm=arm, phase="new-seeds") for arm in ("untrained-team", "full"))


def verdict(plan: Plan, records: Records) -> tuple[str, bool]:
    """In words, and whether the trained team solved more of the same instances.

    Raises:
        ValueError: one of both was not measured.
        UsageError: too many episodes broke.
    """
    found = difference(plan, records, BEFORE, AFTER)
    if found is None:
        raise ValueError("both teams must have been measured")
    rows = [[plan.arms[spot.arm].told, rate_cell(plan, records, spot)] for spot in (BEFORE, AFTER)]
    lines = [
        *table(["", "success in % [95 %] (episodes)"], rows),
        "",
        f"difference in points {show_difference(found)}",
        "",
        *time_table(plan, records),
    ]
    return "\n".join(lines), found.difference > 0
