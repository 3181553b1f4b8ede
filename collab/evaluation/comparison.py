"""Paired differences of two evaluations, with intervals that respect the similarity of one task's instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from collab.errors import UsageError
from collab.evaluation.metrics import (
    FEW,
    Rate,
    Report,
    Sampled,
    check_same_environment,
    compute_wilson_interval,
    describe_longest,
    describe_sampling,
    list_settings,
)
from collab.utils.text import format_amount

TOLERATED_FAILURES = 0.02
"""Share of infrastructure failures above which runs are not compared."""

FORCE = "play one of them again like the other (--set 'agents.*.sampling.KEY=…'), or use --force"

InstanceKey: TypeAlias = tuple[str, int, int]
"""Task, instance seed, step budget: another budget makes another instance."""


def is_spoilt(broken: int, planned: int) -> bool:
    """Return whether too many of an evaluation's episodes broke to draw conclusions from it."""
    return broken > TOLERATED_FAILURES * max(1, planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Second run minus first, over the episodes that both played: a difference of 0.05 is 5 percentage points."""

    pairs: int
    tasks: int
    """Number of tasks of the pairs, which the interval resamples."""
    first: Rate
    second: Rate
    difference: float
    interval: tuple[float, float]
    """Bootstrap interval of the paired difference, of 95 % unless another level was requested."""
    won: tuple[InstanceKey, ...] = ()
    """Instances that the second run solves and the first one does not, by task; of several trainings those that are
    solved more often."""
    lost: tuple[InstanceKey, ...] = ()
    """The opposite. With `won` these are the discordant pairs; all others carry no information about a difference."""
    sampling: tuple[Mapping[str, Sampled], Mapping[str, Sampled]] = field(default_factory=lambda: ({}, {}))
    """Slot → sampling of replies in the first and in the second run."""

    @property
    def is_few(self) -> bool:
        """Return whether there are too few pairs for a meaningful interval."""
        return self.pairs < FEW

    @property
    def is_separable(self) -> bool:
        """Return whether the interval leaves out 0, so that the runs differ by more than chance."""
        low, high = self.interval
        return not low <= 0 <= high

    @property
    def has_other_sampling(self) -> bool:
        """Return whether the two runs have other temperatures, other top-p, or other longest replies."""
        first, second = ((describe_sampling(one), describe_longest(one)) for one in self.sampling)
        return first != second


def compare(
    first: Report, second: Report, *, force: bool = False, draws: int = 10_000, level: float = 0.95
) -> RunComparison:
    """Return the paired difference in success over equal (task, seed), with the interval of `bootstrap`.

    Exchanging the runs only changes signs: the bootstrap always draws in the direction in which the first differing
    pair is won.

    Args:
        level: of the interval, in (0, 1); the lower end of one of 0.8 is exceeded with 90 %.

    Raises:
        UsageError: a run is not fit to be compared (`check_result`), the environments or their versions differ, there
            is no common instance, or unless `force` a slot of both was sampled in two ways (`check_same_sampling`).
    """
    return compare_trainings([(first, second)], force=force, draws=draws, level=level)


def compare_trainings(
    pairs: Sequence[tuple[Report, Report]],
    *,
    beside: Sequence[tuple[Report, Report]] | None = None,
    force: bool = False,
    draws: int = 10_000,
    level: float = 0.95,
) -> RunComparison:
    """Return the paired difference over several trainings that were measured on the same instances.

    Results of several trainings on one instance are similar, and untrained parts are equal beside each of them. So the
    interval draws an instance with all its results: many trainings with the same outcome count as one. It speaks about
    other tasks and instances, not about other trainings.

    Args:
        pairs: for each training, both of its reports, at least one; instances that some of them lack are left out.
        beside: as many pairs, whose differences are subtracted: what remains is by how much the first ones gained more.
            Rates are still those of `pairs`. None subtracts nothing.

    Raises:
        UsageError: as `compare` does.
    """
    # Refuse what cannot be compared before anything is counted; `force` skips what the user takes on.
    others = pairs if beside is None else beside
    if len(others) != len(pairs):
        raise UsageError(f"{len(pairs)} trainings beside {len(others)}: each difference needs another one")
    every = [report for pair in (*pairs, *others) for report in pair]
    for report in every:
        check_result(report, force=force)
    check_same_environment(every)
    if not force:
        for before, after in (*pairs, *others):
            check_same_sampling(before.sampling, after.sampling)
    # Only instances that all trainings played: a missing one would weigh the others differently.
    played, set_beside = (
        [(_group_by_instance(first), _group_by_instance(second)) for first, second in group]
        for group in (pairs, others)
    )
    common = sorted(set.intersection(*(set(one) for both in (*played, *set_beside) for one in both)))
    if not common:
        raise UsageError("the two runs share no (task, seed): nothing to compare; use the same --tasks and --seed")
    # Paired by instance: its difficulty is in both terms and cancels.
    gains = {instance: [after[instance] - before[instance] for before, after in played] for instance in common}
    if beside is not None:
        for instance, those in gains.items():
            gains[instance] = [
                gain - (after[instance] - before[instance])
                for gain, (before, after) in zip(those, set_beside, strict=True)
            ]
    # Swapping the reports must mirror the interval, so the bootstrap sees one direction and signs are restored below.
    direction = next((gain for those in gains.values() for gain in those if gain), 1)
    # Tasks are the units that are drawn: instances of one task are alike and would make the interval too narrow.
    by_task: dict[str, list[float]] = {}
    for (task, _, _), those in gains.items():
        by_task.setdefault(task, []).append(direction * sum(those) / len(those))
    low, high = bootstrap(list(by_task.values()), draws=draws, level=level)
    episodes = len(common) * len(played)
    return RunComparison(
        # Episodes are counted, not instances: rates are over all trainings.
        pairs=episodes,
        tasks=len(by_task),
        first=Rate(successes=sum(one[instance] for one, _ in played for instance in common), episodes=episodes),
        second=Rate(successes=sum(one[instance] for _, one in played for instance in common), episodes=episodes),
        difference=sum(sum(those) for those in gains.values()) / episodes,
        interval=(low, high) if direction > 0 else (0.0 - high, 0.0 - low),
        won=tuple(instance for instance, those in gains.items() if sum(those) > 0),
        lost=tuple(instance for instance, those in gains.items() if sum(those) < 0),
        sampling=(pairs[0][0].sampling, pairs[0][1].sampling),
    )


def check_same_sampling(first: Mapping[str, Sampled], second: Mapping[str, Sampled], next_move: str = FORCE) -> None:
    """Refuse to compare two evaluations that sampled one slot at different temperatures.

    Slots of only one team are left out, so that one agent can be compared with a team of four. If the teams share no
    slot, all settings of one must be among those of the other.

    Args:
        next_move: advice for the message.

    Raises:
        UsageError: temperature, top-p, the longest reply or another setting of a slot differ.
    """
    if not first or not second:
        return
    # What changes replies: a difference in any of these could explain a difference in success.
    settings = [
        {slot: tuple(sorted(list_settings(one).items())) for slot, one in team.items()} for team in (first, second)
    ]
    shared = first.keys() & second.keys()
    if shared:
        is_same = all(settings[0][slot] == settings[1][slot] for slot in shared)
    else:
        # Teams without a common slot are compared by the sets of their settings.
        fewer, more = sorted((set(one.values()) for one in settings), key=len)
        is_same = fewer <= more
    if not is_same:
        there, here = (describe_sampling(team) for team in (first, second))
        # The short form may hide the length limit, which is then shown, too.
        if there == here:
            there, here = (f"{there}, {describe_longest(team)}" for team in (first, second))
        raise UsageError(
            f"the two are sampled differently: {there} against {here}; "
            f"what differs may come from that alone: {next_move}"
        )


def check_result(report: Report, *, force: bool = False) -> None:
    """Check that a report may stand beside others.

    Args:
        force: accept broken and missing episodes.

    Raises:
        UsageError: it is a rehearsal; or, unless `force`, more than 2 % of its episodes broke or it is not finished.
    """
    # Never, not even with `force`: a rehearsal knows the answers.
    if report.privileged:
        raise UsageError("a rehearsal follows the solutions: it is not a result and cannot be compared")
    if force:
        return
    planned, played = report.planned.episodes, len(report.results)
    # Broken episodes count as unsolved, so many of them make the rate one of the machine.
    if is_spoilt(report.broken, planned):
        raise UsageError(
            f"{report.broken} of {format_amount(planned, 'episode')} broke (more than {TOLERATED_FAILURES:.0%}); "
            "resume that run to play them again, or use --force"
        )
    # Short episodes end first, and are solved more often.
    if played < planned:
        raise UsageError(
            f"only {played} of {format_amount(planned, 'episode')} have been played, and long ones come last; "
            "resume that run, or use --force"
        )


def bootstrap(
    gains: Sequence[Sequence[float]], *, draws: int = 10_000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile interval of the mean gain over all instances, tasks resampled before their instances.

    Instances of one task are alike: a team that can do it tends to solve them all. Each draw takes as many tasks as
    there are, with replacement. For every task taken it draws as many of its instances as it has, with replacement
    (Davison & Hinkley 1997, section 3.8); its mean is over all instances so taken. If each task has a single instance,
    this is the plain bootstrap over instances. So it is for one task: then the interval says nothing about other tasks.
    Drawing instances as well as tasks makes it rather too wide than too narrow.

    Args:
        gains: by task, +1 for each won instance, -1 for each lost one, 0 otherwise, or the mean over repetitions; no
            task is empty.
        draws: number of draws.
        seed: of the draws.
        level: share of the draws within the interval.
    """
    import numpy

    rng = numpy.random.default_rng(seed)
    taken = rng.multinomial(len(gains), [1 / len(gains)] * len(gains), size=draws)
    total, instances = numpy.zeros(draws), numpy.zeros(draws)
    for times, task in zip(taken.T, gains, strict=True):
        values = sorted({0, *task}, key=lambda gain: (gain == 0, -gain))
        shares = [task.count(gain) / len(task) for gain in values]
        drawn = rng.multinomial(times * len(task), shares)  # of a task taken k times: k rounds of draws from the same
        total += drawn @ numpy.array(values)
        instances += times * len(task)
    means = sorted(total / instances)
    cut = int((1 - level) / 2 * draws + 1e-6)  # 0.8 leaves a tenth on each side, which its binary form falls short of
    return float(means[cut]), float(means[draws - 1 - cut])


def compute_share_interval(outcomes: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean outcome over all instances, for other tasks as well as other instances.

    It is that of `bootstrap`, and ends no nearer to 0 or 1 than Wilson's with one observation per task does where none
    or all are successes: draws say too little there. Where all outcomes are equal, every draw is the same, and it is
    Wilson's.

    Args:
        outcomes: by task, that of each instance, from 0 to 1.
    """
    tasks = len(outcomes)
    if len({outcome for task in outcomes for outcome in task}) == 1:
        return compute_wilson_interval(sum(task[0] for task in outcomes), tasks)
    low, high = bootstrap(outcomes)
    return min(low, compute_wilson_interval(tasks, tasks)[0]), max(high, compute_wilson_interval(0, tasks)[1])


def _group_by_instance(report: Report) -> Mapping[InstanceKey, bool]:
    return {(result.task, result.seed, result.max_steps): result.success for result in report.results}
