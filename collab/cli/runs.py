"""`collab runs`: what was recorded, going on with it, and taking it elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.cost import show_cost
from collab.cli.episode import show_episode, show_step
from collab.cli.output import REHEARSAL, data, emit, note, say, table
from collab.cli.overlap import overlap
from collab.cli.report import headline, report_data, show_tables
from collab.cli.table import table as show_table

if TYPE_CHECKING:
    from collab.store.reader import RunReader

app = typer.Typer(help="Runs: what was recorded.", no_args_is_help=True)

app.command("overlap")(overlap)
app.command("table")(show_table)

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
    from collab.report import runs_in

    if not folder.is_dir() and folder != RUNS:
        raise UsageError(f"{folder}: no such folder; runs are in {RUNS}/ unless --out said otherwise")
    rows: list[dict[str, Any]] = []
    for path in runs_in(folder):
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
    cost: Annotated[
        bool, typer.Option("--cost", help="Calls, tokens, prefix cache, batches, times and USD, per round and layer.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show a run: results and episodes; its cost; one episode; or what the agents said at one step."""
    from collab.errors import UsageError

    if cost and episode is not None:
        raise UsageError("--cost tells of the whole run; leave out --episode or --cost")
    if step is not None and episode is None:
        raise UsageError("--step needs --episode: of which episode?")
    reader = open_run(run)
    if cost:
        show_cost(run, reader, as_json=as_json)
        return
    if episode is None:
        _show_whole(run, reader, as_json=as_json)
        return
    trajectory = reader.trajectory(episode)
    if step is None:
        show_episode(trajectory, as_json=as_json)
    else:
        show_step(trajectory, reader.step(episode, step), as_json=as_json)


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
    from collab.report import report_of

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
