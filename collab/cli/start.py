"""The console script `collab`: load the commands and run one; a Ctrl-C while they are loaded is one line, too."""

from __future__ import annotations

import os
import sys


def run() -> None:
    """Entry point of the console script."""
    # Idle threads of torch's OpenMP sleep instead of spinning: beside other programs spinning costs most of the time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from collab.cli.herald import begin

        begin()
        from collab.cli.main import run as command
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    command()


if __name__ == "__main__":
    run()
