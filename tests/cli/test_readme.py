"""The README shows commands that exist, with options that exist, and files that are there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from collab.cli.main import main

README = Path(__file__).parents[2] / "README.md"
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]
GUIDES = [page for page in PAGES if page.stem in ("README", "tour", "servers", "devices", "extending", "algorithms")]
COMMAND = re.compile(r"^\$ collab (.+?)(?:\s+#.*)?$", re.MULTILINE)
COMMANDS = sorted({command for page in GUIDES for command in COMMAND.findall(page.read_text().replace("\\\n", ""))})


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_exist(command, capsys):
    words = shlex.split(command)
    group = words[: 2 if words[0] in ("runs", "env", "graph", "agents", "critic", "pairs") else 1]
    assert main([*group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("--"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith(("https://", "http://")) or (page.parent / target).exists(), target


def test_the_readme_stays_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 250


WRITES = re.compile(r"(?:--(?:out|export|figures|svg|parquet|local-dir)[ =]|-m venv |[^-]> )([\w./-]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_commands_write_is_ignored_by_git(page):
    """So that whoever follows the page in a checkout keeps it clean."""
    text = page.read_text(encoding="utf-8").replace("\\\n", "")
    commands = re.findall(r"^\$ (.+?)(?:\s+#.*)?$", text, flags=re.MULTILINE)
    written = sorted({path for command in commands for path in WRITES.findall(command) if not path.startswith("/")})
    asked = ["git", "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(
        asked, input="\n".join(written), cwd=README.parent, capture_output=True, text=True, check=False
    )
    assert sorted(done.stdout.split()) == written
    if page.stem == "tour":
        assert {"runs/first", "data/first", "figures", "appendix.md", "report.html"} <= set(written)
