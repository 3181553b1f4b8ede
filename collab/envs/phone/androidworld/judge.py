"""AndroidWorld's judgement, from a process that runs under AndroidWorld's own interpreter.

Its packages clash with ours, so the two never share a process: requests and replies are JSON lines on the child's
standard input and output, which nobody else can reach, and the child finds the phone on the loopback adb server.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collab.errors import EnvironmentFailure, UsageError

CLIENT = Path(__file__).parent / "client" / "simphone_judge.py"
TIMEOUT_S = 120.0
"""For one request; starting takes seconds, anything else less than one."""
MAX_REPLY = 16 * 1024 * 1024


class Refused(Exception):
    """AndroidWorld's code raised; the message says what."""


class Judge:
    """A running judge; see `judging`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def ask(self, do: str, **values: Any) -> Mapping[str, Any]:
        """Send a request and wait for its reply; what can be asked stands at the top of `client/simphone_judge.py`.

        Raises:
            Refused: AndroidWorld raised.
            EnvironmentFailure: the process died, or took too long and was ended.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: the reply below is empty and tells
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
        reply = self.reply(do)
        if not reply["ok"]:
            raise Refused(reply["error"])
        return reply

    def reply(self, do: str) -> Mapping[str, Any]:
        """The next reply; EnvironmentFailure when none comes."""
        assert self._process.stdout is not None
        timer = threading.Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline(MAX_REPLY)
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            said = last[0] if last else "it said nothing"
            raise EnvironmentFailure(f"AndroidWorld's process ended during {do!r}: {said} (all of it: {self._log})")
        reply: Mapping[str, Any] = json.loads(line)
        return reply


@contextlib.contextmanager
def judging(python: Path, package: Path, *, port: int, serial: str, log: Path) -> Iterator[Judge]:
    """A judge of the phone `serial` on the adb server at `port`, while the block runs.

    Args:
        python: AndroidWorld's interpreter.
        package: folder that holds `android_world`, its protocol buffers compiled.
        log: file for what AndroidWorld prints.

    Raises:
        UsageError: the package or the interpreter is not there.
        EnvironmentFailure: AndroidWorld cannot be imported; the message has the last line it printed.
    """
    if not (package / "android_world" / "registry.py").is_file():
        raise UsageError(f"AndroidWorld: no android_world/registry.py in {package}; give the folder of its source code")
    command = [str(python), str(CLIENT), "--package", str(package), "--port", str(port), "--serial", serial]
    with log.open("w", encoding="utf-8") as printed:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, encoding="utf-8"
            )
        except OSError as problem:
            raise UsageError(f"AndroidWorld: interpreter {python}: {problem.strerror}") from None
        try:
            judge = Judge(process, log)
            judge.reply("start-up")
            yield judge
        finally:
            process.kill()
            _close(process)


def _close(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # a request that it did not live to read
        process.stdin.close()
    process.stdout.close()
    process.wait()
