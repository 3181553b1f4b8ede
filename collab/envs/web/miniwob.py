"""MiniWoB++: 130 small pages with a goal each, operated by real mouse and keyboard input in a real browser.

    suite = MiniwobSuite()
    environment = await suite.open()
    observation = await environment.reset(suite.instance("click-button", seed=7))
    environment.goal()                                   # 'Click on the "Next" button.'
    result = await environment.step(suite.space.make("click", id=1))

The page draws its problem from the seed. Its clock stops between actions and runs `step_ms` after each (see clock.js),
so an episode depends only on (task, seed, actions). A fork is a second tab with the same seed and actions, compared
with the first. The page reports its end and reward; `reward` defines success:

    raw==1     full reward, regardless of time (AndroidWorld's rule)
    raw>0      any reward, regardless of time (BrowserGym's rule)
    original   the page's own reward, which falls with time in many tasks; the page's time limit ends the episode

The desktop view (`miniwob`) and the phone view (`mobile`) differ in their `PageView`: action space, execution of
actions, and screen pixels per page pixel.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from collab.envs.base import TaskInfo
from collab.envs.grammar import WEB, ActionSpace
from collab.envs.text import Direction, find_place
from collab.envs.web.actions import CLICKS, find_focused, hold_keys
from collab.envs.web.actions import perform as web_perform
from collab.envs.web.dom import locate, observe
from collab.envs.web.miniwob_page import ALL, XY, MiniwobPage, PageEpisode, Rules, Shown, Tabs, list_tags
from collab.envs.web.solutions import SOLVED, Deed, solve
from collab.errors import EnvironmentFailure, UnknownName, boundary
from collab.types import Action, Box, Element, ElementTarget, Observation, Outcome, Point, StepResult, Target, Task

Reward = Literal["raw==1", "raw>0", "original"]


class Effect(NamedTuple):
    """Result of an action."""

    text: str = ""
    """For the history; empty when the screen shall speak for itself."""
    ended: bool = False
    """Whether the action ends the episode."""
    time_ms: int | None = None
    """How much of the page's time passes; None for the usual."""


