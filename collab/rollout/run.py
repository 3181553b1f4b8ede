"""A run: configuration → collection → run directory, and resuming an interrupted one.

    result = await start(config, Library(), Path("runs/first"))
    result = await resume(Path("runs/first"))

A run is decided by its `RunConfig` alone, which its manifest holds. Resuming keeps every episode that has an outcome,
continues interrupted ones, and plays broken ones again. An interrupted episode replays its recorded steps if the
environment is deterministic; otherwise it starts again with the same seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path

from collab.config import Budget, RunConfig, hide_secrets, validate
from collab.envs.android.device_adb import log_to
from collab.envs.base import PicturesOnly, Suite
from collab.errors import RunFormatError, UsageError
from collab.evaluation.metrics import Report, describe_sampling
from collab.evaluation.report import report_of
from collab.library import Library
from collab.models.base import Capabilities, Metered
from collab.prompts.render import find_spaces
from collab.rollout.build import (
    Team,
    build_stage,
    build_suite,
    build_team,
    check_sees,
    with_prompts,
)
from collab.rollout.collector import Collection, RolloutProgress, collect
from collab.rollout.dialects import GUESSED, check_dialect, describe_dialect
from collab.rollout.episode import Admit, Episode, can_replay
from collab.rollout.executors.base import Executor, LocalExecutor
from collab.rollout.executors.ray import RayExecutor
from collab.rollout.plan import UNMOVED, Placement, order_tasks, plan_episodes, resolve_task_names
from collab.store.manifest import Manifest, find_home
from collab.store.reader import RunReader, Trajectories
from collab.store.run import RunRecorder, RunStore, RunWriter
from collab.store.usage import read_usage
from collab.types import PlannedTask, Step, Trajectory, Usage
from collab.utils.concurrency import wait_unless_stopped
from collab.utils.files import place_within, resolve_within
from collab.utils.text import format_amount
from collab.utils.trust import check_trusted

_PROBING = "the models were asked what they support"
Watch = Callable[[RolloutProgress], None]
"""Called once, with a live object that is updated during the run."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult:
    """Result of a run."""

    path: Path
    label: str
    """Label of the environment in results."""
    report: Report
    """Over all planned episodes, in the order of the plan."""
    progress: RolloutProgress
    """Progress of this process alone."""
    stopped: str | None
    """Why it ended early; None if every planned episode is over."""
    privileged: bool

    @property
    def trajectories(self) -> Sequence[Trajectory]:
        """All finished episodes, in the order of the plan; each is read from the run on request."""
        return Trajectories(RunStore.open(self.path).open_reader, tuple(one.id for one in self.report.results))

    def __str__(self) -> str:
        told = [f"success {self.report.planned}"]
        if self.report.broken:
            told.append(f"{self.report.broken} broken")
        told += [f"replies without an action: {self.report.replies}", describe_sampling(self.report.sampling)]
        return f"{self.label}: {'; '.join(told)}; {self.path}"

    def __repr__(self) -> str:
        mark = ", rehearsal" if self.privileged else ""
        stopped = f", stopped: {self.stopped}" if self.stopped else ""
        return f"<RunResult {self.path}: {self.label}{mark}, success {self.report.planned}{stopped}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The state of another run's episode in which an episode begins."""

    source: RunReader
    """Reader of that run."""
    trajectory: str
    """Id of an episode there, of the same instance."""
    steps: int
    """How many of its steps lie before the state, at least 1."""


async def start(
    config: RunConfig,
    library: Library,
    out: Path,
    *,
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
    admit: Admit | None = None,
    suite: Suite | None = None,
    beginnings: Mapping[str, Beginning] | None = None,
    executor: Executor | None = None,
) -> RunResult:
    """Play a new run into the directory `out`.

    Args:
        beginnings: episode id → the state in which it begins, where that is not the task's own first one; needs a suite
            that is "deterministic".
        suite: the run's environments, already built, which stay open; None builds them.
        executor: plays it, already started, and stays open; None starts the one that the configuration names.
        note: called with each finding of `foresee`, before anything is played.
        stop: set from outside to end the run at once, resumable.
        admit: awaited before an episode begins and before each of its steps; None begins one whenever there is room.

    Raises:
        UsageError: something does not fit, or `out` already holds something; nothing was started.
        StoreFailure: the run cannot be written; recorded parts stay.
    """
    config = hide_secrets(config if config.prompts else with_prompts(config, library))
    async with _open_parts(config, suite, executor) as parts:
        config, capabilities = await wait_unless_stopped(_fit_run(config, parts.suite, parts.team), stop, _PROBING)
        for line in foresee(config, parts.suite):
            note(line)
        plan = plan_episodes(config)
        RunStore.create(out, _build_manifest(config, plan, parts.suite, parts.team, capabilities, out))
        store = RunStore.open(out)  # its head is read once for all that follows
        with store.open_writer() as writer:
            recorded = _begin(store, writer, beginnings, parts.suite) if beginnings else _RecordedEpisodes()
            return await _play(config, plan, parts, store, writer, recorded, watch, stop, admit)


