"""The interfaces of an algorithm: how it plays an epoch, labels the rollout, and updates the policies.

    class Mine(Algorithm):
        name, description = "mine", "…"
        method, config = MyMethod, TrainingConfig
        presets = Path(__file__).parent / "presets"
        labeller, learner = MyLabeller(), MyLearner()

`loop` calls these three, epoch by epoch, and knows nothing else of an algorithm:

    plan    = await curriculum.plan(state, number, policy)          # which tasks, and how they are played
    labels  = await labeller.label(state, rollouts)                 # each label once, beside its rollout
    update  = await learner.update(state, rollout, labels, policy)  # examples first, then new weights

Each may be killed anywhere: it reads what is complete, resumes what was begun, and makes what is missing. An algorithm
is found by its name: a built-in one (`collab.rollout.build.BUILT_IN`), or an entry point of the group
`collab.algorithms` that names its class. docs/algorithms.md shows one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from collab.config import Budget, PartDefinition, RunConfig, validate
from collab.envs.base import Suite
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library, list_presets, read_preset
from collab.loop.config import Ablation, Method, RecordedInput, TrainingConfig
from collab.loop.policy import Policy
from collab.loop.ranges import Estimate, Range
from collab.loop.record import EpochRecord, ExampleCounts, Trained, TrainingDir, hash_json
from collab.loop.state import LoopState
from collab.rollout.build import list_kinds, load_class
from collab.rollout.run import Beginning
from collab.store.reader import RunReader
from collab.types import Prompt, Trajectory, Usage, Utterance

PARTS = frozenset({"rollout", "examples", "weights", "training", "evaluation"})
"""Parts of an epoch that the loop names itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """Plan of an epoch's rollout."""

    run: RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """Plan of episodes that begin in states of an epoch's rollout."""

    run: RunConfig
    beginnings: Mapping[str, Beginning]
    """Episode → the state in which it begins; one that is not named begins as its task does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The rollout of an epoch: a run that it played, or one that was recorded before the training."""

    number: int
    """Number of the epoch, from 1."""
    run: RunConfig
    path: Path
    """The run's directory; labels lie beside it."""
    trajectories: Sequence[Trajectory]
    """The finished episodes that count, by task and number."""
    reader: RunReader
    """Reader of the run, open during the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """A labeller's result for a rollout."""

    value: Any = None
    """For the learner of the same algorithm."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """For the record of the epoch; JSON values."""
    spent: Mapping[str, Usage] = field(default_factory=dict)
    """Part of the labelling → usage of its calls, earlier processes included."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Part → SHA-256 of its output. The proof that a resumed training ends alike covers only parts with a hash."""

    def __post_init__(self) -> None:
        _refuse_own_parts("labels", self.spent.keys() | self.hashes.keys())


