"""Live pages: any site as an environment, with tasks from a YAML file.

    suite = LiveSuite(tasks=Path("shop.yaml"), allow_hosts=["shop.example", "*.cdn.example"])

Rules of this environment, beside those of `window` (tabs, dialogs, downloads) and `hosts` (what may be reached):

- An episode begins in a fresh window (no cookies, no storage) at the task's start address. Pages are what they are
  that day: the seed changes nothing, and an episode cannot be rebuilt from its actions.
- After an action the page settles: two looks 0.1 s apart are equal and nothing it needs is loading, for at most
  `settle_s` (a running navigation: `nav_timeout_s`).
- The page is judged after every step; the episode ends as soon as the task is solved, or, with `on_finish`, only
  when the agent finishes. `user_input` ends it unsolved unless the task has a `user_reply`.
- `StepResult.info["refused"]` lists the connections that the gate refused during the step: what to add to
  `allow_hosts` when a page looks broken.
- A page that crashes or does not answer within `answer_timeout_s` is an EnvironmentFailure; the next `reset` opens a
  new window.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urljoin

from collab.envs.actions import WEB, ActionSpace
from collab.envs.base import TaskInfo
from collab.envs.web.browser import Browser
from collab.envs.web.dom import Snapshot, look, observe
from collab.envs.web.hosts import HostPolicy
from collab.envs.web.live_tasks import LiveTask, judge, load_tasks
from collab.envs.web.perform import perform
from collab.envs.web.sites import site_folder
from collab.envs.web.window import Window, open_window
from collab.errors import ConfigError, EnvironmentFailure, UnknownName, UsageError
from collab.types import Action, ElementTarget, Observation, Outcome, StepResult, Task

if TYPE_CHECKING:
    from playwright.async_api import Page

AnswerT = TypeVar("AnswerT")

_QUIET_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What all environments of a suite share; `LiveSuite` describes the fields."""

    width: int
    height: int
    locale: str
    dialogs: Literal["accept", "dismiss"]
    max_tabs: int
    nav_timeout_s: float
    settle_s: float
    answer_timeout_s: float


