"""Success rates with intervals, and paired differences: pure functions over finished episodes.

A success rate is over all planned episodes, of a run as of each of its tasks: one that broke for infrastructure reasons
or was never played counts as not successful. The rate over completed episodes and the number of broken ones stand
beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from collab.errors import UsageError
from collab.store.summary import EpisodeSummary
from collab.types import EpisodeError, PlannedTask, Trajectory

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
TOLERATED_FAILURES = 0.02
"""Share of infrastructure failures above which runs are not compared."""
UNRATED = "unrated"
"""Difficulty of tasks of which the environment says none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A success rate with its 95 % Wilson interval."""

    successes: int
    episodes: int

    @property
    def value(self) -> float:
        """In [0, 1]; NaN without episodes."""
        return self.successes / self.episodes if self.episodes else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson score interval; (0, 1) without episodes."""
        return wilson(self.successes, self.episodes)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.1%} [{low:.1%}, {high:.1%}] ({self.successes}/{self.episodes})"


def wilson(successes: int, episodes: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927, eq. 7)."""
    if episodes == 0:
        return 0.0, 1.0
    share = successes / episodes
    spread = 1 + z * z / episodes
    center = (share + z * z / (2 * episodes)) / spread
    half = z / spread * math.sqrt(share * (1 - share) / episodes + z * z / (4 * episodes * episodes))
    return max(0.0, center - half), min(1.0, center + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """One line of a report."""

    id: str
    task: str
    difficulty: str
    seed: int
    """Of the task instance."""
    success: bool
    steps: int
    max_steps: int
    """Step budget of the instance."""
    error: str | None
    """None unless the episode broke."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> EpisodeResult:
        """Of an episode that has just been played."""
        return cls(
            id=trajectory.id,
            task=trajectory.task.name,
            difficulty=trajectory.task.difficulty or UNRATED,
            seed=trajectory.task.seed,
            success=trajectory.success,
            steps=len(trajectory.steps),
            max_steps=trajectory.task.max_steps,
            error=_why(trajectory.error),
        )

    @classmethod
    def recorded(cls, summary: EpisodeSummary) -> EpisodeResult:
        """Of an episode that a run holds."""
        return cls(
            id=summary.id,
            task=summary.task,
            difficulty=summary.difficulty or UNRATED,
            seed=summary.seed,
            success=summary.outcome is not None and summary.outcome.success,
            steps=summary.steps,
            max_steps=summary.max_steps,
            error=_why(summary.error),
        )


def _why(error: EpisodeError | None) -> str | None:
    return None if error is None else f"{error.type}: {error.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """How well a team did on some of the episodes; the fields mean what they mean in `Report`."""

    name: str
    planned: Rate
    completed: Rate
    broken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How well a team did."""

    environment: str
    environment_version: str
    privileged: bool
    """Played with knowledge of the solutions: a rehearsal, never a result."""
    planned: Rate
    """Over all planned episodes, broken and missing ones counted as not successful."""
    completed: Rate
    """Over episodes with an outcome."""
    broken: int
    by_task: tuple[Group, ...]
    by_difficulty: tuple[Group, ...]
    mean_steps: float
    """Of completed episodes; NaN without one."""
    results: tuple[EpisodeResult, ...]


def evaluate(trajectories: Sequence[Trajectory], planned: Sequence[PlannedTask] = ()) -> Report:
    """Summarise episodes that have just been played.

    Args:
        planned: what there should have been; empty when these are all.
    """
    first = trajectories[0] if trajectories else None
    return summarise(
        [EpisodeResult.of(trajectory) for trajectory in trajectories],
        planned,
        environment=first.environment if first else "",
        environment_version=first.environment_version if first else "",
        privileged=any(trajectory.privileged for trajectory in trajectories),
    )


def summarise(
    results: Sequence[EpisodeResult],
    planned: Sequence[PlannedTask] = (),
    *,
    environment: str,
    environment_version: str,
    privileged: bool,
) -> Report:
    """Summarise episodes that are over; `planned` as for `evaluate`."""
    played = Counter(result.task for result in results)
    missing = [replace(task, episodes=max(0, task.episodes - played[task.name])) for task in planned]
    whole = _group("all", results, sum(task.episodes for task in missing))
    steps = [result.steps for result in results if result.error is None]
    return Report(
        environment=environment,
        environment_version=environment_version,
        privileged=privileged,
        planned=whole.planned,
        completed=whole.completed,
        broken=whole.broken,
        by_task=_groups([(one.task, one) for one in results], [(one.name, one.episodes) for one in missing]),
        by_difficulty=_groups(
            [(one.difficulty, one) for one in results],
            [(one.difficulty or UNRATED, one.episodes) for one in missing],
        ),
        mean_steps=sum(steps) / len(steps) if steps else math.nan,
        results=tuple(results),
    )


