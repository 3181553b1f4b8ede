"""GRPO: groups are whole and play one instance, advantages are those of the formula, and what has none is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.experience import JudgedEpisode
from collab.algorithms.grpo.algorithm import ALIKE, ALONE, BEFORE, GRPOMethod, compare_groups, count_spread
from collab.cli.main import main
from collab.config import RunConfig, override
from collab.errors import ConfigError
from collab.evidence.gather import _gather_training, _split_playing
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.record import EpochRecord, TrainingDir
from collab.rollout.plan import plan_episodes
from collab.rollout.run import read_stored_config
from collab.seeds import generator
from collab.store.run import RunStore
from collab.store.usage import read_usage, sum_costs
from collab.testing.corridor import CorridorSuite
from collab.testing.toy_team import write_library
from collab.trainers.rl.step_estimates import read_estimates
from collab.trainers.rl.turns import read_lesson
from collab.trainers.run_dir import FinetuneDir
from collab.view.inspector import Inspector

GRPO = load_algorithm("grpo")


def make_method(*settings: str) -> GRPOMethod:
    method = override(load_method(GRPO), settings)
    assert isinstance(method, GRPOMethod)
    return method


def make_episode(number: int, instance: str, reward: float, steps: int = 2, copied: int = 0) -> JudgedEpisode:
    return JudgedEpisode(
        run="./epochs/1/rollout",
        trajectory=f"Task/{number}",
        epoch=1,
        task="Task",
        instance=instance,
        goal="Do it.",
        limit=10,
        steps=steps,
        copied=copied,
        reward=reward,
        versions=(0, 0),
    )


def train_in_corridor(checkpoint: Path, folder: Path, *settings: str) -> Path:
    """Train for an epoch where tasks are easy enough to be solved at times, and return the training's directory."""
    library = write_library(folder / "library", checkpoint)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    fake = "run.environment.backends.fake.options.declared=false"
    sets = ["epochs=1", "steps=null", "held_out.episodes=2", fake, "rl.batch_rows=8", "rl.context=2048", *settings]
    more = [word for one in sets for word in ("--set", one)]
    out = folder / "run"
    assert main(["train", "--algo", "grpo", *asked, *more, "--device", "cpu", "--out", str(out)]) == 0
    return out


def test_an_episode_is_compared_with_its_group_alone() -> None:
    """One of four solved: (1 − ¼) / ½ and (0 − ¼) / ½; a group of one class and an episode alone have no advantage."""
    episodes = [
        *(make_episode(number, "Task#1", float(number == 2), steps=1 + number) for number in range(4)),
        *(make_episode(number, "Task#2", 1.0) for number in (4, 5)),
        make_episode(6, "Task#3", 1.0),
    ]
    found = compare_groups(episodes)
    told = {one.trajectory: [(step.weight, step.why) for step in found[one.key]] for one in episodes}
    assert told["Task/2"] == [(pytest.approx(1.5, abs=1e-5), "kept")] * 3
    assert told["Task/0"] == [(pytest.approx(-0.5, abs=1e-5), "kept")]
    assert [len(told[f"Task/{number}"]) for number in range(4)] == [1, 2, 3, 4]
    assert told["Task/4"] == told["Task/5"] == [(0.0, ALIKE)] * 2
    assert told["Task/6"] == [(0.0, ALONE)] * 2
    assert all(step.advantage == step.weight for steps in found.values() for step in steps)
    assert count_spread(episodes) == (1, 2)


@pytest.mark.parametrize(("spread", "groups", "is_told"), [(1, 3, True), (2, 5, False), (0, 0, False)])
def test_below_two_fifths_of_groups_apart_a_line_says_what_to_raise(spread: int, groups: int, is_told: bool) -> None:
    episodes = [
        make_episode(2 * group + number, f"Task#{group}", float(number and group < spread))
        for group in range(groups)
        for number in range(2)
    ]
    found, several = count_spread(episodes)
    record = EpochRecord(
        algorithm="grpo", epoch=7, version=7, weights={}, hash="", metrics={"spread": found, "groups": several}
    )
    lines = load_algorithm("grpo").format_lines(record)
    assert f"groups   {spread} of {groups} ended differently" in lines
    assert [line.startswith("warning  few groups ended differently") for line in lines].count(True) == is_told


def test_what_lies_before_the_state_of_a_group_is_not_learned() -> None:
    """Two of one state at step 2: only steps behind it are compared, also of the episode that led there."""
    episodes = [make_episode(0, "Task#1", 0.0, steps=3), make_episode(1, "Task#1", 1.0, steps=4, copied=2)]
    found = compare_groups(episodes)
    weight = pytest.approx(0.7071, abs=1e-4)  # ½ over a deviation of √½
    assert [one.why for one in found[episodes[0].key]] == [BEFORE, BEFORE, "kept"]
    assert [one.weight for one in found[episodes[1].key]] == [0, 0, weight, weight]
    assert found[episodes[0].key][2].weight == -found[episodes[1].key][2].weight


