"""`collab eval`: how often a team succeeds, with intervals; or two recorded runs against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collab.cli import options
from collab.cli.output import emit
from collab.cli.report import comparison_data, show_comparison
from collab.cli.rollout import configure, finish, play

SEED = 30
"""Suite seed of evaluations, the same as in the Python API."""


def evaluate(
    *,
    env: options.Environment = "androidworld",
    graph: options.Graph = "team",
    agents: options.Agents = "rehearsal",
    tasks: options.Tasks = None,
    split: options.Split = None,
    episodes: options.Episodes = None,
    seed: options.Seed = SEED,
    backend: options.Backend = None,
    serial: options.Serial = None,
    allow_apps: options.AllowApps = None,
    allow_effects: options.AllowEffects = False,
    out: options.Out = None,
    concurrency: options.Concurrency = 4,
    budget: options.BudgetText = None,
    settings: options.Settings = None,
    library: options.LibraryFolder = None,
    comparing: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="RUN RUN",
            help="Play nothing: the paired difference of two recorded runs, second minus first.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compare although more than 2 % of a run's episodes broke.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Measure how often a team succeeds, with 95 % intervals, per task and difficulty."""
    if comparing is not None:
        _compare(*comparing, force=force, as_json=as_json)
        return
    definitions = options.library(library)
    config = configure(
        definitions,
        "eval",
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
    finish(play(config, definitions, out), as_json=as_json, details=True)


def _compare(first: Path, second: Path, *, force: bool, as_json: bool) -> None:
    from collab.cli.runs import open_run, report_of
    from collab.evaluation import compare

    with open_run(first) as one, open_run(second) as other:
        comparison = compare(report_of(one), report_of(other), force=force)
    if as_json:
        emit(comparison_data(comparison, str(first), str(second)))
    else:
        show_comparison(comparison, str(first), str(second))
