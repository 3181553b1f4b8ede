"""Success rates with intervals: pure functions over finished episodes.

A success rate is over all planned episodes, of a run as of each of its tasks: broken and missing ones count as not
successful. The rate over completed episodes and the number of broken ones stand beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from collab.envs.solution import FIRST_ERROR
from collab.errors import UsageError
from collab.store.reader import EpisodeSummary
from collab.types import EpisodeError, Outcome, PlannedTask, Sampling, Step, Trajectory
from collab.utils.text import format_amount

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
FEW = 10
"""Instances below which an interval is marked as hardly meaningful."""
FEW_TOLD = f"fewer than {FEW}: the interval says little"
UNRATED = "unrated"
"""Difficulty of tasks for which the environment names none."""


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
        return compute_wilson_interval(self.successes, self.episodes)

    def __str__(self) -> str:
        return f"{self.numbers}{f', {FEW_TOLD}' if self.is_few else ''}"

    @property
    def numbers(self) -> str:
        """Share, interval and counts, without a remark on few episodes."""
        low, high = self.interval
        return f"{self.value:.1%} [{low:.1%}, {high:.1%}] ({self.successes}/{self.episodes})"

    @property
    def is_few(self) -> bool:
        """Return whether there are too few episodes for a meaningful interval."""
        return self.episodes < FEW


def compute_wilson_interval(successes: float, episodes: float, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion (Wilson 1927, eq. 7), exact at 0 and 1."""
    if episodes == 0:
        return 0.0, 1.0
    share = successes / episodes
    spread = 1 + z * z / episodes
    center = (share + z * z / (2 * episodes)) / spread
    half = z / spread * math.sqrt(share * (1 - share) / episodes + z * z / (4 * episodes * episodes))
    return 0.0 if successes == 0 else center - half, 1.0 if successes == episodes else center + half


CAUSES: Mapping[str, str] = {
    "empty": "empty",
    "no_action": "no action in the text",
    "malformed": "an action that cannot be read",
    "unknown_type": "an action that is unknown here",
    "bad_field": "a wrong value in the action",
    "missing_field": "a value missing in the action",
    "no_such_element": "an element that is not on the screen",
    "other_space": "an action of another action space",
    "other_dialect": "in another dialect",
    "outside": "a point outside the screen",
    "unsupported": "an action that the environment has not",
    "cut": "cut by max_tokens",
    "reasoning": "all reasoning",
    "refusal": "refused",
    "tool_call": "tool calls",
    "content_filter": "ended by a content filter",
}
"""Causes of replies without an action, in words."""
REMARKS: Mapping[str, str] = {
    "also said": "with actions beside the executed one",
    "moved to the edge": "with a point moved to the edge of the screen",
    "in part": "with an action that was done in part: for a second, once, or as a look",
    "not read": "with something behind the action that cannot be read",
    "ignored": "with arguments that were ignored",
}
"""Kinds of `Utterance.remarks`, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """Number of replies, and of those without an action."""

    total: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    """`ParseFailure.kind` → replies without an action, most first."""
    remarks: Mapping[str, int] = field(default_factory=dict)
    """Kind of remark → replies that have one."""

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Replies:
        """Count the replies of some steps."""
        cells = [cell for step in steps for cell in step.matrix]
        counted = cls.from_counts(cell.failure.kind if cell.failure else None for cell in cells)
        remarks = Counter(kind for cell in cells for kind in list_remarks(cell.remarks))
        return replace(counted, remarks=dict(remarks.most_common()))

    @classmethod
    def from_counts(cls, kinds: Iterable[str | None]) -> Replies:
        """Count replies by their cause; None for a reply with an action."""
        every = list(kinds)
        causes = Counter(kind for kind in every if kind is not None)
        return cls(total=len(every), causes=dict(causes.most_common()))

    @classmethod
    def sum(cls, parts: Iterable[Replies]) -> Replies:
        """Add up several counts."""
        total, causes, remarks = 0, Counter[str](), Counter[str]()
        for part in parts:
            total += part.total
            causes.update(part.causes)
            remarks.update(part.remarks)
        return cls(total=total, causes=dict(causes.most_common()), remarks=dict(remarks.most_common()))

    @property
    def without_action(self) -> int:
        """Replies without an action."""
        return sum(self.causes.values())

    def format_remarks(self) -> str:
        """Format the kinds of remarks and their counts in one line; empty without any."""
        return _format_counts(self.remarks, REMARKS)

    def __str__(self) -> str:
        told = _format_counts(self.causes, CAUSES)
        return f"{self.without_action} of {self.total}{f' ({told})' if told else ''}"


def list_remarks(remarks: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of a reply's remarks, each once."""
    return tuple(dict.fromkeys(remark.partition(":")[0] for remark in remarks))


