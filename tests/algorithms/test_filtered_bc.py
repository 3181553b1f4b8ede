"""Filtered behaviour cloning: what it imitates, and that the commands of every training serve it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import collab
from collab.algorithms.filtered_bc.algorithm import FILE, FilteredBC, ImitationLearner
from collab.config import override
from collab.data.parquet import read_rows
from collab.errors import ConfigError, UnknownName
from collab.library import Library
from collab.loop.example_store import get_examples_file, read_counts
from collab.loop.interfaces import Rollout, load_algorithm, load_method
from collab.loop.phases import load_trajectories
from collab.loop.policy import Policy
from collab.loop.record import ExampleCounts, TrainingDir
from collab.rollout.run import read_stored_config
from collab.store.run import RunStore
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.testing.toy_team import configure_toy_training, create_toy_team, write_library

BC = load_algorithm("filtered-bc")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint(tmp_path_factory.mktemp("bc") / "tiny", hidden=32, layers=1, context=4096)


@pytest.fixture(scope="module")
def library(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    library = write_library(tmp_path_factory.mktemp("library"), tiny)
    assert library.own is not None
    (library.own / "agents/show.yaml").write_text("kind: rehearsal\noptions: {error_base: 0.6}\n")
    return library


@pytest.fixture(scope="module")
def rollout(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Rollout:
    """Six episodes, of which some are solved."""
    out = tmp_path_factory.mktemp("played") / "run"
    play = collab.collect(
        env="corridor", agents="show", graph="pair", episodes=6, seed=3, library=library.own, out=out, progress=False
    )
    asyncio.run(play)
    played = load_trajectories(out)
    assert 0 < sum(bool(one.success) for one in played) < len(played)
    return Rollout(
        number=1, run=read_stored_config(out), path=out, trajectories=played, reader=RunStore.open(out).open_reader()
    )


def imitated(library: Library, rollout: Rollout, tiny: Path, *settings: str) -> dict[str, list[str]]:
    """Episode → the replies that are learned from it."""
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="filtered-bc"))
    policy = Policy(version=0, weights={"ada": str(tiny), "ben": str(tiny)})
    learner, found = ImitationLearner(), dict[str, list[str]]()
    _, episodes = learner._select_imitated(config, rollout)
    for row in learner._build_examples(config, rollout, policy, episodes).rows["shared"]:
        assert (row.level, row.kind, row.rejected) == ("demonstration", "solved", None)
        found.setdefault(f"{row.provenance.task} {row.provenance.seed}", []).append(row.reply)
    return found


def test_every_reply_of_solved_episodes_and_no_other_is_imitated(
    library: Library, rollout: Rollout, tiny: Path
) -> None:
    wanted = {
        f"{one.task.name} {one.task.seed}": [cell.text for step in one.steps for cell in step.matrix.utterances]
        for one in rollout.trajectories
        if one.success
    }
    assert imitated(library, rollout, tiny) == wanted
    first = next(iter(wanted))
    assert imitated(library, rollout, tiny, "most_per_task=1") == {first: wanted[first]}


def test_its_method_learns_demonstrations_alone() -> None:
    method = load_method(BC)
    assert (method.RECIPE, method.recipe.learning_rate) == ("sft", 1e-4)
    with pytest.raises(ConfigError, match=r"sft\.levels: .*basic.* all examples are demonstrations"):
        override(method, ["sft.levels=[basic]"])
    with pytest.raises(UnknownName, match="ablation of filtered-bc"):
        asyncio.run(configure_toy_training(Library(), algorithm="filtered-bc", ablation="no-cr"))
    with pytest.raises(UnknownName, match="did you mean filtered-bc"):
        load_algorithm("filtered-cb")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_trained_killed_resumed_shown_and_exported_by_the_commands_of_every_training(tmp_path: Path) -> None:
    library = create_toy_team(tmp_path / "toy")
    assert library.own is not None
    easy = FilteredBC.toy  # a team that knows little solves some of it
    settings = (*easy, "epochs=2", "held_out.episodes=2", "sft.context=2048", "sft.save_every=1")
    asked = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", str(library.own)]
    more = [word for one in settings for word in ("--set", one)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def command(*words: str) -> list[str]:
        return [sys.executable, "-m", "collab.__main__", *words]

    def said(*words: str) -> str:
        done = subprocess.run(command(*words), capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = tmp_path / "bc"
    begin = command("train", "--algo", "filtered-bc", *asked, *more, "--device", "cpu", "--out", str(out))
    dying = subprocess.Popen(begin, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (out / "epochs/1/rollout/run.json").exists():
        assert dying.poll() is None, "it ended before it was killed"
        time.sleep(0.05)
    dying.send_signal(signal.SIGKILL)
    dying.wait()
    told = json.loads(said("train", "--resume", str(out), "--json"))
    assert told["summary"]["epochs"] == 2
    first = told["epochs"][1]
    assert first["algorithm"] == "filtered-bc"
    assert first["metrics"]["solved"] == first["metrics"]["imitated"] > 0
    assert list(first["hashes"]) == ["rollout", "examples", "weights", "evaluation"]
    counts = read_counts(TrainingDir(out).get_epoch(1).examples, ExampleCounts)
    assert counts is not None
    rows = list(read_rows(get_examples_file(TrainingDir(out), 1, "shared", FILE)))
    assert counts["shared"].examples == len(rows) > 0
    shown = said("runs", "show", str(out))
    assert "solved" in shown
    rows = json.loads(said("runs", "list", str(tmp_path), "--json"))
    (row,) = [row for row in rows if Path(row["run"]).name == "bc"]
    assert (row["command"], row["done"], row["unit"]) == ("train", 2, "epochs")
    said("export", f"{out}@last", "--out", str(tmp_path / "exported"))
    assert "filtered-bc" in (tmp_path / "exported/README.md").read_text()
    said("rollout", *asked[:4], "--library", str(library.own), "--agents", f"{out}@last", "--episodes", "1")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_imitation_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collab.__main__", "verify-resume", "--algo", "filtered-bc", "--quick"]
    done = subprocess.run([*command, "--seed", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same: killed 2 times" in done.stdout
