"""The phone's shell, as `adb shell` reaches it: pure functions from (phone, command) to what it answers.

    result = run(phone, "settings put global airplane_mode_on 1 && settings get global airplane_mode_on")
    result.phone, result.stdout, result.stderr, result.exit_code

It knows the commands that AndroidWorld, uiautomator2 and people use; anything else is "inaccessible or not found",
exit code 127. Nothing on the machine it runs on is read or written.

    syntax        the grammar          interpreter   running it: pipes, redirections, expansion
    tree          the file system      sandbox       SQLite on bytes in memory
    files, text   coreutils            system        settings, properties, clock, dumpsys
    activities    am, monkey           packages      pm           provider  content, sqlite3
    keys          input                gestures      what fingers do, shared with the uiautomator face
"""

from __future__ import annotations

from collab.envs.phone.shell.commands import COMMANDS, console
from collab.envs.phone.shell.interpreter import ShellResult, execute
from collab.envs.phone.state import Phone

__all__ = ["ShellResult", "console", "run"]


def run(phone: Phone, command: str) -> ShellResult:
    """Run a command line; never raises for what stands in it."""
    return execute(phone, command, COMMANDS)
