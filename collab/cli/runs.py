"""`collab runs`: list, show, resume, check and export recorded runs.

An episode is shown step by step, or with all replies before one of its steps.

`collab runs overlap`: whether recorded runs may be trained on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, emit, print_table, say, to_data
from collab.cli.progress import print_finished, resume_command, run_interruptible, work
from collab.cli.text.episode import show_episode, show_step
from collab.cli.text.report import (
    build_replies_data,
    build_sampling_data,
    build_seeds_data,
    compare_runs,
    print_headline,
    report_data,
    show_cause,
    show_cost,
    show_tables,
)
from collab.utils.progress import note
from collab.utils.text import format_amount, split_names

if TYPE_CHECKING:
    from collab.config import Budget
    from collab.data.splits import HeldOutInstances
    from collab.library import Library
    from collab.rollout.plan import Placement
    from collab.store.reader import RunReader


def overlap(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs or folders of them, all of one environment.")
    ],
    *,
    kept: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="SPLITS", help="Evaluation splits to compare with; default: all."),
    ] = None,
    allow_overlap: Annotated[bool, typer.Option("--allow-overlap", help="Print any overlap, but exit with 0.")] = False,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Check that these runs hold nothing that is kept for evaluation; exit with 2 when they do.

    It compares tasks, instance seeds, apps, and every word on screens and in goals and replies.
    """
    from collab.data.splits import list_instances, refuse_overlap
    from collab.evaluation.report import find_recorded

    # A folder of runs stands for all of them.
    runs = [run for named in runs for run in find_recorded(named).runs or (named,)]
    held = _collect_held_out(options.open_library(library), runs, split_names("--with", kept))
    episodes = (episode for run in runs for episode in list_instances(run))
    found = refuse_overlap(episodes, held, allow_overlap=allow_overlap)
    if as_json:
        emit(to_data(found))
    elif found.offenders:
        note(str(found))
    else:
        say(f"{format_amount(found.checked, 'episode')}, none overlaps with {_join_names(one.name for one in held)}")


def _collect_held_out(definitions: Library, runs: list[Path], wanted: list[str]) -> list[HeldOutInstances]:
    """Return the evaluation split of the runs' environment, from its present file.

    Raises:
        UsageError: the runs are of several environments, or a split is not kept for evaluation.
    """
    from collab.config import EnvironmentDefinition
    from collab.data.splits import collect_held_out, find_split, list_kept_by
    from collab.errors import UsageError
    from collab.rollout.plan import load_splits
    from collab.rollout.run import read_recorded_config

    # Recorded runs against the present splits: have these runs met what is kept for evaluation now?
    configs = [read_recorded_config(run) for run in runs]
    names = list(dict.fromkeys(config.environment_name for config in configs))
    # Splits belong to an environment; a mixture would be checked against the wrong ones.
    if len(names) > 1:
        command = f"collab runs overlap {shlex.quote(str(runs[0]))}"
        raise UsageError(f"the runs are of {_join_names(names)}; check those of one environment at a time: {command}")
    definition = definitions.load("envs", names[0], EnvironmentDefinition)
    # The recorded backend, if it still exists: another one may have other tasks.
    backend = configs[0].environment.backend
    if backend in definition.backends:
        definition = definition.model_copy(update={"backend": backend})
    splits = run_interruptible(load_splits, names[0], definition)
    # Without --with, everything that is kept for evaluation.
    if not wanted:
        return list_kept_by(splits.values())
    chosen = [find_split(splits, name, names[0]) for name in wanted]
    # Training instances are met by design, so checking them would always find an overlap.
    if any(split.is_training for split in chosen):
        raise UsageError("--with train: nothing of that split is kept; name new-seeds, unseen-tasks or unseen-app")
    return [collect_held_out(split) for split in chosen]


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names)


app = typer.Typer(help="Recorded runs.", no_args_is_help=True)

app.command("overlap")(overlap)
app.command("table")(compare_runs)

