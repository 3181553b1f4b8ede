"""Read a page's frames by our own script in isolated worlds that the page's scripts cannot reach.

    world = await find_world(page)                     # of the page itself
    inside = await world.within(key_of_a_frame)        # of a frame of another origin, wherever the browser keeps it
    answer = await inside.ask({"key": key})

A world shares only the page's elements: even if the page changes Array, JSON or methods of elements, the script
(`dom.js`) uses the browser's own. It names elements that may have a closed shadow root; the browser then passes the
root to it. The world and its memory of the last look end with the document.

The browser numbers worlds anew in each of its processes: after a page has moved to another process, the number of our
world may be that of a world of the page's scripts. Our script therefore has a name that no page can know, and nothing
is asked where it is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import secrets
import time
from collections.abc import Awaitable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

AnswerT = TypeVar("AnswerT")

NAME = "collab"
"""Name of the worlds, as the browser lists them."""

_LOOK = f"look_{secrets.token_hex(8)}"
"""What our script is called in worlds beside those of pages; tells them apart."""
_SILENT_S = 30.0
_DEEPEST = 5
"""Levels of closed shadow roots within each other that one look opens."""
_HANDLERS_MS = 200
_HANDLERS = """(() => {
  const scopes = [document], found = [];
  for (let at = 0; at < scopes.length; at++) {
    let i = 0;
    for (const el of scopes[at].querySelectorAll("*")) {
      if (typeof el.onclick === "function" && found.length < 2000) found.push(at, i);
      if (el instanceof HTMLFormElement) { i++; continue; }
      if (el.shadowRoot) scopes.push(el.shadowRoot);
      let inner = null;
      try { inner = /^(I?FRAME|OBJECT)$/.test(el.tagName) ? el.contentDocument : null; } catch {}
      if (inner) scopes.push(inner);
      i++;
    }
  }
  return found.join();
})()"""
"""Which elements have a click handler that a script set: only the page's own world can see it.

What a page makes of this is a hint and no more: it can add things to the screen, not hide them.
"""


class World(Protocol):
    """World in which the script runs for one document."""

    async def ask(self, request: Mapping[str, Any]) -> str:
        """Send a request to the script; return its answer as JSON text.

        Raises:
            playwright.async_api.Error: the document is gone, or is just being replaced by another.
        """
        ...

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in this world."""
        ...

    async def evaluate_in_page(self, expression: str) -> tuple[Any, str | None]:
        """Return the value of an expression, and what it threw, in the world of the page's own scripts."""
        ...

    async def enter(self, key: str) -> FrameWorld | None:
        """Return the world of a frame of another origin, by the frame's key; None where there is none to have."""
        ...


class OwnWorld:
    """A trusted page's own world, in which the script runs since before the page's."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session

    async def ask(self, request: Mapping[str, Any]) -> str:
        """Put a request to the script."""
        return str(await self.evaluate(f"__collabLook({json.dumps(request)})"))

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression."""
        return await _read_value(self._session, expression)

    async def evaluate_in_page(self, expression: str) -> tuple[Any, str | None]:
        """Return the value of an expression, and what it threw."""
        return await _read_attempt(self._session, expression, awaitPromise=True)

    async def enter(self, key: str) -> FrameWorld | None:
        """Return a trusted page has no frames of another origin."""
        return None


