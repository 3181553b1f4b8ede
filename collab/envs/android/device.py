"""Any phone or emulator that adb reaches, as an environment, through uiautomator2.

    suite = DeviceSuite(serial="emulator-5554", tasks=Path("my-phone.yaml"), allow_apps=["Settings"])

Tasks are the owner's own, judged by the last screen, or the device's: a SimPhone that `collab phone serve` shows sets
up and judges AndroidWorld-named tasks itself. On any other device nothing can set those up, so asking for them is an
error. What may be touched is decided by `device_guard`.

One device during an episode: look, judge what may be done, log it, do it.

The screen may change by itself while agents make up their mind, or while a question waits at the terminal. So it is
looked at again before it is touched, and the touch is judged on what is there then (`device_targets`).

What happens on a device stays there: nothing is undone, and an episode cannot be rebuilt. Every action is logged
before it is executed.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from collab.envs.android.device_adb import (
    DeviceAddress,
    find,
    find_package,
    notice_lost_server,
    parse_allowed_apps,
    title_package,
)
from collab.envs.android.device_drive import KEYS, Driver
from collab.envs.android.device_guard import TOUCHING, ask_for_confirmation, judge
from collab.envs.android.device_screen import ScreenDump, observe
from collab.envs.android.device_targets import find_again
from collab.envs.android.device_tasks import CarriedTasks, DeviceTask, DeviceTasks, EpisodeEnd, OwnTasks, load_tasks
from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.envs.text import cut
from collab.errors import ConfigError, EnvironmentFailure, UsageError, boundary
from collab.types import Action, Element, ElementTarget, Observation, Outcome, StepResult, Task

if TYPE_CHECKING:
    pass


CHANGED = "the screen changed; nothing happened"
"""Effect in the history of an action whose target is gone."""


logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Objects that a suite's environments share; `DeviceSuite` describes the fields."""

    allowed: dict[str, str]
    """Name → package."""
    allow_effects: bool
    settle_s: float
    answer_timeout_s: float


