"""`docs/inspector.md` names the keys, signs and jumps that the pages have, and options that the commands take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from collab.cli.main import app
from collab.view.readers import UNUSED_DAYS

TEXT = (Path(__file__).parents[2] / "docs" / "inspector.md").read_text(encoding="utf-8")
STATIC = Path(__file__).parents[2] / "collab" / "view" / "static"


def source(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def test_every_key_of_the_help_is_in_the_table() -> None:
    _, _, names = source("keys.js").partition("KEY_NAMES")
    keys = re.findall(r'^  \["([^"]+)",', names, re.M)
    assert len(keys) > 5
    assert re.findall(r"^\| (\S.*?) \|", TEXT.partition("## Keys")[2].partition("##")[0], re.M)[1:] == keys


def test_every_jump_and_every_sign_is_explained() -> None:
    jumps = re.findall(r'^  "?[a-z-]+"?: \[\s*"([^"]+)"', source("highlights_page.js"), re.M)
    assert len(jumps) == 3
    assert not [name for name in jumps if f"| {name.lower()} |" not in TEXT]
    signs = re.findall(r'&& \["(.)", "[^"]+"\],$', source("rail.js"), re.M)
    assert len(signs) == 5
    assert not [sign for sign in signs if f"{sign} " not in TEXT.partition("On the bar")[2].partition("##")[0]]


@pytest.mark.parametrize("command", ["view", "report"])
def test_every_option_is_one_of_the_command(command: str) -> None:
    shown = re.findall(rf"^\$ collab {command} (.*)$", TEXT, re.M)
    used = {option for line in shown for option in re.findall(r"--[a-z-]+", line.replace("# or ", ""))}
    taken = {option for one in typer.main.get_group(app).commands[command].params for option in one.opts}
    assert used
    assert used <= taken


def test_the_days_that_an_index_is_kept() -> None:
    assert UNUSED_DAYS == 30
    assert "for thirty days." in TEXT
