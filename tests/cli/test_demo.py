"""`collab demo`: what it plays, shows and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collab.cli import demo
from collab.cli.demo import PAGES_QUICK, TASKS_QUICK
from collab.cli.main import main
from collab.rollout.demo import DemoDir
from collab.rollout.run import RunResult


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
    assert {part.name for part in (somewhere / "seen").iterdir()} == {"demo.json", "lock", "single", "team", "web"}


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


def test_an_interrupted_demo_is_resumed_as_a_whole(capsys, monkeypatch, somewhere):
    monkeypatch.setenv("COLLAB_BROWSER", "/nowhere/chromium")
    monkeypatch.setattr("collab.cli.demo.TASKS_QUICK", 2)
    begin = demo._begin

    def interrupt(part: demo.DemoPart, home: Path, library: Path | None) -> RunResult:
        if part.name == "team":
            raise KeyboardInterrupt
        return begin(part, home, library)

    with monkeypatch.context() as patch:
        patch.setattr("collab.cli.demo._begin", interrupt)
        assert main(["demo", "--agents", "rehearsal", "--quick", "--out", "seen"]) == 1
    assert capsys.readouterr().err.endswith("resume with: collab demo --resume seen\n")
    assert {part.name for part in (somewhere / "seen").iterdir()} == {"demo.json", "lock", "single"}
    played = (somewhere / "seen/single/run.json").read_bytes()
    assert main(["demo", "--resume", "seen", "--quick"]) == 2
    assert "leave out --quick" in capsys.readouterr().err
    assert main(["demo", "--resume", "seen"]) == 1
    shown = capsys.readouterr()
    assert "the web pages were not played" in shown.err
    rows = [line.split()[-3] for line in shown.out.splitlines() if line.startswith(("one agent ", "team of four, "))]
    assert rows == ["2/2", "2/2"]
    assert (somewhere / "seen/single/run.json").read_bytes() == played, "what was played is not played again"
    assert main(["demo", "--resume", "elsewhere"]) == 2
    assert "elsewhere: no such directory; name the directory of a demo" in capsys.readouterr().err
    with DemoDir(somewhere / "seen").lock():
        assert main(["demo", "--resume", "seen"]) == 2
    assert "wait for it or stop it, then: collab demo --resume seen" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trained_team_stands_beside_the_untrained_one(capsys, monkeypatch, somewhere):
    pytest.importorskip("torch")
    monkeypatch.setenv("COLLAB_BROWSER", "/nowhere/chromium")
    monkeypatch.setattr("collab.cli.demo.TASKS_QUICK", 2)
    small = ["epochs=1", "steps=12", "held_out.episodes=2", "exploration_temperatures=1.5", "dpo.temperature=1.5"]
    settings = [word for setting in small for word in ("--set", setting)]
    tasks = "SystemWifiTurnOn,SystemBluetoothTurnOn,ContactsAddContact"
    assert main(["train-marl", "--agents", "pocket", "--tasks", tasks, "--out", "marl", *settings]) == 0
    capsys.readouterr()
    assert main(["demo", "--agents", "pocket", "--quick", "--trained", "marl@last", "--out", "seen"]) == 1
    shown = capsys.readouterr().out
    assert "one agent against a team of four, and the team after training" in shown
    lines = shown.splitlines()
    assert sum(line.startswith(("one agent", "team of four", "the team after training")) for line in lines) == 3
    assert any(line.startswith("Training: ") and line.endswith(("]", "not separable")) for line in lines)
    course = lines[lines.index("2. How it was trained: tasks solved after each epoch, and rewarded proposals") + 3 :]
    assert [line.split()[0] for line in course[:2]] == ["0", "1"]
    assert course[0].split()[2] == "-", "nothing was played before the first epoch"
    picture = (somewhere / "seen" / "training.svg").read_text()
    assert "solved" in picture
    assert "rewarded" in picture


@pytest.mark.slow
def test_the_shipped_team_comes_with_the_course_of_its_training(capsys, monkeypatch, somewhere):
    """Two tasks of the phone, with the untrained and the trained team as they come."""
    pytest.importorskip("torch")
    monkeypatch.setenv("COLLAB_BROWSER", "/nowhere/chromium")
    monkeypatch.setattr("collab.cli.demo.TASKS_QUICK", 2)
    assert main(["demo", "--quick", "--threads", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("one agent", "team of four", "the team after training")) for line in lines) == 3
    begun = lines.index("2. How it was trained: tasks solved after each epoch, and rewarded proposals") + 3
    course = [line.split() for line in lines[begun : lines.index("", begun)]]
    assert [epoch for epoch, *_ in course] == [str(number) for number in range(len(course))]
    assert all(solved.endswith("%") for _, solved, _ in course)
    assert (somewhere / "runs" / "demo" / "training.svg").is_file()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("runs/marl@best", "runs/marl"),
        ("tained", "no agents file called 'tained'"),
        ("early@", "write RUN@best or RUN@epoch3"),
    ],
)
def test_what_is_no_training_is_refused_before_anything_is_played(capsys, somewhere, named, message):
    assert main(["demo", "--trained", named]) == 2
    assert message in capsys.readouterr().err
    assert not (somewhere / "runs").exists()
