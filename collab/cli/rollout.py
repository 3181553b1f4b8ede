"""`collab rollout`: play episodes with a team and record them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from collab.cli import options
from collab.cli.output import emit, note
from collab.cli.report import end_unplayed, result_data, show_result, show_stop
from collab.cli.watch import resume_command, work
from collab.wording import amount

if TYPE_CHECKING:
    from collab.config import Budget, RunConfig
    from collab.library import Library
    from collab.runs import RunResult


def rollout(
    *,
    env: options.Environment = "androidworld",
    graph: options.Graph = "team",
    agents: options.Agents = "pocket",
    tasks: options.Tasks = None,
    split: options.Split = None,
    episodes: options.Episodes = None,
    seed: options.Seed = 0,
    backend: options.Backend = None,
    serial: options.Serial = None,
    allow_apps: options.AllowApps = None,
    allow_effects: options.AllowEffects = False,
    out: options.Out = None,
    concurrency: options.Concurrency = 4,
    budget: options.BudgetText = None,
    settings: options.Settings = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Play episodes with a team and record them."""
    definitions = options.library(library)
    config = configure(
        definitions,
        "rollout",
        env=env,
        graph=graph,
        agents=agents,
        tasks=tasks,
        split=split,
        episodes=episodes,
        seed=seed,
        backend=backend,
        device=options.device(serial, allow_apps, allow_effects),
        concurrency=concurrency,
        budget=budget,
        settings=settings,
    )
    options.tell_outside(options.listed("--tasks", tasks), config.split, config.tasks)
    options.print_sample(config.tasks, config.episodes, f"seed {config.seed}")
    options.tell_doubts(config)
    finish(play(config, definitions, out), as_json=as_json, details=False)


def configure(definitions: Library, purpose: Literal["rollout", "eval"], **choices: Any) -> RunConfig:
    """Put a run together from options, as `configured` does, outside of any loop of events."""
    return asyncio.run(configured(definitions, purpose, **choices))


async def configured(
    definitions: Library,
    purpose: Literal["rollout", "eval"],
    *,
    tasks: list[str] | None,
    split: str | None,
    episodes: int | None,
    budget: Budget | str | None,
    settings: list[str] | None,
    device: Mapping[str, Any],
    agents: str,
    graph: str,
    tells: bool = True,
    **choices: Any,
) -> RunConfig:
    """Put a run together from options, its tasks written out; every task once unless a number was asked for.

    Args:
        split: keep to this split of the environment; None keeps to none.
        device: options of the backend that were given by flags of their own.
        tells: say if a trained team is played at other temperatures than it was trained at.
    """
    from collab.config import Budget, run_config
    from collab.loop.trained import note_sampling, trained_agents
    from collab.resolve import counted, resolved

    trained = trained_agents(definitions, agents, graph)
    config = run_config(
        library=definitions,
        purpose=purpose,
        graph=graph,
        agents=agents if trained is None else Path(agents).name,
        filled=trained,
        tasks=options.listed("--tasks", tasks),
        episodes=episodes,
        budget=Budget.parse(budget) if isinstance(budget, str) else budget,
        settings=settings or (),
        **choices,
    )
    told = note_sampling(agents, config) if tells else None
    if told is not None:
        note(told)
    config = _with_device(config, device)
    return await resolved(config, once_per_task=not counted(episodes, settings or ()), split=split)


def _with_device(config: RunConfig, said: Mapping[str, Any]) -> RunConfig:
    """The same run with these options of its backend; UsageError where they mean nothing to it."""
    from collab.errors import UsageError
    from collab.resolve import takes

    environment = config.environment
    for option in said:
        taking = [name for name, part in environment.backends.items() if takes(part, option)]
        if environment.backend not in taking:
            raise UsageError(
                f"--{option.replace('_', '-')} means nothing to the backend {environment.backend} of "
                f"{config.environment_name}; it is for: {', '.join(taking) or 'none of its backends'}"
            )
    part = environment.part.model_copy(update={"options": environment.part.options | dict(said)})
    backends = environment.backends | {environment.backend: part}
    return config.model_copy(update={"environment": environment.model_copy(update={"backends": backends})})


def play(config: RunConfig, definitions: Library, out: Path | None) -> RunResult:
    """Play a new run with progress shown; Ctrl-C stops it resumable."""
    from collab.runs import default_out, start

    path = out or default_out(config)
    return work(
        lambda watch, stop: start(config, definitions, path, tell=note, watch=watch, stop=stop),
        path,
        opening=opening_of(config, path),
    )


def opening_of(config: RunConfig, path: Path) -> str:
    """Return what is said when a run begins."""
    agents = "+".join(dict.fromkeys(config.agent_names.values()))
    what = f"{amount(config.episodes, 'episode')} of {config.environment_name} with {agents} on {config.graph_name}"
    return f"playing {what}, recorded in {path}"


def finish(result: RunResult, *, as_json: bool, details: bool) -> None:
    """Print how a run went; one that stopped early, or could not be played at all, ends the command with exit code 1.

    Raises:
        typer.Exit: it stopped early, or every episode broke.
    """
    if as_json:
        emit(result_data(result))
    else:
        show_result(result, details=details)
    if result.stopped is not None:
        show_stop(result)
        raise typer.Exit(1)
    end_unplayed(result.report, resume_command(result.path))
