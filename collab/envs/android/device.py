"""Any phone or emulator that adb reaches, as an environment, through uiautomator2.

    suite = DeviceSuite(serial="emulator-5554", tasks=Path("my-phone.yaml"), allow_apps=["Settings"])

What happens on a device stays there: nothing is undone, an episode cannot be rebuilt, and the seed changes nothing.
An episode begins on the home screen, with the task's allowed apps stopped. Every action is logged before it is
executed; what may be touched is decided by `device_guard`.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from collab.envs.actions import MOBILE
from collab.envs.android.app_names import allowed_apps, package_of, title_of
from collab.envs.android.device_drive import Driver
from collab.envs.android.device_guard import confirmed, judge
from collab.envs.android.device_screen import Screen, observe
from collab.envs.android.device_tasks import DeviceTask, load_tasks
from collab.envs.android.device_tasks import judge as judge_end
from collab.envs.base import TaskInfo
from collab.errors import ConfigError, EnvironmentFailure, UnknownName, UsageError, boundary
from collab.types import Action, ElementTarget, Observation, Outcome, StepResult, Task

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")
NAME = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """What a suite's environments share; `DeviceSuite` describes the fields."""

    serial: str | None
    adb_host: str
    adb_port: int | None
    allowed: dict[str, str]
    """Name → package."""
    allow_effects: bool
    settle_s: float
    answer_timeout_s: float


class DeviceSuite:
    """Tasks on a device.

    Args:
        serial: as `adb devices` shows it; None for the only one.
        adb_host: where the adb server listens.
        adb_port: its port; None for ANDROID_ADB_SERVER_PORT or 5037.
        tasks: a YAML file with the key `tasks`, or the list itself (see `device_tasks`).
        allow_apps: apps that may be touched: names, packages or "Name=package".
        allow_effects: also send, call, buy, delete and grant permissions; False asks at the terminal each time, and
            refuses where there is none.
        settle_s: how long the screen may go on changing after an action.
        answer_timeout_s: a device that does not answer for so long is lost.
    """

    name = NAME
    version = "device-1"
    space = MOBILE
    capabilities = frozenset({"screenshot"})
    most_environments = 1

    def __init__(
        self,
        *,
        serial: str | None = None,
        adb_host: str = "127.0.0.1",
        adb_port: int | None = None,
        tasks: Path | list[dict[str, Any]],
        allow_apps: list[str],
        allow_effects: bool = False,
        settle_s: float = 2.0,
        answer_timeout_s: float = 60.0,
    ) -> None:
        self._tasks = {task.name: task for task in load_tasks(tasks)}
        self._options = DeviceOptions(
            serial=serial,
            adb_host=adb_host,
            adb_port=adb_port,
            allowed=allowed_apps(allow_apps),
            allow_effects=allow_effects,
            settle_s=settle_s,
            answer_timeout_s=answer_timeout_s,
        )
        for task in self._tasks.values():
            allowed = self._options.allowed
            if task.start is not None and package_of(task.start, allowed) not in allowed.values():
                raise ConfigError(f"device task {task.name}: starts {task.start!r}, which is not in allow_apps")
        self._open: DeviceEnvironment | None = None
        self._connecting = asyncio.Lock()

    @property
    def label(self) -> str:
        """Name of the device, e.g. "device[emulator-5554]"; "device[any]" for the only one there is."""
        return f"device[{self._options.serial or 'any'}]"

    def tasks(self) -> Sequence[TaskInfo]:
        """All tasks, in the order of the file."""
        return [
            TaskInfo(
                name=task.name,
                apps=tuple(task.apps),
                difficulty=task.difficulty,
                max_steps=task.max_steps,
                tags=tuple(task.tags),
            )
            for task in self._tasks.values()
        ]

    def instance(self, name: str, seed: int) -> Task:
        """The task; every seed gives the same. UnknownName when there is none."""
        if name not in self._tasks:
            raise UnknownName.of("task", name, self._tasks)
        task = self._tasks[name]
        return Task(
            environment=NAME,
            name=name,
            seed=seed,
            goal=task.goal,
            max_steps=task.max_steps,
            difficulty=task.difficulty,
            apps=tuple(task.apps),
        )

    async def open(self) -> DeviceEnvironment:
        """Connect to the device.

        Raises:
            UsageError: it already runs an episode, or is not there.
            MissingExtra: uiautomator2 is not installed.
            EnvironmentFailure: it does not answer.
        """
        async with self._connecting:
            if self._open is not None and not self._open.closed:
                raise UsageError(f"{self.label}: one device plays one episode at a time; use --concurrency 1")
            options = self._options
            driver = await _call(
                lambda: Driver(serial=options.serial, adb_host=options.adb_host, adb_port=options.adb_port),
                f"{self.label}: connecting",
                options.answer_timeout_s,
            )
            self._open = DeviceEnvironment(driver, options, self._tasks)
            return self._open

    async def close(self) -> None:
        """Let the device go."""
        if self._open is not None:
            await self._open.close()


