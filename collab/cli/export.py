"""`collab export`: trained weights as a directory in the form that transformers and vLLM read."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from collab.cli import options
from collab.cli.output import data, emit, say


def export(
    *,
    policy: Annotated[
        str,
        typer.Argument(
            metavar="RUN@best|DIR|built-in:NAME",
            help="An epoch of a trained team (RUN@best, RUN@last, RUN@epoch3), a fine-tuning run, a checkpoint or an "
            "adapter.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory to make.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Add an adapter to the weights of its base; the result is whole.")
    ] = False,
    dtype: Annotated[
        Literal["bfloat16", "float32"] | None,
        typer.Option("--dtype", help="Of the written weights; default: as they are."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="DIR", help="An adapter's base, where it is not where the adapter says."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write a policy as a directory in the form that transformers and vLLM read, with a card and an agents file.

    A team whose agents have policies of their own becomes one directory per agent.
    """
    from collab.loop.export import directories, find
    from collab.loop.export import export as write

    done = write(find(policy, base), out, merge=merge, dtype=dtype)
    if as_json:
        emit(data(done))
        return
    for folder, digest in directories(done):
        say(f"{folder}: weights {digest}")
    say(f"play it: --agents {shlex.quote(done.agents)}")
