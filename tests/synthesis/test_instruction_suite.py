"""Synthesised instructions played as tasks: they come back, are solved as their teacher did, bad ones are refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.config import PartDefinition
from collab.errors import UsageError
from collab.synthesis.instruction_suite import InstructionSuite
from collab.synthesis.run import start
from collab.types import Action, StepResult

CORRIDOR = {"kind": "fake", "options": {}}
PHONE = {"kind": "simphone", "options": {"without": ["pro expense"]}}


@pytest.fixture
def data(build_config: Callable[..., Any], tmp_path: Path) -> Path:
    """Instructions of a corridor, by its oracle."""
    asyncio.run(
        start(
            build_config(levels=["instruction"], episodes=3, screens=12, settings=["two_steps=0.9"]), tmp_path / "data"
        )
    )
    return tmp_path / "data"


def build_suite(data: Path, environment: dict[str, Any] = CORRIDOR) -> InstructionSuite:
    return InstructionSuite(environment=PartDefinition(**environment), data=str(data))


def rewrite(data: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every instruction, as if the synthesis had written it so."""
    path = data / "instructions.jsonl"
    path.write_text("".join(json.dumps(change(json.loads(line))) + "\n" for line in path.read_text().splitlines()))
    head = json.loads((data / "synth.json").read_text())
    head["files"][path.name]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (data / "synth.json").write_text(json.dumps(head))


def write_environment(folder: Path, data: Path, inner: dict[str, Any]) -> list[str]:
    """Write an environment of one's own whose tasks are instructions; return the options that name it."""
    part = {"kind": "instructions", "options": {"environment": inner, "data": str(data)}}
    definition = {"backend": "instructions", "backends": {"instructions": part}}
    (folder / "envs").mkdir(parents=True, exist_ok=True)
    (folder / "envs" / "asked.yaml").write_text(json.dumps(definition))
    sure = [f"--set=agents.*.options.error_{name}=0" for name in ("base", "slope")]
    return ["--env", "asked", "--library", str(folder), "--agents", "rehearsal", "--graph", "single", *sure]


async def play(suite: InstructionSuite, name: str, actions: Iterator[Action] | None = None) -> list[StepResult]:
    """Play an instruction by its own solution, or by other actions."""
    environment = await suite.open()
    await environment.reset(suite.instance(name, 0))
    results: list[StepResult] = []
    while not results or not results[-1].done:
        ahead = environment.oracle() or ()
        results.append(await environment.step(next(actions) if actions else ahead[0]))
    assert environment.oracle() == ()
    await environment.close()
    return results


def is_solved(suite: InstructionSuite, name: str, actions: Iterator[Action] | None = None) -> bool:
    outcome = asyncio.run(play(suite, name, actions))[-1].outcome
    assert outcome is not None
    return outcome.success


def test_every_instruction_is_solved_by_its_own_solution_and_by_no_empty_declaration(data: Path) -> None:
    suite = build_suite(data)
    assert suite.label == "fake[corridor] instructions by oracle"
    assert {info.oracle for info in suite.tasks()} == {True}
    sorts = set()
    for name, one in suite.instructions.items():
        sorts.add((one.sort, len(one.actions)))
        assert is_solved(suite, name)
        done = iter([suite.space.make("status", goal_status="complete")])
        assert is_solved(suite, name, done) is (one.sort == "complete")
        given_up = iter([suite.space.make("status", goal_status="infeasible")])
        assert not is_solved(suite, name, given_up)
    # One- and two-step instructions, and those that are fulfilled already.
    assert {("do", 2), ("do", 3), ("complete", 1)} <= sorts


def test_the_way_is_lost_and_found_and_a_fork_changes_nothing(data: Path) -> None:
    async def wander() -> None:
        suite = build_suite(data)
        # One whose action leads into another room, from which the way back is known.
        name = next(name for name, one in suite.instructions.items() if one.sort == "do" and one.task == "OpenDoors")
        environment = await suite.open()
        await environment.reset(suite.instance(name, 0))
        ahead = environment.oracle()
        assert ahead is not None
        fork = await environment.fork()
        await fork.step(ahead[0])
        assert environment.oracle() == ahead
        assert fork.oracle() == ahead[1:]
        for _ in range(len(ahead) + 1):
            result = await environment.step(None)
        assert environment.oracle() == ahead
        result = await environment.step(None)
        assert result.outcome is not None
        assert (result.truncated, result.outcome.success) == (True, False)
        with pytest.raises(UsageError, match="call reset first"):
            await environment.step(None)

    asyncio.run(wander())


