"""From the files of units to rates, paired differences and tables in Markdown.

A cell without a file says "not measured yet"; one that no stage of the plan has, a dash. Nothing else stands for a
number.

Trained arms have several trainings, one per run seed, that are measured on the same instances. An instance is paired
with itself within a run seed; an arm that is not trained has none and is paired with each of them. Trainings of one arm
do alike on an instance, so intervals count instances and not what all trainings did on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from textwrap import wrap

from collab.evaluation.comparison import RunComparison, compare_trainings
from collab.evaluation.metrics import Report, summarise, wilson_interval
from collab.evaluation.report import show_difference, show_share
from evidence.plan import PAGES, TRAINED_PAGES, Plan
from evidence.record import Measured, Records, UnitRecord
from evidence.units import Unit, queue

MISSING = "not measured yet"
NOT_PLANNED = "–"
WIDTH = 120
"""Characters of a line of prose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """An arm in a phase, over all run seeds."""

    arm: str
    phase: str


def units_of(plan: Plan, spot: Spot) -> list[Unit]:
    """Its units; empty where no stage has it."""
    return [unit for unit in queue(plan) if (unit.arm, unit.phase) == (spot.arm, spot.phase)]


def is_done(plan: Plan, records: Records, spots: Iterable[Spot]) -> bool:
    """Whether all units of all spots are."""
    return all(unit in records for spot in spots for unit in units_of(plan, spot))


def records_of(plan: Plan, records: Records, spot: Spot) -> list[UnitRecord]:
    """Those of its units that are done."""
    return [records[unit] for unit in units_of(plan, spot) if unit in records]


def report(measured: Measured, tasks: Collection[str] | None = None) -> Report:
    """The report of a unit that is an evaluation; of all its tasks, or of some."""
    results = [one for one in measured.results if tasks is None or one.task in tasks]
    return summarise(results, environment=measured.environment, environment_version=measured.version, privileged=False)


def difference(
    plan: Plan,
    records: Records,
    first: Spot,
    second: Spot,
    *,
    tasks: Collection[str] | None = None,
    level: float = 0.95,
) -> RunComparison | None:
    """Second minus first over the instances and run seeds that both have; None while one of them has none.

    Args:
        tasks: over which; None for all.
        level: of the interval.

    Raises:
        UsageError: too many episodes broke, or they are of different environments.
    """
    one, other = (
        {record.seed: report(record.measured, tasks) for record in records_of(plan, records, spot) if record.measured}
        for spot in (first, second)
    )
    seeds = _common(one, other)
    pairs = [(one.get(seed, one.get(None)), other.get(seed, other.get(None))) for seed in seeds]
    both = [(before, after) for before, after in pairs if before is not None and after is not None]
    return compare_trainings(both, level=level) if both else None


def difference_to_plays(plan: Plan, records: Records, first: Sequence[Spot], second: Spot) -> RunComparison | None:
    """Second minus the mean of several plays of an arm on the same instances; None until all units of both are done.

    Every play is paired with every training; an instance counts once in the interval, as ever.

    Raises:
        UsageError: as `difference` does.
    """
    if not is_done(plan, records, (*first, second)):
        return None
    before = [one for spot in first for one in records_of(plan, records, spot)]
    pairs = product(before, records_of(plan, records, second))
    both = [(report(one.measured), report(other.measured)) for one, other in pairs if one.measured and other.measured]
    return compare_trainings(both) if both else None


def _common(one: Iterable[int | None], other: Iterable[int | None]) -> list[int | None]:
    """Run seeds of both; None, which stands for an arm that is not trained, goes with every seed."""
    first, second = list(one), list(other)
    if None in first:
        return second
    return first if None in second else [seed for seed in first if seed in second]


def rate_cell(plan: Plan, records: Records, spot: Spot) -> str:
    """Success of an arm, e.g. "64.4 [57.8, 70.4] (216)"; see `rate_of`. With the number of run seeds, if some miss."""
    units = units_of(plan, spot)
    if not units:
        return NOT_PLANNED
    done = records_of(plan, records, spot)
    if not done:
        return MISSING
    partly = "" if len(done) == len(units) else f", {len(done)} of {len(units)} seeds"
    return rate_of(done) + partly


def rate_of(records: Sequence[UnitRecord]) -> str:
    """Success in percent, its 95 % Wilson interval and how many episodes, e.g. "70.1 [65.6, 74.2] (3 x 432)".

    The interval is that of one training that was measured on as many instances with the mean of the successes.

    Args:
        records: evaluations of one arm on the same instances, at least one.
    """
    rates = [report(one.measured).planned for one in records if one.measured]
    successes = sum(rate.successes for rate in rates) / len(rates)
    episodes = sum(rate.episodes for rate in rates) / len(rates)
    count = f"{episodes:g}" if len(rates) == 1 else f"{len(rates)} x {episodes:g}"
    return show_share(successes / episodes, wilson_interval(successes, episodes), count)


