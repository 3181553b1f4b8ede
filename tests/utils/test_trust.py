"""What came from elsewhere runs no code: templates, classes, apps and programs that a recorded run names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.config import PartDefinition
from collab.errors import ConfigError
from collab.rollout.build import build
from collab.utils.trust import list_foreign_parts

MODULE = """
from pathlib import Path
Path({marker!r}).write_text("it ran")

def make():
    Path({marker!r}).write_text("it was called")

class Nothing:
    def __init__(self, **options):
        Path({marker!r}).write_text("it was made")
"""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A module that leaves a file behind when it runs, and that file."""
    name = f"evil_{abs(hash(request.node.name))}"
    marker = tmp_path / "marker"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{name}.py").write_text(MODULE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.chdir(tmp_path)
    return name, marker


def played(out: Path, *options: str, code: int = 0) -> Path:
    command = ["rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "2", "--out", str(out)]
    library = Path(__file__).parents[1] / "cli" / "library"
    assert main([*command, "--library", str(library), *options]) == code
    return out


def change(run: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """As a received run might have been changed: in `run.json`, and in its copy in the log."""
    head = json.loads((run / "run.json").read_text())
    edit(head["config"])
    (run / "run.json").write_text(json.dumps(head))


def _agents(name: str) -> Callable[[dict[str, Any]], None]:
    def edit(config: dict[str, Any]) -> None:
        for agent in config["agents"].values():
            agent["kind"] = f"{name}:make"

    return edit


def _place(name: str) -> Callable[[dict[str, Any]], None]:
    def edit(config: dict[str, Any]) -> None:
        config["environment"]["backends"][config["environment"]["backend"]]["kind"] = f"{name}:Nothing"

    return edit


def _apps(name: str, kind: str = "simphone") -> Callable[[dict[str, Any]], None]:
    def edit(config: dict[str, Any]) -> None:
        config["environment"]["backends"][config["environment"]["backend"]] = {
            "kind": kind,
            "options": {"apps": [name]},
        }

    return edit


def _apps_by_class(name: str) -> Callable[[dict[str, Any]], None]:
    return _apps(name, "collab.envs.simphone.suite:SimPhoneSuite")


EDITS = {"agents": _agents, "environment": _place, "apps": _apps, "apps by class": _apps_by_class}


@pytest.mark.variations
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize(
    "command",
    [["runs", "resume"], ["pairs", "rebuild"]],
    ids=" ".join,
)
def test_a_recorded_run_runs_nothing_that_is_not_built_in_without_trust(
    tmp_path: Path, evil: tuple[str, Path], capsys: pytest.CaptureFixture[str], edit: str, command: list[str]
) -> None:
    name, marker = evil
    run = played(tmp_path / "run")
    change(run, EDITS[edit](name))
    capsys.readouterr()
    assert main([*command, str(run)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert name in line
    assert "--trust" in line
    assert not marker.exists()
    main([*command, str(run), "--trust"])
    runs_it = command[0] == "pairs" and edit != "agents"  # a finished run is told without any of its parts
    assert marker.exists() is runs_it
    assert "called" not in (marker.read_text() if marker.exists() else ""), "no function is called for a class"
    assert main([*command, str(run)]) == 2, "trust ends with the command"


def test_a_run_of_built_in_parts_needs_no_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = played(tmp_path / "run")
    assert main(["runs", "resume", str(run)]) == 0
    assert main(["pairs", "rebuild", str(run)]) == 0
    assert main(["runs", "show", str(run)]) == 0


@pytest.mark.slow
def test_looking_at_a_received_run_needs_no_trust_and_runs_nothing(tmp_path: Path, evil: tuple[str, Path]) -> None:
    name, marker = evil
    run = played(tmp_path / "run")
    for edit in EDITS.values():
        change(run, edit(name))
        for command in (["runs", "list", str(tmp_path)], ["runs", "show", str(run)], ["report", str(run)]):
            assert main(command) == 0, command
    assert not marker.exists()


@pytest.mark.variations
@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ cycler.__init__.__globals__.os.system('touch marker') }}", "SecurityError"),
        ("{% for i in range(10**9) %}x{% endfor %}", "Range too big"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "TemplateLimitExceeded"),
    ],
    ids=["code", "one long loop", "nested loops"],
)
def test_a_prompt_of_a_received_run_neither_runs_code_nor_continues_for_ever(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    template: str,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = played(tmp_path / "run", "--budget", "minutes=0.000001", code=1)
    change(run, lambda config: config["prompts"]["default"].update(shared=template + "{{ goal }}{{ screen }}"))
    capsys.readouterr()
    began = time.monotonic()
    assert main(["runs", "resume", str(run), "--budget", "minutes=9"]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("error: prompts/default/shared.jinja: cannot be filled in: ")
    assert told in line
    assert time.monotonic() - began < 60
    assert not (tmp_path / "marker").exists()
    assert main(["runs", "show", str(run)]) == 0, "what was played is still there"


HEADS = {
    "training.json": (["train-marl", "--resume"], {"format": 4}),
    "transfer.json": (["transfer", "--resume"], {"format": 4}),
}


@pytest.mark.parametrize("file", HEADS)
def test_a_recorded_training_runs_nothing_that_is_not_built_in_without_trust(
    tmp_path: Path, evil: tuple[str, Path], capsys: pytest.CaptureFixture[str], file: str
) -> None:
    name, marker = evil
    command, head = HEADS[file]
    folder = tmp_path / "training"
    folder.mkdir()
    config = {
        "critic": {"kind": f"{name}:Nothing", "options": {}},
        "run": {"agents": {"ada": {"kind": f"{name}:make"}}},
    }
    (folder / file).write_text(json.dumps({**head, "config": config, "weights": {}, "base": {}}))
    for form in (command, ["runs", "resume"]):
        assert main([*form, str(folder)]) == 2
        told = capsys.readouterr().err
        assert f"{name}:Nothing, {name}:make" in told
        assert "--trust" in told
    assert not marker.exists()


def test_what_the_users_own_definition_names_is_imported_and_checked_before_it_is_called(
    tmp_path: Path, evil: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    name, marker = evil
    (tmp_path / "agents").mkdir()
    for what, said in (
        ("make", "is no model: it is no class, but function"),
        ("Nothing", "is no model: it has no gen"),
    ):
        (tmp_path / "agents" / "odd.yaml").write_text(f"kind: {name}:{what}\n")
        assert main(["rollout", "--agents", "odd", "--library", str(tmp_path), "--episodes", "1"]) == 2
        assert said in capsys.readouterr().err
        assert marker.read_text() == "it ran"


@pytest.mark.parametrize(
    "kind",
    [
        ":",
        "a:",
        ":b",
        "a:b:c",
        "os:system:x",
        "a b:c",
        "..a:b",
        "a.:b",
        "a/b:c",
        "a:b.c",
        "ä:b",
        "x\0:y",
        "x\n:y",
        "1:2",
    ],
)
def test_a_broken_kind_is_one_line(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"write package\.module:Class") as caught:
        build("models", PartDefinition(kind=kind), "agents/odd")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("models", "os:system"),
        ("models", "subprocess:Popen"),
        ("models", "builtins:exec"),
        ("models", "collab.testing.corridor:CorridorSuite"),
        ("environments", "pathlib:Path"),
        ("critics", "collections:Counter"),
        ("verifiers", "collab.rewards.oracle:SolutionCritic"),
        ("adversaries", "collab.testing.scripted:ScriptedModel"),
    ],
)
def test_a_kind_is_a_class_of_its_group(group: Any, kind: str, tmp_path: Path) -> None:
    options = {"args": f"touch {tmp_path}/made", "command": f"touch {tmp_path}/made", "shell": True}
    with pytest.raises(ConfigError, match=rf"{kind} is no "):
        build(group, PartDefinition(kind=kind, options=options), "here")
    assert not (tmp_path / "made").exists()


def test_programs_and_apps_that_a_definition_names_are_foreign() -> None:
    options = {"executable_path": "/tmp/evil", "width": 3}
    environment = {"backend": "one", "backends": {"one": {"kind": "web", "options": options}, "two": {"kind": "x:Y"}}}
    assert list(list_foreign_parts(environment)) == ["executable_path /tmp/evil"]
    assert list(list_foreign_parts({"kind": "simphone", "options": {"apps": ["evil"]}})) == ["app evil"]
    assert list(list_foreign_parts({"kind": "llm", "options": {"model": {"kind": "x.y:Z"}}})) == ["x.y:Z"]
    assert list(list_foreign_parts({"kind": "collab.testing.corridor:CorridorSuite", "options": {}})) == []


@pytest.mark.parametrize("chosen", [[], {}, None, 3, "two"], ids=repr)
def test_foreign_parts_are_found_in_definitions_of_any_form(chosen: Any) -> None:
    deep: dict[str, Any] = {"backend": chosen, "backends": {"one": {"kind": "x:Y"}}}
    for _ in range(5000):
        deep = {"deeper": [deep]}
    assert list(list_foreign_parts(deep)) == ["x:Y"]
