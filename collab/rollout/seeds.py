"""One evaluation over several run seeds: a folder with one recorded run per seed, each resumable by itself.

    runs = await plan_series([config_30, config_31, config_32], library, Path("runs/team"))
    for run in runs:                                    # runs/team/seed-30, seed-31, seed-32
        if not run.over:
            await play(run, library, budget=Budget())

A second call with the same settings finds finished runs and resumes the rest. Every run holds the seeds of all, so that
`load_series` finds missing ones without the settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collab.config import Budget, RunConfig
from collab.envs.base import Suite
from collab.errors import RunFormatError, UsageError
from collab.evaluation.metrics import Report
from collab.evaluation.report import Evaluation, find_runs, pool_runs, read_run
from collab.library import Library
from collab.rollout.build import build_suite, with_dates_of, with_prompts
from collab.rollout.collector import USED_UP, UsageMeter
from collab.rollout.executors.base import Executor
from collab.rollout.plan import UNMOVED, Placement, resolve_run
from collab.rollout.run import RunResult, Watch, read_recorded_config, read_stored_config, resume, start
from collab.store.manifest import FILE
from collab.store.run import RunStore
from collab.utils.text import format_amount

FREE = frozenset({"budget", "concurrency", "executor", "series"})
"""Settings that may change when a run is resumed: they decide no episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRun:
    """One run of a series."""

    config: RunConfig
    path: Path
    begun: bool
    """Whether a part of it is recorded."""
    over: bool
    """Whether every planned episode has an outcome; a broken one has none."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SeriesResult:
    """Result of an evaluation over several seeds."""

    path: Path
    evaluation: Evaluation
    """Evaluation of all recorded episodes."""
    stopped: str | None
    """Why it ended early; None if every planned episode is over."""

    @property
    def report(self) -> Report:
        """Report over all seeds."""
        return self.evaluation.report

    @property
    def by_seed(self) -> Mapping[int, Report]:
        """Run seed → report, in ascending order."""
        return self.evaluation.by_seed

    def __repr__(self) -> str:
        seeds = ", ".join(map(str, self.by_seed))
        stopped = f", stopped: {self.stopped}" if self.stopped else ""
        return f"<SeriesResult {self.path}: seeds {seeds}, success {self.report.planned}{stopped}>"


async def plan_series(configs: Sequence[RunConfig], library: Library, out: Path) -> tuple[SeedRun, ...]:
    """Find recorded and missing runs of a series; nothing is written.

    Args:
        configs: one per seed, with their tasks resolved.
        out: folder of the series; need not exist.

    Raises:
        RunFormatError: something in it has a run's name and is none.
        UsageError: a seed occurs twice, `out` is a run itself, or a run in it was begun with other settings or another
            version of the environment, or is being played now.
    """
    seeds = [config.seed for config in configs]
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        raise UsageError(f"run seed {twice} is given twice in {', '.join(map(str, seeds))}; name each once")
    if (out / FILE).exists():
        raise UsageError(f"{out}: is a run; several seeds need a folder, with one run for each: give another --out")
    places = {out / f"seed-{config.seed}": config for config in configs}
    begun = next((read_recorded_config(path) for path in places if (path / FILE).exists()), None)
    planned = {path: with_prompts(config, library) for path, config in places.items()}
    if begun is not None:  # all seeds are told the date that the first ones were told
        planned = {path: with_dates_of(config, begun, places[path]) for path, config in planned.items()}
    series = {"series": seeds}
    return tuple([await _find_seed_run(config.model_copy(update=series), path) for path, config in planned.items()])


async def load_series(folder: Path, placement: Placement = UNMOVED) -> tuple[SeedRun, ...]:
    """Return all runs of a folder's evaluation, unrecorded ones included.

    Args:
        placement: where what is left of them will be played.

    Raises:
        RunFormatError: there is no run, or one cannot be read.
        UsageError: a run in it is being played now, or was recorded with another version of its environment, or
            workers are counted where none play.
    """
    recorded = {
        config.seed: config
        for path in find_runs(folder)
        if path.parent == folder and (config := read_stored_config(path))
    }
    if not recorded:
        raise RunFormatError(f"{folder}: holds no run of several seeds")
    first = next(iter(recorded.values()))
    seeds = dict.fromkeys([*first.series, *recorded])
    configs = [recorded[seed] if seed in recorded else await _reseed_run(first, seed) for seed in seeds]
    configs = [placement.apply(config) for config in configs]
    return tuple([await _find_seed_run(config, folder / f"seed-{config.seed}") for config in configs])


async def _reseed_run(config: RunConfig, seed: int) -> RunConfig:
    """Return the run with another seed, within its split."""
    other = config.model_copy(update={"seed": seed, "split": None})
    return await resolve_run(other, once_per_task=False, split=config.split.name if config.split else None, redraw=True)


async def play_missing(
    runs: Sequence[SeedRun],
    library: Library,
    *,
    budget: Budget,
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> str | None:
    """Play the missing episodes of each seed, one run after the other; return why that ended early, else None.

    Args:
        budget: for all of them together.
        note: takes a line before each.
    """
    for run in runs:
        if run.over:
            note(f"{run.path} is over")
            continue
        episodes = format_amount(run.config.episodes, "episode")
        doing = "resuming" if run.begun else "playing"
        note(f"{doing} seed {run.config.seed}: {episodes}, recorded in {run.path}")
        result = await play(run, library, budget=budget, note=note, watch=watch, stop=stop)
        # A stop of one seed stops the series: its cause holds for the next one, too.
        if result.stopped is not None:
            return result.stopped
        # The budget is for all seeds together; what is left goes to the next.
        left = compute_remaining(budget, result.progress)
        if left is None and run is not runs[-1]:
            return USED_UP
        budget = left or budget
    return None


def build_series_result(folder: Path, runs: Sequence[SeedRun], stopped: str | None) -> SeriesResult:
    """Return the result of all recorded runs of a series; at least one must have begun."""
    recorded = [read_run(run.path) for run in runs if (run.path / FILE).exists()]
    return SeriesResult(path=folder, evaluation=pool_runs(recorded), stopped=stopped)


async def play(
    run: SeedRun,
    library: Library,
    *,
    budget: Budget,
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
    suite: Suite | None = None,
    executor: Executor | None = None,
) -> RunResult:
    """Start or resume a run of a series; raises as `collab.rollout.run.start` and `resume` do.

    Args:
        budget: from here on.
        note: as for `collab.rollout.run.start`, like `suite` and `executor`.
    """
    if run.begun:
        # Where it is played is a matter of this command, not of the run.
        placement = Placement(executor=run.config.executor, concurrency=run.config.concurrency)
        return await resume(
            run.path, placement=placement, executor=executor, budget=budget, watch=watch, stop=stop, suite=suite
        )
    config = run.config.model_copy(update={"budget": budget})
    return await start(config, library, run.path, note=note, watch=watch, stop=stop, suite=suite, executor=executor)


def compute_remaining(budget: Budget, meter: UsageMeter) -> Budget | None:
    """Return the rest of a budget; None if a limit is used up."""
    spent = {"usd": meter.spent.cost_usd, "tokens": meter.tokens, "minutes": meter.seconds / 60}
    limits = budget.model_dump(exclude_none=True)
    left = {name: limit - spent[name] for name, limit in limits.items()}
    return Budget(**left) if all(amount > 0 for amount in left.values()) else None


async def _find_seed_run(config: RunConfig, path: Path) -> SeedRun:
    # Nothing begun: whatever settings it gets are its own.
    if RunStore(path).is_free:
        return SeedRun(config=config, path=path, begun=False, over=False)
    recorded, wanted = read_recorded_config(path).model_dump(mode="json"), config.model_dump(mode="json")
    # Another setting would make the seeds incomparable.
    other = [name for name in wanted if name not in FREE and recorded[name] != wanted[name]]
    if other:
        raise UsageError(
            f"{path}: was begun with other settings ({', '.join(other)}); "
            "give the same ones to resume it, or another --out"
        )
    with RunStore.open(path).open_reader() as reader:
        if reader.status == "running":
            raise UsageError(f"{path}: is being played by another process; wait for its end, or give another --out")
        version, finished = reader.manifest.environment_version, reader.status == "finished"
        played = sum(one.outcome is not None for one in reader.list_episodes())
    await _check_version(config, path, version)
    return SeedRun(config=config, path=path, begun=True, over=finished and played == config.episodes)


async def _check_version(config: RunConfig, path: Path, recorded: str) -> None:
    """Refuse to put episodes of two versions of an environment into one series."""
    suite = build_suite(config)
    version = suite.version
    await suite.close()
    if version != recorded:
        raise UsageError(
            f"{path}: recorded with {config.environment_name} version {recorded}, this is version {version}; "
            "give another --out"
        )
