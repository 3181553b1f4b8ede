"""One browser tab that shows MiniWoB++ pages: start an episode, act with mouse and keyboard, look.

    page = await MiniwobPage.on(tab, site)
    shown = await page.start("click-button", seed=7)
    await page.click((80, 120))
    shown = await page.look(500)

Everything else about an episode (grammar, rewards, budgets) is decided above. Points are CSS pixels of the window.
"""

from __future__ import annotations

import asyncio
import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from collab.envs.web.browser import close_page
from collab.envs.web.dom import Snapshot
from collab.envs.web.miniwob_site import Site
from collab.envs.web.miniwob_tasks import RELOADED
from collab.envs.web.worlds import trust
from collab.errors import EnvironmentFailure

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

XY = tuple[float, float]


class Episode(BaseModel):
    """What a page says about the running episode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goal: str
    done: bool
    raw: float
    """Reward without regard to time; 0 while the episode runs."""
    reward: float
    """Reward as the page counts it: some tasks lower it with the time taken."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """State and screen of a page."""

    episode: Episode
    snapshot: Snapshot


_ANSWER: TypeAdapter[tuple[Episode, Snapshot]] = TypeAdapter(tuple[Episode, Snapshot])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How episodes are started."""

    time_limit: bool = False
    """Whether the page's own time limit ends an episode, counted on the page's clock."""
    data_mode: str = "train"
    """Which part of its data a page draws from, for the few that have parts."""
    settle_ms: int = 500
    """How far the page's clock runs before the first look."""


class MiniwobPage:
    """A tab; build it with `on`. Any call may raise Playwright's errors: the tab is then of no more use.

    The page's scripts are asked over a session of its own: Playwright's `evaluate` works for any value and any frame,
    which costs the browser as much again as the look itself.
    """

    def __init__(self, tab: Page, session: CDPSession, site: Site, rules: Rules) -> None:
        self.tab = tab
        self._session = session
        self._site = site
        self._rules = rules
        self._name: str | None = None
        self._spots: dict[str, XY] = {}
        self._burial: asyncio.Task[None] | None = None
        tab.on("crash", self._bury)

    @classmethod
    async def on(cls, tab: Page, site: Site, rules: Rules) -> MiniwobPage:
        """Prepare a fresh tab."""
        await tab.add_init_script(_scripts())
        session = await tab.context.new_cdp_session(tab)
        trust(tab, session)
        return cls(tab, session, site, rules)

    # ---------------------------------------------------------------------------------------------- episodes

    async def start(self, name: str, seed: int) -> Shown:
        """Begin an episode; in the page where it lets itself be reset, else by loading it again."""
        await self.park()
        if name == self._name and name not in RELOADED:
            shown = await self._begin(seed, fresh=False)
            if shown is not None:
                return shown
        self._name = None
        await self.tab.goto(self._site.address(name))
        shown = await self._begin(seed, fresh=True)
        if shown is None:
            raise EnvironmentFailure(f"the page {name} does not start an episode right after loading")
        self._name = name
        return shown

    async def _begin(self, seed: int, *, fresh: bool) -> Shown | None:
        request = {
            "seed": seed,
            "fresh": fresh,
            "timeLimit": self._rules.time_limit,
            "mode": self._rules.data_mode,
            "settle": self._rules.settle_ms,
        }
        answer = await self._ask("miniwob.start", request)
        return None if answer is None else self._read(answer)

    async def look(self, pass_ms: int = 0) -> Shown:
        """Let the page's clock run, then look."""
        return self._read(await self._ask("miniwob.look", pass_ms))

    def spot(self, key: str) -> XY | None:
        """Where a plain click does all that clicking an element of the last look means; None to `locate` it first."""
        return self._spots.get(key)

    # ----------------------------------------------------------------------------------------------- mouse

    async def click(self, point: XY, *, times: int = 1) -> None:
        """Press and release the left button, `times` in a row."""
        await self.tab.mouse.click(*point, click_count=times)

    async def hold(self, point: XY, ms: int) -> None:
        """Keep the button down while the page's clock runs."""
        await self.tab.mouse.move(*point)
        await self.tab.mouse.down()
        await self._ask("pageClock.advance", ms)
        await self.tab.mouse.up()

    async def drag(self, start: XY, end: XY, *, moves: int = 5) -> None:
        """Press at one point, move in a straight line, release at the other."""
        await self.tab.mouse.move(*start)
        await self.tab.mouse.down()
        await self.tab.mouse.move(*end, steps=moves)
        await self.tab.mouse.up()

    async def park(self) -> None:
        """Move the mouse into a corner, where no page has anything.

        What comes to lie under a mouse at rest, because an episode starts or the page scrolls, is hovered when the
        browser gets to it, which may be before the next look or after.
        """
        size = self.tab.viewport_size
        await self.tab.mouse.move(*((size["width"] - 1, size["height"] - 1) if size else (0, 0)))

    # -------------------------------------------------------------------------------------------- keyboard

    async def edit(self, text: str, *, clear: bool) -> bool:
        """Type into the focused field, after its content or in its place; False when no field has the focus."""
        answer = await self._ask("miniwob.edit", text, clear)
        if answer == "keys" and text:
            await self.tab.keyboard.type(text)
        elif answer == "keys" and clear:
            await self.tab.keyboard.press("Delete")
        return answer is not None

    async def press(self, key: str) -> None:
        """Press a key by its name, as in "Enter"."""
        await self.tab.keyboard.press(key)

    async def scroll(self, point: XY | None, direction: Literal["up", "down", "left", "right"]) -> bool:
        """Show what lies in that direction, at the point or anywhere; False when nothing moves."""
        await self.park()
        return bool(await self._ask("miniwob.scroll", point, direction))

    async def blur(self) -> bool:
        """Take the focus away; False when nothing had it."""
        return bool(await self._ask("miniwob.blur"))

    # ---------------------------------------------------------------------------------------------- inside

    def _bury(self, tab: Page) -> None:
        """Close a crashed tab: its session is not told, and whoever waits for an answer would go on waiting."""
        self._burial = asyncio.ensure_future(close_page(tab))

    async def _ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of the page and wait for what it returns."""
        expression = f"{function}({', '.join(json.dumps(argument) for argument in arguments)})"
        request = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = await self._session.send("Runtime.evaluate", request)
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"].get("exception", {}).get("description", "it threw something")
            raise EnvironmentFailure(f"a MiniWoB++ page failed in {function}: {str(thrown).splitlines()[0]}")
        return answer["result"].get("value")

    def _read(self, answer: Any) -> Shown:
        try:
            episode, snapshot = _ANSWER.validate_json(answer)
        except (ValidationError, TypeError) as error:
            problem = str(error).splitlines()[0]
            raise EnvironmentFailure(f"a MiniWoB++ page gave no readable answer: {problem}") from None
        self._spots = {raw.key: raw.spot for raw in snapshot.elements if raw.spot is not None}
        return Shown(episode=episode, snapshot=snapshot)


@functools.cache
def _scripts() -> str:
    folder = resources.files(__package__)
    clock, look, page = (folder.joinpath(name).read_text(encoding="utf-8") for name in _FILES)
    keep = "Object.defineProperty(globalThis, '__collabLook', {value: look})"  # where `dom` looks for it, too
    return f"{clock}\n(() => {{ const look = {look.rstrip().rstrip(';')}; {keep}; }})();\n{page}"


_FILES = ("clock.js", "dom.js", "miniwob.js")