RUNS = Path("runs")
"""Where runs are made unless another place is named."""

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
Recorded = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run, or what eval --seeds, train or transfer made with --out.")
]


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder to search for runs, at any depth.")] = RUNS,
    *,
    as_json: options.Json = False,
) -> None:
    """List recorded runs, trainings and transfers, oldest first."""
    from collab.cli.resumable_runs import list_rows_beneath
    from collab.errors import RunFormatError, UsageError
    from collab.evaluation.report import find_runs

    # The default folder may be missing on a fresh checkout, which is no mistake.
    if not folder.is_dir() and folder != RUNS:
        raise UsageError(f"{folder}: no such folder; runs are in {RUNS}/ unless --out said otherwise: collab runs list")
    rows = list(list_rows_beneath(folder))
    for path in find_runs(folder):
        # One unreadable run must not hide the others.
        try:
            with open_run(path) as reader:
                counted = _count_episodes(path, reader)
                rows.append(_build_summary(path, reader, counted))
                if counted.problem is not None:
                    note(counted.problem)
        except RunFormatError as error:
            note(f"skipped: {error}")
    # By time of creation, as names have no order.
    rows.sort(key=lambda row: str(row["created"]))
    if as_json:
        emit(rows)
        return
    if not rows:
        say(f"no runs in {folder}; make one with: collab rollout")
        return
    print_table(
        ["run", "command", "environment", "graph", "agents", "episodes", "solved", "no action", "status", "note"],
        [
            (
                row["run"],
                " ".join(filter(None, (row["command"], row["algorithm"]))),
                row["environment"],
                row["graph"],
                row["agents"],
                _format_done(row),
                row["succeeded"],
                row["replies"] and f"{row['replies']['without_action']}/{row['replies']['total']}",
                row["status"],
                row["note"],
            )
            for row in rows
        ],
    )


def _format_done(row: Mapping[str, Any]) -> str:
    """Format the finished share of some work, with its unit where that is not episodes."""
    done = str(row["done"]) if row["planned"] is None else f"{row['done']}/{row['planned']}"
    if row["unit"] == "episodes":
        return done
    last = row["done"] if row["planned"] is None else row["planned"]
    return f"{done} {row['unit'].removesuffix('s') if last == 1 else row['unit']}"


