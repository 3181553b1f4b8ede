"""`collab critic` and `collab verifier`: measure how far critics and verifiers can be trusted."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import describe_lost, emit, print_table, say, to_data
from collab.cli.progress import Resumable, run_interruptible, work
from collab.utils.progress import note
from collab.utils.text import format_amount, format_count, shorten_number, split_names

if TYPE_CHECKING:
    from collab.config import Budget
    from collab.rewards.calibration.config import CalibrationConfig
    from collab.rewards.calibration.metrics import Calibration
    from collab.rewards.calibration.record import CalibrationRecord
    from collab.rewards.calibration.run import CalibrationProgress, CalibrationResult

app = typer.Typer(help="Critics: calibrate and show them.", no_args_is_help=True)

_WHAT, _HOW = "What is asked", "How it is asked"

Environment = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="NAME", help="Environment of the steps; default: androidworld.", rich_help_panel=_WHAT
    ),
]
CriticName = Annotated[
    str | None,
    typer.Option(
        "--critic", metavar="NAME", help="Agents file of the critic; see collab agents list.", rich_help_panel=_WHAT
    ),
]
Cases = Annotated[
    int | None,
    typer.Option(
        "--cases", metavar="N", min=1, help="Number of steps with known scores; default: 100.", rich_help_panel=_WHAT
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="S", help="Seed of all random draws; default: 0.", rich_help_panel=_WHAT)
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAMES",
        help="Tasks of the training split with a known solution, comma-separated or repeated; tag:WORD for all with a "
        "tag. Default: those of the environment's file.",
        rich_help_panel=_WHAT,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=c",
        help="Override one setting of the calibration or of the critic, e.g. permutations=5 or "
        "critic.sampling.temperature=0. May be repeated.",
        rich_help_panel=_WHAT,
    ),
]
BudgetText = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="usd=…,tokens=…,minutes=…",
        help="Stop cleanly, resumable, when one of these is used up.",
        rich_help_panel=_HOW,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Directory to make; default: calibrations/ and the name.", rich_help_panel=_HOW
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Resume a stopped calibration; takes only --budget and --json beside it.",
        rich_help_panel=_HOW,
    ),
]
Plan = Annotated[
    bool,
    typer.Option("--plan", help="Print the expected steps, calls and tokens, and ask no model.", rich_help_panel=_HOW),
]


@app.command("calibrate")
def calibrate(
    context: typer.Context,
    *,
    env: Environment = None,
    critic: CriticName = None,
    cases: Cases = None,
    tasks: Tasks = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = None,
    plan: Plan = False,
    budget: BudgetText = None,
    settings: Settings = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Measure a critic on steps with known scores, and print whether it may be trained on.

    Steps come from solutions of the training split: in every state the right action and wrong ones, each tried on a
    copy. Numbers, versions and hashes go to calibration.json; the reliability diagram lies beside it.
    """
    from collab.config import Budget

    limits = Budget.parse(budget) if budget is not None else None
    # None stands for "not given": the preset or the critic's own value is taken.
    chosen: dict[str, Any] = dict(env=env, critic=critic, cases=cases, seed=seed, settings=settings)
    chosen["tasks"] = split_names("--tasks", tasks) or None
    if resume is not None:
        options.refuse_beside_resume(context, {"resume", "budget", "as_json"}, "the calibration")
        resume_calibration(resume, limits, as_json=as_json)
        return
    config = _configure_calibration(library, {**chosen, "budget": limits})
    if plan:
        _show_plan(config, as_json=as_json)
    else:
        _begin(config, out, as_json=as_json)


