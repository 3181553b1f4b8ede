"""One window, in which scripts are played on unruly pages."""

import asyncio
from collections.abc import Iterator

import pytest

from collab.envs.web import live
from collab.envs.web.browser import Browser
from collab.envs.web.live import LiveSuite
from tests.envs.web.unruly.site import Play, Player, Script, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module", autouse=True)
def calm() -> Iterator[None]:
    """Take these pages, which change at once or never, as settled sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "_QUIET_S", 0.05)
        yield


@pytest.fixture(scope="module")
def suite(browser: Browser, server: Server) -> LiveSuite:
    start = f"http://127.0.0.1:{server.port}/page"
    task = {"start": start, "goal": "Do it.", "max_steps": 10_000, "success": {"answer": "yes"}}
    suite = LiveSuite(
        tasks=[task | {"name": "page"}, task | {"name": "done", "success": {"selector": "#done", "text": "yes"}}],
        allow_private=True,
        width=800,
        height=600,
        settle_s=1.0,
        locale="de-DE",
        colours="dark",
        scale=2.0,
        answer_timeout_s=30.0,
    )
    suite._browser = browser
    return suite


@pytest.fixture(scope="module")
def player(runner: asyncio.Runner, suite: LiveSuite) -> Iterator[Player]:
    """The player of all tests of this module."""
    player = Player(suite, runner.run(suite.open()))
    yield player
    runner.run(player.environment.close())


@pytest.fixture
def play(runner: asyncio.Runner, server: Server, player: Player) -> Play:
    """Play a script on a page, with a window that all tests share that leave it whole."""

    def play(html: str, script: Script) -> None:
        server.pages["/page"] = html

        async def main() -> None:
            is_whole = False
            try:
                await script(player)
                is_whole = len(player.environment.window.tabs()) == 1
            finally:
                player.can_go_on = player.can_go_on and is_whole

        runner.run(main())

    return play
