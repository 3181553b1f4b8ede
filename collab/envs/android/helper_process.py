"""The helper that runs AndroidWorld in its own environment, as this side sees it.

    helper = HelperProcess(Path("aw/bin/python"), family="android_world", package=None, timeout_s=300)
    helper.ask("tasks")

Calls block and are made one at a time. The process starts with the first question and is ended by `stop`, by a question
that takes too long, or by itself; the next question starts another one.
"""

from __future__ import annotations

import json
import logging
import queue
import subprocess
import threading
from collections import deque
from pathlib import Path
from typing import IO, Any

from collab.errors import EnvironmentFailure, UsageError

logger = logging.getLogger(__name__)

SCRIPT = Path(__file__).with_name("androidworld_helper.py")
_LONGEST_ANSWER = 64 * 2**20
"""Characters of one line; a picture has less than ten million."""
_TAIL = 6
"""Lines of its last words that an error repeats."""
_LAST_WORDS_S = 2.0
STOP_S = 20.0
"""How long AndroidWorld may take to let the emulator go."""
_ABOUT_THE_MACHINE = {"missing", "version", "no_adb", "no_emulator", "no_task"}
"""Kinds of errors that say what is wrong with what was asked for, not with what happened."""


class HelperProcess:
    """One helper.

    Args:
        python: of the user's AndroidWorld environment.
        family: AndroidWorld's suite family.
        package: checkout of AndroidWorld that is not installed there; None when it is.
        timeout_s: how long one answer may take.
    """

    def __init__(self, python: Path, *, family: str, package: Path | None, timeout_s: float) -> None:
        self._command = [str(python.expanduser()), "-u", str(SCRIPT)]
        self._hello = {"family": family, "package": None if package is None else str(package.expanduser().resolve())}
        self._timeout_s = timeout_s
        self._running: _Running | None = None
        self._one_at_a_time = threading.Lock()

    def ask(self, what: str, **details: Any) -> Any:
        """Ask one question; see the helper for what there is.

        Raises:
            UsageError: AndroidWorld, adb or the emulator is not there, or there is no such task.
            EnvironmentFailure: AndroidWorld failed, died, or took too long.
        """
        with self._one_at_a_time:
            if self._running is None:
                self._running = _Running(self._command)
                self._settle("hello", self._hello)
            return self._settle(what, details)

    def stop(self) -> None:
        """End the process, letting the emulator go. May be called twice."""
        with self._one_at_a_time:
            if self._running is not None:
                self._running.end(STOP_S)
                self._running = None

    def _settle(self, what: str, details: dict[str, Any]) -> Any:
        assert self._running is not None
        try:
            said = self._running.talk({"ask": what, **details}, self._timeout_s)
            answer = json.loads(said)
        except (OSError, ValueError, TimeoutError) as error:
            tail = " | ".join(self._running.tail)
            self._running.end(0)
            self._running = None
            raise EnvironmentFailure(
                f"AndroidWorld helper: {what}: {error}" + (f"; it said: {tail}" * bool(tail))
            ) from None
        if "error" not in answer:
            return answer["result"]
        kind, message = answer["error"]["kind"], answer["error"]["message"]
        if what == "hello":
            self._running.end(0)
            self._running = None
        if kind in _ABOUT_THE_MACHINE:
            raise UsageError(f"androidworld[emulator]: {message}")
        raise EnvironmentFailure(f"AndroidWorld: {what}: {message}")


class _Running:
    """The process, with a thread for each of its outputs."""

    def __init__(self, command: list[str]) -> None:
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            raise UsageError(
                f"androidworld[emulator]: {command[0]} cannot be run: {error.strerror}; the option python names "
                "the Python of your AndroidWorld environment"
            ) from None
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self._answers: queue.Queue[str] = queue.Queue()
        self._errors = threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True)
        self._errors.start()
        threading.Thread(target=self._read_answers, args=(self._process.stdout,), daemon=True).start()

    def talk(self, question: dict[str, Any], timeout_s: float) -> str:
        """Ask, and wait for the line that answers.

        Raises:
            TimeoutError: it took too long.
            OSError: the process has ended.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        if not line:
            self._errors.join(_LAST_WORDS_S)
            raise OSError(f"the process ended with code {self._process.wait()}")
        return line

    def end(self, patience_s: float) -> None:
        """Close its stdin, which ends it; kill it when it does not end in time."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(patience_s)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _read_answers(self, stream: IO[str]) -> None:
        while line := stream.readline(_LONGEST_ANSWER):
            self._answers.put(line)
        self._answers.put("")
        stream.close()

    def _read_errors(self, stream: IO[str]) -> None:
        for line in stream:
            self.tail.append(line.strip()[:200])
            logger.debug("AndroidWorld: %s", line.rstrip())
        stream.close()
