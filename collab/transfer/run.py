"""Start or resume a transfer, and run it to its result.

Its parts are evaluations and a training, each from wherever it stands. `plan` lists them before a transfer begins, or
the rest of a begun one, with an estimate of the training.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, Budget, RunConfig, hide_secrets, validate_recorded
from collab.errors import RunFormatError, UsageError
from collab.evaluation.comparison import is_spoilt
from collab.evaluation.report import EvaluatedRun, read_evaluation, read_run
from collab.library import Library, resolve_checkpoint
from collab.loop import estimate
from collab.loop.interfaces import complete_options, load_algorithm
from collab.loop.loop import (
    TrainingResult,
    build_first_head,
    check_limits,
    check_training,
    compute_as_begun,
    find_changed_prompt,
)
from collab.loop.loop import resume as resume_training
from collab.loop.loop import start as start_training
from collab.loop.policy import WHERE, assign_policy, build_first_policy, load_policy
from collab.loop.record import read_records
from collab.models.checkpoint_card import hash_played_weights
from collab.rollout.collector import UsageMeter
from collab.rollout.run import check
from collab.rollout.seeds import compute_remaining, plan_series, play
from collab.store.run import RunStore
from collab.store.run_dir import RunLimits
from collab.trainers.prepare import check_device
from collab.transfer.config import Arm, Place, TransferConfig
from collab.transfer.result import (
    OutcomeReport,
    State,
    TransferDir,
    TransferPart,
    build_outcome,
    list_parts_after,
    list_parts_before,
)
from collab.utils.concurrency import REQUESTED, Stopped
from collab.utils.text import format_amount

TRAINING = "training"
"""`TransferProgress.part` during the training."""


@dataclass(slots=True, kw_only=True)
class TransferProgress:
    """Progress of a transfer; a live object."""

    part: str = ""
    """Current part: "second/base", "training" …"""
    number: int = 0
    """Its number, from 1."""
    parts: int
    inner: Any = None
    """Live object of the current part: of a collection, or of a training; None before it has one."""
    training: Any = None
    """That of the training, also after it; None before."""

    def __str__(self) -> str:
        """Return one line: the current part and its progress."""
        parts = f"part {self.number}/{self.parts}", self.part, str(self.inner or "")
        return " | ".join(part for part in parts if part)


@dataclass(slots=True, kw_only=True)
class Work:
    """One process that works on a transfer."""

    config: TransferConfig
    folder: TransferDir
    budget: Budget
    stop: asyncio.Event
    device: str
    progress: TransferProgress
    reports: Sequence[str] = ()
    """Further places for metrics of training."""
    meter: UsageMeter = field(default_factory=UsageMeter)
    """Usage and start of this process."""

    def begin(self, part: str) -> None:
        """Begin a part."""
        self.progress.part, self.progress.inner = part, None
        self.progress.number += 1

    def watch(self, inner: Any) -> None:
        """Take the live object of the current part."""
        self.progress.inner = inner
        if self.progress.part == TRAINING:
            self.progress.training = inner

    def compute_left(self) -> Budget | None:
        """Return the remaining budget; None if a limit is used up."""
        return compute_remaining(self.budget, self.meter)

    @property
    def ending(self) -> str | None:
        """Why nothing more may be begun; None when it may."""
        if self.stop.is_set():
            return REQUESTED
        return self.meter.explain_exceeded(self.budget)


async def measure(work: Work, part: TransferPart, runs: Sequence[RunConfig]) -> str | None:
    """Play the missing episodes of an evaluation, and broken ones of an earlier process again.

    Args:
        runs: one per seed.

    Returns:
        Why that stopped; None if it is over and can be compared.
    """
    work.begin(part.name)
    folder, own = (
        work.folder.get_part(part),
        work.config.library if part.place == "second" else work.config.first_library,
    )
    # Parts that a kill left without a head are cleared, or they would look begun.
    for config in runs:
        RunStore(folder / f"seed-{config.seed}").clear_unbegun()
    for run in await plan_series(runs, open_library(own), folder):
        # Finished seeds are not played again.
        if run.over:
            continue
        left = work.compute_left()
        if work.ending is not None or left is None:
            return work.ending
        result = await play(run, open_library(own), budget=left, watch=work.watch, stop=work.stop)
        work.meter.spent += result.progress.spent
        if result.stopped is not None:
            return result.stopped
    report = read_evaluation(folder).report
    # Too many broken episodes make an arm's rate one of the machine.
    if is_spoilt(report.broken, report.planned.episodes):
        episodes = format_amount(report.planned.episodes, "episode")
        return f"{part.name}: {report.broken} of {episodes} broke, too many to compare"
    return None


async def train(work: Work) -> str | None:
    """Train in the second environment, from wherever that stands; return why that stopped, None if it is over."""
    work.begin(TRAINING)
    folder = work.folder.training
    if work.folder.find_training_state() == "over":
        return None
    left = work.compute_left()
    if work.ending is not None or left is None:
        return work.ending
    folder.clear_unbegun()
    result = await _train_on(work, left)
    work.meter.spent += result.spent
    return result.stopped


async def _train_on(work: Work, budget: Budget) -> TrainingResult:
    folder, config = work.folder.training, work.config.training
    # A training that was begun is resumed from its own head: options were checked then.
    if folder.file.exists() or config is None:
        return await resume_training(
            folder.path,
            budget=budget,
            device=work.device,
            report_to=work.reports,
            watch=work.watch,
            stop=work.stop,
        )
    # Options of the algorithm stand in the transfer's head, so that a resume passes the same ones.
    head = work.folder.read()
    return await start_training(
        config,
        folder.path,
        options=head["options"],
        budget=budget,
        device=work.device,
        report_to=work.reports,
        watch=work.watch,
        stop=work.stop,
    )


def build_continued_run(config: TransferConfig, folder: TransferDir, run: RunConfig) -> RunConfig:
    """Return an evaluation of the transferred team with the weights of the second training and a new name.

    Raises:
        RunFormatError: the training cannot be read.
        UsageError: it is not over.
    """
    assert config.training is not None, "direct trains nothing"
    policy = load_policy(folder.training, config.training, find_best_epoch(folder))
    determinism = next(iter(run.agents.values())).options.get("determinism", "fast")
    names = dict.fromkeys(run.agents, f"{folder.training.path.name}@best")
    return assign_policy(run, policy, determinism).model_copy(update={"agent_names": names})


def find_best_epoch(folder: TransferDir) -> int:
    """Return the best epoch of the second training; UsageError if it is not over."""
    summary = folder.training.read().get("summary")
    if summary is None or summary["best"] is None:
        raise UsageError(f"{folder.training.path}: no epoch is the best yet; resume with: {folder.resume}")
    return int(summary["best"])


def list_untrained(folder: TransferDir, epochs: int) -> list[str]:
    """List the policies that the second training left unchanged, and why, in its finished epochs up to `epochs`."""
    return [
        f"epoch {record.epoch}, {policy}: {why}"
        for record in read_records(folder.training, epochs)
        for policy, why in record.untrained.items()
    ]


def open_library(own: str | None) -> Library:
    """Open the library of definitions; None for the built-in ones alone."""
    return Library.for_recorded_training(own)


Watch = Callable[[TransferProgress], None]
"""Called once, with a live object that is updated during the transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult:
    """Result of a transfer."""

    path: Path
    told: OutcomeReport | None
    """None if it stopped before its end."""
    stopped: str | None
    """Why it ended early; None if it is done."""