@app.command("rows")
def rows(
    *,
    env: Environment = None,
    critic: CriticName = None,
    cases: Cases = None,
    tasks: Tasks = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory to make.", rich_help_panel=_HOW),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help='Write answers with scores alone, {"ada": 1.0}; default: the form that the built-in prompts ask for.',
            rich_help_panel=_WHAT,
        ),
    ] = False,
    settings: Settings = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Write a critic's questions about known steps with the right answers, to fine-tune a judge of your own.

    No model is asked. Calibrate the judge with another --seed than the one of its rows.
    """
    from collections import Counter

    from collab.errors import UsageError
    from collab.rewards.calibration.rows import FILE, write_rows

    if out is None:
        raise UsageError("--out is missing: name the directory that is to be made")
    chosen: dict[str, Any] = dict(env=env, critic=critic, cases=cases, seed=seed, settings=settings)
    config = _configure_calibration(library, {**chosen, "tasks": split_names("--tasks", tasks) or None})
    made = run_interruptible(write_rows, config, out, plain=plain)
    if as_json:
        emit({"file": str(out / FILE), "rows": len(made), "tasks": Counter(row.provenance.task for row in made)})
        return
    say(f"{format_amount(len(made), 'row')} of {config.environment_name}, written to {out / FILE}")
    say(f"train on them: collab finetune --stage sft --base DIR --data {shlex.quote(str(out))} --out NEW")


def _configure_calibration(library: Path | None, chosen: dict[str, Any]) -> CalibrationConfig:
    from collab.errors import UsageError
    from collab.rewards.calibration.config import CalibrationRequest, configure

    asked = {name: value for name, value in chosen.items() if value is not None}
    if "critic" not in asked:
        raise UsageError(
            "--critic is missing: name an agents file that judges, e.g. critic-llm; see collab agents list"
        )
    request = CalibrationRequest(**{"env": "androidworld", **asked})
    return run_interruptible(configure, options.open_library(library), request)


def _begin(config: CalibrationConfig, out: Path | None, *, as_json: bool) -> None:
    from collab.rewards.calibration.record import FOLDER, CalibrationDir
    from collab.rewards.calibration.run import start

    folder = CalibrationDir(out or FOLDER / config.critic_name)
    opening = (
        f"{config.critic_name} judges {format_amount(config.cases, 'step')} of {config.environment_name}, "
        f"tasks drawn by seed {config.seed}, recorded in {folder.path}"
    )
    CALIBRATION.begin(functools.partial(start, config, folder.path), folder, opening, as_json)


def resume_calibration(path: Path, budget: Budget | None, *, as_json: bool) -> None:
    """Resume a calibration and print its result; a finished one is only printed.

    Raises:
        typer.Exit: it stopped early.
        CollabError: as `collab.rewards.calibration.run.resume`.
    """
    from collab.rewards.calibration.record import CalibrationDir
    from collab.rewards.calibration.run import resume

    folder = CalibrationDir(path)
    record = folder.read_record()
    more = (
        f"to ask about more steps, begin another: collab critic calibrate --critic {record.critic} --cases N --out DIR"
    )
    job = functools.partial(resume, path, budget=budget)
    CALIBRATION.resume(job, folder, None if record.numbers is None else more, as_json)


def describe(progress: CalibrationProgress) -> str:
    """Format one line: judgements, calls, tokens, cost."""
    # Known steps are built before anything is counted.
    if not progress.planned:
        return "making known steps"
    made = progress.labelling
    parts = [f"{progress.done}/{format_amount(progress.planned, 'judgement')}"]
    if made.failed:
        parts.append(f"{made.failed} failed")
    if made.missing:
        parts.append(f"{sum(made.missing.values())} of {made.cells} scores missing")
    if made.spent.calls:
        parts.append(f"{format_count(made.spent.calls, 'call')}, {format_count(made.tokens, 'token')}")
    if made.spent.cost_usd:
        parts.append(f"{made.spent.cost_usd:.2f} USD")
    parts += progress.pace.describe_left(progress.done, progress.planned)
    return " | ".join(parts)


def build_result_data(result: CalibrationResult) -> dict[str, Any]:
    """Return a finished or stopped calibration as JSON data."""
    from collab.rewards.calibration.record import CalibrationDir

    return {
        "out": str(result.path),
        "stopped": result.stopped,
        "resume": CalibrationDir(result.path).resume if result.stopped else None,
        "judgements": {"planned": result.progress.planned, "done": result.progress.done},
        "spent": to_data(result.progress.labelling.spent),
        "calibration": to_data(result.record),
    }


def show_result(result: CalibrationResult) -> None:
    """Print a critic's numbers; for a calibration that stopped early only the cost of unanswered calls."""
    if result.record.numbers is not None:
        _show(result.path, result.record, result.record.numbers)
    elif result.progress.labelling.spent.lost:
        say(describe_lost(result.progress.labelling.spent.lost))


CALIBRATION = Resumable(describe=describe, show=show_result, to_json=build_result_data)


def _show(path: Path, record: CalibrationRecord, numbers: Calibration) -> None:
    from collab.rewards.calibration.cases import WANTED
    from collab.rewards.calibration.record import FILE, PICTURE

    counted = f"{format_amount(numbers.cases, 'step')}, {format_amount(numbers.cells, 'action')}"
    say(f"{record.critic} ({record.label}) on {record.environment}: {counted}\n")
    # Each number with its meaning, as few readers know them all.
    print_table(["number", "value", "what it is"], _build_rows(numbers))
    means = ", ".join(f"{name} {numbers.mean_scores[name]:.2f}" for name in WANTED if name in numbers.mean_scores)
    say(f"\nmean scores  {means or 'none'}")
    missing = ", ".join(f"{count} {cause}" for cause, count in numbers.missing.items())
    # Missing scores stand beside the numbers, which cover the others alone.
    say(f"missing      {sum(numbers.missing.values())} of {numbers.cells}" + (f": {missing}" if missing else ""))
    if record.spent is not None and record.spent.calls:
        spent = record.spent
        tokens = shorten_number(spent.tokens)
        say(
            f"spent        {format_amount(spent.calls, 'call')}, {tokens} tokens"
            + (f", {spent.cost_usd:.4f} USD" * (spent.cost_usd > 0))
        )
    if record.spent is not None and record.spent.lost:
        say(f"             {describe_lost(record.spent.lost)}")
    say(f"written      {path / FILE}, {path / PICTURE}")


