"""Episodes that end as soon as they are solved: when, how they are labelled, and where that cannot be asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import collab
from collab.cli.main import main
from collab.config import RunConfig
from collab.loop.phases import load_trajectories
from collab.rollout.run import RunResult, read_stored_config
from collab.testing.fake_server import FakeServer

EVERY_STEP = "success_check=every_step"
SOLVED = """
from collab.testing.corridor import CorridorEnvironment, CorridorSuite


class SolvedEnvironment(CorridorEnvironment):
    def score(self):
        return 1.0


class Solved(CorridorSuite):
    async def open(self):
        return SolvedEnvironment(self)


class Silent(CorridorSuite):
    label = "fake[silent]"
    capabilities = CorridorSuite.capabilities - {"score"}
"""


@pytest.fixture
def definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "solved_worlds.py").write_text(SOLVED)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own/envs").mkdir(parents=True)
    for name, kind in {"corridor": "fake", "solved": "solved_worlds:Solved", "silent": "solved_worlds:Silent"}.items():
        (tmp_path / f"own/envs/{name}.yaml").write_text(f"backend: own\nbackends: {{own: {{kind: '{kind}'}}}}\n")
    return tmp_path / "own"


def play(definitions: Path, out: Path, *settings: str, env: str = "corridor", **choices: Any) -> RunResult:
    (definitions / "agents").mkdir(exist_ok=True)
    (definitions / "agents/sure.yaml").write_text("kind: rehearsal\noptions: {error_base: 0, error_slope: 0}\n")
    asked = {"agents": "sure", "graph": "single", "episodes": 3, "trust": True, "progress": False} | choices
    return asyncio.run(collab.collect(env=env, library=definitions, out=out, settings=list(settings), **asked))


def test_an_episode_ends_with_the_step_that_solves_it(definitions: Path, tmp_path: Path) -> None:
    declared = play(definitions, tmp_path / "end")
    result = play(definitions, tmp_path / "every", EVERY_STEP)
    assert (declared.label, result.label) == ("fake[corridor]", "fake[corridor], ends at success")
    for before, after in zip(declared.trajectories, result.trajectories, strict=True):
        assert before.success
        assert after.success
        # All but the declaration.
        assert len(after.steps) == len(before.steps) - 1
        assert after.outcome is not None
        assert after.outcome.reason == "solved by this step"
        assert after.steps[-1].terminated
        assert after.environment == "fake[corridor], ends at success"
    assert read_stored_config(tmp_path / "every").success_check == "every_step"
    assert RunConfig.model_fields["success_check"].default == "end"
    # The last step of the budget solves as well as any other.
    short = play(definitions, tmp_path / "short", EVERY_STEP, "environment.limits.max_steps=1", tasks="PressButton")
    assert [len(one.steps) for one in short.trajectories] == [1, 1, 1]
    assert all(one.success for one in short.trajectories)


def test_the_phone_tells_at_any_time(tmp_path: Path) -> None:
    result = asyncio.run(
        collab.collect(
            env="androidworld",
            tasks="SystemBluetoothTurnOn",
            agents="rehearsal",
            graph="single",
            episodes=1,
            out=tmp_path / "phone",
            settings=[EVERY_STEP],
            progress=False,
        )
    )
    assert result.label == "androidworld[simphone], ends at success"
    (episode,) = result.trajectories
    assert episode.success
    assert [step.executed.type for step in episode.steps if step.executed][-1] != "status"


def test_an_episode_that_starts_solved_has_no_step_and_is_told(
    definitions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    asked = ["--agents", "rehearsal", "--graph", "single", "--library", str(definitions), "--trust", "--episodes", "2"]
    asked += ["--env", "solved", "--set", EVERY_STEP, "--tasks", "PressButton"]
    assert main(["rollout", *asked, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "success  100.0%" in shown.out
    assert (
        "warning: 2 episodes started solved: counted as success without a step, which teaches and measures nothing: "
        "PressButton/0, PressButton/1"
    ) in shown.err
    assert [(one.success, len(one.steps)) for one in load_trajectories(out)] == [(True, 0), (True, 0)]
    assert main(["runs", "show", str(out)]) == 0
    shown = capsys.readouterr()
    assert "fake[corridor], ends at success" in shown.out
    # A resumed run finds them over.
    assert main(["runs", "resume", str(out), "--trust"]) == 0


def test_results_are_not_compared_with_those_of_ordinary_ends(
    definitions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer(says=lambda body: "Action: wait()") as server:
        agent = f"kind: openai\noptions: {{model: fake, base_url: '{server.url}'}}\n"
        (definitions / "agents").mkdir()
        (definitions / "agents/idle.yaml").write_text(agent)
        for name, more in (("end", []), ("every", ["--set", EVERY_STEP])):
            asked = ["--env", "corridor", "--agents", "idle", "--graph", "single", "--library", str(definitions), *more]
            assert main(["eval", *asked, "--out", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert main(["eval", "--compare", str(tmp_path / "end"), str(tmp_path / "every")]) == 2
    assert (
        "the runs are of fake[corridor] version 1 and fake[corridor], ends at success version 1; compare equal "
        "environments"
    ) in capsys.readouterr().err


def test_an_environment_that_cannot_tell_is_refused(
    definitions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--agents", "rehearsal", "--graph", "single", "--library", str(definitions), "--trust", "--env", "silent"]
    assert main(["rollout", *asked, "--set", EVERY_STEP, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: success_check: every_step, but fake[silent] cannot tell before the end of an episode whether its task "
        "is solved; set it to end"
    )
    assert not (tmp_path / "run").exists()
    assert main(["rollout", *asked, "--set", "success_check=often", "--out", str(tmp_path / "run")]) == 2
    assert "success_check" in capsys.readouterr().err.splitlines()[-1]


def test_the_score_is_checked(definitions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "corridor", "--library", str(definitions)]) == 0
    assert "score" in capsys.readouterr().out