def _groups(results: Sequence[tuple[str, EpisodeResult]], missing: Sequence[tuple[str, int]]) -> tuple[Group, ...]:
    """One group per name, sorted; `missing` counts episodes that were never played."""
    played: dict[str, list[EpisodeResult]] = {}
    for name, result in results:
        played.setdefault(name, []).append(result)
    unplayed: Counter[str] = Counter()
    for name, count in missing:
        unplayed[name] += count
    names = sorted({*played, *+unplayed})
    return tuple(_group(name, played.get(name, ()), unplayed[name]) for name in names)


def _group(name: str, results: Sequence[EpisodeResult], missing: int) -> Group:
    successes, broken = sum(one.success for one in results), sum(one.error is not None for one in results)
    return Group(
        name=name,
        planned=Rate(successes=successes, episodes=len(results) + missing),
        completed=Rate(successes=successes, episodes=len(results) - broken),
        broken=broken,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Second run minus first, over the episodes that both played."""

    pairs: int
    first: Rate
    second: Rate
    difference: float
    interval: tuple[float, float]
    """95 % bootstrap interval of the paired difference."""


def compare(first: Report, second: Report, *, force: bool = False, draws: int = 10_000, seed: int = 0) -> Comparison:
    """Paired difference in success over equal (task, seed); percentile bootstrap over the pairs.

    Raises:
        UsageError: a run is privileged, the environments or their versions differ, a run is not finished or more
            than 2 % of its episodes broke (unless `force`), or there is no common instance.
    """
    _refuse(first, second, force)
    ours = _by_instance(second)
    pairs = [(one, ours[key]) for key, one in _by_instance(first).items() if key in ours]
    if not pairs:
        raise UsageError("the two runs share no (task, seed): nothing to compare; use the same --tasks and --seed")
    won, lost = (sum(pair == verdict for pair in pairs) for verdict in ((False, True), (True, False)))
    return Comparison(
        pairs=len(pairs),
        first=Rate(successes=sum(a for a, _ in pairs), episodes=len(pairs)),
        second=Rate(successes=sum(b for _, b in pairs), episodes=len(pairs)),
        difference=(won - lost) / len(pairs),
        interval=_bootstrap(won, lost, len(pairs), draws, seed),
    )


def _bootstrap(won: int, lost: int, pairs: int, draws: int, seed: int) -> tuple[float, float]:
    """95 % percentile interval of (won − lost) / pairs; drawing pairs with replacement is drawing a multinomial."""
    import numpy

    shares = [won / pairs, lost / pairs, (pairs - won - lost) / pairs]
    drawn = numpy.random.default_rng(seed).multinomial(pairs, shares, size=draws)
    means = sorted((drawn[:, 0] - drawn[:, 1]) / pairs)
    return float(means[int(0.025 * draws)]), float(means[min(draws - 1, int(0.975 * draws))])


def _refuse(first: Report, second: Report, force: bool) -> None:
    for report in (first, second):
        if report.privileged:
            raise UsageError("a rehearsal follows the solutions: it is not a result and cannot be compared")
        if not force and report.broken > TOLERATED_FAILURES * max(1, report.planned.episodes):
            raise UsageError(
                f"{report.broken} of {report.planned.episodes} episodes broke (more than {TOLERATED_FAILURES:.0%}); "
                "resume that run to play them again, or use --force"
            )
        played = len(report.results)
        if not force and played < report.planned.episodes:
            raise UsageError(
                f"only {played} of {report.planned.episodes} episodes have been played, and long ones come last; "
                "resume that run, or use --force"
            )
    one, other = (f"{report.environment} version {report.environment_version}" for report in (first, second))
    if one != other:
        raise UsageError(f"the runs are of {one} and {other}; compare equal environments")


def _by_instance(report: Report) -> dict[Hashable, bool]:
    """Success by instance; another step budget makes another instance."""
    return {(result.task, result.seed, result.max_steps): result.success for result in report.results}
