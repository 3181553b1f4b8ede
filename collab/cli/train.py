"""`collab train`, and `collab train-marl` for CollabUIAgents: train a team, epoch by epoch.

`collab verify-resume`: check that a killed and resumed training ends like an undisturbed one.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import emit, print_table, say, to_data
from collab.cli.progress import Resumable, run_interruptible
from collab.cli.text.training import build_result_data, format_below, format_news, show_result
from collab.utils.progress import note
from collab.utils.text import format_amount, split_names

if TYPE_CHECKING:
    from collab.config import Budget
    from collab.library import Library
    from collab.loop.config import TrainingConfig
    from collab.rollout.plan import Placement
    from collab.testing.kill_resume import KillPoint, Proof


Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="NAME",
        help="train: train on the training split and evaluate on new seeds. none: use no split.",
        rich_help_panel=options.PLAY,
    ),
]
OnlyPlan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Print calls, tokens, memory, disk, time and money with ranges; train nothing.",
        rich_help_panel=options.HOW,
    ),
]
Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="NAME|a=X,b=Y|DIR@best",
        help="Policy to start from: agents files of kind local, or of kind openai over a vLLM server here; or an epoch "
        "of a training (DIR@best, DIR@last, DIR@epoch3).",
        rich_help_panel=options.PLAY,
    ),
]
Offline = Annotated[
    list[Path] | None,
    typer.Option(
        "--offline",
        metavar="RUN",
        help="Learn from this recorded run, or folder of runs, in epoch 1 instead of playing; repeatable.",
        rich_help_panel=options.PLAY,
    ),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="DIR",
        help="Learn again into --out from what this training recorded, in the same order and number of threads; play "
        "and measure nothing, and check that lessons and weights are the same, as they are on a processor or GPU of "
        "the same kind with the same torch.",
        rich_help_panel=options.LIMITS,
    ),
]
Fork = Annotated[
    str | None,
    typer.Option(
        "--fork",
        metavar="RUN@epochN",
        help="Begin with the epochs of this training up to N, copied; settings of the method may differ from then on.",
        rich_help_panel=options.LIMITS,
    ),
]
AllowOverlap = Annotated[
    bool,
    typer.Option(
        "--allow-overlap",
        help="Learn from --offline runs even if they hold what is kept for evaluation.",
        rich_help_panel=options.HOW,
    ),
]


_FREE = {"resume", "device", "report_to", "executor", "workers", "concurrency", "budget", "as_json"}
"""Parameters that may stand beside --resume."""

TRAINING = Resumable(below=format_below, news=format_news, show=show_result, to_json=build_result_data)


def train(
    context: typer.Context,
    *,
    algo: options.Algo = options.COLLAB,
    env: options.Environment = "androidworld",
    graph: options.Graph = "team",
    agents: Agents = None,
    preset: options.Preset = None,
    ablation: options.AblationName = None,
    settings: options.TrainingSettings = None,
    tasks: options.Tasks = None,
    instructions: options.Instructions = None,
    offline: Offline = None,
    allow_overlap: AllowOverlap = False,
    split: Split = "train",
    seed: options.Seed = 0,
    backend: options.Backend = None,
    out: options.TrainingOut = None,
    resume: options.Resume = None,
    replay: Replay = None,
    fork: Fork = None,
    plan: OnlyPlan = False,
    calibrations: options.Calibrations = None,
    allow_uncalibrated: options.AllowUncalibrated = False,
    device: options.Device = None,
    report_to: options.ReportTo = None,
    executor: options.Executor = "local",
    workers: options.Workers = None,
    concurrency: options.EngineConcurrency = None,
    budget: options.BudgetText = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a team, epoch by epoch: collect episodes, label them, learn from them, evaluate.

    Every phase is on the disk before the next begins; --resume resumes the phase that was stopped or killed, and may
    move it: --executor, --workers and --concurrency count from there on. train-marl is the same command for the
    algorithm collabuiagents.
    """
    from collab.api import build_check_options, report_left_out
    from collab.config import Budget
    from collab.errors import UsageError
    from collab.rollout.plan import Placement
    from collab.trainers.prepare import check_device, check_reports

    # The algorithm decides which options exist, so it is checked first.
    _check_algorithm(context, algo)
    limit = None if budget is None else Budget.parse(budget)
    reports = None if report_to is None else split_names("--report-to", report_to)
    # A resume takes everything from the directory; options that would contradict it are refused.
    if resume is not None:
        options.refuse_beside_resume(context, _FREE, "the training")
        _check_resumed(context, resume)
        where = executor if options.list_given_options(context, ["executor"]) else None
        placement = Placement(executor=where, workers=workers, concurrency=concurrency)
        resume_training(resume, limit, device=device, report_to=reports, placement=placement, as_json=as_json)
        return
    if replay is not None:
        options.refuse_beside_resume(context, {"replay", "out", "as_json"}, "the training", "--replay repeats")
        _check_resumed(context, replay)
        _replay(replay, options.require_out(out), as_json)
        return
    if allow_overlap and not offline:
        raise UsageError("--allow-overlap: speaks of --offline runs, and there is none; leave it out")
    if plan and fork is not None:
        raise UsageError("--plan: measures whole trainings; leave out --fork")
    # An ablation may fix the graph; a contradicting one is refused rather than overruled.
    _refuse_graph(context, algo, ablation, graph)
    definitions, named = options.open_library(library), split_names("--tasks", tasks)
    config = _configure_training(
        definitions,
        agents,
        algorithm=algo,
        preset=preset,
        ablation=ablation,
        env=env,
        graph=graph,
        tasks=named,
        instructions=instructions,
        split=None if split == "none" else split,
        seed=seed,
        backend=backend,
        executor=executor,
        workers=workers,
        concurrency=concurrency,
        settings=settings or (),
        recorded=offline or (),
        allow_overlap=allow_overlap,
    )
    # Tasks, held-out instances and doubts are shown before anything is paid.
    report_left_out(named, config.run.split, config.run.tasks)
    for one in config.held_out:
        options.print_sample(one.tasks, one.episodes, f"held-out seed {one.seed}")
    options.print_doubts(config.run)
    if config.overlap is not None:
        note(config.overlap)
    # A plan plays for minutes: what would be refused behind it is refused before it.
    check_device(device or options.AUTO)
    check_reports(reports or ())
    # A plan needs no --out and leaves nothing.
    if plan:
        _show_plan(config, definitions, device or options.AUTO, as_json)
    else:
        _begin(
            config,
            options.require_out(out),
            fork=fork,
            budget=limit,
            options=build_check_options(calibrations, allow_uncalibrated),
            device=device or options.AUTO,
            report_to=reports or (),
            as_json=as_json,
        )