async def check(
    config: RunConfig,
    suite: Suite | None = None,
    *,
    accept: Callable[[str, Capabilities], None] = lambda slot, able: None,
) -> list[str]:
    """Check what `start` checks before it writes: the environment opens, the team answers, limits count.

    Args:
        config: with its prompts.
        suite: of the run, stays open; None builds one.
        accept: takes each slot with what its model supports, and raises if that is too little.

    Returns:
        Findings of `foresee`.

    Raises:
        UsageError, RunError: as `start` would; nothing is written either way.
    """
    async with _open_parts(config, suite) as parts:
        _, capabilities = await _fit_run(config, parts.suite, parts.team)
        for slot, able in capabilities.items():
            accept(slot, able)
        return foresee(config, parts.suite)


def foresee(config: RunConfig, suite: Suite) -> list[str]:
    """Warn of prompts with other actions than the environment takes, and name dialects that are guessed or not set.

    Each agents file has one line at most.

    Args:
        config: with its prompts.
    """
    found: dict[str, str] = {}
    for slot, agent in config.agents.items():
        spaces, name = find_spaces(config.prompts[agent.prompt]), config.agent_names[slot]
        if spaces and suite.space.name not in spaces and agent.kind != "rehearsal":
            found[name] = (
                f"warning: agents/{name} uses the actions of {', '.join(sorted(spaces))} (prompts/{agent.prompt}), "
                f"and {config.environment_name} takes those of {suite.space.name}: its replies will give no action; "
                "choose other --agents or another --env"
            )
        elif agent.dialect in (None, GUESSED) and agent.kind != "computer-use":
            if (told := describe_dialect(agent, f"agents/{name}")) is not None:
                found[name] = f"agents/{name}: {told}"
    return list(found.values())


async def resume(
    path: Path,
    *,
    placement: Placement = UNMOVED,
    executor: Executor | None = None,
    budget: Budget | None = None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
    admit: Admit | None = None,
    suite: Suite | None = None,
    beginnings: Mapping[str, Beginning] | None = None,
) -> RunResult:
    """Resume a run that stopped or died.

    Args:
        placement: where it is played from here on.
        executor: plays it, already started, and stays open; None starts the one that `placement` or the run names.
        budget: from here on; None grants the run's own budget once more.
        stop: as for `start`, like `admit`, `suite` and `beginnings`.

    Raises:
        RunFormatError: it cannot be read, or its environment or a policy is not the recorded one.
        UsageError: another process is writing it.
    """
    config = placement.apply(read_stored_config(path))
    if budget is not None:
        config = config.model_copy(update={"budget": budget})
    async with _open_parts(config, suite, executor) as parts:
        _check_version(path, parts.suite)
        # A server that does not answer is found before anything is begun.
        capabilities = await wait_unless_stopped(parts.team.probe(), stop, _PROBING)
        _check_budget(config, capabilities)
        _check_weights(path, capabilities)
        store = RunStore.open(path)
        with store.open_writer() as writer:
            recorded = _begin(store, writer, beginnings or {}, parts.suite)
            return await _play(config, plan_episodes(config), parts, store, writer, recorded, watch, stop, admit)


def read_finished(path: Path) -> RunResult | None:
    """Return the result of a finished run; None while an episode is left or broken.

    Raises:
        RunFormatError, UsageError: as `read_stored_config`.
    """
    plan, store = plan_episodes(read_stored_config(path)), RunStore.open(path)
    # The index alone answers: no environment and no model is opened for a finished run.
    with store.open_reader() as reader:
        over = {one.id: one.outcome.success for one in reader.list_episodes() if one.outcome is not None}
        # Failed episodes may be played again, so a run with one is not over.
        if reader.status != "finished" or any(episode.id not in over for episode in plan):
            return None
        manifest, done = reader.manifest, len(over)
        progress = RolloutProgress(
            planned=len(plan), done=done, before=done, succeeded=sum(over.values()), earlier=read_usage(reader)
        )
    return RunResult(
        path=path,
        label=manifest.environment,
        report=_report(store, plan),
        progress=progress,
        stopped=None,
        privileged=manifest.privileged,
    )


