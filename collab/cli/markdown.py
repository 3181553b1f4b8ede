"""`collab report`: a run or a training as Markdown, with its plots if asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import emit, note, say

if TYPE_CHECKING:
    from collab.view.inspector import Inspector
    from collab.view.shapes.runs import RunRow

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run or training directory.")]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels", metavar="NAME", help="Whose rewards to count; those learned from, else the first ones, if left out."
    ),
]


def report(
    run: Run,
    *,
    labels: Labels = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Also write every plot there, as SVG and as PNG.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Print the overview of a run or a training as Markdown, for the appendix of a paper."""
    from collab.view.figures import figures as drawn
    from collab.view.figures import write_figures
    from collab.view.inspector import Inspector
    from collab.view.markdown import report as markdown

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


def only(inspector: Inspector, path: Path) -> RunRow:
    """The one run or training at a path.

    Raises:
        UsageError: there are several.
        RunFormatError: nothing of it can be read.
    """
    from collab.errors import RunFormatError, UsageError

    rows = inspector.runs().runs
    if len(rows) > 1:
        raise UsageError(f"{path}: holds {len(rows)} runs; name one of them, e.g. {rows[0].path}")
    if rows[0].unreadable is not None:
        raise RunFormatError(rows[0].unreadable)
    return rows[0]
