"""Success rates with intervals, and paired differences: pure functions over finished episodes.

The success rate is over all planned episodes; an episode that broke for infrastructure reasons counts as not
successful, and the rate over completed episodes and the number of broken ones stand beside it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from collab.errors import UsageError
from collab.types import Trajectory

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
TOLERATED_FAILURES = 0.02
"""Share of infrastructure failures above which runs are not compared."""


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
    by_task: tuple[tuple[str, Rate], ...]
    by_difficulty: tuple[tuple[str, Rate], ...]
    mean_steps: float
    """Of completed episodes; NaN without one."""
    results: tuple[EpisodeResult, ...]


def evaluate(trajectories: Sequence[Trajectory], planned: int | None = None) -> Report:
    """Summarise episodes.

    Args:
        planned: how many episodes there should have been; None when these are all.
    """
    results = tuple(
        EpisodeResult(
            id=trajectory.id,
            task=trajectory.task.name,
            difficulty=trajectory.task.difficulty or "unrated",
            seed=trajectory.task.seed,
            success=trajectory.success,
            steps=len(trajectory.steps),
            max_steps=trajectory.task.max_steps,
            error=None if trajectory.error is None else f"{trajectory.error.type}: {trajectory.error.message}",
        )
        for trajectory in trajectories
    )
    completed = [result for result in results if result.error is None]
    successes = sum(result.success for result in results)
    return Report(
        environment=trajectories[0].environment if trajectories else "",
        environment_version=trajectories[0].environment_version if trajectories else "",
        privileged=any(trajectory.privileged for trajectory in trajectories),
        planned=Rate(successes=successes, episodes=max(planned or 0, len(results))),
        completed=Rate(successes=successes, episodes=len(completed)),
        broken=len(results) - len(completed),
        by_task=_rates(results, lambda result: result.task),
        by_difficulty=_rates(results, lambda result: result.difficulty),
        mean_steps=sum(result.steps for result in completed) / len(completed) if completed else math.nan,
        results=results,
    )


def _rates(results: Sequence[EpisodeResult], key: Callable[[EpisodeResult], str]) -> tuple[tuple[str, Rate], ...]:
    groups: dict[str, list[bool]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result.success)
    return tuple((name, Rate(successes=sum(group), episodes=len(group))) for name, group in sorted(groups.items()))


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
    differences = [int(b) - int(a) for a, b in pairs]
    rng = random.Random(seed)
    means = sorted(sum(rng.choices(differences, k=len(pairs))) / len(pairs) for _ in range(draws))
    return Comparison(
        pairs=len(pairs),
        first=Rate(successes=sum(a for a, _ in pairs), episodes=len(pairs)),
        second=Rate(successes=sum(b for _, b in pairs), episodes=len(pairs)),
        difference=sum(differences) / len(pairs),
        interval=(means[int(0.025 * draws)], means[min(draws - 1, int(0.975 * draws))]),
    )


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
