"""From the files of units to rates, paired differences and tables in Markdown.

A cell without a file says "not measured yet"; one that no stage of the plan has, a dash. Nothing else stands for a
number.

Trained arms have several trainings, one per run seed, that are measured on the same instances. An instance is paired
with itself within a run seed; an arm that is not trained has none and is paired with each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from collab.comparison import Comparison, compare
from collab.evaluation import EpisodeResult, Report, summarise
from collab.seeds import derive
from collab.tables import show_difference, show_rate
from evidence.plan import Plan
from evidence.record import Records, UnitRecord
from evidence.units import Unit, queue

MISSING = "not measured yet"
NOT_PLANNED = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """An arm in a phase, over all run seeds."""

    arm: str
    phase: str


def units_of(plan: Plan, spot: Spot) -> list[Unit]:
    """Its units; empty where no stage has it."""
    return [unit for unit in queue(plan) if (unit.arm, unit.phase) == (spot.arm, spot.phase)]


def records_of(plan: Plan, records: Records, spot: Spot) -> list[UnitRecord]:
    """Those of its units that are done."""
    return [records[unit] for unit in units_of(plan, spot) if unit in records]


def report(records: Sequence[UnitRecord], seeds: Sequence[int | None]) -> Report:
    """One report of several units, an instance told apart by its training's run seed.

    Args:
        records: of evaluations of one arm in one phase, at least one.
        seeds: run seeds for which an arm that is not trained stands; ignored where units have their own.
    """
    measured = [(one.measured, [one.seed] if one.seed is not None else seeds) for one in records if one.measured]
    first = measured[0][0]
    results = [_of_seed(result, seed) for where, own in measured for seed in own for result in where.results]
    return summarise(results, environment=first.environment, environment_version=first.version, privileged=False)


def _of_seed(result: EpisodeResult, seed: int | None) -> EpisodeResult:
    return result if seed is None else replace(result, seed=derive(result.seed, "training with seed", seed))


def difference(plan: Plan, records: Records, first: Spot, second: Spot, *, level: float = 0.95) -> Comparison | None:
    """Second minus first over the instances and run seeds that both have; None while one of them has none.

    Args:
        level: of the interval.

    Raises:
        UsageError: too many episodes broke, or they are of different environments.
    """
    one, other = (records_of(plan, records, spot) for spot in (first, second))
    seeds = _common([record.seed for record in one], [record.seed for record in other])
    one, other = (_with(seeds, those) for those in (one, other))
    if not one or not other:
        return None
    return compare(report(one, seeds), report(other, seeds), level=level)


def _common(one: Iterable[int | None], other: Iterable[int | None]) -> list[int | None]:
    """Run seeds of both; None, which stands for an arm that is not trained, goes with every seed."""
    first, second = list(one), list(other)
    if None in first:
        return second
    return first if None in second else [seed for seed in first if seed in second]


def _with(seeds: Sequence[int | None], records: Iterable[UnitRecord]) -> list[UnitRecord]:
    return [record for record in records if record.seed is None or record.seed in seeds]


def rate_cell(plan: Plan, records: Records, spot: Spot) -> str:
    """Success of an arm, e.g. "64.4 [57.8, 70.4] (216)", with the number of run seeds where some are missing."""
    units = units_of(plan, spot)
    if not units:
        return NOT_PLANNED
    done = records_of(plan, records, spot)
    if not done:
        return MISSING
    partly = "" if len(done) == len(units) else f", {len(done)} of {len(units)} seeds"
    return show_rate(report(done, [None]).planned) + partly


def difference_cell(plan: Plan, records: Records, first: Spot, second: Spot) -> str:
    """Second minus first in points with its interval, e.g. "+8.1 [+2.0, +14.3]"."""
    if first == second or not units_of(plan, first) or not units_of(plan, second):
        return NOT_PLANNED
    found = difference(plan, records, first, second)
    return MISSING if found is None else show_difference(found) + partly(plan, records, first, second)


def partly(plan: Plan, records: Records, first: Spot, second: Spot) -> str:
    """With how many run seeds two arms are compared, e.g. ", 2 of 3 seeds"; empty with all, or with none of them."""
    seeds = _common(*([record.seed for record in records_of(plan, records, spot)] for spot in (first, second)))
    return "" if None in seeds or len(seeds) == len(plan.seeds) else f", {len(seeds)} of {len(plan.seeds)} seeds"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def main_table(plan: Plan, records: Records) -> list[str]:
    """Arms by places, as the paper's table 1; differences to the untrained team."""
    base, phases = "untrained-team", tuple(PLACES)
    heads = ["", *(head for phase in phases for head in (PLACES[phase], "difference"))]
    arms = ("untrained-single", base, "single-agent", "paper", "full")
    rows = [_line(plan, records, arm, phases, against=base) for arm in arms if arm in plan.arms]
    return table(heads, rows)


def ablation_table(plan: Plan, records: Records) -> list[str]:
    """What is left without each part, as the paper's table 3; differences are the full method minus the line."""
    heads = ["", PLACES["new-seeds"], "full method better by"]
    arms = [name for name, arm in plan.arms.items() if arm.method is not None]
    return table(heads, [_line(plan, records, arm, ("new-seeds",), against="full", turned=True) for arm in arms])


