import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Set
from pathlib import Path

import pytest

from collab.envs.web import browser as module
from collab.envs.web.browser import VARIABLE, Browser, find_browser
from collab.errors import EnvironmentFailure, MissingExtra, UsageError


def program(path: Path, says: str = "Chromium 1.2.3 built for a test") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any browser; returns its only PATH folder."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "playwright"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(module, "_PLACES", ())
    return tmp_path / "bin"


def test_no_browser_is_told_with_both_commands(bare: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_browser()
    assert "playwright install chromium" in str(caught.value)
    assert "apt-get install chromium" in str(caught.value)
    assert VARIABLE in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_order_is_argument_variable_playwright_system(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "google-chrome", "Google Chrome 9.9")
    assert find_browser().kind == "system"
    assert program(bare / "chromium") == find_browser().path
    assert find_browser().version == "Chromium 1.2.3"

    listed = Path(module.importlib.util.find_spec("playwright").origin).parent / "driver/package/browsers.json"
    browsers = {entry["name"]: entry["revision"] for entry in json.loads(listed.read_text())["browsers"]}
    own = bare.parent / "playwright" / f"chromium-{browsers['chromium']}" / "chrome-linux64" / "chrome"
    program(own)
    assert (find_browser().kind, find_browser().path) == ("playwright", own)

    named = program(bare.parent / "mine" / "browser")
    monkeypatch.setenv(VARIABLE, str(named))
    assert (find_browser().kind, find_browser().path) == ("variable", named)
    given = program(bare.parent / "given" / "browser")
    assert (find_browser(str(given)).kind, find_browser(str(given)).path) == ("given", given)


def test_a_named_browser_that_is_none_is_an_error_and_no_other_is_taken(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare / "chromium")
    with pytest.raises(UsageError, match=r"executable_path names the browser '/none'"):
        find_browser("/none")
    monkeypatch.setenv(VARIABLE, "/none")
    with pytest.raises(UsageError, match=f"{VARIABLE} names the browser"):
        find_browser()


def test_a_program_without_a_version_is_still_a_browser(bare: Path) -> None:
    path = program(bare / "chromium")
    path.write_text("#!/bin/sh\nexit 1\n")
    assert find_browser().version is None


def test_finding_does_not_import_playwright() -> None:
    code = "import sys; from collab.envs.web.browser import find_browser; print('playwright' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_playwright_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "playwright", None)
    with pytest.raises(MissingExtra, match=r"collab-marl\[web\]"):
        asyncio.run(Browser().start())


# ------------------------------------------------------------------------------------- one that never comes up


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """A browser that starts and says nothing, not even its version, behind a wrapper as systems have them."""
    path = tmp_path / "browser"
    path.write_text(f"#!/bin/sh\nsleep 61.{time.time_ns()}\n")
    path.chmod(0o755)
    return path


def processes_of(silent: Path) -> list[str]:
    """Return the running processes of a silent browser, whatever their parents are by now."""
    line, found = silent.read_text().split("\n")[1], []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
    return [command for command in found if command == line or str(silent) in command.split()]


def wait_until(holds: Callable[[], bool], limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def test_a_browser_that_is_starting_is_ended_with_all_its_processes(silent: Path) -> None:
    others = children(os.getpid())

    async def main() -> tuple[float, set[int]]:
        browser = Browser(executable_path=str(silent))
        waiting = [asyncio.create_task(browser.start()) for _ in range(2)]
        while not processes_of(silent):
            await asyncio.sleep(0.05)
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert not waiting[1].done(), "who leaves ends the start for nobody else"
        below, began = children(os.getpid(), others), time.monotonic()
        await browser.close()
        took = time.monotonic() - began
        with pytest.raises(EnvironmentFailure, match="closed while it was starting"):
            await waiting[1]
        return took, below

    took, below = asyncio.run(main())
    assert took < 5
    assert below
    assert wait_until(lambda: not processes_of(silent) and not below & children(os.getpid()), 5)


def test_a_browser_that_tells_no_version_leaves_no_process(silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = subprocess.Popen.communicate
    monkeypatch.setattr(subprocess.Popen, "communicate", lambda one, timeout: waited(one, timeout=timeout / 50))
    assert find_browser(str(silent)).version is None
    monkeypatch.undo()
    assert wait_until(lambda: not processes_of(silent), 5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["web", "miniwob"])
def test_one_sigterm_ends_a_run_whose_browser_is_starting(silent: Path, tmp_path: Path, kind: str) -> None:
    tasks = "[{name: a, goal: Look., start: 'http://shop.test/', success: {answer: x}}]"
    own = f"executable_path: {silent}, sites: {{shop.test: built-in}}, tasks: {tasks}"
    options = own if kind == "web" else f"browser: {silent}"
    file = tmp_path / "slow.yaml"
    file.write_text(f"backend: pages\nbackends: {{pages: {{kind: {kind}, options: {{{options}}}}}}}\ntasks: all\n")
    command = [sys.executable, "-c", "from collab.cli.main import run; run()", "rollout", "--env", str(file)]
    choice = ["--tasks", "a" if kind == "web" else "click-test", "--episodes", "1", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [*command, *choice, "--agents", "rehearsal", "--graph", "single"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as run:
        assert wait_until(lambda: bool(processes_of(silent)), 60)
        below, began = children(run.pid), time.monotonic()
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 1
        assert time.monotonic() - began < 5
    assert below
    assert wait_until(lambda: not processes_of(silent) and not any(Path(f"/proc/{one}").exists() for one in below), 5)


# ------------------------------------------------------------------------------------------ with a real browser


def children(of: int, others: Set[int] = frozenset()) -> set[int]:
    """Processes below a process; of those that it started itself without `others`."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == of and int(entry.name) not in others:
                found |= {int(entry.name)} | children(int(entry.name))
    return found


@pytest.mark.medium
@pytest.mark.browser
def test_pages_share_nothing_and_closing_leaves_no_process() -> None:
    others = children(os.getpid())

    async def main() -> set[int]:
        async with Browser() as browser:
            first, second = await browser.page(), await browser.page()
            assert first.context is not second.context
            assert browser.version is not None
            below = children(os.getpid(), others)
            assert below
        await browser.close()
        return below

    below = asyncio.run(main())
    deadline = time.monotonic() + 5
    while below & children(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not below & children(os.getpid())


@pytest.mark.medium
@pytest.mark.browser
def test_a_killed_browser_is_started_again() -> None:
    async def main() -> None:
        others = children(os.getpid())
        async with Browser() as browser:
            await browser.page()
            for child in children(os.getpid(), others):
                if "chrom" in Path(f"/proc/{child}/comm").read_text():
                    os.kill(child, signal.SIGKILL)
            async with asyncio.timeout(20):
                while browser._process is not None and browser._process.is_connected():
                    await asyncio.sleep(0.01)
            page = await browser.page()
            assert await page.evaluate("6 * 7") == 42

    asyncio.run(main())


@pytest.mark.browser
def test_a_killed_run_leaves_no_browser_behind() -> None:
    code = (
        "import asyncio\n"
        "from collab.envs.web.browser import Browser\n"
        "async def main():\n"
        "    await Browser().page()\n"
        "    print('open', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "open\n"
        below = children(run.pid)
        assert below
        run.kill()
    deadline = time.monotonic() + 20
    while any(_alive(process) for process in below) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [process for process in below if _alive(process)]


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
