"""MobileMiniWoB++: the same pages seen as a phone, worked on with AndroidWorld's actions.

    suite = MobileMiniwobSuite()
    environment = await suite.open()
    observation = await environment.reset(suite.instance("click-button", seed=7))
    result = await environment.step(suite.space.make("click", index=1))

A finger does what a mouse does: a tap is a click, a swipe on something that can be dragged drags it, a swipe anywhere
else scrolls the other way. `drag` goes from its one place to the other. The window is a phone's, upright; screen pixels
are `scale` times the page's own, in boxes, labels of shapes, points and screenshots alike. As on AndroidWorld there is
no time limit, and only full reward counts. An episode ends when the page is done or the agent says `status`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.envs.text import Direction, find_direction, find_element_at, find_place
from collab.envs.web.actions import press_keys
from collab.envs.web.dom import choose, focus
from collab.envs.web.miniwob import (
    CAPABILITIES,
    UNREACHABLE,
    VERSION,
    WAIT_MS,
    Effect,
    MiniwobEnvironment,
    PageView,
    aim,
    as_taken,
    build_task,
    is_focus_forwarder,
    list_infos,
)
from collab.envs.web.miniwob_page import PHONE, XY, MiniwobPage, Rules, Tabs
from collab.types import Action, Element, ElementTarget, Observation, Point, Target, Task

LONG_PRESS_MS = 1000
DRAG_SHARE = 0.4
"""How far a swipe drags, as a share of the task area's width."""
AREA_WIDTH = 160

_OPPOSITE: dict[str, Direction] = {"up": "down", "down": "up", "left": "right", "right": "left"}
_STEPS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_REFUSALS = {
    "navigate_home": "the page fills the phone and cannot be left",
    "open_app": "the page fills the phone and cannot be left",
    "open_recents": "the page fills the phone and cannot be left",
    "ask_user": "nobody answers",
    "unknown": "no action",
}


class Fingers:
    """Carries out mobile actions on a page whose screen pixels are `scale` times its own."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    async def perform(self, page: MiniwobPage, action: Action, screen: Observation) -> Effect:
        """Carry out an action; what makes no sense on a single page changes nothing."""
        # Refused like on a phone without these buttons, with a text that says so.
        if action.type in _REFUSALS:
            return Effect(f"nothing changed: {_REFUSALS[action.type]}")
        if action.type == "status":
            return Effect(f"the agent declared the task {action['goal_status']}", ended=True)
        if action.type == "answer":
            return Effect("the answer was noted")
        if action.type == "wait":
            return Effect(time_ms=WAIT_MS)
        if action.type == "keyboard_enter":
            await page.press("Enter")
            return Effect()
        if action.type == "navigate_back":
            return Effect() if await page.blur() else Effect("nothing changed: there is nothing to go back from")
        if action.type in ("scroll", "swipe"):
            return await self._slide(page, action, screen)
        if action.type == "drag":
            return await self._drag(page, action, screen)
        if action.type == "press_keys":
            return Effect(await press_keys(page.tab, str(action["keys"])) or "")
        if action.type == "input_text":
            return await self._enter(page, action, screen)
        return await self._press(page, action, screen)

    # ----------------------------------------------------------------------------------------------- pressing

    async def _press(self, page: MiniwobPage, action: Action, screen: Observation) -> Effect:
        element = _find_element(action, screen)
        # Lists open outside the page, so they are chosen from by the browser.
        if element is not None and action.type != "long_press":
            in_list = await _touch_list(page, element)
            if in_list is not None:
                return in_list
        point = await self._aim(page, action.target, screen)
        if point is None:
            return UNREACHABLE
        if action.type == "long_press":
            await page.hold(point, LONG_PRESS_MS)
        else:
            await page.click(point, times=2 if action.type == "double_tap" else 1)
        return Effect()

    async def _aim(self, page: MiniwobPage, target: Target | None, screen: Observation) -> XY | None:
        """Return where the finger goes down, in the page's own pixels; None when it cannot."""
        return None if target is None else await aim(page, target, screen, self._scale)

    # ----------------------------------------------------------------------------------------------- typing

    async def _enter(self, page: MiniwobPage, action: Action, screen: Observation) -> Effect:
        text, clear = str(action["text"]), bool(action.get("clear_text"))
        # Typing nothing is a slip of the agent, and would still press Enter; emptying a field is none.
        if not text and not clear:
            return Effect("nothing changed: there is no text to type")
        if action.target is not None:
            element = _find_element(action, screen)
            # A point may lie on a field; the field decides whether it takes text.
            if element is None and isinstance(action.target, Point):
                element = find_element_at(screen, action.target.x, action.target.y)
            if element is not None and not _is_text_field(element):
                return Effect("nothing changed: the element takes no text")
            point = await self._aim(page, action.target, screen)
            if point is None:
                return UNREACHABLE
            await page.click(point)
            text = text if element is None else await as_taken(page, element, text)
        if not await page.edit(text, clear=clear):
            return Effect("nothing changed: no field has the focus")
        if action.get("press_enter", True):
            await page.press("Enter")
        return Effect()

    # ----------------------------------------------------------------------------------------------- sliding

    async def _drag(self, page: MiniwobPage, action: Action, screen: Observation) -> Effect:
        start = await self._aim(page, action.target, screen)
        target = MOBILE.find_end(action)
        place = None if target is None else find_place(target, screen)
        if start is None or place is None:
            return UNREACHABLE
        end = place[0] / self._scale, place[1] / self._scale
        # A finger takes the page along where it scrolls, unless it lies on something loose.
        if self._is_loose(start, screen) or not await page.scroll(start, _OPPOSITE[find_direction(start, end)]):
            await page.drag(start, end)
        return Effect()

    async def _slide(self, page: MiniwobPage, action: Action, screen: Observation) -> Effect:
        # Twice reversed: any spelling of a direction becomes the usual one.
        direction: Direction = _OPPOSITE[_OPPOSITE[str(action["direction"])]]
        start = None if action.target is None else await self._aim(page, action.target, screen)
        if action.target is not None and start is None:
            return UNREACHABLE
        # A swipe on something loose drags it; anywhere else it scrolls.
        if action.type == "swipe" and start is not None and self._is_loose(start, screen):
            dx, dy = (step * DRAG_SHARE * AREA_WIDTH for step in _STEPS[direction])
            await page.drag(
                start,
                (
                    _clamp_within(start[0] + dx, screen.width / self._scale),
                    _clamp_within(start[1] + dy, screen.height / self._scale),
                ),
            )
            return Effect()
        # A finger moves the content, a wheel the view: opposite directions.
        content = direction if action.type == "scroll" else _OPPOSITE[direction]
        return Effect() if await page.scroll(start, content) else Effect("nothing changed: nothing more to scroll")

    def _is_loose(self, start: XY, screen: Observation) -> bool:
        element = find_element_at(screen, start[0] * self._scale, start[1] * self._scale)
        return element is not None and "surface" in element.flags


