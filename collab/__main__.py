"""The console script `collab`: load the commands and run one; a Ctrl-C during loading prints one line, too."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the console script."""
    try:
        from collab.utils.progress import begin

        begin()
        from collab.cli.main import run as command
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    command()


if __name__ == "__main__":
    run()