class FrameWorld:
    """A world of our own beside that of a frame, made anew for each document that the frame shows."""

    def __init__(self, page: _PageWorlds, session: CDPSession, frame: str, *, is_root: bool) -> None:
        self._page, self._session, self._frame, self._is_root = page, session, frame, is_root
        self._context: int | None = None
        self._seen = ""

    async def ask(self, request: Mapping[str, Any]) -> str:
        """Put a request to the script, which is installed where it is not there yet."""
        is_look = "key" not in request and "scroll" not in request
        whole = dict(request)
        # Finding handlers is dear, so only looks that need them ask for it.
        if is_look or "seen" in whole:
            whole["handlers"] = await self._find_handlers()
        if "seen" in whole:
            whole["seen"] = {**whole["seen"], "from": self._seen}
        question = f"{_LOOK}({json.dumps(whole)})"
        answer = str(await self._run(question))
        if is_look:
            # Shadow roots may hold closed roots: looked at again until nothing is suspected.
            for _ in range(_DEEPEST):
                if json.loads(answer)["suspects"] == 0 or not await self._reveal():
                    break
                answer = str(await self._run(question))
            self._seen = str(json.loads(answer)["url"])
        return answer

    async def _reveal(self) -> bool:
        """Pass closed shadow roots of suspected elements to the script; return whether there are any.

        The page's scripts cannot notice: only the browser answers, and only to this world.
        """
        from playwright.async_api import Error

        # Closed roots are invisible to scripts; the browser's own protocol sees them.
        suspects = await self._send("Runtime.evaluate", expression=f"{_LOOK}.take()", contextId=self._context)
        group = {"objectId": suspects["result"]["objectId"], "ownProperties": True}
        listed = (await self._send("Runtime.getProperties", **group))["result"]
        handles = [one["value"]["objectId"] for one in listed if "objectId" in one.get("value", {})]
        roots = [root for found in await asyncio.gather(*map(self._find_closed_roots, handles)) for root in found]
        for root in roots:
            there = {"backendNodeId": root, "executionContextId": self._context}
            with contextlib.suppress(Error):
                node = (await self._send("DOM.resolveNode", **there))["object"]["objectId"]
                reveal = f"function () {{ {_LOOK}.reveal(this) }}"
                await self._send("Runtime.callFunctionOn", objectId=node, functionDeclaration=reveal)
        return bool(roots)

    async def _find_closed_roots(self, element: str) -> list[int]:
        """Return an element's closed shadow root by the browser's number; none of what is gone meanwhile."""
        from playwright.async_api import Error

        with contextlib.suppress(Error):
            told = (await self._send("DOM.describeNode", objectId=element))["node"]
            roots = told.get("shadowRoots", [])
            return [root["backendNodeId"] for root in roots if root.get("shadowRootType") == "closed"]
        return []

    async def _send(self, method: str, **request: Any) -> dict[str, Any]:
        return await self._page.await_answer(self._session.send(method, request))

    async def enter(self, key: str) -> FrameWorld | None:
        """Return the world of a frame of another origin; None when it shows nothing or does not answer."""
        frame = await self._find_frame_id(key)
        if frame is None or self._page.is_silent(frame):
            return None
        self._page.silence(frame)  # until it has answered
        found = await self._find_world(frame)
        if found is not None:
            self._page.silent.pop(frame)
        return found

    async def _find_world(self, frame: str) -> FrameWorld | None:
        """Return the world of a frame, in the process of this one or in one of its own."""
        from playwright.async_api import Error

        known = self._page.inner.get(frame)
        # A frame may have navigated and lost its world; it is made anew in the same process first.
        for world in (known, FrameWorld(self._page, self._session, frame, is_root=False)):
            if world is not None:
                with contextlib.suppress(Error):
                    await world.create()
                    self._page.inner[frame] = world
                    return world
        # Else it lives in a process of its own, which needs a session.
        session = await self._page.open_session(frame)
        if session is None:
            return None
        self._page.inner[frame] = world = FrameWorld(self._page, session, frame, is_root=True)
        await world.create()
        return world

    async def create(self) -> None:
        """Make the world and install the script; one that is there already is used again."""
        from playwright.async_api import Error

        self._context = await self._make()
        await self._read(_build_script())
        # The document may have changed between the two: then the script went to whatever has that number now.
        if await self._make() != self._context:
            self._context = None
            raise Error("the page is just being replaced by another document")

    async def _make(self) -> int:
        """Return the number of our world in the process that the frame has now."""
        made = await self._send("Page.createIsolatedWorld", frameId=self._frame, worldName=NAME)
        return int(made["executionContextId"])

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in this world."""
        return await self._run(expression)

    async def evaluate_in_page(self, expression: str) -> tuple[Any, str | None]:
        """Return the value of an expression, and what it threw, in the world of the page's own scripts."""
        return await self._page.await_answer(_read_attempt(self._session, expression, awaitPromise=True))

    def silence(self) -> None:
        """Ask this frame no more for a while: it does not answer."""
        self._page.silence(self._frame)

    async def _run(self, expression: str) -> Any:
        from playwright.async_api import Error

        if self._context is not None:
            try:
                return await self._read(f"({_LOOK}, {expression})")
            except Error as error:
                if "context" not in str(error) and f"{_LOOK} is not defined" not in str(error):
                    raise
        await self.create()  # the first time, and after another document came
        return await self._read(f"({_LOOK}, {expression})")

    async def _read(self, expression: str) -> Any:
        return await self._page.await_answer(_read_value(self._session, expression, contextId=self._context))

    async def _find_handlers(self) -> str:
        from playwright.async_api import Error

        if not self._is_root:
            return ""
        with contextlib.suppress(Error):
            found = await self._page.await_answer(_read_value(self._session, _HANDLERS, timeout=_HANDLERS_MS))
            if isinstance(found, str) and found.replace(",", "").isdigit():
                return found[:30_000].rpartition(",")[0] if len(found) > 30_000 else found
        return ""

    async def _find_frame_id(self, key: str) -> str | None:
        request = {"expression": f"{_LOOK}.find({json.dumps(key)})", "contextId": self._context}
        node = (await self._page.await_answer(self._session.send("Runtime.evaluate", request)))["result"].get(
            "objectId"
        )
        if node is None:
            return None
        told = await self._page.await_answer(self._session.send("DOM.describeNode", {"objectId": node}))
        await self._page.await_answer(self._session.send("Runtime.releaseObject", {"objectId": node}))
        frame = told["node"].get("frameId")
        return None if frame is None else str(frame)