def read_stored_config(path: Path) -> RunConfig:
    """Read the configuration of a run directory in order to build it.

    Raises:
        RunFormatError: it cannot be read.
        UsageError: it names parts that may not run; see `collab.utils.trust`.
    """
    config = read_recorded_config(path)
    check_trusted(config.model_dump(mode="json"), f"{path}/run.json")
    return config


def read_recorded_config(path: Path) -> RunConfig:
    """Read the configuration only to look at it, whatever it names; RunFormatError if it cannot be read."""
    with contextlib.closing(RunStore.open(path).open_reader()) as reader:
        config = validate(RunConfig, reader.manifest.config, f"{path}/run.json")
        if home := reader.manifest.home:
            config = map_weights(config, partial(resolve_within, path / home))
        return config


def map_weights(config: RunConfig, change: Callable[[str], str]) -> RunConfig:
    """Return the run with other paths of its local checkpoints and adapters."""
    agents = {}
    for slot, agent in config.agents.items():
        names = ("path", "adapter") if agent.kind == "local" else ("adapter",)
        found = {name: change(str(agent.options[name])) for name in names if agent.options.get(name) is not None}
        agents[slot] = agent.model_copy(update={"options": {**agent.options, **found}})
    return config.model_copy(update={"agents": agents})


def choose_out(config: RunConfig) -> Path:
    """Return a free directory under `runs/`, named by date, environment and agents."""
    agents = "+".join(dict.fromkeys(config.agent_names.values()))
    name = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{config.environment_name}-{config.graph_name}-{agents}"
    candidates = (Path("runs") / (name if number == 0 else f"{name}-{number}") for number in count())
    return next(path for path in candidates if not path.exists())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Parts that a run plays with."""

    suite: Suite
    team: Team
    executor: Executor


def build_executor(config: RunConfig, suite: Suite, team: Team, *, takes_cpus: bool = True) -> Executor:
    """Return what plays the episodes of a run, not started yet; `takes_cpus` as for `RayExecutor`."""
    return RayExecutor(config, suite, team, takes_cpus=takes_cpus) if config.executor == "ray" else LocalExecutor(suite)


@contextlib.asynccontextmanager
async def _open_parts(
    config: RunConfig, given: Suite | None = None, started: Executor | None = None
) -> AsyncIterator[_Parts]:
    """Build the parts of a run and close them again; a given suite and a started executor stay open."""
    suite = given or build_suite(config)
    try:
        team = build_team(config)
        executor = started or build_executor(config, suite, team)
        try:
            # A missing browser or device is found before anything is written.
            if started is None:
                await executor.start()
            yield _Parts(suite=suite, team=team, executor=executor)
        finally:
            if started is None:
                await executor.close()
            await team.close()
    finally:
        if given is None:
            await suite.close()


async def _fit_run(config: RunConfig, suite: Suite, team: Team) -> tuple[RunConfig, Mapping[str, Capabilities]]:
    """Return the run with its tasks resolved, and each slot's capabilities; raises if they do not fit."""
    names = resolve_task_names(suite, config.tasks, config.environment_name, config.environment)
    tasks = order_tasks(suite, config.tasks, names, config.seed)
    config = config.model_copy(update={"tasks": tasks})
    _check_oracle(config, suite, team)
    _check_score(config, suite)
    _check_sight(config, suite)
    for slot, agent in config.agents.items():
        check_dialect(agent, suite.space.name, f"agents/{config.agent_names[slot]}")
    capabilities = await team.probe()
    _check_budget(config, capabilities)
    for slot, able in capabilities.items():
        if not team.network.agents[slot].model.privileged:  # which looks at the solution, whatever it is shown
            check_sees(config.agents[slot], able, f"agents/{config.agent_names[slot]}")
    return config, capabilities


def _check_oracle(config: RunConfig, suite: Suite, team: Team) -> None:
    """Refuse what needs solutions where none is known: a rehearsal, and an end with the first error."""
    if config.environment.limits.stop_at_first_error and "oracle" not in suite.capabilities:
        raise UsageError(
            f"environment.limits.stop_at_first_error: true, but {suite.label} knows no solutions that tell errors; "
            "set it to false"
        )
    if not team.network.privileged:
        return
    solved = {info.name for info in suite.tasks() if info.oracle}
    without = [task for task in config.tasks if task not in solved]
    if without:
        raise UsageError(
            f"the agents need solutions, and {len(without)} of {format_amount(len(config.tasks), 'task')} have none "
            f"({', '.join(without[:3])}{' …' if len(without) > 3 else ''}); choose "
            + ("with --tasks tag:oracle" if solved else "other --agents: see collab agents list")
        )