Perform = Callable[[MiniwobPage, Action, Observation], Awaitable[Effect]]
"""Carries out a canonical action whose element exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """Settings of how pages are observed and operated."""

    space: ActionSpace
    perform: Perform
    scale: float = 1.0
    """Screen pixels per CSS pixel."""
    reward: Reward = "raw==1"
    step_ms: int = 500
    timeout_s: float = 10.0


class MiniwobEnvironment:
    """One episode at a time, in a tab of its own from the first `reset` until `close`."""

    solves_by_screen: Literal[True] = True

    def __init__(self, tabs: Tabs, view: PageView, depth: int = 0) -> None:
        self._tabs = tabs
        self._view = view
        self._depth = depth
        """How many forks it is away from an episode."""
        self._page: MiniwobPage | None = None
        self._task: Task | None = None
        self._goal = ""
        self._screen: Observation | None = None
        self._executed: list[Action | None] = []
        self._deeds: list[Deed] = []
        self._last: StepResult | None = None

    async def reset(self, task: Task) -> Observation:
        """Start the task; an unusable tab is replaced once."""
        if task.name not in ALL:
            raise UnknownName.of("MiniWoB++ task", task.name, ALL)
        self._task, self._last, self._executed, self._deeds = task, None, [], []
        is_used = self._page is not None
        try:
            shown = await self._start(task)
        except EnvironmentFailure:
            if not is_used:
                raise
            shown = await self._start(task)  # the tab died between two episodes; this one is fresh
        self._goal = shown.episode.goal
        return self._show(shown)

    async def step(self, action: Action | None) -> StepResult:
        """Act, let the page's time pass, look; after the end of the episode nothing happens any more."""
        before = self._require_running()
        if self._last is not None and self._last.done:
            return replace(self._last, info={**self._last.info, "effect": "nothing changed: the episode is over"})
        async with self._guard_page() as page:
            effect = await self._perform(page, action, before)
            passed = self._view.step_ms if effect.time_ms is None else effect.time_ms
            shown = await page.look(passed)
        self._remember(action, before)
        after = self._show(shown)
        self._last = self._build_result(before, after, effect, shown.episode)
        return self._last

    async def fork(self) -> MiniwobEnvironment:
        """Return a copy: a second tab, the same seed, the same actions.

        Raises:
            EnvironmentFailure: the copy does not look like the original.
        """
        screen = self._screen
        if self._task is None or screen is None:
            raise EnvironmentFailure("there is no episode to copy; call reset first")
        # A page cannot be copied, so its actions are repeated in a second tab.
        twin = MiniwobEnvironment(self._tabs, self._view, self._depth + 1)
        try:
            copied = await twin.reset(self._task)
            for action in self._executed:
                copied = (await twin.step(action)).observation
            # Compared at the end: pages that draw at random after the start cannot be forked.
            if copied.digest != screen.digest:
                raise EnvironmentFailure(f"the copy of {self._task.name} differs after {len(self._executed)} actions")
        except BaseException:
            # The twin holds a tab, which is given back on every error.
            await twin.close()
            raise
        return twin

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return the window as PNG bytes."""
        async with self._guard_page() as page:
            picture = await page.take_picture()
        if not marks or self._screen is None:
            return picture
        from collab.envs.overlay import mark_png

        return await asyncio.to_thread(mark_png, picture, self._screen)

    def goal(self) -> str:
        """Return the goal as the page words it."""
        return self._goal

    def oracle(self) -> tuple[Action, ...] | None:
        """Return what is left to do, as far as the present screen names it; None where no solution is scripted."""
        if self._task is None or self._screen is None or self._task.name not in SOLVED:
            return None
        if self._last is not None and self._last.done:
            return ()
        return solve(self._task.name, self._goal, self._screen, tuple(self._deeds))

    async def close(self) -> None:
        """Give the tab back."""
        page, self._page = self._page, None
        self._screen = None
        if page is not None:
            await self._tabs.release(page)

    # ---------------------------------------------------------------------------------------------- inside

    async def _start(self, task: Task) -> Shown:
        await self._acquire_tab()  # before the turn to start: waiting for a tab keeps no other episode from starting
        async with self._tabs.starts, self._guard_page() as page:
            return await page.start(task.name, task.seed)

    async def _acquire_tab(self) -> MiniwobPage:
        """Return the tab, from the first time it is asked for."""
        if self._page is None:
            self._page = await self._tabs.acquire(self._depth)
        return self._page

    @contextlib.asynccontextmanager
    async def _guard_page(self) -> AsyncIterator[MiniwobPage]:
        """Yield the tab, within the time limit; whatever goes wrong costs the tab and is an `EnvironmentFailure`."""
        page = await self._acquire_tab()
        name = self._task.name if self._task else "?"
        try:
            with boundary(EnvironmentFailure, f"the page {name}"):
                async with asyncio.timeout(self._view.timeout_s):
                    yield page
        except BaseException:
            self._page, self._screen = None, None
            await self._tabs.release(page, broken=True)
            raise

    def _require_running(self) -> Observation:
        if self._screen is None or self._page is None:
            raise EnvironmentFailure("no episode is running; call reset first")
        return self._screen

    async def _perform(self, page: MiniwobPage, action: Action | None, screen: Observation) -> Effect:
        if action is None:
            return Effect()
        action = self._view.space.canonical(action, screen)
        refused = self._view.space.check(action, screen)
        if refused is not None:
            return Effect(f"nothing changed: {refused.detail}")
        effect = await hold_keys(page.tab, action, lambda: self._view.perform(page, action, screen))
        return Effect(effect) if isinstance(effect, str) else effect

    def _remember(self, action: Action | None, screen: Observation) -> None:
        self._executed.append(action)
        if action is None:
            return
        target = self._view.space.canonical(action, screen).target
        index = target.index if isinstance(target, ElementTarget) else len(screen.elements)
        self._deeds.append(Deed(action.type, screen.elements[index] if index < len(screen.elements) else None))

    def _show(self, shown: Shown) -> Observation:
        name = self._task.name if self._task else ""
        snapshot = shown.snapshot.model_copy(update={"url": f"http://miniwob/{name}.html"})
        screen = observe(snapshot, space="mobile" if self._view.space.name == "mobile" else "web")
        self._screen = _scale_screen(screen, self._view.scale)
        return self._screen

    def _build_result(
        self, before: Observation, after: Observation, effect: Effect, episode: PageEpisode
    ) -> StepResult:
        most = self._task.max_steps if self._task else 0
        terminated = episode.done or effect.ended
        # An end that comes with the last step is an end, and no truncation.
        truncated = not terminated and len(self._executed) >= most
        seen = "nothing changed" if before.digest == after.digest else "the page changed"
        return StepResult(
            observation=after,
            terminated=terminated,
            truncated=truncated,
            outcome=judge_page(episode, self._view.reward) if terminated or truncated else None,
            info={
                "effect": "the page ended the task" if episode.done else effect.text or seen,
                "raw_reward": episode.raw,
                "reward": episode.reward,
            },
        )


def judge_page(episode: PageEpisode, reward: Reward) -> Outcome:
    """Judge an ended episode; one that the page did not end is not a success."""
    value = episode.reward if reward == "original" else episode.raw
    success = episode.done and (value == 1 if reward == "raw==1" else value > 0)
    why = f"reward {value:g} by the rule {reward}" if episode.done else "ended before the page was done"
    return Outcome(success=success, score=min(1.0, max(0.0, value)) if episode.done else 0.0, reason=why)


def _scale_screen(screen: Observation, scale: float) -> Observation:
    """Return the same screen in screen pixels instead of CSS pixels."""
    if scale == 1:
        return screen

    def scale_element(element: Element) -> Element:
        return element if element.box is None else replace(element, box=Box(*(round(n * scale) for n in element.box)))

    elements = tuple(scale_element(element) for element in screen.elements)
    return replace(screen, elements=elements, width=round(screen.width * scale), height=round(screen.height * scale))


VERSION = "1.1.0-5"
"""Version of the pages, then of the way they are shown and driven."""

CAPABILITIES = frozenset({"fork", "oracle", "screenshot", "deterministic"})

# ----------------------------------------------------------------------------------------------- web actions

_SCALE = 1.0
"""Screen pixels per pixel of the page, for web actions."""


async def perform(page: MiniwobPage, action: Action, screen: Observation) -> Effect:
    """Carry out a web action; what makes no sense on a page that cannot be left changes nothing."""
    # A single page without a browser around it: there is nowhere to go.
    if action.type in _REFUSALS:
        return Effect(f"nothing changed: {_REFUSALS[action.type]}")
    if action.type == "finish":
        return Effect("the agent ended the episode", ended=True)
    if action.type == "wait":
        return Effect(time_ms=WAIT_MS)
    element = screen.elements[action.target.index] if isinstance(action.target, ElementTarget) else None
    if action.type == "scroll_page":
        await page.park()
    # Some shapes are drawn; where they are is the page's own knowledge.
    if element is not None and action.type in CLICKS:
        spot = page.find_spot(element.key) or find_text_spot(element, _SCALE)
        if spot is not None:
            button, times = CLICKS[action.type]
            await page.tab.mouse.click(*spot, button=button, click_count=times)
            return Effect()
    if action.type in ("drag", "scroll_at"):
        return await _move(page, action, screen)
    if action.type == "insert_text":
        field = find_focused(screen)
        content = str(action["content"]) if field is None else await as_taken(page, field, str(action["content"]))
        action = WEB.make("insert_text", content=content, press_enter=action.get("press_enter"))
    if element is not None and action.type == "type_string":
        if is_focus_forwarder(element):
            return await _type_beyond(page, element, str(action["content"]), bool(action.get("press_enter")))
        # Some fields rewrite what is typed; the text is given in the form that they take.
        content = await as_taken(page, element, str(action["content"]))
        action = WEB.make("type_string", id=element.index, content=content, press_enter=action.get("press_enter"))
    return Effect(await web_perform(page.tab, action, screen) or "")


async def _move(page: MiniwobPage, action: Action, screen: Observation) -> Effect:
    """Drag the mouse, or turn its wheel, at points that the page may know itself."""
    start = None if action.target is None else await aim(page, action.target, screen, _SCALE)
    if start is None and action.target is not None:
        return UNREACHABLE
    end = WEB.find_end(action)
    if end is not None:
        # The mouse is released over the middle, whatever else lies there.
        place = find_place(end, screen)
        if place is None:
            return UNREACHABLE
        await page.drag(start, place)
        return Effect()
    moved = await page.scroll(start, _DIRECTIONS[str(action["direction"])])
    return Effect() if moved else Effect("nothing changed: nothing more to scroll")


async def aim(page: MiniwobPage, target: Target, screen: Observation, scale: float) -> XY | None:
    """Return where the mouse goes for a target, in the page's own pixels; None when it cannot be reached.

    Args:
        scale: screen pixels per pixel of the page.
    """
    if isinstance(target, Point):
        return target.x / scale, target.y / scale
    element = screen.elements[target.index]
    # A spot that the page itself names is exact; else the element's middle.
    spot = page.find_spot(element.key) or find_text_spot(element, scale)
    if spot is not None:
        return spot
    place = await locate(page.tab, element.key)
    return None if place is None else place.point


WAIT_MS = 1000
UNREACHABLE = Effect("nothing changed: the element cannot be reached")
_DIRECTIONS: dict[str, Direction] = {"up": "up", "down": "down", "left": "left", "right": "right"}
_REFUSALS = {
    "go": "the page has no history",
    "jump_to": "the page cannot be left",
    "switch_tab": "there is one tab",
    "user_input": "nobody answers",
}

_TRIGGERS = frozenset(
    {"button", "link", "checkbox", "radio", "switch", "tab", "menu item", "option", "file input", "slider", "input"}
    | {"drop-down", "list box"}
)


def is_focus_forwarder(element: Element) -> bool:
    """Return whether typing may go through an element that is no field (a drawn terminal)."""
    return element.role not in _TRIGGERS and element.box is not None


def find_text_spot(element: Element, scale: float) -> XY | None:
    """Return where to click on a run of text, in the page's own pixels; None if the element is no run of text."""
    if element.box is None or "#text" not in element.key:
        return None
    x, y = element.box.center
    return x / scale, y / scale


