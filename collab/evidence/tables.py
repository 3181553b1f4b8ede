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

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import mean

from collab.evaluation.comparison import RunComparison, compare_trainings, compute_share_interval
from collab.evaluation.metrics import Report
from collab.evaluation.report import show_difference, show_share
from collab.evidence.plan import EvidenceUnit, Goal, Plan, Spot, split_spot
from collab.evidence.record import LEARNING, EpochNumbers, MeasuredEpisodes, Records, UnitRecord
from collab.utils.text import format_amount, format_markdown_table

MISSING = "not measured yet"
NOT_PLANNED = "–"
OTHER_MACHINE = "on another machine"
_DIVIDED = ("environment", "inference")
"""What playing is divided into."""
_VALUING = ("values", "samples")
"""What some algorithms do beside the others' parts."""
_PARTS = ("playing", *_DIVIDED, *LEARNING)
_ALWAYS = [part for part in _PARTS if part not in (*_DIVIDED, *_VALUING)]
"""Parts that a training has to tell, so that what is left beside them can be told."""
_LEARNED = {"rft": "rewarded replies", "trajectory-dpo": "pairs of whole episodes"}
"""Objective → what an example is; pairs of replies otherwise."""


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

    def format_fallen_table(self, first: Spot, second: Spot) -> str:
        """Return the tasks that an arm solves less often than another one, in percent, the largest fall first.

        A mean hides them. Empty while one arm is not measured; with few instances, a fall of one task may be chance.
        """
        rates = dict[str, list[list[int]]]()
        for reports in self._group_reports(first, second):
            for place, report in enumerate(reports):
                for one in report.by_task:
                    counts = rates.setdefault(one.name, [[0, 0], [0, 0]])[place]
                    counts[0] += one.planned.successes
                    counts[1] += one.planned.episodes
        shares = {
            name: [100 * solved / played for solved, played in counts]
            for name, counts in rates.items()
            if all(played for _, played in counts)
        }
        fallen = sorted((after - before, name) for name, (before, after) in shares.items() if after < before)
        if not fallen:
            return ""
        labels = [self.plan.arms[spot.partition("/")[0]].label for spot in (first, second)]
        rows = [[name, *(f"{share:.0f}" for share in shares[name]), f"{fall:+.0f}"] for fall, name in fallen]
        return format_markdown_table(["task", *labels, "points"], rows)

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
                rows.append([goal.label, show_difference(found) + missing, words])
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
            rows.append([self.plan.arms[spot.partition("/")[0]].label, told, judged])
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

    def _training_spots(self) -> list[tuple[str, Spot]]:
        """Return label and spot of all planned kinds of training: the first phase that trains, then the others."""
        phases = [name for name, phase in self.plan.phases.items() if phase.kind != "eval"]
        return [
            (arm.label + ("" if phase == phases[0] else f", {phase}"), f"{name}/{phase}")
            for phase in phases
            for name, arm in self.plan.arms.items()
            if self.plan.units_of(f"{name}/{phase}")
        ]

    def format_learned_table(self) -> str:
        """Return what trainings learned from, how much of it an epoch had, and what it changed in how many steps."""
        rows = [
            [label, *(_describe_learning(done) if (done := self.of(spot)) else [MISSING] * 5)]
            for label, spot in self._training_spots()
        ]
        return format_markdown_table(
            ["", "learns from", "rows of an epoch", "optimizer steps", "changes", "rate"], rows
        )

    def format_likelihood_table(self) -> str:
        """Return what every training did to chosen replies, by epoch; empty where none compares with a reference."""
        rows, done = [], [one for one in self.records.values() if any(_knows_gain(epoch) for epoch in one.epochs)]
        last = max((epoch.epoch for one in done for epoch in one.epochs), default=0)
        for one in done:
            gains = {
                epoch.epoch: f"{epoch.chosen_gain:+.2f}{', alarm' if epoch.alarm else ''}"
                for epoch in one.epochs
                if _knows_gain(epoch)
            }
            label = f"{self.plan.arms[one.arm].label}, {one.phase}, run seed {one.seed}"
            rows.append([label, *(gains.get(number, NOT_PLANNED) for number in range(1, last + 1))])
        return format_markdown_table(["", *(f"epoch {number}" for number in range(1, last + 1))], rows) if rows else ""

    # -------------------------------------------------------------------------------------------------------- times

    @property
    def is_divided(self) -> bool:
        """Return whether a training's file holds how its playing is divided between environments and agents."""
        return any(record.seconds.environment is not None for record in self.trainings())

    @property
    def told_parts(self) -> list[str]:
        """The parts that some training fills; those of all algorithms are told anyhow."""
        unfilled = [part for part in _VALUING if all(getattr(one.seconds, part) == 0 for one in self.trainings())]
        return [part for part in _PARTS if part not in (*(() if self.is_divided else _DIVIDED), *unfilled)]

    def format_time_table(self, whole: bool = False) -> str:
        """Return what trainings took, in the mean of their run seeds, by part.

        Shares are of the trainings whose files hold all parts, in a row that has any. Columns that no training fills
        are left out.

        Args:
            whole: whether a last line holds the sum of all units.
        """
        parts = self.told_parts
        rows = []
        for label, spot in self._training_spots():
            done = self.of(spot)
            full = [one for one in done if all(_sum([one], part) is not None for part in _ALWAYS)]
            full = full or done
            note = "" if len(full) == len(done) else f" (shares: {len(full)} of {len(done)})"
            cells = [_minutes(done, len(done)), *_shares(full, parts)] if done else [MISSING] * (len(parts) + 2)
            rows.append([label + note, *cells])
        if whole:
            every = list(self.records.values())
            rows.append(["all units", _minutes(every, 1), *_shares(every, parts)])
        return format_markdown_table(["", "minutes", *parts, "other"], rows)

    def format_reach_table(self, slow: Spot, fast: Spot, latency: float, wanted: float) -> str:
        """Return, by run seed, when two arms first reached the held-out success that the first one ends with.

        The last column says whether the second one was `wanted` times faster.

        Times are of everything but evaluations, with an environment that takes `latency` times as long as the policy
        that plays in it: a simulated phone takes next to nothing. An arm is "not timed" where the playing of an epoch
        up to there has no recorded time, as one that was stopped and resumed. Times of two machines are not compared.
        """
        rows = []
        for seed in self.plan.seeds:
            one, other = (self._find(spot, seed) for spot in (slow, fast))
            if one is None or other is None:
                rows.append([str(seed), *[MISSING] * 5])
                continue
            target = [epoch.success for epoch in one.epochs if epoch.success is not None][-1]
            seconds = [find_reached(done, target, latency) for done in (one, other)]
            rows.append(
                [
                    str(seed),
                    f"{target:.0f}",
                    *map(_describe_reached, seconds),
                    *_judge_ratio(one, other, seconds[0], seconds[1], wanted),
                ]
            )
        labels = [self.plan.arms[spot.partition("/")[0]].label for spot in (slow, fast)]
        heads = ["run seed", f"{labels[0]} ends with", *(f"{label}, minutes" for label in labels), "times faster"]
        heads.append(f"wanted {wanted:g}")
        return format_markdown_table(heads, rows)

    def _find(self, spot: Spot, seed: int) -> UnitRecord | None:
        """Return the record of a run seed; None while it is missing."""
        return next((done for done in self.of(spot) if done.seed == seed), None)

    def format_pace_table(self, slow: Spot, fast: Spot, epoch: int, wanted: float) -> str:
        """Return, by run seed, how fast two arms collected, and after how long the first one was at an epoch.

        The last column says whether the second one collected `wanted` times as many episodes.

        Times are of all parts but evaluations, and those of two machines are not compared. Episodes that were played
        meanwhile and not learned do not count.
        """
        rows = []
        # Each run seed by itself: a pace belongs to a machine and a day, and is not averaged over them.
        for seed in self.plan.seeds:
            one, other = (self._find(spot, seed) for spot in (slow, fast))
            if one is None or other is None:
                rows.append([str(seed), *[MISSING] * 7])
                continue
            whole = [measure_minutes(done) for done in (one, other)]
            pace = [
                60 * sum(len(part.rollout) for part in done.epochs) / minutes
                for done, minutes in zip((one, other), whole, strict=True)
            ]
            shown = (*whole, measure_minutes(one, epoch), *pace)
            times = _judge_ratio(one, other, pace[1], pace[0], wanted)
            rows.append([str(seed), *(f"{number:.0f}" for number in shown), *times])
        labels = [self.plan.arms[spot.partition("/")[0]].label for spot in (slow, fast)]
        heads = [
            "run seed",
            *(f"{label}, minutes" for label in labels),
            f"{labels[0]}, to epoch {epoch}",
            *(f"{label}, episodes an hour" for label in labels),
            "times more",
            f"wanted {wanted:g}",
        ]
        return format_markdown_table(heads, rows)

    # ------------------------------------------------------------------------------------------------ every unit

    def format_unit_table(self) -> str:
        """Return what each unit took, what it left and by which code; in bold what took longer than it should."""
        rows = []
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
                ]
            )
        return format_markdown_table(["unit", "minutes", "run hash", "code"], rows)

    def list_long_units(self) -> list[str]:
        """Return the names of units that took longer than units are meant to."""
        return [unit.name for unit, record in self.records.items() if self._is_long(record)]

    def _is_long(self, record: UnitRecord) -> bool:
        return record.seconds.whole / 60 > self.plan.most_minutes

    def list_machines(self) -> list[str]:
        """Return all machines that units were computed on, in words."""
        return list(dict.fromkeys(_describe_machine(record.machine) for record in self.records.values()))

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


