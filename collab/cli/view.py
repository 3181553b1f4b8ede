"""`collab view`: recorded runs as pages in a browser, also while they are being written.

`collab view RUN --export FILE`: chosen episodes as one file that opens without a server and without a network.

`collab report`: a run or a training as Markdown, with its plots if asked for.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, emit, say
from collab.utils.progress import note
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.evaluation.report import Recorded
    from collab.view.auth import Gate
    from collab.view.inspector import Inspector
    from collab.view.schema.runs import RunRow


Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run, or what eval --seeds, train or transfer made with --out.")
]
CountedLabels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="NAME",
        help="Labels whose rewards count; default: those that were trained on, else the first.",
    ),
]


def report(
    run: Run,
    *,
    labels: CountedLabels = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write every plot there, as SVG and as PNG.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Print the overview of a run or a training as Markdown, for the appendix of a paper.

    For several seeds and for a transfer it prints the table of results, then the overview of each run and training.
    """
    from collab.evaluation.report import find_recorded
    from collab.view.inspector import Inspector
    from collab.view.markdown import report as markdown
    from collab.view.plots import draw_plots, write_plots

    found = find_recorded(run)
    # Several runs have a table and an overview each; a single one has no table.
    if found.kind in ("series", "transfer"):
        _report_parts(found, labels, figures, as_json=as_json)
        return
    inspector = Inspector([run])
    row = require_single(inspector, run)
    # Problems come with the overview: a report without them would look complete.
    overview, problems = inspector.get_overview(row.id, labels), inspector.list_problems(row.id).problems
    # Figures take seconds, so they are drawn only where they are asked for.
    plots = draw_plots(overview) if figures is not None else ()
    paths = [] if figures is None else write_plots(plots, figures)
    if as_json:
        emit({"overview": overview, "problems": problems, "figures": paths})
    else:
        # Markdown names the SVG, which stays sharp in print.
        pictures = [(plot, (figures / f"{plot.name}.svg").as_posix()) for plot in plots if figures is not None]
        say(markdown(inspector.get_run(row.id), overview, problems, pictures).rstrip("\n"))
    if figures is not None:
        note(f"{len(plots)} plots in {figures}, each as SVG and PNG")


def _report_parts(found: Recorded, labels: str | None, figures: Path | None, *, as_json: bool) -> None:
    """Print the results of several runs together, then each of them."""
    from collab.errors import UsageError
    from collab.evaluation.report import read_evaluation, show_rate, suggest_commands
    from collab.transfer.result import TransferDir
    from collab.view.inspector import Inspector
    from collab.view.markdown import report as markdown

    # Plots of several runs would lie in one folder under equal names.
    if figures is not None:
        instead = suggest_commands(found, "collab report {} --figures DIR")
        raise UsageError(f"--figures draws one run or training: {instead}")
    # Several seeds have one setting: a line per seed, then all together.
    if found.kind == "series":
        evaluation = read_evaluation(found.path)
        rates = [*evaluation.by_seed.items(), ("together", evaluation.report)]
        lines = [f"| {name} | {show_rate(report.planned)} |" for name, report in rates]
        mark = f"**{REHEARSAL}**: these numbers are no result.\n\n" if evaluation.report.privileged else ""
        told = "Success in % [95 % Wilson interval] (episodes)."
        head = "\n".join([f"{mark}{told}", "", f"| seed | {evaluation.setting} |", "|---|---|", *lines, ""])
    else:
        outcome = TransferDir(found.path).read_outcome()
        head = "not over yet\n" if outcome is None else outcome.markdown
    inspector = Inspector([found.path])
    rows = inspector.list_runs().runs
    overviews = [inspector.get_overview(row.id, labels) for row in rows]
    if as_json:
        emit({"overviews": overviews})
        return
    # Headings of each part go one level down, under the path that they have in common.
    say(f"# {found.path}\n\n{head}")
    for row, overview in zip(rows, overviews, strict=True):
        text = markdown(inspector.get_run(row.id), overview, inspector.list_problems(row.id).problems)
        say(re.sub(r"^#", "##", text, flags=re.MULTILINE))


def require_single(inspector: Inspector, path: Path) -> RunRow:
    """Return the one run or training at a path.

    Raises:
        UsageError: there are several.
        RunFormatError: nothing of it can be read.
    """
    from collab.errors import RunFormatError, UsageError

    rows = inspector.list_runs().runs
    if len(rows) > 1:
        raise UsageError(f"{path}: holds {format_amount(len(rows), 'run')}; name one of them, e.g. {rows[0].path}")
    if rows[0].unreadable is not None:
        raise RunFormatError(rows[0].unreadable)
    return rows[0]


Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        help="Serve nothing; write one HTML file that opens without server and network. It holds prompts, "
        "configuration and errors as recorded, with the folders that they name.",
    ),
]
Episode = Annotated[
    list[str] | None,
    typer.Option("--episode", metavar="ID", help="With --export: take this episode; may be repeated."),
]
Most = Annotated[
    int | None,
    typer.Option("--most", metavar="N", min=1, help="With --export: take the first N episodes; default: 50."),
]
ShownLabels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="NAME",
        help="With --export: labels to show; default: those that were trained on, else the first.",
    ),
]

_TOLD = 5
"""Most unreadable parts that are named one by one."""