def _build_rows(numbers: Calibration) -> list[tuple[str, str | None, str]]:
    def format_score(value: float | None) -> str | None:
        return None if value is None else f"{value:.3f}"

    again = numbers.retest
    moved = "" if again is None else f"; scores move by {again.difference:.3f}"
    return [
        ("accuracy", format_score(numbers.accuracy), "rewards (score above 0.5) that are right"),
        ("AUC", format_score(numbers.auc), "chance that a good action is scored above another; 0.5 is a coin"),
        ("calibration error", format_score(numbers.ece), "how far scores lie from the share of good actions"),
        ("test-retest", format_score(again.same if again else None), f"same reward when asked again{moved}"),
        ("position bias", format_score(numbers.position_bias), "what the best place in the list adds over the worst"),
        ("length bias", format_score(numbers.length_bias), "what a longer reason adds that says nothing more"),
    ]


def _show_plan(config: CalibrationConfig, *, as_json: bool) -> None:
    from collab.rewards.calibration.run import estimate

    # A plan opens environments and asks no model.
    found = run_interruptible(estimate, config)
    if as_json:
        emit(to_data(found))
        return
    worth = ", ".join(f"{count} {name}" for name, count in found.worth.items())
    judged = f"judged {format_amount(found.passes, 'time')}"
    say(f"{format_amount(found.cases, 'step')} of {config.environment_name} with {worth} actions, {judged}")
    if config.critic.flip:
        say(f"flipped {config.critic.flip:.3g} of the rewards are inverted on purpose")
    # What is not known is not shown as 0.
    if found.calls is None or found.prompt_tokens is None:
        say(f"calls  not known: {config.critic_name} does not show its questions")
    elif found.calls:
        said = f", at most {shorten_number(found.completion_tokens)} of replies" if found.completion_tokens else ""
        say(f"calls  {found.calls}, {shorten_number(found.prompt_tokens)} prompt tokens{said}")
    elif not found.unfit:
        say("calls  none: no model is asked")
    if found.calls != 0:
        say("time   not known before a model answers; while they are made, the time left is shown")
    if found.unfit:
        unfit = format_amount(found.unfit, "judgement")
        say(f"unfit  {unfit} would be missing: nothing of the step fits into the critic's context_tokens")
    for doubt in found.doubts:
        say(f"note   {doubt}")


# -------------------------------------------------------------------------------------------------- verifiers

verifier_app = typer.Typer(
    help="Verifiers: whether episodes succeeded, and how often that is right.", no_args_is_help=True
)

_JUDGED, _SO = "What is judged", "How it is judged"

Runs = Annotated[
    list[str] | None,
    typer.Option(
        "--runs",
        metavar="RUN",
        help="Recorded runs of one environment, or folders of them; comma-separated or repeated.",
        rich_help_panel=_JUDGED,
    ),
]
VerifierName = Annotated[
    str | None,
    typer.Option(
        "--verifier",
        metavar="NAME",
        help="An agents file that verifies: see collab agents list.",
        rich_help_panel=_JUDGED,
    ),
]
VerifierSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=c",
        help="Override one setting of the verifier, e.g. verifier.options.screens=2 or verifier.history=5. May be "
        "repeated.",
        rich_help_panel=_JUDGED,
    ),
]


