"""`collab transfer`: evaluate a trained team in another environment, with or without further training there.

This module also prints a transfer's progress, plan and result.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from collab.cli import options
from collab.cli.output import emit, print_table, say, to_data
from collab.cli.progress import Resumable, run_interruptible
from collab.cli.text.training import format_below as below_training
from collab.cli.text.training import format_news as news_of_training
from collab.utils.progress import note
from collab.utils.text import read_numbers, split_names

if TYPE_CHECKING:
    from collab.config import Budget
    from collab.transfer.config import TransferConfig, TransferRequest
    from collab.transfer.result import TransferDir
    from collab.transfer.run import PlanLine, TransferPlan, TransferProgress, TransferResult


def format_below(progress: TransferProgress) -> list[str]:
    """Return the training's epochs, for the screen below that line."""
    return below_training(progress.training) if progress.inner is progress.training is not None else []


def format_news(progress: TransferProgress) -> list[str]:
    """Return log lines about finished epochs of the training."""
    return [] if progress.training is None else news_of_training(progress.training)


def show_plan(plan: TransferPlan) -> None:
    """Print all parts, and what the training will take."""
    from collab.loop.estimate import format_plan

    columns = ["part", "state", "environment", "split", "team", "seeds", "episodes", "calls per step"]
    print_table(columns, [_build_plan_row(line) for line in plan.parts])
    if plan.training is not None:
        say(f"\nthe training\n{format_plan(plan.training)}")


def _build_plan_row(line: PlanLine) -> tuple[object, ...]:
    seeds = ",".join(map(str, line.seeds))
    return line.part, line.state, line.environment, line.split, line.team, seeds, line.episodes, line.calls_per_step


def build_result_data(result: TransferResult) -> dict[str, Any]:
    """Return a result as JSON data; the result is None where it stopped early."""
    outcome = None if result.told is None else result.told.outcome.model_dump(mode="json")
    return {"out": str(result.path), "stopped": result.stopped, "result": outcome}


def show_result(result: TransferResult) -> None:
    """Print the tables and differences, once there are any."""
    if result.told is not None:
        say(result.told.markdown)
        say(f"transfer  {result.path}")


TRANSFER = Resumable(below=format_below, news=format_news, show=show_result, to_json=build_result_data)

FREE = {"resume", "plan", "device", "report_to", "budget", "as_json"}
"""Parameters that may stand beside --resume."""
TRAINS = (
    "algo",
    "preset",
    "ablation",
    "instructions",
    "seed",
    "calibrations",
    "allow_uncalibrated",
    "device",
    "report_to",
)
"""Parameters of the training."""
NO_SPLIT = "none"

