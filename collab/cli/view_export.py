"""`collab view RUN --export FILE`: chosen episodes as one file that opens without a server and without a network."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from collab.cli.markdown import only
from collab.cli.output import note, say
from collab.wording import amount

Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        help="Serve nothing; write one HTML file that opens without server and network. Prompts, configuration and "
        "errors are in it as recorded, with the folders that they name.",
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
        "--labels", metavar="NAME", help="With --export: show these scores, not those learned from or the first ones."
    ),
]

_TOLD = 5
"""So many of what cannot be read are told one by one."""


def write_report(
    runs: Sequence[Path], out: Path, *, episodes: Sequence[str], most: int | None, labels: str | None
) -> None:
    """Write a report of the one run that is named, and say what is in it.

    Args:
        episodes: ids of those to take; empty takes the first `most`.
        most: None for the usual number.

    Raises:
        UsageError: no run or several are named, or what is asked does not fit; as `collab.view.export.export`.
    """
    from collab.errors import UsageError
    from collab.view.export import MOST, export
    from collab.view.inspector import Inspector

    if len(runs) != 1:
        raise UsageError(f"--export takes one run or training, {len(runs)} are named; write a file for each")
    if episodes and most is not None:
        raise UsageError("--episode names the episodes, --most counts them off; leave one of them out")
    inspector = Inspector(runs)
    made = export(
        inspector,
        only(inspector, runs[0]).id,
        out,
        episodes=episodes,
        most=MOST if most is None else most,
        labels=labels,
        watch=_show if sys.stderr.isatty() else lambda done, whole: None,
    )
    for why in made.unread[:_TOLD]:
        note(f"left out: {why}")
    if len(made.unread) > _TOLD:
        note(f"left out: {len(made.unread) - _TOLD} more that cannot be read")
    say(f"{out}  ({made.size / 1e6:.1f} MB)")
    screens = amount(made.pictures, "different screen")
    note(f"{made.episodes} of {amount(made.of, 'episode')}, {amount(made.steps, 'step')}, {screens}")
    if not episodes and made.episodes < made.of:
        note("choose others with --episode ID, or more with --most N")


def _show(done: int, whole: int) -> None:
    sys.stderr.write(f"\r{done}/{amount(whole, 'episode')}" + ("\n" if done == whole else ""))
    sys.stderr.flush()
