"""Commands of `collab`, one after the other or several side by side.

    with Commands(jobs=2) as run:
        exit_code = run("full/seed-0/train", ["train-marl", …])     # of any thread

A single command has the terminal for itself. Of several, each line is told with the name that it was begun under, and
each has its share of the processors unless OMP_NUM_THREADS says how many threads a process is to have.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType, TracebackType

from collab.errors import UsageError


class Commands:
    """Runs `collab`: the program that COLLAB names, or the one of this Python.

    Where this process is told to end, what runs is asked to stop in good order, rather than left to work on alone.

    Args:
        jobs: how many run side by side at most.
    """

    def __init__(self, jobs: int = 1) -> None:
        self._jobs = jobs
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Commands:
        self._before = signal.signal(signal.SIGTERM, self._end)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def __call__(self, name: str, words: Sequence[str]) -> int:
        """Run one until it ends.

        Args:
            name: before each of its lines, where it is not alone.
            words: all but the name of the program.

        Returns:
            Its exit code.

        Raises:
            UsageError: the program cannot be run.
        """
        head = "" if self._jobs == 1 else f"{name} | "
        print(f"{head}$ {shlex.join(['collab', *words])}", flush=True)
        with self._begun(words) as process:
            self._running.append(process)
            try:
                for line in process.stdout or ():
                    sys.stdout.write(f"{head}{line.decode(errors='replace').rstrip()}\n")
                    sys.stdout.flush()
                return process.wait()
            finally:
                self._running.remove(process)

    def _begun(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        program = os.environ.get("COLLAB", os.path.join(os.path.dirname(sys.executable), "collab"))
        alone = self._jobs == 1
        threads = {} if alone else {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self._jobs))}
        try:
            return subprocess.Popen(
                [program, *words],
                env={**threads, **os.environ},
                stdout=None if alone else subprocess.PIPE,
                stderr=None if alone else subprocess.STDOUT,
            )
        except OSError as error:
            raise UsageError(
                f"{program}: cannot be run ({error.strerror}); install Collab beside this Python, or name the program: "
                "COLLAB=PATH"
            ) from None

    def _end(self, number: int, frame: FrameType | None) -> None:
        for process in list(self._running):
            process.send_signal(signal.SIGINT)
