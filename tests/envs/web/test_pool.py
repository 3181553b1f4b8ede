from __future__ import annotations

import asyncio
from typing import Any

import pytest

from collab.envs.web.browser import Browser, PagePool
from collab.envs.web.miniwob_page import Rules, Tabs
from collab.errors import EnvironmentFailure, UsageError


def test_a_pool_needs_a_page() -> None:
    with pytest.raises(UsageError, match="size 0"):
        PagePool(Browser(), size=0)


def tabs_of(browser: Browser) -> Tabs:
    tabs = Tabs(size=1, width=160, height=210, scale=1, browser=None, patience_s=0.05, rules=Rules())
    tabs._browser = browser
    return tabs


def test_patience_with_lent_tabs_begins_when_the_browser_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = object()

    class Slow(Browser):
        async def start(self) -> None:
            await asyncio.sleep(0.2)

        async def page(self, **options: Any) -> Any:
            await asyncio.sleep(0.2)
            return page

    async def main() -> None:
        pool = PagePool(Slow(), size=1)
        assert await pool.acquire(0.05) is page
        with pytest.raises(TimeoutError):
            await pool.acquire(0.05)
        message = r"no browser tab came free within 0.05 s, with 1 tab in use; .* play fewer at once, or allow more"
        tabs = tabs_of(Slow())
        tabs._pools = [PagePool(Slow(), size=1), PagePool(Slow(), size=1)]
        for depth, who in enumerate(("episode", "fork")):
            await tabs._pools[depth]._places.acquire()
            with pytest.raises(EnvironmentFailure, match=message.replace(".*", f"each {who} .*")):
                await tabs.acquire(depth)
        monkeypatch.setattr("collab.envs.web.browser._OPENING_S", 0.05)
        with pytest.raises(EnvironmentFailure, match=r"no page within 0.05 s: the machine is overloaded"):
            await PagePool(Slow(), size=1).acquire()

    asyncio.run(main())


@pytest.mark.browser
@pytest.mark.slow
def test_a_pool_lends_the_same_page_again_and_replaces_dead_and_hung_ones() -> None:
    from playwright.async_api import Error

    async def main() -> None:
        async with Browser() as browser:
            pool = PagePool(browser, size=1, answer_timeout_s=2.0, viewport={"width": 160, "height": 210})
            page = await pool.acquire()
            assert page.viewport_size == {"width": 160, "height": 210}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pool.acquire(), 0.2)
            await pool.release(page)
            await pool.release(page)
            assert await pool.acquire() is page

            with pytest.raises(Error):
                await page.goto("chrome://crash", timeout=3000)
            await pool.release(page)
            fresh = await pool.acquire()
            assert fresh is not page
            assert await fresh.evaluate("1 + 1") == 2

            await fresh.evaluate("() => { setTimeout(() => { for (;;) {} }, 1); }")
            await asyncio.sleep(0.1)
            await pool.release(fresh)
            last = await pool.acquire()
            assert last is not fresh
            assert await last.evaluate("1 + 1") == 2
            await pool.close()
            await pool.close()

    asyncio.run(main())
