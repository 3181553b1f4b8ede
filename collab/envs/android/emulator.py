"""AndroidWorld on its own emulator, through a helper in the user's own AndroidWorld environment.

    suite = EmulatorSuite(python=Path("~/androidworld/.venv/bin/python"))

AndroidWorld pins packages that clash with ours, so it is never imported here: `androidworld_helper` runs it. Tasks,
parameters and goals are those of its registry and instance seeds, checks are its own. Needs a running emulator
(Pixel 6, API 33; console port 5554, gRPC 8554), which is AndroidWorld's to change: nothing on it is off limits.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from collab.envs.actions import MOBILE
from collab.envs.android.androidworld_environment import AndroidWorldEnvironment, Look
from collab.envs.android.androidworld_screen import read_screen
from collab.envs.android.helper_process import HelperProcess
from collab.envs.base import TaskInfo
from collab.errors import UnknownName, UsageError
from collab.types import Task

logger = logging.getLogger(__name__)

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
        """AndroidWorld's tasks by name; starts the helper.

        Raises:
            UsageError: AndroidWorld cannot be imported there, or lacks what is needed.
            EnvironmentFailure: the helper failed.
        """
        if self._infos is None:
            told = self._helper.ask("tasks")
            for one in told:
                if "broken" in one:
                    logger.warning("%s: %s is left out: %s", LABEL, one["name"], one["broken"])
            self._infos = {one["name"]: _info(one) for one in told if "broken" not in one}
        return list(self._infos.values())

    def instance(self, name: str, seed: int) -> Task:
        """The instance that AndroidWorld draws with this instance seed; UnknownName when it has no such task."""
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


def _info(told: dict[str, Any]) -> TaskInfo:
    return TaskInfo(
        name=told["name"],
        apps=tuple(told["apps"]),
        difficulty=told["difficulty"],
        max_steps=told["max_steps"],
        tags=tuple(told["tags"]),
    )
