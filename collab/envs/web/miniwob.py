"""MiniWoB++: 130 small pages with a goal each, worked on with real mouse and keyboard input in a real browser.

    suite = MiniwobSuite()
    environment = await suite.open()
    observation = await environment.reset(suite.instance("click-button", seed=7))
    environment.goal()                                   # 'Click on the "Next" button.'
    result = await environment.step(suite.space.make("click", id=1))

How an episode runs: the page draws its problem from the seed; its clock stands still between actions and runs
`step_ms` after each (see clock.js), so what moves by itself moves by turns and an episode depends on nothing but
(task, seed, actions). A fork is a second tab that is given the same seed and the same actions, and is compared.
The page says when it is done and with which reward; `reward` says what counts as success:

    raw==1     full reward, regardless of time (AndroidWorld's rule)
    raw>0      any reward, regardless of time (BrowserGym's rule)
    original   the page's own reward, which falls with time in many tasks; the page's time limit ends the episode
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from collab.envs.actions import WEB
from collab.envs.base import TaskInfo
from collab.envs.web.dom import locate
from collab.envs.web.miniwob_environment import Effect, MiniwobEnvironment, Reward, View
from collab.envs.web.miniwob_page import XY, MiniwobPage, Rules
from collab.envs.web.miniwob_tabs import Tabs
from collab.envs.web.miniwob_tasks import ALL, tags_of
from collab.envs.web.perform import perform as web_perform
from collab.envs.web.solutions import SOLVED
from collab.errors import UnknownName
from collab.types import Action, Element, ElementTarget, Observation, Task

VERSION = "1.1.0-3"
"""Version of the pages, then of the way they are shown and driven."""

CAPABILITIES = frozenset({"fork", "oracle", "screenshot", "deterministic"})

# ----------------------------------------------------------------------------------------------- web actions


async def perform(page: MiniwobPage, action: Action, screen: Observation) -> Effect:
    """Carry out a web action; what makes no sense on a page that cannot be left changes nothing."""
    if action.type in _REFUSALS:
        return Effect(f"nothing changed: {_REFUSALS[action.type]}")
    if action.type == "finish":
        return Effect("the agent ended the episode", ended=True)
    element = screen.elements[action.target.index] if isinstance(action.target, ElementTarget) else None
    if action.type == "scroll_page":
        await page.park()
    if element is not None and action.type == "click":
        spot = page.spot(element.key) or text_spot(element)
        if spot is not None:
            await page.click(spot)
            return Effect()
    if element is not None and action.type == "type_string":
        if forwards_focus(element):
            return await _type_beyond(page, element, str(action["content"]), bool(action.get("press_enter")))
        content = await as_taken(page, element, str(action["content"]))
        action = WEB.make("type_string", id=element.index, content=content, press_enter=action.get("press_enter"))
    return Effect(await web_perform(page.tab, action, element) or "")


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


def forwards_focus(element: Element) -> bool:
    """Whether typing may go through an element that is no field itself (a drawn terminal) and a click does no harm."""
    return element.role not in _TRIGGERS and element.box is not None


def text_spot(element: Element) -> XY | None:
    """Where to click on a run of text, which has no element of its own; None for anything else."""
    return element.box.center if element.box is not None and "#text" in element.key else None


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
    """A date or time as its field takes it: goals say 12/31/2016 and 1:04 AM, the fields want 2016-12-31 and 01:04."""
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
        pages: how many tabs may be open at once, forks included; no more episodes are played at once.
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
        self._view = View(
            space=WEB,
            perform=perform,
            reward=reward,
            step_ms=step_ms,
            timeout_s=timeout_s,
        )

    def tasks(self) -> Sequence[TaskInfo]:
        """The pages, by name."""
        return infos(ALL, self._max_steps)

    def instance(self, name: str, seed: int) -> Task:
        """A page and a seed; the goal is told by the page."""
        return task_of(self.name, name, seed, ALL, self._max_steps)

    async def open(self) -> MiniwobEnvironment:
        """An environment; it takes a tab with its first `reset`."""
        return MiniwobEnvironment(self._tabs, self._view)

    async def close(self) -> None:
        """End the browser."""
        await self._tabs.close()


def infos(names: Sequence[str], max_steps: int) -> tuple[TaskInfo, ...]:
    """What is known of each page beforehand."""
    return tuple(TaskInfo(name=name, max_steps=max_steps, tags=tags_of(name), oracle=name in SOLVED) for name in names)


def task_of(environment: str, name: str, seed: int, names: Sequence[str], max_steps: int) -> Task:
    """An instance of a page; UnknownName when it is not among `names`."""
    if name not in names:
        raise UnknownName.of(f"{environment} task", name, names, f"see: collab env tasks {environment}")
    return Task(environment=environment, name=name, seed=seed, goal="", max_steps=max_steps)
