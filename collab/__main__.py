"""The console script `collab`: load the commands and run one; a Ctrl-C while they are loaded is one line, too."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point of the console script."""
    try:
        from collab.utils.progress import begin

        begin()
        from collab.cli.main import run as command
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    command()


if __name__ == "__main__":
    run()
