"""Scripts are played in the example shop, or on one page of a server."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collab.envs.web.browser import Browser
from collab.envs.web.live import LiveSuite
from tests.envs.web.live.site import SHIPPED, Player, Script, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def shop(browser: Browser) -> LiveSuite:
    suite = LiveSuite(**SHIPPED)
    suite._browser = browser
    return suite


@pytest.fixture
def in_shop(runner: asyncio.Runner, shop: LiveSuite) -> Callable[[Script], None]:
    return lambda script: runner.run(_played(shop, script))


@pytest.fixture
def on_page(runner: asyncio.Runner, browser: Browser, server: Server) -> Callable[..., None]:
    """Play a script on one page of the server: `on_page(html, script, **options of the suite or the task)`."""

    def play(html: str, script: Script, *, task: dict[str, Any] | None = None, **options: Any) -> None:
        start = server.add("/page", html)
        made = {"name": "page", "start": start, "goal": "Do it.", "success": {"answer": "yes"}} | (task or {})
        defaults = {"allow_hosts": [server.address], "allow_private": True, "answer_timeout_s": 5.0}
        suite = LiveSuite(tasks=[made], **(defaults | options))
        suite._browser = browser
        runner.run(_played(suite, script))

    return play


async def _played(suite: LiveSuite, script: Script) -> None:
    environment = await suite.open()
    try:
        await script(Player(suite, environment))
    finally:
        await environment.close()
        await environment.close()