def test_every_turn_is_learned_once_a_pass() -> None:
    method = make_method("passes=2", "rl.batch_rows=4")
    steps = method.draw(1, 10, generator(0))
    assert [len(step) for step in steps] == [4, 4, 2] * 2
    first, second = (sorted(row for step in part for row in step) for part in (steps[:3], steps[3:]))
    assert first == second == list(range(10))
    assert steps[:3] != steps[3:]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["episodes=10"], "episodes=10: cannot hold whole groups of 4; set episodes=12"),
        (["episodes=null", "steps=null"], "group=4: an epoch has 1 episode; set episodes=4 or more, or steps"),
        (["rl.loss=likelihood"], "rl.loss: likelihood, but advantages are learned by ppo-clip; leave it out"),
        (["retokenised=keep"], "retokenised"),
        (["group=1"], "group"),
        (["exploration_temperatures=0"], "temperature=0 is greedy; set exploration_temperatures above 0, e.g. 1.0"),
        (["agents.*.sampling.top_p=0.9"], "top_p=0.9 cuts the distribution; set it to 1"),
        (["agents.*.sampling.stop=[x]"], "stop=['x'] cuts replies where the policy did not end; leave it out"),
    ],
)
def test_what_has_no_ratio_or_no_group_is_one_line(
    settings: list[str], message: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    more = [word for one in settings for word in ("--set", one)]
    out = tmp_path / "run"
    assert main(["train", "--algo", "grpo", *asked, *more, "--device", "cpu", "--out", str(out)]) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "\n" not in told.split("error: ")[-1]
    assert not out.exists()


def test_recorded_runs_are_refused(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="group"):
        make_method("group=0")
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    played = tmp_path / "played"
    assert main(["rollout", *asked, "--episodes", "2", "--out", str(played)]) == 0
    capsys.readouterr()
    assert main(["train", "--algo", "grpo", *asked, "--offline", str(played), "--out", str(tmp_path / "run")]) == 2
    assert "--offline: grpo learns from its own rollouts alone; leave it out" in capsys.readouterr().err


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_a_training_plays_groups_and_learns_what_they_differ_in(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train_in_corridor(finetuned, tmp_path, "episodes=16", "group=4", "determinism=exact")
    shown = capsys.readouterr().out
    folder = TrainingDir(out)
    run = read_stored_config(folder.get_epoch(1).rollout)
    assert isinstance(run, RunConfig)
    plan = plan_episodes(run)
    assert len({one.id for one in plan}) == 16
    assert [len({one.seed for one in plan[start : start + 4]}) for start in range(0, 16, 4)] == [1] * 4
    assert len({one.seed for one in plan}) == 4
    # The same screens at first, other replies: that is what there is to learn from.
    with RunStore.open(folder.get_epoch(1).rollout).open_reader() as reader:
        episodes = list(reader.iterate_trajectories())
    groups = {seed: [one for one in episodes if one.task.seed == seed] for seed in {one.task.seed for one in episodes}}
    assert all(len({one.steps[0].observation.digest for one in group}) == 1 for group in groups.values())
    said = [
        {tuple(cell.text for step in one.steps for cell in step.matrix) for one in each} for each in groups.values()
    ]
    assert max(map(len, said)) > 1
    record = json.loads(folder.get_epoch(1).record.read_text())
    spread = sum(len({one.success for one in group}) > 1 for group in groups.values())
    assert (record["metrics"]["spread"], record["metrics"]["groups"]) == (spread, 4)
    assert spread > 0
    assert f"groups   {spread} of 4 ended differently" in shown
    assert "epoch 0 | groups" not in shown
    # Successes are pushed up and failures down, each turn once a pass.
    lesson, place = read_lesson(folder.get_epoch(1).examples / "shared"), folder.get_epoch(1).examples / "shared"
    success = {one.id: one.success for one in episodes}
    assert all(
        (weight > 0) is success[turn.ref.trajectory] for turn, weight in zip(lesson.turns, lesson.weights, strict=True)
    )
    kept = [one for one in read_estimates(place) if one.why == "kept"]
    assert len(kept) == len(lesson.turns)
    assert all(turn.behaviour is not None for turn in lesson.turns)
    assert sorted(row for step in lesson.order for row in step) == sorted([*range(len(kept))] * 2)
    # On the machine that sampled them, what is recomputed is what was recorded.
    lines = FinetuneDir(folder.get_epoch(1).get_training_dir("shared")).read_metrics()
    assert lines[0]["ratio"] == pytest.approx(1, abs=1e-6)
    assert lines[0]["mismatch"] < 1e-4
    assert main(["runs", "show", str(out)]) == 0
    assert "groups apart" in capsys.readouterr().out


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_groups_may_begin_in_states_of_their_first_episodes(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train_in_corridor(finetuned, tmp_path, "episodes=6", "group=3", "start=state")
    epoch = TrainingDir(out).get_epoch(1)
    with RunStore.open(epoch.rollout).open_reader() as reader:
        first = {one.task.seed: one for one in reader.iterate_trajectories()}
    with RunStore.open(epoch.branches).open_reader() as reader:
        others = list(reader.iterate_trajectories())
        asked_for = read_usage(reader).calls
        cells = sum_costs(reader).whole.calls
    # Two others for each, in a state of it: its own steps, and the same screen after them.
    assert (len(first), len(others)) == (6, 12)
    assert len({one.copied_steps for one in others}) > 1
    for one in others:
        leader = first[one.task.seed]
        assert [replace(step, copied=False) for step in one.steps[: one.copied_steps]] == list(
            leader.steps[: one.copied_steps]
        )
        assert one.steps[one.copied_steps].observation.digest == leader.steps[one.copied_steps].observation.digest
        assert not any(step.copied for step in one.steps[one.copied_steps :])
    # Taken over means neither asked, nor paid, nor played, nor learned again.
    played = sum(len(one.steps) - one.copied_steps for one in others)
    assert asked_for == cells == played
    record = json.loads(epoch.record.read_text())
    assert record["steps"] == played + sum(len(one.steps) for one in first.values())
    assert record["played"]["episodes"] == 6
    assert record["metrics"]["groups"] == 6
    # What a unit of evidence tells as playing holds both.
    took = [_split_playing([run])["playing"] for run in (epoch.rollout, epoch.branches)]
    assert min(took) > 0
    assert _gather_training(out, tmp_path, 600.0)["seconds"].playing >= sum(took)
    copied = {one.id: one.copied_steps for one in others}
    learned = [one for one in read_estimates(epoch.examples / "shared") if one.weight]
    assert learned
    assert all(one.step >= copied[one.trajectory] for one in learned if one.run.endswith("branches"))
    capsys.readouterr()
    # It stands in the inspector beside the rollout, with the estimates of its steps.
    inspector = Inspector([out])
    (training,) = inspector.list_runs().runs
    parts = {part.role: part.id for part in inspector.get_overview(training.id).epochs[-1].runs}
    assert list(parts) == ["rollout", "branches", "evaluation"]
    shown = inspector.get_episode(parts["branches"], next(one.id for one in others if one.copied_steps))
    assert [one.copied for one in shown.steps][:1] == [True]
    assert shown.estimates
    # The run explains itself: where its episodes begin, and that those steps are not its own.
    named = next(one for one in others if one.copied_steps)
    assert main(["runs", "show", str(epoch.branches), "--episode", named.id]) == 0
    taken = "1 step" if named.copied_steps == 1 else f"{named.copied_steps} steps"
    assert f"begins   behind {taken} taken over from another episode" in capsys.readouterr().out
    assert main(["runs", "show", str(epoch.branches), "--episode", named.id, "--step", "0"]) == 0
    assert "step     0, taken over from another episode" in capsys.readouterr().out
    # Learned again from the record, without an environment, it ends with the same weights.
    assert main(["train", "--replay", str(out), "--out", str(tmp_path / "again")]) == 0
    assert f"epoch 1: its lessons and weights are those of {out}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_plan_counts_the_episodes_that_begin_in_states_of_others(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three more for each of the first ones, with a step or a whole budget each; likely half of what lies behind."""
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own), "--json"]

    def plan(*settings: str) -> dict[str, Any]:
        sets = ["epochs=1", "rl.context=2048", "held_out.episodes=2", "held_out.before=false", *settings]
        more = [word for one in sets for word in ("--set", one)]
        assert main(["train", "--algo", "grpo", *asked, *more, "--device", "cpu", "--plan"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    alone, branched = (plan("steps=null", "episodes=8", f"start={start}") for start in ("task", "state"))
    measured = 2
    assert branched["episodes"] - measured == 4 * (alone["episodes"] - measured)
    assert branched["steps"] == {end: 4 * number for end, number in alone["steps"].items()}
    assert branched["calls"]["high"] > 3 * alone["calls"]["high"] / 2
    # An epoch of 20 steps has at least as many as its first episodes, and a step in each branch of the fewest of them.
    first, limited = (plan("steps=20", f"start={start}")["steps"] for start in ("task", "state"))
    assert first["low"] == 20
    budget = alone["steps"]["high"] / 8
    assert limited["low"] == 20 + 3 * math.ceil(20 / budget)
    assert limited["high"] == 4 * first["high"]


@pytest.mark.slow
def test_such_a_training_is_resumed_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--set", "start=state", "--set", "episodes=6", "--set", "group=3"]
    assert main(["verify-resume", "--algo", "grpo", "--quick", *more, "--out", str(tmp_path / "proof")]) == 0
    assert "the same" in capsys.readouterr().out


def test_states_need_an_environment_that_comes_back_to_them(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    monkeypatch.setattr(CorridorSuite, "capabilities", CorridorSuite.capabilities - {"deterministic"})
    out = tmp_path / "run"
    assert main(["train", "--algo", "grpo", *asked, "--set", "start=state", "--out", str(out)]) == 2
    assert "start=state: the same actions do not surely lead to the same state" in capsys.readouterr().err
    assert not out.exists()