@app.command("show")
def show_run(
    run: Recorded,
    *,
    episode: Annotated[
        str | None, typer.Option("--episode", metavar="ID", help="Show one episode step by step.")
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", metavar="T", min=0, help="With --episode: show all replies before step T, and the vote."
        ),
    ] = None,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="Show calls, tokens, times and USD per round, layer, agent and model, and how often each agent won "
            "the vote.",
        ),
    ] = False,
    failures: Annotated[
        bool,
        typer.Option(
            "--failures", help="Look at why episodes failed, which plays them again; it is shown from then on."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show a run's results and episodes, its cost, one episode, or the agents' replies at one step.

    Several seeds are shown with their combined results, a training with its epochs, a transfer with its comparison.
    """
    from collab.cli.resumable_runs import find_episode, show_recorded
    from collab.cli.text.failures import look_at_failures
    from collab.errors import UsageError
    from collab.evaluation.report import find_recorded, refuse_several

    # Contradicting options are refused before the run is opened.
    if (cost or failures) and episode is not None:
        option = "--cost" if cost else "--failures"
        raise UsageError(f"{option} shows the whole run; leave out --episode or {option}")
    if step is not None and episode is None:
        raise UsageError("--step needs --episode: of which episode?")
    found = find_recorded(run)
    # Costs are counted per run: of several, each has its own table.
    if cost:
        refuse_several(found, "collab runs show {} --cost")
    if failures:
        refuse_several(found, "collab runs show {} --failures")
        look_at_failures(run)
    # What is no run, e.g. a training, is shown by its own kind.
    if found.kind != "run" and episode is None:
        show_recorded(found, as_json=as_json)
        return
    # An episode may lie in a part of a training; it is found there by its name.
    reader = open_run(run if found.kind == "run" or episode is None else find_episode(found, episode))
    if cost:
        show_cost(run, reader, as_json=as_json)
        return
    if episode is None:
        _show_whole(run, reader, as_json=as_json)
        return
    trajectory = reader.read_trajectory(episode)
    if step is None:
        show_episode(trajectory, reader, as_json=as_json)
    else:
        show_step(trajectory, reader.step(episode, step), as_json=as_json)


@app.command("resume")
def resume_run(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A run, or what eval --seeds, train, transfer, finetune, synth or calibrate made with --out.",
        ),
    ],
    *,
    executor: Annotated[
        options.Where | None,
        typer.Option(
            "--executor",
            help="Place where episodes are played from here on; default: where they were.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Number of Ray workers; default: as before."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="K", min=1, help="Number of episodes at once; default: as before."),
    ] = None,
    budget: options.BudgetText = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Resume stopped or killed work: a run, several seeds, a training, transfer, fine-tuning, synth or calibration.

    The budget starts anew. Broken episodes are played again. For finished work, only the result is printed. To resume
    a run inside a training, resume the training. Runs, several seeds and trainings may be moved with --executor,
    --workers and --concurrency; where a training is moved to, it stays.
    """
    from collab.cli.rollout import finish
    from collab.config import Budget
    from collab.loop.record import refuse_part
    from collab.rollout.plan import Placement
    from collab.rollout.run import read_finished, resume

    granted = Budget.parse(budget) if budget is not None else None
    # A part of a training is resumed by the training: alone it would break the epoch.
    refuse_part(run)
    # Everything but a run has a command of its own.
    placement = Placement(executor=executor, workers=workers, concurrency=concurrency)
    if _resume_other(run, granted, placement, as_json=as_json):
        return
    command, result = open_run(run).manifest.command, read_finished(run)
    if result is None:
        # A run without a result has something left to play.
        result = work(
            lambda watch, stop: resume(run, placement=placement, budget=granted, watch=watch, stop=stop),
            run,
        )
    else:
        print_finished(run, f"to play more, begin another run: collab {command} --episodes N --out DIR")
    finish(result, as_json=as_json, details=command == "eval")


@app.command("export")
def export_run(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run, what eval --seeds, train or transfer made with --out, or data of synth."
        ),
    ],
    *,
    parquet: Annotated[
        Path, typer.Option("--parquet", metavar="DIR", help="Folder to make; existing files are never overwritten.")
    ],
    as_json: options.Json = False,
) -> None:
    """Write runs as one folder of Parquet tables, which datasets.load_dataset reads.

    Episodes, steps and cells with their prompts; rewards and pairs where there are some; preferences and demonstrations
    also as the messages that TRL's trainers read.
    """
    from collab.evaluation.report import find_recorded
    from collab.preferences.export import export_rows, export_runs, is_data

    found = find_recorded(run)
    # Rows of a synthesis are exported like pairs: both are what trainers read.
    done = export_rows(run, parquet) if is_data(run) else export_runs(found.runs or (run,), parquet)
    mark = REHEARSAL if done.privileged else None
    if as_json:
        told = {"rows": done.rows, "left_out": done.left_out, "note": mark}
        emit({"run": str(run), "runs": to_data(found.runs), "files": to_data(done.files), **told})
        return
    for file in done.files:
        say(f"{file}")
    # What is left out is named with its cause, or the files would look complete.
    for why, count in done.left_out.items():
        note(f"{format_amount(count, 'pair')} not among preferences: {why}")
    if mark is not None:
        note(mark)


def open_run(path: Path) -> RunReader:
    """Read a run directory; RunFormatError when it is none."""
    from collab.store.run import RunStore

    return RunStore.open(path).open_reader()


# --------------------------------------------------------------------------------------------------- resuming


