"""`collab demo`: what it plays, shows and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collab.cli.demo import PAGES_QUICK, TASKS_QUICK
from collab.cli.main import main


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.browser
@pytest.mark.slow
def test_one_agent_a_team_and_web_pages(capsys, somewhere):
    pytest.importorskip("miniwob")
    assert main(["demo", "--agents", "rehearsal", "--quick", "--out", "seen", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problem"] is None
    single, team, web = told["single"], told["team"], told["web"]
    assert [len(part["episodes"]) for part in (single, team, web)] == [TASKS_QUICK, TASKS_QUICK, PAGES_QUICK]
    instances = [[(one["task"], one["seed"]) for one in part["episodes"]] for part in (single, team)]
    assert instances[0] == instances[1], "both play the same"
    assert sum(one["steps"] for one in team["episodes"]) * 12 == team["spent"]["calls"]
    assert {part.name for part in (somewhere / "seen").iterdir()} == {"single", "team", "web"}


@pytest.mark.slow
def test_a_rehearsal_is_marked_and_a_missing_browser_told(capsys, monkeypatch):
    monkeypatch.setenv("COLLAB_BROWSER", "/nowhere/chromium")
    assert main(["demo", "--agents", "rehearsal", "--quick"]) == 1
    shown = capsys.readouterr()
    assert "one agent against a team of four (rehearsal: not a language model)" in shown.out
    assert "the web pages were not played: " in shown.err


def test_slots_cannot_be_filled_one_by_one(capsys, somewhere):
    assert main(["demo", "--agents", "ada=pocket,ben=rehearsal"]) == 2
    assert "give one name" in capsys.readouterr().err
    assert not (somewhere / "runs").exists()
