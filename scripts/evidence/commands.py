"""Commands of `collab`, one after the other or several side by side.

    with Commands(jobs=2) as run:
        exit_code = run("full/seed-0/train", ["train-marl", …])     # of any thread

A single command has the terminal for itself. Of several, each line is told with the name that it was begun under, and
each has its share of the processors unless OMP_NUM_THREADS says how many threads a process is to have.

Ctrl-C, and being told to end in any other way, reach what runs exactly once, from here: a command has no terminal of
its own that would tell it a second time, at which it would leave without finishing what it writes.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

from collab.errors import RunError, UsageError

_THREADS = "OMP_NUM_THREADS"


class Stopped(RunError):
    """Somebody asked for an end."""

    def __init__(self) -> None:
        super().__init__("stopped on request; give the same command again, and it goes on")


class Commands:
    """Runs `collab`: the program that COLLAB names, or the one of this Python. Entered in the main thread alone.

    Args:
        jobs: how many run side by side at most.
    """

    def __init__(self, jobs: int = 1) -> None:
        self.stopping = False
        """Whether this process was told to end: what runs was asked to stop in good order, nothing more is begun."""
        self._jobs = jobs
        self._lock = threading.RLock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._before: dict[signal.Signals, Any] = {}
        self._threads = os.environ.get(_THREADS)

    def __enter__(self) -> Commands:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._end)
        if self._jobs > 1 and self._threads is None:
            os.environ[_THREADS] = str(max(1, (os.cpu_count() or 1) // self._jobs))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._threads is None:
            os.environ.pop(_THREADS, None)

    def __call__(self, name: str, words: Sequence[str]) -> int:
        """Run one until it ends.

        Args:
            name: before each of its lines, where it is not alone.
            words: all but the name of the program.

        Returns:
            Its exit code.

        Raises:
            UsageError: the program cannot be run.
            Stopped: this process was told to end before.
        """
        head = "" if self._jobs == 1 else f"{name} | "
        with self._lock:
            if self.stopping:
                raise Stopped
            print(f"{head}$ {shlex.join(['collab', *words])}", flush=True)
            process = self._begun(words)
            self._running.append(process)
            if self.stopping:  # told while this one was begun, by the same thread
                process.send_signal(signal.SIGINT)
        with process:
            try:
                for line in process.stdout or ():
                    print(f"{head}{line.decode(errors='replace').rstrip()}", flush=True)
                return process.wait()
            finally:
                with self._lock:
                    self._running.remove(process)

    def _begun(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        program = os.environ.get("COLLAB", os.path.join(os.path.dirname(sys.executable), "collab"))
        alone = self._jobs == 1
        try:
            return subprocess.Popen(
                [program, *words],
                stdout=None if alone else subprocess.PIPE,
                stderr=None if alone else subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(
                f"{program}: cannot be run ({error.strerror}); install Collab beside this Python, or name the program: "
                "COLLAB=PATH"
            ) from None

    def _end(self, number: int, frame: FrameType | None) -> None:
        with self._lock:  # waits for other threads, so that none of theirs is begun unseen
            self.stopping = True
            for process in self._running:
                process.send_signal(signal.SIGINT)
