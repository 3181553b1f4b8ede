"""A second package adds an environment, a model, a critic, a verifier and an algorithm; nothing of ours is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.config import PartDefinition
from collab.errors import ConfigError, MissingExtra, UnknownName
from collab.rollout.build import BUILT_IN, build

OUTSIDE = Path(__file__).parent / "fixtures" / "outside"

ROLLOUT = """
import asyncio, json, sys, collab
result = asyncio.run(collab.collect(env="coast", agents="keeper", graph="team", episodes=3,
                                    library=sys.argv[1], out=sys.argv[2]))
print(json.dumps([result.label, result.report.planned.successes, result.report.planned.episodes,
                  result.trajectories[0].steps[0].history.effect]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables of a process that has the second package installed."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(target), str(OUTSIDE)], check=True)
    return os.environ | {"PYTHONPATH": str(target)}


@pytest.mark.medium
def test_a_rollout_with_foreign_parts(installed: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", ROLLOUT, str(OUTSIDE / "library"), str(tmp_path / "run")]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)[:3] == ["lighthouse", 3, 3]
    assert "shines" in json.loads(done.stdout)[3]


def test_entry_points_are_kinds(installed: dict[str, str]) -> None:
    show = "print(list_kinds('environments')['lighthouse'], list_kinds('models')['keeper'])"
    code = f"from collab.rollout.build import list_kinds; {show}"
    done = subprocess.run([sys.executable, "-c", code], env=installed, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["lighthouse.suite:LighthouseSuite", "lighthouse.keeper:KeeperModel"]


def test_the_page_about_algorithms_shows_the_one_that_is_tested() -> None:
    page = (OUTSIDE.parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert f"```python\n{(OUTSIDE / 'lighthouse' / 'voters.py').read_text(encoding='utf-8')}```" in page


def test_the_page_about_critics_shows_the_one_that_is_tested() -> None:
    page = (OUTSIDE.parents[2] / "docs" / "critics.md").read_text(encoding="utf-8")
    assert f"```python\n{(OUTSIDE / 'lighthouse' / 'lookout.py').read_text(encoding='utf-8')}```" in page


Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def call(installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Run a command with the definitions from outside, in a process and a folder of its own."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "collab.__main__", *words, "--library", str(OUTSIDE / "library")]
        folder = tmp_path_factory.mktemp("called")
        return subprocess.run(command, env=installed, capture_output=True, text=True, check=False, cwd=folder)

    return run


@pytest.fixture(scope="module")
def played(call: Call, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run; copy it before you change it."""
    out = tmp_path_factory.mktemp("outside") / "run"
    done = call("rollout", "--env", "coast", "--agents", "keeper", "--episodes", "2", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.medium
@pytest.mark.variations
@pytest.mark.parametrize("critic", ["lookout", "lighthouse.lookout:Lookout"])
def test_a_critic_from_outside_is_checked_and_judges(call: Call, played: Path, tmp_path: Path, critic: str) -> None:
    assert "lookout: ok (lighthouse.lookout:Lookout, no model)" in call("agents", "check", "lookout").stdout
    run = str(shutil.copytree(played, tmp_path / "run"))
    rebuilt = call("pairs", "rebuild", run, "--critic", critic, "--source", "contrast", "--json")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert json.loads(rebuilt.stdout)["judged"] > 0


def test_the_page_about_verifiers_shows_the_one_that_is_tested() -> None:
    page = (OUTSIDE.parents[2] / "docs" / "verifiers.md").read_text(encoding="utf-8")
    assert f"```python\n{(OUTSIDE / 'lighthouse' / 'harbour.py').read_text(encoding='utf-8')}```" in page


@pytest.mark.medium
@pytest.mark.variations
@pytest.mark.parametrize("verifier", ["harbour", "lighthouse.harbour:Harbour"])
def test_a_verifier_from_outside_is_checked_and_agrees(call: Call, played: Path, tmp_path: Path, verifier: str) -> None:
    assert "harbour: ok (lighthouse.harbour:Harbour, no model)" in call("agents", "check", "harbour").stdout
    run = str(shutil.copytree(played, tmp_path / "run"))
    found = call("verifier", "agree", "--runs", run, "--verifier", verifier, "--json")
    assert found.returncode == 0, found.stderr
    agreement = json.loads(found.stdout)["agreement"]
    assert (agreement["label"], agreement["numbers"]["agreement"]["value"]) == ("harbour-1", 1.0)


PLANNED = """
import asyncio, sys
from collab.library import Library
from collab.testing.toy_team import configure_toy_training, write_library
from collections.abc import Callable
from pathlib import Path
library = write_library(Path(sys.argv[1]), Path("none"))
config = asyncio.run(configure_toy_training(library, algorithm="voters"))
from collab.loop.interfaces import load_algorithm, load_config
from collab.loop.phases import get_curriculum
again = load_config(config.model_dump(mode="json"), "there")
print(again.algorithm, again.preset, again.method.confidence, type(get_curriculum(load_algorithm("voters"))).__name__)
"""


@pytest.mark.medium
def test_an_algorithm_from_outside_is_configured_by_its_name(installed: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLANNED, str(tmp_path)]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["voters", "voters", "0.5", "DrawnTasks"], done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_algorithm_from_outside_trains_and_is_resumed(installed: dict[str, str], tmp_path: Path) -> None:
    proof = ["verify-resume", "--algo", "voters", "--quick", "--seed", "2"]
    command = [sys.executable, "-m", "collab.__main__", *proof]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same: killed 2 times" in done.stdout


@pytest.mark.parametrize("kind", sorted(BUILT_IN["environments"]))
def test_every_built_in_environment_exists(kind: str) -> None:
    with pytest.raises(
        (ConfigError, MissingExtra), match=r"unknown key|did you mean|known:|needs \S+, which is not|Field required"
    ):
        build("environments", PartDefinition(kind=kind, options={"no_such_option": 1}), "here")


@pytest.mark.parametrize("kind", sorted(BUILT_IN["models"]))
def test_every_built_in_model_exists(kind: str) -> None:
    with pytest.raises(
        (ConfigError, MissingExtra), match=r"unknown key|did you mean|known:|needs \S+, which is not|Field"
    ):
        build("models", PartDefinition(kind=kind, options={"no_such_option": 1}), "here")


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        ({"kind": "fak"}, UnknownName, "did you mean fake"),
        ({"kind": "nowhere.at:All"}, ConfigError, "nowhere.at:All cannot be imported"),
        ({"kind": "collab.testing.corridor:Nothing"}, ConfigError, "has no 'Nothing'"),
        ({"kind": "fake", "options": {"slow": 1}}, ConfigError, r"options of fake: slow: .*did you mean slow_s"),
        ({"kind": "fake", "options": {"slow_s": "very"}}, ConfigError, r"slow_s: .*valid number.*got 'very'"),
    ],
)
def test_mistakes_in_a_part_are_one_line(part: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        build("environments", PartDefinition.model_validate(part), "envs/mine")
    assert "\n" not in str(caught.value)
