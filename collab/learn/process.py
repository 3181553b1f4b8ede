"""One of several processes that train a run together: started by a launcher, told everything by the run's directory.

    accelerate launch --num_processes 2 -m collab.learn.process OUT --device cpu --while-alive 4242

It stops with a checkpoint when `OUT/stop` is there, or when the process that wanted it is gone. Exit codes are those of
the command line: 0 (trained, or stopped), 1 (failed while working), 2 (cannot be trained), with the reason in one line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from collab.errors import CollabError, Diverged, TrainingFailure
from collab.learn.data import read_data
from collab.learn.finetune import Result, check_same, train
from collab.learn.folder import RunFolder
from collab.learn.prepare import levels_of, prepare, task_of, world

STOP = "stop"
"""A file of this name in a run's directory asks its processes to stop."""
ERROR = "error: "
"""Begins the line that says what went wrong …"""
DIVERGED = "diverged: "
"""… and this one that of a loss that is no number."""


def train_as_asked(folder: RunFolder, device: str, wanted: Callable[[], bool], report_to: Sequence[str] = ()) -> Result:
    """Go on with a run as its manifest says.

    Args:
        device: as `finetune.train`.
        wanted: asked after every step; False stops with a checkpoint.
        report_to: as `finetune.train`.

    Raises:
        UsageError: base, data, order or number of processes are not those of the manifest.
        RunError: as `finetune.train`.
    """
    manifest = folder.manifest()
    task = task_of(manifest)
    rows = read_data([Path(one) for one in task.data], levels_of(task), max_broken=task.max_broken).rows
    prepared = prepare(task, rows)
    check_same(prepared, manifest)
    return train(
        prepared,
        folder,
        device=device,
        stopping=lambda: (folder.path / STOP).exists() or not wanted(),
        report_to=report_to,
    )


def is_alive(process: int) -> bool:
    """Whether a process is there, whoever owns it."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m collab.learn.process")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--while-alive", type=int, required=True, metavar="PROCESS")
    parser.add_argument("--resume", metavar="COMMAND", help="goes on with the run; told where it fails")
    parser.add_argument("--report-to", action="append", default=[], metavar="NAME")
    asked = parser.parse_args(arguments)
    folder = RunFolder(asked.out, asked.resume)
    try:
        train_as_asked(folder, asked.device, lambda: is_alive(asked.while_alive), asked.report_to)
    except CollabError as error:
        if world()[0] == 0 or type(error) is TrainingFailure:  # which may befall one of them alone
            why = f"{DIVERGED}{error.what}" if isinstance(error, Diverged) else f"{ERROR}{error}"
            os.write(2, f"{why}\n".encode())
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