class _PageWorlds:
    """State that the worlds of a page share: its sessions, and whether it crashed."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._sessions: dict[str, CDPSession] = {}
        self._crash: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inner: dict[str, FrameWorld] = {}
        self.silent: dict[str, float] = {}
        """Frames that did not answer, and until when they are not asked again."""
        self.top: World | None = None
        page.on("crash", self._on_crash)
        page.on("close", self._on_closed)

    def _on_closed(self, page: Page) -> None:
        _worlds.pop(page, None)

    def _on_crash(self, page: Page) -> None:
        if not self._crash.done():
            self._crash.set_result(None)

    def silence(self, frame: str) -> None:
        """Ask a frame no more for a while."""
        self.silent[frame] = time.monotonic() + _SILENT_S

    def is_silent(self, frame: str) -> bool:
        """Return whether a frame is not asked at present."""
        return time.monotonic() < self.silent.get(frame, 0.0)

    async def open(self) -> None:
        """Find the page itself."""
        session = await self._page.context.new_cdp_session(self._page)
        tree = await self.await_answer(session.send("Page.getFrameTree"))
        self.top = FrameWorld(self, session, str(tree["frameTree"]["frame"]["id"]), is_root=True)

    async def await_answer(self, question: Awaitable[AnswerT]) -> AnswerT:
        """Wait for an answer of the browser; Error when the page crashes first, since no answer comes then."""
        from playwright.async_api import Error

        asked = asyncio.ensure_future(question)
        try:
            waited: set[asyncio.Future[Any]] = {asked, self._crash}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise Error("the page crashed")
            return asked.result()
        finally:
            asked.cancel()

    async def open_session(self, frame: str) -> CDPSession | None:
        """Return the session of a frame that has a process of its own."""
        from playwright.async_api import Error

        for one in self._page.frames[1:]:
            with contextlib.suppress(Error):
                session = await self._page.context.new_cdp_session(one)
                tree = await self.await_answer(session.send("Page.getFrameTree"))
                if tree["frameTree"]["frame"]["id"] == frame:
                    return session
                await session.detach()
        return None


_worlds: WeakKeyDictionary[Page, _PageWorlds] = WeakKeyDictionary()


async def find_world(page: Page) -> World:
    """Return the world of a page; it is made with the first question."""
    if page not in _worlds:
        _worlds[page] = _PageWorlds(page)
    worlds = _worlds[page]
    if worlds.top is None:
        await worlds.open()
    assert worlds.top is not None
    return worlds.top


def trust(page: Page, session: CDPSession) -> None:
    """Ask this page in its own world from now on: it runs our script itself."""
    _worlds[page] = _PageWorlds(page)
    _worlds[page].top = OwnWorld(session)


async def evaluate_in_page(page: Page, expression: str) -> tuple[Any, str | None]:
    """Return the value of an expression among the page's own scripts, and what it threw; one of the two is None.

    Raises:
        playwright.async_api.Error: the page is gone.
    """
    return await (await find_world(page)).evaluate_in_page(expression)


async def _read_attempt(session: CDPSession, expression: str, **options: Any) -> tuple[Any, str | None]:
    """Return the value of an expression, and the first line of what it threw."""
    request = {"expression": expression, "returnByValue": True, **options}
    answer = await session.send("Runtime.evaluate", request)
    if "exceptionDetails" not in answer:
        return answer["result"].get("value"), None
    thrown = answer["exceptionDetails"].get("exception", {})
    return None, (str(thrown.get("description", thrown.get("value", ""))).splitlines() or ["something"])[0][:200]


async def _read_value(session: CDPSession, expression: str, **options: Any) -> Any:
    """Return the value of an expression; Error when it throws."""
    from playwright.async_api import Error

    value, thrown = await _read_attempt(session, expression, **options)
    if thrown is not None:
        raise Error(f"the page could not be read: {thrown}")
    return value


@functools.cache
def _build_script() -> str:
    """Put the function of `dom.js` into a world that does not have it."""
    look = resources.files(__package__).joinpath("dom.js").read_text(encoding="utf-8")
    return f"""if (!Object.hasOwn(globalThis, "{_LOOK}")) {{
      const look = {look.rstrip().rstrip(";")};
      Object.defineProperty(globalThis, "{_LOOK}", {{ value: look }});
    }}
    0"""
