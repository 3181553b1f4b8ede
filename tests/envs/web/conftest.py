"""What tests of pages share: a browser for those that need none of their own, and a suite of MiniWoB++ per module.

Most of these tests take less long than the start of a browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import pytest

from collab.envs.web.browser import Browser
from collab.envs.web.miniwob import MiniwobEnvironment, MiniwobSuite

Check: TypeAlias = Callable[[MiniwobSuite], Awaitable[None]]


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """The loop that the browser belongs to."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def browser(runner: asyncio.Runner) -> Iterator[Browser]:
    """A browser that starts with its first page."""
    browser = Browser()
    yield browser
    runner.run(browser.close())


@pytest.fixture(scope="module")
def play(request: pytest.FixtureRequest) -> Iterator[Callable[[Check], None]]:
    """Run a check on the module's suite, an instance of its `SUITE`."""
    suite: MiniwobSuite = request.module.SUITE()
    with asyncio.Runner() as runner:
        yield lambda check: runner.run(_run(check, suite))
        runner.run(suite.close())


async def _run(check: Check, suite: MiniwobSuite) -> None:
    """Give back all tabs that the check leaves open."""
    opened: list[MiniwobEnvironment] = []
    really_open = suite.open

    async def open() -> MiniwobEnvironment:
        opened.append(await really_open())
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "open", open)
        await check(suite)
    for environment in opened:
        await environment.close()
