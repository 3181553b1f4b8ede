"""From what `collab` recorded in a unit's folder to the file that the unit leaves.

How long environments were at work is read from a run's log. Episodes are played side by side, so their seconds cannot
be added up: while one's environment acts, the agents of others reply. So this counts wall time in which at least one
environment was at work: the length of the union of all their intervals. The rest of playing is nearly all agents.

An environment is at work while it resets (a process that resumes a run replays what was recorded, too), while it takes
a picture of a screen, and while it executes an action. The log holds when each of these ended and how long it took, but
for the reset of an episode that was cut off and for a step that broke. Opening an environment is part of no episode;
where a step waits to be admitted after its picture was taken, waiting counts. Times of the log are cut to milliseconds.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from collab.algorithms.appvlm.learner import DEMONSTRATED
from collab.config import AgentDefinition
from collab.errors import RunFormatError, UsageError
from collab.evaluation.metrics import EpisodeResult
from collab.evaluation.report import find_runs, read_run
from collab.evidence.plan import EvidenceUnit, Plan
from collab.evidence.record import LEARNING, EpochNumbers, MeasuredEpisodes, Row, Seconds, UnitRecord, hide_places
from collab.library import ROOMS, Library, find_builtin_root, resolve_checkpoint
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import load_config
from collab.loop.phases import is_over, load_collected
from collab.loop.record import EpochRecord, Trained, TrainingDir, read_record
from collab.loop.recorded import FORKED
from collab.models.checkpoint_card import hash_played_weights
from collab.rewards.labels import list_label_sets, read_label_head
from collab.store.events import EpisodeFinished, EpisodeResumed, EpisodeStarted, Record, StepRecorded
from collab.store.fingerprint import CODE, hash_files, hash_run, list_code
from collab.store.run import RunStore
from collab.utils.machine import read_commit, read_processor_model

Interval: TypeAlias = tuple[float, float]
"""From when to when, in seconds."""


def hash_base(agents: str, library: Library) -> str:
    """Return the digest of the weights that an agents file plays with.

    Raises:
        UsageError: there is no such file, or it plays by other means than a checkpoint in this process.
    """
    definition = library.load("agents", agents, AgentDefinition)
    if definition.kind != "local" or "path" not in definition.options:
        raise UsageError(f"agents/{agents}: of kind {definition.kind}; name an agents file of kind local")
    return hash_played_weights(
        Path(resolve_checkpoint(str(definition.options["path"]))), definition.options.get("adapter")
    )


def hash_code() -> str:
    """Return the SHA-256 over everything of the package that can change what a run does, weights aside."""
    home = find_builtin_root()
    listed = {file.relative_to(home).as_posix(): file for room in ROOMS for file in (home / room).rglob("*")}
    definitions = {name: file for name, file in listed.items() if file.suffix in CODE | {".jinja"}}
    return hash_files(list_code() | definitions)


def describe_machine() -> dict[str, str | int | None]:
    """Return the machine in words, and what else decides how fast products are and how they are rounded."""
    return {
        "processors": os.cpu_count(),
        "model": read_processor_model(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "preloaded": " ".join(Path(one).name for one in os.environ.get("LD_PRELOAD", "").replace(":", " ").split())
        or None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }


def is_finished(plan: Plan, unit: EvidenceUnit, work: Path) -> bool:
    """Return whether nothing of a unit is left to do."""
    folder = work / unit.name
    if plan.is_training(unit):
        training = TrainingDir(folder)
        return training.file.exists() and "summary" in training.read()
    words, found = plan.command(unit, work), find_runs(folder)
    wanted = words[words.index("--seeds") + 1].split(",")
    return len(found) == len(wanted) and all(is_over(path) for path in found)


def gather_unit(
    plan: Plan, unit: EvidenceUnit, work: Path, *, base: str, code: Sequence[str], seconds: float
) -> UnitRecord:
    """Return the record of a finished unit.

    Args:
        plan: that it is of.
        unit: which.
        work: folder of all units of this base.
        base: digest of the weights that every arm begins with.
        code: digests of the package in all processes that worked on it.
        seconds: that they took.

    Raises:
        RunFormatError: what was recorded cannot be read.
    """
    gather = _gather_training if plan.is_training(unit) else _gather_evaluation
    return UnitRecord(
        arm=unit.arm,
        seed=unit.seed,
        phase=unit.phase,
        base=base,
        code=list(dict.fromkeys(code)),
        commit=read_commit(Path(__file__).parent),
        command=plan.shown_command(unit, base),
        machine=describe_machine(),
        **gather(work / unit.name, work, seconds),
    )


def _gather_evaluation(folder: Path, work: Path, seconds: float) -> dict[str, Any]:
    runs = [read_run(path) for path in find_runs(folder)]
    results = [result for run in runs for result in run.report.results]
    # All runs must be of one policy: its digest says which training they measure.
    first = runs[0]
    policies = {weights for run in runs for _, weights in run.team["policies"].values()}
    if len(policies) != 1 or None in policies:
        raise RunFormatError(f"{folder}: several policies replied, or their weights are not known")
    with RunStore.open(first.path).open_reader() as reader:
        config = dict(reader.manifest.config)
    return {
        "policy": str(policies.pop()),
        "config": hide_places(config, work),
        "seeds": sorted(run.seeds.run for run in runs),
        "steps": sum(result.steps for result in results),
        "seconds": Seconds(whole=seconds, **_split_playing(run.path for run in runs)),
        "hashes": {str(run.seeds.run): hash_run(RunStore.open(run.path)) for run in runs},
        "measured": MeasuredEpisodes(
            environment=first.setting.environment,
            version=first.report.environment_version,
            split=first.setting.split,
            episodes=_rows(results),
        ),
    }


def _gather_training(folder: Path, work: Path, seconds: float) -> dict[str, Any]:
    training = TrainingDir(folder)
    head = training.read()
    config, summary = load_config(head["config"], str(training.file)), head["summary"]
    records = [read_record(training.get_epoch(number).record) for number in range(summary["epochs"] + 1)]
    epochs = [_gather_epoch(training, config, head["base"], record) for record in records]
    rollouts = [path for record in records if (path := training.get_epoch(record.epoch).rollout).exists()]
    # Epochs that were taken over took no time here.
    own = [record for record in records if record.epoch > head.get(FORKED, {"epoch": -1})["epoch"]]
    places = [training.get_epoch(record.epoch) for record in own]
    played = [path for epoch in places for path in (epoch.rollout, epoch.branches) if path.exists()]
    held_out = [path for epoch in places for path in find_runs(epoch.evaluation)]
    spent = {part: _sum_seconds(own, part) for part in LEARNING}
    return {
        "policy": "+".join(sorted(set(head["base"].values()))),
        "config": hide_places(head["config"], work),
        "seeds": config.method.held_out.seeds,
        "steps": sum(epoch.steps for epoch in epochs),
        "seconds": Seconds(whole=seconds, **_split_playing([*played, *held_out]), **spent),
        "hashes": {"training": summary["hash"]},
        "critics": sorted({read_label_head(path, name).critic for path in rollouts for name in list_label_sets(path)}),
        "best": summary["best"],
        "epochs": epochs,
    }


def _gather_epoch(
    training: TrainingDir, config: TrainingConfig, base: Mapping[str, str], record: EpochRecord
) -> EpochNumbers:
    folder = training.get_epoch(record.epoch)
    played = load_collected(training, record.epoch, config.method.get_steps(record.epoch))
    rollout = _rows(EpisodeResult.of(one) for one in played)
    runs = [read_run(path) for path in find_runs(folder.evaluation)]
    # Curves are drawn of the first policy: all agents share one in every arm.
    trained = next(iter(record.trained.values()), None)
    numbers: dict[str, Any] = {}
    if trained is not None:
        names = ("margin", "accuracy", "logp_chosen", "logp_chosen_first", "chosen_gain")
        numbers = {"loss": trained.loss, "alarm": trained.alarm, **{name: trained.metrics.get(name) for name in names}}
    return EpochNumbers(
        epoch=record.epoch,
        # A group's episodes that begin in later states are not listed; the epoch counts what they played.
        steps=record.steps if training.get_epoch(record.epoch).branches.exists() else sum(row[4] for row in rollout),
        rollout=rollout,
        held_out=_rows(result for run in runs for result in run.report.results),
        pairs=sum(one.examples + one.older for one in record.examples.values()),
        updates=sum(one.steps for one in record.trained.values()),
        agreement=record.agreement,
        step_accuracy=_read_step_accuracy(record),
        apart=_read_apart(record),
        weights={
            name: get_digest_after(config, base[config.groups[name][0]], one) for name, one in record.trained.items()
        },
        seconds={part: paid.seconds for part, paid in record.spent.items() if paid.seconds is not None},
        hash=record.hash,
        **numbers,
    )


def _read_apart(record: EpochRecord) -> tuple[int, int] | None:
    """Return how many groups or states tell replies apart, and how many could have; None where none could."""
    if "groups" in record.metrics:
        found = record.metrics["spread"], record.metrics["groups"]
    else:
        told = record.metrics.get("coach", {})
        found = told.get("apart", 0), told.get("compared", 0)
    return found if found[1] else None


def _read_step_accuracy(record: EpochRecord) -> float | None:
    """Return the percent of demonstrated steps that the policy behind an epoch would take; None if not measured."""
    found = record.metrics.get(DEMONSTRATED)
    return 100 * found["right"] / found["steps"] if found and found["steps"] else None


def get_digest_after(config: TrainingConfig, began: str, trained: Trained) -> str:
    """Return the digest of the weights that play after an epoch: a kept adapter lies over the first checkpoint."""
    return f"{began.partition('+')[0]}+{trained.digest}" if config.method.is_adapter_kept else trained.digest


def _sum_seconds(records: Iterable[EpochRecord], part: str) -> float | None:
    """Return the seconds of a part over all epochs but 0; None where only some of them hold them."""
    spent = [record.spent.get(part) for record in records if record.epoch]
    known = [one.seconds for one in spent if one is not None and one.seconds is not None]
    return sum(known) if len(known) == len(spent) or not any(spent) else None


def _rows(results: Iterable[EpisodeResult]) -> list[Row]:
    """Return the rows of a file, without messages of errors: they may name places."""
    return [
        (one.task, one.seed, one.max_steps, one.success, one.steps, one.error and one.error.partition(":")[0])
        for one in results
    ]


# --------------------------------------------------------------------------------------- how long was played


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayTime:
    """Seconds of wall time that playing took; runs that are played side by side, as DistRL's, count once."""

    whole: float = 0.0
    """From the first reset to the last step, of each process that played."""
    environment: float = 0.0
    """Part of `whole` with at least one environment at work; agents of other episodes may have replied meanwhile."""


