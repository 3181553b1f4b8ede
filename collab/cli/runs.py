"""`collab runs`: what was recorded, going on with it, and taking it elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, data, emit, note, plain, say, table
from collab.cli.overlap import overlap
from collab.cli.report import headline, report_data, show_tables

if TYPE_CHECKING:
    from collab.evaluation import Report
    from collab.store.reader import RunReader
    from collab.types import Step, Trajectory

app = typer.Typer(help="Runs: what was recorded.", no_args_is_help=True)

app.command("overlap")(overlap)

RUNS = Path("runs")
"""Where runs are made unless another place is named."""

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to look for runs, at any depth.")] = RUNS,
    *,
    as_json: options.Json = False,
) -> None:
    """List recorded runs, oldest first."""
    from collab.errors import RunFormatError, UsageError

    if not folder.is_dir() and folder != RUNS:
        raise UsageError(f"{folder}: no such folder; runs are in {RUNS}/ unless --out said otherwise")
    rows: list[dict[str, Any]] = []
    for path in _directories(folder):
        try:
            with open_run(path) as reader:
                rows.append(_summary(path, reader))
        except RunFormatError as error:
            note(f"skipped: {error}")
    rows.sort(key=lambda row: str(row["created"]))
    if as_json:
        emit(rows)
        return
    if not rows:
        say(f"no runs in {folder}; make one with: collab rollout")
        return
    table(
        ["run", "command", "environment", "graph", "agents", "episodes", "solved", "status", "note"],
        [
            (
                row["run"],
                row["command"],
                row["environment"],
                row["graph"],
                row["agents"],
                f"{row['done']}/{row['planned']}",
                row["succeeded"],
                row["status"],
                row["note"],
            )
            for row in rows
        ],
    )


@app.command("show")
def show_run(
    run: Run,
    *,
    episode: Annotated[
        str | None, typer.Option("--episode", metavar="ID", help="Tell one episode step by step.")
    ] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="T", min=0, help="With --episode: everything said before step T, and the vote."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show a run: results and episodes; one episode; or what the agents said at one step."""
    from collab.errors import UsageError

    if step is not None and episode is None:
        raise UsageError("--step needs --episode: of which episode?")
    reader = open_run(run)
    if episode is None:
        _show_whole(run, reader, as_json=as_json)
        return
    trajectory = reader.trajectory(episode)
    if step is None:
        _show_episode(trajectory, as_json=as_json)
    else:
        _show_step(trajectory, reader.step(episode, step), as_json=as_json)


@app.command("resume")
def resume_run(
    run: Run,
    *,
    budget: options.BudgetText = None,
    as_json: options.Json = False,
) -> None:
    """Go on with a run that was stopped or died; broken episodes are played again. A budget starts anew."""
    from collab.cli.rollout import finish
    from collab.cli.watch import work
    from collab.config import Budget
    from collab.runs import resume

    granted = Budget.parse(budget) if budget is not None else None
    result = work(lambda watch, stop: resume(run, budget=granted, watch=watch, stop=stop), run)
    finish(result, as_json=as_json, details=open_run(run).manifest.command == "eval")


@app.command("export")
def export_run(
    run: Run,
    *,
    parquet: Annotated[
        Path, typer.Option("--parquet", metavar="DIR", help="Folder for episodes, steps and cells as Parquet files.")
    ],
    as_json: options.Json = False,
) -> None:
    """Write a run as tables for other tools."""
    from collab.store.export import export_parquet
    from collab.store.run import RunStore

    store = RunStore.open(run)
    files = export_parquet(store, parquet)
    with store.reader() as reader:
        mark = REHEARSAL if reader.manifest.privileged else None
    if as_json:
        emit({"run": str(run), "files": data(files), "note": mark})
        return
    for file in files:
        say(f"{file}")
    if mark is not None:
        note(mark)


def open_run(path: Path) -> RunReader:
    """Read a run directory; RunFormatError when it is none."""
    from collab.store.run import RunStore

    return RunStore.open(path).reader()


def report_of(reader: RunReader) -> Report:
    """The report of a recorded run, over all its planned episodes."""
    from collab.evaluation import EpisodeResult, summarise
    from collab.types import PlannedTask

    manifest = reader.manifest
    over = [one for one in reader.episodes() if one.state != "unfinished"]
    unknown = PlannedTask(name="unknown", difficulty=None, episodes=max(0, (manifest.planned or 0) - len(over)))
    return summarise(
        [EpisodeResult.recorded(one) for one in over],
        manifest.tasks or (unknown,),
        environment=manifest.environment,
        environment_version=manifest.environment_version,
        privileged=manifest.privileged or any(one.privileged for one in over),
    )


def _directories(folder: Path) -> list[Path]:
    """Run directories in a folder, however deep, or the folder itself."""
    from collab.store.manifest import FILE

    return sorted(path.parent for path in folder.rglob(FILE)) if folder.is_dir() else []


