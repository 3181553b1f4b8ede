import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from collab.envs.web.browser import VARIABLE, BrowserChoice
from collab.errors import UsageError

SCRIPT = Path(__file__).parents[2] / "scripts" / "ensure_browser.py"


class Machine:
    """A machine without a browser, on which chosen commands bring one."""

    def __init__(self, script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script, self.ran = script, list[str]()
        self.browser: BrowserChoice | None = None
        self.brings: dict[str, str | None] = {}
        self.programs: set[str] = set()
        self.sudo = False
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.setattr(script, "find_browser", self.find_browser)
        monkeypatch.setattr(script, "run", self.run)
        monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in self.programs else None)

    def find_browser(self) -> BrowserChoice:
        if self.browser is None:
            raise UsageError("none")
        return self.browser

    def run(self, command: Sequence[str]) -> bool:
        words = " ".join(command[command.index("-m") + 1 :] if "-m" in command else command)
        if words == "sudo -n true":
            return self.sudo
        self.ran.append(words)
        if words in self.brings:
            self.browser = BrowserChoice(kind="system", path=Path("/bin/chromium"), version=self.brings[words])
        return words in self.brings

    def main(self) -> int:
        return int(self.script.main())


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ensure_browser", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def machine(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return Machine(script, monkeypatch)


def test_a_browser_that_is_there_is_used(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.browser = BrowserChoice(kind="system", path=Path("/bin/chromium"), version="Chromium 1")
    assert machine.main() == 0
    assert machine.ran == []
    assert capsys.readouterr().out == "browser: /bin/chromium (Chromium 1)\n"


def test_playwright_comes_first_and_ends_the_search(machine: Machine) -> None:
    machine.brings = {"playwright install chromium": "Chromium 1"}
    assert machine.main() == 0
    assert machine.ran == ["playwright install chromium"]


def test_root_falls_back_to_the_system(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine.programs = {"apt-get"}
    machine.brings = {"apt-get install -y chromium": "Chromium 1"}
    assert machine.main() == 0
    assert machine.ran == ["playwright install chromium", "apt-get update", "apt-get install -y chromium"]


def test_sudo_is_used_only_without_a_password(machine: Machine) -> None:
    machine.programs = {"sudo", "dnf"}
    assert machine.main() == 1
    assert machine.ran == ["playwright install chromium"]
    machine.sudo, machine.ran = True, []
    machine.brings = {"sudo -n dnf install -y chromium": "Chromium 1"}
    assert machine.main() == 0
    assert machine.ran == ["playwright install chromium", "sudo -n dnf install -y chromium"]


def test_missing_libraries_of_playwrights_browser_are_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine.programs = {"apt-get"}
    machine.brings = {"playwright install chromium": None, "playwright install-deps chromium": "Chromium 1"}
    assert machine.main() == 0
    assert machine.ran == ["playwright install chromium", "playwright install-deps chromium"]


def test_nothing_helps_is_one_line_with_both_commands(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.main() == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "playwright install chromium" in message
    assert "apt-get install chromium" in message


def test_a_browser_that_was_named_and_is_broken_is_not_replaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "/bin/nothing")
    assert machine.main() == 1
    assert machine.ran == []
    assert "/bin/nothing" in capsys.readouterr().err


def test_a_command_that_is_missing_or_fails_is_no_crash(script: ModuleType) -> None:
    assert script.run(("no-such-program-anywhere",)) is False
    assert script.run(("false",)) is False
    assert script.run(("true",)) is True
