"""From the files of finished units to rates, paired differences and tables in Markdown.

    results = Results(plan, records)
    results.format_rate("full/new-seeds")                                       # "69.9 [60.3, 79.2] (3 x 432)"
    results.format_difference("untrained-team/new-seeds", "full/new-seeds")     # "+6.2 [+1.2, +11.5]"
    results.format_difference("rft/new-seeds", "full/new-seeds")                # "+1.0 [-2.1, +4.2], not separable"

A difference whose interval holds 0 is "not separable". A cell without a file says "not measured yet"; one that no
stage of the plan has, a dash. Nothing else stands for a number.

Trained arms have several trainings, one per run seed, that are measured on the same instances. An instance is paired
with itself within a run seed; an arm that is not trained has none and is paired with each of them. Trainings of one arm
behave alike on an instance, so intervals count instances and not what all trainings did on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import mean

from collab.evaluation.comparison import RunComparison, compare_trainings, compute_share_interval
from collab.evaluation.metrics import Report
from collab.evaluation.report import show_difference, show_share
from collab.evidence.plan import EvidenceUnit, Goal, Plan, Spot, split_spot
from collab.evidence.record import MeasuredEpisodes, Records, UnitRecord
from collab.utils.text import format_amount, format_markdown_table

MISSING = "not measured yet"
NOT_PLANNED = "–"


class Results:
    """The finished units of a plan, asked for by spot."""

    def __init__(self, plan: Plan, records: Records) -> None:
        self.plan = plan
        self.records = records
        self._compared: dict[tuple[Spot, ...], RunComparison | None] = {}
        """Several tables show the same comparison, and each takes thousands of draws."""

    # -------------------------------------------------------------------------------------------- what is there

    def of(self, spot: Spot) -> list[UnitRecord]:
        """Return the finished units of a spot."""
        return [self.records[unit] for unit in self.plan.units_of(spot) if unit in self.records]

    def find_measured(self, spot: Spot) -> dict[int | None, MeasuredEpisodes]:
        """Return what was measured of a spot so far, by run seed."""
        found = {record.seed: record.find_measured(split_spot(spot)[1]) for record in self.of(spot)}
        return {seed: measured for seed, measured in found.items() if measured is not None}

    def trainings(self) -> list[UnitRecord]:
        """Return all finished trainings."""
        return [record for record in self.records.values() if record.measured is None]

    # ------------------------------------------------------------------------------------------- rates, differences

    def format_rate(self, spot: Spot) -> str:
        """Return the success of an arm, e.g. "64.4 [54.1, 74.0] (216)"; with the number of run seeds, if some miss."""
        units, done = self.plan.units_of(spot), list(self.find_measured(spot).values())
        if not units or not done:
            return MISSING if units else NOT_PLANNED
        return format_rate(done) + ("" if len(done) == len(units) else f", {len(done)} of {len(units)} seeds")

    def format_difference(self, first: Spot, second: Spot) -> str:
        """Return second minus first in points with its interval, e.g. "+8.1 [+2.0, +14.3]"; see `compare`."""
        if first == second or not all(self.plan.units_of(spot) for spot in (first, second)):
            return NOT_PLANNED
        found = self.compare(first, second)
        return MISSING if found is None else describe_difference(found) + self._seeds_missing(first, second)

    def compare(self, first: Spot, second: Spot, beside: tuple[Spot, Spot] | None = None) -> RunComparison | None:
        """Compare over the instances and run seeds that both have; None while one of them has none.

        Args:
            beside: first and second of another difference that is subtracted, of the same run seeds.

        Raises:
            UsageError: too many episodes broke, or they are of different environments.
        """
        spots = (first, second, *(beside or ()))
        if spots not in self._compared:
            found = self._group_reports(*spots)
            pairs, others = ([(one[at], one[at + 1]) for one in found] for at in (0, len(spots) - 2))
            self._compared[spots] = compare_trainings(pairs, beside=others if beside else None) if found else None
        return self._compared[spots]

    def _group_reports(self, *spots: Spot) -> list[list[Report]]:
        """Return the reports of several arms, a list per run seed; an arm that is not trained is in each of them."""
        known = [{seed: one.report() for seed, one in self.find_measured(spot).items()} for spot in spots]
        seeds = _common_seeds(*known)
        return [[reports[None if None in reports else seed] for reports in known] for seed in seeds]

    def pool_arm(self, arm: str) -> Report:
        """Return the report of all that an arm plays, whatever the units; ValueError where a part is not measured."""
        parts = []
        for unit in (one for one in self.plan.units if one.arm == arm and not self.plan.is_training(one)):
            if unit not in self.records or (measured := self.records[unit].measured) is None:
                raise ValueError(f"{unit}: not measured")
            parts.append(measured)
        episodes = [row for part in parts for row in part.episodes]
        return parts[0].model_copy(update={"episodes": episodes}).report()

    def _seeds_missing(self, *spots: Spot) -> str:
        """Say with how many run seeds several arms are compared; empty with all, or with none of them."""
        seeds = _common_seeds(*(self.find_measured(spot) for spot in spots))
        total = len(_common_seeds(*([unit.seed for unit in self.plan.units_of(spot)] for spot in spots)))
        return "" if None in seeds or len(seeds) == total else f", {len(seeds)} of {total} seeds"

    def format_fallen_table(self, first: Spot, second: Spot, others: Sequence[Spot] = ()) -> str:
        """Return the tasks that an arm solves less often than another one, in percent, the largest fall first.

        A mean hides them. Empty while one arm is not measured; with few instances, a fall of one task may be chance.

        Args:
            first: the arm that solves more.
            second: the arm that solves less.
            others: arms that are told beside them.
        """
        before, after, *beside = (self._find_task_shares(spot) for spot in (first, second, *others))
        fallen = sorted((after[name] - before[name], name) for name in before.keys() & after.keys())
        fallen = [(fall, name) for fall, name in fallen if fall < 0]
        if not fallen:
            return ""
        labels = [self.plan.get_label(spot) for spot in (first, second, *others)]
        rows = []
        for fall, name in fallen:
            told = [f"{shares[name]:.0f}" if name in shares else MISSING for shares in beside]
            rows.append([name, f"{before[name]:.0f}", f"{after[name]:.0f}", f"{fall:+.0f}", *told])
        return format_markdown_table(["task", *labels[:2], "points", *labels[2:]], rows)

    def _find_task_shares(self, spot: Spot) -> dict[str, float]:
        """Return the success of an arm by task, in percent over all its trainings; empty while it is not measured."""
        counts = dict[str, list[int]]()
        for report in (one.report() for one in self.find_measured(spot).values()):
            for task in report.by_task:
                own = counts.setdefault(task.name, [0, 0])
                own[0] += task.planned.successes
                own[1] += task.planned.episodes
        return {name: 100 * solved / played for name, (solved, played) in counts.items() if played}

    def list_unsolved(self, arms: Iterable[str], phase: str) -> list[str]:
        """Return the tasks that were measured and solved by none of these arms; sorted."""
        played, solved = set[str](), set[str]()
        for measured in (one for arm in arms for one in self.find_measured(f"{arm}/{phase}").values()):
            played |= {task for task, *_ in measured.episodes}
            solved |= {task for task, _, _, success, *_ in measured.episodes if success}
        return sorted(played - solved)

    # ------------------------------------------------------------------------------------------------------- goals

    def format_goal_table(self) -> str:
        """Return a line per goal; UsageError where results cannot be compared."""
        rows = []
        for goal in self.plan.goals.values():
            found = self.compare(goal.first, goal.second, goal.beside)
            if found is None:
                rows.append([goal.label, MISSING, ""])
            else:
                missing = self._seeds_missing(goal.first, goal.second, *(goal.beside or ()))
                so_far = " so far" if missing else ""
                words = judge_goal(goal, found, so_far)
                if goal.in_each:
                    pairs = self._group_reports(goal.first, goal.second)
                    above = sum(compare_trainings([(one, other)]).difference > 0 for one, other in pairs)
                    told = f"{above} of {format_amount(len(pairs), 'training')} above 0"
                    words = f"{words if above == len(pairs) else f'**not reached{so_far}**'}; {told}"
                rows.append([goal.label, describe_difference(found) + missing, words])
        return format_markdown_table(["wanted", "measured", ""], rows)

    # ----------------------------------------------------------------------------------------------- tables by arm

    def format_arm_table(
        self, arms: Iterable[str], phases: Sequence[str], against: str, head: str = "difference", sign: int = 1
    ) -> str:
        """Return arms by phases: success, and the difference to another arm.

        Args:
            arms: names; those that the plan lacks are left out.
            phases: names.
            against: the other arm.
            head: of the columns of differences.
            sign: -1 for the other arm minus this one.
        """
        heads = ["", *(text for phase in phases for text in (self.plan.phases[phase].label, head))]
        rows = []
        for arm in (one for one in arms if one in self.plan.arms):
            cells = [self.plan.arms[arm].label]
            for phase in phases:
                own, other = f"{arm}/{phase}", f"{against}/{phase}"
                cells += [self.format_rate(own), self.format_difference(*((other, own) if sign > 0 else (own, other)))]
            rows.append(cells)
        return format_markdown_table(heads, rows)

    def format_seed_table(self, trains: str, plays: str) -> str:
        """Return every training by itself: the epoch that is played, and its success.

        Args:
            trains: phase of the training.
            plays: phase that measures it.
        """
        rows = [
            [arm.label, *(self._describe_training(name, seed, trains, plays) for seed in self.plan.seeds)]
            for name, arm in self.plan.trained.items()
        ]
        return format_markdown_table(["run seed", *(str(seed) for seed in self.plan.seeds)], rows)

    def format_epoch_table(self, arms: Iterable[str], phase: str, epochs: Sequence[int]) -> str:
        """Return, for trained arms, success on their own held-out seeds behind some epochs, and step accuracy there."""
        rows = []
        for arm in arms:
            label, spot = self.plan.arms[arm].label, f"{arm}/{phase}"
            rows.append([label, *(self.format_rate(f"{spot}@{epoch}") for epoch in epochs)])
            found = [
                [one.step_accuracy for done in self.of(spot) for one in done.epochs if one.epoch == epoch]
                for epoch in epochs
            ]
            known = [[one for one in own if one is not None] for own in found]
            if any(known):
                rows.append([f"{label}, step accuracy", *(f"{mean(own):.0f}" if own else NOT_PLANNED for own in known)])
        return format_markdown_table(["", *(f"epoch {epoch}" for epoch in epochs)], rows)

    def format_apart_table(self, spots: Sequence[Spot], wanted: float) -> str:
        """Return, by arm, the percent of groups or states that told replies apart, in each training."""
        rows = []
        for spot in spots:
            shares = [done.share_apart for done in self.of(spot) if done.share_apart is not None]
            judged = ("reached" if min(shares) >= wanted else "missed") if shares else MISSING
            told = ", ".join(f"{share:.1f}" for share in shares)
            rows.append([self.plan.get_label(spot), told, judged])
        return format_markdown_table(["", "percent, by training", f"wanted {wanted:g}"], rows)

    def _describe_training(self, arm: str, seed: int, trains: str, plays: str) -> str:
        units = [EvidenceUnit(arm=arm, seed=seed, phase=phase) for phase in (trains, plays)]
        training, played = map(self.records.get, units)
        missing = [MISSING if unit in self.plan.units else NOT_PLANNED for unit in units]
        if training is None:
            return missing[0]
        epoch = training.best if self.plan.played == "best" else training.epochs[-1].epoch
        idle = [str(one.epoch) for one in training.epochs if one.epoch and not one.weights]
        nothing = f", nothing trained in epoch {' and '.join(idle)}" if idle else ""
        measured = missing[1] if played is None or played.measured is None else format_rate([played.measured])
        return f"epoch {epoch}, {training.steps} steps{nothing}: {measured}"

    # ------------------------------------------------------------------------------------------------ every unit

    def format_units(self) -> str:
        """Return a table of what each unit took, left and was computed by, and a list of the machines.

        What took longer than it should is bold. Episodes that broke are told between the two.
        """
        rows, machines = [], dict[str, int]()
        for unit, record in self.records.items():
            minutes = f"{record.seconds.whole / 60:.0f}"
            hashes = ", ".join(f"{name} `{digest[:12]}`" for name, digest in record.hashes.items())
            code = ", ".join(f"`{one[:12]}`" for one in record.code)
            rows.append(
                [
                    f"[{unit}](results/units/{unit}.json)",
                    f"**{minutes}**" if self._is_long(record) else minutes,
                    hashes,
                    code,
                    str(machines.setdefault(_describe_machine(record.machine), len(machines) + 1)),
                ]
            )
        table = format_markdown_table(["unit", "minutes", "run hash", "code", "machine"], rows)
        listed = "\n".join(f"- {number}: {machine}" for machine, number in machines.items())
        return "\n\n".join([table, *self._list_broken(), listed])

    def _list_broken(self) -> list[str]:
        """Return a sentence for each evaluation of which episodes broke, which counts them as not solved."""
        told = []
        for unit, record in self.records.items():
            rows = [] if record.measured is None else record.measured.episodes
            causes = [cause for *_, cause in rows if cause is not None]
            if causes:
                names = ", ".join(sorted(set(causes)))
                told.append(
                    f"Broken episodes of {unit}: {len(causes)} of {len(rows)} ({names}), counted as not solved."
                )
        return told

    def list_long_units(self) -> list[str]:
        """Return the names of units that took longer than units are meant to."""
        return [unit.name for unit, record in self.records.items() if self._is_long(record)]

    def _is_long(self, record: UnitRecord) -> bool:
        return record.seconds.whole / 60 > self.plan.most_minutes

    def list_commands(self) -> list[str]:
        """Return the commands that were given, once for trainings that differ in their run seed alone."""
        alike: dict[str, list[tuple[int | None, str]]] = {}
        for unit, record in self.records.items():
            any_seed = re.sub(rf"(--seed |/seed-){unit.seed}\b", r"\1$seed", record.command)
            alike.setdefault(any_seed, []).append((unit.seed, record.command))
        return [
            f"$ {given[0][1]}"
            if len(given) == 1
            else f"$ for seed in {' '.join(sorted(str(seed) for seed, _ in given))}; do {command}; done"
            for command, given in alike.items()
        ]


def format_rate(measured: Sequence[MeasuredEpisodes]) -> str:
    """Return success in percent, its 95 % interval and how many episodes, e.g. "70.1 [60.3, 79.2] (3 x 432)".

    The interval resamples tasks, then their instances, each with the mean of all trainings (`compute_share_interval`).

    Args:
        measured: evaluations of one arm on the same instances, at least one.
    """
    outcomes = dict[str, dict[tuple[int, int], list[bool]]]()
    for task, seed, most, success, *_ in (row for one in measured for row in one.episodes):
        outcomes.setdefault(task, {}).setdefault((seed, most), []).append(success)
    by_task = [[mean(each) for each in instances.values()] for instances in outcomes.values()]
    share, episodes = mean(chain(*by_task)), mean(len(one.episodes) for one in measured)
    count = f"{episodes:g}" if len(measured) == 1 else f"{len(measured)} x {episodes:g}"
    return show_share(share, compute_share_interval(by_task), count)


def describe_difference(found: RunComparison) -> str:
    """Return a difference in points with its interval, and that it is not separable where the interval holds 0."""
    return show_difference(found) + ("" if found.is_separable else ", not separable")


def judge_goal(goal: Goal, found: RunComparison, so_far: str = "") -> str:
    """Say whether a goal was reached: undecided if its limit is 0, the difference meets it and the interval holds 0.

    Args:
        goal: which.
        found: what was measured.
        so_far: added where more is to be measured.
    """
    if not goal.is_reached(found):
        return f"**not reached{so_far}**"
    if not found.is_separable and not any((goal.at_least, goal.at_most, goal.more_than)):
        return f"undecided{so_far}: 0 lies in the interval"
    ends = {word: replace(found, difference=end) for word, end in zip(("less", "more"), found.interval, strict=True)}
    open_to = [word for word, end in ends.items() if not goal.is_reached(end)]
    return f"reached{so_far}" + (f"; {open_to[0]} lies in the interval, too" if open_to else "")


def _common_seeds(*several: Iterable[int | None]) -> list[int | None]:
    """Return the run seeds of all; None, which stands for an arm that is not trained, goes with every seed.

    It is [None] where no arm is trained, and empty where one has none.
    """
    known = [list(one) for one in several]
    trained = [one for one in known if None not in one] or known[:1]
    return [seed for seed in trained[0] if all(seed in one for one in trained)]


def _describe_machine(machine: Mapping[str, str | int | None]) -> str:
    threads = machine["threads"]
    words = [
        f"{machine['processors']} processors",
        str(machine.get("model") or ""),
        "" if threads is None else f"{threads} thread{'s' if threads != '1' else ''} a process",
        f"preloaded {machine['preloaded']}" if machine.get("preloaded") else "",
    ]
    return (
        f"{', '.join(filter(None, words))}, {machine['system']}, Python {machine['python']}, torch {machine['torch']}"
    )