async def _type_beyond(page: MiniwobPage, element: Element, content: str, press_enter: bool) -> Effect:
    place = await locate(page.tab, element.key)
    if place is None or place.point is None:
        return Effect("nothing changed: the element cannot be reached")
    await page.click(place.point)
    if not await page.edit(content, clear=True):
        return Effect("the element takes no text")
    if press_enter:
        await page.press("Enter")
    return Effect()


async def as_taken(page: MiniwobPage, element: Element, content: str) -> str:
    """Convert a date or time of a goal (12/31/2016, 1:04 AM) to its field's form (2016-12-31, 01:04)."""
    date = re.fullmatch(r"\s*(\d{1,2})[/.-](\d{1,2})[/.-](\d{4})\s*", content)
    time = re.fullmatch(r"\s*(\d{1,2}):(\d\d)\s*([AaPp])\.?[Mm]\.?\s*", content)
    place = await locate(page.tab, element.key) if date or time else None
    if place is not None and place.type == "date" and date:
        return f"{date[3]}-{int(date[1]):02}-{int(date[2]):02}"
    if place is not None and place.type == "time" and time:
        return f"{int(time[1]) % 12 + 12 * (time[3] in 'Pp'):02}:{time[2]}"
    return content


# ----------------------------------------------------------------------------------------------------- suite


