"""What an algorithm is: how an epoch is played, how its rollout is labelled, and how a policy learns from it.

    class Mine(Algorithm):
        name, description = "mine", "…"
        method, config = MyMethod, TrainingConfig
        presets = Path(__file__).parent / "presets"
        curriculum, labeller, learner = DrawnTasks(), NoLabels(), MyLearner()

`loop` calls these three, epoch by epoch, and knows nothing else of an algorithm:

    plan    = await algorithm.curriculum.plan(state, number, policy)         # which tasks, and how they are played
    labels  = await algorithm.labeller.label(state, rollout)                 # each label once, beside the rollout
    update  = await algorithm.learner.update(state, rollout, labels, policy) # examples first, then new weights

Each may be killed anywhere: what is there is read, what was begun is resumed, what is missing is made. An algorithm is
found by its name: a built-in one (`collab.rollout.build.BUILT_IN`), or an entry point of the group `collab.algorithms`
that names its class. docs/algorithms.md shows one.

For `--plan`, the module also holds `Range` and `Questions`: what a training will take, between a low and a high number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from collab.config import Budget, PartDefinition, RunConfig, validate
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library, list_presets, read_preset
from collab.loop.config import Ablation, Method, TrainingConfig
from collab.loop.policy import Policy
from collab.loop.record import EpochRecord, ExampleCounts, Trained, TrainingDir
from collab.loop.state import LoopState
from collab.rollout.build import list_kinds, load_class
from collab.store.reader import RunReader
from collab.types import Prompt, Trajectory, Usage, Utterance

if TYPE_CHECKING:
    from collab.trainers.estimate import Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Between the least and the most."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Both ends."""
        return Range(low=self.low * factor, high=self.high * factor)

    def plus(self, other: Range) -> Range:
        """The ends added up."""
        return Range(low=self.low + other.low, high=self.high + other.high)

    def or_(self, other: Range) -> Range:
        """Around both."""
        return Range(low=min(self.low, other.low), high=max(self.high, other.high))


