from __future__ import annotations

import asyncio

import pytest

from collab.envs.web.browser import Browser
from collab.envs.web.pool import PagePool
from collab.errors import UsageError


def test_a_pool_needs_a_page() -> None:
    with pytest.raises(UsageError, match="size 0"):
        PagePool(Browser(), size=0)


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
