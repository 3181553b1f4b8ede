"""Recorded runs in a real Chromium, under the server's own policy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_playwright_python
import pytest

from collab.cli.main import main
from collab.envs.web.browser import find_browser
from collab.view.auth import Gate
from collab.view.inspector import Inspector
from collab.view.server import open_listening_socket

PATIENCE_MS = 60_000
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
BAD = ("serious", "critical")
LOOK = "axe.run({ resultTypes: ['violations'] })"
"""Details of what is in order take time, and nobody reads them."""


@contextmanager
def serve(paths: list[Path], index_cache: Path) -> Iterator[tuple[str, Inspector]]:
    """The address of a server that shows these runs, with its token."""
    import uvicorn

    from collab.view.server import build_application

    inspector = Inspector(paths, index_cache=index_cache)
    with open_listening_socket("127.0.0.1", 0) as listener:
        gate = Gate("127.0.0.1", listener.getsockname()[1])
        app = build_application(inspector, gate, stopped=lambda: server.should_exit, pause_s=0.1)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield gate.address, inspector
        finally:
            server.should_exit = True
            thread.join(timeout=20)
            inspector.close()


@pytest.fixture(scope="module")
def chromium(recorded):
    """One browser for all tests; runs are recorded before it starts, for its driver keeps a loop of its own."""
    sync_api = pytest.importorskip("playwright.sync_api")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser().path, chromium_sandbox=not root)
        yield browser
        browser.close()


@pytest.fixture
def serving(tmp_path):
    """Shows a run; gives the address and the inspector behind it."""
    with ExitStack() as stack:
        yield lambda run: stack.enter_context(serve([run], tmp_path / "index_cache"))


@pytest.fixture
def open_page(chromium, serving):
    """Opens an address in a context that ends before its server; whatever the page complains of fails the test."""
    contexts, complaints = [], []

    def make(address: str, **settings):
        context = chromium.new_context(**({"viewport": WIDE} | settings))
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector("main:not([aria-busy]) h1")
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def turn() -> Callable[[Any, str], None]:
    """Goes to another place of the page."""

    def make(page, hash: str) -> None:
        page.evaluate("document.querySelector('main').replaceChildren()")
        page.evaluate("hash => { location.hash = hash }", hash)
        page.wait_for_selector("main:not([aria-busy]) h1")

    return make


@pytest.fixture
def step_place() -> Callable[..., str]:
    """The address of a step of a run, of an episode, and what follows it."""
    return lambda run, episode, step, rest="": f"#/run/{run}/episode/{quote(episode, safe='')}/{step}{rest}"


@pytest.fixture(scope="session")
def aside() -> Callable[..., int]:
    """Runs a command of ours in a thread, and gives its exit code: the browser's driver has the loop of this one."""

    def run(*arguments: str) -> int:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(main, arguments).result(timeout=100)

    return run


@pytest.fixture
def command() -> Callable[..., subprocess.Popen[bytes]]:
    """A command of ours in a process of its own: the browser's driver has the loop of this one."""
    return lambda *arguments: subprocess.Popen(
        [sys.executable, "-c", "from collab.__main__ import run; run()", *arguments]
    )


@pytest.fixture
def team(recorded, serving):
    """A judged and paired run, shown: address, inspector and its id."""
    address, inspector = serving(recorded)
    return address, inspector, inspector.list_runs().runs[0].id


@pytest.fixture
def faults() -> Callable[..., list[Any]]:
    """What is wrong with the page that is shown: axe's serious findings at some widths, and widths that it exceeds."""
    axe = (Path(str(axe_playwright_python.__file__)).parent / "axe.min.js").read_text(encoding="utf-8")

    def make(page, widths: Sequence[int] = (390, 1280)) -> list[Any]:
        found: list[Any] = []
        if widths:
            page.evaluate(axe)
        for size in (PHONE, WIDE):
            page.set_viewport_size(size)
            told = page.evaluate(LOOK)["violations"] if size["width"] in widths else []
            found += [(size["width"], one["id"], one["nodes"][0]["html"][:200]) for one in told if one["impact"] in BAD]
            if (width := page.evaluate("document.documentElement.scrollWidth")) > size["width"]:
                found.append((size["width"], "is wide", width))
        return found

    return make