def _resume_other(path: Path, budget: Budget | None, placement: Placement, *, as_json: bool) -> bool:
    """Resume anything but a run as its own command does; False where it is one.

    Args:
        placement: where episodes are played from here on.

    Raises:
        UsageError: it plays nothing that could be moved, a budget of money or tokens is given to fine-tuning, or runs
            lie there that are not one evaluation.
        typer.Exit: it stopped early.
    """
    from collab.cli import critic, finetune, rollout, synth, train, transfer
    from collab.errors import UsageError
    from collab.evaluation.report import find_recorded
    from collab.rewards.calibration.record import FILE as CALIBRATION
    from collab.rollout.plan import UNMOVED
    from collab.synthesis.journal import FILE as SYNTHESIS

    if placement != UNMOVED and find_recorded(path).kind not in ("run", "series", "training"):
        raise UsageError(
            f"--executor, --workers, --concurrency: {path} is neither a run, an evaluation nor a training; leave them "
            "out to resume it as it was begun"
        )
    # By its head file: the user need not know which command made it.
    if (path / SYNTHESIS).is_file():
        synth.resume_synthesis(path, budget, as_json=as_json)
        return True
    if (path / CALIBRATION).is_file():
        critic.resume_calibration(path, budget, as_json=as_json)
        return True
    # Everything else has a kind of its own; a run returns False and is resumed by the caller.
    match find_recorded(path).kind:
        case "training":
            train.resume_training(path, budget, placement=placement, as_json=as_json)
        case "transfer":
            transfer.resume_transfer(path, budget, as_json=as_json)
        case "finetuning":
            finetune.resume_finetuning(path, max_minutes=_require_minutes(path, budget), as_json=as_json)
        case "series":
            rollout.resume_series(path, budget, placement, as_json=as_json)
        case "runs":
            # Which of several runs is meant, only the user knows.
            where = shlex.quote(str(path))
            raise UsageError(f"{path}: a folder of runs; see which are stopped with: collab runs list {where}")
        case "run":
            return False
    return True


def _require_minutes(path: Path, budget: Budget | None) -> float | None:
    from collab.errors import UsageError

    if budget is not None and (budget.usd is not None or budget.tokens is not None):
        raise UsageError(f"--budget: {path} is a fine-tuning run, which costs neither money nor tokens; limit minutes")
    return None if budget is None else budget.minutes


# ---------------------------------------------------------------------------------------------------- what counts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """The episodes of a run that count."""

    steps: int | None = None
    """Step budget of a training's rollout; None for other runs, which count all planned episodes."""
    names: frozenset[str] | None = None
    """Episodes of such a rollout; None while its steps are not complete."""
    is_open: bool = False
    """Whether all that are over count, and no other: most planned ones are never begun."""
    is_over: bool = False
    """Whether the training of an open rollout is finished, so that nothing more is begun."""
    problem: str | None = None
    """Why the episodes are unknown, so that all count; None otherwise."""

    @property
    def whole(self) -> bool:
        """Return whether a rollout with a step budget is complete, although the run was stopped."""
        return self.names is not None


def _count_episodes(path: Path, reader: RunReader) -> _Counted:
    """Return the counted episodes of a run; where its training cannot be read, all of them, with the problem."""
    if path.resolve().parent.parent.name != "epochs":  # no part of a training, so spare the imports below
        return _Counted()
    from collab.errors import CollabError
    from collab.loop.record import find_training

    training = find_training(path)
    if training is None:
        return _Counted()
    from collab.loop.step_budget import is_open_ended, list_counted, read_step_budget

    try:
        steps, is_open, is_over = read_step_budget(path), is_open_ended(path), "summary" in training.read()
        names = list_counted(reader, steps)
    except CollabError as error:
        why = "because the selection of its training could not be read"
        return _Counted(problem=f"{path}: all episodes are counted, {why}: {error}")
    return _Counted(steps=steps, names=None if names is None else frozenset(names), is_open=is_open, is_over=is_over)