def _check_score(config: RunConfig, suite: Suite) -> None:
    """Refuse to end episodes at success where the environment cannot tell before their end."""
    if config.success_check == "every_step" and "score" not in suite.capabilities:
        raise UsageError(
            f"success_check: every_step, but {suite.label} cannot tell before the end of an episode whether its task "
            "is solved; set it to end"
        )


def _check_sight(config: RunConfig, suite: Suite) -> None:
    """Refuse agents that read text in an environment without any."""
    blind = [slot for slot, agent in config.agents.items() if agent.modality == "text"]
    if blind and isinstance(suite, PicturesOnly):
        raise UsageError(
            f"{suite.label} shows pictures only, and agents/{config.agent_names[blind[0]]} reads text: "
            f"set its modality to both or image (--set agents.*.modality=both); {suite.pictures_only}"
        )


def _check_budget(config: RunConfig, capabilities: Mapping[str, Capabilities]) -> None:
    """Refuse a limit on something that is not counted: it would never be reached."""
    for slot, able in capabilities.items():
        who = f"{slot} ({config.agent_names[slot]})"
        if config.budget.usd is not None and not able.knows_price:
            raise UsageError(
                f"--budget usd: {who} does not say what it costs; set its prices, or limit tokens or minutes"
            )
        if config.budget.tokens is not None and not able.counts_tokens:
            raise UsageError(f"--budget tokens: {who} does not count tokens; limit minutes instead")


def _check_version(path: Path, suite: Suite) -> None:
    """Refuse to mix episodes of two versions of an environment in one run."""
    with contextlib.closing(RunStore.open(path).open_reader()) as reader:
        recorded = reader.manifest.environment_version
    if recorded != suite.version:
        raise RunFormatError(
            f"{path}: recorded with {suite.label} version {recorded}, this is version {suite.version}; "
            "resume it with the Collab version that wrote it"
        )


def _check_weights(path: Path, capabilities: Mapping[str, Capabilities]) -> None:
    """Refuse to mix episodes of two policies at the same path; a model without a digest is trusted."""
    with contextlib.closing(RunStore.open(path).open_reader()) as reader:
        models = reader.manifest.models
    recorded = {slot: model.get("capabilities", {}).get("weights") for slot, model in models.items()}
    for slot, found in capabilities.items():
        before = recorded.get(slot)
        if before is not None and found.weights is not None and found.weights != before:
            raise RunFormatError(
                f"{path}: {slot} played with weights {before[:12]}, the same path holds {found.weights[:12]} now; "
                "put the former ones back, or begin another run"
            )


def _build_manifest(
    config: RunConfig,
    plan: Sequence[Episode],
    suite: Suite,
    team: Team,
    capabilities: Mapping[str, Capabilities],
    out: Path,
) -> Manifest:
    home = find_home(out)
    # Weights of the training that the run is part of are named relative to it: the whole can then be moved.
    recorded = config if home is None else map_weights(config, partial(place_within, home))
    # The whole configuration is written: a run explains itself without the files that it was made of.
    agents = config.agent_names
    same = len(set(agents.values())) == 1
    return Manifest(
        command=config.purpose,
        config=recorded.model_dump(mode="json"),
        home="" if home is None else os.path.relpath(home, out.resolve()),
        seed=config.seed,
        environment=build_stage(config, suite).label,
        environment_version=suite.version,
        graph=config.graph_name,
        agents=next(iter(agents.values())) if same else ",".join(f"{slot}={name}" for slot, name in agents.items()),
        planned=config.episodes,
        # The plan is written too: which episodes are missing must not depend on how tasks are drawn tomorrow.
        tasks=_plan_tasks(plan, suite),
        # What was found out about each model; another server behind the same name shows here.
        models={
            slot: {
                "policy": asdict(agent.model.policy),
                "capabilities": asdict(capabilities[slot]),
                "sampling": asdict(agent.sampling),
            }
            for slot, agent in team.network.agents.items()
        },
        privileged=team.network.privileged,
    )


