"""AndroidWorld's own emulator during an episode, however it is reached.

AndroidWorld prepares the task, executes the actions and judges the end with its own checkers; both ends count as its
runner counts them: whatever status the agent declares is judged, steps that run out are not. Every action is logged
before it is executed. The screen is looked at again before it is touched (`still_there`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from collab.envs.actions import MOBILE
from collab.envs.android.androidworld_screen import as_json_action
from collab.envs.android.device_environment import effect
from collab.envs.android.device_guard import TOUCHING
from collab.envs.android.still_there import CHANGED, find_again, looks_the_same
from collab.envs.text import MAX_NOTICE, cut_middle
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.types import Action, Observation, Outcome, StepResult, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A screen of AndroidWorld."""

    observation: Observation
    numbers: tuple[int, ...] = ()
    """For each element of the observation, its index in AndroidWorld's list."""
    png: bytes | None = None
    """The picture, where it comes with the look."""
    pixels: NDArray[np.uint8] | None = None
    """The same picture as colours, height × width × 3."""


class Remote(Protocol):
    """AndroidWorld somewhere else. Calls block, and raise EnvironmentFailure when it fails."""

    label: str

    def begin(self, task: Task) -> str:
        """Put the emulator into the task's initial state; an episode that still runs is torn down. Gives the goal."""
        ...

    def look(self) -> Look:
        """The screen as soon as it stands still."""
        ...

    def picture(self) -> bytes:
        """What was looked at last, as PNG."""
        ...

    def act(self, fields: dict[str, Any]) -> str | None:
        """Execute an action in AndroidWorld's JSON form; why it was not executed, or None."""
        ...

    def finish(self, *, judge: bool) -> float | None:
        """Tear the task down; AndroidWorld's score in [0, 1] when it is asked for."""
        ...


class AndroidWorldEnvironment:
    """One emulator behind the `Environment` protocol; also `HasScreenshot` and `HasGoal`."""

    space = MOBILE

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._task: Task | None = None
        self._look: Look | None = None
        self._goal = ""
        self._steps = 0
        self.closed = False
        """Whether `close` was called."""

    async def reset(self, task: Task) -> Observation:
        """Let AndroidWorld make the task's initial state."""
        self._task, self._steps = None, 0
        logger.info("%s: begin %s, seed %d", self._remote.label, task.name, task.seed)
        self._goal = await self._do(partial(self._remote.begin, task))
        self._task = task
        return await self._see()

    def goal(self) -> str:
        """The goal as AndroidWorld states it for the episode; a few of its tasks put the present time into it."""
        return self._goal

    async def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits a second."""
        if self._task is None or self._look is None or self.closed:
            raise EnvironmentFailure(f"{self._remote.label}: step without a running episode; call reset(task) first")
        self._steps += 1
        before = self._look
        action = MOBILE.canonical(action or MOBILE.make("wait"), before.observation)
        said = MOBILE.describe(action, before.observation)
        if action.type == "status":
            logger.info("%s step %d: %s", self._remote.label, self._steps, said)
            return await self._ended(before.observation, str(action["goal_status"]))
        aimed = await self._aim_again(action, before)
        if aimed is None:
            logger.warning("%s step %d: not done: %s (%s)", self._remote.label, self._steps, said, CHANGED)
            return await self._went_on(self._task, before, self._look, action, CHANGED)
        action, before = aimed
        fields = as_json_action(action, before.observation, before.numbers)
        if isinstance(fields, str):
            return await self._went_on(self._task, before, before, action, fields)
        logger.info("%s step %d: %s %s", self._remote.label, self._steps, said, fields)
        refused = await self._do(partial(self._remote.act, fields))
        await self._see()
        return await self._went_on(self._task, before, self._look, action, refused)

    async def screenshot(self, marks: bool = False) -> bytes:
        """What was looked at last, as PNG bytes; `marks` draws a numbered box on every element."""
        png = await self._do(self._remote.picture)
        if not marks or self._look is None or not self._look.observation.elements:
            return png
        from collab.envs.marks import mark_png  # Pillow loads only when somebody looks

        return mark_png(png, self._look.observation)

    async def close(self) -> None:
        """Tear a running task down and let the emulator be."""
        if self._task is not None and not self.closed:
            self._task = None
            await self._do(partial(self._remote.finish, judge=False))
        self.closed = True

    # -------------------------------------------------------------------------------------------------- internal

    async def _aim_again(self, action: Action, before: Look) -> tuple[Action, Look] | None:
        """Look again before a touch: the action on the present screen, and the look; None when its target is gone."""
        if action.type not in TOUCHING:
            return action, before
        now = self._look = await self._do(self._remote.look)
        again = find_again(action, before.observation, now.observation)
        if (
            before.pixels is not None
            and now.pixels is not None
            and not looks_the_same(action, before.pixels, now.pixels)
        ):
            again = None
        return None if again is None else (again, now)

    async def _see(self) -> Observation:
        self._look = await self._do(self._remote.look)
        return self._look.observation

    async def _ended(self, observation: Observation, status: str) -> StepResult:
        score = await self._do(partial(self._remote.finish, judge=True))
        self._task = None
        if score is None:
            raise EnvironmentFailure(f"{self._remote.label}: AndroidWorld gave no score")
        reason = f"AndroidWorld's checker gives {score:g}"
        outcome = Outcome(success=score == 1.0, score=score, reason=reason)
        info = {"effect": f"declared the task {status}"}
        return StepResult(observation=observation, terminated=True, outcome=outcome, info=info)

    async def _went_on(self, task: Task, before: Look, after: Look, action: Action, refused: str | None) -> StepResult:
        said = _effect(before, after, action) if refused is None else CHANGED
        if refused not in (None, CHANGED):
            said = f"nothing changed: {cut_middle(refused or '', MAX_NOTICE)}"
        info = {"effect": said}
        if self._steps < task.max_steps:
            return StepResult(observation=after.observation, info=info)
        self._task = None
        await self._do(partial(self._remote.finish, judge=False))
        outcome = Outcome(success=False, score=0.0, reason="the step budget ended before the agent said status")
        return StepResult(observation=after.observation, truncated=True, outcome=outcome, info=info)

    async def _do(self, function: Callable[[], AnswerT]) -> AnswerT:
        """Run a blocking call in a thread; what was there when the run began and is gone now is a failure."""
        try:
            return await asyncio.to_thread(function)
        except UnknownName:
            raise
        except UsageError as error:
            raise EnvironmentFailure(str(error)) from error


def _effect(before: Look, after: Look, action: Action) -> str:
    if action.type == "answer":
        return "noted the answer"
    if after.png is None or action.type == "wait":
        return effect(before.observation, after.observation, action)
    return "the picture changed" if after.png != before.png else "the picture did not change"
