"""Make sure that there is a browser: find one, else install Playwright's Chromium, else the system's.

Prints the browser it settled on and exits 0, or says in one line how to get one and exits 1. The system's package
manager is used only where that needs no password.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from collab.envs.web.browser import VARIABLE, BrowserChoice, find_browser
from collab.errors import UsageError

INSTALL_TIMEOUT_S = 900
"""For one command; a download that hangs must not hang the build."""

SYSTEM: dict[str, tuple[tuple[str, ...], ...]] = {
    "apt-get": (("apt-get", "update"), ("apt-get", "install", "-y", "chromium")),
    "dnf": (("dnf", "install", "-y", "chromium"),),
    "pacman": (("pacman", "-Sy", "--noconfirm", "chromium"),),
}
"""Package managers that must be run by root, and how each installs a Chromium."""


def main() -> int:
    """Find or install; returns the exit code."""
    choice = find()
    if not works(choice) and os.environ.get(VARIABLE):
        return fail(f"the variable {VARIABLE} names a browser that does not start: {os.environ[VARIABLE]}")
    commands = installers()
    while not works(choice) and (command := next(commands, None)):
        print("+", shlex.join(command), flush=True)
        run(command)
        choice = find()
    if choice is None or not works(choice):
        return fail(
            "no browser could be installed; as a user run `.venv/bin/playwright install chromium`, "
            f"or as root `apt-get install chromium` (or your system's like), or set {VARIABLE} to the program of one"
        )
    print(f"browser: {choice.path} ({choice.version})")
    return 0


def find() -> BrowserChoice | None:
    """The browser that the project would use; None when there is none."""
    try:
        return find_browser()
    except UsageError:
        return None


def works(choice: BrowserChoice | None) -> bool:
    """Whether it starts at all: one that lacks libraries does not even tell its version."""
    return choice is not None and choice.version is not None


def installers() -> Iterator[Sequence[str]]:
    """Commands to try, one after the other, until there is a browser."""
    playwright = (sys.executable, "-m", "playwright")
    yield (*playwright, "install", "chromium")
    if shutil.which("brew"):
        yield ("brew", "install", "--cask", "chromium")
    become_root = privilege()
    if become_root is None:
        return
    if find() is not None:  # Playwright's has come, but its libraries are missing
        yield (*become_root, *playwright, "install-deps", "chromium")
    for manager, commands in SYSTEM.items():
        if shutil.which(manager):
            yield from ((*become_root, *command) for command in commands)


def privilege() -> tuple[str, ...] | None:
    """What to put before a command that only root may run; None when that is not possible without a password."""
    if os.geteuid() == 0:
        return ()
    return ("sudo", "-n") if shutil.which("sudo") and run(("sudo", "-n", "true")) else None


def run(command: Sequence[str]) -> bool:
    """Run a command with its output on the terminal and nothing to read; whether it succeeded in time."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=INSTALL_TIMEOUT_S)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def fail(message: str) -> int:
    """Say what is wrong; returns the exit code."""
    print(f"ensure_browser: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