def join_labels(labels: Sequence[Labels]) -> Labels:
    """Return metrics (lists of them), usage and hashes of the labels of several runs as one; of one run, its labels."""
    if len(labels) == 1:
        return labels[0]
    names = {part for one in labels for part in one.spent}
    return Labels(
        metrics={name: [one.metrics.get(name) for one in labels] for one in labels for name in one.metrics},
        spent={part: sum((one.spent[part] for one in labels if part in one.spent), Usage()) for part in sorted(names)},
        hashes={part: hash_json([one.hashes.get(part) for one in labels]) for one in labels for part in one.hashes},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Result of learning."""

    trained: Mapping[str, Trained]
    """By policy with new weights."""
    untrained: Mapping[str, str]
    """By policy that keeps its weights, the reason."""
    examples: Mapping[str, ExampleCounts]
    """By policy, the counts of its examples."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """For the record of the epoch, beside those of the labels."""
    spent: Mapping[str, Usage] = field(default_factory=dict)
    """The algorithm's own part of the learning, e.g. a value model → its usage, earlier processes included."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Part → SHA-256 of its output, for the proof that a resumed training ends alike."""

    def __post_init__(self) -> None:
        _refuse_own_parts("update", self.spent.keys() | self.hashes.keys())


def _refuse_own_parts(what: str, names: Collection[str]) -> None:
    """Raise a ValueError if an algorithm gives a part the name of one of the loop's own."""
    if taken := PARTS.intersection(names):
        raise ValueError(f"{what}: {', '.join(sorted(taken))} are parts of the loop; give these another name")


class Curriculum(Protocol):
    """Decides which tasks an epoch plays, and how."""

    async def plan(self, state: LoopState, number: int, policy: Policy) -> EpochPlan:
        """Return an epoch's run: tasks in order, graph, seed, temperatures and policy; equal at every call."""


class Labeller(Protocol):
    """Labels a rollout."""

    def label_while_playing(self, state: LoopState, run: RunConfig, out: Path) -> AbstractAsyncContextManager[None]:
        """Label finished episodes while the block plays others; may do nothing."""

    async def label(self, state: LoopState, rollouts: Sequence[Rollout]) -> Sequence[Labels]:
        """Label what is not labelled yet in the rollouts of an epoch, and return the labels of each.

        Raises:
            Halted: it stops early.
        """

    def read_spent(self, rollout: Path) -> Usage:
        """Return the cost of earlier processes' labels for an unfinished epoch's rollout."""


class Learner(Protocol):
    """Updates the policies of a team."""

    def check(self, config: TrainingConfig, first: Policy) -> None:
        """Raise a ConfigError for a first policy that could not be trained; nothing is played or paid."""

    async def update(self, state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> Update:
        """Write the examples, then learn from them; raises `Halted` if it stops early."""


@runtime_checkable
class RecordedLearner(Learner, Protocol):
    """A learner that can learn from several runs: recorded ones, what began in states of a rollout, or its own again.

    See `Algorithm.learn_recorded` and `Algorithm.branch`.
    """

    async def update_from_recorded(
        self, state: LoopState, labelled: Sequence[tuple[Rollout, Labels]], policy: Policy
    ) -> Update:
        """Update as `update` does, from several runs, each with its labels."""


class NoLabels:
    """The labeller of algorithms that learn from the environment's outcome alone."""

    def label_while_playing(self, state: LoopState, run: RunConfig, out: Path) -> AbstractAsyncContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()

    async def label(self, state: LoopState, rollouts: Sequence[Rollout]) -> Sequence[Labels]:
        """Return no labels."""
        return [Labels() for _ in rollouts]

    def read_spent(self, rollout: Path) -> Usage:
        """Return no usage."""
        return Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedStep:
    """One step of a training, played in a temporary directory; see `collab.loop.estimate`."""

    run: RunConfig
    library: Library
    policy: Policy
    device: str
    """Where policies are trained, "auto" or "cpu"."""
    out: Path
    """The run's directory."""
    trajectory: Trajectory
    """Has that step, and counts as a success, so that a labeller that uses only outcomes has labels to give."""
    prompts: Sequence[Prompt]
    """Prompts of its cells, in conversation order."""

    def select_cells(self, slots: Sequence[str]) -> tuple[list[Utterance], list[Prompt]]:
        """Return the cells of these slots, and their prompts."""
        cells = zip(self.trajectory.steps[0].matrix.utterances, self.prompts, strict=True)
        own = [(cell, read) for cell, read in cells if cell.agent in slots]
        return [cell for cell, _ in own], [read for _, read in own]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An algorithm's findings before a training begins."""

    notes: Sequence[str] = ()
    """Doubts about the configuration, a line each."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """Facts for `training.json`, by name; the loop's own names are not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionQuality:
    """Quality of a value model: its predictions against the outcomes of tasks that it was not fitted on."""

    held_out: int
    """Predictions that the numbers below are of."""
    accuracy: float | None
    """Share of them on the outcome's side of ½; None without any."""
    auc: float | None
    """Probability that a solved episode has the higher value; None where all outcomes are equal."""
    ece: float | None
    """Expected calibration error; None without any."""
    is_fitted: bool = True
    """False where the fit was undone; then there are no numbers."""
    note: str | None = None
    """What the numbers do not tell, in words; None if nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSummary:
    """The metrics of an epoch's record in the form that the inspector draws; nothing is drawn of an empty field."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    """Single numbers, by the algorithm's own names."""
    curves: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Title of a chart over epochs → name of a line in it → its number in this epoch."""
    histograms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Title of a histogram → name of a bin → its count, in the order of the bins."""
    rewards: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Agent → per round, the share of labelled cells that were rewarded; None if none was labelled."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Cells without a label, by cause."""
    inverted_labels: tuple[int, int] | None = None
    """Cells whose label was inverted on purpose, and labelled cells; None if none is to be inverted."""
    comparisons: Mapping[str, int] = field(default_factory=dict)
    """Comparisons of replies, by source."""
    uncompared: Mapping[str, int] = field(default_factory=dict)
    """Replies that were compared with none, by cause."""
    kept: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """What was considered, e.g. "steps" → how many are learned, and of how many."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Considered steps that are not learned, by cause."""
    predictions: Mapping[str, PredictionQuality] = field(default_factory=dict)
    """What a value model rates, e.g. "states" → how well it predicts."""


class Algorithm:
    """One algorithm.

    A subclass gives `name`, `description`, `method`, `presets` and `learner`; all else has a default.
    """

    name: ClassVar[str]
    """As `--algo` takes it."""
    description: ClassVar[str]
    """One line for listings."""
    method: ClassVar[type[Method]]
    """Type of its presets."""
    config: ClassVar[type[TrainingConfig]] = TrainingConfig
    presets: ClassVar[Path]
    """Folder of YAML files."""
    default_preset: ClassVar[str] = ""
    """Empty for the preset that is called like the algorithm."""
    ablations: ClassVar[Mapping[str, Ablation]] = {}
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of a command beside the configuration (see `check`), by name, with defaults."""
    can_replay: ClassVar[bool] = False
    """Whether its learning can be repeated from recorded episodes and labels alone (`collab train --replay`)."""
    imitates: ClassVar[bool] = False
    """Whether it learns replies of any speaker, so also demonstrations (`RecordedInput.privileged`)."""
    toy: ClassVar[Sequence[str]] = ()
    """Settings of its default preset and of the run for a tiny training in the fake corridor that covers all kinds of
    its work (`collab verify-resume`)."""
    toy_graph: ClassVar[str] = ""
    """Built-in graph of such a training; empty for two agents with two rounds."""
    toy_epochs: ClassVar[int] = 1
    """Fewest epochs of such a training."""
    toy_options: ClassVar[Mapping[str, Any]] = {}
    """Those of `options` for such a training, because nothing (e.g. a calibration) was prepared for it."""

    curriculum: Curriculum | None = None
    """None draws tasks, graph and seed for each epoch (`collab.loop.phases.DrawnTasks`)."""
    labeller: Labeller = NoLabels()
    learner: Learner

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return the fields that `config` adds to those of every training; raises as look-ups of names."""
        return {}

    def learn_recorded(self, method: Method, recorded: Sequence[RecordedInput]) -> Method:
        """Return the method with a first epoch that learns from recorded runs; its learner is a `RecordedLearner`.

        Raises:
            UsageError: the algorithm learns from what it plays itself.
        """
        raise UsageError(f"--offline: {self.name} learns from its own rollouts alone; leave it out")

    def branch(self, config: TrainingConfig, rollout: Rollout) -> BranchPlan | None:
        """Return episodes that are played after an epoch's rollout, from its states; equal at every call.

        They are learned from as another run beside it (`RecordedLearner.update_from_recorded`), and are no part of the
        epoch's success. None plays none.
        """
        return None

    def check_plan(self, method: Method, *, episodes: int, tasks: int) -> None:
        """Raise a ConfigError for an epoch from which nothing could be learned."""

    def check_origin(self, method: Method, other: TrainingConfig, run: Path) -> None:
        """Raise a ConfigError for a team of another training whose examples could not be used here."""

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Return doubts about the configuration, a line each; UsageError if nothing could be learned. Opens nothing.

        Args:
            suite: of the run.
        """
        return []

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check everything the algorithm needs beside the team, before anything is written, played or paid.

        Args:
            suite: of the run.
            options: all of `options`, with a command's values.

        Raises:
            ConfigError, UsageError, ModelFailure: a part cannot be built, may not be used or does not answer.
        """
        return Checked(notes=self.list_doubts(config, suite))

    def check_resumed(self, config: TrainingConfig, head: Mapping[str, Any]) -> None:
        """Raise a RunFormatError if a part has changed since the training began.

        Args:
            head: `training.json`, with what `check` put there.
        """

    async def check_budget(self, config: TrainingConfig, budget: Budget) -> None:
        """Raise a UsageError for a limit on something that a part of the algorithm does not count."""

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate labelling and learning from one step; `rolled` are the environment steps of all rollouts."""
        raise UsageError(f"--plan: {self.name} gives no estimate; train without a plan")

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, in a clause, for model cards."""
        return self.description

    def describe_examples(self, config: TrainingConfig, records: Sequence[EpochRecord], group: str) -> str:
        """Describe the data that a policy learned from in these epochs, for model cards."""
        return f"{sum(one.examples[group].examples for one in records if group in one.examples)} examples"

    def build_columns(self, record: EpochRecord) -> Mapping[str, object]:
        """Return columns of the table of epochs, by heading; None for unknown values."""
        return {"examples": sum(one.examples for one in record.examples.values()) if record.examples else None}

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return the record's metrics for the inspector; RunFormatError for those that the algorithm cannot write."""
        numbers = {name: value for name, value in record.metrics.items() if type(value) in (int, float)}
        return EpochSummary(numbers=numbers)

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format the record's own metrics, a line each, each with a word of eight letters in front."""
        return [f"{name[:8]:<8} {value}" for name, value in record.metrics.items() if not isinstance(value, dict)]


def load_algorithm(name: str) -> Algorithm:
    """Return an algorithm by name.

    Raises:
        UnknownName: no algorithm has that name; a class is not enough, because a recorded training names it too.
        ConfigError: its package cannot be imported, or the class is no algorithm.
    """
    known = list_kinds("algorithms")
    if name not in known:
        raise UnknownName.of("algorithm", name, known)
    return _create_algorithm(name, known[name])


@cache
def _create_algorithm(name: str, target: str) -> Algorithm:
    found = load_class("algorithms", PartDefinition(kind=name), f"algorithm {name}")()
    # A subclass, not a look-alike: the base class holds what every algorithm inherits.
    if not isinstance(found, Algorithm):
        raise ConfigError(f"algorithm {name}: {target} is no subclass of collab.loop.interfaces.Algorithm")
    # Missing parts are named at once; without this check they would fail in the middle of an epoch.
    lacking = [one for one in ("name", "description", "method", "presets", "learner") if not hasattr(found, one)]
    if not lacking and not hasattr(found.method, "RECIPE"):
        lacking = ["method.RECIPE"]
    if lacking:
        raise ConfigError(
            f"algorithm {name}: {target} has no {', '.join(lacking)}; docs/algorithms.md says what they are"
        )
    return found


def complete_options(algorithm: Algorithm, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of an algorithm, with the given values; UsageError for an unknown one."""
    for name in given.keys() - algorithm.options.keys():
        raise UsageError(f"--{name.replace('_', '-')}: {algorithm.name} has no such option; leave it out")
    return {**algorithm.options, **given}


def load_method(algorithm: Algorithm, name: str | None = None) -> Method:
    """Return a method by name, or from the user's YAML file; None for the algorithm's default preset.

    Raises:
        UnknownName: no preset has that name.
        ConfigError: the file cannot be read or does not fit.
    """
    return read_preset(
        name or algorithm.default_preset or algorithm.name, list_presets(algorithm.presets), algorithm.method
    )


def load_config(content: Any, where: str) -> TrainingConfig:
    """Return the configuration of a training, parsed by its algorithm; ConfigError if it does not fit."""
    algorithm = content.get("algorithm") if isinstance(content, Mapping) else None
    if not isinstance(algorithm, str):
        raise ConfigError(f"{where}: algorithm is missing; name one of: {', '.join(sorted(list_kinds('algorithms')))}")
    try:
        known = load_algorithm(algorithm)
    except UnknownName as error:
        raise UnknownName(f"{where}: {error}; install the package that declares it") from None
    if "method" in content and known.config.model_fields["method"].annotation is not known.method:
        content = {**content, "method": validate(known.method, content["method"], f"{where}: method")}
    return validate(known.config, content, where)


def read_training(folder: TrainingDir) -> tuple[dict[str, Any], TrainingConfig]:
    """Return the content of `training.json`, and the configuration in it.

    Raises:
        RunFormatError: there is no training, or another version wrote it.
        ConfigError: the configuration does not fit.
    """
    head = folder.read()
    return head, load_config(head.get("config", {}), str(folder.file))
