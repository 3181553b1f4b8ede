"""`collab eval`: how often a team succeeds, with intervals; or two recorded evaluations against each other.

`collab rollout`: play episodes with a team and record them.

`collab workers`: the workers of both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import emit, print_table, say, to_data
from collab.cli.progress import print_finished, resume_command, run_interruptible, work
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
from collab.utils.progress import note
from collab.utils.text import format_clock, split_names

if TYPE_CHECKING:
    from collab.config import Budget, RunConfig
    from collab.library import Library
    from collab.rollout.plan import Placement
    from collab.rollout.run import RunResult
    from collab.rollout.seeds import SeedRun
    from collab.store.reader import Play


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
    executor: options.Executor = "local",
    workers: options.Workers = None,
    concurrency: options.Concurrency = 4,
    budget: options.BudgetText = None,
    settings: options.Settings = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Play episodes with a team and record them."""
    from collab.api import configure_run, report_left_out

    # Everything is resolved before the run directory is made: a refusal leaves nothing behind.
    definitions, named = options.open_library(library), split_names("--tasks", tasks)
    config = run_interruptible(
        configure_run,
        definitions,
        "rollout",
        env=env,
        graph=graph,
        agents=agents,
        tasks=named,
        split=split,
        episodes=episodes,
        seed=seed,
        backend=backend,
        serial=serial,
        allow_apps=split_names("--allow-apps", allow_apps),
        allow_effects=allow_effects,
        executor=executor,
        workers=workers,
        concurrency=concurrency,
        budget=budget,
        settings=settings or (),
    )
    # What was chosen is shown, with seed and number, before the first call is paid.
    report_left_out(named, config.split, config.tasks)
    options.print_sample(config.tasks, config.episodes, f"seed {config.seed}")
    options.print_doubts(config)
    finish(play(config, definitions, out), as_json=as_json, details=False)


def play(config: RunConfig, definitions: Library, out: Path | None) -> RunResult:
    """Play a new run with progress shown; Ctrl-C stops it resumable."""
    from collab.api import format_opening
    from collab.rollout.run import choose_out, start

    path = out or choose_out(config)
    return work(
        lambda watch, stop: start(config, definitions, path, note=note, watch=watch, stop=stop),
        path,
        opening=format_opening(config, path),
    )


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
            help="Seed of all task instances and random draws.",
            show_default="30",
            rich_help_panel=options.PLAY,
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--seeds",
            metavar="S,S,…",
            help="Several seeds. Each gets its own run in --out, e.g. RUN/seed-30; their results are also combined. "
            "Repeat the command to resume it. --episodes counts per seed, --budget counts for all.",
            rich_help_panel=options.PLAY,
        ),
    ] = None,
    backend: options.Backend = None,
    serial: options.Serial = None,
    allow_apps: options.AllowApps = None,
    allow_effects: options.AllowEffects = False,
    out: options.Out = None,
    executor: options.Executor = "local",
    workers: options.Workers = None,
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
            help="Play nothing; print the paired difference of two recorded evaluations, second minus first. Each is "
            "a run or a folder of runs with several seeds.",
        ),
    ] = None,
    force: options.Force = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Measure how often a team succeeds, with 95 % intervals, per task and difficulty.

    For a table of several evaluations: collab runs table. Greedy replies: --set agents.*.sampling.temperature=0
    """
    from collab.api import choose_seeds, configure_run, report_left_out

    # Comparing plays nothing, so none of the options for playing is looked at.
    if comparing is not None:
        _compare(*comparing, force=force, as_json=as_json)
        return
    definitions, named = options.open_library(library), split_names("--tasks", tasks)

    def configure(chosen: int, tells: bool) -> RunConfig:
        # One configuration per seed; doubts are printed once, not once per seed.
        return run_interruptible(
            configure_run,
            definitions,
            "eval",
            env=env,
            graph=graph,
            agents=agents,
            tasks=named,
            split=split,
            episodes=episodes,
            seed=chosen,
            backend=backend,
            serial=serial,
            allow_apps=split_names("--allow-apps", allow_apps),
            allow_effects=allow_effects,
            executor=executor,
            workers=workers,
            concurrency=concurrency,
            budget=budget,
            settings=settings or (),
            tells=tells,
        )

    # All seeds are configured before the first is played: a mistake must not show after hours.
    configs = [configure(one, not number) for number, one in enumerate(choose_seeds(seed, seeds, settings or ()))]
    report_left_out(named, configs[0].split, configs[0].tasks)
    for one in configs:
        options.print_sample(one.tasks, one.episodes, f"seed {one.seed}")
    options.print_doubts(configs[0])
    # One seed is an ordinary run; only several get a folder of runs.
    if seeds is None:
        [config] = configs
        finish(play(config, definitions, out), as_json=as_json, details=True)
        return
    _play_series(configs, definitions, out, as_json=as_json)


def _play_series(configs: list[RunConfig], definitions: Library, out: Path | None, *, as_json: bool) -> None:
    """Play the missing episodes of each seed and print all together; exit code 1 when it stopped early."""
    from collab.rollout.run import choose_out
    from collab.rollout.seeds import plan_series

    folder = out or choose_out(configs[0])
    runs = run_interruptible(plan_series, configs, definitions, folder)
    again = f" the same command and --out {shlex.quote(str(folder))}"
    _finish_series(folder, runs, definitions, configs[0].budget, again=again, as_json=as_json)


def resume_series(folder: Path, budget: Budget | None, placement: Placement, *, as_json: bool) -> None:
    """Resume an evaluation over several seeds and print its result.

    Args:
        placement: where it is played from here on.
        budget: what may be spent from here on; None grants its own once more.

    Raises:
        typer.Exit: it stopped early.
    """
    from collab.rollout.seeds import load_series

    runs = run_interruptible(load_series, folder, placement)
    # Everything is over: what could still be wanted is more seeds.
    if all(run.over for run in runs):
        seeds = ",".join(str(run.config.seed) for run in runs)
        more = f"collab eval … --seeds {seeds},N --out {shlex.quote(str(folder))}"
        print_finished(folder, f"to play more, give the same command with more seeds: {more}")
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
        again: the text behind the words "resume with".
    """
    from collab.rollout.seeds import build_series_result, play_missing

    # Seeds that are over are not played again.
    stopped = work(
        lambda watch, stop: play_missing(runs, definitions, budget=budget, note=note, watch=watch, stop=stop), folder
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
        note(f"stopped: {stopped}{rest}; resume with{again}")
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


# ----------------------------------------------------------------------------------------------------- workers

workers_app = typer.Typer(help="Workers: what each plays, of a run or in a Ray cluster.", no_args_is_help=True)


@workers_app.callback()
def _workers() -> None:
    """Keep `status` a command of its own."""


@workers_app.command("status")
def show_workers(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="A run or a training, also one that is over or plays in one process."),
    ] = None,
    *,
    as_json: options.Json = False,
) -> None:
    """List the workers of a run by what they recorded, or all that are in the Ray cluster of RAY_ADDRESS."""
    if run is not None:
        _show_recorded_workers(run, as_json=as_json)
        return
    from collab.rollout.executors.cluster import read_workers

    states = run_interruptible(read_workers)
    if as_json:
        emit(to_data(states))
        return
    if not states:
        say("no worker is in this Ray cluster")
        return
    # A worker that does not answer has its problem in the place of an episode.
    columns = ("worker", "machine", "process", "episode", "steps", "quiet for", "episodes played")
    print_table(
        columns,
        [
            (
                one.name,
                one.node,
                one.process,
                one.problem or one.episode or None,
                one.steps,
                format_clock(one.idle_s),
                one.played,
            )
            for one in states
        ],
    )


