"""A training that begins with the epochs of another one: up to there both are the same, from then on it may differ."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.errors import RunFormatError, UsageError
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.loop import TrainingResult, resume, start
from collab.loop.record import TrainingDir
from collab.testing.toy_team import configure_toy_training, write_library

SETTINGS = ("updates=2", "rl.batch_rows=4", "episodes=4", "steps=null", "held_out.episodes=2", "held_out.every=9")


@pytest.fixture(scope="module")
def library(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return write_library(tmp_path_factory.mktemp("toy"), finetuned)


def ask(library: Library, *settings: str, seed: int = 0) -> TrainingConfig:
    """Two epochs of filtered behaviour cloning."""
    more = (*SETTINGS, "epochs=2", *settings)
    return asyncio.run(configure_toy_training(library, *more, algorithm="filtered-bc", graph="single", seed=seed))


@pytest.fixture(scope="module")
def whole(library: Library, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A training to fork; not to be changed."""
    return asyncio.run(start(ask(library), tmp_path_factory.mktemp("whole") / "run", device="cpu"))


@pytest.mark.medium
def test_a_fork_trains_what_is_left_as_it_is_asked_to(whole: TrainingResult, library: Library, tmp_path: Path) -> None:
    told: list[str] = []
    fork = f"{whole.path}@epoch1"
    alike = asyncio.run(start(ask(library), tmp_path / "alike", fork=fork, device="cpu", note=told.append))
    assert [one.hash for one in alike.records] == [one.hash for one in whole.records]
    assert alike.spent.calls < sum(part.calls for one in whole.records for part in one.spent.values())
    assert told[-1] == f"epochs 0 to 1 are those of {whole.path}; from then on nothing is set otherwise"
    config = ask(library, "rl.learning_rate=1e-5")
    other = asyncio.run(start(config, tmp_path / "other", fork=fork, device="cpu", note=told.append))
    assert told[-1].endswith(f"from then on rl.learning_rate=1e-05 (was {ask(library).method.rl.learning_rate})")
    assert [one.hash for one in other.records[:2]] == [one.hash for one in whole.records[:2]]
    assert other.records[2].hashes["weights"] != whole.records[2].hashes["weights"]
    assert TrainingDir(other.path).read()["forked"]["hash"] == whole.records[1].hash


@pytest.mark.medium
def test_a_fork_that_was_killed_while_it_copied_is_resumed(
    whole: TrainingResult, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = shutil.copytree

    def die(source: Path, target: Path, *more: Any) -> None:
        copied(source, target, *more)
        if Path(target).name == "1.partial":
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copytree", die)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(start(ask(library), tmp_path / "run", fork=f"{whole.path}@epoch1", device="cpu"))
    assert not TrainingDir(tmp_path / "run").get_epoch(1).path.exists()
    monkeypatch.setattr(shutil, "copytree", copied)
    result = asyncio.run(resume(tmp_path / "run"))
    assert [one.hash for one in result.records] == [one.hash for one in whole.records]
    # A training that was done anew meanwhile is not taken for the one that it began with.
    folder = TrainingDir(tmp_path / "run")
    head = folder.read()
    shutil.rmtree(folder.get_epoch(1).path)
    folder.write(
        {name: part for name, part in head.items() if name != "summary"} | {"forked": {**head["forked"], "hash": "0"}}
    )
    with pytest.raises(RunFormatError, match="which are others now; put back what was there, or begin anew"):
        asyncio.run(resume(folder.path))


@pytest.mark.parametrize(
    ("at", "settings", "seed", "told"),
    [
        ("", (), 0, r"write RUN@epochN"),
        ("@best", (), 0, r"write RUN@epochN"),
        ("@epoch7", ("epochs=9",), 0, r"epoch 7 is not over; collab train --resume .*, or name an earlier epoch"),
        ("@epoch2", (), 0, r"epochs=2 leaves nothing to train behind epoch 2; --set epochs=3 or more"),
        (
            "@epoch1",
            (),
            3,
            r"was trained with another run\.seed: 0, not 3; a fork may differ in settings of the method",
        ),
    ],
)
def test_what_cannot_be_forked_is_refused(
    whole: TrainingResult, library: Library, tmp_path: Path, at: str, settings: tuple[str, ...], seed: int, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        asyncio.run(start(ask(library, *settings, seed=seed), tmp_path / "run", fork=f"{whole.path}{at}", device="cpu"))
    assert not (tmp_path / "run").exists()


def test_a_plan_is_of_a_whole_training(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--algo", "ppo", "--graph", "single", "--agents", "early", "--plan", "--fork", "runs/a@epoch1"]
    assert main(words) == 2
    assert "--plan: measures whole trainings; leave out --fork" in capsys.readouterr().err