def write_report(
    runs: Sequence[Path], out: Path, *, episodes: Sequence[str], most: int | None, labels: str | None
) -> None:
    """Write a report of the one named run, and print its contents.

    Args:
        episodes: IDs of the episodes; empty takes the first `most`.
        most: None for the default number.

    Raises:
        UsageError: not exactly one run is named, or an option does not fit; as `collab.view.export.export`.
    """
    from collab.errors import UsageError
    from collab.view.export import MOST, export
    from collab.view.inspector import Inspector

    # One file shows one run; several would be a site.
    if len(runs) != 1:
        raise UsageError(f"--export takes one run or training, {len(runs)} are named; write a file for each")
    if episodes and most is not None:
        raise UsageError("--episode names the episodes, --most counts them off; leave one of them out")
    inspector = Inspector(runs)
    made = export(
        inspector,
        require_single(inspector, runs[0]).id,
        out,
        episodes=episodes,
        most=MOST if most is None else most,
        labels=labels,
        watch=_show if sys.stderr.isatty() else lambda done, whole: None,
    )
    # The first few causes: a damaged run may have hundreds.
    for why in made.unread[:_TOLD]:
        note(f"left out: {why}")
    if len(made.unread) > _TOLD:
        note(f"left out: {len(made.unread) - _TOLD} more that cannot be read")
    say(f"{out}  ({made.size / 1e6:.1f} MB)")
    screens = format_amount(made.pictures, "different screen")
    note(f"{made.episodes} of {format_amount(made.of, 'episode')}, {format_amount(made.steps, 'step')}, {screens}")
    # What is missing is printed with the options that choose otherwise.
    if not episodes and made.episodes < made.of:
        note("choose others with --episode ID, or more with --most N")


def _show(done: int, whole: int) -> None:
    sys.stderr.write(f"\r{done}/{format_amount(whole, 'episode')}" + ("\n" if done == whole else ""))
    sys.stderr.flush()


RUNS = Path("runs")
"""Looked through where nothing is named."""
_WARM_S = 3.0
"""Seconds, at most, that the address waits for runs that are being opened: the first page would wait as long."""
_LOOPBACK = "127.0.0.1"


def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN",
            help="Runs, trainings (of train), or folders with some; default: all in ./runs.",
            show_default=False,
        ),
    ] = None,
    *,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on; any but loopback opens the pages to other machines.",
        ),
    ] = _LOOPBACK,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="Port to listen on; 0 for a free one; default: 8477, or a free one.",
            show_default=False,
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address and open no browser.")] = False,
    no_token: Annotated[
        bool,
        typer.Option("--no-token", help="Serve every client that reaches the address, without asking for the token."),
    ] = False,
    export: Export = None,
    episode: Episode = None,
    most: Most = None,
    labels: ShownLabels = None,
) -> None:
    """Inspect runs in a browser: each agent's proposals and changes of mind, the vote, the critic, the pairs.

    Prints an address that works once, and serves this machine alone until Ctrl-C. The runs are never changed.
    """
    named = runs or [_find_default()]
    if export is not None:
        _refuse_serving(host=host != _LOOPBACK, port=port is not None, no_open=no_open, no_token=no_token)
        write_report(named, export, episodes=episode or (), most=most, labels=labels)
        return
    _refuse(episode=episode, most=most, labels=labels)
    _serve(named, host, port, open_browser=not no_open, open_to_all=no_token)


def _serve(runs: list[Path], host: str, port: int | None, *, open_browser: bool, open_to_all: bool) -> None:
    from collab.errors import MissingExtra

    MissingExtra.unless("fastapi", "uvicorn", extra="view", purpose="collab view")
    from collab.view.inspector import Inspector

    inspector = Inspector(runs)
    warming = threading.Thread(target=inspector.warm_up, daemon=True)
    warming.start()  # while the server is loaded
    from collab.view.auth import Gate, is_local
    from collab.view.server import open_listening_socket, serve

    with open_listening_socket(host, port) as listener, contextlib.ExitStack() as browser:
        gate = Gate(host, listener.getsockname()[1], open_to_all=open_to_all)
        if not is_local(host):
            may = "can read these runs" if open_to_all else "may try the token"
            note(f"every client that reaches {host}:{gate.port} {may}")

        def ready() -> None:
            warming.join(_WARM_S)
            say(f"{gate.address}")
            note("serving until Ctrl-C" + ("" if open_to_all else "; the address works once, in one browser"))
            if open_browser:
                _open(gate, browser)

        try:
            serve(inspector, gate, listener, ready)
        finally:
            inspector.close()


def _open(gate: Gate, until: contextlib.ExitStack) -> None:
    """Open a browser where there is a screen."""
    from collab.view.auth import has_screen, open_page
    from collab.view.readers import get_index_cache

    if has_screen():
        try:
            until.enter_context(open_page(gate, get_index_cache()))
        except OSError as error:
            note(f"no browser is opened ({get_index_cache()}: {error.strerror or error}); open the address above")


def _find_default() -> Path:
    """Return ./runs; UsageError where there is none."""
    from collab.errors import UsageError

    if not RUNS.is_dir():
        raise UsageError("there is no folder runs here; name a run, or make one with: collab demo")
    return RUNS


def _refuse(**given: object) -> None:
    """Raise UsageError for options that need --export."""
    from collab.errors import UsageError

    for name, value in given.items():
        if value is not None:
            raise UsageError(f"--{name} chooses what --export takes along; leave it out, or add --export report.html")


def _refuse_serving(**given: bool) -> None:
    """Raise UsageError for options that need a server."""
    from collab.errors import UsageError

    for name, value in given.items():
        if value:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is about serving pages, and --export serves none; leave one of them out")