class _NotDone(Exception):
    """An action that is not executed.

    Args:
        kind: "refused", or "not done" when its target is gone.
        reason: for the history.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


class DeviceEnvironment:
    """One device behind the `Environment` protocol; also `HasScreenshot` and `HasOracle`."""

    space = MOBILE

    def __init__(self, driver: Driver, options: DeviceOptions, tasks: DeviceTasks, label: str) -> None:
        self._driver, self._options, self._tasks, self._label = driver, options, tasks, label
        self._task: Task | None = None
        self._observation: Observation | None = None
        self._shown: tuple[Element, ...] = ()  # the last screen with its whole texts
        self._package = ""
        self._answer: str | None = None
        self._steps = 0
        self.closed = False
        """Whether `close` was called."""

    async def reset(self, task: Task) -> Observation:
        """Let the task begin: in its own state, or on the home screen with its allowed apps stopped."""
        self._steps, self._answer = 0, None
        await self._do(partial(self._prepare, task), "starting")
        self._task = task
        return await self._look()

    async def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits a second."""
        if self._task is None or self._observation is None or self.closed:
            raise EnvironmentFailure(f"{self._label}: step without a running episode; call reset(task) first")
        self._steps += 1
        action = MOBILE.canonical(action or MOBILE.make("wait"), self._observation)
        if action.type == "status":
            if action.get("answer") and self._answer is None:
                await self._note_answer(str(action["answer"]))
            return await self._end_episode(self._task, self._observation, str(action["goal_status"]))
        before = self._observation
        words = await self._execute(action, before)
        after = await self._look()
        return self._build_result(self._task, after, words or describe_effect(before, after, action))

    def oracle(self) -> tuple[Action, ...] | None:
        """Ask the device for the remaining best actions; () when the episode is over, None when it knows none."""
        if self._task is None:
            return ()
        with notice_lost_server(self._driver.place):
            return self._tasks.oracle()

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return the present screen as PNG bytes; `marks` draws a numbered box on every element seen last."""
        picture = await self._do(self._driver.picture, "screenshot")
        buffer = io.BytesIO()
        picture.convert("RGB").save(buffer, "PNG", compress_level=1)
        if not marks or self._observation is None:
            return buffer.getvalue()
        from collab.envs.overlay import mark_png  # Pillow loads only for a look

        return mark_png(buffer.getvalue(), self._observation)

    async def close(self) -> None:
        """Let the device go; it stays as it is."""
        self.closed = True
        self._task = None

    # -------------------------------------------------------------------------------------------------- internal

    def _prepare(self, task: Task) -> None:
        start = self._tasks.begin(task)
        if start is None:
            return
        allowed = self._options.allowed
        # Only allowed apps are stopped, whatever a task asks for.
        for package in {find_package(name, allowed) for name in start.stop} & set(allowed.values()):
            logger.info("%s start: stop %s", self._label, package)
            self._driver.stop(package)
        logger.info("%s start: go to the home screen", self._label)
        self._driver.home()
        if start.open is not None:
            package = find_package(start.open, allowed)
            logger.info("%s start: open %s", self._label, package)
            self._driver.start(package)

    async def _look(self) -> Observation:
        """Observe the screen once it has settled, with the phone's messages since the last step."""
        return await self._see(self._options.settle_s, self._driver.toast)

    async def _see(self, settle_s: float, notice: Callable[[], str | None]) -> Observation:
        def look() -> tuple[ScreenDump, str, str | None]:
            return self._driver.screen(settle_s), self._driver.package(), notice()

        screen, package, said = await self._do(look, "looking")
        self._package = package or screen.package
        app = title_package(self._package, self._options.allowed)
        self._shown = screen.elements
        size = {"width": self._driver.width, "height": self._driver.height}
        self._observation = observe(screen, app=app, notice=said, **size)
        return self._observation

    async def _execute(self, action: Action, observation: Observation) -> str | None:
        """Do it, unless it is not allowed; what to tell instead of what the screen did."""
        # An answer touches nothing and needs no permission.
        if action.type == "answer":
            logger.info("%s step %d: %s", self._label, self._steps, MOBILE.describe(action, observation))
            await self._note_answer(str(action["text"]))
            return "noted the answer"
        if action.type == "ask_user":
            return "nothing changed: nobody answers questions here"
        if action.type == "press_keys" and action["keys"] not in KEYS:
            return f"nothing changed: the device has no key {cut(str(action['keys']), 40)}, it has {', '.join(KEYS)}"
        # A number that is not on the screen is a slip of the agent.
        for target in (action.target, MOBILE.find_end(action)):
            if isinstance(target, ElementTarget) and target.index >= len(observation.elements):
                return f"nothing changed: the screen has no element {target.index}"
        words = MOBILE.describe(action, observation)
        try:
            # The guard may ask the user, and the screen may change meanwhile.
            action, observation, enter = await self._ask_permission(action, observation)
        except _NotDone as why:
            logger.warning("%s step %d: %s: %s (%s)", self._label, self._steps, why.kind, words, why.reason)
            return CHANGED if why.reason == CHANGED else f"nothing changed: {why.reason}"
        logger.info("%s step %d: %s", self._label, self._steps, words)
        await self._do(lambda: self._driver.perform(action, observation, self._options.allowed, enter=enter), words)
        # What was not done is reported, or the agent would wait for its effect.
        return "typed without Enter, which could send: allow_effects" if _cut(action, enter) else None

    async def _note_answer(self, text: str) -> None:
        self._answer = text
        await self._do(partial(self._tasks.report_answer, text), "noting the answer")

    async def _ask_permission(self, action: Action, observation: Observation) -> tuple[Action, Observation, bool]:
        """Judge an action on the screen as it is now, and ask at the terminal where that is needed.

        Returns:
            The action on the present screen, that screen, and whether typing may end with the Enter key.

        Raises:
            _NotDone: it is not allowed, or what it aims at is gone.
        """
        action, observation = await self._aim_again(action, observation)
        allowed, free = self._options.allowed, self._options.allow_effects
        verdict = judge(action, observation, self._package, allowed)
        if verdict.refused is not None:
            raise _NotDone("refused", verdict.refused)
        if verdict.effect is not None and not free:
            if not await asyncio.to_thread(ask_for_confirmation, f"{self._label}: {verdict.effect}"):
                raise _NotDone("refused", f"{verdict.effect} needs allow_effects")
            action, observation = await self._aim_again(action, observation)
            if judge(action, observation, self._package, allowed) != verdict:
                raise _NotDone("not done", CHANGED)  # the "yes" was for something else
        return action, observation, verdict.enter or free

    async def _aim_again(self, action: Action, before: Observation) -> tuple[Action, Observation]:
        """Look at the screen as it is, before it is touched; the action on what was seen before, and the screen.

        Raises:
            _NotDone: what was seen is not there any more.
        """
        if action.type not in TOUCHING:
            return action, before
        package = self._package
        now = await self._see(0.0, lambda: before.notice)
        again = find_again(action, before, now) if self._package == package else None
        if again is None:
            raise _NotDone("not done", CHANGED)
        return again, now

    async def _end_episode(self, task: Task, observation: Observation, status: str) -> StepResult:
        logger.info("%s step %d: declare the task %s", self._label, self._steps, status)
        outcome = Outcome(success=False, score=0.0, reason="the agent called the task infeasible")
        if status == "complete":
            ending = EpisodeEnd(task=task, elements=self._shown, package=self._package, answer=self._answer)
            outcome = await self._do(partial(self._tasks.judge, ending), "judging")
        self._task = None
        info = {"effect": f"declared the task {status}"}
        return StepResult(observation=observation, terminated=True, outcome=outcome, info=info)

    def _build_result(self, task: Task, observation: Observation, words: str) -> StepResult:
        info = {"effect": words}
        if self._steps < task.max_steps:
            return StepResult(observation=observation, info=info)
        self._task = None
        outcome = Outcome(success=False, score=0.0, reason="the step budget ended before the agent said status")
        return StepResult(observation=observation, truncated=True, outcome=outcome, info=info)

    async def _do(self, function: Callable[[], AnswerT], what: str) -> AnswerT:
        with notice_lost_server(self._driver.place):
            return await call(function, f"{self._label}: {what}", self._options.answer_timeout_s)


