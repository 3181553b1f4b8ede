"""`collab synth`: make fine-tuning data from an environment and a teacher."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import describe_lost, emit, print_table, say, to_data
from collab.cli.progress import Resumable, run_interruptible
from collab.utils.progress import note
from collab.utils.text import format_amount, format_clock, format_count, split_names

if TYPE_CHECKING:
    from collab.config import Budget
    from collab.synthesis.config import SynthConfig
    from collab.synthesis.estimate import SynthesisEstimate
    from collab.synthesis.run import SynthResult
    from collab.synthesis.units import SynthesisProgress

_WHAT, _HOW = "What is made", "How it is made"

Environment = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="NAME", help="Environment to make rows of; default: androidworld.", rich_help_panel=_WHAT
    ),
]
Levels = Annotated[
    list[str] | None,
    typer.Option(
        "--levels",
        metavar="NAMES",
        help="Levels to make, comma-separated, of basic, instruction, demonstration, preference (default: these), and "
        "candidate and judgement, which come together and train critics of actions and process reward models.",
        rich_help_panel=_WHAT,
    ),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        "--teacher",
        metavar="oracle|NAME",
        help="Teacher: oracle (default), which uses the environment's own solutions, or an agents file.",
        rich_help_panel=_WHAT,
    ),
]
PromptName = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="NAME",
        help="Prompt of the policy to be trained; default: default.",
        rich_help_panel=_WHAT,
    ),
]
Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="NAME",
        help="Policy whose actions levels candidate and judgement are of, sampled at temperature 1.",
        rich_help_panel=_WHAT,
    ),
]
Critic = Annotated[
    str | None,
    typer.Option(
        "--critic",
        metavar="NAME",
        help="Process reward model whose questions level judgement answers; default: critic-prm.",
        rich_help_panel=_WHAT,
    ),
]
Episodes = Annotated[
    int | None,
    typer.Option(
        "--episodes", metavar="N", min=0, help="Number of tasks to play; default: each once.", rich_help_panel=_WHAT
    ),
]
Screens = Annotated[
    int | None,
    typer.Option(
        "--screens", metavar="N", min=0, help="Number of screens to explore; default: 200.", rich_help_panel=_WHAT
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="S", help="Seed of all random draws; default: 0.", rich_help_panel=_WHAT)
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Directory to make.", rich_help_panel=_HOW)]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Resume a stopped synthesis; takes only --budget, --concurrency and --json beside it.",
        rich_help_panel=_HOW,
    ),
]
Plan = Annotated[
    bool,
    typer.Option("--plan", help="Print the expected screens, calls and rows; make nothing.", rich_help_panel=_HOW),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="K",
        min=1,
        help="Number of walks and episodes at once; default: 4.",
        rich_help_panel=_HOW,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=c",
        help="Override one setting of the synthesis, e.g. history=4 or mistakes=0.2. May be repeated.",
        rich_help_panel=_HOW,
    ),
]


def synth(
    context: typer.Context,
    *,
    env: Environment = None,
    levels: Levels = None,
    teacher: Teacher = None,
    prompt: PromptName = None,
    agents: Agents = None,
    critic: Critic = None,
    tasks: options.Tasks = None,
    backend: options.Backend = None,
    episodes: Episodes = None,
    screens: Screens = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = None,
    plan: Plan = False,
    concurrency: Concurrency = None,
    budget: options.BudgetText = None,
    settings: Settings = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Make fine-tuning data: what screens are, one-step instructions, whole solutions, preferences, judgements.

    All of it comes from the training split. Rows are written as Parquet, one file per level, with a data card.
    --resume resumes a stopped or killed synthesis.
    """
    from collab.config import Budget

    limits = Budget.parse(budget) if budget is not None else None
    chosen = dict(env=env, teacher=teacher, prompt=prompt, backend=backend, seed=seed, settings=settings)
    chosen |= dict(levels=split_names("--levels", levels) or None, tasks=split_names("--tasks", tasks) or None)
    chosen |= dict(episodes=episodes, screens=screens, agents=agents, critic=critic)
    # A resume takes everything from the directory.
    if resume is not None:
        options.refuse_beside_resume(context, {"resume", "concurrency", "budget", "as_json"}, "the synthesis")
        resume_synthesis(resume, limits, concurrency, as_json=as_json)
        return
    config = _configure_synthesis(library, {**chosen, "concurrency": concurrency, "budget": limits})
    if plan:
        _show_plan(config, as_json=as_json)
    else:
        _begin(config, options.require_out(out), as_json=as_json)


def _configure_synthesis(library: Path | None, chosen: dict[str, Any]) -> SynthConfig:
    from collab.api import report_left_out
    from collab.synthesis.config import SynthesisRequest, configure

    # None stands for "not given", which the environment or the preset fills in.
    asked = {name: value for name, value in chosen.items() if value is not None}
    request = SynthesisRequest(**{"env": "androidworld", **asked})
    config = run_interruptible(configure, options.open_library(library), request)
    report_left_out(request.tasks or (), config.split, [*config.tasks, *config.unsolved])
    if config.episodes:
        options.print_sample(config.tasks, config.episodes, f"seed {config.seed}")
    # Tasks without a solution are named: nothing is learned about them.
    if config.unsolved:
        first = ", ".join(config.unsolved[:3])
        note(f"left out, because their solution is unknown: {format_amount(len(config.unsolved), 'task')} ({first} …)")
    return config