def _build_summary(path: Path, reader: RunReader, counted: _Counted) -> dict[str, Any]:
    from collab.evaluation.metrics import Replies
    from collab.evaluation.report import count_replies, read_sampling

    manifest, names, status, replies = reader.manifest, counted.names, reader.status, count_replies(reader)
    # Of a training's rollout, only the episodes that it learns from count.
    episodes = [one for one in reader.list_episodes() if names is None or one.id in names]
    done = sum(one.state != "unfinished" for one in episodes)
    is_whole = counted.whole or (counted.is_open and counted.is_over and done == len(episodes))
    return {
        "run": str(path),
        "created": manifest.created,
        "command": manifest.command,
        "algorithm": None,
        "environment": manifest.environment,
        "graph": manifest.graph,
        "agents": manifest.agents,
        **build_seeds_data(manifest.seeds),
        "unit": "episodes",
        # With a step budget, how many episodes there will be is not known before the end; one that is open has none.
        "planned": _count_planned(counted, manifest.planned),
        "done": done,
        "succeeded": sum(one.outcome is not None and one.outcome.success for one in episodes),
        "broken": sum(one.state == "failed" for one in episodes),
        "replies": build_replies_data(Replies.sum(replies.get(one.id, Replies()) for one in episodes)),
        "sampling": build_sampling_data(read_sampling(manifest)),
        # A rollout that has all its steps is finished, even where later episodes were cut off; so is an open one of a
        # finished training.
        "status": "finished" if is_whole and status != "running" else status,
        "privileged": manifest.privileged,
        "note": REHEARSAL if manifest.privileged else None,
    }


def _count_planned(counted: _Counted, planned: int | None) -> int | None:
    if counted.is_open or (counted.steps is not None and counted.names is None):
        return None
    return planned if counted.names is None else len(counted.names)


_HEAD = ("run", "created", "command", "graph", "agents", "seed", "sampling_seed", "status")
"""Fields of a summary that stand above a report."""


def _show_whole(path: Path, reader: RunReader, *, as_json: bool) -> None:
    from collab.cli.text.failures import build_failures_data, show_failures
    from collab.evaluation.report import report_of
    from collab.loop.record import find_training_around
    from collab.loop.step_budget import report_run

    # A training may count fewer episodes than were played, so both are looked up.
    counted, training = _count_episodes(path, reader), find_training_around(path)
    report = report_of(reader) if counted.problem else report_run(path, reader, so_far=True)
    summary = _build_summary(path, reader, counted)
    problems = [str(problem) for problem in reader.problems]
    unknown = [] if counted.problem is None else [counted.problem]
    episodes = [one for one in reader.list_episodes() if counted.names is None or one.id in counted.names]
    # JSON has the same numbers in the same order as the report of an evaluation.
    if as_json:
        head = {key: summary[key] for key in _HEAD} | {"failures": build_failures_data(path, episodes)}
        emit(head | report_data(report) | {"versions": reader.manifest.versions, "problems": unknown + problems})
        return
    say(f"run      {path} ({summary['status']}, {summary['command']}, begun {summary['created']})")
    say(f"who      {summary['agents']} on {summary['graph']}, seed {reader.manifest.seeds}")
    print_headline(report.environment, report, privileged=report.privileged)
    # The difference between "played" and "learned from" is explained where both numbers are seen.
    if counted.whole:
        beyond = sum(one.state != "unfinished" for one in reader.list_episodes()) - len(report.results)
        learned = format_amount(counted.steps or 0, "step")
        say(f"         its training learns from {learned}; {format_amount(beyond, 'episode')} beyond them not counted")
    elif counted.is_open:
        say("         its training plays on while it learns; counted is what is over, whichever epoch learned it")
    elif counted.steps is not None:
        say(f"         its training ends it with {format_amount(counted.steps, 'step')}; this is what is over so far")
    show_tables(report)
    show_failures(path, episodes)
    show_cause(path, report)
    # Problems last: they qualify everything above.
    for line in unknown:
        note(line)
    for problem in problems:
        note(f"unreadable: {problem}")
    # The next command, ready to paste; a part of a training is resumed by that training.
    if summary["status"] in ("stopped", "dead"):
        say(f"resume with: {resume_command(path) if training is None else training.resume}")
    if report.results:
        say(f"look closer: collab runs show {path} --episode {report.results[0].id} [--step 0]")
