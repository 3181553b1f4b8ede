"""What the environments of a MiniWoB++ suite share: the browser, its tabs and the server of the pages."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from collab.background import doing
from collab.envs.web.browser import Browser, surroundings
from collab.envs.web.miniwob_page import MiniwobPage, Rules
from collab.envs.web.miniwob_site import Site
from collab.envs.web.pool import PagePool
from collab.errors import EnvironmentFailure, boundary
from collab.wording import amount

if TYPE_CHECKING:
    from playwright.async_api import Page


FLAGS = ("--disable-frame-rate-limit",)
"""A mouse move waits for the next frame: without a limit that is at once, and not in up to 16 ms."""


class Tabs:
    """Lends tabs; starts the browser and the server with the first one.

    Args:
        size: how many tabs may be lent at once, forks included.
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
        self._browser = Browser(executable_path=browser, arguments=FLAGS)
        self.starts = asyncio.Semaphore(max(2, os.cpu_count() or 1))
        """Held while an episode starts: more pages at once than there are cores load no sooner, and each later."""
        self._pool = PagePool(self._browser, size=size, **surroundings(width, height, scale=scale))
        self._site: Site | None = None
        self._prepared: WeakKeyDictionary[Page, MiniwobPage] = WeakKeyDictionary()

    async def acquire(self) -> MiniwobPage:
        """A tab that answers.

        Raises:
            EnvironmentFailure: all tabs stay lent, or the browser gives none.
        """
        if self._site is None:
            self._site = Site()
        try:
            with doing("waiting for a free browser tab"):
                tab = await self._pool.acquire(self._patience_s)
        except TimeoutError:
            problem = f"no browser tab came free within {self._patience_s:g} s, with {amount(self._size, 'tab')} in use"
            advice = "each episode and each fork holds one: close some, play fewer at once, or allow more with `pages`"
            raise EnvironmentFailure(f"{problem}; {advice}") from None
        if tab not in self._prepared:
            try:
                with boundary(EnvironmentFailure, "preparing a tab"):
                    self._prepared[tab] = await MiniwobPage.on(tab, self._site, self._rules)
            except BaseException:
                await self._pool.release(tab, broken=True)
                raise
        return self._prepared[tab]

    async def release(self, page: MiniwobPage, *, broken: bool = False) -> None:
        """Take a tab back; a broken one is replaced."""
        await self._pool.release(page.tab, broken=broken)

    async def close(self) -> None:
        """End the browser and the server. May be called twice."""
        await self._pool.close()
        await self._browser.close()
        if self._site is not None:
            await asyncio.to_thread(self._site.close)
            self._site = None
