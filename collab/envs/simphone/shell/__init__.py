"""The phone's shell, as `adb shell` reaches it: pure functions from (phone, command) to (phone, output).

    result = run(phone, "settings put global airplane_mode_on 1 && settings get global airplane_mode_on")
    result.phone, result.stdout, result.stderr, result.exit_code

It knows the commands that AndroidWorld, uiautomator2 and people use; anything else is "inaccessible or not found",
exit code 127. Nothing on the machine it runs on is read or written.

    syntax       the grammar                         interpreter   running a command line
    session      what a command uses and answers     commands      every command by name
    tree         the file system                     files, text   coreutils on files and on text
    system       settings, clock, dumpsys            apps          am, monkey, pm
    content      content providers, sqlite3          input         fingers and keys
"""

from __future__ import annotations

from collab.envs.simphone.shell.commands import COMMANDS, console
from collab.envs.simphone.shell.interpreter import execute
from collab.envs.simphone.shell.session import ShellResult
from collab.envs.simphone.state import Phone

__all__ = ["ShellResult", "console", "run"]


def run(phone: Phone, command: str) -> ShellResult:
    """Run a command line; never raises for what stands in it."""
    return execute(phone, command, COMMANDS)