def _clamp_within(value: float, size: float) -> float:
    return min(max(value, 0.0), size - 1)


def _find_element(action: Action, screen: Observation) -> Element | None:
    return screen.elements[action.target.index] if isinstance(action.target, ElementTarget) else None


def _is_text_field(element: Element) -> bool:
    return "editable" in element.flags or element.role == "slider" or is_focus_forwarder(element)


async def _touch_list(page: MiniwobPage, element: Element) -> Effect | None:
    """Tap a list, which turns its options into elements, or an option, which chooses it; None for other things."""
    last = element.key.rpartition("/")[2]
    if element.role == "option" and last.startswith("option"):
        change = await choose(page.tab, element.key, element.label)
        return Effect(f"nothing changed: {change.error}" if change.error else "")
    if element.role == "drop-down" and last.startswith("select"):
        await focus(page.tab, element.key)
        return Effect()
    return None


class MobileMiniwobSuite:
    """The 91 pages that AndroidWorld shows on a phone.

    Args:
        pages: how many episodes may have a tab at once; as many more serve their forks, as many forks of those.
        width: of the window, in the page's own pixels; the task area is 160 wide and 210 high.
        height: of the window, in the page's own pixels.
        scale: screen pixels per pixel of the page; the defaults make a screen of 1080 × 1920.
        max_steps: actions before an episode is truncated.
        step_ms: how far a page's clock runs after an action.
        data_mode: which part of its data a page draws from; five pages have two parts.
        timeout_s: how long a single action or reset may take before the tab is given up.
        browser: executable of the browser; None finds one.
    """

    name = "mobile-miniwob"
    label = "mobile-miniwob"
    version = VERSION
    space = MOBILE
    capabilities = CAPABILITIES

    def __init__(
        self,
        *,
        pages: int = 16,
        width: int = 360,
        height: int = 640,
        scale: float = 3.0,
        max_steps: int = 30,
        step_ms: int = 500,
        data_mode: Literal["train", "test"] = "train",
        timeout_s: float = 10.0,
        browser: str | None = None,
    ) -> None:
        self.most_environments = pages
        self._max_steps = max_steps
        rules = Rules(data_mode=data_mode, settle_ms=step_ms)
        self._tabs = Tabs(
            size=pages, width=width, height=height, scale=scale, browser=browser, patience_s=60, rules=rules
        )
        self._view = PageView(
            space=MOBILE,
            perform=Fingers(scale).perform,
            scale=scale,
            step_ms=step_ms,
            timeout_s=timeout_s,
        )

    def tasks(self) -> Sequence[TaskInfo]:
        """Return the pages, by name."""
        return list_infos(sorted(PHONE), self._max_steps)

    def instance(self, name: str, seed: int) -> Task:
        """Return the task of a page and a seed; the page itself gives the goal."""
        return build_task(self.name, name, seed, PHONE, self._max_steps)

    async def open(self) -> MiniwobEnvironment:
        """Return an environment; it takes a tab with its first `reset`."""
        return MiniwobEnvironment(self._tabs, self._view)

    async def close(self) -> None:
        """End the browser."""
        await self._tabs.close()
