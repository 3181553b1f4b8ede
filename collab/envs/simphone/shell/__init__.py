"""The phone's shell, as `adb shell` reaches it: pure functions from (phone, command) to (phone, output).

    result = run(phone, "settings put global airplane_mode_on 1 && settings get global airplane_mode_on")
    result.phone, result.stdout, result.stderr, result.exit_code

It knows the commands that AndroidWorld, uiautomator2 and people use; anything else is "inaccessible or not found",
exit code 127. Nothing on the machine it runs on is read or written.

    words, syntax       the grammar                  session, interpreter   running it
    tree                the file system              sandbox                SQLite on bytes in memory
    files, finding      coreutils on files           text                   coreutils on text
    system, services    settings, clock, dumpsys     activities, packages   am, monkey, pm
    sql, provider       sqlite3, content             keys                   input
    gestures            what fingers do, shared with the uiautomator face
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