def _summary(path: Path, reader: RunReader) -> dict[str, Any]:
    manifest, episodes = reader.manifest, reader.episodes()
    return {
        "run": str(path),
        "created": manifest.created,
        "command": manifest.command,
        "environment": manifest.environment,
        "graph": manifest.graph,
        "agents": manifest.agents,
        "seed": manifest.seed,
        "planned": manifest.planned,
        "done": sum(one.state != "unfinished" for one in episodes),
        "succeeded": sum(one.outcome is not None and one.outcome.success for one in episodes),
        "broken": sum(one.state == "failed" for one in episodes),
        "status": reader.status,
        "privileged": manifest.privileged,
        "note": REHEARSAL if manifest.privileged else None,
    }


def _show_whole(path: Path, reader: RunReader, *, as_json: bool) -> None:
    report, summary = report_of(reader), _summary(path, reader)
    problems = [str(problem) for problem in reader.problems]
    if as_json:
        head = {key: summary[key] for key in ("run", "created", "command", "graph", "agents", "seed", "status")}
        emit(head | report_data(report) | {"versions": reader.manifest.versions, "problems": problems})
        return
    say(f"run      {path} ({summary['status']}, {summary['command']}, begun {summary['created']})")
    say(f"who      {summary['agents']} on {summary['graph']}, seed {summary['seed']}")
    headline(report.environment, report, privileged=report.privileged)
    show_tables(report)
    for problem in problems:
        note(f"unreadable: {problem}")
    if summary["status"] in ("stopped", "dead"):
        say(f"go on with: collab runs resume {path}")
    if report.results:
        say(f"look closer: collab runs show {path} --episode {report.results[0].id} [--step 0]")


def _show_episode(trajectory: Trajectory, *, as_json: bool) -> None:
    if as_json:
        emit({**_episode_data(trajectory), "steps": [_step_data(step) for step in trajectory.steps]})
        return
    _say_episode(trajectory)
    say()
    table(
        ["step", "screen", "action", "votes", "effect"],
        [
            (step.index, step.observation.title, step.history.action, _votes(step), step.history.effect)
            for step in trajectory.steps
        ],
    )


def _show_step(trajectory: Trajectory, step: Step, *, as_json: bool) -> None:
    if as_json:
        emit({**_episode_data(trajectory), "step": _step_data(step) | {"observation": step.observation.text}})
        return
    _say_episode(trajectory)
    say(f"\n{step.observation.text}\n")
    for utterance in step.matrix:
        heard = ", ".join(f"{cell.agent} {cell.round + 1}" for cell in utterance.heard)
        say(f"{utterance.agent}, round {utterance.round + 1}{f' (heard {heard})' if heard else ''}:")
        say("\n".join(f"    {plain(line)}" for line in utterance.text.splitlines()))
    action, effect = plain(step.history.action), plain(step.history.effect)
    say(f"\nexecuted {action} with {_votes(step)} votes; effect: {effect or '-'}")


def _say_episode(trajectory: Trajectory) -> None:
    mark = f"  ({REHEARSAL})" if trajectory.privileged else ""
    say(f"{trajectory.id} of {trajectory.environment}, seed {trajectory.task.seed}{mark}")
    say(f"goal     {plain(trajectory.task.goal)}")
    say(f"outcome  {plain(_outcome(trajectory))}")


def _outcome(trajectory: Trajectory) -> str:
    if trajectory.error is not None:
        return f"broken at step {trajectory.error.step}: {trajectory.error.message}"
    if trajectory.outcome is None:
        return "unfinished"
    word = "solved" if trajectory.outcome.success else "not solved"
    return f"{word}, {trajectory.outcome.reason}" if trajectory.outcome.reason else word


def _votes(step: Step) -> str:
    cells = len(step.matrix.utterances)
    best = len(step.vote.ballots[0].cells) if step.vote.ballots else 0
    return f"{best}/{cells}{' (tie)' if step.vote.tie else ''}"


def _episode_data(trajectory: Trajectory) -> dict[str, Any]:
    found: dict[str, Any] = data(
        {
            "id": trajectory.id,
            "environment": trajectory.environment,
            "privileged": trajectory.privileged,
            "note": REHEARSAL if trajectory.privileged else None,
            "task": trajectory.task,
            "outcome": trajectory.outcome,
            "error": trajectory.error,
        }
    )
    return found


def _step_data(step: Step) -> dict[str, Any]:
    cells = [
        {"agent": one.agent, "round": one.round, "text": one.text, "failure": data(one.failure)} for one in step.matrix
    ]
    found: dict[str, Any] = data(
        {
            "index": step.index,
            "title": step.observation.title,
            "action": step.history.action,
            "effect": step.history.effect,
            "votes": [len(ballot.cells) for ballot in step.vote.ballots],
            "abstained": len(step.vote.abstained),
            "tie": step.vote.tie,
            "cells": cells,
        }
    )
    return found
