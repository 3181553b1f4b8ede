"""Any phone or emulator that adb reaches, as an environment, through uiautomator2.

    suite = DeviceSuite(serial="emulator-5554", tasks=Path("my-phone.yaml"), allow_apps=["Settings"])

Tasks are the owner's own, judged by the last screen, or the device's: a SimPhone that `collab phone serve` shows sets
up and judges AndroidWorld-named tasks itself. On any other device nothing can set those up, so asking for them is an
error. What may be touched is decided by `device_guard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from collab.envs.actions import MOBILE
from collab.envs.android.app_names import allowed_apps, package_of
from collab.envs.android.device_adb import Place, find, noticing_its_end
from collab.envs.android.device_carried import CarriedTasks
from collab.envs.android.device_drive import Driver
from collab.envs.android.device_environment import DeviceEnvironment, DeviceOptions, call
from collab.envs.android.device_tasks import DeviceTask, DeviceTasks, OwnTasks, load_tasks
from collab.envs.base import TaskInfo
from collab.errors import ConfigError, UsageError
from collab.types import Task


class DeviceSuite:
    """Tasks on a device.

    Args:
        environment: name that results carry: "device[SERIAL]" or "androidworld[device SERIAL]".
        serial: as `adb devices` shows it; None for the only one.
        adb_host: where the adb server listens.
        adb_port: its port; None for ANDROID_ADB_SERVER_PORT or 5037.
        tasks: a YAML file with the key `tasks`, or the list itself (see `device_tasks`); None for the tasks that the
            device sets up and judges itself, which only SimPhone can.
        allow_apps: apps that may be touched: names, packages or "Name=package". Needed to play; None lists tasks.
        allow_effects: also send, call, buy, delete and grant permissions; False asks at the terminal each time, and
            refuses where there is none.
        settle_s: how long the screen may go on changing after an action.
        answer_timeout_s: a device that does not answer for so long is lost.
    """

    version = "device-1"
    space = MOBILE
    capabilities = frozenset({"screenshot"})
    most_environments = 1

    def __init__(
        self,
        *,
        environment: Literal["device", "androidworld"] = "device",
        serial: str | None = None,
        adb_host: str = "127.0.0.1",
        adb_port: int | None = None,
        tasks: Path | list[dict[str, Any]] | None = None,
        allow_apps: list[str] | None = None,
        allow_effects: bool = False,
        settle_s: float = 2.0,
        answer_timeout_s: float = 60.0,
    ) -> None:
        self.name = environment
        self._place = Place(serial=serial, host=adb_host, port=adb_port)
        self._none_allowed = allow_apps is None
        self._options = DeviceOptions(
            allowed=allowed_apps(allow_apps or ()),
            allow_effects=allow_effects,
            settle_s=settle_s,
            answer_timeout_s=answer_timeout_s,
        )
        self._tasks: DeviceTasks = CarriedTasks(environment, lambda: find(self._place))
        if tasks is not None:
            own = load_tasks(tasks)
            _check_starts(own, self._options.allowed)
            self._tasks = OwnTasks(environment, own)
        self._open: DeviceEnvironment | None = None
        self._connecting = asyncio.Lock()

    @property
    def label(self) -> str:
        """Name of the device, e.g. "device[emulator-5554]"; "any" for one that was not named, until it is opened."""
        serial = self._place.serial or "any"
        return f"device[{serial}]" if self.name == "device" else f"{self.name}[device {serial}]"

    def tasks(self) -> Sequence[TaskInfo]:
        """All tasks; asks the device when they are its own (see `CarriedTasks.infos` for the errors)."""
        return self._tasks.infos()

    def instance(self, name: str, seed: int) -> Task:
        """The instance; an owner's task is the same for every seed. UnknownName when there is no such task."""
        with self._noticing():
            return self._tasks.instance(name, seed)

    async def open(self) -> DeviceEnvironment:
        """Connect to the device.

        Raises:
            UsageError: it already runs an episode, is not there, or nobody said which apps may be touched.
            MissingExtra: uiautomator2 or adbutils is not installed.
            EnvironmentFailure: it does not answer.
            EnvironmentGone: the adb server was there before and has ended.
        """
        if self._none_allowed:
            raise UsageError(f"{self.label}: name the apps that may be touched, e.g. --allow-apps Settings,Clock")
        async with self._connecting:
            if self._open is not None and not self._open.closed:
                raise UsageError(f"{self.label}: one device plays one episode at a time; use --concurrency 1")
            with self._noticing():
                driver = await call(
                    lambda: Driver(self._place), f"{self.label}: connecting", self._options.answer_timeout_s
                )
            self._place = replace(self._place, serial=driver.serial)
            self._open = DeviceEnvironment(driver, self._options, self._tasks, self.label)
            return self._open

    def _noticing(self) -> AbstractContextManager[None]:
        """An adb server that was never there is the caller's to start; one that was there and is gone has ended."""
        return nullcontext() if self._open is None else noticing_its_end(self._place)

    async def close(self) -> None:
        """Let the device go."""
        if self._open is not None:
            await self._open.close()


def _check_starts(tasks: Sequence[DeviceTask], allowed: dict[str, str]) -> None:
    for task in tasks:
        if task.start is not None and package_of(task.start, allowed) not in allowed.values():
            raise ConfigError(f"device task {task.name}: starts {task.start!r}, which is not in allow_apps")