def _format_counts(counts: Mapping[str, int], words: Mapping[str, str]) -> str:
    """Format counts by kind in one line."""
    return ", ".join(f"{count} {words.get(kind, kind)}" for kind, count in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """One line of a report."""

    id: str
    task: str
    difficulty: str
    seed: int
    """Seed of the task instance."""
    success: bool
    steps: int
    max_steps: int
    """Step budget of the instance."""
    error: str | None
    """None unless the episode broke."""
    replies: Replies = Replies()
    cut_short: bool = False
    """Whether the run ended it with its first error, which counts as not solved."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> EpisodeResult:
        """Return the result of an episode that has just been played."""
        return cls(
            id=trajectory.id,
            task=trajectory.task.name,
            difficulty=trajectory.task.difficulty or UNRATED,
            seed=trajectory.task.seed,
            success=trajectory.success,
            steps=len(trajectory.steps),
            max_steps=trajectory.task.max_steps,
            error=_explain_end(trajectory.error),
            replies=Replies.of(trajectory.steps),
            cut_short=_is_cut_short(trajectory.outcome),
        )

    @classmethod
    def from_run(cls, summary: EpisodeSummary, replies: Replies) -> EpisodeResult:
        """Return the result of a recorded episode, with its replies."""
        return cls(
            id=summary.id,
            task=summary.task,
            difficulty=summary.difficulty or UNRATED,
            seed=summary.seed,
            success=summary.outcome is not None and summary.outcome.success,
            steps=summary.steps,
            max_steps=summary.max_steps,
            error=_explain_end(summary.error),
            replies=replies,
            cut_short=_is_cut_short(summary.outcome),
        )


def _is_cut_short(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.reason.startswith(FIRST_ERROR)


def _explain_end(error: EpisodeError | None) -> str | None:
    return None if error is None else f"{error.type}: {error.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """Results of a team on some of the episodes; fields as in `Report`."""

    name: str
    planned: Rate
    completed: Rate
    broken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedSampling:
    """Sampling of recorded replies, as far as it is known."""

    temperature: float | None
    """None where the model takes none and samples at its own."""
    top_p: float | None
    """As `temperature`."""
    max_tokens: int | None
    others: Mapping[str, float] = field(default_factory=dict)
    """Further settings that change which words are drawn, e.g. {"top_k": 3}."""


Sampled: TypeAlias = Sampling | PlayedSampling


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """Results of a team."""

    environment: str
    environment_version: str
    privileged: bool
    """Played with knowledge of the solutions: a rehearsal, never a result."""
    planned: Rate
    """Over all planned episodes, broken and missing ones counted as not successful."""
    completed: Rate
    """Over episodes with an outcome."""
    broken: int
    by_task: tuple[GroupReport, ...]
    by_difficulty: tuple[GroupReport, ...]
    mean_steps: float
    """Mean steps of completed episodes; NaN without one."""
    results: tuple[EpisodeResult, ...]
    sampling: Mapping[str, Sampled] = field(default_factory=dict)
    """Slot → sampling of its replies; empty if unknown."""

    @property
    def replies(self) -> Replies:
        """Return the replies of all these episodes, broken ones included."""
        return Replies.sum(result.replies for result in self.results)

    @property
    def is_lost(self) -> bool:
        """Return whether episodes are over and all of them broke, so that they measure and teach nothing."""
        return bool(self.results) and all(one.error is not None for one in self.results)

    def __repr__(self) -> str:
        return f"<Report {self.environment}: success {self.planned}, {format_amount(len(self.by_task), 'task')}>"


def evaluate(
    trajectories: Sequence[Trajectory],
    planned: Sequence[PlannedTask] = (),
    *,
    sampling: Mapping[str, Sampled] | None = None,
) -> Report:
    """Summarise episodes that have just been played.

    Args:
        planned: all planned episodes; empty if these are all.
        sampling: as in `Report`.
    """
    first = trajectories[0] if trajectories else None
    return summarise(
        [EpisodeResult.of(trajectory) for trajectory in trajectories],
        planned,
        environment=first.environment if first else "",
        environment_version=first.environment_version if first else "",
        privileged=any(trajectory.privileged for trajectory in trajectories),
        sampling=sampling,
    )


def summarise(
    results: Sequence[EpisodeResult],
    planned: Sequence[PlannedTask] = (),
    *,
    environment: str,
    environment_version: str,
    privileged: bool,
    sampling: Mapping[str, Sampled] | None = None,
) -> Report:
    """Return a report of finished episodes; `planned` and `sampling` as for `evaluate`."""
    played = Counter(result.task for result in results)
    # What is planned and not played counts as not solved, per task.
    missing = [replace(task, episodes=max(0, task.episodes - played[task.name])) for task in planned]
    whole = _group("all", results, sum(task.episodes for task in missing))
    # Steps of broken episodes say nothing about the team.
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
        sampling=sampling or {},
    )


def _groups(
    results: Sequence[tuple[str, EpisodeResult]], missing: Sequence[tuple[str, int]]
) -> tuple[GroupReport, ...]:
    """Return one group per name, sorted; `missing` counts episodes that were never played."""
    played: dict[str, list[EpisodeResult]] = {}
    for name, result in results:
        played.setdefault(name, []).append(result)
    unplayed: Counter[str] = Counter()
    for name, count in missing:
        unplayed[name] += count
    names = sorted({*played, *+unplayed})
    return tuple(_group(name, played.get(name, ()), unplayed[name]) for name in names)


def _group(name: str, results: Sequence[EpisodeResult], missing: int) -> GroupReport:
    successes, broken = sum(one.success for one in results), sum(one.error is not None for one in results)
    return GroupReport(
        name=name,
        planned=Rate(successes=successes, episodes=len(results) + missing),
        completed=Rate(successes=successes, episodes=len(results) - broken),
        broken=broken,
    )


def pool(reports: Sequence[Report]) -> Report:
    """Pool reports of several runs: every planned episode counts once, whatever its run.

    The Wilson interval of the pooled rate treats episodes as independent. Instances of one task are not quite, so it is
    a little too narrow if a task is played often; `collab.evaluation.comparison` resamples tasks instead.

    Args:
        reports: at least one, of the same environment.

    Raises:
        UsageError: they are of different environments or versions.
    """
    check_same_environment(reports)
    first, results = reports[0], tuple(result for report in reports for result in report.results)
    # Pooled over episodes, not over rates: runs may have unequal numbers.
    steps = [result.steps for result in results if result.error is None]
    return Report(
        environment=first.environment,
        environment_version=first.environment_version,
        privileged=any(report.privileged for report in reports),
        planned=_sum(report.planned for report in reports),
        completed=_sum(report.completed for report in reports),
        broken=sum(report.broken for report in reports),
        by_task=_merge(group for report in reports for group in report.by_task),
        by_difficulty=_merge(group for report in reports for group in report.by_difficulty),
        mean_steps=sum(steps) / len(steps) if steps else math.nan,
        results=results,
        sampling=first.sampling,
    )


def describe_sampling(sampling: Mapping[str, Sampled]) -> str:
    """Format temperatures, and what else was chosen, in words; one value if all slots share it.

    E.g. "temperature 1.5", "temperatures 0.1, 0.3, 0.5, 0.8, top-p 0.9" or "the model's own temperature"; "temperature
    not known" without a slot.
    """
    settings = [list_settings(one) for one in sampling.values()]
    parts = [_values("temperature", [one["temperature"] for one in settings])]
    if any(one["top_p"] != 1 for one in settings):
        parts.append(_values("top-p", [one["top_p"] for one in settings]))
    others = dict.fromkeys(name for one in settings for name in one if name not in ("temperature", "top_p", LONGEST))
    # A penalty of 0 and the like cannot be told from an absent one, so whatever is written counts.
    parts += [_values(name, [one[name] for one in settings if name in one]) for name in others]
    return ", ".join(parts)


def describe_longest(sampling: Mapping[str, Sampled]) -> str:
    """Format the longest reply of each slot in words, e.g. "max_tokens 256"; one value if all slots share it."""
    return f"{LONGEST} {', '.join(dict.fromkeys(str(one.max_tokens) for one in sampling.values()))}"


def list_settings(one: Sampled) -> dict[str, float | None]:
    """Return name → value of all settings that change a slot's replies; None for the model's own."""
    others = one.others if isinstance(one, PlayedSampling) else {}
    return {"temperature": one.temperature, "top_p": one.top_p, LONGEST: one.max_tokens, **others}


LONGEST = "max_tokens"


def _values(name: str, values: Sequence[float | None]) -> str:
    different = dict.fromkeys(values)
    if not different:
        return f"{name} not known"
    if len(different) == 1:
        return f"the model's own {name}" if values[0] is None else f"{name} {values[0]:g}"
    return f"{name}s {', '.join('its own' if one is None else f'{one:g}' for one in values)}"


def check_same_environment(reports: Sequence[Report]) -> None:
    """Raise a UsageError for results of different environments or versions."""
    names = list(dict.fromkeys(f"{report.environment} version {report.environment_version}" for report in reports))
    if len(names) > 1:
        raise UsageError(f"the runs are of {names[0]} and {names[1]}; compare equal environments")


def _merge(groups: Iterable[GroupReport]) -> tuple[GroupReport, ...]:
    """Merge groups of one name; sort by name."""
    named: dict[str, list[GroupReport]] = {}
    for group in groups:
        named.setdefault(group.name, []).append(group)
    return tuple(
        GroupReport(
            name=name,
            planned=_sum(one.planned for one in same),
            completed=_sum(one.completed for one in same),
            broken=sum(one.broken for one in same),
        )
        for name, same in sorted(named.items())
    )


def _sum(rates: Iterable[Rate]) -> Rate:
    known = list(rates)
    return Rate(successes=sum(one.successes for one in known), episodes=sum(one.episodes for one in known))
