"""The table of episodes and what it can be filtered by, and one episode with its steps in lines.

The three jumps to steps worth looking at, and the search.

Two runs on equal instances, and two episodes of one instance step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collab.view.schema.runs import LongTextView, RateView, RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFilter:
    """Query parameters of `episodes`; None or empty filters nothing."""

    task: str | None = None
    app: str | None = None
    difficulty: str | None = None
    epoch: int | None = None
    outcome: Literal["solved", "failed", "broken", "unfinished"] | None = None
    """failed: played to its end and not solved; broken: the machinery failed."""
    error: str | None = None
    """Class of the error."""
    min_steps: int | None = None
    max_steps: int | None = None
    max_agreement: float | None = None
    """Only episodes whose mean agreement is at most this: the disputed ones."""
    q: str = ""
    """Occurs in id or goal, whatever the case."""
    sort: Literal["order", "epoch", "task", "steps", "score", "agreement", "entropy", "seconds"] = "order"
    """order: epoch, task, number."""
    descending: bool = False
    offset: int = 0
    limit: int = 200
    """At most 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """A line of the table of episodes. Texts are cut at 300 characters."""

    run: str
    """Id of the run that it is in."""
    id: str
    task: str
    goal: str
    difficulty: str | None
    apps: Sequence[str]
    epoch: int
    episode: int
    seed: str
    """Seed of the instance."""
    state: Literal["unfinished", "finished", "failed"]
    """failed: broken by the machinery."""
    success: bool | None
    score: float | None
    reason: str | None
    """Reason for the environment's judgement; all None unless finished."""
    error: str | None
    error_message: str | None
    """None unless failed."""
    steps: int
    """That can be read."""
    max_steps: int
    seconds: float | None
    """None while unfinished."""
    agreement: float | None
    entropy: float | None
    """Means over steps; None without any."""
    ties: int
    failures: int
    """Cells whose reply gave no action."""
    privileged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetView:
    """A value to filter by."""

    value: str
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesView:
    """A page of episodes."""

    total: int
    """That pass the filter."""
    offset: int
    rows: Sequence[EpisodeRow]
    tasks: Sequence[FacetView]
    apps: Sequence[FacetView]
    difficulties: Sequence[FacetView]
    errors: Sequence[FacetView]
    epochs: Sequence[FacetView]
    """Epochs of all episodes, unfiltered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeKey:
    """Key of an episode."""

    run: str
    episode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step in one line. Texts are cut at 300 characters."""

    step: int
    title: str
    action: str
    """In words, its element by label: 'tap icon "Save"'; empty when nothing was executed."""
    effect: str
    """The screen's change, as in later prompts."""
    no_action: bool
    copied: bool
    """Taken over from another episode, in whose state this one begins."""
    agreement: float | None
    """None without cells."""
    entropy: float
    tie: bool
    failures: int
    score: float | None
    """See `FoundStepsView`; None where it was not judged."""
    overruled: bool
    pairs: int
    """Made from it, in the set of pairs that was stored last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    """A reply to a step's state that was sampled, and not executed."""

    count: int
    """Replies that are token for token this one."""
    text: str
    action: str | None
    """As a reply writes it; None for a reply without an action."""
    value: float
    """Q."""
    advantage: float
    truth: float | None
    """Score of the action by the environment's own solution; None where it was not asked for, or is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateView:
    """Estimates of a step that a training considered; None where it does not estimate that."""

    step: int
    reward: float
    """Reward of the episode."""
    value: float | None
    """V of its state; where a target and no V behind it is named, Q of its reply after the epoch's fit."""
    value_next: float | None
    """V of the state behind it; 0 behind the last one."""
    step_reward: float | None
    """Reward of the step itself, by a critic."""
    target: float | None
    """Return that its value is fitted to."""
    instruct_value: float | None
    """V of the episode's task."""
    instruct_advantage: float | None
    """Advantage of the episode over its task."""
    advantage: float | None
    """Advantage of the step."""
    penalty: float | None
    """What its advantage lost, at most 0."""
    ratio: float | None
    """Probability of its reply when it was learned over that when it was sampled, cut at 1."""
    entropy: float | None
    """Mean entropy of the policy over its reply, in nats."""
    staleness: int | None
    """Versions between the policy that replied and the one that learned."""
    priority: float | None
    """Priority of its episode among those remembered."""
    threshold: float | None
    """Above which an advantage is learned."""
    weight: float
    """What multiplies its loss; 0 for a step that is not learned."""
    why: str
    """"kept", or why it is not learned."""
    candidates: Sequence[CandidateView]
    """Other replies to its state, the highest Q first; empty where none were sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEstimates:
    """Estimates of an episode's steps in one epoch of its training."""

    epoch: int
    policy: str
    """That may learn from them."""
    steps: Sequence[EstimateView]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeView:
    """An episode with its steps in lines."""

    row: EpisodeRow
    goal: LongTextView
    params: LongTextView
    """As JSON."""
    labels: str | None
    steps: Sequence[StepRow]
    missing: Sequence[int]
    """Steps that were recorded and cannot be read."""
    final: bool
    """Whether the screen after the last action is there."""
    estimates: Sequence[EpisodeEstimates]
    """Estimates of each epoch that considered it, the newest first; empty for a run of no training."""
    unestimated: str | None
    """Why there are none, or which are lacking; None where all are there, or its training estimates nothing."""
    previous: EpisodeKey | None
    next: EpisodeKey | None
    """In the order of the run; of a training's rollout, within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStepView:
    """A step worth looking at."""

    run: str
    episode: str
    step: int
    agent: str | None
    round: int | None
    """The cell in question; None when it is about the step."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStepsView:
    """Steps of one kind, in the order of the episodes, at most one per episode for first-wrong and disagrees.

    A step's score is the mean over the scored cells that proposed what was executed; 0.5 and less is not rewarded.
    first-wrong: of an episode that was not solved, the first step whose score is not rewarded.
    overruled: the step is not rewarded, although some cell is; that cell is the best one.
    disagrees: a solved episode in which at most half of the judged steps are rewarded (its first unrewarded step), or
    one that was not solved although all are (its last step).
    """

    kind: Literal["first-wrong", "overruled", "disagrees"]
    labels: str | None
    judged: int
    """Steps with a score; 0: nothing can be found until critics have judged (`collab critic`, `collab train`)."""
    rows: Sequence[FoundStepView]


