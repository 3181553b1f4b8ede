"""Where a training is played may change when it is resumed: it ends like one that stayed, and tells its moves."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.config import Budget
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.loop import TrainingResult, start
from collab.loop.record import TrainingDir, read_records
from collab.rollout import run as played
from collab.store.run import RunStore
from collab.testing.toy_team import configure_toy_training, write_library

SETTINGS = ("updates=2", "rl.batch_rows=4", "episodes=4", "steps=null", "held_out.episodes=2", "held_out.every=9")
BEGUN = {"executor": "ray", "concurrency": 8}


@pytest.fixture(scope="module")
def library(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return write_library(tmp_path_factory.mktemp("toy"), finetuned)


def ask(library: Library, *settings: str) -> TrainingConfig:
    more = (*SETTINGS, "epochs=1", "held_out.before=false", *settings)
    return asyncio.run(configure_toy_training(library, *more, algorithm="filtered-bc", graph="single"))


@pytest.fixture(scope="module")
def whole(library: Library, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A training that stayed where it began; not to be changed."""
    return asyncio.run(start(ask(library), tmp_path_factory.mktemp("whole") / "run", device="cpu"))


@pytest.fixture(scope="module")
def stopped(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped in its first rollout, as if it had begun in eight Ray workers; not to be changed."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    result = asyncio.run(start(ask(library), run, device="cpu", budget=Budget(tokens=300)))
    assert result.stopped == "budget used up: tokens=300"
    assert RunStore.open(run / "epochs/1/rollout").open_reader().status == "stopped"
    for path, parts in ((run / "training.json", ("run", "held_out")), (run / "epochs/1/rollout/run.json", ())):
        head = json.loads(path.read_text())
        for part in parts:
            for config in head["config"][part] if part == "held_out" else [head["config"][part]]:
                config.update(BEGUN)
        if not parts:
            head["config"].update(BEGUN)
        path.write_text(json.dumps(head))
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that, where no Ray worker can be started."""

    def refuse(*_: Any, **named: Any) -> None:
        raise AssertionError("it starts Ray workers")

    monkeypatch.setattr(played, "RayExecutor", refuse)
    return Path(shutil.copytree(stopped, tmp_path / "run"))


@pytest.mark.medium
def test_a_moved_training_ends_like_one_that_stayed(
    whole: TrainingResult, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its begun rollout, its evaluation and all that follows are played where it was moved to."""
    words = ["train", "--resume", str(run), "--executor", "local", "--concurrency", "2", "--budget", "minutes=9"]
    assert main(words) == 0
    told = "played in this process, 2 episodes at once from here on; until now in 8 Ray workers"
    assert told in capsys.readouterr().err
    assert [one.hash for one in read_records(TrainingDir(run), 1)] == [one.hash for one in whole.records]
    head = TrainingDir(run).read()
    (move,) = head["moves"]
    assert (move["executor"], move["concurrency"]) == ("local", 2)
    assert head["config"]["run"]["executor"] == "ray", "as it began"
    begun = json.loads((run / "epochs/1/evaluation/seed-39/run.json").read_text())["config"]
    assert (begun["executor"], begun["concurrency"]) == ("local", 2)
    plays = RunStore.open(run / "epochs/1/rollout").open_reader().list_plays()
    assert {one.worker for one in plays if one.again} <= {"worker 1", "worker 2"}


@pytest.mark.slow
def test_a_training_stays_where_it_was_moved_to(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So the command that a stopped one prints resumes it."""
    short = ["--budget", "minutes=0.000001"]
    assert main(["runs", "resume", str(run), "--executor", "local", *short]) == 1
    assert f"resume with: collab train --resume {run}" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), *short]) == 1
    assert "until now" not in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--concurrency", "3", *short]) == 1
    assert "3 episodes at once from here on; until now in this process, 8 episodes" in capsys.readouterr().err
    moves = TrainingDir(run).read()["moves"]
    assert [(one["executor"], one["concurrency"]) for one in moves] == [("local", 8), ("local", 3)]
    assert main(["train", "--resume", str(run), "--budget", "minutes=9"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", str(run), "--executor", "ray"]) == 0, "nothing is left to play"
    assert TrainingDir(run).read()["moves"] == moves


def test_what_cannot_move_a_training_is_refused_before_it_changes(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--resume", str(run), "--executor", "local", "--workers", "4"]) == 2
    assert "--workers 4: counts Ray workers, and this run is played in this process" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--executor", "local", "--seed", "4"]) == 2
    assert "leave out --seed\n" in capsys.readouterr().err
    assert "moves" not in TrainingDir(run).read()


def test_a_move_to_workers_that_cannot_be_had_is_not_recorded(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))
    assert main(["train", "--resume", str(run), "--executor", "ray", "--workers", "2"]) == 2
    assert "pip install 'collab-marl[ray]'" in capsys.readouterr().err
    assert "moves" not in TrainingDir(run).read()


def test_a_fork_may_be_played_elsewhere(library: Library, whole: TrainingResult, tmp_path: Path) -> None:
    config = ask(library, "epochs=2", "run.concurrency=3")
    fork = f"{whole.path}@epoch1"
    result = asyncio.run(start(config, tmp_path / "fork", fork=fork, device="cpu", budget=Budget(minutes=1e-6)))
    assert result.stopped is not None