NOTHING = Range(low=0, high=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked of models, about one step or in a whole training."""

    calls: Range
    prompt_tokens: Range
    completion_tokens: Range
    """At most what a reply may have; how much will be said is not known."""
    usd: Range | None
    """None where a price is not known."""

    def scale_to_steps(self, steps: Range) -> Questions:
        """The same of so many steps."""
        return Questions(
            calls=_scale_range(self.calls, steps),
            prompt_tokens=_scale_range(self.prompt_tokens, steps),
            completion_tokens=_scale_range(self.completion_tokens, steps),
            usd=None if self.usd is None else _scale_range(self.usd, steps),
        )

    def or_(self, other: Questions) -> Questions:
        """One of both, which is not known; the price is known where both are."""
        return Questions(
            calls=self.calls.or_(other.calls),
            prompt_tokens=self.prompt_tokens.or_(other.prompt_tokens),
            completion_tokens=self.completion_tokens.or_(other.completion_tokens),
            usd=None if self.usd is None or other.usd is None else self.usd.or_(other.usd),
        )


def _scale_range(one: Range, steps: Range) -> Range:
    return Range(low=one.low * steps.low, high=one.high * steps.high)


NONE_ASKED = Questions(calls=NOTHING, prompt_tokens=NOTHING, completion_tokens=NOTHING, usd=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEstimate:
    """What a part of the labelling takes, per step of a rollout."""

    name: str
    """Of the part, as `Labels.spent` names it."""
    doing: str
    """What it does, in a word, for the line about time."""
    asked: Questions | None
    """What it asks a model; None where it does not tell."""
    seconds: float | None
    """None where a model would have been asked, and nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an algorithm makes of the rollouts of a training."""

    noun: str
    """What is learned from, in a word, e.g. "replies"."""
    examples: Range
    """So many of them, in the whole training."""
    replies: Range
    """Items that are trained with them, each as large as those that were tried."""
    slower: float = 1.0
    """How much longer each takes than those that were tried."""
    labels: Sequence[LabelEstimate] = ()
    training: Forecast
    """Of the examples of one step."""


PARTS = frozenset({"rollout", "examples", "weights", "training", "evaluation"})
"""Parts of an epoch that the loop names itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """What an epoch plays."""

    run: RunConfig
    temperature_scale: Mapping[str, float] = field(default_factory=dict)
    """Slot → by what its temperature is multiplied; empty where all sample as declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What an epoch played."""

    number: int
    """Of the epoch, from 1."""
    run: RunConfig
    path: Path
    """The run's directory; labels lie beside it."""
    trajectories: Sequence[Trajectory]
    """The finished episodes that count, by task and number."""
    reader: RunReader
    """The run, open while the epoch goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What a labeller says of a rollout."""

    value: Any = None
    """For the learner of the same algorithm."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """For the record of the epoch; JSON values."""
    spent: Mapping[str, Usage] = field(default_factory=dict)
    """Part of the labelling → what its calls took, those of earlier processes included."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Part → SHA-256 of what it said; what has no hash here is in no proof that a resumed training ends alike."""

    def __post_init__(self) -> None:
        _refuse_own_parts("labels", self.spent.keys() | self.hashes.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What came of learning."""

    trained: Mapping[str, Trained]
    """By policy that has new weights."""
    untrained: Mapping[str, str]
    """By policy that stays what it was, why."""
    examples: Mapping[str, ExampleCounts]
    """By policy, what it learned from."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """For the record of the epoch, beside those of the labels."""
    spent: Mapping[str, Usage] = field(default_factory=dict)
    """Part of the learning that is the algorithm's own, e.g. of a value model → what it took, those of earlier
    processes included."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Part → SHA-256 of what it wrote; so a proof that a resumed training ends alike covers it, too."""

    def __post_init__(self) -> None:
        _refuse_own_parts("update", self.spent.keys() | self.hashes.keys())


def _refuse_own_parts(what: str, names: Collection[str]) -> None:
    """ValueError where an algorithm gives a part the name of one of the loop's own."""
    if taken := PARTS.intersection(names):
        raise ValueError(f"{what}: {', '.join(sorted(taken))} are parts of the loop; give these another name")


class Curriculum(Protocol):
    """Decides what an epoch plays."""

    async def plan(self, state: LoopState, number: int, policy: Policy) -> EpochPlan:
        """Return what an epoch plays: tasks in their order, graph, seed, temperatures and policy.

        It must be the same whenever it is asked, also by another process.
        """


class Labeller(Protocol):
    """Labels a rollout."""

    def label_while_playing(self, state: LoopState, run: RunConfig, out: Path) -> AbstractAsyncContextManager[None]:
        """Label episodes of a rollout while the block still plays others; may do nothing."""

    async def label(self, state: LoopState, rollout: Rollout) -> Labels:
        """Label what is not labelled yet, and read all labels; raises `Halted` where it stops before its end."""

    def read_spent(self, rollout: Path) -> Usage:
        """Return what earlier processes paid for labels of the rollout of an epoch that is not over."""


class Learner(Protocol):
    """Updates the policies of a team."""

    def check(self, config: TrainingConfig) -> None:
        """Refuse, with a ConfigError, what could not be trained: before anything is played or paid."""

    async def update(self, state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> Update:
        """Write what is learned from, then learn; raises `Halted` where it stops before its end."""


class NoLabels:
    """The labeller of algorithms that learn from what the environment says alone."""

    def label_while_playing(self, state: LoopState, run: RunConfig, out: Path) -> AbstractAsyncContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()

    async def label(self, state: LoopState, rollout: Rollout) -> Labels:
        """Return no labels."""
        return Labels()

    def read_spent(self, rollout: Path) -> Usage:
        """Return nothing."""
        return Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedStep:
    """One step of a training, really played in a temporary directory; see `collab.loop.estimate`."""

    run: RunConfig
    library: Library
    policy: Policy
    device: str
    """Where policies are trained, "auto" or "cpu"."""
    out: Path
    """The run's directory."""
    trajectory: Trajectory
    """With that step, its end taken for a success so that a labeller that knows nothing else has something to tell."""
    prompts: Sequence[Prompt]
    """What its cells read, in conversation order."""

    def select_cells(self, slots: Sequence[str]) -> tuple[list[Utterance], list[Prompt]]:
        """Return the cells of these slots, and what each read."""
        cells = zip(self.trajectory.steps[0].matrix.utterances, self.prompts, strict=True)
        own = [(cell, read) for cell, read in cells if cell.agent in slots]
        return [cell for cell, _ in own], [read for _, read in own]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What an algorithm found before a training begins."""

    notes: Sequence[str] = ()
    """What the user may not have meant, a line each."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """Facts for `training.json`, by name; none of the loop's own."""


class Algorithm:
    """One algorithm.

    A subclass gives `name`, `description`, `method`, `presets` and `learner`; all else has a default.
    """

    name: ClassVar[str]
    """As `--algo` takes it."""
    description: ClassVar[str]
    """One line for listings."""
    method: ClassVar[type[Method]]
    """What its presets hold."""
    config: ClassVar[type[TrainingConfig]] = TrainingConfig
    presets: ClassVar[Path]
    """Folder of YAML files."""
    default_preset: ClassVar[str] = ""
    """Empty for the preset that is called like the algorithm."""
    ablations: ClassVar[Mapping[str, Ablation]] = {}
    options: ClassVar[Mapping[str, Any]] = {}
    """What a command may give it beside the configuration (see `check`), by name, with defaults."""
    toy: ClassVar[Sequence[str]] = ()
    """Settings of its default preset, and of the run, with which a tiny training in the fake corridor does all kinds of
    its work (`collab verify-resume`)."""
    toy_options: ClassVar[Mapping[str, Any]] = {}
    """Those of `options` with which such a training begins although nothing was prepared for it, such as a
    calibration."""

    curriculum: Curriculum
    """Without one tasks, graph and seed are drawn for each epoch (`collab.loop.phases.DrawnTasks`)."""
    labeller: Labeller = NoLabels()
    learner: Learner

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return the fields that `config` has beside those of every training; raises as names are looked up."""
        return {}

    def check_plan(self, method: Method, *, episodes: int, tasks: int) -> None:
        """Refuse, with a ConfigError, an epoch from which nothing could be learned."""

    def check_origin(self, method: Method, other: TrainingConfig, run: Path) -> None:
        """Refuse, with a ConfigError, a team of another training whose examples could not be used here."""

    async def list_doubts(self, config: TrainingConfig) -> list[str]:
        """Return what the user may not have meant, a line each; nothing is opened or asked.

        Raises:
            UsageError: nothing could be learned so.
        """
        return []

    async def check(self, config: TrainingConfig, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check all that the algorithm asks beside the team, before anything is written, played or paid.

        Args:
            options: all of `options`, with what a command gave.

        Raises:
            ConfigError, UsageError, ModelFailure: a part cannot be built, may not be used or does not answer.
        """
        return Checked(notes=await self.list_doubts(config))

    async def check_budget(self, config: TrainingConfig, budget: Budget) -> None:
        """Refuse, with a UsageError, a limit on something that a part of the algorithm does not count."""

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Return what labelling and learning will take, from one step.

        Args:
            rolled: environment steps of all rollouts.
        """
        raise UsageError(f"--plan: {self.name} does not tell what it takes; train without a plan")

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, in a clause, for model cards."""
        return self.description

    def describe_examples(self, config: TrainingConfig, records: Sequence[EpochRecord], group: str) -> str:
        """Return what a policy learned from in these epochs, for model cards."""
        return f"{sum(one.examples[group].examples for one in records if group in one.examples)} examples"

    def build_columns(self, record: EpochRecord) -> Mapping[str, object]:
        """Return columns of the table of epochs, by heading; None where nothing is known."""
        return {"examples": sum(one.examples for one in record.examples.values()) if record.examples else None}

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Return what the record's own metrics tell, a line each, each with a word of eight letters in front."""
        return [f"{name[:8]:<8} {value}" for name, value in record.metrics.items() if not isinstance(value, dict)]


def load_algorithm(name: str) -> Algorithm:
    """Return an algorithm.

    Raises:
        UnknownName: no algorithm has that name; a class is not enough, for a recorded training may come from others.
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
    # Imported here, as the default curriculum needs parts that import these interfaces.
    if not hasattr(found, "curriculum"):
        from collab.loop.phases import DrawnTasks

        found.curriculum = DrawnTasks()
    return found


def complete_options(algorithm: Algorithm, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of an algorithm, with what was given; UsageError for one that it has not."""
    for name in given.keys() - algorithm.options.keys():
        raise UsageError(f"--{name}: {algorithm.name} has no such option; leave it out")
    return {**algorithm.options, **given}


def load_method(algorithm: Algorithm, name: str | None = None) -> Method:
    """Return a method by name, or from a YAML file of one's own; None for the algorithm's default preset.

    Raises:
        UnknownName: no preset has that name.
        ConfigError: the file cannot be read or does not fit.
    """
    return read_preset(
        name or algorithm.default_preset or algorithm.name, list_presets(algorithm.presets), algorithm.method
    )


def load_config(content: Any, where: str) -> TrainingConfig:
    """Return the configuration of a training, as its algorithm understands it; ConfigError where it does not fit."""
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
    """Return what `training.json` holds, and the configuration in it.

    Raises:
        RunFormatError: there is no training, or another version wrote it.
        ConfigError: the configuration does not fit.
    """
    head = folder.read()
    return head, load_config(head.get("config", {}), str(folder.file))
