"""State that a command can read and change, and its answer.

A command is a function of the session, its arguments (without its name) and its standard input.

Reading command-line arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from collab.envs.simphone.shell import tree
from collab.envs.simphone.state import Phone

SHELL = "/system/bin/sh"
MAX_COMMANDS = 5_000
MAX_OUTPUT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """Result of a command line."""

    phone: Phone
    """The phone afterwards."""
    stdout: str
    stderr: str
    exit_code: int
    output: str
    """Both streams in the order in which they were written, as a terminal shows them."""

    @property
    def output_bytes(self) -> bytes:
        """`output` as bytes; what is no text (a picture) comes back as it was."""
        return tree.encode(self.output)


class Output(NamedTuple):
    """Output and exit code of one command."""

    out: str = ""
    err: str = ""
    code: int = 0


@dataclass(slots=True)
class ShellSession:
    """One shell while it runs."""

    phone: Phone
    cwd: str = "/"
    variables: dict[str, str] = field(default_factory=dict)
    status: int = 0
    """Exit code of the last command."""
    selected: bool = False
    """Whether all text of the focused field is selected, so that the next key replaces it."""
    budget: int = MAX_COMMANDS
    room: int = MAX_OUTPUT
    log: list[tuple[Literal["out", "err"], str]] = field(default_factory=list)

    def path(self, path: str) -> str:
        """Return a path as given, made normal."""
        return tree.normalise(path, self.cwd)


CommandFunction: TypeAlias = Callable[[ShellSession, list[str], str], Output]
"""(session, arguments without the name, standard input) → what it did."""


class Stop(Exception):
    """Ends the run: `exit`, or a bound that was reached."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code


def split_flags(args: Iterable[str], with_value: str = "") -> tuple[dict[str, str], list[str]]:
    """Split off short flags: `-rf -n 5 x` with `with_value="n"` → ({"r": "", "f": "", "n": "5"}, ["x"]).

    Flags may stand anywhere; what follows `--` is no flag. Long options keep their name without the dashes.
    """
    flags: dict[str, str] = {}
    rest: list[str] = []
    waiting = iter(args)
    for arg in waiting:
        if arg == "--":
            rest.extend(waiting)
        elif arg.startswith("--"):
            name, _, value = arg[2:].partition("=")
            flags[name] = value
        elif len(arg) > 1 and arg.startswith("-"):
            # Flags may be joined; one with a value takes the rest of its word, or the next.
            for place, letter in enumerate(arg[1:], start=1):
                if letter in with_value:
                    flags[letter] = arg[place + 1 :] or next(waiting, "")
                    break
                flags[letter] = ""
        else:
            rest.append(arg)
    return flags, rest


def parse_whole(text: str) -> int | None:
    """Return a whole number of sensible size; None for anything else."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 16 else None
