"""What `env`, `agents` and `graph` show of a library of one's own."""

import json
from pathlib import Path

import pytest

from collab.cli.main import main

TASK = {"name": "look", "goal": "Look.", "start": "http://lab.test/", "success": {"answer": "x"}}


@pytest.fixture
def own(tmp_path):
    """A library with one file of each room that fits, and one that does not."""
    for room in ("envs", "agents", "graphs"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "broken.yaml").write_text("backend: [\n")
        (tmp_path / room / "wrong.yaml").write_text("nonsense: 1\n")
    simphone = {"kind": "simphone", "options": {}}
    few = {"backend": "s", "backends": {"s": simphone}, "tasks": ["SimpleSmsSend", "tag:clock"]}
    (tmp_path / "envs" / "few.yaml").write_text(json.dumps(few))
    (tmp_path / "agents" / "mine.yaml").write_text("kind: rehearsal\n")
    (tmp_path / "graphs" / "mine.yaml").write_text("slots: [a]\n")
    return tmp_path


@pytest.fixture
def run(own, capsys):
    def call(*words, code=0):
        assert main([*words, "--library", str(own)]) == code
        return capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("command", "room", "mine"), [("env", "envs", "few"), ("agents", "agents", "mine"), ("graph", "graphs", "mine")]
)
def test_a_broken_file_hides_no_other(run, own, command, room, mine):
    said = run(command, "list")
    shown = [line.split()[0] for line in said.out.splitlines() if line.strip()]
    assert mine in shown
    assert {"env": "androidworld", "agents": "rehearsal", "graph": "team"}[command] in shown
    assert "broken" not in shown
    assert f"{room}/broken is left out: {own / room / 'broken.yaml'}:" in said.err
    assert f"{room}/wrong is left out: {own / room / 'wrong.yaml'}:1: nonsense: " in said.err
    listed = json.loads(run(command, "list", "--json").out)
    assert mine in listed
    assert "not YAML" in listed["broken"]["error"]
    assert list(listed["wrong"]) == ["error"]


def test_env_tasks_lists_what_the_file_says(run):
    def names(*words):
        return [task["name"] for task in json.loads(run("env", "tasks", "few", *words, "--json").out)["tasks"]]

    own = names()
    assert "SimpleSmsSend" in own
    assert "ClockTimerEntry" in own
    assert len(own) < 20
    assert names("--tasks", "SystemWifiTurnOn") == ["SystemWifiTurnOn"]
    assert len(names("--tasks", "all")) == 88
    assert f"{len(own)} tasks" in run("env", "tasks", "few").out


def test_a_file_of_tasks_beside_environments_is_none(run, own):
    (own / "envs" / "my-tasks.yaml").write_text(json.dumps({"tasks": [TASK]}))
    (own / "envs" / "empty-tasks.yml").write_text("tasks: []\n")
    lab = {"kind": "web", "options": {"tasks": "my-tasks.yaml", "sites": {"lab.test": "built-in"}}}
    (own / "envs" / "lab.yaml").write_text(json.dumps({"backend": "x", "backends": {"x": lab}}))
    said = run("env", "list")
    assert "my-tasks" not in said.out + said.err
    assert "empty-tasks" not in said.out + said.err
    assert "lab" in [line.split()[0] for line in said.out.splitlines() if line.strip()]
    assert "my-tasks" not in run("env", "tasks", "labb", code=2).err


def test_an_environment_without_backends_is_still_told(run, own):
    (own / "envs" / "half.yaml").write_text("tasks: [SimpleSmsSend]\n")
    assert "envs/half is left out" in run("env", "list").err


def test_a_web_environment_of_ones_own_carries_its_name(run, own):
    lab = {"kind": "web", "options": {"tasks": [TASK], "sites": {"lab.test": "built-in"}}}
    (own / "envs" / "lab.yaml").write_text(json.dumps({"backend": "x", "backends": {"x": lab}}))
    for name in ("lab", str(own / "envs" / "lab.yaml")):
        assert json.loads(run("env", "tasks", name, "--json").out)["environment"] == "web[lab]"
    assert json.loads(run("env", "tasks", "web", "--json").out)["environment"] == "web"


def test_check_all_goes_through_what_fits_and_fails_for_the_rest(run, own, monkeypatch):
    monkeypatch.setattr("collab.library.find_builtin_root", lambda: Path(own, "nothing built in"))
    said = run("env", "check", "--all", "--quick", "--tasks", "SystemWifiTurnOn", code=1)
    assert "androidworld[simphone] (version" in said.out
    assert "envs/broken is left out" in said.err


@pytest.mark.parametrize("item", ["tag:nonsense", "NoSuchTask"])
@pytest.mark.parametrize(
    "command",
    [
        ("env", "tasks", "odd"),
        ("env", "check", "odd"),
        ("rollout", "--agents", "rehearsal", "--env", "odd"),
        ("rollout", "--agents", "rehearsal", "--env", "odd", "--set", "environment.limits.call_s=9"),
        ("critic", "calibrate", "--critic", "critic-oracle", "--env", "odd"),
        ("synth", "--env", "odd"),
    ],
)
def test_a_task_that_a_file_of_ones_own_names_in_vain_is_told_with_the_file_and_its_key(run, own, command, item):
    file = own / "envs" / "odd.yaml"
    backend = {"kind": "fake", "options": {}}
    file.write_text(json.dumps({"backend": "f", "backends": {"f": backend}, "tasks": [item]}))
    noun, name = ("tag", "nonsense") if ":" in item else ("task", item)
    said = run(*command, code=2).err
    assert f"error: {file}: tasks: no {noun} called '{name}'; known: " in said
    assert said.endswith(f"see them with: collab env tasks {file} --tasks all\n")
    assert "of fake" not in said
    run("env", "tasks", str(file), "--tasks", "all")


def test_what_an_option_names_in_vain_is_not_blamed_on_the_file(run, own):
    said = run("env", "tasks", "few", "--tasks", "tag:nonsense", code=2).err
    assert "error: no tag of few called 'nonsense'" in said
    assert f"see them with: collab env tasks {own / 'envs' / 'few.yaml'} --tasks all" in said


@pytest.mark.parametrize(
    ("part", "unseen", "said"),
    [
        ({"kind": "fake", "options": {"rooms": 3}}, {}, " (backend f): options of fake: rooms: no key called 'rooms'"),
        ({"kind": "fake", "options": {}}, {"apps": ["nonsense"]}, ": unseen.apps: no task touches 'nonsense'"),
    ],
)
def test_what_is_wrong_with_an_environment_of_ones_own_is_told_with_its_file(run, own, part, unseen, said):
    file = own / "envs" / "odd.yaml"
    file.write_text(json.dumps({"backend": "f", "backends": {"f": part}, "unseen": unseen}))
    for name in ("odd", str(file)):
        assert f"error: {file}{said}" in run("env", "splits", name, code=2).err
