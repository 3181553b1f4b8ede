"""A run or a training in numbers, over epochs.

Runs and trainings: the table of all, where one belongs, what of it cannot be read, and that it grew.

What several answers are made of: texts that may be long, rates, edges of a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

CUT = 4000
"""Characters of a long text that are answered at first."""
RunStatus: TypeAlias = Literal["running", "finished", "stopped", "dead"]
PartRole: TypeAlias = Literal["rollout", "branches", "evaluation"]
"""What a run is in an epoch; branches begin in states of the rollout."""
RatedThing: TypeAlias = Literal["states", "tasks"]
"""What values are of."""
PlayEnd: TypeAlias = Literal["ended", "broken", "cut off", "running"]
"""End of a play: with an outcome, with an error, with the death of its worker or process, or not yet."""
Edge: TypeAlias = tuple[str, str]
"""(speaker, hearer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTextView:
    """A text that may be long."""

    text: str
    """At most `CUT` characters (code points)."""
    cut: int
    """Characters left out at its end; 0 when it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateView:
    """Success rate with its interval."""

    successes: int
    episodes: int
    value: float | None
    low: float | None
    high: float | None
    """95 % Wilson interval; all three None without episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A line of the table of runs."""

    id: str
    """Names it in every address; made of [A-Za-z0-9._-], the same in every session."""
    path: str
    kind: Literal["run", "training"]
    unreadable: str | None
    """Why nothing of it can be read; then all below is empty, 0 or None."""
    command: str
    algorithm: str
    """That trains; empty for a run."""
    environment: str
    graph: str
    agents: str
    seed: str
    created: str
    updated: str
    """When one of its files was last written, UTC, ISO 8601."""
    status: RunStatus
    privileged: bool
    """Spoken with knowledge of the solutions: no result of a language model."""
    planned: int | None
    """Episodes; None when not fixed. Of a training: epochs."""
    done: int
    """Episodes that are over; of a training, epochs."""
    episodes: int
    """Episodes that are over; of a training, those of its runs."""
    broken: int
    """Episodes."""
    success: RateView
    """Over planned episodes, those that are not over counted as not solved; of a training's rollout that ends with so
    many steps over those that are learned from. Of a training: as `success_of` says."""
    success_of: str
    """Seeds and epoch that a training's `success` belongs to, in words; empty for a run."""
    replies: int
    """Replies of the episodes that are over and count; of a training, of all its runs."""
    without_action: int
    """Replies among them that gave no action."""
    sampling: str
    """Temperatures of its agents in words, e.g. "temperature 1.5"; empty where they are unknown. Of a training: of its
    rollouts and of its evaluations, apart where they differ."""
    steps: int
    calls: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    """Sums over the calls that report them, of its agents, critics and adversaries; None without any. Calls of steps
    that never ended are among them. Of a training: of its runs."""
    seconds: float
    """By the clock, from the first to the last event of each process that worked on it; of a training, of its runs,
    and judging, adversaries and training of finished epochs."""
    problems: int
    """Things that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsView:
    """All runs that were named, the one written last first; unreadable ones last."""

    collab: str
    """Version of Collab."""
    runs: Sequence[RunRow]
    parts: Mapping[str, Sequence[RunRow]]
    """Training → its runs, by epoch, rollout first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A run within a training."""

    id: str
    epoch: int
    role: PartRole
    seed: str
    """Run seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run or training, and where it belongs."""

    run: RunRow
    training: str | None
    """Id of the training that it is a part of; None for a run of its own."""
    parts: Sequence[PartRow]
    """Parts of a training, by epoch, rollout first; empty for a run."""
    versions: Mapping[str, str]
    label_sets: Sequence[str]
    """Label sets of a training: those of its rollouts, each name once."""
    pair_sets: Sequence[str]
    """Pair sets of a run; empty for a training."""
    config: str
    """The configuration as indented JSON; at most 200,000 characters, and an ellipsis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """Something that cannot be read."""

    file: str
    """Relative to the run."""
    line: int | None
    """From 1; None when it is not about a line."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemsView:
    """All of a run; of a training, those of its runs with their folder before `file`."""

    problems: Sequence[ProblemView]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthView:
    """Sent when a run grew or its status changed, and once for each run at the beginning (SSE event "run")."""

    id: str
    state: str
    """Equal texts: nothing has changed."""
    status: RunStatus
    done: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRateView:
    """Success of a task over the episodes that count: those of `RunRow.success`, of a training those of its rollout."""

    name: str
    difficulty: str | None
    success: RateView


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureModeView:
    """Why some of the unsolved episodes failed (`collab.evaluation.failures`)."""

    mode: str
    words: str
    coarse: str | None
    """One of the three coarse modes; None where it belongs to none."""
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatView:
    """Rewards per agent and round."""

    agents: Sequence[str]
    rounds: int
    rates: Sequence[Sequence[float | None]]
    """[agent][round] share of judged cells that were rewarded; None where none was judged."""
    critic: str | None
    """None where it is not recorded."""
    labelled: int | None = None
    """Cells that the critic has labelled, …"""
    cells: int | None = None
    """… of so many that were played; both None where the labels are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """The communication graph: which agent heard which."""

    agents: Sequence[str]
    edges: Sequence[Edge]
    layers: Sequence[Sequence[str]]
    """Agents that can speak at the same time, first to last; those on a cycle are in none."""
    added: Sequence[Edge]
    removed: Sequence[Edge]
    """Against the graph before; both empty for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """A metric that the training of a policy logged."""

    title: str
    value: float | None
    """The last loss; of others the mean over the last quarter of the logged steps. None where it is unknown."""
    points: Sequence[tuple[int, float]]
    """Steps and values, at most 200, evenly spread; empty when the log is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedView:
    """Training of one policy in an epoch."""

    policy: str
    """"shared", or the slots' own."""
    metrics: Mapping[str, MetricView]
    """Those that were logged or recorded, by name."""
    steps: int
    tokens: int
    untrained: str | None
    """Why it was not trained; None when it was."""
    alarm: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingView:
    """Cost of a part."""

    part: str
    """A training has "rollout", "critic", "adversary", "training", "evaluation" and "rollout, not learned from": beyond
    its epoch's steps, broken, or never ended. A run has "deliberation", "environment" and "not recorded": calls of
    steps that never ended and of replaced attempts. It also has "critic" (all of them) and "adversary" if asked."""
    seconds: float | None
    """By the clock; of deliberation and environment, added up over episodes, which run at the same time. None where it
    is not known."""
    seconds_note: str | None
    """Why `seconds` is None, or what it rests on; None where nothing is to be said."""
    calls: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    """None where it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionView:
    """Quality of values: predictions against the outcomes of tasks that they were not fitted on."""

    held_out: int
    """Predictions that the numbers are of."""
    accuracy: float | None
    auc: float | None
    """None where all outcomes are equal."""
    ece: float | None
    """Expected calibration error."""
    note: str | None = None
    """What the numbers do not tell, e.g. that the fit was undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Values from `low` to below `high`; the last bin includes 1."""

    low: float
    high: float
    count: int
    mean: float | None
    """Mean value, …"""
    solved: float | None
    """… and the share of them whose episode was solved; both None where `count` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationView:
    """Values of an epoch in bins, beside how often the episodes were solved; of all that it estimated."""

    epoch: int
    policy: str
    rated: RatedThing
    """A state has one value per step, a task one per episode."""
    bins: Sequence[ReliabilityBin]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayView:
    """A worker's time with an episode: from its start, or a resumption, to its end or to the next play of it."""

    run: str
    """Id of the run that holds the episode."""
    episode: str
    worker: str
    version: int | None
    """Newest version among the policies that replied; None before the first step."""
    begun: float
    """Seconds since 1970."""
    seconds: float
    """Until the last thing that was recorded of it."""
    first: int
    """Step that it begins with."""
    steps: int
    """Made in it."""
    again: bool
    """Whether the episode was begun before."""
    end: PlayEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochView:
    """One epoch in numbers; a run that is no training has one per epoch number that it recorded, usually one."""

    epoch: int
    over: bool
    """Whether its record is written; of a run, whether it is finished."""
    played: RateView | None
    """Success of a run of one epoch; else of the finished episodes. In a training, here and below, only episodes that
    count for it are included once they are known. None where nothing was played."""
    measured: RateView | None
    """On held-out seeds after training; None where that was not measured."""
    steps: int
    rewards: HeatView | None
    """None where nothing was judged."""
    missing: Mapping[str, int]
    """Cells without a score, by cause."""
    agreement: float | None
    """Mean share of a step's cells that voted for the winner; where a training's rollout cannot be read, of its parsed
    cells, as the record has it."""
    entropy: float | None
    """Mean entropy of the votes. Both None without steps."""
    ties: int | None
    """Steps; None where the runs of the epoch are not there."""
    failures: Mapping[str, int]
    """Cells whose reply gave no action, by kind."""
    pairs: Mapping[str, int]
    """Pairs by source."""
    unpaired: Mapping[str, int]
    """By cause, rewarded cells and wrong proposals that no pair was made of."""
    older: int | None
    """Rows of older epochs that were learned from as well; None where nothing was trained."""
    trained: Sequence[TrainedView]
    spent: Sequence[SpendingView]
    graph: GraphView | None
    """None where no graph is recorded."""
    runs: Sequence[PartRow]
    """Runs of a training's epoch."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Single numbers of a training's epoch, by the algorithm's own names."""
    inverted_labels: tuple[int, int] | None = None
    """Cells whose reward was inverted on purpose, and cells with a score; None without inversion."""
    curves: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Title of a chart → name of a line in it → its number."""
    histograms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Title of a histogram → name of a bin → its count, in the order of the bins."""
    kept: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """What was considered, e.g. "steps" → how many are learned, and of how many."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Considered steps that are not learned, by cause."""
    predictions: Mapping[str, PredictionView] = field(default_factory=dict)
    """What values rate, e.g. "states" → how well they predict."""
    plays: Sequence[PlayView] = ()
    """Plays of its rollout, in the order in which they began; empty where no worker is recorded."""
    more_plays: int = 0
    """Later ones that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverview:
    """A run or a training in numbers."""

    run: RunRow
    labels: str | None
    """The label set that rewards and highlights rest on; None when there is none. Of a training: in the epochs whose
    rollout has it."""
    tasks: Sequence[TaskRateView]
    """Tasks of a training's last rollout, …"""
    tasks_epoch: int | None = None
    """… which is of this epoch; None for a run."""
    failures: Sequence[FailureModeView] = ()
    """Failures of the episodes that `tasks` counts; empty where nothing failed or failures were not looked at."""
    epochs: Sequence[EpochView]
    best: int | None
    """Epoch with the highest held-out success; None when none was measured."""
    calibrations: Sequence[CalibrationView] = ()
    """Calibrations by epoch, of a training whose algorithm estimates values."""
    unestimated: str | None = None
    """Which estimates of a training are missing or cannot be read; None where all are there."""
