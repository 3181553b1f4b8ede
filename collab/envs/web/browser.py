"""The browser process: find one, start it once, open its pages.

    choice = find_browser()                       # where it is, without starting anything
    async with Browser() as browser:
        page = await browser.page(viewport={"width": 160, "height": 210})

One `Browser` is one Chromium process; every page lives in a context of its own and shares nothing with its
neighbours. Playwright is imported when a browser starts, not before.

A pool keeps pages for repeated use:

    pool = PagePool(browser, size=8, viewport=…)
    page = await pool.acquire()
    await pool.release(page)                      # a crashed or hung page is replaced by a fresh one
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from collab.errors import EnvironmentFailure, MissingExtra, UsageError
from collab.utils.concurrency import note_doing

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import BrowserContext, Page, Playwright


VARIABLE = "COLLAB_BROWSER"
"""Environment variable that names a browser's executable."""

INSTALL = "run `playwright install chromium`, or your system's `apt-get install chromium`, or set " + VARIABLE

FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
"""What keeps a headless Chromium quiet without a network, and on the proxy when it is given one."""

_COMMANDS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "microsoft-edge-stable", "msedge"),
)
_PLACES = (
    "/usr/bin/chromium",
    "/usr/lib/chromium/chromium",
    "/snap/bin/chromium",
    "/opt/google/chrome/chrome",
    "/opt/microsoft/msedge/msedge",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
_PLAYWRIGHT_FILES = (
    "chrome-linux64/chrome",
    "chrome-linux/chrome",
    "chrome-mac-arm64/Google Chrome for Testing.app/Contents/MacOS/Google Chrome for Testing",
    "chrome-mac-x64/Google Chrome for Testing.app/Contents/MacOS/Google Chrome for Testing",
    "chrome-mac/Chromium.app/Contents/MacOS/Chromium",
    "chrome-win64/chrome.exe",
    "chrome-win/chrome.exe",
    "chrome-headless-shell-linux64/chrome-headless-shell",
    "chrome-linux/headless_shell",
    "chrome-headless-shell-mac-arm64/chrome-headless-shell",
    "chrome-headless-shell-mac-x64/chrome-headless-shell",
    "chrome-headless-shell-win64/chrome-headless-shell.exe",
)


_BrowserKind = Literal["given", "variable", "playwright", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserChoice:
    """A browser on this machine."""

    kind: _BrowserKind
    """What named it: the caller, the environment variable, Playwright's own folder, or the system."""
    path: Path
    version: str | None
    """As the program prints it, e.g. "Chromium 140.0.7339.16"; None if it prints none."""


def find_browser(executable_path: str | None = None) -> BrowserChoice:
    """Find the browser that `Browser` would start, without importing Playwright.

    Order: `executable_path`, the variable COLLAB_BROWSER, Playwright's own Chromium, then Chromium, Chrome or Edge
    of the system.

    Raises:
        UsageError: a named file cannot be run, or there is no browser at all.
    """
    kind, path = _choose(executable_path)
    return BrowserChoice(kind=kind, path=path, version=_read_version(path))


def _choose(executable_path: str | None) -> tuple[_BrowserKind, Path]:
    """Find a browser and run nothing, not even to ask for its version."""
    if executable_path:
        return "given", _resolve_named("executable_path", executable_path)
    if given := os.environ.get(VARIABLE):
        return "variable", _resolve_named(VARIABLE, given)
    for path in _list_playwright_paths():
        return "playwright", path
    for path in _list_system_paths():
        return "system", path
    raise UsageError(f"web pages need a browser, and there is no Chromium, Chrome or Edge on this machine; {INSTALL}")


def _resolve_named(where: str, given: str) -> Path:
    found = shutil.which(Path(given).expanduser())
    if found is None:
        raise UsageError(f"{where} names the browser {given!r}, which is not a program that can be run; {INSTALL}")
    return Path(found)


def _list_playwright_paths() -> Iterator[Path]:
    """Yield executables of the revision that the installed Playwright wants."""
    spec = importlib.util.find_spec("playwright")
    if spec is None or spec.origin is None:
        return
    # Read from the package's files: importing Playwright would start its driver.
    package = Path(spec.origin).parent / "driver" / "package"
    try:
        listed = json.loads((package / "browsers.json").read_text(encoding="utf-8"))["browsers"]
        revisions = {browser["name"]: browser["revision"] for browser in listed}
    except (OSError, ValueError, KeyError, TypeError):
        return
    # The full browser first; the shell is enough without one.
    for name in ("chromium", "chromium-headless-shell"):
        folder = _find_playwright_folder(package) / f"{name.replace('-', '_')}-{revisions.get(name)}"
        yield from (folder / file for file in _PLAYWRIGHT_FILES if (folder / file).is_file())


def _find_playwright_folder(package: Path) -> Path:
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if given == "0":
        return package / ".local-browsers"
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ms-playwright"


def _list_system_paths() -> Iterator[Path]:
    yield from (Path(found) for command in _COMMANDS if (found := shutil.which(command)))
    yield from (path for path in map(Path, _PLACES) if path.is_file() and os.access(path, os.X_OK))


def _read_version(path: Path) -> str | None:
    if sys.platform == "win32":  # there the flag opens a window
        return None
    try:
        asked = subprocess.Popen(
            [path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
    except OSError:
        return None
    told = ""
    with asked, contextlib.suppress(ValueError, subprocess.SubprocessError):
        try:
            told = asked.communicate(timeout=10)[0]
        finally:  # a wrapper's children, too
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(asked.pid, signal.SIGKILL)
    return " ".join(told.split(maxsplit=2)[:2]) or None


def build_surroundings(
    width: int,
    height: int,
    *,
    scale: float = 1.0,
    locale: str = "en-US",
    timezone: str = "UTC",
    colours: Literal["light", "dark"] = "light",
) -> dict[str, Any]:
    """Build the context options that fix what a page learns of its machine, whatever the real one is.

    Args:
        width, height: of window and screen, in CSS pixels.
        scale: device pixels per CSS pixel.
        locale: language that pages are asked for, and that dates and numbers are written in.
        timezone: name of the time zone.
        colours: the scheme that pages are told the user prefers.
    """
    return {
        "viewport": {"width": width, "height": height},
        "screen": {"width": width, "height": height},
        "device_scale_factor": scale,
        "locale": locale,
        "timezone_id": timezone,
        "color_scheme": colours,
        "reduced_motion": "no-preference",
        "forced_colors": "none",
    }


def _list_flags(surroundings: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the flags that give a whole browser the screen and the language of its pages."""
    if surroundings is None:
        return ()
    screen, scale = surroundings["screen"], surroundings["device_scale_factor"]
    width, height = round(screen["width"] * scale), round(screen["height"] * scale)
    told = f"{{{width}x{height} devicePixelRatio={scale:g}}}"
    return f"--screen-info={told}", f"--lang={surroundings['locale']}"


def _choose_variables(surroundings: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the environment variables that give a whole browser the time zone and the language of its pages."""
    if surroundings is None:
        return {}
    return {"TZ": surroundings["timezone_id"], "LANGUAGE": surroundings["locale"].replace("-", "_")}


class Browser:
    """One Chromium process, started when the first page is asked for and started again if it dies.

    Args:
        executable_path: the browser to use; None finds one (see `find_browser`).
        headless: False shows a window.
        arguments: more command-line flags.
        surroundings: of its pages, as `build_surroundings` gives them; None for the machine's own. Playwright tells
            them to pages alone; frames with a process of their own have those of the browser.
        start_timeout_s: how long the process may take to answer.
    """

    def __init__(
        self,
        *,
        executable_path: str | None = None,
        headless: bool = True,
        arguments: Sequence[str] = (),
        surroundings: Mapping[str, Any] | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self._executable_path = executable_path
        self._headless = headless
        self._arguments = (*arguments, *_list_flags(surroundings))
        self._variables = _choose_variables(surroundings)
        self._start_timeout_s = start_timeout_s
        self._driver: asyncio.Task[Playwright] | None = None
        self._start: asyncio.Task[PlaywrightBrowser] | None = None
        """Shared by all waiting callers: one that leaves takes it from no other."""
        self._process: PlaywrightBrowser | None = None

    async def __aenter__(self) -> Browser:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def version(self) -> str | None:
        """Version of the running browser; None before it has started."""
        return self._process.version if self._process else None

    async def start(self) -> None:
        """Start the process if it does not run.

        Raises:
            MissingExtra: Playwright is not installed.
            UsageError: there is no browser.
            EnvironmentFailure: it does not start.
        """
        await self._require_running()

    async def context(self, **options: Any) -> BrowserContext:
        """Return a fresh context (cookies, storage, cache of its own); `options` as in Playwright's `new_context`."""
        await self._require_running()  # tells when Playwright is missing
        from playwright.async_api import Error

        for last_try in (False, True):
            process = await self._require_running()
            try:
                return await process.new_context(**options)
            except Error as error:
                if last_try or process.is_connected():
                    raise EnvironmentFailure(f"the browser gives no new page: {_take_first_line(error)}") from error
        raise AssertionError("unreachable")

    async def page(self, **options: Any) -> Page:
        """Return a fresh page in a context of its own; close it with `close_page`."""
        context = await self.context(**options)
        from playwright.async_api import Error

        try:
            return await context.new_page()
        except Error as error:
            raise EnvironmentFailure(f"the browser gives no new page: {_take_first_line(error)}") from error

    async def close(self) -> None:
        """End the process, also one that is just starting. May be called twice."""
        start, process, driver = self._start, self._process, self._driver
        self._start = self._process = self._driver = None
        if start is not None:
            start.cancel()
        if process is not None:
            await _close_patiently(process.close())
        if driver is not None:
            await _close_patiently(_stop(driver))  # its end also ends a browser that did not listen, or was starting

    async def _require_running(self) -> PlaywrightBrowser:
        while self._process is None or not self._process.is_connected():
            if self._start is None or self._start.done():
                self._start = asyncio.create_task(self._launch())
                self._start.add_done_callback(_take_error)
            start = self._start
            with note_doing("starting a browser"):
                await asyncio.wait({start})
            if start.cancelled():
                raise EnvironmentFailure("the browser was closed while it was starting")
            self._process = start.result()
        return self._process

    async def _launch(self) -> PlaywrightBrowser:
        MissingExtra.unless("playwright", extra="web", purpose="opening web pages")
        from playwright.async_api import Error, async_playwright

        _, path = _choose(self._executable_path)
        if self._driver is None or (self._driver.done() and not _has_come(self._driver)):
            self._driver = asyncio.create_task(async_playwright().start())
        driver = await asyncio.shield(self._driver)  # it ends by its `stop` alone
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        try:
            return await driver.chromium.launch(
                executable_path=path,
                headless=self._headless,
                args=[*FLAGS, *self._arguments],
                env={**os.environ, **self._variables},
                chromium_sandbox=not is_root,
                timeout=self._start_timeout_s * 1000,
                handle_sigint=False,  # Ctrl-C stops the run first; the run then closes its browser
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            raise EnvironmentFailure(f"the browser {path} does not start: {_take_first_line(error)}") from error


async def take_picture(page: Page) -> bytes:
    """Return the window as PNG, one pixel per CSS pixel, as it is now: fonts that never come are not waited for."""
    from collab.envs.overlay import shrink_png

    session = await page.context.new_cdp_session(page)
    try:
        answer = await session.send("Page.captureScreenshot", {"format": "png"})
    finally:
        await _close_patiently(session.detach())
    png, size = base64.b64decode(answer["data"]), page.viewport_size
    return png if size is None else shrink_png(png, size["width"], size["height"])


async def close_page(page: Page) -> None:
    """Close a page together with its context, dead or alive."""
    await close_context(page.context)


async def close_context(context: BrowserContext) -> None:
    """Close a context with all its pages, dead or alive."""
    await _close_patiently(context.close())


async def _stop(driver: asyncio.Task[Playwright]) -> None:
    """End Playwright's own process, once it has started; what it started ends with it."""
    with contextlib.suppress(OSError):
        await (await driver).stop()


def _has_come(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is None


def _take_error(task: asyncio.Task[Any]) -> None:
    """Look at what a task raised, though every caller may have stopped waiting."""
    if not task.cancelled():
        task.exception()


def _take_first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]


async def _close_patiently(closing: Any, timeout_s: float = 5.0) -> None:
    """Wait for something to close; what is already dead or does not answer is left to the end of its process."""
    from playwright.async_api import Error

    with contextlib.suppress(Error, TimeoutError):
        await asyncio.wait_for(closing, timeout_s)


_OPENING_S = 60.0
"""How long a browser that runs may take to open a page: seconds where everything else waits for the processor, too."""


class PagePool:
    """At most `size` pages, lent one at a time; a page comes back as it was left, so the borrower resets it.

    Args:
        browser: whose pages.
        size: how many may be lent at once; a further borrower waits.
        answer_timeout_s: a returned page that does not answer in this time is replaced.
        options: of the pages' contexts (viewport, user agent …), as in Playwright's `new_context`.
    """

    def __init__(self, browser: Browser, *, size: int = 16, answer_timeout_s: float = 2.0, **options: Any) -> None:
        if size < 1:
            raise UsageError(f"a page pool of size {size}, allowed: 1 or more")
        self._browser = browser
        self._answer_timeout_s = answer_timeout_s
        self._options = options
        self._places = asyncio.Semaphore(size)
        self._idle: list[Page] = []
        self._lent: set[Page] = set()

    async def acquire(self, patience_s: float | None = None) -> Page:
        """Return a page that answers: the one used last, or a fresh one.

        Args:
            patience_s: how long a borrower waits when all are lent, from when the browser runs; None for ever.

        Raises:
            TimeoutError: all stayed lent.
            EnvironmentFailure: the browser gives none.
        """
        await self._browser.start()
        async with asyncio.timeout(patience_s):
            await self._places.acquire()
        try:
            page = await self._find_living() or await self._open_fresh()
        except BaseException:
            self._places.release()
            raise
        self._lent.add(page)
        return page

    async def release(self, page: Page, *, broken: bool = False) -> None:
        """Take a page back; `broken` says that the borrower has seen it crash or hang. Twice is harmless."""
        if page not in self._lent:
            return
        self._lent.discard(page)
        try:
            if not broken and await self._does_answer(page):
                self._idle.append(page)
            else:
                await close_page(page)
        finally:
            self._places.release()

    async def close(self) -> None:
        """Close all pages, lent ones too. May be called twice."""
        pages = [*self._idle, *self._lent]
        self._idle.clear()
        self._lent.clear()
        for page in pages:
            await close_page(page)

    async def _open_fresh(self) -> Page:
        try:
            async with asyncio.timeout(_OPENING_S):
                return await self._browser.page(**self._options)
        except TimeoutError:
            problem = f"the browser opened no page within {_OPENING_S:g} s"
            raise EnvironmentFailure(f"{problem}: the machine is overloaded; play fewer episodes at once") from None

    async def _find_living(self) -> Page | None:
        while self._idle:
            page = self._idle.pop()
            if await self._does_answer(page):
                return page
            await close_page(page)
        return None

    async def _does_answer(self, page: Page) -> bool:
        from playwright.async_api import Error

        try:
            return bool(await asyncio.wait_for(page.evaluate("true"), self._answer_timeout_s))
        except (Error, TimeoutError):
            return False
