"""AndroidWorld on its own emulator, through a helper in the user's own AndroidWorld environment.

    suite = EmulatorSuite(python=Path("~/androidworld/.venv/bin/python"))

AndroidWorld pins packages that clash with ours, so it is never imported here: `androidworld_helper` runs it. Tasks,
parameters and goals are those of its registry and instance seeds, checks are its own. Needs a running emulator
(Pixel 6, API 33; console port 5554, gRPC 8554), which is AndroidWorld's to change: nothing on it is off limits.

The helper that runs AndroidWorld in its own environment, as this side sees it.

    helper = HelperProcess(Path("aw/bin/python"), family="android_world", package=None, timeout_s=300)
    helper.ask("tasks")

Calls block and are made one at a time. The process starts with the first question and is ended by `stop`, by a question
that takes too long, or by itself; the next question starts another one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from collab.envs.android.androidworld import AndroidWorldEnvironment, Look, read_screen
from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.types import Task

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
        self._running: _RunningHelper | None = None
        self._one_at_a_time = threading.Lock()

    def ask(self, what: str, **details: Any) -> Any:
        """Ask one question; see the helper for what there is.

        Raises:
            UsageError: AndroidWorld, adb or the emulator is not there, or there is no such task.
            EnvironmentFailure: AndroidWorld failed, died, or took too long.
        """
        with self._one_at_a_time:
            if self._running is None:
                self._running = _RunningHelper(self._command)
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
            said = self._running.send_request({"ask": what, **details}, self._timeout_s)
            answer = json.loads(said)
        except (OSError, ValueError, TimeoutError) as error:
            # A helper that does not answer is ended: its next answer would be to an old question.
            tail = " | ".join(self._running.tail)
            self._running.end(0)
            self._running = None
            raise EnvironmentFailure(
                f"AndroidWorld helper: {what}: {error}" + (f"; it said: {tail}" * bool(tail))
            ) from None
        if "error" not in answer:
            return answer["result"]
        kind, message = answer["error"]["kind"], answer["error"]["message"]
        # A helper of another version cannot be used for anything else.
        if what == "hello":
            self._running.end(0)
            self._running = None
        # What the machine lacks is the user's to mend; anything else is a failure of the episode.
        if kind in _ABOUT_THE_MACHINE:
            raise UsageError(f"androidworld[emulator]: {message}")
        raise EnvironmentFailure(f"AndroidWorld: {what}: {message}")


class _RunningHelper:
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
        # Read in threads: a full pipe would stop the helper.
        self._errors = threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True)
        self._errors.start()
        threading.Thread(target=self._read_answers, args=(self._process.stdout,), daemon=True).start()

    def send_request(self, question: dict[str, Any], timeout_s: float) -> str:
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


NAME = "androidworld"
LABEL = "androidworld[emulator]"


class EmulatorSuite:
    """AndroidWorld's tasks on its emulator.

    Args:
        python: interpreter of the environment that has AndroidWorld; None is an error that says so.
        package: checkout of AndroidWorld, where it is not installed in that environment.
        console_port: of the running emulator.
        grpc_port: of the same emulator.
        adb_path: the adb to use; None looks where Android Studio puts it, then on the PATH.
        family: AndroidWorld's suite family.
        emulator_setup: let AndroidWorld install its apps first; once per emulator.
        freeze_datetime: stop the emulator's clock at AndroidWorld's date.
        answer_timeout_s: AndroidWorld must have answered by then; preparing a task takes a minute.
    """

    name = NAME
    label = LABEL
    version = "androidworld-emulator-1"
    space = MOBILE
    capabilities = frozenset({"screenshot"})
    most_environments = 1

    def __init__(
        self,
        *,
        python: Path | None = None,
        package: Path | None = None,
        console_port: int = 5554,
        grpc_port: int = 8554,
        adb_path: str | None = None,
        family: Literal["android_world", "android", "information_retrieval"] = "android_world",
        emulator_setup: bool = False,
        freeze_datetime: bool = True,
        answer_timeout_s: float = 600.0,
    ) -> None:
        # Its own Python, as AndroidWorld's packages do not fit into ours.
        if python is None:
            raise UsageError(
                f"{LABEL}: no Python with AndroidWorld was given; name it in your own envs/androidworld.yaml (option "
                "python) or with --set environment.backends.emulator.options.python=PATH/bin/python"
            )
        self._helper = HelperProcess(python, family=family, package=package, timeout_s=answer_timeout_s)
        self._connection: dict[str, Any] = {
            "console_port": console_port,
            "grpc_port": grpc_port,
            "adb_path": adb_path,
            "emulator_setup": emulator_setup,
            "freeze_datetime": freeze_datetime,
        }
        self._infos: dict[str, TaskInfo] | None = None
        self._open: AndroidWorldEnvironment | None = None

    def tasks(self) -> Sequence[TaskInfo]:
        """Return AndroidWorld's tasks by name; starts the helper.

        Raises:
            UsageError: AndroidWorld cannot be imported there, or lacks what is needed.
            EnvironmentFailure: the helper failed.
        """
        if self._infos is None:
            told = self._helper.ask("tasks")
            for one in told:
                if "broken" in one:
                    logger.warning("%s: %s is left out: %s", LABEL, one["name"], one["broken"])
            self._infos = {one["name"]: _read_info(one) for one in told if "broken" not in one}
        return list(self._infos.values())

    def instance(self, name: str, seed: int) -> Task:
        """Return the instance that AndroidWorld draws with this instance seed; UnknownName when it has no such task."""
        infos = {info.name: info for info in self.tasks()}
        if name not in infos:
            raise UnknownName.of("task", name, infos, "see them with: collab env tasks androidworld --backend emulator")
        told = self._helper.ask("instance", name=name, seed=seed)
        return Task(
            environment=NAME,
            name=name,
            seed=seed,
            goal=told["goal"],
            params=told["params"],
            max_steps=told["max_steps"],
            difficulty=infos[name].difficulty,
            apps=tuple(told["apps"]),
        )

    async def open(self) -> AndroidWorldEnvironment:
        """Connect to the emulator.

        Raises:
            UsageError: there is none, no adb, or it already runs an episode.
            EnvironmentFailure: AndroidWorld cannot work with it.
        """
        if self._open is not None and not self._open.closed:
            raise UsageError(f"{LABEL}: one emulator plays one episode at a time; use --concurrency 1")
        await asyncio.to_thread(partial(self._helper.ask, "connect", **self._connection))
        self._open = AndroidWorldEnvironment(_Emulator(self._helper, self._connection))
        return self._open

    async def close(self) -> None:
        """Let the emulator go and end the helper."""
        await asyncio.to_thread(self._helper.stop)


class _Emulator:
    """The helper as `Remote`."""

    label = LABEL

    def __init__(self, helper: HelperProcess, connection: dict[str, Any]) -> None:
        self._helper, self._connection = helper, connection

    def begin(self, task: Task) -> str:
        self._helper.ask("connect", **self._connection)  # a helper that died is a new one now
        return str(self._helper.ask("begin", name=task.name, seed=task.seed)["goal"])

    def look(self) -> Look:
        observation, numbers = read_screen(self._helper.ask("look"))
        return Look(observation=observation, numbers=numbers)

    def picture(self) -> bytes:
        return base64.b64decode(self._helper.ask("picture")["png"])

    def act(self, fields: dict[str, Any]) -> str | None:
        refused = self._helper.ask("act", action=fields).get("refused")
        return None if refused is None else str(refused)

    def finish(self, *, judge: bool) -> float | None:
        told = self._helper.ask("finish", judge=judge)
        if "trouble" in told:
            logger.warning("%s: the task could not be torn down: %s", LABEL, told["trouble"])
        return None if told["score"] is None else float(told["score"])


def _read_info(told: dict[str, Any]) -> TaskInfo:
    return TaskInfo(
        name=told["name"],
        apps=tuple(told["apps"]),
        difficulty=told["difficulty"],
        max_steps=told["max_steps"],
        tags=tuple(told["tags"]),
    )