def difference_cell(
    plan: Plan, records: Records, first: Spot, second: Spot, tasks: Collection[str] | None = None
) -> str:
    """Second minus first in points with its interval, e.g. "+8.1 [+2.0, +14.3]"; over all tasks, or over some."""
    if first == second or not units_of(plan, first) or not units_of(plan, second):
        return NOT_PLANNED
    found = difference(plan, records, first, second, tasks=tasks)
    return MISSING if found is None else show_difference(found) + partly(plan, records, first, second)


def partly(plan: Plan, records: Records, first: Spot, second: Spot) -> str:
    """With how many run seeds two arms are compared, e.g. ", 2 of 3 seeds"; empty with all, or with none of them."""
    seeds = _common(*([record.seed for record in records_of(plan, records, spot)] for spot in (first, second)))
    return "" if None in seeds or len(seeds) == len(plan.seeds) else f", {len(seeds)} of {len(plan.seeds)} seeds"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def filled(text: str, hanging: str = "") -> list[str]:
    """Lines of prose.

    Args:
        hanging: what lines behind the first begin with.
    """
    return wrap(text, WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


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


def cold_table(plan: Plan, records: Records) -> list[str]:
    """Every arm, played hot and cold where it was, against the untrained team played cold."""
    untrained = Spot(arm="untrained-team", phase="new-seeds-cold")
    rows = []
    for name, arm in plan.arms.items():
        for phase, how in (("new-seeds", "hot"), ("new-seeds-cold", "cold")):
            spot = Spot(arm=name, phase=phase)
            found = None if spot == untrained else difference(plan, records, untrained, spot)
            if found is None:
                continue
            low, high = found.interval
            said = "not separable" if low <= 0 <= high else "higher" if low > 0 else "lower"
            rows.append([f"{arm.told}, {how}", show_difference(found), said])
    return table(["", "minus the untrained team, cold", ""], rows) if rows else [MISSING]


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
    others = set(PAGES) - set(TRAINED_PAGES)
    gained, on_trained, on_others = (
        difference_cell(plan, records, web, web_after, pages) for pages in (None, TRAINED_PAGES, others)
    )
    return [
        *lines,
        "",
        f"- Gained on the pages by training there: {gained}",
        f"  - of it on the {len(TRAINED_PAGES)} pages that are trained on: {on_trained}",
        f"  - and on the {len(others)} others: {on_others}",
        f"- Forgotten on the phone: {difference_cell(plan, records, phone_after, phone)}",
    ]


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
    idle = [str(one.epoch) for one in training.epochs if one.epoch and not one.weights]
    nothing = f", nothing trained in epoch {' and '.join(idle)}" if idle else ""
    told = f"epoch {epoch}, {training.steps} steps{nothing}"
    return f"{told}: {MISSING if played is None else rate_of([played])}"


def learned_table(plan: Plan, records: Records) -> list[str]:
    """What trainings learned from, how much of it there was in an epoch, and what it changed at which rate."""
    rows = []
    for arm, phase in [*((name, "train") for name, arm in plan.arms.items() if arm.method is not None), _CONTINUED]:
        done = records_of(plan, records, Spot(arm=arm, phase=phase))
        name = plan.arms[arm].told + ("" if phase == "train" else f", {phase}")
        if units_of(plan, Spot(arm=arm, phase=phase)):
            rows.append([name, *(_learned(done) if done else [MISSING] * 4)])
    return table(["", "learns from", "an epoch, mean (least to most)", "changes", "rate"], rows)


_CONTINUED = ("full", "continual")
_LEARNED = {"rft": "rewarded replies", "trajectory-dpo": "pairs of whole episodes"}
"""Objective → what a row of it is; pairs of replies otherwise."""


def _learned(trainings: Sequence[UnitRecord]) -> list[str]:
    """Cells of trainings of one method, at least one."""
    counts = [epoch.pairs for training in trainings for epoch in training.epochs if epoch.epoch]
    many = f"{sum(counts) / len(counts):,.0f} ({min(counts):,} to {max(counts):,})" if counts else NOT_PLANNED
    method = trainings[0].config.get("method")
    if method is None:
        return ["not told", many, "not told", "not told"]
    pairs, recipe = method["pairs"], method["dpo"]
    sources = " and ".join(source for source in ("adversary", "contrast", "correction") if pairs[source])
    lora, norm = recipe["lora"], recipe["final_norm_learning_rate"]
    return [
        _LEARNED.get(method["objective"], f"pairs: {sources}"),
        many,
        "all weights" if lora is None else f"LoRA of rank {lora['rank']}",
        f"{recipe['learning_rate']:g}" + ("" if norm is None else f", last norm {norm:g}"),
    ]


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