def _split_playing(runs: Iterable[Path]) -> dict[str, float]:
    """Return what runs took, and of it environments and the rest."""
    found = measure_play(*map(_iterate_log, runs))
    return {
        "playing": found.whole,
        "environment": found.environment,
        "inference": found.whole - found.environment,
    }


def _iterate_log(run: Path) -> Iterator[Record]:
    with RunStore.open(run).open_reader() as reader:
        yield from reader.iterate_events()


def measure_play(*logs: Iterable[Record]) -> PlayTime:
    """Measure logs of runs, each with the records of all processes that wrote it, in log order."""
    spans, work = list[Interval](), list[Interval]()
    for records in logs:
        for _, own in groupby(records, key=lambda record: record.writer):
            clock = _ProcessTimes()
            for record in own:
                clock.read(record)
            work += clock.work
            if clock.times:
                spans.append((min(clock.times), max(clock.times)))
    return PlayTime(whole=measure_union(spans), environment=measure_union(work))


def measure_union(intervals: Iterable[Interval]) -> float:
    """Return the seconds that lie in at least one interval; one that ends before it begins has none."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


@dataclass(slots=True)
class _ProcessTimes:
    """Times at which one process worked."""

    work: list[Interval] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    begun: dict[str, float] = field(default_factory=dict)
    """Episode → when its reset was over."""
    last: dict[str, float] = field(default_factory=dict)
    """Episode → when its last step was over, or its reset."""

    def read(self, record: Record) -> None:
        now = datetime.fromisoformat(record.time).timestamp()
        match record.event:
            case EpisodeStarted(trajectory=episode) | EpisodeResumed(trajectory=episode):
                self.begun[episode] = self.last[episode] = now
            case StepRecorded(trajectory=episode, step=step):
                acted = now - step.environment_s
                if step.observation.screenshot is not None:
                    self.work.append((self.last.get(episode, acted), acted - step.deliberation_s))
                self.work.append((acted, now))
                self.last[episode] = now
            case EpisodeFinished(trajectory=episode, seconds=seconds):
                self.work.append((now - seconds, self.begun.get(episode, now - seconds)))
                self.times.append(now - seconds)
            case _:
                return
        self.times.append(now)
