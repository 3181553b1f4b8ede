"""`collab checkpoint`: checkpoints from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collab.cli import options, rows
from collab.cli.output import emit, say

app = typer.Typer(help="Make checkpoints from nothing.", no_args_is_help=True)


@app.callback()
def _top() -> None:
    """Make checkpoints from nothing."""


@app.command("new")
def new(
    *,
    data: Annotated[
        list[str],
        typer.Option(
            "--data",
            metavar="DIRS",
            help="Rows that the tokenizer learns from: directories, comma-separated or repeated; one with a comma in "
            "its name by itself.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory to make.")],
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME|FILE", help="Whose architecture: pocket or a YAML file.")
    ] = "pocket",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="a=b", help="Override one size, e.g. layers=3. May be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Of the random weights.")] = 0,
    max_broken: Annotated[
        int, typer.Option("--max-broken", metavar="N", min=0, help="Broken rows to leave out at most.")
    ] = 0,
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Learn from rows that are kept for evaluation, too.")
    ] = False,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Make an untrained checkpoint: tokenizer, chat template, random weights."""
    import json

    from collab.config import override
    from collab.errors import UsageError
    from collab.learn.preset import load_preset
    from collab.learn.scratch import new_checkpoint
    from collab.models.layout import CARD
    from collab.synth.rows import LEVELS

    architecture = load_preset(preset).architecture
    if architecture is None:
        raise UsageError(f"--preset {preset}: has no architecture; its base is a published checkpoint")
    folders = options.folders("--data", data)
    read = rows.read_rows(folders, LEVELS, max_broken=max_broken)
    rows.refuse_leaks(read.rows, options.library(library), allow_overlap)
    rows.tell_of(folders, read)
    made = new_checkpoint(out, override(architecture, settings or []), read.rows, seed=seed)
    card = json.loads((made / CARD).read_text(encoding="utf-8"))
    if as_json:
        emit({"path": str(made), **card})
    else:
        say(f"{made}: {card['parameters']:,} parameters, {card['tokens']:,} tokens, untrained")