class LiveSuite:
    """Tasks on live pages.

    Args:
        tasks: a YAML file with the key `tasks`, or the list itself (see `live_tasks`).
        sites: host → folder of static pages that is shown under that name without any server; "built-in" stands for
            the example shop. Plain http only; such hosts are always allowed.
        allow_hosts: hosts that pages may connect to (see `hosts`); None or empty for every public host.
        allow_private: also private and loopback addresses.
        allow_files: also `file:` addresses.
        width, height: size of the window, in CSS pixels.
        locale: language the pages are asked for.
        dialogs: how alert, confirm and prompt are answered.
        max_tabs: further tabs are closed again.
        nav_timeout_s: how long a page may take to arrive.
        settle_s: how long a page may go on changing after an action.
        answer_timeout_s: a page that does not answer for so long has hung.
        executable_path: the browser; None finds one.

    Raises:
        ConfigError: a task does not fit its schema, or begins at an address that is not allowed.
    """

    name = "web"
    label = "web"
    version = "1"
    space: ActionSpace = WEB
    capabilities: frozenset[str] = frozenset({"screenshot"})

    def __init__(
        self,
        *,
        tasks: Path | list[dict[str, Any]],
        sites: dict[str, str] | None = None,
        allow_hosts: list[str] | None = None,
        allow_private: bool = False,
        allow_files: bool = False,
        width: int = 1280,
        height: int = 800,
        locale: str = "en-US",
        dialogs: Literal["accept", "dismiss"] = "accept",
        max_tabs: int = 8,
        nav_timeout_s: float = 30.0,
        settle_s: float = 3.0,
        answer_timeout_s: float = 10.0,
        executable_path: str | None = None,
    ) -> None:
        self._policy = HostPolicy(
            allow_hosts=tuple(allow_hosts or ()),
            allow_private=allow_private,
            allow_files=allow_files,
            sites={host.lower(): site_folder(host, folder) for host, folder in (sites or {}).items()},
        )
        self._tasks = {task.name: task for task in load_tasks(tasks)}
        for task in self._tasks.values():
            if refusal := self._policy.refusal(task.start):
                advice = "see allow_hosts, allow_private and allow_files"
                raise ConfigError(f"web task {task.name}: start {task.start}: {refusal}; {advice}")
        self._options = LiveOptions(
            width=width,
            height=height,
            locale=locale,
            dialogs=dialogs,
            max_tabs=max_tabs,
            nav_timeout_s=nav_timeout_s,
            settle_s=settle_s,
            answer_timeout_s=answer_timeout_s,
        )
        self._browser = Browser(executable_path=executable_path)

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
        """The task; the seed only tells its instances apart. UnknownName when there is none."""
        if name not in self._tasks:
            raise UnknownName.of("task", name, self._tasks)
        task = self._tasks[name]
        return Task(
            environment=self.name,
            name=name,
            seed=seed,
            goal=task.goal,
            params={"start": task.start},
            max_steps=task.max_steps,
            difficulty=task.difficulty,
            apps=tuple(task.apps),
        )

    async def open(self) -> LiveEnvironment:
        """A fresh environment; the browser is started if it does not run."""
        await self._browser.start()
        return LiveEnvironment(self._browser, self._policy, self._tasks, self._options)

    async def close(self) -> None:
        """End the browser. May be called twice."""
        await self._browser.close()


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
    notices: tuple[str, ...] = field(default=())


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
        if task.environment != LiveSuite.name or task.name not in self._tasks:
            raise UnknownName.of("task", task.name, self._tasks)
        await self.close()
        self._window = window = await open_window(
            self._browser,
            self._policy,
            dialogs=self._options.dialogs,
            max_tabs=self._options.max_tabs,
            viewport={"width": self._options.width, "height": self._options.height},
            locale=self._options.locale,
        )
        live = self._tasks[task.name]
        async with self._watched(f"opening {live.start}"):
            await self._start(window, live.start)
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
            timeout = self._options.answer_timeout_s * 1000
            png = await self.window.page.screenshot(type="png", scale="css", timeout=timeout)
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
        if action.type in ("go", "jump_to", "switch_tab"):
            return _Done(effect=await self._navigate(episode.window, action))
        element = None
        if isinstance(action.target, ElementTarget):
            element = episode.observation.elements[action.target.index]
        return _Done(effect=await self._touch(episode.window, action, element))

    async def _touch(self, window: Window, action: Action, element: Any) -> str | None:
        from playwright.async_api import Error

        page = window.page
        try:
            async with asyncio.timeout(self._options.answer_timeout_s):
                return await perform(page, action, element)
        except Error:
            if window.crashed:
                raise
            return None  # the page was left while it was touched; the new one shows what happened

    def _ask_user(self, episode: _Episode, message: str) -> _Done:
        reply = episode.live.user_reply
        if reply is None:
            return _Done(effect=f"the user was asked {message[:200]!r}", ending="user")
        return _Done(effect=f"the user replied {reply!r}", notices=(f"the user replied {reply!r}",))

    async def _navigate(self, window: Window, action: Action) -> str | None:
        if action.type == "switch_tab":
            found = await window.show(int(str(action["i"])))
            return None if found else f"there is no tab {action['i']}, only 0 to {len(window.tabs()) - 1}"
        if action.type == "go":
            return await self._go(window, back=action["direction"] == "backward")
        url = _full_address(str(action["url"]), window.page.url)
        refusal = self._policy.refusal(url)
        if refusal is not None:
            return f"{url[:200]} was not opened: {refusal}"
        if action.get("new_tab"):
            await window.new_tab()
        return await self._goto(window, url)

    async def _go(self, window: Window, *, back: bool) -> str | None:
        page = window.page
        before = page.url
        move = page.go_back if back else page.go_forward
        response = await self._arriving(move(wait_until="commit", timeout=self._options.nav_timeout_s * 1000))
        if isinstance(response, str):
            return response
        return "there is no such page in the tab's history" if response is None and page.url == before else None

    async def _goto(self, window: Window, url: str) -> str | None:
        timeout = self._options.nav_timeout_s * 1000
        problem = await self._arriving(window.page.goto(url, wait_until="commit", timeout=timeout))
        return f"{url[:200]} was not opened: {problem}" if isinstance(problem, str) else None

    async def _arriving(self, navigation: Any) -> Any:
        """The navigation's response, or why there is none, in words."""
        from playwright.async_api import Error

        try:
            return await navigation
        except Error as error:
            if self.window.crashed:
                raise
            first = str(error).strip().split("\n", 1)[0]
            return first.partition(": ")[2].partition(" at http")[0] or first

    async def _start(self, window: Window, url: str) -> None:
        timeout = self._options.nav_timeout_s * 1000
        response = await self._arriving(window.page.goto(url, wait_until="load", timeout=timeout))
        if isinstance(response, str):
            raise EnvironmentFailure(f"the start address {url} cannot be opened: {response}")
        if response is not None and response.status >= 400:
            raise EnvironmentFailure(f"the start address {url} answers {response.status} {response.status_text}")

    # ----------------------------------------------------------------------------------------------- looking

    async def _observe(self, window: Window, notices: tuple[str, ...]) -> Observation:
        snapshot = await self._settled(window)
        window.name(snapshot.title)
        told = [*notices, *filter(None, [window.take_notices()])]
        return observe(snapshot, tabs=window.tabs(), notice="; ".join(told) or None)

    async def _settled(self, window: Window) -> Snapshot:
        began = time.monotonic()
        previous: Snapshot | None = None
        while True:
            snapshot = await self._ask(window, look)
            limit = self._options.nav_timeout_s if window.navigating() else self._options.settle_s
            is_quiet = snapshot == previous and not window.loading()
            if is_quiet or time.monotonic() - began >= limit:
                return snapshot
            previous = snapshot
            await asyncio.sleep(_QUIET_S)

    async def _ask(self, window: Window, question: Callable[[Page], Awaitable[AnswerT]]) -> AnswerT:
        """Ask the shown page, again if it was just being left."""
        from playwright.async_api import Error

        async with asyncio.timeout(self._options.answer_timeout_s):
            while True:
                await window.settle_tabs()
                try:
                    return await question(window.page)
                except Error:
                    if window.crashed:
                        raise
                    await asyncio.sleep(_QUIET_S / 2)

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
            if isinstance(error, TimeoutError):
                problem = f"the page did not answer for {self._options.answer_timeout_s:g} s"
            else:
                problem = "the page crashed" if crashed else str(error).strip().split("\n", 1)[0]
            raise EnvironmentFailure(f"{what}: {problem}") from error


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _full_address(url: str, current: str) -> str:
    """What a person's address bar makes of it: a path belongs to the current site, a bare host gets https."""
    if url.startswith(("/", "?", "#")) and not url.startswith("//"):
        return urljoin(current, url)
    head = url.partition("/")[0]
    if "://" in url or url.startswith("about:") or not ("." in head or head.startswith("localhost")):
        return url
    return f"https://{url.lstrip('/')}"


def _change(before: Observation, after: Observation) -> str:
    """What the screen did, in a few words."""
    if after.notice:
        return after.notice
    if [tab.url for tab in after.tabs] != [tab.url for tab in before.tabs] and len(after.tabs) != len(before.tabs):
        return f"a new tab shows {after.title or after.url!r}"
    if after.url != before.url:
        return f"the page is now {after.title or after.url!r}"
    return "the page changed" if after.text != before.text else "nothing changed on the page"