def _plan_tasks(plan: Sequence[Episode], suite: Suite) -> tuple[PlannedTask, ...]:
    """Return the tasks of a run with their episodes, in the order of the plan."""
    difficulties = {info.name: info.difficulty for info in suite.tasks()}
    counts = Counter(episode.task for episode in plan)
    return tuple(
        PlannedTask(name=name, difficulty=difficulties.get(name), episodes=count) for name, count in counts.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedEpisodes:
    """Episodes that earlier processes recorded."""

    finished: Mapping[str, bool] = field(default_factory=dict)
    """Id of an episode with an outcome → whether it was solved."""
    unfinished: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    """Recorded steps of interrupted episodes that can continue."""
    spent: Usage = Usage()


def _begin(store: RunStore, writer: RunWriter, beginnings: Mapping[str, Beginning], suite: Suite) -> _RecordedEpisodes:
    """Record the states in which episodes begin, and read all recorded episodes."""
    for id, one in beginnings.items():
        writer.copy_steps(id, one.source, one.trajectory, one.steps)
    return _split(store, suite)


def _split(store: RunStore, suite: Suite) -> _RecordedEpisodes:
    """Read the recorded episodes of a run.

    An episode that a model server broke continues after its last step; one that the environment broke starts again,
    after the steps that it took over from another.
    """
    with store.open_reader() as reader:
        episodes = reader.list_episodes()
        finished = {one.id: one.outcome.success for one in episodes if one.outcome is not None}
        spent = read_usage(reader)
        if "deterministic" not in suite.capabilities:  # none is read whose steps could not be played again
            return _RecordedEpisodes(finished=finished, spent=spent)
        broken = [reader.read_trajectory(one.id) for one in episodes if one.error is not None]
        interrupted = [*reader.list_unfinished(), *map(_cut_to_sound, broken)]
    unfinished = {one.id: one.steps for one in interrupted if can_replay(suite, one.steps)}
    return _RecordedEpisodes(finished=finished, unfinished=unfinished, spent=spent)


def _cut_to_sound(broken: Trajectory) -> Trajectory:
    """Return a broken episode with the steps after which it continues."""
    by_server = broken.error is not None and broken.error.type == "ModelFailure"
    return broken if by_server else replace(broken, steps=broken.steps[: broken.copied_steps])


async def _play(
    config: RunConfig,
    plan: Sequence[Episode],
    parts: _Parts,
    store: RunStore,
    writer: RunWriter,
    recorded: _RecordedEpisodes,
    watch: Watch,
    stop: asyncio.Event | None,
    admit: Admit | None,
) -> RunResult:
    # What is finished is taken out of the plan: resuming needs no list of its own.
    left = [episode for episode in plan if episode.id not in recorded.finished]
    # Earlier processes count in the display, and in no budget of this one.
    progress = RolloutProgress(
        planned=len(plan),
        done=len(recorded.finished),
        before=len(recorded.finished),
        succeeded=sum(recorded.finished.values()),
        earlier=recorded.spent,
    )
    watch(progress)
    team, stage = parts.team, build_stage(config, parts.suite)
    # Devices write much, and only into a file: the terminal belongs to the progress.
    with log_to(store.path / "devices.log"):
        collection = await collect(
            left,
            team.build_network,
            stage,
            RunRecorder(writer),
            executor=parts.executor,
            concurrency=config.concurrency,
            budget=config.budget,
            unfinished=recorded.unfinished,
            progress=progress,
            stop=stop,
            admit=admit,
        )
    # Calls without an answer are known to the models alone.
    lost = sum(model.meter.snapshot().lost for model in team.models if isinstance(model, Metered))
    progress.spent += Usage(lost=lost)
    # Warnings go into the log once, with their number, not once per call.
    for warning, number in progress.warnings.items():
        writer.note(f"{warning} ({format_amount(number, 'call')})")
    if (solved := progress.describe_start_solved()) is not None:
        writer.note(solved)
    # Written even when stopped: the next process cannot know what this one spent.
    writer.record_spent(progress.spent)
    _close(writer, collection)
    # The report is read from disk, so that it covers all processes.
    return RunResult(
        path=store.path,
        label=stage.label,
        report=_report(store, plan),
        progress=progress,
        stopped=collection.stopped,
        privileged=team.network.privileged,
    )


def _close(writer: RunWriter, collection: Collection) -> None:
    if collection.stopped is None:
        writer.finish()
    else:
        writer.stop(collection.stopped)


def _report(store: RunStore, plan: Sequence[Episode]) -> Report:
    """Return the report of all recorded episodes, in the order of the plan."""
    order = {episode.id: place for place, episode in enumerate(plan)}
    with store.open_reader() as reader:
        report = report_of(reader)
    return replace(report, results=tuple(sorted(report.results, key=lambda one: order.get(one.id, len(order)))))
