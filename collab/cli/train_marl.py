"""`collab train-marl`: train a team, epoch by epoch."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import data, emit, note, say
from collab.cli.training_text import below, describe, news, result_data, show_result
from collab.cli.watch import work

if TYPE_CHECKING:
    from collab.config import Budget
    from collab.library import Library
    from collab.marl.config import MarlConfig
    from collab.marl.loop import MarlResult

HOW = "How it is trained"
"""A heading in the help."""

AUTO = "auto"
"""Where to train unless said otherwise."""

Preset = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="NAME|FILE",
        help="The method: collab, paper, qwen2.5-0.5b or a YAML file.",
        rich_help_panel=HOW,
    ),
]
AblationName = Annotated[
    str | None,
    typer.Option(
        "--ablation",
        metavar="NAME",
        help="Change one thing of the method, for a comparison: no-cr, rft, no-edge-update, single-agent, "
        "adversary-pairs, contrast-pairs, mixed-pairs, anchor or no-anchor.",
        rich_help_panel=HOW,
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="NAME",
        help="train keeps to the training split and measures on new seeds; none keeps to none.",
        rich_help_panel=options.PLAY,
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory to make.", rich_help_panel=options.LIMITS)
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Go on with a training that was stopped or killed.",
        rich_help_panel=options.LIMITS,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a=b",
        help="Override a setting of the method, e.g. epochs=2 or dpo.beta=0.3, or of the run: run.graph.rounds=2. "
        "May be repeated.",
        rich_help_panel=HOW,
    ),
]
OnlyPlan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Print calls, tokens, memory, disk, time and money with ranges; train nothing.",
        rich_help_panel=HOW,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="auto (a GPU if there is one) or cpu; with --resume as before unless given.",
        show_default=AUTO,
        rich_help_panel=HOW,
    ),
]
Calibrations = Annotated[
    Path | None,
    typer.Option(
        "--calibrations",
        metavar="DIR",
        help="Where calibrations of the critic lie; default: calibrations/.",
        rich_help_panel=HOW,
    ),
]
Anyway = Annotated[
    bool,
    typer.Option("--anyway", help="Let the critic judge, whatever is known of it.", rich_help_panel=HOW),
]
Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="NAME|a=X,b=Y|DIR@best",
        help="The policy to begin with: agents files of kind local, or an epoch of a training (DIR@best, DIR@epoch3).",
        rich_help_panel=options.PLAY,
    ),
]


def train_marl(
    context: typer.Context,
    *,
    env: options.Environment = "androidworld",
    graph: options.Graph = "team",
    agents: Agents = None,
    preset: Preset = "collab",
    ablation: AblationName = None,
    settings: Settings = None,
    tasks: options.Tasks = None,
    split: Split = "train",
    seed: options.Seed = 0,
    backend: options.Backend = None,
    out: Out = None,
    resume: Resume = None,
    plan: OnlyPlan = False,
    calibrations: Calibrations = None,
    anyway: Anyway = False,
    device: Device = None,
    concurrency: options.Concurrency = 4,
    budget: options.BudgetText = None,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Train a team: play, judge every action, learn from better against worse, epoch by epoch.

    Every part is on the disk before the next begins; --resume goes on wherever it was stopped or killed.
    """
    from collab.config import Budget

    limit = None if budget is None else Budget.parse(budget)
    if resume is not None:
        options.refuse_beside_resume(context, {"resume", "device", "budget", "as_json"}, "the training")
        _finish(_go_on(resume, limit, device), as_json)
        return
    _refuse_graph(context, ablation, graph)
    definitions = options.library(library)
    config = _asked(
        definitions,
        agents,
        preset,
        ablation=ablation,
        env=env,
        graph=graph,
        tasks=options.listed("--tasks", tasks),
        split=None if split == "none" else split,
        seed=seed,
        backend=backend,
        concurrency=concurrency,
        settings=settings or (),
    )
    if plan:
        _show_plan(config, definitions, device or AUTO, as_json)
    else:
        _finish(_begin(config, out, limit, device or AUTO, calibrations=calibrations, anyway=anyway), as_json)


# ------------------------------------------------------------------------------------------------- what is asked


def _asked(definitions: Library, agents: str | None, preset: str, **choices: Any) -> MarlConfig:
    from collab.errors import UsageError
    from collab.marl.config import load_method
    from collab.marl.configure import configure

    if agents is None:
        raise UsageError("--agents is missing: name the policy to begin with (an agents file of kind local)")
    method = load_method(preset)
    return asyncio.run(configure(definitions, preset=preset, method=method, agents=agents, **choices))


def _refuse_graph(context: typer.Context, ablation: str | None, graph: str) -> None:
    """UsageError where a graph was asked for and the ablation plays another."""
    from collab.errors import UsageError
    from collab.marl.ablation import ABLATIONS

    own = ABLATIONS[ablation].graph if ablation in ABLATIONS else None
    source = context.get_parameter_source("graph")
    if own not in (None, graph) and source is not None and source.name == "COMMANDLINE":
        raise UsageError(f"--ablation {ablation} plays the graph {own}; leave out --graph {graph}")


# --------------------------------------------------------------------------------------------------- what happens


def _begin(
    config: MarlConfig, out: Path | None, budget: Budget | None, device: str, *, calibrations: Path | None, anyway: bool
) -> MarlResult:
    from collab.credit.gate import FOLDER
    from collab.errors import UsageError
    from collab.marl.gate import admitted
    from collab.marl.layout import MarlFolder
    from collab.marl.loop import start

    if out is None:
        raise UsageError("--out is missing: name the directory that is to be made, or --plan to make nothing")
    calibrations = FOLDER if calibrations is None else calibrations
    known = asyncio.run(admitted(config, calibrations=calibrations, anyway=anyway))
    note(f"critic {config.method.critic}: {known}")
    begin = functools.partial(
        start, config, out, calibrations=calibrations, anyway=anyway, budget=budget, device=device
    )
    method, agents = config.method, "+".join(dict.fromkeys(config.run.agent_names.values()))
    what = f"{method.epochs} epochs of {config.size} of {config.run.environment_name}"
    return work(
        lambda watch, stop: begin(watch=watch, stop=stop),
        out,
        opening=f"training {agents} by {config.called}: {what}, in {out}",
        tell=describe,
        below=below,
        news=news,
        resume=MarlFolder(out).resume,
    )


def _go_on(path: Path, budget: Budget | None, device: str | None) -> MarlResult:
    from collab.marl.layout import MarlFolder
    from collab.marl.loop import resume

    return work(
        lambda watch, stop: resume(path, budget=budget, device=device, watch=watch, stop=stop),
        path,
        opening=f"going on with {path}",
        tell=describe,
        below=below,
        news=news,
        resume=MarlFolder(path).resume,
    )


def _show_plan(config: MarlConfig, definitions: Library, device: str, as_json: bool) -> None:
    from collab.marl.plan import plan, told

    found = asyncio.run(plan(config, definitions, device))
    if as_json:
        emit(data(found))
    else:
        say(told(found))


# ------------------------------------------------------------------------------------------------- what came of it


def _finish(result: MarlResult, as_json: bool) -> None:
    """Print how a training went; one that stopped early ends the command with exit code 1."""
    from collab.marl.layout import MarlFolder

    again = MarlFolder(result.path).resume
    if as_json:
        emit(result_data(result))
    else:
        show_result(result)
    if result.stopped is not None:
        note(f"stopped: {result.stopped}; go on with: {again}")
        raise typer.Exit(1)
