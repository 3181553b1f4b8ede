"""One browser tab that shows MiniWoB++ pages: start an episode, act with mouse and keyboard, look.

    page = await MiniwobPage.on(tab, site)
    shown = await page.start("click-button", seed=7)
    await page.click((80, 120))
    shown = await page.look(500)

Everything else about an episode (grammar, rewards, budgets) is decided above. Points are CSS pixels of the window.

The pages of the `miniwob` package, served to the browser from this process.

Only the package's folder of pages is used; importing the package itself would pull in its own environment.

What the environments of a MiniWoB++ suite share: the browser, its tabs and the server of the pages.

The names of the MiniWoB++ pages, and the words to select them by.

`PHONE` are the pages that AndroidWorld shows on a phone too (its 92nd, `drag-item`, is in no released package);
`DESKTOP` are the others of the PyPI package `miniwob`.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import importlib.util
import json
import os
import threading
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from collab.envs.web.actions import drag_mouse
from collab.envs.web.browser import Browser, PagePool, build_surroundings, close_page
from collab.envs.web.dom import Snapshot
from collab.envs.web.worlds import trust
from collab.errors import EnvironmentFailure, MissingExtra, boundary
from collab.utils.concurrency import note_doing
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page


def find_pages_folder() -> Path:
    """Return the folder that holds the pages.

    Raises:
        MissingExtra: the package is not installed.
    """
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra.of("miniwob", "web", "the MiniWoB++ pages")
    return Path(spec.submodule_search_locations[0]) / "html"


class _PageHandler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests are not events of a run."""


