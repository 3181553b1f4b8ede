"""`collab eval`: how often a team succeeds, with intervals; or two recorded evaluations against each other.

`collab rollout`: play episodes with a team and record them.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from collab.cli import options
from collab.cli.output import emit, note
from collab.cli.progress import resume_command, tell_finished, work
from collab.cli.text.report import (
    build_comparison_data,
    build_evaluation_data,
    build_result_data,
    end_unplayed,
    show_comparison,
    show_evaluation,
    show_result,
    show_stop,
)
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.config import Budget, RunConfig
    from collab.library import Library
    from collab.rollout.run import RunResult
    from collab.rollout.seeds import SeedRun


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
    # Everything is resolved before the run directory is made: a refusal leaves nothing behind.
    definitions = options.open_library(library)
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
        device=options.build_device_options(serial, allow_apps, allow_effects),
        concurrency=concurrency,
        budget=budget,
        settings=settings,
    )
    # What was chosen is shown, with seed and number, before the first call is paid.
    options.tell_outside(options.split_names("--tasks", tasks), config.split, config.tasks)
    options.print_sample(config.tasks, config.episodes, f"seed {config.seed}")
    options.tell_doubts(config)
    finish(play(config, definitions, out), as_json=as_json, details=False)


def configure(definitions: Library, purpose: Literal["rollout", "eval"], **choices: Any) -> RunConfig:
    """Put a run together from options, as `configure_run` does, outside of any loop of events."""
    return asyncio.run(configure_run(definitions, purpose, **choices))


async def configure_run(
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
        tells: warn if a trained team is played at other temperatures than in training.
    """
    from collab.config import Budget, run_config
    from collab.rollout.build import has_episode_count, resolve_run

    trained, may_be_trained = None, "@" in agents or os.path.isfile(os.path.join(agents, "training.json"))
    if may_be_trained:  # only then is the code that reads trainings imported
        from collab.loop.trained import load_trained_agents, note_sampling

        trained = load_trained_agents(definitions, agents, graph)
    config = run_config(
        library=definitions,
        purpose=purpose,
        graph=graph,
        agents=agents if trained is None else Path(agents).name,
        filled=trained,
        tasks=options.split_names("--tasks", tasks),
        episodes=episodes,
        budget=Budget.parse(budget) if isinstance(budget, str) else budget,
        settings=settings or (),
        **choices,
    )
    told = note_sampling(agents, config) if tells and may_be_trained else None
    if told is not None:
        note(told)
    config = _with_device(config, device)
    return await resolve_run(config, once_per_task=not has_episode_count(episodes, settings or ()), split=split)


def _with_device(config: RunConfig, said: Mapping[str, Any]) -> RunConfig:
    """Return the run with these options of its backend; UsageError where its backend does not have them."""
    from collab.errors import UsageError
    from collab.rollout.build import has_parameter

    environment = config.environment
    # An option that the backend does not take would be ignored silently.
    for option in said:
        taking = [name for name, part in environment.backends.items() if has_parameter(part, option)]
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
    from collab.rollout.run import choose_out, start

    path = out or choose_out(config)
    return work(
        lambda watch, stop: start(config, definitions, path, tell=note, watch=watch, stop=stop),
        path,
        opening=format_opening(config, path),
    )


def format_opening(config: RunConfig, path: Path) -> str:
    """Return the line that is printed when a run begins."""
    agents = "+".join(dict.fromkeys(config.agent_names.values()))
    what = (
        f"{format_amount(config.episodes, 'episode')} of {config.environment_name} with {agents} on {config.graph_name}"
    )
    return f"playing {what}, recorded in {path}"


def finish(result: RunResult, *, as_json: bool, details: bool) -> None:
    """Print how a run went; one that stopped early, or could not be played at all, ends the command with exit code 1.

    Raises:
        typer.Exit: it stopped early, or every episode broke.
    """
    if as_json:
        emit(build_result_data(result))
    else:
        show_result(result, details=details)
    if result.stopped is not None:
        show_stop(result)
        raise typer.Exit(1)
    end_unplayed(result.report, resume_command(result.path))


SEED = 30
"""Suite seed of evaluations, the same as in the Python API."""