class MiniwobSuite:
    """All 130 pages with web actions.

    Args:
        reward: what counts as success (see the module's page).
        pages: how many episodes may have a tab at once; as many more serve their forks, as many forks of those.
        width: of the window, in CSS pixels; the task area is 160 wide and 210 high.
        height: of the window, in CSS pixels.
        max_steps: actions before an episode is truncated.
        step_ms: how far a page's clock runs after an action.
        data_mode: which part of its data a page draws from; five pages have two parts.
        timeout_s: how long a single action or reset may take before the tab is given up.
        browser: executable of the browser; None finds one.
    """

    name = "miniwob"
    label = "miniwob"
    version = VERSION
    space = WEB
    capabilities = CAPABILITIES

    def __init__(
        self,
        *,
        reward: Reward = "raw==1",
        pages: int = 16,
        width: int = 320,
        height: int = 240,
        max_steps: int = 30,
        step_ms: int = 500,
        data_mode: Literal["train", "test"] = "train",
        timeout_s: float = 10.0,
        browser: str | None = None,
    ) -> None:
        self.most_environments = pages
        self._max_steps = max_steps
        rules = Rules(time_limit=reward == "original", data_mode=data_mode, settle_ms=step_ms)
        self._tabs = Tabs(size=pages, width=width, height=height, scale=1, browser=browser, patience_s=60, rules=rules)
        self._view = PageView(
            space=WEB,
            perform=perform,
            reward=reward,
            step_ms=step_ms,
            timeout_s=timeout_s,
        )

    def tasks(self) -> Sequence[TaskInfo]:
        """Return the pages, by name."""
        return list_infos(ALL, self._max_steps)

    def instance(self, name: str, seed: int) -> Task:
        """Return the task of a page and a seed; the page itself gives the goal."""
        return build_task(self.name, name, seed, ALL, self._max_steps)

    async def open(self) -> MiniwobEnvironment:
        """Return an environment; it takes a tab with its first `reset`."""
        return MiniwobEnvironment(self._tabs, self._view)

    async def close(self) -> None:
        """End the browser."""
        await self._tabs.close()


def list_infos(names: Sequence[str], max_steps: int) -> tuple[TaskInfo, ...]:
    """Return what is known of each page beforehand."""
    return tuple(
        TaskInfo(name=name, max_steps=max_steps, tags=list_tags(name), oracle=name in SOLVED) for name in names
    )


def build_task(environment: str, name: str, seed: int, names: Sequence[str], max_steps: int) -> Task:
    """Return an instance of a page; UnknownName when it is not among `names`."""
    if name not in names:
        raise UnknownName.of(f"{environment} task", name, names, f"see: collab env tasks {environment}")
    return Task(environment=environment, name=name, seed=seed, goal="", max_steps=max_steps)