def test_of_a_models_instructions_no_solution_is_known(build_config: Callable[..., Any], tmp_path: Path) -> None:
    asyncio.run(start(build_config(levels=["instruction"], teacher="tutor", episodes=2, screens=4), tmp_path / "data"))
    suite = build_suite(tmp_path / "data")
    assert suite.label == "fake[corridor] instructions by tutor"
    assert "oracle" not in suite.capabilities
    assert {info.oracle for info in suite.tasks()} == {False}


@pytest.mark.medium
def test_they_are_played_shown_and_checked_like_any_tasks(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = write_environment(tmp_path / "own", data, CORRIDOR)
    count = len((data / "instructions.jsonl").read_text().splitlines())
    assert main(["env", "tasks", *asked[1:4]]) == 0
    assert f"fake[corridor] instructions by oracle: {count} tasks, {count} with a known" in capsys.readouterr().out
    assert main(["rollout", *asked, "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fake[corridor] instructions by oracle")
    assert f"({count}/{count})" in out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["environment"] == (
        "fake[corridor] instructions by oracle"
    )
    one = json.loads((data / "instructions.jsonl").read_text().splitlines()[0])["name"]
    assert main(["env", "check", *asked[1:4], "--quick", "--tasks", one]) == 0


def test_a_screen_that_does_not_come_back_breaks_its_episode_and_is_counted(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = []

    def spoil(line: dict[str, Any]) -> dict[str, Any]:
        spoilt.append(line["name"])
        return {**line, "screen": "0" * 64} if len(spoilt) == 1 else line

    rewrite(data, spoil)
    asked = write_environment(tmp_path / "own", data, CORRIDOR)
    main(["rollout", *asked, "--out", str(tmp_path / "run"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["broken"] == 1, found.keys()
    assert "does not come back after" in json.dumps(found)


def test_what_cannot_be_played_is_one_line_each(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(folder: Path, inner: dict[str, Any] = CORRIDOR) -> str:
        asked = write_environment(tmp_path / "own", folder, inner)
        assert main(["rollout", *asked, "--out", str(tmp_path / "run")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert not (tmp_path / "run").exists()
        return line

    assert "there is no such directory with instructions; make it with: collab synth" in refuse(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "synth.json" in refuse(tmp_path / "empty")
    other = refuse(data, PHONE)
    assert "its instructions are of fake[corridor], version 1; this is androidworld[simphone" in other
    with (data / "instructions.jsonl").open("a") as file:
        file.write("{}\n")
    assert "has changed" in refuse(data)
    rewrite(data, lambda line: {"goal": line.get("goal")})
    assert "instructions.jsonl:1: is no instruction" in refuse(data)
    (data / "instructions.jsonl").unlink()
    assert "is gone" in refuse(data)


def test_a_set_without_instructions_says_why(
    build_config: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(start(build_config(levels=["demonstration"], screens=0), tmp_path / "data"))
    asked = write_environment(tmp_path / "own", tmp_path / "data", CORRIDOR)
    assert main(["rollout", *asked, "--out", str(tmp_path / "run")]) == 2
    assert "none of its 0 rows of level instruction can be played" in capsys.readouterr().err


@pytest.mark.slow
def test_on_the_phone_every_instruction_comes_back_and_is_solved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--env", "androidworld", "--levels", "instruction", "--episodes", "2", "--screens", "10"]
    assert main(["synth", *asked, "--set", "two_steps=0.5", "--out", str(tmp_path / "data")]) == 0
    count = len((tmp_path / "data" / "instructions.jsonl").read_text().splitlines())
    assert count > 30
    capsys.readouterr()
    played = write_environment(tmp_path / "own", tmp_path / "data", PHONE)
    assert main(["rollout", *played, "--out", str(tmp_path / "run")]) == 0
    assert f"({count}/{count})" in capsys.readouterr().out