async def start(
    config: TransferConfig,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    device: str = "auto",
    report_to: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> TransferResult:
    """Start a transfer in the directory `out`. Arguments as `collab.loop.loop.start`.

    Raises:
        UsageError: something does not fit or may not be used, or `out` already holds something; nothing was started.
        ModelFailure, EnvironmentFailure: a server does not answer, or an environment does not open; nothing was
        started. RunError: something failed while working; its results stay, and `resume` continues.
    """
    config = hide_secrets(config)
    method = None if config.training is None else config.training.method
    folder, limits = TransferDir(out), RunLimits(budget=budget or Budget(), device=device, reports=tuple(report_to))
    check_limits(limits, method)
    folder.check_free()
    # Options are resolved now, so that a resume passes the same ones.
    taken = (
        {} if config.training is None else complete_options(load_algorithm(config.training.algorithm), options or {})
    )
    for line in await _check(config, limits.budget, taken):
        note(line)
    # Weights go into the head: a transfer compares those, and not what lies at their paths later.
    folder.begin(
        {
            "weights": hash_weights_played(config),
            "options": {name: str(one.resolve()) if isinstance(one, Path) else one for name, one in taken.items()},
            **build_first_head(config, method, limits),
        }
    )
    return await _run(config, folder, limits, watch, stop)


async def resume(
    path: Path,
    *,
    budget: Budget | None = None,
    device: str | None = None,
    report_to: Sequence[str] | None = None,
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> TransferResult:
    """Resume a transfer that stopped or died; return the outcome of a finished one.

    Args:
        budget: from here on; None grants the transfer's own budget once more.
        device: None for where it was trained before.
        report_to: None for where it reported before.
        note: as for `collab.loop.loop.resume`.

    Raises:
        RunFormatError: it cannot be read, or weights have changed.
        UsageError: prompts have changed, or another process works on it.
    """
    folder = TransferDir(path)
    # A finished transfer only shows its result again.
    told = folder.read_outcome()
    if told is not None:
        return TransferResult(path=path, told=told, stopped=None)
    config, begun = read_stored_config(folder), folder.read()["weights"]
    limits = folder.read_limits(budget=budget, device=device, report_to=report_to)
    check_limits(limits, None if config.training is None else config.training.method)
    # Other weights at the same path would be another team.
    changed = [name for name, known in hash_weights_played(config).items() if known != begun.get(name)]
    if changed:
        raise RunFormatError(f"{path}: the weights of {changed[0]} have changed; begin another transfer")
    with compute_as_begun(folder, note):
        return await _run(config, folder, limits, watch, stop)


async def _check(config: TransferConfig, budget: Budget, options: Mapping[str, Any]) -> list[str]:
    """Open once all that the parts will open: both environments, base and team, and the training's models.

    Returns:
        Findings, a line each, as from `collab.rollout.run.check` and `check_training`.
    """
    found: list[str] = []
    transferred = config.transferred if config.training is None else []
    for run in (*config.base[:1], *transferred[:1], *config.first[:1]):
        found += await check(run.model_copy(update={"budget": budget}))
    if config.training is not None:
        first = build_first_policy(config.training.run, config.training.method)
        found += (await check_training(config.training, first, budget, options)).notes  # the team where it goes to, too
    return list(dict.fromkeys(found))


def read_stored_config(folder: TransferDir) -> TransferConfig:
    """Read the configuration of a directory; RunFormatError or ConfigError if it cannot be read."""
    return validate_recorded(TransferConfig, folder.read()["config"], str(folder.file))


def hash_weights_played(config: TransferConfig) -> dict[str, str]:
    """Return digests of the local checkpoints and adapters of base and team, by "arm/slot".

    For a served team these are its local files; see `collab.models.checkpoint_card.hash_played_weights`.
    """
    played: dict[Arm, Mapping[str, AgentDefinition]] = {
        "base": config.base[0].agents,
        "transferred": config.transferred[0].agents,
    }
    # Only agents whose weights lie here can be checked.
    places = {
        f"{arm}/{slot}": (Path(resolve_checkpoint(str(agent.options[WHERE[agent.kind]]))), _get_adapter(agent))
        for arm, agents in played.items()
        for slot, agent in agents.items()
        if agent.kind in WHERE and WHERE[agent.kind] in agent.options
    }
    known = {both: hash_played_weights(*both) for both in set(places.values()) if both[0].is_dir()}
    return {name: known[both] for name, both in places.items() if both in known}


def _get_adapter(agent: AgentDefinition) -> str | None:
    """Return the adapter's directory; None without one, or if only the server has that name."""
    adapter = agent.options.get("adapter")
    return adapter if adapter is not None and Path(adapter).is_dir() else None


async def _run(
    config: TransferConfig, folder: TransferDir, limits: RunLimits, watch: Watch, stop: asyncio.Event | None
) -> TransferResult:
    _check_prompts(config, folder)
    # Parts are counted before any is done, so that progress is out of a fixed number.
    many = len(list_parts_before(config)) + len(list_parts_after(config)) + (config.training is not None)
    work = Work(
        config=config,
        folder=folder,
        budget=limits.budget,
        stop=stop or asyncio.Event(),
        device=limits.device,
        reports=limits.reports,
        progress=TransferProgress(parts=many),
    )
    # One writer: parts of one transfer must not be played twice at once.
    with folder.lock_parts():
        watch(work.progress)
        try:
            # A stop is a result; finished parts stay and are not played again.
            stopped = await _run_all(work)
        except Stopped as why:
            stopped = str(why)
        if stopped is not None:
            return TransferResult(path=folder.path, told=None, stopped=stopped)
        # Compared only when every part is there: half a comparison would look like a whole one.
        told = _compare_arms(config, folder)
        folder.close(told)
        return TransferResult(path=folder.path, told=told, stopped=None)


def _check_prompts(config: TransferConfig, folder: TransferDir) -> None:
    """Refuse to compare teams under changed prompts of the library."""
    for run, own in ((config.transferred[0], config.library), *((one, config.first_library) for one in config.first)):
        changed = find_changed_prompt(run, open_library(own))
        if changed is not None:
            raise UsageError(
                f"{folder.path}: prompts/{changed} has changed since the transfer began; restore it, or begin anew"
            )


async def _run_all(work: Work) -> str | None:
    """Make every missing part; return why that stopped, None if all are there."""
    # Before the training: evaluations that need none, so a refusal of the second environment comes early.
    for part in list_parts_before(work.config):
        stopped = await measure(work, part, part.runs)
        if stopped is not None:
            return stopped
    if work.config.training is None:
        return None
    stopped = await train(work)
    if stopped is not None:
        return stopped
    # The continued team plays with the best epoch, which exists only now.
    for part in list_parts_after(work.config):
        stopped = await measure(work, part, [build_continued_run(work.config, work.folder, run) for run in part.runs])
        if stopped is not None:
            return stopped
    return None


def _compare_arms(config: TransferConfig, folder: TransferDir) -> OutcomeReport:
    played: dict[Place, dict[Arm, list[EvaluatedRun]]] = {}
    # Read from disk, so that parts of earlier processes count as much as those of this one.
    for part in [*list_parts_before(config), *list_parts_after(config)]:
        runs = [read_run(folder.get_part(part) / f"seed-{run.seed}") for run in part.runs]
        played.setdefault(part.place, {})[part.arm] = runs
    return build_outcome(
        played,
        mode=config.mode,
        agents=config.agents,
        base=config.base_name,
        seeds=config.seeds,
        epoch=None if config.training is None else find_best_epoch(folder),
        method=None if config.training is None else config.training.called,
        untrained=() if config.training is None else list_untrained(folder, config.training.method.epochs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One part."""

    part: str
    """Its directory, e.g. "second/base"."""
    state: State
    environment: str
    """Its definition."""
    split: str | None
    """None for freely chosen tasks."""
    team: str
    """Its name."""
    seeds: tuple[int, ...]
    """Run seeds of the evaluation; of the training its own."""
    episodes: int
    """Over all seeds; for the training over all epochs, counted evaluations included."""
    calls_per_step: int
    """Calls of the policies: agents × rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan:
    """All parts in their order."""

    parts: tuple[PlanLine, ...]
    training: estimate.TrainingPlan | None
    """Its estimate; None for direct, and for a begun training."""


async def plan(config: TransferConfig, folder: TransferDir | None = None, device: str | None = None) -> TransferPlan:
    """List all parts; for a training that has not begun, also play one step. Nothing is written.

    Args:
        folder: of a transfer to resume; None for a new one.
        device: where policies are trained, "auto" or "cpu"; None for the begun transfer's, or "auto" for a new one.

    Raises:
        UsageError, RunError: as the first rollout of the training would.
    """
    if folder is not None:
        # The device of the transfer, as that decides what a training takes.
        device = folder.read_limits(device=device).device
    device = device or RunLimits().device
    check_device(device)
    training, found = config.training, None
    state: State = "missing" if folder is None else folder.find_training_state()
    # Only a training that has not begun is tried: a step of it may take minutes.
    if training is not None and state == "missing":
        found = await estimate.plan(training, open_library(config.library), device)
    # Parts before the training, the training, parts after it: the order in which they are played.
    lines = [_build_plan_line(part, folder) for part in list_parts_before(config)]
    if training is not None:
        split = training.run.split
        own = PlanLine(
            part=TRAINING,
            state=state,
            environment=training.run.environment_name,
            split=None if split is None else split.name,
            team=config.agents,
            seeds=(training.run.seed,),
            # Without a probe the episodes are those of the configuration.
            episodes=training.method.epochs * training.run.episodes if found is None else found.episodes,
            calls_per_step=len(training.run.graph.slots) * training.run.graph.rounds,
        )
        lines += [own, *(_build_plan_line(part, folder) for part in list_parts_after(config))]
    return TransferPlan(parts=tuple(lines), training=found)


def _build_plan_line(part: TransferPart, folder: TransferDir | None) -> PlanLine:
    run = part.runs[0]
    names = dict.fromkeys(run.agent_names.values())
    return PlanLine(
        part=part.name,
        state="missing" if folder is None else folder.find_state(part),
        environment=run.environment_name,
        split=None if run.split is None else run.split.name,
        team="training@best" if part.arm == "continued" else "+".join(names),
        seeds=tuple(one.seed for one in part.runs),
        episodes=sum(one.episodes for one in part.runs),
        calls_per_step=len(run.graph.slots) * run.graph.rounds,
    )
