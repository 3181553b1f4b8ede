"""`docs/simphone.md` shows the example app as it is, and sessions as the real clients have them."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import adbutils
import pytest

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.http import begin
from collab.envs.simphone.adb.server import serve_phones

ROOT = Path(__file__).parents[3]
APPS = ROOT / "tests" / "fixtures" / "apps"
DOC = (ROOT / "docs" / "simphone.md").read_text(encoding="utf-8")
FILES = {
    "pantry/app.py": APPS / "pantry" / "app.py",
    "pantry/tasks.py": APPS / "pantry" / "tasks.py",
    "pantry/__init__.py": APPS / "pantry" / "__init__.py",
    "envs/kitchen.yaml": APPS / "library" / "envs" / "kitchen.yaml",
}
ADB = Path(adbutils.__file__).parent / "binaries"


def block(after: str) -> str:
    """The first fenced block after a text."""
    found = re.search(rf"{re.escape(after)}.*?```\w+\n(.*?)```", DOC, re.S)
    assert found, after
    return found[1]


@pytest.fixture
def served() -> Iterator[tuple[dict[str, str], PhoneHandle]]:
    """The phone of the document behind a server, and the environment in which clients find it."""
    handle = PhoneHandle()
    begin(handle, name="ContactsAddContact", seed=3)
    with serve_phones({"emulator-5554": handle}) as port:
        path = os.pathsep.join((str(ADB), os.environ["PATH"]))
        yield os.environ | {"ANDROID_ADB_SERVER_PORT": str(port), "PATH": path}, handle


@pytest.mark.parametrize("name", FILES)
def test_the_example_is_shown_as_it_is(name: str) -> None:
    assert block(f"**`{name}`**") == FILES[name].read_text(encoding="utf-8")


def test_the_example_is_about_a_hundred_lines() -> None:
    lines = [line for path in FILES.values() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 110


def test_the_adb_session_is_real(served: tuple[dict[str, str], PhoneHandle]) -> None:
    variables, _ = served
    session = block("## A session over adb")
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.M)
    assert len(steps) > 8
    status = 0
    for command, expected in steps:
        if command == "echo $?":
            assert expected == f"{status}\n"
            continue
        done = subprocess.run(
            shlex.split(command),
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=20,
            check=False,
        )
        status = done.returncode
        assert done.stdout.strip() == expected.strip(), command


def test_the_uiautomator2_session_is_real(served: tuple[dict[str, str], PhoneHandle], tmp_path: Path) -> None:
    """In a process of its own, as the client reads the port once, when it is imported."""
    variables, handle = served
    session = tmp_path / "session.txt"
    session.write_text(block("## A session with uiautomator2"), encoding="utf-8")
    assert len(doctest.DocTestParser().get_examples(session.read_text(encoding="utf-8"))) > 8
    command = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", str(session)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert handle.exam is not None
    assert handle.exam.score(handle.phone) == 1.0


def test_relative_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", DOC):
        assert (ROOT / "docs" / target).exists(), target