def resume_training(
    path: Path,
    budget: Budget | None,
    *,
    device: str | None = None,
    report_to: Sequence[str] | None = None,
    placement: Placement | None = None,
    as_json: bool,
) -> None:
    """Resume a training and print its result.

    Args and errors as of `collab.loop.loop.resume`.

    Raises:
        typer.Exit: it stopped early.
    """
    from collab.loop.loop import resume
    from collab.loop.record import TrainingDir
    from collab.rollout.plan import UNMOVED

    folder = TrainingDir(path)
    more = f"to train on, begin another training with --agents {shlex.quote(f'{path}@last')}"
    where = placement or UNMOVED
    job = functools.partial(resume, path, budget=budget, device=device, report_to=report_to, placement=where, note=note)
    TRAINING.resume(job, folder, more if "summary" in folder.read() else None, as_json)


# ------------------------------------------------------------------------------------------------- what is asked


def _configure_training(definitions: Library, agents: str | None, **choices: Any) -> TrainingConfig:
    from collab.errors import UsageError
    from collab.loop.configure import configure

    if agents is None:
        raise UsageError(
            "--agents is missing: name the policy to begin with (an agents file of kind local, for example)"
        )
    return run_interruptible(configure, definitions, agents=agents, **choices)


def _check_algorithm(context: typer.Context, algo: str) -> None:
    """Raise UsageError for `train-marl` with another algorithm than its own."""
    from collab.errors import UsageError

    if context.info_name == "train-marl" and algo != options.COLLAB:
        raise UsageError(f"--algo {algo}: train-marl trains by {options.COLLAB}; use collab train --algo {algo}")


def _check_resumed(context: typer.Context, path: Path) -> None:
    """Raise UsageError where `train-marl` resumes a training by another algorithm than its own."""
    from collab.errors import UsageError
    from collab.loop.record import TrainingDir

    config = TrainingDir(path).read().get("config")
    algo = config.get("algorithm") if isinstance(config, dict) else None
    if context.info_name == "train-marl" and algo not in (None, options.COLLAB):
        raise UsageError(f"{path}: is a training by {algo}; use {TrainingDir(path).resume}")


def _refuse_graph(context: typer.Context, algo: str, ablation: str | None, graph: str) -> None:
    """Raise UsageError where a graph is given and the ablation plays another."""
    from collab.errors import UsageError
    from collab.loop.interfaces import load_algorithm

    known = load_algorithm(algo).ablations
    own = known[ablation].graph if ablation is not None and ablation in known else None
    if own not in (None, graph) and options.list_given_options(context, ["graph"]):
        raise UsageError(f"--ablation {ablation} plays the graph {own}; leave out --graph {graph}")


# --------------------------------------------------------------------------------------------------- what happens


def _begin(config: TrainingConfig, out: Path, *, as_json: bool, **choices: Any) -> None:
    from collab.loop.loop import start
    from collab.loop.record import TrainingDir

    method, agents = config.method, "+".join(dict.fromkeys(config.run.agent_names.values()))
    what = f"{format_amount(method.epochs, 'epoch')} of {config.size} of {config.run.environment_name}"
    opening = f"training {agents} by {config.algorithm}, {config.called}: {what}, in {out}"
    TRAINING.begin(functools.partial(start, config, out, note=note, **choices), TrainingDir(out), opening, as_json)


