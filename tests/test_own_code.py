"""Errors in code that a user brings are told as theirs, with type, file and line, on one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from collab.cli.main import main

CHORES = """
from dataclasses import replace
from collab.envs.simphone.tasks import BY_NAME

def broken(*arguments):
    return {}["nothing"]

TASKS = [replace(BY_NAME["SystemWifiTurnOff"], name="Chores", CHANGE)]
"""
HOUSE = """
class House:
    name = label = "house"
    version, capabilities, space = "1", frozenset(), None

    def __init__(self, lamps: int = 0):
        self.lamps = 1 / lamps

    def tasks(self):
        return {}["tasks"]

    def instance(self, name, seed):
        return None

    async def open(self):
        return None

    async def close(self):
        pass
"""
MODEL = """
class Voice:
    def __init__(self):
        raise KeyError("breath")

    def generate(self, request): ...
    def probe(self): ...
    def count_tokens(self, text): ...
    def close(self): ...
"""


class Place:
    """A folder with a user's code, definitions and runs, and the command line in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        (folder / "envs").mkdir()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.py"
        path.write_text(text.lstrip("\n"))
        sys.modules.pop(name, None)
        return path

    def define(self, kind: str, **options: object) -> None:
        backend = {"kind": kind, "options": options}
        (self.folder / "envs" / "own.yaml").write_text(json.dumps({"backend": "b", "backends": {"b": backend}}))

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and the last line on stderr."""
        code = main([*words, "--library", str(self.folder)])
        said = self.capsys.readouterr()
        return code, (said.err.strip().splitlines() or [said.out])[-1]


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("COLLAB_DEBUG", raising=False)
    return Place(tmp_path, capsys)


def rollout(place: Place) -> tuple[int, str]:
    words = ["--env", "own", "--tasks", "Chores", "--graph", "single", "--agents", "rehearsal", "--episodes", "1"]
    return place.run("rollout", *words, "--out", str(place.folder / "run"))


@pytest.mark.variations
@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax"),
        ("\nTASKS = nothing\n", 1, "NameError: name 'nothing' is not defined"),
        ("import no_such_helper\n", 1, "ModuleNotFoundError: No module named 'no_such_helper'"),
        ("import sys\nsys.exit('enough')\n", 2, "SystemExit: enough"),
        ("raise RuntimeError('two\\nlines')\n", 1, "RuntimeError: two lines"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError: "),
    ],
)
def test_a_file_that_cannot_be_imported(place: Place, text: str, line: int, said: str) -> None:
    path = place.write("broken_import", text)
    for kind, options in (("simphone", {"apps": ["broken_import"]}), ("broken_import:House", {})):
        place.define(kind, **options)
        code, told = place.run("env", "tasks", "own")
        assert code == 2
        assert said in told
        assert f"{path}:{line}" in told
        assert "bug of collab" not in told


@pytest.mark.parametrize(("change", "code"), [("draw=broken", 1), ("goal=broken", 1), ("draw=lambda rng: None", 1)])
def test_a_task_that_fails_before_it_begins(place: Place, change: str, code: int) -> None:
    path = place.write("chores_early", CHORES.replace("CHANGE", change))
    place.define("simphone", apps=["chores_early"])
    exit_code, told = rollout(place)
    assert exit_code == code
    assert f"{path}:{5 if 'broken' in change else 7}" in told
    assert "KeyError: 'nothing'" in told or "draw must return a dict of JSON values, got None" in told
    assert "bug of collab" not in told


@pytest.mark.parametrize("what", ["prepare", *(pytest.param(one, marks=pytest.mark.slow) for one in ("score", "plan"))])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("broken", "KeyError: 'nothing'"),
        ("lambda *_: 'yes'", "must return "),
        ("lambda *_: exit('enough')", "SystemExit: enough"),
        ("lambda *_: next(iter(()))", "StopIteration"),
    ],
)
def test_a_task_that_fails_while_it_is_played(place: Place, what: str, how: str, said: str) -> None:
    path = place.write("chores_late", CHORES.replace("CHANGE", f"{what}={how}"))
    place.define("simphone", apps=["chores_late"])
    rollout(place)
    main(["runs", "show", str(place.folder / "run"), "--json"])
    shown = place.capsys.readouterr().out
    assert said in shown
    assert f"{path}:{5 if how == 'broken' else 7}" in shown


PANTRY = Path(__file__).parent / "fixtures" / "apps" / "pantry"


@pytest.mark.variations
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title="Pantry"', "title=7", "screen 'pantry.shelf' must return a View"),
        ("body=body or", "body=None and", "screen 'pantry.shelf' must return a View"),
        ("body=body or", 'body=["a jar"] or', "screen 'pantry.shelf' must return a View"),
        ('ID + "add", partial', 'ID + "add", "not " and partial', ""),  # as it was
        ('ID + "save", save', 'ID + "save", "save"', "screen 'pantry.form' must return a View"),
        (
            "def save(phone: Phone) -> Phone:\n",
            "def save(phone):\n    return None\n",
            "tap of 'org.example.pantry:id/save'",
        ),
        (
            'Page(screen="pantry.form"',
            'Page(screen="pantry.door"',
            "got org.example.pantry showing ['pantry.shelf', 'pantry.door']",
        ),
        ("def save(phone: Phone) -> Phone:\n", 'def save(phone):\n    open("/no/lid")\n', "FileNotFoundError: "),
    ],
)
def test_an_app_that_fails_while_it_is_played(place: Place, old: str, new: str, said: str) -> None:
    name = f"larder_{len(old)}_{len(new)}"
    (place.folder / name).mkdir()
    for path in PANTRY.glob("*.py"):
        text = path.read_text().replace("from pantry", f"from {name}")
        (place.folder / name / path.name).write_text(text.replace(old, new) if path.name == "app.py" else text)
    place.define("simphone", apps=[name])
    words = ["--env", "own", "--tasks", "PantryAddJar", "--graph", "single", "--agents", "rehearsal", "--episodes", "1"]
    code, told = place.run("rollout", *words, "--out", str(place.folder / "run"))
    assert code == (1 if said else 0)
    assert said in told
    assert not said or f"{place.folder}/{name}/app.py:" in told


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("apps='settings'", "apps must be a tuple of names, such as ('contacts',), got 'settings'"),
        ("complexity='2'", "complexity must be a number of 0.1 or more, got '2'"),
        ("difficulty='odd'", "difficulty must be easy, medium or hard, got 'odd'"),
        ("plan=None", "plan must be a function, got None"),
    ],
)
def test_a_task_that_is_not_what_it_should_be(place: Place, change: str, said: str) -> None:
    place.write("chores_odd", CHORES.replace("CHANGE", change))
    place.define("simphone", apps=["chores_odd"])
    code, told = place.run("env", "tasks", "own")
    assert code == 2
    assert f"task 'Chores' of chores_odd: {said}" in told


def test_an_environment_of_ones_own(place: Place) -> None:
    path = place.write("own_house", HOUSE)
    place.define("own_house:House")
    code, told = place.run("env", "tasks", "own")
    assert code == 2
    assert f"ZeroDivisionError: division by zero (at {path}:6, which is no part of collab)" in told
    place.define("own_house:House", lamps=1)
    code, told = place.run("env", "tasks", "own")
    assert code == 1
    assert f"KeyError: 'tasks' (at {path}:9, which is no part of collab); run again with COLLAB_DEBUG=1" in told


LAMPS = """
from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.types import Observation, Outcome, StepResult, Task