@verifier_app.command("agree")
def agree(
    *,
    runs: Runs = None,
    verifier: VerifierName = None,
    against: Annotated[
        str,
        typer.Option("--against", metavar="NAME", help="The verifier that counts as right.", rich_help_panel=_JUDGED),
    ] = "rules",
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks", metavar="NAMES", help="Only episodes of these tasks, comma-separated.", rich_help_panel=_JUDGED
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            metavar="DIR",
            help="Only episodes of the tasks that collab verifier rows held out there.",
            rich_help_panel=_JUDGED,
        ),
    ] = None,
    settings: VerifierSettings = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Decides the seeds of its calls.", rich_help_panel=_SO)
    ] = 0,
    verdicts: Annotated[
        str | None,
        typer.Option(
            "--verdicts",
            metavar="NAME",
            help="Name of its verdicts beside the runs; default: the verifier's.",
            rich_help_panel=_SO,
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="K", min=1, help="Episodes judged at once.", rich_help_panel=_SO)
    ] = 4,
    budget: options.BudgetText = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory to make for the numbers; default: calibrations/ and the name.",
            rich_help_panel=_SO,
        ),
    ] = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Let a verifier judge recorded episodes, and print how often it agrees with the environment's rules.

    Every verdict is stored beside its run at once; the same command resumes after a stop or a kill. The numbers are
    written to agreement.json, which a training that learns from this verifier looks up.
    """
    from collab.cli.text.verifier import build_agreement_data, show_agreement
    from collab.config import Budget
    from collab.rewards.calibration.record import FOLDER, free_directory
    from collab.rewards.verifiers.measure import AgreementRequest, AgreementResult, measure_agreement
    from collab.rewards.verifiers.registry import find_verifier
    from collab.rewards.verifiers.rows import read_held_out

    definitions = options.open_library(library)
    # Read before any verifier is built: a wrong path must not wait for a model.
    kept = [] if held_out is None else read_held_out(held_out)
    request = AgreementRequest(
        runs=_find_runs(runs),
        verifier=find_verifier(definitions, _require_verifier(verifier), settings or ()),
        against=find_verifier(definitions, against),
        tasks=split_names("--tasks", tasks),
        held_out=kept,
        name=verdicts,
        seed=seed,
        budget=Budget() if budget is None else Budget.parse(budget),
        concurrency=concurrency,
    )
    folder, again = out or free_directory(FOLDER / request.names[0]), "the same command: verdicts are kept"
    result: AgreementResult = work(
        lambda watch, stop: measure_agreement(request, folder, watch=watch, stop=stop),
        folder,
        opening=f"{request.verifier.name} judges the episodes of {format_amount(len(request.runs), 'run')}",
        resume=again,
    )
    if as_json:
        emit(build_agreement_data(result))
    elif result.record is not None:
        show_agreement(result, result.record, result.record.numbers)
    elif result.progress.spent.lost:
        say(describe_lost(result.progress.spent.lost))
    # Stopped is exit code 1: scripts must not take half the verdicts for all.
    if result.stopped is not None:
        note(f"stopped: {result.stopped}; resume with {again}")
        raise typer.Exit(1)


@verifier_app.command("rows")
def verifier_rows(
    *,
    runs: Runs = None,
    verifier: VerifierName = None,
    hold_out: Annotated[
        float,
        typer.Option(
            "--hold-out",
            metavar="SHARE",
            min=0,
            max=1,
            help="Share of the tasks that get no row, to measure the trained verifier on.",
            rich_help_panel=_JUDGED,
        ),
    ] = 0.2,
    settings: VerifierSettings = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Decides which tasks are held out.", rich_help_panel=_JUDGED)
    ] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory to make.", rich_help_panel=_SO)
    ] = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Write a verifier's questions about recorded episodes with their outcomes, to train a verifier of your own.

    No model is asked. The episodes of some tasks are held out whole.
    """
    from collab.errors import UsageError
    from collab.rewards.verifiers.registry import find_verifier
    from collab.rewards.verifiers.rows import FILE, RowsRequest, write_rows

    if out is None:
        raise UsageError("--out is missing: name the directory that is to be made")
    chosen = find_verifier(options.open_library(library), _require_verifier(verifier), settings or ())
    request = RowsRequest(runs=_find_runs(runs), verifier=chosen, held_out=hold_out, seed=seed)
    made = run_interruptible(write_rows, request, out)
    if as_json:
        emit({"file": str(out / FILE), **to_data(made)})
        return
    # The next two commands are printed ready to paste: the second needs what the first makes.
    counted = f"{format_amount(made.rows, 'row')} of {', '.join(made.environments)}, {made.successes} of successes"
    say(f"{counted}, written to {out / FILE}")
    if made.unfit:
        say(f"left out {format_amount(made.unfit, 'episode')} that do not fit into context_tokens")
    say(f"held out {format_amount(len(made.held_out), 'task')}: {', '.join(made.held_out) or 'none'}")
    say(f"train on them: collab finetune --stage sft --base DIR --data {shlex.quote(str(out))} --out NEW")
    if made.held_out:
        asked = f"--verifier {shlex.quote(chosen.name)} --held-out {shlex.quote(str(out))}"
        say(f"measure it: collab verifier agree --runs RUN {asked} --set verifier.options.model.options.path=NEW/final")


def _require_verifier(name: str | None) -> str:
    from collab.errors import UsageError

    if name is None:
        raise UsageError("--verifier is missing: name an agents file that verifies; see collab agents list")
    return name


def _find_runs(named: list[str] | None) -> list[Path]:
    """Return the runs that a user names; a folder of runs stands for all of them.

    Raises:
        UsageError: none is named.
    """
    from collab.errors import UsageError
    from collab.evaluation.report import find_recorded

    if not named:
        raise UsageError("--runs is missing: name recorded runs; see collab runs list")
    paths = map(Path, options.split_folders("--runs", named))
    return list(dict.fromkeys(run for path in paths for run in find_recorded(path).runs or (path,)))
