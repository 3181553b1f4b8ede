"""The README shows commands that exist, with options that exist, and files that are there."""

import re
import shlex
from pathlib import Path

import pytest

from collab.cli.main import main

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8").replace("\\\n", "")
COMMANDS = sorted(set(re.findall(r"^\$ collab (.+?)(?:\s+#.*)?$", TEXT, flags=re.MULTILINE)))


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_exist(command, capsys):
    words = shlex.split(command)
    group = words[: 2 if words[0] in ("runs", "env", "graph", "agents", "critic", "pairs") else 1]
    assert main([*group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("--"))


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("https://") or (README.parent / target).exists(), target
