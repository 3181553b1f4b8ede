"""One window on live pages: actions in, observations and outcomes out. `live` states its rules."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from collab.envs.actions import WEB
from collab.envs.text import cut
from collab.envs.web.browser import Browser, take_picture
from collab.envs.web.dom import Snapshot, look, observe
from collab.envs.web.hosts import HostPolicy
from collab.envs.web.live_tasks import LiveTask, judge
from collab.envs.web.navigate import arriving, navigate
from collab.envs.web.perform import CHANGED, perform
from collab.envs.web.window import Window, open_window
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.types import Action, Element, ElementTarget, Observation, Outcome, StepResult, Task

if TYPE_CHECKING:
    from playwright.async_api import Page

AnswerT = TypeVar("AnswerT")

NAME = "web"
"""Of the environment."""

_QUIET_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What all environments of a suite share; `LiveSuite` describes the fields."""

    surroundings: dict[str, Any]
    """What pages learn of the machine, as `browser.surroundings` gives it."""
    dialogs: Literal["accept", "dismiss"]
    max_tabs: int
    nav_timeout_s: float
    settle_s: float
    answer_timeout_s: float


@dataclass(slots=True, kw_only=True)
class _Episode:
    """Where an episode stands."""

    task: Task
    live: LiveTask
    window: Window
    observation: Observation
    steps: int = 0
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What became of an action."""

    effect: str | None = None
    """None when the page itself shows it."""
    ending: Literal["finish", "user"] | None = None
    answer: str | None = None
    notices: tuple[str, ...] = ()
    """What to tell beside what the page shows."""


class LiveEnvironment:
    """One window on live pages. Made by `LiveSuite.open`."""

    def __init__(self, browser: Browser, policy: HostPolicy, tasks: dict[str, LiveTask], options: LiveOptions) -> None:
        self._browser, self._policy, self._tasks, self._options = browser, policy, tasks, options
        self._episode: _Episode | None = None
        self._window: Window | None = None

    @property
    def window(self) -> Window:
        """The window of the running episode; UsageError before `reset`."""
        if self._window is None:
            raise UsageError("the environment has no open page; call reset first")
        return self._window

    async def reset(self, task: Task) -> Observation:
        """Open the task's start address in a fresh window."""
        if task.environment != NAME or task.name not in self._tasks:
            raise UnknownName.of("task", task.name, self._tasks)
        await self.close()
        live = self._tasks[task.name]
        self._window = window = await open_window(
            self._browser,
            self._policy,
            dialogs=self._options.dialogs,
            max_tabs=self._options.max_tabs,
            **self._options.surroundings,
            **({"http_credentials": live.credentials} if live.credentials else {}),
        )
        async with self._watched(f"opening {live.shown_start}"):
            await self._start(window, live)
            observation = await self._observe(window, notices=())
        self._episode = _Episode(task=task, live=live, window=window, observation=observation)
        return observation

    async def step(self, action: Action | None) -> StepResult:
        """Execute an action; UsageError before `reset` and after the end."""
        episode = self._episode
        if episode is None or episode.outcome is not None:
            raise UsageError("no episode is running; call reset first")
        before = episode.observation
        async with self._watched(f"step {episode.steps} of {episode.task.name}"):
            done = await self._execute(episode, action)
            episode.observation = after = await self._observe(episode.window, done.notices)
            refused = episode.window.take_refusals()
            episode.steps += 1
            truncated = done.ending is None and episode.steps >= episode.task.max_steps
            episode.outcome = await self._judge(episode, done, truncated)
        return StepResult(
            observation=after,
            terminated=episode.outcome is not None and not truncated,
            truncated=truncated,
            outcome=episode.outcome,
            info={"effect": done.effect or _change(before, after), "refused": list(refused)},
        )

    async def screenshot(self, marks: bool = False) -> bytes:
        """The shown tab as PNG; `marks` draws the elements' numbers."""
        from collab.envs.marks import mark_png

        async with self._watched("taking a picture"):
            async with asyncio.timeout(self._options.answer_timeout_s):
                png = await take_picture(self.window.page)
        return mark_png(png, self._episode.observation) if marks and self._episode else png

    async def close(self) -> None:
        """Close the window. May be called twice."""
        window, self._window, self._episode = self._window, None, None
        if window is not None:
            await window.close()

    # ------------------------------------------------------------------------------------------------ acting

    async def _execute(self, episode: _Episode, action: Action | None) -> _Done:
        if action is None:
            return _Done(effect="no action; the page was looked at again")
        action = WEB.canonical(action, episode.observation)
        failure = WEB.check(action, episode.observation)
        if failure is not None:
            return _Done(effect=f"nothing happened: {failure.detail}")
        if action.type == "finish":
            return _Done(effect="finished", ending="finish", answer=_text(action.get("answer")))
        if action.type == "user_input":
            return self._ask_user(episode, str(action["message"]))
        await episode.window.settle_tabs()
        if action.type != "switch_tab" and not episode.window.shows_what_was_seen():
            return _Done(effect=f"{CHANGED}: another tab is shown now")
        if action.type in ("go", "jump_to", "switch_tab"):
            limit = self._options.nav_timeout_s
            return _Done(effect=await navigate(episode.window, action, self._policy, limit))
        element = None
        if isinstance(action.target, ElementTarget):
            element = episode.observation.elements[action.target.index]
        return _Done(effect=await self._touch(episode.window, action, element))

    async def _touch(self, window: Window, action: Action, element: Element | None) -> str | None:
        from playwright.async_api import Error

        page = window.page
        try:
            async with asyncio.timeout(self._options.answer_timeout_s):
                return await perform(page, action, element)
        except Error:
            if window.crashed:
                raise
            return None if page.is_closed() else "the page changed while it was touched"

    def _ask_user(self, episode: _Episode, message: str) -> _Done:
        reply = episode.live.user_reply
        if reply is None:
            return _Done(effect=f"the user was asked {cut(message, 200)!r}", ending="user")
        return _Done(effect=f"the user replied {cut(reply, 200)!r}", notices=(f"the user replied {reply!r}",))

    async def _start(self, window: Window, live: LiveTask) -> None:
        """Open the start address; what of it never comes (a picture, a script) is not waited for."""
        url, timeout = live.shown_start, self._options.nav_timeout_s * 1000
        response = await arriving(window, window.page.goto(live.address, wait_until="commit", timeout=timeout))
        if isinstance(response, str):
            advice = "; if you trust this host, name it in self_signed_hosts" if "ERR_CERT" in response else ""
            raise EnvironmentFailure(f"the start address {url} cannot be opened: {response}{advice}")
        if response is not None and response.status >= 400:
            raise EnvironmentFailure(f"the start address {url} answers {response.status} {response.status_text}")
        patience = window.page.wait_for_load_state("domcontentloaded", timeout=self._options.settle_s * 1000)
        await arriving(window, patience)

    # ----------------------------------------------------------------------------------------------- looking

    async def _observe(self, window: Window, notices: tuple[str, ...]) -> Observation:
        snapshot = await self._settled(window)
        window.remember(snapshot.title)
        told = [*notices, *filter(None, [window.take_notices()])]
        return observe(snapshot, tabs=window.tabs(), notice="; ".join(told) or None)

    async def _settled(self, window: Window) -> Snapshot:
        began = time.monotonic()
        latest = began + max(self._options.nav_timeout_s, self._options.settle_s)
        previous: Snapshot | None = None
        while True:
            snapshot = await self._ask(window, look)
            if snapshot == previous and not window.loading():
                return snapshot
            settling = max(began, window.arrived) + self._options.settle_s
            if time.monotonic() >= (latest if window.navigating() else min(settling, latest)):
                window.forget_openings()
                return snapshot
            previous = snapshot
            await asyncio.sleep(_QUIET_S)

    async def _ask(self, window: Window, question: Callable[[Page], Awaitable[AnswerT]]) -> AnswerT:
        """Ask the shown page, again if it was just being left or another came before it."""
        from playwright.async_api import Error

        problem: Error | None = None
        try:
            async with asyncio.timeout(self._options.answer_timeout_s):
                while True:
                    await window.settle_tabs()
                    problem = None
                    try:
                        page = window.page
                        answer = await question(page)
                        if window.shows(page):
                            return answer
                    except Error as error:
                        if window.crashed:
                            raise
                        problem = error
                    await asyncio.sleep(_QUIET_S / 2)
        except TimeoutError:
            if problem is None:
                raise
            raise problem from None

    async def _judge(self, episode: _Episode, done: _Done, truncated: bool) -> Outcome | None:
        ended = done.ending is not None or truncated
        if done.ending == "user":
            return Outcome(success=False, score=0.0, reason=done.effect or "")
        if not ended and episode.live.on_finish:
            return None
        verdict = await self._ask(episode.window, lambda page: judge(episode.live.success, page, done.answer))
        if not ended and not verdict.solved:
            return None
        return Outcome(success=verdict.solved, score=verdict.score, reason=verdict.reason)

    @contextlib.asynccontextmanager
    async def _watched(self, what: str) -> AsyncIterator[None]:
        """Relabel what a dead or hung page raises, and give its window up."""
        from playwright.async_api import Error

        try:
            yield
        except (Error, TimeoutError, EnvironmentFailure) as error:
            window, self._window, self._episode = self._window, None, None
            crashed = window is not None and window.crashed
            if window is not None:
                await window.close()
            if isinstance(error, EnvironmentFailure):
                raise
            if isinstance(error, TimeoutError) and not crashed:
                problem = f"the page did not answer for {self._options.answer_timeout_s:g} s"
            else:
                problem = "the page crashed" if crashed else cut(str(error).strip().split("\n", 1)[0], 300)
            raise EnvironmentFailure(f"{what}: {problem}") from error


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _change(before: Observation, after: Observation) -> str:
    """What the screen did, in a few words."""
    if after.notice:
        return after.notice
    if [tab.url for tab in after.tabs] != [tab.url for tab in before.tabs] and len(after.tabs) != len(before.tabs):
        return f"a new tab shows {after.title or cut(after.url or '', 200)!r}"
    if after.url != before.url:
        return f"the page is now {after.title or cut(after.url or '', 200)!r}"
    return "the page changed" if after.text != before.text else "nothing changed on the page"
