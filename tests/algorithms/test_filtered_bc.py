"""Filtered behaviour cloning: what it imitates, and that the commands of every training serve it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import collab
from collab.algorithms.experience import JudgedEpisode, TurnBuilder, list_judged
from collab.algorithms.filtered_bc.algorithm import FilteredBC, ImitationLearner, choose_episodes
from collab.algorithms.turn_learner import Experience, ReplayMethod, get_lesson_dir, read_rewards
from collab.config import override
from collab.data.tokenize import get_reply_tokens
from collab.errors import ConfigError, UnknownName
from collab.library import Library
from collab.loop.examples import RecordedRun, read_counts
from collab.loop.interfaces import Labels, Rollout, load_algorithm, load_method
from collab.loop.phases import load_trajectories
from collab.loop.policy import Policy, build_chat_tokenizer
from collab.loop.record import ExampleCounts, TrainingDir
from collab.rollout.run import read_stored_config
from collab.store.rewards import ReplyRef
from collab.store.run import RunStore
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.testing.toy_team import configure_toy_training, create_toy_team, write_library
from collab.trainers.rl.turns import read_lesson

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


def judge(rollout: Rollout) -> list[JudgedEpisode]:
    """The rollout's episodes as they are remembered."""
    return list_judged("./rollout", 1, rollout.trajectories, read_rewards(rollout, Labels()))


def estimate(library: Library, episodes: list[JudgedEpisode], *settings: str) -> dict[tuple[str, int], str]:
    """Step → why it is learned or not."""
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="filtered-bc"))
    state = types.SimpleNamespace(config=config)
    experience = Experience(number=1, policy=Policy(version=0, weights={}), episodes=episodes, judged={1: episodes})
    found = asyncio.run(ImitationLearner().estimate(state, "shared", experience))  # type: ignore[arg-type]
    assert all(one.weight == (one.why == "kept") for one in found)
    return {(one.trajectory, one.step): one.why for one in found}


def test_every_step_of_solved_episodes_and_no_other_is_imitated(library: Library, rollout: Rollout) -> None:
    assert estimate(library, judge(rollout)) == {
        (one.id, step): "kept" if one.success else "not solved"
        for one in rollout.trajectories
        for step in range(len(one.steps))
    }
    last = [one.id for one in rollout.trajectories if one.success][-1]
    kept = {id for (id, _), why in estimate(library, judge(rollout), "most_per_task=1").items() if why == "kept"}
    assert kept == {last}


def test_the_public_codes_quantile_lets_failures_through_where_few_are_solved() -> None:
    assert choose_episodes([1.0, 0.0, 0.0, 1.0, 0.0], None) == [True, False, False, True, False]
    assert choose_episodes([1.0, 0.0, 0.0, 1.0, 0.0], 0.4) == [True, False, False, True, False]
    assert choose_episodes([0.0] * 19 + [1.0], 0.1) == [True] * 20


def test_a_preset_has_the_schedule_of_digirl() -> None:
    ours, other = load_method(BC, "sound"), load_method(load_algorithm("digirl"), "sound")
    both = ("epochs", "steps", "updates", "capacity", "exploration_temperatures", "held_out", "rl")
    assert {name: getattr(ours, name) for name in both} == {name: getattr(other, name) for name in both}
    assert isinstance(ours, ReplayMethod)
    assert isinstance(other, ReplayMethod)
    assert ours.offline is not None
    assert other.offline is not None
    assert (ours.offline.steps, ours.offline.updates) == (other.offline.steps, other.offline.updates)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"tokens": (), "end_token": 9, "finish": "stop"}, ([9], [-1.0], False)),
        ({"tokens": (5,), "end_token": 9, "finish": "stop"}, ([5, 9], [-0.5, -1.0], False)),
        ({"tokens": (5,), "end_token": None, "finish": "length"}, ([5], [-0.5], False)),
        ({"tokens": (5,), "end_token": 9, "finish": "stop", "action": None}, ([5, 9], [-0.5, -1.0], False)),
        ({"finish": "content_filter"}, "the server withheld its reply: content_filter"),
        ({"finish": "tool_call"}, "the server withheld its reply: tool_call"),
    ],
)
def test_a_turn_is_what_was_sampled_with_the_end_that_the_policy_said(
    changes: dict[str, Any], wanted: Any, library: Library, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a reply that ended at once; one that a server withheld is no turn."""
    out = tmp_path / "run"
    play = collab.collect(env="corridor", agents="toy", graph="single", library=library.own, out=out, progress=False)
    asyncio.run(play)
    with RunStore.open(out).open_reader() as reader:
        run = read_stored_config(out)
        record = RecordedRun.of(run, reader)
        (slot,) = run.graph.slots
        builder = TurnBuilder.of(
            record, run="./r", path=out, chats={slot: build_chat_tokenizer(run.agents[slot], str(tiny))}
        )
        (episode,) = load_trajectories(out)
        (said,) = episode.steps[0].matrix
        logps = tuple(-0.5 for _ in changes.get("tokens", ()))
        told = {"end_behaviour_logprob": -1.0, "behaviour_logprobs": logps, "logprobs": logps, "end_logprob": -1.0}
        changed = replace(said, **{**told, **changes})
        ref = ReplyRef(trajectory=episode.id, step=0, cell=said.cell)
        monkeypatch.setattr(RecordedRun, "get_cell", lambda record, ref: changed)
        turn, again = builder.build(ref)
    if isinstance(wanted, str):
        assert (turn, again) == (wanted, False)
    else:
        assert not isinstance(turn, str)
        assert turn.behaviour is not None
        assert (turn.reply.tolist(), turn.behaviour.tolist(), again) == wanted
        # A reply that is no action was said all the same, and is learned as what it is.
        assert turn.invalid is (changed.action is None)


def test_an_episode_without_a_verdict_is_neither_a_failure_nor_remembered(rollout: Rollout) -> None:
    _first, *rest = rollout.trajectories
    rewards = read_rewards(rollout, Labels(value={one.id: 1.0 for one in rest}))
    assert [one.trajectory for one in list_judged("./r", 1, rollout.trajectories, rewards)] == [one.id for one in rest]


def test_its_method_is_imitation_of_turns() -> None:
    method = load_method(BC)
    assert (method.RECIPE, method.recipe.learning_rate) == ("rl", 1e-4)
    with pytest.raises(ConfigError, match=r"processes: 2, but turns are learned by one process"):
        override(method, ["processes=2"])
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
    settings = (*easy, "epochs=2", "held_out.episodes=2", "rl.context=2048", "rl.save_every=1")
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
    assert first["metrics"]["solved"] == first["played"]["successes"] > 0
    assert list(first["hashes"]) == ["rollout", "examples", "weights", "evaluation"]
    counts = read_counts(TrainingDir(out).get_epoch(1).examples, ExampleCounts)
    assert counts is not None
    lesson = read_lesson(get_lesson_dir(TrainingDir(out), 1, "shared"))
    assert counts["shared"].examples == len(lesson.turns) > 0
    # What is learned is what was said: every turn's reply is one of a solved episode, with the end that was sampled.
    solved = {one.id: one for one in load_trajectories(out / "epochs/1/rollout") if one.success}
    for turn in lesson.turns:
        reply = get_reply_tokens(solved[turn.ref.trajectory].steps[turn.ref.step].matrix[turn.ref.cell])
        assert reply is not None
        assert tuple(turn.reply) == reply.ids
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