Mode = Annotated[
    Literal["direct", "continual"] | None,
    typer.Option(
        "--mode",
        help="direct: evaluate the team in the second environment. continual: train it there, then evaluate both.",
        rich_help_panel=options.PLAY,
    ),
]
Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="DIR@best|NAME",
        help="Team: an epoch of a training (DIR@best, DIR@last, DIR@epoch3); for direct also agents files.",
        rich_help_panel=options.PLAY,
    ),
]
Base = Annotated[
    str | None,
    typer.Option(
        "--base",
        metavar="DIR@epoch0|NAME",
        help="Policy to compare the team with; default: the one that its training started from.",
        rich_help_panel=options.PLAY,
    ),
]
Second = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="NAME", help="Second environment; see collab env list.", rich_help_panel=options.PLAY
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="NAME",
        help="Split to evaluate on in the second environment: new-seeds, unseen-tasks or unseen-app; training there "
        "uses the split train. none: use no split at all.",
        rich_help_panel=options.PLAY,
    ),
]
Seeds = Annotated[
    list[str] | None,
    typer.Option(
        "--seeds",
        metavar="S,S,…",
        help="Seeds of all evaluations, out of those kept for evaluation.",
        show_default="30,31,32",
        rich_help_panel=options.PLAY,
    ),
]
Episodes = Annotated[
    int | None,
    typer.Option(
        "--episodes",
        metavar="N",
        min=1,
        help="Number of episodes per seed and evaluation; default: every task once.",
        rich_help_panel=options.PLAY,
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the training.", rich_help_panel=options.HOW)]
OnlyPlan = Annotated[
    bool,
    typer.Option("--plan", help="Print the planned work, or with --resume the rest of it; run nothing."),
]


def transfer(
    context: typer.Context,
    *,
    mode: Mode = None,
    agents: Agents = None,
    base: Base = None,
    env: Second = None,
    graph: options.Graph = "team",
    backend: options.Backend = None,
    tasks: options.Tasks = None,
    instructions: options.Instructions = None,
    split: Split = "new-seeds",
    seeds: Seeds = None,
    episodes: Episodes = None,
    algo: options.ContinualAlgo = None,
    preset: options.Preset = None,
    ablation: options.AblationName = None,
    settings: options.TrainingSettings = None,
    seed: Seed = 0,
    calibrations: options.Calibrations = None,
    allow_uncalibrated: options.AllowUncalibrated = False,
    device: options.Device = None,
    report_to: options.ReportTo = None,
    out: options.TrainingOut = None,
    resume: options.Resume = None,
    plan: OnlyPlan = False,
    concurrency: options.EngineConcurrency = None,
    budget: options.BudgetText = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate a trained team in another environment, with or without training there, and compare it with its base.

    Every part is an ordinary run or training in one directory; --resume resumes the part that was stopped or killed.
    """
    from collab.api import build_check_options
    from collab.config import Budget
    from collab.trainers.prepare import check_device, check_reports

    limit = None if budget is None else Budget.parse(budget)
    reports = None if report_to is None else split_names("--report-to", report_to)
    # As in `collab train`: a resume takes everything from the directory.
    if resume is not None:
        options.refuse_beside_resume(context, FREE, "the transfer")
        resume_transfer(resume, limit, device=device, report_to=reports, plan=plan, as_json=as_json)
        return
    # Modes have different options, so those are checked against the mode before anything is read.
    _refuse_untrained(context, mode)
    request = _build_request(
        mode,
        agents,
        env,
        base=base,
        graph=graph,
        backend=backend,
        tasks=tuple(split_names("--tasks", tasks)),
        instructions=instructions,
        split=None if split == NO_SPLIT else split,
        episodes=episodes,
        concurrency=concurrency,
        algorithm=algo,
        preset=preset,
        ablation=ablation,
        seed=seed,
        settings=tuple(settings or ()),
        **({} if seeds is None else {"seeds": tuple(read_numbers("--seeds", seeds))}),
    )
    # Everything that could be refused is refused here, before a directory exists.
    config = _configure_transfer(library, request)
    check_device(device or options.AUTO)
    check_reports(reports or ())
    # A plan needs no --out and leaves nothing.
    if plan:
        _show_plan(config, None, device, as_json=as_json)
        return
    _begin(
        config,
        options.require_out(out),
        budget=limit,
        options=build_check_options(calibrations, allow_uncalibrated),
        device=device or options.AUTO,
        report_to=reports or (),
        as_json=as_json,
    )


def resume_transfer(
    path: Path,
    budget: Budget | None,
    *,
    device: str | None = None,
    report_to: Sequence[str] | None = None,
    plan: bool = False,
    as_json: bool,
) -> None:
    """Resume a transfer and print its result.

    Args and errors as of `collab.transfer.run.resume`.

    Args:
        plan: print only what is left.

    Raises:
        typer.Exit: it stopped early.
    """
    from collab.transfer.result import TransferDir
    from collab.transfer.run import read_stored_config, resume

    folder = TransferDir(path)
    if plan:
        _show_plan(read_stored_config(folder), folder, device, as_json=as_json)
        return
    more = "to take a team elsewhere, begin another: collab transfer --mode direct --agents NAME --env NAME --out DIR"
    job = functools.partial(resume, path, budget=budget, device=device, report_to=report_to, note=note)
    TRANSFER.resume(job, folder, None if folder.read_outcome() is None else more, as_json)


# ------------------------------------------------------------------------------------------------- what is asked


def _build_request(
    mode: Literal["direct", "continual"] | None, agents: str | None, env: str | None, **choices: Any
) -> TransferRequest:
    """Build the request; UsageError where an option without a default is left out."""
    from collab.errors import UsageError
    from collab.transfer.config import TransferRequest

    if mode is None:
        raise UsageError("--mode is missing: direct plays the other environment, continual trains on there, too")
    if agents is None:
        raise UsageError("--agents is missing: name a trained team, e.g. runs/marl@last")
    if env is None:
        raise UsageError("--env is missing: name the environment that the team is taken to; see collab env list")
    return TransferRequest(mode=mode, agents=agents, env=env, **choices)


def _refuse_untrained(context: typer.Context, mode: str | None) -> None:
    """Raise UsageError for training options where nothing is trained."""
    from collab.errors import UsageError

    beside = options.list_given_options(context, TRAINS) if mode == "direct" else []
    if beside:
        raise UsageError(f"--mode direct trains nothing; leave out {', '.join(beside)}, or choose --mode continual")


def _configure_transfer(library: Path | None, request: TransferRequest) -> TransferConfig:
    from collab.api import report_left_out
    from collab.transfer.config import configure

    config = run_interruptible(configure, options.open_library(library), request)
    # Both environments are shown before anything is paid: their tasks, doubts and samples.
    runs = [config.base[0], *([] if config.training is None else [config.training.run])]
    for run in runs:
        report_left_out(request.tasks, run.split, run.tasks)
        options.print_doubts(run)
    for name, evaluations in (("", config.transferred), ("first environment, ", config.first)):
        for one in evaluations:
            options.print_sample(one.tasks, one.episodes, f"{name}seed {one.seed}")
    for one in () if config.training is None else config.training.held_out:
        options.print_sample(one.tasks, one.episodes, f"training, held-out seed {one.seed}")
    return config


# --------------------------------------------------------------------------------------------------- what happens


def _begin(config: TransferConfig, out: Path, *, as_json: bool, **choices: Any) -> None:
    from collab.transfer.result import TransferDir
    from collab.transfer.run import start

    how = "" if config.training is None else f", trained by {config.training.called}"
    what = f"{config.mode} transfer of {config.agents} to {config.transferred[0].environment_name}{how}, in {out}"
    TRANSFER.begin(functools.partial(start, config, out, note=note, **choices), TransferDir(out), what, as_json)


def _show_plan(config: TransferConfig, folder: TransferDir | None, device: str | None, *, as_json: bool) -> None:
    from collab.transfer.run import plan

    found = run_interruptible(plan, config, folder, device)
    if as_json:
        emit(to_data(found))
    else:
        show_plan(found)
