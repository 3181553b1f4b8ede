"""`collab view`: recorded runs as pages in a browser, also while they are being written."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli.output import note, say
from collab.cli.view_export import Episode, Export, Most, ShownLabels, write_report

if TYPE_CHECKING:
    from collab.view.guard import Gate

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
        str, typer.Option("--host", metavar="ADDRESS", help="Listen here; others than loopback let others ask.")
    ] = _LOOPBACK,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="0 for a free one; default: 8477, or a free one.",
            show_default=False,
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address and open no browser.")] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let everybody in who reaches the address, without the token in it.")
    ] = False,
    export: Export = None,
    episode: Episode = None,
    most: Most = None,
    labels: ShownLabels = None,
) -> None:
    """Look into runs in a browser: who proposed what, who changed whose mind, the vote, the critic, the pairs.

    Prints an address that works once, and serves on this machine alone until Ctrl-C. The runs are never changed.
    """
    named = runs or [_default()]
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
    warming = threading.Thread(target=inspector.warm, daemon=True)
    warming.start()  # while what serves is loaded
    from collab.view.guard import Gate, is_local
    from collab.view.server import listening, serve

    with listening(host, port) as listener, contextlib.ExitStack() as browser:
        gate = Gate(host, listener.getsockname()[1], open_to_all=open_to_all)
        if not is_local(host):
            may = "can read these runs" if open_to_all else "may try the token"
            note(f"everybody who reaches {host}:{gate.port} {may}")

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
    from collab.view.browser import has_screen, opened
    from collab.view.spares import spare_folder

    if has_screen():
        try:
            until.enter_context(opened(gate, spare_folder()))
        except OSError as error:
            note(f"no browser is opened ({spare_folder()}: {error.strerror or error}); open the address above")


def _default() -> Path:
    """./runs; UsageError where there is none."""
    from collab.errors import UsageError

    if not RUNS.is_dir():
        raise UsageError("there is no folder runs here; name a run, or make one with: collab demo")
    return RUNS


def _refuse(**given: object) -> None:
    """UsageError for options that mean something beside --export alone."""
    from collab.errors import UsageError

    for name, value in given.items():
        if value is not None:
            raise UsageError(f"--{name} chooses what --export takes along; leave it out, or add --export report.html")


def _refuse_serving(**given: bool) -> None:
    """UsageError for options that mean something beside a server alone."""
    from collab.errors import UsageError

    for name, value in given.items():
        if value:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is about serving pages, and --export serves none; leave one of them out")
