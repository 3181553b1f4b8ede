"""Live pages: any site as an environment, with tasks from a YAML file.

    suite = LiveSuite(tasks=Path("shop.yaml"), allow_hosts=["shop.example", "*.cdn.example"])

Rules of this environment, beside those of `window` (tabs, dialogs, downloads) and `hosts` (what may be reached):

- An episode begins in a fresh window (no cookies, no storage) at the task's start address. Pages are what they are
  that day: the seed changes nothing, and an episode cannot be rebuilt from its actions.
- An action only touches the element that was seen, or the point at which the same lies as was seen. If the page, the
  tab or that element changed meanwhile, the effect is "the page changed; nothing happened", and the episode continues.
- Pages are read out of reach of their scripts, with frames of other origins and closed shadow roots (see `worlds`). A
  text that is cut says what was left out. A closed root is missed only if a plain element (no hyphen in its name) has
  one that shows all of its own content in slots and adds to it.
- A start page is played as soon as it arrives, without waiting for missing pictures or scripts.
- Credentials in a start address answer the site's sign-in prompt. They are in no observation, error or record.
- After an action the page settles: two looks 0.1 s apart are equal, nothing it needs is loading and no tab is opening.
  This takes at most `settle_s` after it arrived. A navigation, also of a new tab, has `nav_timeout_s`. If a new tab did
  not come in that time, further ones have `settle_s` until one does.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from zoneinfo import available_timezones

from collab.envs.base import TaskInfo
from collab.envs.grammar import WEB, ActionSpace
from collab.envs.task_files import list_task_infos
from collab.envs.text import cut
from collab.envs.web.actions import CHANGED, explain_arrival, has_same_points, hold_keys, navigate, perform
from collab.envs.web.browser import Browser, build_surroundings, take_picture
from collab.envs.web.dom import Snapshot, look, observe
from collab.envs.web.gate import HostPolicy, find_site_folder
from collab.envs.web.live_tasks import LiveTask, judge, load_tasks
from collab.envs.web.window import BrowserWindow, open_window
from collab.envs.web.worlds import find_world
from collab.errors import ConfigError, EnvironmentFailure, UnknownName, UsageError
from collab.types import Action, Observation, Outcome, StepResult, Task
from collab.utils.redact import HIDDEN, hide_in_addresses

if TYPE_CHECKING:
    from playwright.async_api import Page


AnswerT = TypeVar("AnswerT")

NAME = "web"
"""Name of the environment."""

_QUIET_S = 0.1
_WAIT_S = 1.0

_IS_PAINTED = "performance.getEntriesByType('paint').length > 0"
"""Whether a page has shown anything yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """Objects that all environments of a suite share; `LiveSuite` describes the fields."""

    surroundings: dict[str, Any]
    """What pages learn of the machine, as `browser.build_surroundings` gives it."""
    dialogs: Literal["accept", "dismiss"]
    max_tabs: int
    nav_timeout_s: float
    settle_s: float
    answer_timeout_s: float