def find_reached(training: UnitRecord, target: float, latency: float) -> float:
    """Return after how many seconds a training first had a held-out success, in percent.

    Infinity if it never had it, NaN if it had it behind an epoch whose playing was not timed as a whole.

    Args:
        latency: how long an environment takes that a rollout waits for, relative to what the rollout took without it.
    """
    total = 0.0
    for epoch in training.epochs:
        if epoch.epoch and "rollout" not in epoch.seconds:
            total = math.nan
        total += _sum_parts(epoch)
        total += latency * epoch.seconds.get("rollout", 0.0)
        if epoch.epoch and epoch.success is not None and epoch.success >= target:
            return total
    return math.inf


def measure_minutes(training: UnitRecord, epoch: int | None = None) -> float:
    """Return what a training took until behind an epoch, evaluations aside; None for its last."""
    passed = [one for one in training.epochs if epoch is None or one.epoch <= epoch]
    return sum(map(_sum_parts, passed)) / 60


def _sum_parts(epoch: EpochNumbers) -> float:
    """Return the seconds of all parts of an epoch but its evaluation."""
    return sum(seconds for part, seconds in epoch.seconds.items() if part != "evaluation")


def _describe_reached(seconds: float) -> str:
    if math.isnan(seconds):
        return "not timed"
    return f"{seconds / 60:.0f}" if math.isfinite(seconds) else "never"