def _show_recorded_workers(path: Path, *, as_json: bool) -> None:
    """List the workers of a run, or of a training's rollouts, by the last thing that each recorded."""
    from collab.loop.record import TrainingDir
    from collab.store.run import RunStore

    is_training = TrainingDir(path).file.exists()
    plays: list[Play] = []
    is_running = False
    for run in [one.parent for one in path.glob("epochs/*/rollout/run.json")] if is_training else [path]:
        with RunStore.open(run).open_reader() as reader:
            plays += reader.list_plays()
            is_running = is_running or reader.status == "running"
    by_worker: dict[str, list[Play]] = {}
    for play in sorted(plays, key=lambda one: one.updated):
        by_worker.setdefault(play.worker or "unknown", []).append(play)
    states = [_summarize_worker(by_worker[name], is_running) for name in sorted(by_worker, key=_split_number)]
    if as_json:
        emit(states)
        return
    if not states:
        say(f"{path}: no episode {'of a rollout ' if is_training else ''}was begun yet")
        return
    # Each state has the columns' values, in their order.
    columns = ("worker", "state", "episode", "steps", "quiet for", "episodes played", "taken over", "cut off")
    clocks = [None if one["idle_s"] is None else format_clock(one["idle_s"]) for one in states]
    print_table(columns, [tuple((one | {"idle_s": clock}).values()) for one, clock in zip(states, clocks, strict=True)])


def _summarize_worker(plays: Sequence[Play], is_running: bool) -> dict[str, Any]:
    """Summarize a worker's plays, the last one last."""
    last = plays[-1]
    state = "playing" if last.end == "running" else "free" if is_running and last.end != "cut off" else "gone"
    return {
        "name": last.worker or "unknown",
        "state": state,
        "episode": last.episode if state == "playing" else None,
        "steps": last.first + last.steps if state == "playing" else None,
        "idle_s": None if state == "gone" else (datetime.now(UTC) - last.updated).total_seconds(),
        "played": sum(one.end in ("ended", "broken") for one in plays),
        "taken_over": sum(one.again for one in plays),
        "cut_off": sum(one.end == "cut off" for one in plays),
    }


def _split_number(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts "worker 10" behind "worker 9"."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
