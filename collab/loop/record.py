"""Record of an epoch, `epoch.json`; summary and moves of a training in `training.json`; paths within a training.

Hashes of epochs and of a whole training cover tokens, texts, actions, outcomes, labels and weights, each sorted by
name. They cover no time, cost, place or order of a log, so a training that was killed and resumed hashes like one that
was not. They compare trainings on one machine; another may round otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from collab.config import Definition, RunConfig, validate
from collab.errors import UsageError
from collab.evaluation.comparison import is_spoilt
from collab.evaluation.metrics import Rate, Report, describe_sampling
from collab.loop.config import TrainingConfig
from collab.rollout.plan import Placement
from collab.store.fingerprint import hash_trajectory
from collab.store.manifest import format_now
from collab.store.run_dir import RunDir
from collab.types import Trajectory, Usage
from collab.utils.files import read_json
from collab.utils.text import format_amount

FILE = "training.json"
LABELS = "training"
"""Name of a training's own labels beside its rollouts."""
MOVES = "moves"
"""In the head of a training: its moves, the newest last; missing where there was none."""


@dataclass(frozen=True, slots=True)
class EpochDir:
    """One epoch on disk; epoch 0 is the team before any training and holds an evaluation only."""

    path: Path

    @property
    def graph(self) -> Path:
        """Edges between agents."""
        return self.path / "graph.json"

    @property
    def rollout(self) -> Path:
        """The run that is learned from."""
        return self.path / "rollout"

    @property
    def branches(self) -> Path:
        """Episodes that begin in states of the rollout; only of algorithms that play such."""
        return self.path / "branches"

    @property
    def examples(self) -> Path:
        """Return the folder of examples: one folder per policy, and `examples.json`, written last."""
        return self.path / "examples"

    @property
    def evaluation(self) -> Path:
        """Runs on held-out seeds."""
        return self.path / "evaluation"

    @property
    def record(self) -> Path:
        """There once the epoch is over."""
        return self.path / "epoch.json"

    def get_training_dir(self, group: str) -> Path:
        """Return the directory of a policy's fine-tuning run."""
        return self.path / "training" if group == "shared" else self.path / "training" / group


class TrainingDir(RunDir):
    """A training on disk."""

    HEAD, NOUN, FORMAT, COMMAND = FILE, "training", 4, "collab train --resume"
    LISTED = True

    def get_epoch(self, number: int) -> EpochDir:
        """Return one epoch; its directory need not exist."""
        return EpochDir(self.path / "epochs" / str(number))


def find_training(played: Path) -> TrainingDir | None:
    """Find the training that learned from a run: a rollout of it, or what began in its states. None for all others."""
    run = played.resolve()
    number, training = run.parent.name, TrainingDir(Path(*run.parts[:-3]))
    if not number.isdecimal() or not training.file.exists():
        return None
    epoch = training.get_epoch(int(number))
    return training if run in (epoch.rollout, epoch.branches) else None


def find_training_around(part: Path) -> TrainingDir | None:
    """Find the training whose `epochs` contain this directory; None if there is none.

    Its path is relative if it lies in the current folder.
    """
    here = Path.cwd()
    above = (folder.parent for folder in part.resolve().parents if folder.name == "epochs")
    found = next((folder for folder in above if TrainingDir(folder).file.exists()), None)
    if found is None:
        return None
    return TrainingDir(found.relative_to(here) if found.is_relative_to(here) else found)


def refuse_part(path: Path) -> None:
    """Raise a UsageError for a part of a training: only the training can resume it, with its own device and budget."""
    training = find_training_around(path)
    if training is not None:
        raise UsageError(
            f"{path}: is a part of the training {training.path}, which alone resumes it: {training.resume}"
        )


