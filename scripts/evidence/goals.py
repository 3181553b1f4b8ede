"""What was wanted before anything was measured, and what became of it, whichever way it falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from collab.evaluation.comparison import RunComparison
from collab.evaluation.report import show_difference
from evidence.figures import (
    MISSING,
    PLACES,
    Spot,
    difference,
    difference_cell,
    difference_to_plays,
    filled,
    partly,
    table,
    units_of,
)
from evidence.plan import OTHER_SAMPLING, Plan
from evidence.record import Records

Wanted = Callable[[RunComparison], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A difference that was wanted."""

    told: str
    first: Spot
    second: Spot
    """The difference is second minus first."""
    reached: Wanted


def goals(plan: Plan) -> list[Goal]:
    """All of them."""
    trained = [name for name, arm in plan.arms.items() if arm.method is not None and name != "full"]
    return [*_training(), *(_over(plan, name) for name in trained), *_transfer()]


def _training() -> list[Goal]:
    return [
        Goal(
            told="full method over the untrained team, new seeds: 8 points or more, interval above 0",
            first=Spot(arm="untrained-team", phase="new-seeds"),
            second=Spot(arm="full", phase="new-seeds"),
            reached=lambda found: found.difference >= 0.08 and found.interval[0] > 0,
        ),
        Goal(
            told="full method over the untrained team, unseen tasks: more than 0",
            first=Spot(arm="untrained-team", phase="unseen-tasks"),
            second=Spot(arm="full", phase="unseen-tasks"),
            reached=lambda found: found.difference > 0,
        ),
    ]


def _over(plan: Plan, arm: str) -> Goal:
    return Goal(
        told=f"full method over “{plan.arms[arm].told}”, new seeds: 0 or more",
        first=Spot(arm=arm, phase="new-seeds"),
        second=Spot(arm="full", phase="new-seeds"),
        reached=lambda found: found.difference >= 0,
    )


def _transfer() -> list[Goal]:
    return [
        Goal(
            told="training on the pages, success there: 10 points or more",
            first=Spot(arm="full", phase="pages"),
            second=Spot(arm="full", phase="pages-continued"),
            reached=lambda found: found.difference >= 0.1,
        ),
        Goal(
            told="training on the pages, forgotten on the phone: 3 points at most",
            first=Spot(arm="full", phase="new-seeds-continued"),
            second=Spot(arm="full", phase="new-seeds"),
            reached=lambda found: found.difference <= 0.03,
        ),
    ]


def goal_table(plan: Plan, records: Records) -> list[str]:
    """A line per goal; UsageError where results cannot be compared."""
    return table(["wanted", "measured", ""], [_line(goal, plan, records) for goal in goals(plan)])


def is_missed(goal: Goal, plan: Plan, records: Records) -> bool:
    """Whether it was measured and not reached; UsageError where results cannot be compared."""
    found = difference(plan, records, goal.first, goal.second)
    return found is not None and not goal.reached(found)


def beside(plan: Plan, records: Records) -> list[str]:
    """Comparisons not aimed at: with one agent where both play, too, and with other plays of the untrained team."""
    lines = []
    for phase in BESIDE:
        one, full = (Spot(arm=arm, phase=phase) for arm in ("single-agent", "full"))
        told = f"full method over “{plan.arms[one.arm].told}”, {PLACES[phase]}"
        lines.append(f"- {told}: {difference_cell(plan, records, one, full)}")
    return ["Beyond the goals:", "", *lines, *_other_plays(plan, records)]


BESIDE = ("unseen-tasks", "pages")
"""Phases that one agent plays, too, beside `new-seeds`, which is a goal."""


def _other_plays(plan: Plan, records: Records) -> list[str]:
    """What the full method wins over plays with other sampling seeds; nothing where none is planned."""
    _, *others = plays_of_the_untrained(plan)
    if not others:
        return []
    each = [difference_cell(plan, records, spot, _FULL) for spot in others]
    what = f"full method over the untrained team, {PLACES['new-seeds']}, played with other sampling seeds"
    if set(each) == {MISSING}:
        return filled(f"- {what}: {MISSING}", hanging="  ")
    names = ("the mean of these", "the mean of all its runs, including the first")
    found = zip(names, difference_to_means(plan, records), strict=True)
    return [
        *filled(f"- {what} (intervals describe other tasks and instances, not other runs):", hanging="  "),
        f"  - each run separately: {', '.join(each)}",
        *(f"  - {name}: {MISSING if one is None else show_difference(one)}" for name, one in found),
    ]


_FULL = Spot(arm="full", phase="new-seeds")


def difference_to_means(plan: Plan, records: Records) -> tuple[RunComparison | None, RunComparison | None]:
    """Full method minus the mean of the untrained team's later plays, and of all; None until all units are done."""
    first, *others = plays_of_the_untrained(plan)
    later, every = (difference_to_plays(plan, records, plays, _FULL) for plays in (others, [first, *others]))
    return later, every


def plays_of_the_untrained(plan: Plan) -> list[Spot]:
    """On new seeds, of the plan: the one that goals are judged by, then those with other sampling seeds."""
    spots = (Spot(arm="untrained-team", phase=phase) for phase in ("new-seeds", *OTHER_SAMPLING))
    return [spot for spot in spots if units_of(plan, spot)]


def _line(goal: Goal, plan: Plan, records: Records) -> list[str]:
    found = difference(plan, records, goal.first, goal.second)
    if found is None:
        return [goal.told, MISSING, ""]
    part = partly(plan, records, goal.first, goal.second)
    return [goal.told, show_difference(found) + part, verdict(goal, found, " so far" if part else "")]


def verdict(goal: Goal, found: RunComparison, so_far: str = "") -> str:
    """Whether it was reached; where the interval of what would count as reached holds 0, that it is not separable.

    Args:
        so_far: said behind it where more is to be measured.
    """
    if not goal.reached(found):
        return f"**not reached{so_far}**"
    if found.interval[0] <= 0 <= found.interval[1]:
        return f"not separable from 0{so_far}"
    ends = {word: replace(found, difference=end) for word, end in zip(("less", "more"), found.interval, strict=True)}
    open_to = [word for word, end in ends.items() if not goal.reached(end)]
    return f"reached{so_far}" + (f"; {open_to[0]} lies in the interval, too" if open_to else "")
