"""The Python face of `collab rollout` and `collab eval`.

    import asyncio, collab

    result = asyncio.run(collab.collect(env="androidworld", graph="team", agents="rehearsal", episodes=20))
    print(result.report.planned)                    # 85.0% [64.0%, 94.8%] (17/20)
    for trajectory in result.trajectories:
        print(trajectory.id, trajectory.success, len(trajectory.steps))

Names are looked up as on the command line: a path, the user's `library`, the built-in definitions.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from collab.config import Budget, RunConfig, run_config
from collab.library import Library
from collab.resolve import build_suite, order_tasks, plan_episodes, splits_in, task_names
from collab.runs import RunResult, default_out, start
from collab.splits.choose import check_plan, within
from collab.splits.overlap import Instance
from collab.splits.split import named

EVALUATION_SEED = 30
"""Suite seed of evaluations (AndroidWorld's)."""


async def collect(
    *,
    env: str,
    agents: str,
    graph: str = "team",
    backend: str | None = None,
    tasks: Sequence[str] = (),
    split: str | None = None,
    episodes: int | None = None,
    seed: int = 0,
    concurrency: int = 4,
    budget: Budget | None = None,
    settings: Sequence[str] = (),
    out: Path | str | None = None,
    library: Path | str | None = None,
) -> RunResult:
    """Roll out a team and record it.

    Args:
        env: environment, e.g. "androidworld"; a name or a path to a YAML file. So are `graph` and `agents`.
        agents: one name for all slots, or "ada=x,ben=y".
        tasks: task names, "tag:word" or "all"; empty takes what the environment's file says.
        split: keep to one of the environment's splits (`collab.splits.split`), e.g. "train"; None keeps to none.
        episodes: in all; None plays every chosen task once.
        settings: overrides as on the command line, e.g. "graph.rounds=2".
        out: run directory to make; None chooses one under `runs/`.
        library: folder with definitions of your own.

    Raises:
        UsageError: something does not fit; nothing was started.
        StoreFailure: the run cannot be written.
    """
    definitions = _library(library)
    config = run_config(
        purpose="rollout",
        library=definitions,
        env=env,
        graph=graph,
        agents=agents,
        backend=backend,
        tasks=tasks,
        episodes=episodes,
        seed=seed,
        concurrency=concurrency,
        budget=budget,
        settings=settings,
    )
    config = await resolved(config, once_per_task=not counted(episodes, settings), split=split)
    return await start(config, definitions, Path(out) if out is not None else default_out(config), tell=_warn)


async def evaluate(
    *,
    env: str,
    agents: str,
    graph: str = "team",
    backend: str | None = None,
    tasks: Sequence[str] = (),
    split: str | None = None,
    episodes: int | None = None,
    seed: int = EVALUATION_SEED,
    concurrency: int = 4,
    budget: Budget | None = None,
    settings: Sequence[str] = (),
    out: Path | str | None = None,
    library: Path | str | None = None,
) -> RunResult:
    """Measure a team: like `collect`, with the evaluation seed and one graph per task, the same for every team."""
    definitions = _library(library)
    config = run_config(
        purpose="eval",
        library=definitions,
        env=env,
        graph=graph,
        agents=agents,
        backend=backend,
        tasks=tasks,
        episodes=episodes,
        seed=seed,
        concurrency=concurrency,
        budget=budget,
        settings=settings,
    )
    config = await resolved(config, once_per_task=not counted(episodes, settings), split=split)
    return await start(config, definitions, Path(out) if out is not None else default_out(config), tell=_warn)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def _library(folder: Path | str | None) -> Library:
    return Library(own=Path(folder) if folder is not None else None)


def counted(episodes: int | None, settings: Sequence[str]) -> bool:
    """Whether a number of episodes was asked for; every task is played once where none was."""
    return episodes is not None or any(setting.startswith("episodes=") for setting in settings)


async def resolved(
    config: RunConfig, *, once_per_task: bool, split: str | None = None, redraw: bool = False
) -> RunConfig:
    """The same run with its task names written out and, if asked for, one episode per task, within a split.

    Tasks that are named themselves keep their order; of all others the run's seed draws one (`draw_order`), so that
    fewer episodes than tasks are a sample of them.

    Args:
        redraw: draw the order of all tasks, because another run's seed decided the one that they have.

    Raises:
        UsageError: an unknown task or split, or a seed or tasks that are not the split's.
        OverlapError: a training episode would play an instance that is kept for evaluation.
    """
    wanted = config.tasks
    splits = {} if split is None else await splits_in(config.environment_name, config.environment)
    suite = build_suite(config)
    try:
        config = config.model_copy(update={"tasks": task_names(suite, wanted, config.environment_name)})
        if split is not None:
            config = within(config, named(splits, split))
        config = config.model_copy(
            update={"tasks": order_tasks(suite, () if redraw else wanted, config.tasks, config.seed)}
        )
    finally:
        await suite.close()
    if once_per_task:
        config = config.model_copy(update={"episodes": len(config.tasks)})
    if split is not None:
        plan = [Instance(task=one.task, seed=one.seed, source=one.id) for one in plan_episodes(config)]
        check_plan(splits[split], splits.values(), plan)
    return config
