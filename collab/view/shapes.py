"""What the inspector answers, field by field: runs, overview, episodes, comparisons, search, events.

Steps are in `collab.view.step_shapes`. Every answer is one JSON object with exactly these names. None is null; what it
means stands at the field. Times are ISO 8601 in UTC; `_s` and `seconds` are seconds; rates and shares lie in [0, 1];
entropies and log-probabilities are in nats; boxes and points are in pixels of the recorded screen. Rounds, steps and
epochs count from 0. Seeds are decimal texts, for they may not fit a double. Numbers that are not finite are null.

    GET /api/runs                                     Runs
    GET /api/run/{run}                                RunView
    GET /api/run/{run}/overview?labels                Overview
    GET /api/run/{run}/problems                       Problems
    GET /api/run/{run}/episodes?…filters              Episodes            (filters: `EpisodeFilter`)
    GET /api/run/{run}/finds?kind&labels              Finds               kind: first-wrong, overruled, disagrees
    GET /api/run/{run}/search?q                       Hits
    GET /api/run/{run}/episode?episode&labels         EpisodeView         not of a training: ask its runs from here on
    GET /api/run/{run}/step?episode&step&labels       step_shapes.StepView
    GET /api/run/{run}/final?episode                  step_shapes.Screen  after the last action
    GET /api/run/{run}/cell?episode&step&agent&round&labels    step_shapes.CellWhole
    GET /api/run/{run}/screen?episode&step            step_shapes.ScreenWhole
    GET /api/run/{run}/critics?episode&step           step_shapes.Critics
    GET /api/run/{run}/picture/{sha256}               image/webp, as it was recorded
    GET /api/run/{run}/drawn?episode&step             image/png, drawn from the recorded elements; step=final: the last
    GET /api/compare?a&b                              Comparison          a and b: ids of runs or trainings
    GET /api/compare/episode?a&b&episode_a&episode_b&labels    EpisodePair   a and b: ids of runs
    GET /api/live?run&run…                            text/event-stream of `Growth`; without run: of all listed runs

    GET /                                             static/index.html; states of the page live behind the "#"
    GET /?token=…                                     sets the session's cookie and sends on to / (a "#…" is kept)
    GET /static/{file}                                files of static/ as they are; needs no session

`labels` names a labelling; without it the first of `labellings` is taken, and "" takes none. Episode ids hold slashes
and anything else: encode them. An answer that is an error is {"error": "one line"} with 400 (does not fit), 401 (no
session: open the printed address again), 403 (foreign host or origin), 404 (not there), 410 (was there, cannot be read
any more). Unknown parameters are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

CUT = 4000
"""Characters of a long text that are answered at first."""

Status: TypeAlias = Literal["running", "finished", "stopped", "dead"]
Edge: TypeAlias = tuple[str, str]
"""(speaker, hearer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text that may be long."""

    text: str
    """At most `CUT` characters (code points)."""
    cut: int
    """Characters left out at its end; 0 when it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How often something succeeded."""

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
    environment: str
    graph: str
    agents: str
    seed: str
    created: str
    updated: str | None
    """When an episode last changed; None before the first."""
    status: Status
    privileged: bool
    """Spoken with knowledge of the solutions: no result of a language model."""
    planned: int | None
    """Episodes; None when not fixed. Of a training: epochs."""
    done: int
    """Episodes that are over; of a training, epochs."""
    broken: int
    success: Rate
    """Over planned episodes. Of a training: held-out success of its best epoch, else of its last rollout."""
    steps: int
    calls: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    """Sums over the calls that tell; None where none does. Of a run: its play, for what critics took stands in its
    overview. Of a training: its runs, and what its finished epochs asked of critics and adversaries."""
    seconds: float
    """Of finished episodes, added up; of a training, of its parts, judging and training of finished epochs included."""
    problems: int
    """Things that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """All runs that were named, newest first."""

    collab: str
    """Version of Collab."""
    runs: Sequence[RunRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A run within a training."""

    id: str
    epoch: int
    role: Literal["rollout", "evaluation"]
    seed: str
    """Run seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run or training, and where it belongs."""

    run: RunRow
    training: str | None
    """Id of the training that it is a part of; None for a run of its own."""
    parts: Sequence[PartRow]
    """Of a training, by epoch, rollout first; empty for a run."""
    versions: Mapping[str, str]
    labellings: Sequence[str]
    pair_sets: Sequence[str]
    """Both of a run; empty for a training."""
    config: str
    """The whole configuration as indented JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that cannot be read."""

    file: str
    """Relative to the run."""
    line: int | None
    """From 1; None when it is not about a line."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """All of a run; of a training, those of its runs with their folder before `file`."""

    problems: Sequence[Problem]


# ------------------------------------------------------------------------------------------------------- overview


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRate:
    """Success of a task over its planned episodes."""

    name: str
    difficulty: str | None
    success: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Rewards per agent and round."""

    agents: Sequence[str]
    rounds: int
    rates: Sequence[Sequence[float | None]]
    """[agent][round] share of judged cells that were rewarded; None where none was judged."""
    critic: str | None
    """None where it is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """Who heard whom."""

    agents: Sequence[str]
    edges: Sequence[Edge]
    layers: Sequence[Sequence[str]]
    """Agents that can speak at the same time, first to last; those on a cycle are in none."""
    added: Sequence[Edge]
    removed: Sequence[Edge]
    """Against the graph before; both empty for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One logged step of training."""

    step: int
    loss: float | None
    margin: float | None
    """β times the mean difference of log-ratios, chosen less rejected; None where nothing is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What became of one policy in an epoch."""

    policy: str
    """"shared", or the slots' own."""
    measures: Sequence[Measure]
    """At most 200, evenly spread; empty when the log is not there."""
    steps: int
    tokens: int
    loss: float | None
    margin: float | None
    accuracy: float | None
    """As last logged; None where nothing was compared."""
    untrained: str | None
    """Why it stayed what it was; None when it was trained."""
    alarm: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a part took."""

    part: str
    """"rollout", "critic", "adversary", "training", "evaluation"; of a run: "deliberation", "environment"."""
    seconds: float | None
    """None where it is not known."""
    calls: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    """None where it is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochView:
    """One epoch in numbers; a run that is no training has one per epoch number that it recorded, usually one."""

    epoch: int
    over: bool
    """Whether its record is written; of a run, whether it is finished."""
    played: Rate | None
    """Of the rollout; None where nothing was played."""
    measured: Rate | None
    """On held-out seeds after training; None where that was not measured."""
    steps: int
    rewards: Heat | None
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
    """Pairs by source, and rewarded cells without one by cause."""
    older: int | None
    """Rows of older epochs that were learned from as well; None where nothing was trained."""
    trained: Sequence[Trained]
    spent: Sequence[Spending]
    graph: GraphView | None
    """None where no graph is recorded."""
    runs: Sequence[PartRow]
    """Of a training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run or a training in numbers."""

    run: RunRow
    labels: str | None
    """The labelling that rewards and finds rest on; None when there is none, or for a training."""
    tasks: Sequence[TaskRate]
    """Of a training: of its last rollout."""
    epochs: Sequence[EpochView]
    best: int | None
    """Epoch with the highest held-out success; None when none was measured."""


# ------------------------------------------------------------------------------------------------------- episodes


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
    sort: Literal["order", "task", "steps", "score", "agreement", "entropy", "seconds"] = "order"
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
    """Of the instance."""
    state: Literal["unfinished", "finished", "failed"]
    """failed: broken by the machinery."""
    success: bool | None
    score: float | None
    reason: str | None
    """Of the environment's judgement; all None unless finished."""
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
class Facet:
    """A value to filter by."""

    value: str
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """A page of episodes."""

    total: int
    """That pass the filter."""
    offset: int
    rows: Sequence[EpisodeRow]
    tasks: Sequence[Facet]
    apps: Sequence[Facet]
    difficulties: Sequence[Facet]
    errors: Sequence[Facet]
    epochs: Sequence[Facet]
    """Of all episodes, unfiltered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """A step worth looking at."""

    run: str
    episode: str
    step: int
    agent: str | None
    round: int | None
    """The cell in question; None when it is about the step."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finds:
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
    """Steps with a score; 0: nothing can be found until critics have judged (`collab critic`, `collab train-marl`)."""
    rows: Sequence[Find]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step in one line. Texts are cut at 300 characters."""

    step: int
    title: str
    action: str
    """In words, its element by label: 'tap icon "Save"'; empty when nothing was executed."""
    effect: str
    """What the screen did, as later prompts tell it."""
    no_action: bool
    agreement: float | None
    """None without cells."""
    entropy: float
    tie: bool
    failures: int
    score: float | None
    """See `Finds`; None where it was not judged."""
    overruled: bool
    pairs: int
    """Made from it, in the set of pairs that was stored last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeKey:
    """Where an episode is."""

    run: str
    episode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeView:
    """An episode with its steps in lines."""

    row: EpisodeRow
    goal: Text
    params: Text
    """As JSON."""
    labels: str | None
    steps: Sequence[StepRow]
    missing: Sequence[int]
    """Steps that were recorded and cannot be read."""
    final: bool
    """Whether the screen after the last action is there."""
    previous: EpisodeKey | None
    next: EpisodeKey | None
    """In the order of the run; of a training's rollout, within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
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
class Hits:
    """What was found: tasks, goals, apps, errors, titles of screens, actions, effects, first letters of pairs' ids."""

    q: str
    """The words that were searched: at most the first 300 characters of what was asked, as texts are known to 300."""
    rows: Sequence[Hit]
    more: bool
    """Whether there are more than these 100."""


# ---------------------------------------------------------------------------------------------- comparison, events


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A task with a seed that both runs played."""

    task: str
    seed: str
    a: EpisodeRow
    b: EpisodeRow
    diverged: int | None
    """First step whose title or executed action differs; None when all are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs on equal instances."""

    a: RunRow
    b: RunRow
    both: Sequence[Instance]
    only_a: int
    only_b: int
    """Instances without a counterpart; of episodes of one instance the last counts."""
    success_a: Rate
    success_b: Rate
    """Over equal instances that are over in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPair:
    """The same step of two episodes."""

    step: int
    a: StepRow | None
    b: StepRow | None
    """None behind its end, or where it cannot be read."""
    same_screen: bool | None
    same_action: bool | None
    """Exactly; None where one is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePair:
    """Two episodes of equal instances, step by step."""

    a: EpisodeRow
    b: EpisodeRow
    steps: Sequence[StepPair]
    diverged: int | None
    """First step that differs; None when all are alike."""
    why: Literal["screen", "action", "length"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Told when a run grew or its status changed, and once for each run at the beginning (SSE event "run")."""

    id: str
    state: str
    """Equal texts: nothing has changed."""
    status: Status
    done: int
    steps: int
