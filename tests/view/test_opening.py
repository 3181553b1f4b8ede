"""How a browser finds the inspector: by a file that only its user may read, and that is gone once it was used."""

from __future__ import annotations

import queue
import re
import stat
import threading
import time
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("fastapi")

from collab.cli.main import main
from collab.store.manifest import Manifest
from collab.store.run import RunStore
from collab.view.auth import Gate

Ready = Callable[[], None]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's, on a machine with a screen."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path / "cache"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One that was never played."""
    return RunStore.create(tmp_path / "run", Manifest(command="rollout", config={}, seed=0)).path


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[str]:
    """What a browser is started with: one in a terminal, which takes its time."""
    arguments: queue.Queue[str] = queue.Queue()
    closed = threading.Event()

    def browser(address: str) -> bool:
        arguments.put(address)
        return closed.wait(10)

    monkeypatch.setattr("webbrowser.open", browser)
    monkeypatch.setattr("collab.view.server.serve", lambda inspector, gate, listener, ready: ready())
    return arguments


def pages(cache: Path) -> list[Path]:
    return list(cache.rglob("*.html"))


@pytest.mark.parametrize("used", [True, False])
def test_a_browser_is_handed_a_file_of_this_user_alone(
    run: Path, cache: Path, given: queue.Queue[str], monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    def serve(inspector: object, gate: Gate, listener: object, ready: Ready) -> None:
        address, token = gate.address, gate.token
        ready()
        argument = given.get(timeout=10)
        assert token is not None
        assert token not in argument
        page = Path(unquote(urlsplit(argument).path))
        assert pages(cache) == [page]
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert unescape(re.findall(r'content="0; url=([^"]*)"', page.read_text())[0]) == address
        if used:
            assert gate.exchange_token("wrong") is None
            assert page.exists()
            assert gate.exchange_token(token) is not None
            until = time.monotonic() + 10
            while page.exists() and time.monotonic() < until:
                time.sleep(0.01)
            assert not page.exists()

    monkeypatch.setattr("collab.view.server.serve", serve)
    assert main(["view", str(run), "--port", "0"]) == 0
    assert pages(cache) == []


def test_an_address_without_a_secret_is_handed_over_itself(run: Path, cache: Path, given: queue.Queue[str]) -> None:
    assert main(["view", str(run), "--port", "0", "--no-token"]) == 0
    assert given.get(timeout=10).startswith("http://127.0.0.1:")
    assert pages(cache) == []


@pytest.mark.parametrize("why", ["no screen", "not asked for"])
def test_no_browser_is_opened_without_a_screen_or_against_the_word(
    run: Path, cache: Path, given: queue.Queue[str], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "no screen":
        monkeypatch.setenv("DISPLAY", "")
    assert main(["view", str(run), "--port", "0", *(["--no-open"] if why == "not asked for" else [])]) == 0
    assert given.empty()
    assert pages(cache) == []


def test_where_no_file_can_be_written_the_address_is_left_to_the_user(
    run: Path, cache: Path, given: queue.Queue[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cache.write_text("a file where the folder should be")
    assert main(["view", str(run), "--port", "0"]) == 0
    said = capsys.readouterr()
    assert "?token=" in said.out
    assert "no browser is opened" in said.err
    assert given.empty()


@pytest.mark.medium
@pytest.mark.browser
def test_a_real_browser_comes_in_through_the_file(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cookie is one that other sites' links do not carry, and the file is no site of ours."""
    import subprocess
    import sys

    from playwright.sync_api import sync_playwright

    from collab.envs.web.browser import find_browser

    opened = tmp_path / "opened"
    browser = tmp_path / "a-browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened}.new" && mv "{opened}.new" "{opened}"\n')
    browser.chmod(0o700)
    for name, value in {"BROWSER": str(browser), "DISPLAY": ":0", "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", "from collab.__main__ import run; run()", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while not opened.exists() and process.poll() is None:
                time.sleep(0.05)
            with sync_playwright() as driver:
                chromium = driver.chromium.launch(executable_path=find_browser().path, args=["--no-sandbox"])
                page = chromium.new_page()
                page.goto(opened.read_text())
                page.wait_for_url("http://127.0.0.1:*/*", timeout=60_000)
                page.wait_for_selector("main:not([aria-busy]) h1", timeout=60_000)
                assert page.evaluate("fetch('/api/runs').then(answer => answer.status)") == 200
                assert "token" not in page.url
                chromium.close()
        finally:
            process.terminate()
    assert pages(tmp_path / "cache") == []