class Success(Definition):
    """Counts of solved tasks."""

    successes: int
    episodes: int
    """Planned ones; broken ones count as not solved."""
    low: float
    high: float
    """95 % Wilson interval."""
    broken: int
    replies: int = 0
    """Replies of the episodes that are over."""
    without_action: dict[str, int] = Field(default_factory=dict)
    """Those among them that gave no action, by cause (`ParseFailure.kind`)."""
    cut_short: int = 0
    """Episodes that ended, unsolved, with their first error because the method asks for it."""
    sampled: str = ""
    """Temperatures of the agents in words, e.g. "temperature 1.5"; empty where they are not known."""

    @property
    def value(self) -> float:
        """In [0, 1]."""
        return self.successes / self.episodes if self.episodes else 0.0

    @property
    def silence(self) -> Rate:
        """Share of replies that gave no action."""
        return Rate(successes=sum(self.without_action.values()), episodes=self.replies)

    def __str__(self) -> str:
        """Return the rate with its interval, e.g. "38.0% (31.6% - 44.9%)"."""
        return f"{self.value:.1%} ({self.low:.1%} - {self.high:.1%})"

    @classmethod
    def of(cls, report: Report) -> Success:
        """Return the success of a report, over all planned episodes."""
        low, high = report.planned.interval
        rate = report.planned
        return cls(
            # All planned episodes count, so that broken ones do not raise the rate.
            successes=rate.successes,
            episodes=rate.episodes,
            low=low,
            high=high,
            broken=report.broken,
            replies=report.replies.total,
            without_action=dict(report.replies.causes),
            cut_short=sum(one.cut_short for one in report.results),
            sampled=describe_sampling(report.sampling) if report.sampling else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending(Usage):
    """Usage of a part of an epoch. For training, prompt tokens are the trained tokens, without padding."""

    seconds: float | None = None
    """None if several processes worked on it, one died during it, or there was nothing to do."""

    @classmethod
    def of(cls, paid: Usage, seconds: float | None) -> Spending:
        """Return the spending of calls with this usage."""
        return cls(seconds=seconds, **asdict(paid))


class Trained(Definition):
    """Result of training one policy."""

    checkpoint: str
    """Directory; "./…" lies within the training."""
    digest: str
    """SHA-256 over its weights."""
    dropped: int
    """Examples longer than the context."""
    steps: int
    tokens: int
    loss: float
    metrics: dict[str, float | None] = Field(default_factory=dict)
    """The algorithm's metrics of training, in its order; None where one could not be computed."""
    alarm: str | None = None
    """The last alarm, and at how many of the logged steps there was one; None when there was none."""


class ExampleCounts(Definition):
    """Counts of a policy's examples from a rollout."""

    examples: int = 0
    """Examples of this epoch, as the algorithm counts them."""
    written: int = 0
    """Examples of this epoch in its file."""
    older: int = 0
    """Examples of older epochs that were mixed in."""
    refused: dict[str, int] = Field(default_factory=dict)
    """Replies that gave no example, by cause."""
    repeated: int = 0
    """Examples, older ones included, with prompt and replies of one before them, in the same tokens: each is learned
    once. Always 0 for whole trajectories, which are never left out."""
    retokenised: int = 0
    """Examples, kept or refused, whose sampled reply has tokens that the policy's tokenizer does not know. Their texts'
    tokens are learned."""
    digest: str
    """SHA-256 over all that is learned, older examples included."""


class EpochRecord(Definition):
    """`epoch.json`."""

    algorithm: str
    """Name of the algorithm that trained."""
    epoch: int
    version: int
    """Version of the policy after the epoch: the last epoch that changed any weights."""
    weights: dict[str, str]
    """Slot → checkpoint after the epoch."""
    adapters: dict[str, str] = Field(default_factory=dict)
    """Slot → LoRA adapter after the epoch; slots without one are missing."""
    recorded: list[str] = Field(default_factory=list)
    """Runs that stand for the rollout, recorded before the epoch; empty where it played."""
    edges: list[tuple[str, str]] = Field(default_factory=list)
    """(speaker, hearer) of the rollout."""
    temperatures: dict[str, float] = Field(default_factory=dict)
    """Slot → temperature at which the rollout was sampled; empty for epoch 0."""
    played: Success | None = None
    """Episodes of the rollout, broken ones included, although nothing is learned from those. None for epoch 0."""
    tasks: list[str] = Field(default_factory=list)
    """Tasks that were learned from, in the order in which they were drawn."""
    steps: int = 0
    """Environment steps of the rollout that were learned from."""
    success: Success | None = None
    """On held-out seeds, after training; None for an epoch 0 that was not measured."""
    agreement: float | None = None
    """Mean of `Step.agreement` over the steps that were learned from; None without any."""
    metrics: dict[str, Any] = Field(default_factory=dict)
    """The algorithm's metrics of labels and learning, by its own names; JSON values."""
    examples: dict[str, ExampleCounts] = Field(default_factory=dict)
    """By policy."""
    trained: dict[str, Trained] = Field(default_factory=dict)
    """By policy."""
    untrained: dict[str, str] = Field(default_factory=dict)
    """By policy that keeps its weights, the reason."""
    spent: dict[str, Spending] = Field(default_factory=dict)
    """By part: "rollout", the algorithm's own of labelling, "training", its own of learning, "evaluation"."""
    hashes: dict[str, str] = Field(default_factory=dict)
    """SHA-256 by part, in the order of time: played (see `hash_played`), labelled, learned and measured."""
    hash: str
    """Hash of all parts."""


class Summary(Definition):
    """End of a training."""

    best: int | None
    """Epoch with the highest held-out success, the earliest one on ties; None if none was measured."""
    epochs: int
    """The last one that is over."""
    stopped_early: bool
    """Whether patience ended it before its last epoch."""
    hash: str
    """Run hash."""


class TrainingMove(Definition):
    """A change of the place where a training is played, which decides no episode and no lesson."""

    time: str
    """UTC, ISO 8601."""
    executor: Literal["local", "ray"]
    concurrency: int
    """Number of Ray workers, or of episodes at once."""


def restore_place(config: TrainingConfig, head: Mapping[str, Any], where: str) -> TrainingConfig:
    """Return the training where it was played last.

    Args:
        head: its `training.json`.
        where: path of that, for messages.

    Raises:
        ConfigError: the last move cannot be read.
    """
    moves = head.get(MOVES)
    if not moves:
        return config
    last = validate(TrainingMove, moves[-1], f"{where}: {MOVES}")
    return _apply(config, Placement(executor=last.executor, concurrency=last.concurrency))


def move_training(config: TrainingConfig, placement: Placement) -> tuple[TrainingConfig, TrainingMove | None]:
    """Return the training in another place, and the move; None where it stays.

    Raises:
        UsageError: workers are counted where none play.
    """
    found = _apply(config, placement)
    if (found.run, found.held_out) == (config.run, config.held_out):
        return config, None
    return found, TrainingMove(time=format_now(), executor=found.run.executor, concurrency=found.run.concurrency)


def record_move(folder: TrainingDir, move: TrainingMove) -> None:
    """Add a move to the head of a locked training; StoreFailure if it cannot be written."""
    head = folder.read()
    folder.write({**head, MOVES: [*head.get(MOVES, []), move.model_dump()]})


def describe_place(run: RunConfig) -> str:
    """Describe where a run is played, e.g. "in 8 Ray workers"."""
    if run.executor == "ray":
        return f"in {format_amount(run.concurrency, 'Ray worker')}"
    return f"in this process, {format_amount(run.concurrency, 'episode')} at once"


def _apply(config: TrainingConfig, placement: Placement) -> TrainingConfig:
    held_out = [placement.apply(run) for run in config.held_out]
    return config.model_copy(update={"run": placement.apply(config.run), "held_out": held_out})


def collect_play_facts(runs: Sequence[RunConfig], played: Iterable[Trajectory], rollout: Report) -> dict[str, Any]:
    """Return facts of what an epoch learns from, as fields of a record.

    Args:
        runs: of which it consists; edges and temperatures are those of the first.
        played: the finished episodes that are learned from.
        rollout: report of these and of those that broke.
    """
    run, found, steps, agreed = runs[0], set[str](), 0, list[float]()
    for one in played:
        found.add(one.task.name)
        own = one.steps[one.copied_steps :]
        steps += len(own)
        agreed += [step.agreement for step in own if step.agreement is not None]
    return {
        "edges": list(run.graph.edges) if isinstance(run.graph.edges, list) else [],
        "temperatures": {slot: one.temperature for slot, one in run.sampling.items()},
        "played": Success.of(rollout),
        # In the order of the plan, not in that of the episodes.
        "tasks": list(dict.fromkeys(task for one in runs for task in one.tasks if task in found)),
        "steps": steps,
        # None without a vote: 0 would say that all disagreed.
        "agreement": sum(agreed) / len(agreed) if agreed else None,
    }


def read_record(path: Path) -> EpochRecord:
    """Read an epoch's record; RunFormatError if it cannot be read."""
    advice = f"remove it, then rebuild it with: {TrainingDir(path.parents[2]).resume}"
    return validate(EpochRecord, read_json(path, advice=advice), str(path))


def read_records(folder: TrainingDir, epoch: int) -> list[EpochRecord]:
    """Read the finished epochs of a training from 0 to `epoch`; RunFormatError if one cannot be read."""
    records = [folder.get_epoch(number).record for number in range(epoch + 1)]
    return [read_record(path) for path in records if path.is_file()]


def find_best_epoch(records: Iterable[EpochRecord]) -> int | None:
    """Return the epoch with the highest held-out success, the earliest one on ties; None if none was measured.

    An evaluation in which too many episodes broke counts as not measured.
    """
    measured = [
        one for one in records if one.success is not None and not is_spoilt(one.success.broken, one.success.episodes)
    ]
    ranked = sorted(measured, key=lambda one: (-(one.success.value if one.success else 0.0), one.epoch))
    return ranked[0].epoch if ranked else None


def average(values: Sequence[float | None]) -> float | None:
    """Return the mean of a number over policies; None if a policy lacks it, or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def is_patience_over(records: Sequence[EpochRecord], patience: int | None) -> bool:
    """Return whether the best epoch lies `patience` epochs back; False if that is None or nothing was measured."""
    best = find_best_epoch(records)
    return patience is not None and best is not None and records[-1].epoch - best >= patience


def hash_played(played: Iterable[Trajectory]) -> str:
    """Return the SHA-256 of episodes, whatever their order."""
    return hash_json(sorted(hash_trajectory(one) for one in played))


def hash_measured(measured: Mapping[int, Iterable[Trajectory]]) -> str:
    """Return the SHA-256 of an evaluation: held-out seed → its episodes."""
    return hash_named({seed: hash_played(those) for seed, those in measured.items()})


def hash_named(digests: Mapping[str, str | None] | Mapping[int, str]) -> str:
    """Return the SHA-256 of digests by name, e.g. policy → digest of its weights; or by held-out seed."""
    return hash_json(sorted(digests.items()))


def hash_training(base: Mapping[str, str], epochs: Mapping[int, str]) -> str:
    """Return the SHA-256 of a training: slot → digest of its first weights, and epoch → its hash."""
    return hash_json([sorted(base.items()), sorted(epochs.items())])


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")).hexdigest()
