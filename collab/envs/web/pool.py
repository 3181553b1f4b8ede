"""Pages of a browser that are used again and again.

pool = PagePool(browser, size=8, viewport=…)
page = await pool.acquire()
await pool.release(page)                      # a crashed or hung page is replaced by a fresh one
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from collab.envs.web.browser import Browser, close_page
from collab.errors import EnvironmentFailure, UsageError

if TYPE_CHECKING:
    from playwright.async_api import Page

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
        """A page that answers: the one used last, or a fresh one.

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
            page = await self._living() or await self._fresh()
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
            if not broken and await self._answers(page):
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

    async def _fresh(self) -> Page:
        try:
            async with asyncio.timeout(_OPENING_S):
                return await self._browser.page(**self._options)
        except TimeoutError:
            problem = f"the browser opened no page within {_OPENING_S:g} s"
            raise EnvironmentFailure(f"{problem}: the machine is overloaded; play fewer episodes at once") from None

    async def _living(self) -> Page | None:
        while self._idle:
            page = self._idle.pop()
            if await self._answers(page):
                return page
            await close_page(page)
        return None

    async def _answers(self, page: Page) -> bool:
        from playwright.async_api import Error

        try:
            return bool(await asyncio.wait_for(page.evaluate("true"), self._answer_timeout_s))
        except (Error, TimeoutError):
            return False