def evaluate(
    *,
    env: options.Environment = "androidworld",
    graph: options.Graph = "team",
    agents: options.Agents = "pocket",
    tasks: options.Tasks = None,
    split: options.Split = None,
    episodes: options.Episodes = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="S",
            help="Decides every instance and draw.",
            show_default=str(SEED),
            rich_help_panel=options.PLAY,
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--seeds",
            metavar="S,S,…",
            help="Several seeds: a run for each in --out, e.g. RUN/seed-30, and their results together. Give the same "
            "command again to go on where it stopped. --episodes counts per seed, --budget is for all.",
            rich_help_panel=options.PLAY,
        ),
    ] = None,
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
    comparing: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="RUN RUN",
            help="Play nothing: the paired difference of two recorded evaluations, second minus first. Each is a run "
            "or a folder of runs with several seeds.",
        ),
    ] = None,
    force: options.Force = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Measure how often a team succeeds, with 95 % intervals, per task and difficulty.

    For a table of several evaluations: collab runs table. Greedy replies: --set agents.*.sampling.temperature=0
    """
    # Comparing plays nothing, so none of the options for playing is looked at.
    if comparing is not None:
        _compare(*comparing, force=force, as_json=as_json)
        return
    definitions = options.open_library(library)
    device = options.build_device_options(serial, allow_apps, allow_effects)

    # One configuration per seed; doubts are printed once, not once per seed.
    def configured(chosen: int, tells: bool) -> RunConfig:
        return configure(
            definitions,
            "eval",
            env=env,
            graph=graph,
            agents=agents,
            tasks=tasks,
            split=split,
            episodes=episodes,
            seed=chosen,
            backend=backend,
            device=device,
            concurrency=concurrency,
            budget=budget,
            settings=settings,
            tells=tells,
        )

    # All seeds are configured before the first is played: a mistake must not show after hours.
    configs = [configured(one, not number) for number, one in enumerate(choose_seeds(seed, seeds, settings))]
    options.tell_outside(options.split_names("--tasks", tasks), configs[0].split, configs[0].tasks)
    for one in configs:
        options.print_sample(one.tasks, one.episodes, f"seed {one.seed}")
    options.tell_doubts(configs[0])
    # One seed is an ordinary run; only several get a folder of runs.
    if seeds is None:
        [config] = configs
        finish(play(config, definitions, out), as_json=as_json, details=True)
        return
    _play_series(configs, definitions, out, as_json=as_json)


def choose_seeds(seed: int | None, seeds: list[str] | None, settings: list[str] | None) -> list[int]:
    """Return all run seeds; UsageError where another option names one, too, or one is no whole number."""
    from collab.config import strip_run_prefix
    from collab.errors import UsageError

    if seeds is None:
        return [SEED if seed is None else seed]
    if seed is not None:
        raise UsageError("--seed and --seeds both say which; leave one of them out")
    if any(strip_run_prefix(setting).partition("=")[0] == "seed" for setting in settings or ()):
        raise UsageError("--set seed=… and --seeds both say which; leave one of them out")
    return options.parse_seeds("--seeds", seeds)


def _play_series(configs: list[RunConfig], definitions: Library, out: Path | None, *, as_json: bool) -> None:
    """Play the missing episodes of each seed and print all together; exit code 1 when it stopped early."""
    from collab.rollout.run import choose_out
    from collab.rollout.seeds import plan_series

    folder = out or choose_out(configs[0])
    runs = asyncio.run(plan_series(configs, definitions, folder))
    again = f" the same command and --out {shlex.quote(str(folder))}"
    _finish_series(folder, runs, definitions, configs[0].budget, again=again, as_json=as_json)


def resume_series(folder: Path, budget: Budget | None, *, as_json: bool) -> None:
    """Resume an evaluation over several seeds and print its result.

    Args:
        budget: what may be spent from here on; None grants its own once more.

    Raises:
        typer.Exit: it stopped early.
    """
    from collab.rollout.seeds import load_series

    runs = asyncio.run(load_series(folder))
    # Everything is over: what could still be wanted is more seeds.
    if all(run.over for run in runs):
        seeds = ",".join(str(run.config.seed) for run in runs)
        more = f"collab eval … --seeds {seeds},N --out {shlex.quote(str(folder))}"
        tell_finished(folder, f"to play more, give the same command with more seeds: {more}")
    _finish_series(
        folder,
        runs,
        options.open_library(None),
        budget or runs[0].config.budget,
        again=f": {resume_command(folder)}",
        as_json=as_json,
    )


def _finish_series(
    folder: Path, runs: tuple[SeedRun, ...], definitions: Library, budget: Budget, *, again: str, as_json: bool
) -> None:
    """Play the missing episodes and print all together.

    Args:
        again: how to go on, behind the words "go on with".
    """
    from collab.rollout.seeds import build_series_result, play_missing

    # Seeds that are over are not played again.
    stopped = work(
        lambda watch, stop: play_missing(runs, definitions, budget=budget, tell=note, watch=watch, stop=stop), folder
    )
    result = build_series_result(folder, runs, stopped)
    if as_json:
        emit({"run": str(folder), "stopped": stopped, **build_evaluation_data(result.evaluation)})
    else:
        show_evaluation(result.evaluation)
    # What is not begun is named, as the table above does not show it.
    if stopped is not None:
        missing = [str(run.config.seed) for run in runs if not run.path.exists()]
        rest = f" (not begun: seed {', '.join(missing)})" if missing else ""
        note(f"stopped: {stopped}{rest}; go on with{again}")
        raise typer.Exit(1)
    end_unplayed(result.report, again.removeprefix(": ").strip())


def _compare(first: Path, second: Path, *, force: bool, as_json: bool) -> None:
    from collab.evaluation.comparison import compare
    from collab.evaluation.report import read_evaluation

    one, other = (read_evaluation(path).report for path in (first, second))
    comparison = compare(one, other, force=force)
    if as_json:
        emit(build_comparison_data(comparison, str(first), str(second)))
    else:
        show_comparison(comparison, str(first), str(second))