SEEN = Observation(space="mobile", title="Lamps", text="Screen: Lamps", elements=())

class Lamp:
    async def reset(self, task):
        return SEEN

    async def step(self, action):
        return StepResult(observation=SEEN, terminated=True, outcome=Outcome(success=True, score=1.0, reason="lit"))

    async def close(self):
        pass

class House:
    name = label = "lamps"
    version, capabilities, space = "1", frozenset(), MOBILE

    def tasks(self):
        return [TaskInfo(name="light")]

    def instance(self, name, seed):
        return Task(environment="lamps", name=name, seed=seed, goal="Light the lamp.")

    async def open(self):
        return Lamp()

    async def close(self):
        pass
"""


@pytest.mark.variations
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return SEEN", "return None", "Lamp.reset: Observation wanted, got None"),
        ('text="Screen: Lamps"', "text=7", "Lamp.reset: str wanted, got 7"),
        ("elements=()", 'elements=("lamp",)', "Lamp.reset: Element wanted, got 'lamp'"),
        ("return StepResult", "return dict", "Lamp.step: StepResult wanted, got {"),
        ("outcome=Outcome", "outcome=dict", "Lamp.step: Outcome wanted, got {"),
        ("terminated=True", "info=[1], terminated=True", "Lamp.step: Mapping wanted, got [1]"),
        ('TaskInfo(name="light")', '"light"', "House.tasks: TaskInfo wanted, got 'light'"),
        ("return Task(", "return dict(", "House.instance: Task wanted, got {"),
        ("return Lamp()", "return House()", "open must return an environment with reset, step and close"),
        ("name = label", "label", "lamps:House is no environment: it has no name"),
    ],
)
def test_an_environment_that_answers_something_else(place: Place, old: str, new: str, said: str) -> None:
    path = place.write("lamps", LAMPS.replace(old, new))
    place.define("lamps:House")
    code, told = place.run(
        "rollout", "--env", "own", "--agents", "pocket", "--graph", "single", "--out", str(place.folder / "run")
    )
    assert code != 0
    assert said in told
    assert f"{path}:" in told or "is no environment" in told
    assert "bug of collab" not in told


def test_an_environment_that_answers_nonsense_is_no_bug_of_ours(place: Place) -> None:
    place.write("odd_house", HOUSE.replace('return {}["tasks"]', "return 7"))
    place.define("odd_house:House", lamps=1)
    code, told = place.run("env", "tasks", "own")
    assert code == 1
    assert "TypeError" in told
    assert "with parts from outside: odd_house" in told
    assert "bug of collab" not in told


def test_a_model_of_ones_own(place: Place) -> None:
    path = place.write("own_voice", MODEL)
    (place.folder / "agents").mkdir()
    (place.folder / "agents" / "voice.yaml").write_text("kind: own_voice:Voice\n")
    code, told = place.run("agents", "check", "voice")
    assert code == 2
    assert f"KeyError: 'breath' (at {path}:3, which is no part of collab)" in told
