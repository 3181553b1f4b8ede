"""Tables of a plan's trainings: from what they learned, what it did to likelihoods, and how long it took.

    trainings = Trainings(results)
    trainings.format_learned_table()                        # a line per arm: kind and number of examples, steps, rate
    trainings.format_time_table()                           # a line per arm: minutes, and the share of each part
    trainings.format_pace_table("ppo/train", "grpo/train", 2, 1.5)

Times of two machines are never compared, and those of two days on one machine only as what they are: minutes of a
machine that other programs may have kept busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from collab.evidence.plan import Spot
from collab.evidence.record import LEARNING, EpochNumbers, UnitRecord
from collab.evidence.tables import MISSING, NOT_PLANNED, Results
from collab.utils.text import format_markdown_table

OTHER_MACHINE = "on another machine"
_LEARNED = {"rft": "rewarded replies", "trajectory-dpo": "pairs of whole episodes"}
"""Objective → what an example is; pairs of replies otherwise."""
_DIVIDED = ("environment", "inference")
"""What playing is divided into."""
_VALUING = ("values", "samples")
"""What some algorithms do beside the others' parts."""
_PARTS = ("playing", *_DIVIDED, *LEARNING)
_ALWAYS = [part for part in _PARTS if part not in (*_DIVIDED, *_VALUING)]
"""Parts that a training has to tell, so that what is left beside them can be told."""
_PARTS_ARE = {
    "playing": "Minutes are those of a whole unit. Playing is rollouts and evaluations.",
    "environment": "Environment is the part of it in which at least one environment was at work (agents of other "
    "episodes may have replied meanwhile), inference is the rest.",
    "critic": "Critic and adversary are the time of judging and of synthesising rejected replies beside them.",
    "values": "Values is fitting what values states or replies; where it is not told, it is in other.",
    "samples": "Samples is sampling replies that are not executed.",
    "training": "Training is optimizer steps. Other is what remains: loading, writing and gaps between parts; it is "
    "not told (–) where episodes are played while a policy learns.",
}
"""Part of a training's time → what its column is."""


