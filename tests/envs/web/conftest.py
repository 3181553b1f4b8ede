"""One browser for all tests of pages that need none of their own: most of them take less long than its start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from collab.envs.web.browser import Browser


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