def _begin(config: SynthConfig, out: Path, *, as_json: bool) -> None:
    from collab.synthesis.journal import SynthesisDir
    from collab.synthesis.run import start

    screens, episodes = format_amount(config.screens, "screen"), format_amount(config.episodes, "episode")
    what = f"{screens} and {episodes} of {config.environment_name}"
    opening = f"{config.teacher_name} teaches {', '.join(config.levels)} on {what}, recorded in {out}"
    folder = SynthesisDir(out)
    _refuse_broken(SYNTHESIS.begin(functools.partial(start, config, out), folder, opening, as_json), folder.resume)


def resume_synthesis(path: Path, budget: Budget | None, concurrency: int | None = None, *, as_json: bool) -> None:
    """Resume a synthesis and print its result; a finished one is only printed.

    Raises:
        typer.Exit: it stopped early, or units broke.
        CollabError: as `collab.synthesis.run.resume`.
    """
    from collab.synthesis.journal import SynthesisDir
    from collab.synthesis.run import resume
    from collab.synthesis.units import read_report

    folder = SynthesisDir(path)
    is_over = read_report(path, folder.read_head()) is not None
    more = "to make more, begin another: collab synth --screens N --episodes N --seed S --out DIR"
    job = functools.partial(resume, path, budget=budget, concurrency=concurrency)
    _refuse_broken(SYNTHESIS.resume(job, folder, more if is_over else None, as_json), folder.resume)


def describe(progress: SynthesisProgress) -> str:
    """Format one line: units, rows, calls, tokens, time left."""
    calls = progress.calls
    rows = ", ".join(f"{count} {level}" for level, count in progress.rows.items())
    parts = [f"{calls.done}/{calls.planned} walks and episodes", f"rows: {rows or 'none yet'}"]
    # Only numbers above 0: the line stays short while all is well.
    if progress.refused:
        parts.append(f"{progress.refused} refused")
    if calls.broken:
        parts.append(f"{calls.broken} broken")
    if calls.spent.calls:
        parts.append(
            f"{format_count(calls.spent.calls, 'call')}, {format_count(calls.tokens, 'token')}, "
            f"{calls.calls_per_s:.1f} calls/s"
        )
    if calls.spent.cost_usd:
        parts.append(f"{calls.spent.cost_usd:.2f} USD")
    if calls.seconds_left is not None:
        parts.append(f"about {format_clock(calls.seconds_left)} left")
    return " | ".join(parts)


def _refuse_broken(result: SynthResult, again: str) -> None:
    """End the command with exit code 1 where units broke."""
    if result.report is not None and result.report.broken:
        count, why = len(result.report.broken), next(iter(result.report.broken.values()))
        note(f"{count} of {result.report.units} walks and episodes broke ({why}); make them again with: {again}")
        raise typer.Exit(1)


def build_result_data(result: SynthResult) -> dict[str, Any]:
    """Return a finished or stopped synthesis as JSON data."""
    from collab.synthesis.journal import SynthesisDir

    calls = result.progress.calls
    return {
        "out": str(result.path),
        "environment": result.label,
        "stopped": result.stopped,
        "resume": SynthesisDir(result.path).resume if result.stopped or calls.broken else None,
        "units": {"planned": calls.planned, "done": calls.done, "broken": calls.broken},
        "rows_so_far": dict(result.progress.rows),
        "report": to_data(result.report),
        "seconds": calls.seconds,
        "spent": to_data(calls.spent),
    }


def show_result(result: SynthResult) -> None:
    """Print the result of a synthesis; if it stopped early, only the cost of unanswered calls."""
    from collab.synthesis.journal import INSTRUCTIONS
    from collab.synthesis.units import CARD

    calls, report = result.progress.calls, result.report
    # Stopped early there is no report, and yet calls may have cost something.
    if report is None:
        if calls.spent.lost:
            say(describe_lost(calls.spent.lost))
        return
    say(result.label)
    say(f"rows     {report.rows}: " + ", ".join(f"{count} {level}" for level, count in report.by_level.items()))
    if report.playable:
        say(f"tasks    {format_amount(report.playable, 'instruction')} to train on, {result.path / INSTRUCTIONS}")
    dropped = ", ".join(f"{count} {cause}" for cause, count in report.dropped.items())
    say(f"dropped  {report.made - report.rows}" + (f": {dropped}" if dropped else ""))
    refused = sum(sum(causes.values()) for causes in report.refused.values())
    say(f"refused  {refused}" + (" (causes are in the card)" if refused else ""))
    say(
        f"spent    {format_clock(calls.seconds)}, {format_amount(calls.spent.calls, 'call')}, "
        f"{format_count(calls.tokens, 'token')}"
    )
    if report.spent.lost:
        say(f"         {describe_lost(report.spent.lost)}")
    # A card describes a whole set; without it no file must be taken for one.
    say(f"card     {'none before the set is whole' if report.broken else result.path / CARD}")


SYNTHESIS = Resumable(describe=describe, show=show_result, to_json=build_result_data)


def _show_plan(config: SynthConfig, *, as_json: bool) -> None:
    from collab.synthesis.estimate import estimate

    found: SynthesisEstimate = run_interruptible(estimate, config)
    if as_json:
        emit(to_data(found))
        return
    walked = f"{format_amount(config.screens, 'screen')} on {format_amount(found.walks, 'walk')}"
    say(f"{walked}, {format_amount(found.episodes, 'episode')} of {found.steps:.1f} steps")
    # The oracle asks no model, so there are no calls to show.
    if found.calls:
        say(
            f"calls  {sum(found.calls.values())}: "
            + ", ".join(f"{count} {role}" for role, count in found.calls.items())
        )
    print_table(["level", "rows"], list(found.rows.items()))
    say(f"\n{found.basis}; equal rows are dropped in the end")