def transfer_table(plan: Plan, records: Records) -> list[str]:
    """Direct transfer and continual training of the full method, and what it forgot."""
    base = Spot(arm="untrained-team", phase="pages")
    spots = [
        (base, Spot(arm="untrained-team", phase="new-seeds")),
        (Spot(arm="full", phase="pages"), Spot(arm="full", phase="new-seeds")),
        (Spot(arm="full", phase="pages-continued"), Spot(arm="full", phase="new-seeds-continued")),
    ]
    rows = [
        [
            name,
            rate_cell(plan, records, web),
            difference_cell(plan, records, base, web),
            rate_cell(plan, records, phone),
        ]
        for name, (web, phone) in zip(("team of four, untrained", "direct", "continual"), spots, strict=True)
    ]
    lines = table(["full method", PLACES["pages"], "Δ_generalization", PLACES["new-seeds"]], rows)
    (_, _), (web, phone), (web_after, phone_after) = spots
    gained = difference_cell(plan, records, web, web_after)
    forgotten = difference_cell(plan, records, phone_after, phone)
    return [*lines, "", f"- Gained on the pages by training there: {gained}", f"- Forgotten on the phone: {forgotten}"]


PLACES = {
    "new-seeds": "phone, new seeds",
    "new-seeds-cold": "the same, sampled cold",
    "unseen-tasks": "phone, unseen tasks",
    "pages": "mobile-miniwob",
}
"""Phase → head of a column."""


def _line(
    plan: Plan, records: Records, arm: str, phases: Iterable[str], *, against: str, turned: bool = False
) -> list[str]:
    cells = [plan.arms[arm].told]
    for phase in phases:
        own, other = Spot(arm=arm, phase=phase), Spot(arm=against, phase=phase)
        both = (own, other) if turned else (other, own)
        cells += [rate_cell(plan, records, own), difference_cell(plan, records, *both)]
    return cells


def seed_table(plan: Plan, records: Records) -> list[str]:
    """Every training by itself: the epoch that is played, and success on new seeds."""
    heads = ["run seed", *(str(seed) for seed in plan.seeds)]
    arms = [name for name, arm in plan.arms.items() if arm.method is not None]
    rows = [[plan.arms[arm].told, *(_training(plan, records, arm, seed) for seed in plan.seeds)] for arm in arms]
    return table(heads, rows)


def _training(plan: Plan, records: Records, arm: str, seed: int) -> str:
    training = records.get(Unit(arm=arm, seed=seed, phase="train"))
    played = records.get(Unit(arm=arm, seed=seed, phase="new-seeds"))
    if training is None:
        return MISSING
    epoch = training.best if plan.played == "best" else training.epochs[-1].epoch
    told = f"epoch {epoch}, {training.steps} steps"
    return f"{told}: {MISSING if played is None else show_rate(report([played], [None]).planned)}"


def likelihood_table(plan: Plan, records: Records) -> list[str]:
    """What every training did to chosen replies, epoch by epoch; empty where none compares with a reference."""
    done = {unit: one for unit, one in records.items() if any(epoch.chosen_gain is not None for epoch in one.epochs)}
    last = max((epoch.epoch for one in done.values() for epoch in one.epochs), default=0)
    rows = [
        [f"{plan.arms[unit.arm].told}, {unit.phase}, run seed {unit.seed}", *_gains(one, last)]
        for unit, one in done.items()
    ]
    return table(["", *(f"epoch {number}" for number in range(1, last + 1))], rows) if rows else []


def _gains(record: UnitRecord, last: int) -> list[str]:
    told = {
        one.epoch: f"{one.chosen_gain:+.2f}{', alarm' if one.alarm else ''}"
        for one in record.epochs
        if one.chosen_gain is not None
    }
    return [told.get(number, NOT_PLANNED) for number in range(1, last + 1)]


def time_table(plan: Plan, records: Records, *, whole: bool = False) -> list[str]:
    """What the trainings took, in the mean of their run seeds, by part.

    Args:
        whole: whether a last line tells all units together; evaluations have no critic, adversary or training.
    """
    rows = []
    for arm in (name for name, one in plan.arms.items() if one.method is not None):
        done = records_of(plan, records, Spot(arm=arm, phase="train"))
        rows.append([plan.arms[arm].told, *(_shares(done, len(done)) if done else [MISSING] * 7)])
    if whole:
        rows.append(["the whole loop", *_shares(list(records.values()), 1)])
    return table(_TIMES, rows)


_TIMES = ("", "minutes", "environment", "inference", "critic", "adversary", "training", "other")
_LEARNING = ("critic", "adversary", "training")


def _shares(records: Sequence[UnitRecord], times: int) -> list[str]:
    """Minutes of each of so many times, then the parts' shares."""
    whole = sum(record.seconds.whole for record in records)
    sums = [_seconds(records, name) for name in _TIMES[2:-1]]
    told = [seconds for seconds in sums if seconds is not None]
    rest = f"{(whole - sum(told)) / whole:.0%}" if len(told) == len(sums) else "not told"
    shares = ["not told" if seconds is None else f"{seconds / whole:.0%}" for seconds in sums]
    return [f"{whole / 60 / times:.0f}", *shares, rest]


def _seconds(records: Sequence[UnitRecord], part: str) -> float | None:
    """Of one part; None where a unit that has it does not tell."""
    having = [record for record in records if record.measured is None or part not in _LEARNING]
    parts = [getattr(record.seconds, part) for record in having]
    return None if None in parts else sum(parts)