async def call(function: Callable[[], AnswerT], what: str, timeout_s: float) -> AnswerT:
    """Run a blocking call in a thread; whatever a device throws becomes an EnvironmentFailure."""
    with boundary(EnvironmentFailure, what):
        return await asyncio.wait_for(asyncio.to_thread(function), timeout_s)


def _cut(action: Action, enter: bool) -> bool:
    return action.type == "input_text" and not enter


def describe_effect(before: Observation, after: Observation, action: Action) -> str:
    """Return what the screen did, in a few words for the history."""
    if after.notice:
        return f'the phone said "{after.notice}"'
    if action.type == "wait":
        return "one second passed"
    if after.title != before.title:
        return f"opened {after.title}"
    return "the screen changed" if after.text != before.text else "nothing visible changed"


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
        settle_s: how long the screen may keep changing after an action.
        answer_timeout_s: a device that does not answer within this time is lost.
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
        self._place = DeviceAddress(serial=serial, host=adb_host, port=adb_port)
        self._none_allowed = allow_apps is None
        self._options = DeviceOptions(
            allowed=parse_allowed_apps(allow_apps or ()),
            allow_effects=allow_effects,
            settle_s=settle_s,
            answer_timeout_s=answer_timeout_s,
        )
        # AndroidWorld's tasks are carried by a phone that can judge them; a file's are judged here.
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
        """Return all tasks; asks the device when they are its own (see `CarriedTasks.infos` for the errors)."""
        return self._tasks.infos()

    def instance(self, name: str, seed: int) -> Task:
        """Return the instance; an owner's task is the same for every seed. UnknownName when there is no such task."""
        with self._notice_lost_server():
            return self._tasks.instance(name, seed)

    async def open(self) -> DeviceEnvironment:
        """Connect to the device.

        Raises:
            UsageError: it already runs an episode, is not there, or no setting says which apps may be touched.
            MissingExtra: uiautomator2 or adbutils is not installed.
            EnvironmentFailure: it does not answer.
            EnvironmentGone: the adb server was there before and has ended.
        """
        # Without a list everything would be allowed, on a real phone.
        if self._none_allowed:
            raise UsageError(f"{self.label}: name the apps that may be touched, e.g. --allow-apps Settings,Clock")
        # One at a time: two episodes on one device would play each other's screen.
        async with self._connecting:
            if self._open is not None and not self._open.closed:
                raise UsageError(f"{self.label}: one device plays one episode at a time; use --concurrency 1")
            with self._notice_lost_server():
                driver = await call(
                    lambda: Driver(self._place), f"{self.label}: connecting", self._options.answer_timeout_s
                )
            # The serial is kept, so that the next episode gets the same device.
            self._place = replace(self._place, serial=driver.serial)
            self._open = DeviceEnvironment(driver, self._options, self._tasks, self.label)
            return self._open

    def _notice_lost_server(self) -> AbstractContextManager[None]:
        """Tell an adb server that was never there from one that is gone, which ends the device."""
        return nullcontext() if self._open is None else notice_lost_server(self._place)

    async def close(self) -> None:
        """Let the device go."""
        if self._open is not None:
            await self._open.close()


def _check_starts(tasks: Sequence[DeviceTask], allowed: dict[str, str]) -> None:
    for task in tasks:
        if task.start is not None and find_package(task.start, allowed) not in allowed.values():
            raise ConfigError(f"device task {task.name}: starts {task.start!r}, which is not in allow_apps")
