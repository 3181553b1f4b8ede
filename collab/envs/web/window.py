"""One browser window as its user has it: tabs, dialogs, downloads, refusals.

Fixed rules answer what happens beside the page, and `take_notices` reports it once:

- alert, confirm and "leave this page?" are answered OK (or Cancel, by option); prompt is answered with the text the
  page proposes; all are reported with their text;
- a new window becomes a tab and is shown as soon as its page begins to arrive; above `max_tabs` it is closed again;
- a closed tab leaves the list; when the last one closes, an empty one opens;
- downloads are refused;
- a link to another program (tel:, mailto:, any scheme that is not the browser's own) is not followed: the browser
  would ask in a window of its own, behind which the page hears no mouse;
- a navigation to an address that the policy forbids by its text does not happen: the page stays as it was. Anything
  else (a name that turns out to be private, a picture, a script) fails at the gate and is listed by `take_refusals`;
- a page whose certificate is not trusted is not opened, and the browser's warning, which could be passed, not shown;
- a site's sign-in prompt is answered with the window's credentials, once and only where they belong; else it is
  cancelled, and the page is what the site says to a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from collab.envs.text import cut
from collab.envs.web.browser import Browser, close_context
from collab.envs.web.gate import HostGate, HostPolicy, is_same_origin, shorten_address
from collab.errors import EnvironmentFailure
from collab.types import Tab
from collab.utils.redact import hide_in_addresses
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Dialog, Download, Page, Request, Response

_TAB_S = 5.0
"""How long a new tab may take to be there."""
MOST_NOTICES = 8
"""Notices of one step that are told in full; the others are counted."""

_OWN_SCHEME = "^(https?|about|blob|data|file|filesystem|javascript|view-source|chrome(-[a-z]+)?):"
"""Addresses that the browser opens itself; all others belong to another program."""
_STAY = f"""
{{
  const own = new RegExp({json.dumps(_OWN_SCHEME)}, "i");
  globalThis.navigation?.addEventListener("navigate", (event) => {{
    if (!own.test(event.destination.url)) event.preventDefault();
  }});
}}
"""
"""Run in every document before its own scripts."""

AWAITED = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
"""Kinds of requests that a page is still loading for."""


class BrowserWindow:
    """A browser context behind a gate of its own. Open it with `open_window`."""

    def __init__(
        self,
        context: BrowserContext,
        gate: HostGate,
        policy: HostPolicy,
        dialogs: Literal["accept", "dismiss"],
        max_tabs: int,
        credentials: dict[str, str] | None = None,
    ) -> None:
        self._context, self._gate, self._policy = context, gate, policy
        self._dialogs, self._max_tabs = dialogs, max_tabs
        self._credentials = credentials
        self._signed: set[str] = set()  # requests that got the credentials already
        self._pages: list[Page] = []
        self._shown: Page | None = None
        self._seen: tuple[Page, ...] = ()
        self._seen_shown: Page | None = None
        self._titles: dict[Page, str] = {}
        self._opening = 0  # new tabs that were announced and are not there yet
        self._is_patient = True  # with them, unless one did not come
        self._pending: set[Request] = set()
        self._answered: set[Request] = set()  # those whose answer has begun
        self._guarded: set[Page] = set()
        self._reopened: set[Page] = set()  # whose first page was opened again
        self._warnings = 0  # certificate warnings that are being replaced
        self._notices: dict[str, None] = {}
        self._untold = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions: WeakKeyDictionary[Page, CDPSession] = WeakKeyDictionary()
        self.crashed = False
        """Whether the process of a page has died."""
        self.distrusted: str | None = None
        """What was wrong with the certificate refused last, in the browser's words; None when none was."""
        self.arrived = 0.0
        """When the tab that is shown last got a document, or gave up getting one, by `time.monotonic`."""
        context.on("page", self._on_opened)
        context.on("dialog", self._on_dialog)
        context.on("request", self._on_request)
        context.on("requestfinished", self._on_request_end)
        context.on("requestfailed", self._on_request_failed)
        context.on("response", self._on_response)

    @property
    def page(self) -> Page:
        """The tab that is shown.

        Raises:
            EnvironmentFailure: there is none.
        """
        if self._shown is None:
            raise EnvironmentFailure("the browser window has no tab")
        return self._shown

    def is_shown(self, page: Page) -> bool:
        """Return whether that tab is the one that is shown."""
        return page is self._shown

    def tabs(self) -> tuple[Tab, ...]:
        """Return all tabs, oldest first."""
        return tuple(
            Tab(title=self._titles.get(page, ""), url=shorten_address(page.url), active=page is self._shown)
            for page in self._pages
        )

    def remember(self, title: str) -> None:
        """Remember what is being seen: the title of the tab that is shown, and which tabs there are."""
        self._titles[self.page] = title
        self._seen, self._seen_shown = tuple(self._pages), self._shown

    def is_as_seen(self) -> bool:
        """Return whether the tab is still shown that was when `remember` was called last."""
        return self._shown is self._seen_shown

    def is_loading(self) -> bool:
        """Return whether the tab that is shown still waits for something it needs, or a new one is being opened."""
        return self._opening > 0 or any(self._is_relevant(request) for request in self._pending)

    def is_navigating(self) -> bool:
        """Return whether the tab that is shown is on its way to another page, or a new one to its first.

        A page is there as soon as its answer begins, which may have no end.
        After `forget_openings` new tabs are not asked about until one comes.
        """
        if self._warnings:
            return True
        return any(
            request.is_navigation_request() and self._is_relevant(request)
            for request in self._pending - self._answered
            if (self._is_patient or _find_page(request) is not None) and not _is_framed(request)
        )

    def is_leaving(self) -> bool:
        """Return whether the tab that is shown is on its way to another page; it answers nothing until that comes."""
        asked = (request for request in self._pending - self._answered if request.is_navigation_request())
        return any(_find_page(request) is self._shown and not _is_framed(request) for request in asked)

    def forget_openings(self) -> None:
        """Wait no longer for new tabs that have not come: what they ask for is no page, or takes too long."""
        late = [request for request in self._pending if _find_page(request) is None]
        self._is_patient = self._is_patient and not late
        self._pending.difference_update(late)
        self._opening = 0

    def take_notices(self) -> str | None:
        """Return what happened beside the page since the last call; None if nothing."""
        told = [*self._notices, *([f"{self._untold} more notices were left out"] if self._untold else [])]
        self._notices.clear()
        self._untold = 0
        return "; ".join(told) or None

    def _notice(self, text: str) -> None:
        """Tell something once, at the next look."""
        if text in self._notices or len(self._notices) < MOST_NOTICES:
            self._notices[text] = None
        else:
            self._untold += 1

    def take_refusals(self) -> tuple[str, ...]:
        """Return why the gate refused connections (pictures, scripts, redirects) since the last call, each once."""
        return self._gate.take_refusals()

    async def open_tab(self) -> None:
        """Open an empty tab and show it; a notice says so when there are too many."""
        await self._context.new_page()

    async def show(self, index: int) -> str | None:
        """Show a tab by its index among those that were seen last; why it cannot be shown, None when it is."""
        if not 0 <= index < len(self._seen):
            return f"there is no tab {index}, only 0 to {len(self._seen) - 1}"
        if self._seen[index] not in self._pages:
            return f"the page changed; nothing happened: tab {index} is closed"
        self._shown = self._seen[index]
        await self._shown.bring_to_front()
        return None

    async def stop_loading(self, reason: str) -> None:
        """Give up all that the shown tab still loads, the page it goes to included; a notice tells the reason."""
        session = self._sessions.get(self.page)
        if session is not None:
            self._notice(reason)
            await _run_quietly(session.send("Page.stopLoading"))

    async def settle_tabs(self) -> None:
        """Let what the last events started come to its end, and see that a tab is open."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._pages and not self.crashed:
            self._notice("the last tab was closed; an empty one was opened")
            await self.open_tab()

    async def close(self) -> None:
        """Close everything. May be called twice."""
        self._context.remove_listener("page", self._on_opened)
        for task in self._tasks:
            task.cancel()
        await close_context(self._context)
        await self._gate.close()

    # ------------------------------------------------------------------------------------------------- events

    def _on_opened(self, page: Page) -> None:
        self._opening = max(0, self._opening - 1)
        self._is_patient = True
        # Bounded: a page can open any number of tabs.
        if len(self._pages) >= self._max_tabs:
            self._notice(f"a new tab was closed again: {format_amount(self._max_tabs, 'tab')} are open already")
            self._start(page.close())
            return
        self._pages.append(page)
        # A new tab comes in front, as in a browser.
        self._shown = page
        page.on("close", self._on_closed)
        page.on("crash", self._on_crash)
        page.on("download", self._refuse_download)
        # Guarded from the start, as a page may open dialogs at once.
        self._start(self._guard(page))

    def _on_closed(self, page: Page) -> None:
        if page in self._pages:
            position = self._pages.index(page)
            self._pages.remove(page)
            self._titles.pop(page, None)
            if page is self._shown:
                self._shown = self._pages[max(0, position - 1)] if self._pages else None
                self._notice("the tab was closed")

    def _on_crash(self, page: Page) -> None:
        self.crashed = True

    def _on_request(self, request: Request) -> None:
        if request.resource_type in AWAITED:
            self._pending.add(request)

    def _on_response(self, response: Response) -> None:
        request = response.request
        if request in self._pending:
            self._answered.add(request)
            if request.is_navigation_request() and self._is_relevant(request) and not _is_framed(request):
                self.arrived = time.monotonic()

    def _on_request_failed(self, request: Request) -> None:
        self._on_request_end(request)
        is_page = request.is_navigation_request() and not _is_framed(request)
        if is_page and (request.failure or "").startswith("net::ERR_CERT"):
            self._warnings += 1
            self._start(self._leave_warning(request))

    def _on_request_end(self, request: Request) -> None:
        self._pending.discard(request)
        self._answered.discard(request)
        if request.is_navigation_request() and self._is_relevant(request) and not _is_framed(request):
            self.arrived = time.monotonic()

    def _is_relevant(self, request: Request) -> bool:
        """Return whether the tab that is shown made the request, or a new one that is not there yet."""
        page = _find_page(request)
        return request.is_navigation_request() if page is None else page is self._shown

    def _on_tab_announced(self, event: Mapping[str, Any]) -> None:
        """Count a tab that a page opens; it is there only when its own page begins to arrive."""
        if not self._refuse_program(event):
            self._opening += 1

    def _on_navigation(self, event: Mapping[str, Any]) -> None:
        """Refuse an address of another program that a frame is about to go to."""
        self._refuse_program(event)

    def _refuse_program(self, event: Mapping[str, Any]) -> bool:
        """Report an address that only another program would open; return whether it is one."""
        url = str(event["url"])
        is_foreign = bool(url) and re.match(_OWN_SCHEME, url, re.IGNORECASE) is None
        if is_foreign:
            self._notice(f"{cut(hide_in_addresses(url), 200)} was not opened: it is for another program")
        return is_foreign

    def _on_dialog(self, dialog: Dialog) -> None:
        answer = "OK" if self._dialogs == "accept" else "Cancel"
        given = f" with {cut(dialog.default_value, 80)!r}" if dialog.type == "prompt" and answer == "OK" else ""
        text = cut(dialog.message, 200)
        self._notice(f"the page asked ({dialog.type}) {text!r} and was answered {answer}{given}")
        if self._dialogs == "accept":
            self._start(dialog.accept(dialog.default_value) if dialog.type == "prompt" else dialog.accept())
        else:
            self._start(dialog.dismiss())

    def _refuse_download(self, download: Download) -> None:
        self._notice(f"the download of {cut(download.suggested_filename, 80)!r} was refused")
        self._start(download.cancel())

    # ----------------------------------------------------------------------------------------------- navigation

    async def _guard(self, page: Page) -> None:
        """Ask before every document, redirects included; a refused one leaves the page as it is."""
        session = self._sessions[page] = await self._context.new_cdp_session(page)
        session.on("Fetch.requestPaused", lambda event: self._start(self._decide(session, event)))
        # Playwright answers prompts, too; browsers differ in which of two sessions they ask, and ask one alone.
        session.on("Fetch.authRequired", lambda event: self._start(self._sign_in(session, event)))
        asked = {"patterns": [{"urlPattern": "*", "resourceType": "Document"}], "handleAuthRequests": True}
        await _insist(session, page, "Fetch.enable", asked)
        # Decided here for every host: the browser's own warning has a link that opens the page all the same.
        session.on("Security.certificateError", lambda event: self._start(self._accept_certificate(session, event)))
        await _insist(session, page, "Security.enable")
        await _insist(session, page, "Security.setOverrideCertificateErrors", {"override": True})
        self._guarded.add(page)
        session.on("Page.windowOpen", self._on_tab_announced)
        session.on("Page.frameScheduledNavigation", self._on_navigation)
        await session.send("Page.enable")  # a busy page answers late: the guard must not wait for it

    async def _accept_certificate(self, session: CDPSession, event: Mapping[str, Any]) -> None:
        """Accept an unsigned certificate where the policy says so, and no other."""
        action = "continue" if self._policy.can_trust_certificate(str(event["requestURL"])) else "cancel"
        if action == "cancel":
            self.distrusted, url = str(event["errorType"]), str(event["requestURL"])
            pages = [one for one in self._pending if one.is_navigation_request() and not _is_framed(one)]
            if any(one.url == url for one in pages):
                self._notice_distrust(url, self.distrusted)
        await session.send("Security.handleCertificateError", {"eventId": event["eventId"], "action": action})

    async def _leave_warning(self, request: Request) -> None:
        """Replace the browser's warning in a new tab, which asked for its page before certificates were decided on."""
        end = time.monotonic() + _TAB_S
        try:
            while (page := _find_page(request)) is None or page not in self._guarded:
                if time.monotonic() > end or (page is not None and page.is_closed()):
                    return
                await asyncio.sleep(0.02)
            is_believed = request.method == "GET" and self._policy.can_trust_certificate(request.url)
            if is_believed and page not in self._reopened:
                self._reopened.add(page)
                await page.goto(request.url, wait_until="commit")
            else:
                self._notice_distrust(request.url, (request.failure or "").removeprefix("net::"))
                await page.goto("about:blank")
        finally:
            self._warnings -= 1
            self.arrived = time.monotonic()

    def _notice_distrust(self, url: str, error: str) -> None:
        self._notice(f"{cut(hide_in_addresses(url), 200)} was not opened: its certificate is not trusted ({error})")

    async def _decide(self, session: CDPSession, event: Mapping[str, Any]) -> None:
        url, request = str(event["request"]["url"]), {"requestId": event["requestId"]}
        refusal = self._policy.explain_refusal(url)
        if refusal is None:
            await session.send("Fetch.continueRequest", request)
        else:
            self._notice(f"{cut(hide_in_addresses(url), 200)} was not opened: {refusal}")
            await session.send("Fetch.failRequest", {**request, "errorReason": "Aborted"})

    async def _sign_in(self, session: CDPSession, event: Mapping[str, Any]) -> None:
        """Answer a sign-in prompt; one that comes again has been answered wrongly."""
        request, given = str(event["requestId"]), self._credentials
        answer = {"response": "CancelAuth"}
        if given and request not in self._signed and is_same_origin(event["authChallenge"]["origin"], given["origin"]):
            self._signed.add(request)
            answer = {"response": "ProvideCredentials", "username": given["username"], "password": given["password"]}
        await session.send("Fetch.continueWithAuth", {"requestId": request, "authChallengeResponse": answer})

    def _start(self, work: Any) -> None:
        """Run what an event asks for; a page that is gone meanwhile needs no answer."""
        task = asyncio.ensure_future(_run_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def open_window(
    browser: Browser,
    policy: HostPolicy,
    *,
    dialogs: Literal["accept", "dismiss"] = "accept",
    max_tabs: int = 8,
    credentials: dict[str, str] | None = None,
    **options: Any,
) -> BrowserWindow:
    """Open a window with one empty tab.

    Args:
        browser: in which browser.
        policy: what its pages may reach.
        dialogs: how alert, confirm and prompt are answered.
        max_tabs: how many tabs may be open.
        credentials: `username` and `password` for the sign-in prompts of the site at `origin`; None without any.
        options: of the context (viewport, locale …), as in Playwright's `new_context`.

    Raises:
        EnvironmentFailure: the browser gives none.
    """
    gate = HostGate(policy)
    await gate.start()
    try:
        context = await browser.context(
            proxy={"server": gate.address}, accept_downloads=False, http_credentials=credentials, **options
        )
    except BaseException:
        await gate.close()
        # The gate is closed if there is no window to close it with.
        raise
    window = BrowserWindow(context, gate, policy, dialogs, max_tabs, credentials)
    try:
        # Before any page loads, so that no page runs without it.
        await context.add_init_script(_STAY)
        await window.open_tab()
        await window.settle_tabs()
    except BaseException:
        await window.close()
        raise
    return window


async def _run_quietly(work: Any) -> None:
    from playwright.async_api import Error

    with contextlib.suppress(Error):
        await work


async def _insist(session: CDPSession, page: Page, method: str, options: dict[str, Any] | None = None) -> None:
    """Send a command without which a tab must not stay open: again while the tab changes its process, else close it."""
    from playwright.async_api import Error

    end = time.monotonic() + _TAB_S
    while True:
        try:
            await session.send(method, options)
            return
        except Error:
            if page.is_closed() or time.monotonic() > end:
                await page.close()
                raise
            await asyncio.sleep(0.02)


def _is_framed(request: Request) -> bool:
    """Return whether a frame within a page made the request."""
    return _find_page(request) is not None and request.frame.parent_frame is not None


def _find_page(request: Request) -> Page | None:
    """Return the tab that made a request; None for a new tab's first one and for a service worker's."""
    from playwright.async_api import Error

    try:
        return request.frame.page
    except Error:
        return None
