"""The command line: the list of commands, and the last stop of every error.

A mistake of the user (exit 2) or a failure (exit 1) is one line on stderr, and so is what a part from outside raises,
with its file and line. Anything else is a bug of this project: one line that names it, and the whole traceback under
COLLAB_DEBUG=1. Commands import what they need when they run, so
that `collab --help` is there at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import collab
from collab.cli import (
    agents,
    critic,
    demo,
    doctor,
    env,
    finetune,
    graph,
    pairs,
    rollout,
    runs,
    synth,
    train,
    transfer,
    view,
)
from collab.cli.options import AlgorithmCommand, GraphKeepingCommand, prepare
from collab.cli.output import fail, say
from collab.cli.progress import listen, treat_sigterm_as_ctrl_c
from collab.errors import CollabError, MissingExtra, describe_error, forget_outside, outside_parts, outside_place
from collab.utils.concurrency import is_left_behind
from collab.utils.text import clean_line

DEBUG = "COLLAB_DEBUG"
"""Environment variable that lets tracebacks through."""
INTERRUPTED = 130
"""What Typer makes of a Ctrl-C that nothing else took care of."""

app = typer.Typer(
    name="collab",
    help="Teams of language-model agents that operate phones and web pages.",
    epilog="First time here? Run: collab demo",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"collab {collab.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Teams of language-model agents that operate phones and web pages."""


app.command("demo")(demo.demo)
app.command("rollout")(rollout.rollout)
app.command("eval")(rollout.evaluate)
app.command("synth")(synth.synth)
app.command("finetune")(finetune.finetune)
app.command("train", cls=AlgorithmCommand)(train.train)
app.command(
    "train-marl",
    cls=AlgorithmCommand,
    short_help="Train a team by credit re-assignment (CollabUIAgents): train --algo collabuiagents.",
)(train.train)
app.command("transfer", cls=GraphKeepingCommand)(transfer.transfer)
app.command("export")(finetune.export)
app.command("verify-resume")(train.verify_resume)
app.add_typer(finetune.app, name="checkpoint")
app.add_typer(runs.app, name="runs")
app.add_typer(rollout.workers_app, name="workers")
app.command("view")(view.view)
app.add_typer(env.app, name="env")
app.add_typer(graph.app, name="graph")
app.add_typer(agents.app, name="agents")
app.add_typer(critic.app, name="critic")
app.add_typer(critic.verifier_app, name="verifier")
app.add_typer(pairs.app, name="pairs")
app.add_typer(env.phone_app, name="phone")
app.command("report")(view.report)
app.command("serve")(agents.serve)
app.command("doctor")(doctor.doctor)
prepare(app)


def run() -> None:
    """Run the command of this process, with its streams as they are, and exit."""
    listen()
    treat_sigterm_as_ctrl_c()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that lacks a character shows "?" instead of ending the work
            reconfigure(errors="replace")
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        code = code or 1
        _mute(1)
    if is_left_behind():  # as after a second Ctrl-C during an optimizer step
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for a failure, 2 for a mistake in the command.

    Args:
        arguments: without the program's name; None takes those of the process.
    """
    forget_outside()
    try:
        code: int = app(args=arguments, prog_name="collab", standalone_mode=False) or 0
        if code == INTERRUPTED:
            fail("interrupted")
            return 1
        return code
    except CollabError as error:
        fail(str(error))
        return error.exit_code
    except typer.Abort:
        fail("aborted")
        return 1
    except KeyboardInterrupt:
        fail("interrupted")
        return 1
    except typer.TyperException as error:
        return _explain_usage(error)
    except BrokenPipeError:  # the reader of our output is gone
        _mute(1)
        return 1
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        # Commands that train import torch where they begin, not where they are defined.
        missing = MissingExtra.from_import(error, "this command") if isinstance(error, ImportError) else None
        fail(_explain_escape(error) if missing is None else str(missing))
        return 1 if missing is None else 2


def _explain_escape(error: Exception) -> str:
    """Format one line for an unexpected error: the fault of an outside part that was at work, else a bug."""
    if outside_place(error) is not None:
        return f"{describe_error(error)}; run again with {DEBUG}=1 for the traceback"
    if outside_parts():
        parts = ", ".join(outside_parts())
        return f"{describe_error(error)} (with parts from outside: {parts}; {DEBUG}=1 prints the traceback)"
    return f"{type(error).__name__}: {error} (a bug of collab: run again with {DEBUG}=1 and report what it prints)"


def _explain_usage(error: typer.TyperException) -> int:
    """Format one line for an error of Typer; empty for a group without a command, which has printed its help."""
    from pydantic import ValidationError

    message = clean_line(error.format_message() if hasattr(error, "format_message") else str(error)).rstrip(".")
    context = getattr(error, "ctx", None)
    where = "" if context is None else f"; see {context.command_path} --help"
    refused = error.__cause__
    if isinstance(refused, ValidationError):  # of a number that is none, or out of range
        message += f", got {refused.errors()[0]['input']!r:.80}"
    if message:
        fail(f"{message}{where}")
    return int(getattr(error, "exit_code", 2))


def _mute(descriptor: int) -> None:
    """Point a broken descriptor at /dev/null, so that Python's own last flush is silent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
