"""`collab verify-resume`: prove that a killed training ends like one that nobody disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import data, emit, note, say, table

if TYPE_CHECKING:
    from collab.testing.lives import Point
    from collab.testing.verify import Proof

_SHOWN = 16
"""Characters of a hash in a table."""


def verify_resume(
    *,
    algo: Annotated[
        str, typer.Option("--algo", metavar="NAME", help="The algorithm that trains: see collab train --help.")
    ] = "collabuiagents",
    quick: Annotated[bool, typer.Option("--quick", help="One epoch, one thread and two kills: half a minute.")] = False,
    kills: Annotated[
        int | None,
        typer.Option(
            "--kills",
            metavar="N",
            min=1,
            help="How often, at most once per part of an epoch; default: 7.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="S", help="Of the places where it is killed; default: another one each time."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory to make and keep; default: one that is removed."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="a.b=c", help="Override one setting of the training, e.g. reference=previous; repeatable."
        ),
    ] = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a tiny team twice, once killed at drawn points and gone on with, and compare what came of it.

    Kills are in every part of rollout, labelling and learning before any other part. A life that makes fewer calls
    than the first dies at the first call behind that part; both places are told. Both trainings have two threads (with
    --quick one); whoever goes on starts with one, and has to find out.

    Exit code 0 when episodes, labels, examples and weights are the same bit for bit, 1 when they are not, or when no
    process was killed at one of the points, or behind it.
    """
    import secrets
    import shutil
    import tempfile

    from collab.errors import UsageError
    from collab.learn.prepare import check_installed
    from collab.testing.verify import verify

    check_installed()
    folder = Path(tempfile.mkdtemp(prefix="collab-verify-")) if out is None else out
    many, drawn = kills or (2 if quick else 7), secrets.randbelow(1_000_000) if seed is None else seed
    note(f"points are drawn with --seed {drawn}")
    epochs, more = 1 if quick else 2, tuple(settings or ())
    threads = 1 if quick else 2
    try:
        proof = verify(
            folder,
            kills=many,
            seed=drawn,
            epochs=epochs,
            threads=threads,
            algorithm=algo,
            settings=more,
            tell=note,
        )
    except (UsageError, KeyboardInterrupt):
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    except BaseException:
        note(f"what was trained until then lies in {folder}")
        raise
    if as_json:
        emit({"same": proof.same, "first_difference": data(proof.first_difference), "seed": drawn, **data(proof)})
    else:
        _show(proof)
    if not proof.same:
        note(f"both trainings lie in {folder}")
        raise typer.Exit(1)
    if out is None:
        shutil.rmtree(folder)


def _show(proof: Proof) -> None:
    killed = [(number, one.epoch, one.part, one.function, one.call) for number, one in enumerate(proof.points, start=1)]
    table(["kill", "epoch", "part", "in", "call"], killed)
    for number, one in proof.elsewhere.items():
        say(f"kill {number} was planned at {_told(one)}, which that process did not come to")
    for one in proof.missed:
        say(f"no process was killed at {_told(one)}, or behind it")
    say()
    parts = [
        (one.epoch, one.part, one.undisturbed[:_SHOWN], one.killed[:_SHOWN], "yes" if one.same else "NO")
        for one in proof.parts
    ]
    table(["epoch", "part", "undisturbed", "killed", "same"], parts)
    say()
    first = proof.first_difference
    if first is not None:
        where = "the run hash" if first.epoch is None else f"epoch {first.epoch}, {first.part}"
        say(f"not the same: they first differ in {where}")
    elif not proof.same:
        say("not proven: all parts are alike, but no process was killed where one was to be")
    else:
        say(f"the same: killed {len(proof.points)} times, every part and all weights alike")


def _told(point: Point) -> str:
    """A place in words."""
    return f"call {point.call} of {point.function} in epoch {point.epoch}, {point.part}"
