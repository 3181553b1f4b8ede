"""`collab report`: a run or a training as Markdown, with its plots if asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, emit, note, say
from collab.wording import amount

if TYPE_CHECKING:
    from collab.cli.recorded import Recorded
    from collab.view.inspector import Inspector
    from collab.view.shapes.runs import RunRow

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run, or what eval --seeds, train or transfer made with --out.")
]
CountedLabels = Annotated[
    str | None,
    typer.Option(
        "--labels", metavar="NAME", help="Whose rewards to count; those learned from, else the first ones, if left out."
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

    Of several seeds and of a transfer it is the table of their results, then the overview of each run and training.
    """
    from collab.cli.recorded import find_recorded
    from collab.view.figures import figures as drawn
    from collab.view.figures import write_figures
    from collab.view.inspector import Inspector
    from collab.view.markdown import report as markdown

    found = find_recorded(run)
    if found.kind in ("series", "transfer"):
        _report_parts(found, labels, figures, as_json=as_json)
        return
    inspector = Inspector([run])
    row = only(inspector, run)
    overview, problems = inspector.overview(row.id, labels), inspector.problems(row.id).problems
    plots = drawn(overview) if figures is not None else ()
    paths = [] if figures is None else write_figures(plots, figures)
    if as_json:
        emit({"overview": overview, "problems": problems, "figures": paths})
    else:
        pictures = [(plot, (figures / f"{plot.name}.svg").as_posix()) for plot in plots if figures is not None]
        say(markdown(inspector.run(row.id), overview, problems, pictures).rstrip("\n"))
    if figures is not None:
        note(f"{len(plots)} plots in {figures}, each as SVG and PNG")


def _report_parts(found: Recorded, labels: str | None, figures: Path | None, *, as_json: bool) -> None:
    """Print the results of several runs together, then each of them."""
    from collab.cli.recorded import commands_instead
    from collab.errors import UsageError
    from collab.report import recorded_evaluation
    from collab.tables import show_rate
    from collab.transfer.layout import TransferFolder
    from collab.view.inspector import Inspector
    from collab.view.markdown import report as markdown

    if figures is not None:
        instead = commands_instead(found, "collab report {} --figures DIR")
        raise UsageError(f"--figures draws one run or training: {instead}")
    if found.kind == "series":
        evaluation = recorded_evaluation(found.path)
        rates = [*evaluation.by_seed.items(), ("together", evaluation.report)]
        lines = [f"| {name} | {show_rate(report.planned)} |" for name, report in rates]
        mark = f"**{REHEARSAL}**: these numbers are no result.\n\n" if evaluation.report.privileged else ""
        told = "Success in % [95 % Wilson interval] (episodes)."
        head = "\n".join([f"{mark}{told}", "", f"| seed | {evaluation.setting} |", "|---|---|", *lines, ""])
    else:
        outcome = TransferFolder(found.path).told()
        head = "not over yet\n" if outcome is None else outcome.markdown
    inspector = Inspector([found.path])
    rows = inspector.runs().runs
    overviews = [inspector.overview(row.id, labels) for row in rows]
    if as_json:
        emit({"overviews": overviews})
        return
    say(f"# {found.path}\n\n{head}")
    for row, overview in zip(rows, overviews, strict=True):
        text = markdown(inspector.run(row.id), overview, inspector.problems(row.id).problems)
        say(re.sub(r"^#", "##", text, flags=re.MULTILINE))


def only(inspector: Inspector, path: Path) -> RunRow:
    """The one run or training at a path.

    Raises:
        UsageError: there are several.
        RunFormatError: nothing of it can be read.
    """
    from collab.errors import RunFormatError, UsageError

    rows = inspector.runs().runs
    if len(rows) > 1:
        raise UsageError(f"{path}: holds {amount(len(rows), 'run')}; name one of them, e.g. {rows[0].path}")
    if rows[0].unreadable is not None:
        raise RunFormatError(rows[0].unreadable)
    return rows[0]