class Site:
    """A web server on the loopback interface, on a port that the system picks; runs until `close`."""

    def __init__(self) -> None:
        handler = functools.partial(_PageHandler, directory=str(find_pages_folder()))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="miniwob pages", daemon=True)
        self._thread.start()

    def build_address(self, name: str) -> str:
        """Return where the page of a task is."""
        return f"http://127.0.0.1:{self._server.server_port}/miniwob/{name}.html"

    def close(self) -> None:
        """Stop serving. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


PHONE = tuple(
    """
    bisect-angle book-flight choose-date choose-date-easy choose-date-medium choose-list circle-center click-button
    click-button-sequence click-checkboxes click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer
    click-collapsible click-collapsible-2 click-color click-dialog click-dialog-2 click-link click-menu-2
    click-option click-pie click-scroll-list click-shades click-shape click-tab click-tab-2 click-tab-2-easy
    click-tab-2-hard click-tab-2-medium click-test click-test-2 click-test-transfer click-widget copy-paste
    copy-paste-2 count-shape count-sides drag-box email-inbox email-inbox-delete email-inbox-forward
    email-inbox-forward-nl email-inbox-forward-nl-turk email-inbox-important email-inbox-nl-turk
    email-inbox-noscroll email-inbox-reply email-inbox-star-reply enter-date enter-password enter-text enter-text-2
    enter-text-dynamic enter-time find-midpoint find-word focus-text focus-text-2 grid-coordinate guess-number
    highlight-text highlight-text-2 identify-shape login-user login-user-popup multi-layouts multi-orderings
    navigate-tree read-table read-table-2 resize-textarea right-angle scroll-text scroll-text-2 search-engine
    simon-says simple-algebra simple-arithmetic social-media social-media-all social-media-some terminal
    text-transform tic-tac-toe unicode-test use-autocomplete use-colorwheel use-colorwheel-2 use-slider
    visual-addition
    """.split()
)
"""The 91 names of the phone view."""

DESKTOP = tuple(
    """
    ascending-numbers book-flight-nodelay button-delay buy-ticket chase-circle choose-date-nodelay
    click-collapsible-2-nodelay click-collapsible-nodelay click-menu click-pie-nodelay daily-calendar drag-circle
    drag-cube drag-items drag-items-grid drag-shapes drag-shapes-2 drag-single-shape drag-sort-numbers draw-circle
    draw-line find-greatest form-sequence form-sequence-2 form-sequence-3 generate-number hot-cold hover-shape
    moving-items number-checkboxes odd-or-even order-food phone-book sign-agreement stock-market text-editor
    use-autocomplete-nodelay use-slider-2 use-spinner
    """.split()
)
"""The pages of the package that the phone view leaves out."""

ALL = tuple(sorted(PHONE + DESKTOP))
"""All 130 pages."""

RELOADED = frozenset(
    """
    click-menu drag-items drag-items-grid drag-sort-numbers form-sequence hot-cold navigate-tree simon-says
    text-editor use-colorwheel use-colorwheel-2 use-slider use-slider-2
    """.split()
)
"""Pages that add to what the last episode left (handlers, a widget's state) and so must be loaded again for each.

Pages with timers that never end (terminal, stock-market …) are found out by the page clock and loaded again, too.
"""

_WORDS = {
    "drag": "drag-box drag-circle drag-cube drag-items drag-items-grid drag-shapes drag-shapes-2 drag-single-shape "
    "drag-sort-numbers draw-circle draw-line highlight-text highlight-text-2 resize-textarea use-slider use-slider-2 "
    "form-sequence",
    "draw": "bisect-angle circle-center draw-circle draw-line find-midpoint right-angle number-checkboxes",
    "look": "ascending-numbers bisect-angle circle-center click-color click-pie click-pie-nodelay click-shades "
    "click-shape count-shape count-sides drag-cube drag-shapes drag-shapes-2 find-midpoint grid-coordinate hot-cold "
    "hover-shape identify-shape number-checkboxes right-angle simon-says use-colorwheel use-colorwheel-2 "
    "visual-addition",
    "motion": "chase-circle drag-cube hover-shape moving-items simon-says stock-market",
    "read": "find-word find-greatest read-table read-table-2 scroll-text simple-algebra simple-arithmetic",
    "search": "book-flight book-flight-nodelay multi-layouts multi-orderings navigate-tree phone-book search-engine",
    "form": "book-flight book-flight-nodelay buy-ticket form-sequence form-sequence-2 form-sequence-3 login-user "
    "login-user-popup multi-layouts multi-orderings order-food sign-agreement",
    "enter-text": "copy-paste copy-paste-2 enter-password enter-text enter-text-2 enter-text-dynamic find-word "
    "login-user login-user-popup read-table read-table-2 simple-algebra simple-arithmetic text-transform",
    "scroll": "click-scroll-list scroll-text scroll-text-2 sign-agreement social-media social-media-all "
    "social-media-some email-inbox email-inbox-nl-turk email-inbox-forward-nl-turk order-food daily-calendar",
}
_FAMILIES = ("click", "email", "enter", "choose", "use", "social-media", "copy-paste", "focus-text", "login")

_TAGS = {
    name: (
        *(family for family in _FAMILIES if name.startswith(family)),
        *(word for word, names in _WORDS.items() if name in names.split()),
    )
    for name in ALL
}


def list_tags(name: str) -> tuple[str, ...]:
    """Return a page's tags: its family (click, email …) and look, motion, read, search, form, drag, draw, scroll."""
    return _TAGS[name]


XY = tuple[float, float]


class PageEpisode(BaseModel):
    """State of the running episode, as the page reports it."""

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

    episode: PageEpisode
    snapshot: Snapshot


_ANSWER: TypeAdapter[tuple[PageEpisode, Snapshot]] = TypeAdapter(tuple[PageEpisode, Snapshot])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of an episode's start."""

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
        await tab.add_init_script(_load_scripts())
        session = await tab.context.new_cdp_session(tab)
        trust(tab, session)
        return cls(tab, session, site, rules)

    # ---------------------------------------------------------------------------------------------- episodes

    async def start(self, name: str, seed: int) -> Shown:
        """Begin an episode; in the page where it lets itself be reset, else by loading it again."""
        await self.park()
        # Resetting in the page is faster than loading it, where a page allows that.
        if name == self._name and name not in RELOADED:
            shown = await self._begin(seed, fresh=False)
            if shown is not None:
                return shown
        # Forgotten first: a failed load must not pass for a started page.
        self._name = None
        await self.tab.goto(self._site.build_address(name))
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

    def find_spot(self, key: str) -> XY | None:
        """Return where a plain click suffices for an element of the last look; None to `locate` it first."""
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

    async def drag(self, start: XY | None, end: XY) -> None:
        """Press at one point, or where the mouse is, move in a straight line, release at the other."""
        await drag_mouse(self.tab, start, end)

    async def park(self) -> None:
        """Move the mouse into an empty corner: elements under a resting mouse are hovered at an unknown time."""
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

    async def take_picture(self) -> bytes:
        """Return the window as PNG; in one call, as Playwright's `screenshot` asks the page several times."""
        answer = await self._session.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        return base64.b64decode(answer["data"])

    # ---------------------------------------------------------------------------------------------- inside

    def _bury(self, tab: Page) -> None:
        """Close a crashed tab: its session does not notice the crash, and a waiting caller would wait forever."""
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
def _load_scripts() -> str:
    folder = resources.files(__package__)
    clock, look, page = (folder.joinpath(name).read_text(encoding="utf-8") for name in _FILES)
    keep = "Object.defineProperty(globalThis, '__collabLook', {value: look})"  # where `dom` looks for it, too
    return f"{clock}\n(() => {{ const look = {look.rstrip().rstrip(';')}; {keep}; }})();\n{page}"


_FILES = ("clock.js", "dom.js", "miniwob.js")


FLAGS = ("--disable-frame-rate-limit",)
"""A mouse move waits for the next frame: without a limit that is at once, and not in up to 16 ms."""


class Tabs:
    """Lends tabs; starts the browser and the server with the first one.

    Episodes, their forks and forks of forks take tabs from pools of their own. An episode keeps its tab while it waits
    for one for a fork: out of one pool, episodes that all judge a step would hold all tabs and wait for each other.

    Args:
        size: how many tabs may be lent at once to episodes, to their forks, and to forks of those.
        width: of the window, in CSS pixels.
        height: of the window, in CSS pixels.
        scale: device pixels per CSS pixel; what a screenshot is made of.
        browser: executable of the browser; None finds one.
        patience_s: how long a borrower waits for a tab when all are lent, the start of the browser not counted.
        rules: how episodes are started.
    """

    def __init__(
        self,
        *,
        size: int,
        width: int,
        height: int,
        scale: float,
        browser: str | None,
        patience_s: float,
        rules: Rules,
    ) -> None:
        self._size = size
        self._patience_s = patience_s
        self._rules = rules
        self._surroundings = build_surroundings(width, height, scale=scale)
        self._browser = Browser(executable_path=browser, arguments=FLAGS, surroundings=self._surroundings)
        self.starts = asyncio.Semaphore(max(2, os.cpu_count() or 1))
        """Held while an episode starts: more pages at once than there are cores load no sooner, and each later."""
        self._pools: list[PagePool] = []
        """Those of episodes, of forks, of forks of forks …"""
        self._site: Site | None = None
        self._prepared: WeakKeyDictionary[Page, MiniwobPage] = WeakKeyDictionary()

    async def acquire(self, depth: int = 0) -> MiniwobPage:
        """Return a tab that answers.

        Args:
            depth: 0 for an episode, 1 for its fork, 2 for a fork of that …

        Raises:
            EnvironmentFailure: all tabs stay lent, or the browser gives none.
        """
        if self._site is None:
            self._site = Site()
        while len(self._pools) <= depth:
            self._pools.append(PagePool(self._browser, size=self._size, **self._surroundings))
        pool = self._pools[depth]
        try:
            with note_doing("waiting for a free browser tab"):
                tab = await pool.acquire(self._patience_s)
        except TimeoutError:
            tabs = format_amount(self._size, "tab")
            problem = f"no browser tab came free within {self._patience_s:g} s, with {tabs} in use"
            who = "each fork" if depth else "each episode"
            advice = f"{who} holds one: close some, play fewer at once, or allow more with `pages`"
            raise EnvironmentFailure(f"{problem}; {advice}") from None
        # A tab is prepared once and used by many episodes.
        if tab not in self._prepared:
            try:
                with boundary(EnvironmentFailure, "preparing a tab"):
                    self._prepared[tab] = await MiniwobPage.on(tab, self._site, self._rules)
            except BaseException:
                # A tab that could not be prepared is replaced, not given to the next one.
                await pool.release(tab, broken=True)
                raise
        return self._prepared[tab]

    async def release(self, page: MiniwobPage, *, broken: bool = False) -> None:
        """Take a tab back; a broken one is replaced."""
        for pool in self._pools:  # all but the one that lent it do nothing
            await pool.release(page.tab, broken=broken)

    async def close(self) -> None:
        """End the browser and the server. May be called twice."""
        for pool in self._pools:
            await pool.close()
        await self._browser.close()
        if self._site is not None:
            await asyncio.to_thread(self._site.close)
            self._site = None
