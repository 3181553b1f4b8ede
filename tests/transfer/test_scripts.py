"""The scripts that lead a team from one environment to the other and back, in corridors by the names of both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collab.library import Library
from collab.testing import toy_team

SCRIPTS = Path(__file__).parents[2] / "scripts"
CORRIDOR = "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: STEPS}}\n"
TEACHING = ("epochs=1", "episodes=8", "pairs={adversary: 1, contrast: 1, correction: 0.5}", "dpo.context=2048")
OPTIONS = ["--graph", "pair", *(word for one in (*toy_team.SMALL, *TEACHING) for word in ("--set", one))]


@pytest.fixture
def collab(taught: Library, tmp_path: Path) -> dict[str, str]:
    """Where the command is, and corridors in place of the environments."""
    assert taught.own is not None
    for name, steps in (("androidworld", 3), ("mobile-miniwob", 4)):
        (taught.own / f"envs/{name}.yaml").write_text(CORRIDOR.replace("STEPS", str(steps)))
    command = tmp_path / "collab"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m collab.__main__ "$@"\n')
    command.chmod(0o755)
    own = {"COLLAB": str(command), "COLLAB_LIBRARY": str(taught.own), "AGENTS": "toy"}
    return {**os.environ, **own, "TRANSFER": "--seeds 30 --episodes 2"}


@pytest.mark.parametrize("script", ["transfer_phone_to_web.sh", "transfer_web_to_phone.sh"])
def test_a_folder_that_holds_something_else_is_left_as_it_is(tmp_path: Path, script: str) -> None:
    (tmp_path / "out/trained").mkdir(parents=True)
    (tmp_path / "out/trained/model.bin").write_text("mine")
    done = subprocess.run(
        [str(SCRIPTS / script), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLLAB": "true"},
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path}/out is there already and holds something else; name another folder\n"
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["trained", "model.bin"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("script", "first"),
    [("transfer_phone_to_web.sh", "androidworld"), ("transfer_web_to_phone.sh", "mobile-miniwob")],
)
def test_a_team_is_led_there_and_a_second_call_makes_nothing_anew(
    collab: dict[str, str], tmp_path: Path, script: str, first: str
) -> None:
    out = tmp_path / "out"

    def call(*options: str) -> subprocess.CompletedProcess[str]:
        command = [str(SCRIPTS / script), str(out), *OPTIONS, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=collab, cwd=tmp_path)

    done = call()
    assert done.returncode == 0, done.stderr
    written = (out / "transfer/result.json").stat().st_mtime_ns
    assert json.loads((out / "trained/training.json").read_text())["config"]["run"]["environment_name"] == first
    assert json.loads((out / "transfer/result.json").read_text())["seeds"] == [30]
    again = call()
    assert again.returncode == 0, again.stderr
    assert (out / "transfer/result.json").stat().st_mtime_ns == written
    assert "forgetting of the first environment" in again.stdout
    other = call("--seed", "1")
    assert other.returncode == 2
    assert "holds what other options made" in other.stderr