def _judge_ratio(one: UnitRecord, other: UnitRecord, more: float, less: float, wanted: float) -> tuple[str, str]:
    """Return a ratio in words, and whether it is as large as wanted."""
    if one.machine != other.machine:
        return OTHER_MACHINE, "-"
    if math.isnan(more) or math.isnan(less):
        return "-", "-"
    ratio = more / less  # 0 where the second one never came there
    return f"{ratio:.2f}" if ratio else "-", "reached" if ratio >= wanted else "missed"


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
    """Say whether a goal was reached; or that it is not separable from 0, where that is its limit.

    Args:
        goal: which.
        found: what was measured.
        so_far: added where more is to be measured.
    """
    if not goal.is_reached(found):
        return f"**not reached{so_far}**"
    if not found.is_separable and not any((goal.at_least, goal.at_most, goal.more_than)):
        return f"not separable from 0{so_far}"
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


def _describe_learning(trainings: Sequence[UnitRecord]) -> list[str]:
    """Return the cells of trainings of one method, at least one."""
    epochs = [epoch for training in trainings for epoch in training.epochs if epoch.epoch]
    rows, updates = (_describe_counts([getattr(one, name) for one in epochs]) for name in ("pairs", "updates"))
    method = trainings[0].method
    pairs, recipe = method["pairs"], method["dpo"]
    sources = " and ".join(source for source in ("adversary", "contrast", "correction") if pairs[source])
    lora = recipe["lora"]
    return [
        _LEARNED.get(method["objective"], f"pairs: {sources}"),
        rows,
        updates,
        "all weights" if lora is None else f"LoRA of rank {lora['rank']}",
        f"{recipe['learning_rate']:g}",
    ]


def _describe_counts(counts: Sequence[int]) -> str:
    """Return the mean of numbers of epochs, with the least and the most where they differ."""
    if not counts:
        return NOT_PLANNED
    least, most = min(counts), max(counts)
    return f"{mean(counts):,.0f}" + (f" ({least:,} to {most:,})" if least < most else "")


def _knows_gain(epoch: EpochNumbers) -> bool:
    return epoch.chosen_gain is not None


def _minutes(records: Sequence[UnitRecord], times: int) -> str:
    return f"{sum(record.seconds.whole for record in records) / 60 / times:.0f}"


def _shares(records: Sequence[UnitRecord], parts: Sequence[str]) -> list[str]:
    """Return the share of each part, and of what is left beside playing and learning."""
    whole = sum(record.seconds.whole for record in records)
    sums = {part: _sum(records, part) for part in parts}
    outer = [seconds for part, seconds in sums.items() if part not in _DIVIDED]
    known = [seconds for seconds in outer if seconds is not None]
    rest = "not told"
    if all(sums[part] is not None for part in _ALWAYS):
        rest = _share(whole - sum(known), whole) if sum(known) <= whole else NOT_PLANNED
    return [*("not told" if seconds is None else _share(seconds, whole) for seconds in sums.values()), rest]


def _share(part: float, whole: float) -> str:
    """Return percent; a part that would round to nothing has more digits."""
    rounded = f"{part / whole:.0%}"
    if part <= 0 or rounded != "0%":
        return rounded
    return f"{part / whole:.1%}" if part >= whole / 2000 else "<0.1%"


def _sum(records: Sequence[UnitRecord], part: str) -> float | None:
    """Return the seconds of one part; None where a unit that has it does not hold them."""
    having = [record for record in records if record.measured is None or part not in LEARNING]
    parts = [getattr(record.seconds, part) for record in having]
    return None if None in parts else sum(parts)


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