class DeviceEnvironment:
    """One device behind the `Environment` protocol; also `HasScreenshot`."""

    space = MOBILE

    def __init__(self, driver: Driver, options: DeviceOptions, tasks: dict[str, DeviceTask]) -> None:
        self._driver, self._options, self._tasks = driver, options, tasks
        self._label = f"device[{driver.serial}]"
        self._task: DeviceTask | None = None
        self._observation: Observation | None = None
        self._package = ""
        self._answer: str | None = None
        self._steps = 0
        self.closed = False
        """Whether `close` was called."""

    async def reset(self, task: Task) -> Observation:
        """Stop the task's allowed apps, go home, open the app it starts in."""
        if task.name not in self._tasks:
            raise UnknownName.of("task", task.name, self._tasks)
        self._task = self._tasks[task.name]
        self._steps, self._answer = 0, None
        await self._do(partial(self._prepare, self._task), "starting")
        return await self._look()

    async def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits a second."""
        if self._task is None or self._observation is None or self.closed:
            raise EnvironmentFailure(f"{self._label}: step without a running episode; call reset(task) first")
        self._steps += 1
        action = MOBILE.canonical(action or MOBILE.make("wait"), self._observation)
        if action.type == "status":
            return self._ended(self._task, self._observation, str(action["goal_status"]))
        before = self._observation
        words = await self._execute(action, before)
        after = await self._look()
        return self._result(self._task, after, words or _effect(before, after, action))

    async def screenshot(self, marks: bool = False) -> bytes:
        """The present screen as PNG bytes; `marks` draws a numbered box on every element seen last."""
        picture = await self._do(self._driver.picture, "screenshot")
        buffer = io.BytesIO()
        picture.convert("RGB").save(buffer, "PNG", compress_level=1)
        if not marks or self._observation is None:
            return buffer.getvalue()
        from collab.envs.marks import mark_png  # Pillow loads only when somebody looks

        return mark_png(buffer.getvalue(), self._observation)

    async def close(self) -> None:
        """Let the device go; it stays as it is."""
        self.closed = True
        self._task = None

    # -------------------------------------------------------------------------------------------------- internal

    def _prepare(self, task: DeviceTask) -> None:
        allowed = self._options.allowed
        names = [*task.apps, *([task.start] if task.start else [])]
        for package in {package_of(name, allowed) for name in names} & set(allowed.values()):
            self._driver.stop(package)
        self._driver.home()
        if task.start is not None:
            self._driver.start(package_of(task.start, allowed))

    async def _look(self) -> Observation:
        def look() -> tuple[Screen, str, str | None]:
            return self._driver.screen(self._options.settle_s), self._driver.package(), self._driver.toast()

        screen, package, notice = await self._do(look, "looking")
        self._package = package or screen.package
        app = title_of(self._package, self._options.allowed)
        size = {"width": self._driver.width, "height": self._driver.height}
        self._observation = observe(screen, app=app, notice=notice, **size)
        return self._observation

    async def _execute(self, action: Action, observation: Observation) -> str | None:
        """Do it, unless it is not allowed; what to tell instead of what the screen did."""
        if action.type == "answer":
            self._answer = str(action["text"])
            return "noted the answer"
        if isinstance(action.target, ElementTarget) and action.target.index >= len(observation.elements):
            return f"nothing changed: the screen has no element {action.target.index}"
        verdict = judge(action, observation, self._package, self._options.allowed)
        refused = verdict.refused
        if refused is None and verdict.effect is not None and not self._options.allow_effects:
            agreed = await asyncio.to_thread(confirmed, f"{self._label}: {verdict.effect}")
            refused = None if agreed else f"{verdict.effect} needs allow_effects"
        words = MOBILE.describe(action, observation)
        if refused is not None:
            logger.warning("%s step %d: refused: %s (%s)", self._label, self._steps, words, refused)
            return f"nothing changed: {refused}"
        logger.info("%s step %d: %s", self._label, self._steps, words)
        enter = verdict.enter or self._options.allow_effects
        await self._do(lambda: self._driver.perform(action, observation, self._options.allowed, enter=enter), words)
        return "typed without Enter, which could send: allow_effects" if _cut(action, enter) else None

    def _ended(self, task: DeviceTask, observation: Observation, status: str) -> StepResult:
        if status == "complete":
            outcome = judge_end(task.success, observation, self._package, self._answer)
        else:
            outcome = Outcome(success=False, score=0.0, reason="the agent called the task infeasible")
        self._task = None
        info = {"effect": f"declared the task {status}"}
        return StepResult(observation=observation, terminated=True, outcome=outcome, info=info)

    def _result(self, task: DeviceTask, observation: Observation, words: str) -> StepResult:
        info = {"effect": words}
        if self._steps < task.max_steps:
            return StepResult(observation=observation, info=info)
        self._task = None
        outcome = Outcome(success=False, score=0.0, reason="the step budget ended before the agent said status")
        return StepResult(observation=observation, truncated=True, outcome=outcome, info=info)

    async def _do(self, function: Callable[[], AnswerT], what: str) -> AnswerT:
        return await _call(function, f"{self._label}: {what}", self._options.answer_timeout_s)


async def _call(function: Callable[[], AnswerT], what: str, timeout_s: float) -> AnswerT:
    """Run a blocking call in a thread; whatever a device throws becomes an EnvironmentFailure."""
    with boundary(EnvironmentFailure, what):
        return await asyncio.wait_for(asyncio.to_thread(function), timeout_s)


def _cut(action: Action, enter: bool) -> bool:
    return action.type == "input_text" and not enter


def _effect(before: Observation, after: Observation, action: Action) -> str:
    """What the screen did, in a few words for the history."""
    if after.notice:
        return f'the phone said "{after.notice}"'
    if action.type == "wait":
        return "one second passed"
    if after.title != before.title:
        return f"opened {after.title}"
    return "the screen changed" if after.text != before.text else "nothing visible changed"