class Trainings:
    """The finished trainings of a plan."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def _list_spots(self) -> list[tuple[str, Spot]]:
        """Return label and spot of all planned kinds of training: the first phase that trains, then the others."""
        phases = [name for name, phase in self.results.plan.phases.items() if phase.kind != "eval"]
        return [
            (arm.label + ("" if phase == phases[0] else f", {phase}"), f"{name}/{phase}")
            for phase in phases
            for name, arm in self.results.plan.arms.items()
            if self.results.plan.units_of(f"{name}/{phase}")
        ]

    def format_learned_table(self) -> str:
        """Return what trainings learned from, how much of it an epoch had, and what it changed in how many steps."""
        rows = [
            [label, *(_describe_learning(done) if (done := self.results.of(spot)) else [MISSING] * 5)]
            for label, spot in self._list_spots()
        ]
        return format_markdown_table(
            ["", "learns from", "rows of an epoch", "optimizer steps", "changes", "rate"], rows
        )

    def format_likelihood_table(self) -> str:
        """Return what every training did to chosen replies, by epoch; empty where none compares with a reference."""
        done = [one for one in self.results.records.values() if any(_knows_gain(epoch) for epoch in one.epochs)]
        rows = []
        last = max((epoch.epoch for one in done for epoch in one.epochs), default=0)
        for one in done:
            gains = {
                epoch.epoch: f"{epoch.chosen_gain:+.2f}{', alarm' if epoch.alarm else ''}"
                for epoch in one.epochs
                if _knows_gain(epoch)
            }
            label = f"{self.results.plan.arms[one.arm].label}, {one.phase}, run seed {one.seed}"
            rows.append([label, *(gains.get(number, NOT_PLANNED) for number in range(1, last + 1))])
        return format_markdown_table(["", *(f"epoch {number}" for number in range(1, last + 1))], rows) if rows else ""

    # -------------------------------------------------------------------------------------------------------- times

    @property
    def is_divided(self) -> bool:
        """Return whether a training's file holds how its playing is divided between environments and agents."""
        return any(record.seconds.environment is not None for record in self.results.trainings())

    @property
    def shown_parts(self) -> list[str]:
        """The parts that some training fills; those of all algorithms are told anyhow."""
        unfilled = [
            part for part in _VALUING if all(getattr(one.seconds, part) == 0 for one in self.results.trainings())
        ]
        return [part for part in _PARTS if part not in (*(() if self.is_divided else _DIVIDED), *unfilled)]

    def format_minutes(self, spot: Spot) -> str:
        """Return how many minutes the units of a spot took, e.g. "34 (14 to 47)"."""
        done = self.results.of(spot)
        return _format_minutes(done) if done else MISSING

    def describe_parts(self) -> str:
        """Say what the columns of `format_time_table` are."""
        return " ".join(words for part, words in _PARTS_ARE.items() if part in self.shown_parts)

    def format_time_table(self, whole: bool = False) -> str:
        """Return what trainings took by part, in the mean of their run seeds; with the least and the most minutes.

        Shares are of the trainings whose files hold all parts, in a row that has any. Columns that no training fills
        are left out.

        Args:
            whole: whether a last line holds the sum of all units.
        """
        parts = self.shown_parts
        rows = []
        for label, spot in self._list_spots():
            done = self.results.of(spot)
            full = [one for one in done if all(_sum_part([one], part) is not None for part in _ALWAYS)]
            full = full or done
            note = "" if len(full) == len(done) else f" (shares: {len(full)} of {len(done)})"
            cells = [_format_minutes(done), *_format_shares(full, parts)] if done else [MISSING] * (len(parts) + 2)
            rows.append([label + note, *cells])
        if whole:
            every = list(self.results.records.values())
            total = sum(one.seconds.whole for one in every)
            rows.append(["all units", f"{total / 60:.0f}", *_format_shares(every, parts)])
        return format_markdown_table(["", "minutes", *parts, "other"], rows)

    def format_reach_table(self, slow: Spot, fast: Spot, latency: float, wanted: float) -> str:
        """Return, by run seed, when two arms first reached the held-out success that the first one ends with.

        The last column says whether the second one was `wanted` times faster.

        Times are of everything but evaluations, with an environment that takes `latency` times as long as the policy
        that plays in it: a simulated phone takes next to nothing. An arm is "not timed" where the playing of an epoch
        up to there has no recorded time, as one that was stopped and resumed. Times of two machines are not compared.
        """
        rows = []
        for seed in self.results.plan.seeds:
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
        labels = [self.results.plan.get_label(spot) for spot in (slow, fast)]
        heads = ["run seed", f"{labels[0]} ends with", *(f"{label}, minutes" for label in labels), "times faster"]
        heads.append(f"wanted {wanted:g}")
        return format_markdown_table(heads, rows)

    def _find(self, spot: Spot, seed: int) -> UnitRecord | None:
        """Return the record of a run seed; None while it is missing."""
        return next((done for done in self.results.of(spot) if done.seed == seed), None)

    def format_pace_table(self, slow: Spot, fast: Spot, epoch: int, wanted: float) -> str:
        """Return, by run seed, how fast two arms collected, and after how long the first one was at an epoch.

        The last column says whether the second one collected `wanted` times as many episodes.

        Times are of all parts but evaluations, and those of two machines are not compared. Episodes that were played
        meanwhile and not learned do not count.
        """
        rows = []
        # Each run seed by itself: a pace belongs to a machine and a day, and is not averaged over them.
        for seed in self.results.plan.seeds:
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
        labels = [self.results.plan.get_label(spot) for spot in (slow, fast)]
        heads = [
            "run seed",
            *(f"{label}, minutes" for label in labels),
            f"{labels[0]}, to epoch {epoch}",
            *(f"{label}, episodes an hour" for label in labels),
            "times more",
            f"wanted {wanted:g}",
        ]
        return format_markdown_table(heads, rows)


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


def _format_minutes(records: Sequence[UnitRecord]) -> str:
    """Return the mean of units' minutes, with the least and the most where they differ."""
    took = [record.seconds.whole / 60 for record in records]
    least, most = f"{min(took):.0f}", f"{max(took):.0f}"
    return f"{mean(took):.0f}" + (f" ({least} to {most})" if least != most else "")


def _format_shares(records: Sequence[UnitRecord], parts: Sequence[str]) -> list[str]:
    """Return the share of each part, and of what is left beside playing and learning."""
    whole = sum(record.seconds.whole for record in records)
    sums = {part: _sum_part(records, part) for part in parts}
    outer = [seconds for part, seconds in sums.items() if part not in _DIVIDED]
    known = [seconds for seconds in outer if seconds is not None]
    rest = "not told"
    if all(sums[part] is not None for part in _ALWAYS):
        rest = _format_share(whole - sum(known), whole) if sum(known) <= whole else NOT_PLANNED
    return [*("not told" if seconds is None else _format_share(seconds, whole) for seconds in sums.values()), rest]


def _format_share(part: float, whole: float) -> str:
    """Return percent; a part that would round to nothing has more digits."""
    rounded = f"{part / whole:.0%}"
    if part <= 0 or rounded != "0%":
        return rounded
    return f"{part / whole:.1%}" if part >= whole / 2000 else "<0.1%"


def _sum_part(records: Sequence[UnitRecord], part: str) -> float | None:
    """Return the seconds of one part; None where a unit that has it does not hold them."""
    having = [record for record in records if record.measured is None or part not in LEARNING]
    parts = [getattr(record.seconds, part) for record in having]
    return None if None in parts else sum(parts)


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