def _replay(path: Path, out: Path, as_json: bool) -> None:
    from collab.loop.loop import TrainingResult, resume
    from collab.loop.record import TrainingDir
    from collab.loop.recorded import begin_replay

    async def learn(**watched: Any) -> TrainingResult:
        begin_replay(path, out)
        return await resume(out, note=note, **watched)

    TRAINING.begin(learn, TrainingDir(out), f"learning again what {path} learned, in {out}", as_json)


def _show_plan(config: TrainingConfig, definitions: Library, device: str, as_json: bool) -> None:
    from collab.loop.estimate import format_plan, plan

    found = run_interruptible(plan, config, definitions, device)
    if as_json:
        emit(to_data(found))
    else:
        say(format_plan(found))


_SHOWN = 16
"""Characters of a hash in a table."""


def verify_resume(
    *,
    algo: Annotated[
        str, typer.Option("--algo", metavar="NAME", help="Algorithm to train with; see collab train --help.")
    ] = options.COLLAB,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Train as few epochs as possible, in one thread with two kills: a minute."),
    ] = False,
    kills: Annotated[
        int | None,
        typer.Option(
            "--kills",
            metavar="N",
            min=1,
            help="Number of kills, at most one per phase of an epoch; default: 7.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="S", help="Seed of the moments of the kills; default: a new one each time."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory to make and keep; default: a temporary one."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="a.b=c", help="Override one setting of the training, e.g. reference=previous; repeatable."
        ),
    ] = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a tiny team twice, once killed at drawn points and resumed, and compare the results.

    Kills cover every part of rollout, labelling and learning before any other part. A process that makes fewer calls
    than the first one dies at the first call behind that part; both places are printed. Both trainings have two threads
    (with --quick one). A resuming process starts with one and must find the right number.

    Exit code 0 when episodes, labels, examples and weights are the same bit for bit, 1 when they are not, or when no
    process was killed at one of the points, or behind it.
    """
    import secrets
    import shutil
    import tempfile

    from collab.errors import UsageError
    from collab.testing.kill_resume import verify
    from collab.trainers.prepare import check_installed

    # Missing packages are reported before a directory is made.
    check_installed()
    folder = Path(tempfile.mkdtemp(prefix="collab-verify-")) if out is None else out
    # Another seed each time, so that many runs try many places; it is printed, so that each can be repeated.
    many, drawn = kills or (2 if quick else 7), secrets.randbelow(1_000_000) if seed is None else seed
    note(f"points are drawn with --seed {drawn}")
    epochs, more = 1 if quick else 2, tuple(settings or ())
    # Several threads are the harder case: sums depend on their number, and a resume has to keep it.
    threads = 1 if quick else 2
    try:
        proof = verify(
            folder,
            kills=many,
            seed=drawn,
            epochs=epochs,
            threads=threads,
            algorithm=algo,
            settings=more,
            note=note,
        )
    except (UsageError, KeyboardInterrupt):
        # A refusal or a Ctrl-C leaves nothing to look at.
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    except BaseException:
        # Other failures need an explanation, so the trainings stay.
        note(f"the trainings until then are in {folder}")
        raise
    if as_json:
        emit({"same": proof.same, "first_difference": to_data(proof.first_difference), "seed": drawn, **to_data(proof)})
    else:
        _show(proof)
    # Kept where they differ: the directory is the evidence.
    if not proof.same:
        note(f"both trainings are in {folder}")
        raise typer.Exit(1)
    if out is None:
        shutil.rmtree(folder)


def _show(proof: Proof) -> None:
    # Drawn points and real ones differ where a later life makes fewer calls; both are shown.
    killed = [(number, one.epoch, one.part, one.function, one.call) for number, one in enumerate(proof.points, start=1)]
    print_table(["kill", "epoch", "part", "in", "call"], killed)
    for number, one in proof.elsewhere.items():
        say(f"kill {number} was planned at {_format_kill_point(one)}, which that process did not come to")
    for one in proof.missed:
        say(f"no process was killed at {_format_kill_point(one)}, or behind it")
    say()
    parts = [
        (one.epoch, one.part, one.undisturbed[:_SHOWN], one.killed[:_SHOWN], "yes" if one.same else "NO")
        for one in proof.parts
    ]
    print_table(["epoch", "part", "undisturbed", "killed", "same"], parts)
    say()
    # The first difference names the phase that is not deterministic; later ones follow from it.
    first = proof.first_difference
    if first is not None:
        where = "the run hash" if first.epoch is None else f"epoch {first.epoch}, {first.part}"
        say(f"not the same: they first differ in {where}")
    elif not proof.same:
        # Equal without a kill proves nothing.
        say("not proven: all parts are alike, but no process was killed where one was to be")
    else:
        say(f"the same: killed {len(proof.points)} times, every part and all weights alike")


def _format_kill_point(point: KillPoint) -> str:
    """Format a kill point in words."""
    return f"call {point.call} of {point.function} in epoch {point.epoch}, {point.part}"
