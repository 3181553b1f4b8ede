"""What a command can use and change, and what it answers.

A command is a function of the session, its arguments (without its name) and its standard input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from collab.envs.phone.shell import tree
from collab.envs.phone.state import Phone

SHELL = "/system/bin/sh"
MAX_COMMANDS = 5_000
MAX_OUTPUT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """What a command line did."""

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


class Done(NamedTuple):
    """What one command wrote and its exit code."""

    out: str = ""
    err: str = ""
    code: int = 0


@dataclass(slots=True)
class Session:
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
        """A path as given, made normal."""
        return tree.normal(path, self.cwd)


Command: TypeAlias = Callable[[Session, list[str], str], Done]
"""(session, arguments without the name, standard input) → what it did."""


class Stop(Exception):
    """Ends the run: `exit`, or a bound that was reached."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