@dataclass(slots=True, kw_only=True)
class _LiveEpisode:
    """Progress of an episode."""

    task: Task
    live: LiveTask
    window: BrowserWindow
    observation: Observation
    steps: int = 0
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActionResult:
    """Result of an action."""

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
        self._episode: _LiveEpisode | None = None
        self._window: BrowserWindow | None = None

    @property
    def window(self) -> BrowserWindow:
        """The window of the running episode; UsageError before `reset`."""
        if self._window is None:
            raise UsageError("the environment has no open page; call reset first")
        return self._window

    async def reset(self, task: Task) -> Observation:
        """Open the task's start address in a fresh window."""
        if task.environment != NAME or task.name not in self._tasks:
            raise UnknownName.of("task", task.name, self._tasks)
        # A window per episode: cookies and tabs must not reach the next one.
        await self.close()
        live = self._tasks[task.name]
        self._window = window = await open_window(
            self._browser,
            self._policy,
            dialogs=self._options.dialogs,
            max_tabs=self._options.max_tabs,
            credentials=live.credentials,
            **self._options.surroundings,
        )
        # Watched: a hung page gives its window up, and fails this episode alone.
        async with self._watch_window(f"opening {live.shown_start}"):
            await self._start(window, live)
            observation = await self._observe(window, notices=())
        self._episode = _LiveEpisode(task=task, live=live, window=window, observation=observation)
        return observation

    async def step(self, action: Action | None) -> StepResult:
        """Execute an action; UsageError before `reset` and after the end."""
        episode = self._episode
        if episode is None or episode.outcome is not None:
            raise UsageError("no episode is running; call reset first")
        before = episode.observation
        # The outcome is judged inside the watch, as it asks the page, too.
        async with self._watch_window(f"step {episode.steps} of {episode.task.name}"):
            done = await self._execute(episode, action)
            episode.observation = after = await self._observe(episode.window, done.notices)
            refused = episode.window.take_refusals()
            episode.steps += 1
            # An ending counts before the limit that is reached with the same step.
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
        """Return the shown tab as PNG; `marks` draws the elements' numbers."""
        from collab.envs.overlay import mark_png

        async with self._watch_window("taking a picture"):
            async with asyncio.timeout(self._options.answer_timeout_s):
                png = await self._take_picture(self.window)
        return mark_png(png, self._episode.observation) if marks and self._episode else png

    async def close(self) -> None:
        """Close the window. May be called twice."""
        window, self._window, self._episode = self._window, None, None
        if window is not None:
            await window.close()

    async def _take_picture(self, window: BrowserWindow) -> bytes:
        """Return a picture; what it still waits for (a style sheet, the first script) may never come."""
        patience = min(self._options.settle_s, self._options.answer_timeout_s / 3)
        picture = asyncio.ensure_future(take_picture(window.page))
        try:
            if not (await asyncio.wait([picture], timeout=patience))[0]:
                await window.stop_loading(_format_late("what draws this page did not come", patience))
                await asyncio.wait([picture], timeout=patience)
            if not picture.done() and not await (await find_world(window.page)).evaluate(_IS_PAINTED):
                from collab.envs.overlay import encode_blank

                size = window.page.viewport_size or {"width": 1, "height": 1}
                return encode_blank(size["width"], size["height"])
            return await picture
        finally:
            picture.cancel()
            await asyncio.gather(picture, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ acting

    async def _execute(self, episode: _LiveEpisode, action: Action | None) -> _ActionResult:
        if action is None:
            return _ActionResult(effect="no action; the page was looked at again")
        # Canonical, then checked against the screen that the agents saw.
        action = WEB.canonical(action, episode.observation)
        failure = WEB.check(action, episode.observation)
        if failure is not None:
            return _ActionResult(effect=f"nothing happened: {failure.detail}")
        if action.type == "finish":
            return _ActionResult(effect="finished", ending="finish", answer=_read_text(action.get("answer")))
        if action.type == "user_input":
            return self._ask_user(episode, str(action["message"]))
        await episode.window.settle_tabs()
        # Another tab came in front meanwhile: the element would be one of another page.
        if action.type != "switch_tab" and not episode.window.is_as_seen():
            return _ActionResult(effect=f"{CHANGED}: another tab is shown now")
        if action.type in ("go", "jump_to", "switch_tab"):
            limit = self._options.nav_timeout_s
            return _ActionResult(effect=await navigate(episode.window, action, self._policy, limit))
        if action.type == "wait":
            await asyncio.sleep(_WAIT_S)
            return _ActionResult()
        return _ActionResult(effect=await self._touch(episode.window, action, episode.observation))

    async def _touch(self, window: BrowserWindow, action: Action, seen: Observation) -> str | None:
        from playwright.async_api import Error

        page = window.page
        try:
            async with self._limit_answer(window):
                if not await has_same_points(page, action, seen):
                    return f"{CHANGED}: something else lies there now"
                return await hold_keys(page, action, lambda: perform(page, action, seen))
        except Error:
            if window.crashed:
                raise
            return None if page.is_closed() else "the page changed while it was touched"

    def _ask_user(self, episode: _LiveEpisode, message: str) -> _ActionResult:
        reply = episode.live.user_reply
        if reply is None:
            return _ActionResult(effect=f"the user was asked {cut(message, 200)!r}", ending="user")
        return _ActionResult(effect=f"the user replied {cut(reply, 200)!r}", notices=(f"the user replied {reply!r}",))

    async def _start(self, window: BrowserWindow, live: LiveTask) -> None:
        """Open the start address; what of it never comes (a picture, a script) is not waited for."""
        url, timeout = live.shown_start, self._options.nav_timeout_s * 1000
        response = await explain_arrival(window, window.page.goto(live.address, wait_until="commit", timeout=timeout))
        if isinstance(response, str):
            advice = "; if you trust this host, name it in self_signed_hosts" if "ERR_CERT" in response else ""
            raise EnvironmentFailure(f"the start address {url} cannot be opened: {response}{advice}")
        if response is not None and response.status >= 400:
            raise EnvironmentFailure(f"the start address {url} answers {response.status} {response.status_text}")
        patience = window.page.wait_for_load_state("domcontentloaded", timeout=self._options.settle_s * 1000)
        await explain_arrival(window, patience)

    # ----------------------------------------------------------------------------------------------- looking

    async def _observe(self, window: BrowserWindow, notices: tuple[str, ...]) -> Observation:
        snapshot = await self._wait_until_settled(window)
        window.remember(snapshot.title)
        told = [*notices, *filter(None, [window.take_notices()])]
        return observe(snapshot, tabs=window.tabs(), notice="; ".join(told) or None)

    async def _wait_until_settled(self, window: BrowserWindow) -> Snapshot:
        began = time.monotonic()
        latest = began + max(self._options.nav_timeout_s, self._options.settle_s)
        previous: Snapshot | None = None
        while True:
            snapshot = await self._ask(window, look)
            # Twice the same look, and nothing loading: the page is at rest.
            if snapshot == previous and not window.is_loading():
                return snapshot
            settling = max(began, window.arrived) + self._options.settle_s
            # Busy pages never rest: after the limit they are taken as they are.
            if time.monotonic() >= (latest if window.is_navigating() else min(settling, latest)):
                window.forget_openings()
                return snapshot
            previous = snapshot
            await asyncio.sleep(_QUIET_S)

    async def _ask(self, window: BrowserWindow, question: Callable[[Page], Awaitable[AnswerT]]) -> AnswerT:
        """Ask the shown page, again if it was just being left or another came before it."""
        from playwright.async_api import Error

        problem: Error | None = None
        try:
            # One limit for all attempts, as a page that keeps moving answers none of them.
            async with self._limit_answer(window):
                while True:
                    # New tabs first: they come before the shown page and take its place.
                    await window.settle_tabs()
                    problem = None
                    try:
                        page = window.page
                        answer = await question(page)
                        # An answer of a page that is no longer shown would describe another screen.
                        if window.is_shown(page):
                            return answer
                    except Error as error:
                        # A crashed page never answers; anything else may be a page that was just being left.
                        if window.crashed:
                            raise
                        problem = error
                    await asyncio.sleep(_QUIET_S / 2)
        except TimeoutError:
            # The last error explains more than that time was up.
            if problem is None:
                raise
            raise problem from None

    @contextlib.asynccontextmanager
    async def _limit_answer(self, window: BrowserWindow) -> AsyncIterator[None]:
        """Bound the time of an answer: a page on its way to another one gives none, until that comes or is given up."""
        async with asyncio.timeout(self._options.answer_timeout_s) as limit:
            async with _while_waiting(self._watch_way(window, limit)):
                yield

    async def _watch_way(self, window: BrowserWindow, limit: asyncio.Timeout) -> None:
        """Extend the limit while the page goes to another one; give that up if it does not come."""
        loop, patience = asyncio.get_running_loop(), self._options.nav_timeout_s
        latest = loop.time() + patience
        while loop.time() < latest:
            await asyncio.sleep(_QUIET_S)
            if window.is_leaving() and not limit.expired():
                limit.reschedule(loop.time() + self._options.answer_timeout_s)
        if window.is_leaving():
            await window.stop_loading(_format_late("the next page did not come", patience))

    async def _judge(self, episode: _LiveEpisode, done: _ActionResult, truncated: bool) -> Outcome | None:
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
    async def _watch_window(self, what: str) -> AsyncIterator[None]:
        """Relabel what a dead or hung page raises, and give its window up."""
        from playwright.async_api import Error

        try:
            yield
        except (Error, TimeoutError, EnvironmentFailure) as error:
            # The window is given up whatever it was: a page that hung once cannot be trusted.
            window, self._window, self._episode = self._window, None, None
            crashed = window is not None and window.crashed
            if window is not None:
                await window.close()
            # Errors of ours have their words already.
            if isinstance(error, EnvironmentFailure):
                raise
            if isinstance(error, TimeoutError) and not crashed:
                problem = f"the page did not answer for {self._options.answer_timeout_s:g} s"
            else:
                problem = "the page crashed" if crashed else cut(str(error).strip().split("\n", 1)[0], 300)
            raise EnvironmentFailure(f"{what}: {problem}") from error


@contextlib.asynccontextmanager
async def _while_waiting(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do some work beside the block, until that is done."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _format_late(what: str, seconds: float) -> str:
    return f"{what} within {seconds:g} s and is waited for no longer"


def _read_text(value: object) -> str | None:
    return None if value is None else str(value)


def _change(before: Observation, after: Observation) -> str:
    """Return what the screen did, in a few words."""
    if after.notice:
        return after.notice
    if [tab.url for tab in after.tabs] != [tab.url for tab in before.tabs] and len(after.tabs) != len(before.tabs):
        return f"a new tab shows {after.title or cut(after.url or '', 200)!r}"
    if after.url != before.url:
        return f"the page is now {after.title or cut(after.url or '', 200)!r}"
    return "the page changed" if after.text != before.text else "nothing changed on the page"


class LiveSuite:
    """Tasks on live pages.

    Args:
        tasks: a YAML file with the key `tasks`, or the list itself (see `live_tasks`).
        sites: host → folder of static pages that is shown under that name without any server; "built-in" stands for
            the example shop. Plain http only; such hosts are always allowed.
        allow_hosts: hosts that pages may connect to (see `hosts`); None or empty for every public host.
        allow_private: also private and loopback addresses.
        allow_files: also `file:` addresses.
        self_signed_hosts: hosts whose certificates are believed without any authority; entries as in `allow_hosts`.
        width, height: size of window and screen, in CSS pixels.
        scale: device pixels per CSS pixel, as pages are told; pictures stay in CSS pixels.
        locale: language that pages are asked for, and that dates and numbers are written in.
        timezone: name of the time zone that pages are shown in, whatever that of the machine is.
        colours: the colour scheme that pages are told the user prefers.
        dialogs: how alert, confirm and prompt are answered.
        max_tabs: further tabs are closed again.
        nav_timeout_s: how long a page may take to arrive.
        settle_s: how long a page may keep changing after an action.
        answer_timeout_s: a page that does not answer for so long has hung.
        executable_path: the browser; None finds one.

    Raises:
        ConfigError: a task does not fit its schema, or begins at an address that is not allowed.
    """

    name = NAME
    label: str = NAME
    version: str
    """Names the screen, too: on another one the same page can be another."""
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
        self_signed_hosts: list[str] | None = None,
        width: int = 1280,
        height: int = 800,
        scale: float = 1.0,
        locale: str = "en-US",
        timezone: str = "UTC",
        colours: Literal["light", "dark"] = "light",
        dialogs: Literal["accept", "dismiss"] = "accept",
        max_tabs: int = 8,
        nav_timeout_s: float = 30.0,
        settle_s: float = 3.0,
        answer_timeout_s: float = 10.0,
        executable_path: str | None = None,
    ) -> None:
        # The policy comes first: tasks are checked against it.
        self._policy = HostPolicy(
            allow_hosts=tuple(allow_hosts or ()),
            allow_private=allow_private,
            allow_files=allow_files,
            self_signed_hosts=tuple(self_signed_hosts or ()),
            sites={host.lower(): find_site_folder(host, folder) for host, folder in (sites or {}).items()},
        )
        self._tasks = {task.name: task for task in load_tasks(tasks)}
        # Start addresses are checked now; where pages lead to is checked when they go there.
        for task in self._tasks.values():
            # Secrets are hidden in recorded tasks, so such a task could not be played again.
            if HIDDEN in task.start:
                problem = "what was secret in it is not kept in a run"
                advice = "keep tasks with such addresses in a file of their own, which is read again: tasks: FILE"
                raise ConfigError(f"web task {task.name}: start {task.shown_start}: {problem}; {advice}")
            if refusal := self._policy.explain_refusal(task.address):
                advice = "see allow_hosts, allow_private and allow_files"
                raise ConfigError(f"web task {task.name}: start {task.shown_start}: {refusal}; {advice}")
        # All that changes what pages look like is in the version: runs with other settings do not compare.
        self.version = f"2 ({width}×{height}, scale {scale:g}, {locale}, {_check_zone(timezone)}, {colours})"
        surroundings = build_surroundings(width, height, scale=scale, locale=locale, timezone=timezone, colours=colours)
        self._options = LiveOptions(
            surroundings=surroundings,
            dialogs=dialogs,
            max_tabs=max_tabs,
            nav_timeout_s=nav_timeout_s,
            settle_s=settle_s,
            answer_timeout_s=answer_timeout_s,
        )
        self._browser = Browser(executable_path=executable_path, surroundings=surroundings)

    def take_name(self, definition: str) -> None:
        """Let results carry the name of the definition that this suite was built from, e.g. "web[lab]"."""
        self.label = NAME if definition == NAME else f"{NAME}[{definition}]"

    def tasks(self) -> Sequence[TaskInfo]:
        """Return all tasks, in the order of the file."""
        return list_task_infos(self._tasks.values())

    def instance(self, name: str, seed: int) -> Task:
        """Return the task; the seed only tells its instances apart. UnknownName when there is none."""
        if name not in self._tasks:
            raise UnknownName.of("task", name, self._tasks)
        task = self._tasks[name]
        return Task(
            environment=self.name,
            name=name,
            seed=seed,
            # Secrets in addresses are hidden in everything that is recorded or sent.
            goal=hide_in_addresses(task.goal),
            params={"start": task.shown_start},
            max_steps=task.max_steps,
            difficulty=task.difficulty,
            apps=tuple(task.apps),
        )

    async def open(self) -> LiveEnvironment:
        """Return a fresh environment; the browser is started if it does not run."""
        await self._browser.start()
        return LiveEnvironment(self._browser, self._policy, self._tasks, self._options)

    async def close(self) -> None:
        """End the browser. May be called twice."""
        await self._browser.close()


def _check_zone(name: str) -> str:
    known = set() if name == "UTC" else available_timezones()  # there may be no list on this machine
    if known and name not in known:
        raise ConfigError(f"timezone is {name!r}, allowed: a name such as UTC or Europe/Paris")
    return name
