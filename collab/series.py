"""One evaluation over several run seeds: a folder with one recorded run per seed, each resumable by itself.

    runs = await plan_series([config_30, config_31, config_32], library, Path("runs/team"))
    for run in runs:                                    # runs/team/seed-30, seed-31, seed-32
        if not run.over:
            await play(run, library, budget=Budget())

A second call with the same settings finds what is over and goes on with the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collab.collector import Progress
from collab.config import Budget, RunConfig
from collab.errors import UsageError
from collab.library import Library
from collab.resolve import build_suite, with_dates_of, with_prompts
from collab.runs import RunResult, Watch, resume, start, stored_config
from collab.store.manifest import FILE
from collab.store.run import RunStore

FREE = frozenset({"budget", "concurrency"})
"""Settings that may change when a run is gone on with: they decide no episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRun:
    """One run of a series."""

    config: RunConfig
    path: Path
    begun: bool
    """Whether something of it is recorded."""
    over: bool
    """Whether every planned episode has an outcome; broken ones have none."""


async def plan_series(configs: Sequence[RunConfig], library: Library, out: Path) -> tuple[SeedRun, ...]:
    """Find out what is there and what is left to play; nothing is written.

    Args:
        configs: one per seed, with their tasks written out.
        out: folder of the series; need not exist.

    Raises:
        RunFormatError: something in it is called as a run would be and is none.
        UsageError: a seed stands twice, `out` is a run itself, or a run in it was begun with other settings or another
            version of the environment, or is being played now.
    """
    seeds = [config.seed for config in configs]
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        raise UsageError(f"run seed {twice} stands twice among {', '.join(map(str, seeds))}; name each once")
    if (out / FILE).exists():
        raise UsageError(f"{out}: is a run; several seeds need a folder, with one run for each: give another --out")
    places = {out / f"seed-{config.seed}": config for config in configs}
    begun = next((stored_config(path) for path in places if (path / FILE).exists()), None)
    planned = {path: with_prompts(config, library) for path, config in places.items()}
    if begun is not None:  # all seeds are told the date that the first ones were told
        planned = {path: with_dates_of(config, begun, places[path]) for path, config in planned.items()}
    return tuple([await _found(config, path) for path, config in planned.items()])


async def play(
    run: SeedRun,
    library: Library,
    *,
    budget: Budget,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> RunResult:
    """Start a run of a series, or go on with it; raises as `collab.runs.start` and `resume` do.

    Args:
        budget: what it may spend from here on.
    """
    if run.begun:
        return await resume(run.path, budget=budget, watch=watch, stop=stop)
    config = run.config.model_copy(update={"budget": budget})
    return await start(config, library, run.path, watch=watch, stop=stop)


def left_of(budget: Budget, progress: Progress) -> Budget | None:
    """What remains of a budget after a run; None when a limit is used up."""
    spent = {"usd": progress.cost_usd, "tokens": progress.tokens, "minutes": progress.seconds / 60}
    limits = budget.model_dump(exclude_none=True)
    left = {name: limit - spent[name] for name, limit in limits.items()}
    return Budget(**left) if all(amount > 0 for amount in left.values()) else None


async def _found(config: RunConfig, path: Path) -> SeedRun:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return SeedRun(config=config, path=path, begun=False, over=False)
    recorded, wanted = stored_config(path).model_dump(mode="json"), config.model_dump(mode="json")
    other = [name for name in wanted if name not in FREE and recorded[name] != wanted[name]]
    if other:
        raise UsageError(
            f"{path}: was begun with other settings ({', '.join(other)}); "
            "give the same ones to go on with it, or another --out"
        )
    with RunStore.open(path).reader() as reader:
        if reader.status == "running":
            raise UsageError(f"{path}: is being played by another process; wait for its end, or give another --out")
        version, finished = reader.manifest.environment_version, reader.status == "finished"
        played = sum(one.outcome is not None for one in reader.episodes())
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
