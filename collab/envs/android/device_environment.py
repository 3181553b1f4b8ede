"""One device during an episode: look, judge what may be done, log it, do it.

The screen may change by itself while agents make up their mind, or while somebody is asked at the terminal. So it is
looked at again before it is touched, and the touch is judged on what is there then (`still_there`).

What happens on a device stays there: nothing is undone, and an episode cannot be rebuilt. Every action is logged
before it is executed.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from collab.envs.actions import MOBILE
from collab.envs.android.app_names import package_of, title_of
from collab.envs.android.device_adb import noticing_its_end
from collab.envs.android.device_drive import Driver
from collab.envs.android.device_guard import TOUCHING, confirmed, judge
from collab.envs.android.device_screen import Screen, observe
from collab.envs.android.device_tasks import DeviceTasks, Ending
from collab.envs.android.still_there import CHANGED, find_again
from collab.errors import EnvironmentFailure, boundary
from collab.types import Action, Element, ElementTarget, Observation, Outcome, StepResult, Task

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """What a suite's environments share; `DeviceSuite` describes the fields."""

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
            return await self._ended(self._task, self._observation, str(action["goal_status"]))
        before = self._observation
        words = await self._execute(action, before)
        after = await self._look()
        return self._result(self._task, after, words or effect(before, after, action))

    def oracle(self) -> tuple[Action, ...] | None:
        """Remaining best actions where the device knows them; () when the episode is over. Asks the device."""
        if self._task is None:
            return ()
        with noticing_its_end(self._driver.place):
            return self._tasks.oracle()

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

    def _prepare(self, task: Task) -> None:
        start = self._tasks.begin(task)
        if start is None:
            return
        allowed = self._options.allowed
        for package in {package_of(name, allowed) for name in start.stop} & set(allowed.values()):
            logger.info("%s start: stop %s", self._label, package)
            self._driver.stop(package)
        logger.info("%s start: go to the home screen", self._label)
        self._driver.home()
        if start.open is not None:
            package = package_of(start.open, allowed)
            logger.info("%s start: open %s", self._label, package)
            self._driver.start(package)

    async def _look(self) -> Observation:
        """Look at the screen when it has settled; with what the phone said since the last step."""
        return await self._see(self._options.settle_s, self._driver.toast)

    async def _see(self, settle_s: float, notice: Callable[[], str | None]) -> Observation:
        def look() -> tuple[Screen, str, str | None]:
            return self._driver.screen(settle_s), self._driver.package(), notice()

        screen, package, said = await self._do(look, "looking")
        self._package = package or screen.package
        app = title_of(self._package, self._options.allowed)
        self._shown = screen.elements
        size = {"width": self._driver.width, "height": self._driver.height}
        self._observation = observe(screen, app=app, notice=said, **size)
        return self._observation

    async def _execute(self, action: Action, observation: Observation) -> str | None:
        """Do it, unless it is not allowed; what to tell instead of what the screen did."""
        if action.type == "answer":
            self._answer = str(action["text"])
            logger.info("%s step %d: %s", self._label, self._steps, MOBILE.describe(action, observation))
            await self._do(partial(self._tasks.answered, self._answer), "noting the answer")
            return "noted the answer"
        if isinstance(action.target, ElementTarget) and action.target.index >= len(observation.elements):
            return f"nothing changed: the screen has no element {action.target.index}"
        words = MOBILE.describe(action, observation)
        try:
            action, observation, enter = await self._permit(action, observation)
        except _NotDone as why:
            logger.warning("%s step %d: %s: %s (%s)", self._label, self._steps, why.kind, words, why.reason)
            return CHANGED if why.reason == CHANGED else f"nothing changed: {why.reason}"
        logger.info("%s step %d: %s", self._label, self._steps, words)
        await self._do(lambda: self._driver.perform(action, observation, self._options.allowed, enter=enter), words)
        return "typed without Enter, which could send: allow_effects" if _cut(action, enter) else None

    async def _permit(self, action: Action, observation: Observation) -> tuple[Action, Observation, bool]:
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
            if not await asyncio.to_thread(confirmed, f"{self._label}: {verdict.effect}"):
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

    async def _ended(self, task: Task, observation: Observation, status: str) -> StepResult:
        logger.info("%s step %d: declare the task %s", self._label, self._steps, status)
        outcome = Outcome(success=False, score=0.0, reason="the agent called the task infeasible")
        if status == "complete":
            ending = Ending(task=task, elements=self._shown, package=self._package, answer=self._answer)
            outcome = await self._do(partial(self._tasks.judge, ending), "judging")
        self._task = None
        info = {"effect": f"declared the task {status}"}
        return StepResult(observation=observation, terminated=True, outcome=outcome, info=info)

    def _result(self, task: Task, observation: Observation, words: str) -> StepResult:
        info = {"effect": words}
        if self._steps < task.max_steps:
            return StepResult(observation=observation, info=info)
        self._task = None
        outcome = Outcome(success=False, score=0.0, reason="the step budget ended before the agent said status")
        return StepResult(observation=observation, truncated=True, outcome=outcome, info=info)

    async def _do(self, function: Callable[[], AnswerT], what: str) -> AnswerT:
        with noticing_its_end(self._driver.place):
            return await call(function, f"{self._label}: {what}", self._options.answer_timeout_s)


async def call(function: Callable[[], AnswerT], what: str, timeout_s: float) -> AnswerT:
    """Run a blocking call in a thread; whatever a device throws becomes an EnvironmentFailure."""
    with boundary(EnvironmentFailure, what):
        return await asyncio.wait_for(asyncio.to_thread(function), timeout_s)


def _cut(action: Action, enter: bool) -> bool:
    return action.type == "input_text" and not enter


def effect(before: Observation, after: Observation, action: Action) -> str:
    """What the screen did, in a few words for the history."""
    if after.notice:
        return f'the phone said "{after.notice}"'
    if action.type == "wait":
        return "one second passed"
    if after.title != before.title:
        return f"opened {after.title}"
    return "the screen changed" if after.text != before.text else "nothing visible changed"