@dataclass(frozen=True, slots=True, kw_only=True)
class HitView:
    """A place where the searched words stand."""

    run: str
    episode: str
    step: int | None
    agent: str | None
    round: int | None
    """None where it is about the whole episode or step."""
    where: Literal["task", "goal", "app", "error", "screen", "action", "effect", "proposal", "pair"]
    """proposal: what one cell proposed, in words of the log: "click [3]"."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsView:
    """Found texts: tasks, goals, apps, errors, titles of screens, actions, effects, first letters of pairs' ids."""

    q: str
    """The words that were searched: at most the first 300 characters of what was asked, as texts are known to 300."""
    rows: Sequence[HitView]
    more: bool
    """Whether there are more than these 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """A task with a seed that both runs played."""

    task: str
    seed: str
    a: EpisodeRow
    b: EpisodeRow
    diverged: int | None
    """First step at which screen or executed action differ, as in `EpisodePairView`; None when all are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceView:
    """Success of B minus that of A over equal instances that are over in both."""

    instances: int
    won: int
    """Instances that B alone solved."""
    lost: int
    """Instances that A alone solved."""
    value: float
    """In [-1, 1]."""
    low: float | None
    high: float | None
    """95 % interval of the paired difference, tasks resampled before their instances; None below ten instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """Two runs on equal instances."""

    a: RunRow
    b: RunRow
    both: Sequence[InstanceView]
    only_a: Sequence[EpisodeRow]
    only_b: Sequence[EpisodeRow]
    """Instances without a counterpart; of episodes of one instance the last counts."""
    success_a: RateView
    success_b: RateView
    """Over equal instances that are over in both."""
    difference: DifferenceView | None
    """None without such an instance."""
    sampled_alike: bool
    """Whether both name the same temperatures; else what differs may come from that alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPairView:
    """The same step of two episodes."""

    step: int
    a: StepRow | None
    b: StepRow | None
    """None behind its end, or where it cannot be read."""
    same_screen: bool | None
    same_action: bool | None
    """By digest: all that agents could see, all that was executed. None where one is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePairView:
    """Two episodes of equal instances, step by step."""

    a: EpisodeRow
    b: EpisodeRow
    steps: Sequence[StepPairView]
    diverged: int | None
    """First step that differs; None when all are alike. One that was lost on either side is passed over."""
    why: Literal["screen", "action", "length"] | None
