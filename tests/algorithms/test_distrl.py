"""DistRL: what is drawn and corrected, what the loss of old replies is, and that all of it resumes exactly."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collab.algorithms.distrl import learner
from collab.algorithms.distrl.config import DistRLMethod
from collab.algorithms.distrl.learner import (
    METRICS,
    NOT_DRAWN,
    REPLAY,
    TOO_OLD,
    _deal_out,
    compute_advantages,
    compute_penalties,
    compute_targets,
)
from collab.algorithms.experience import read_experience
from collab.algorithms.turn_learner import DrawnLesson, get_lesson_dir
from collab.cli.main import main
from collab.config import override
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.evidence.gather import _gather_training
from collab.evidence.record import UnitRecord
from collab.loop.configure import apply_ablation
from collab.loop.continuous import Arrival, read_arrivals, take_enough
from collab.loop.estimate import format_plan, plan
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.loop import resume, start
from collab.loop.record import TrainingDir, read_record, read_records
from collab.loop.recorded import begin_replay
from collab.models.base import Capabilities
from collab.rollout.run import read_recorded_config
from collab.store.run import RunStore
from collab.testing.corridor import CorridorSuite
from collab.testing.toy_team import configure_toy_training, write_library
from collab.trainers.rl.replay import PrioritisedReplay
from collab.trainers.rl.step_estimates import read_estimates
from collab.trainers.rl.turns import read_lesson

DISTRL = load_algorithm("distrl")
UNMEASURED = ("held_out.before=false", "held_out.episodes=1", "rl.save_every=200")
FEW = "offline={steps: 15, updates: 2, value_updates: 5}"
"""A first epoch that is as short as the others."""
TOGETHER = (*DISTRL.toy, *UNMEASURED, "determinism=fast")
"""Replies are sampled together, as nothing is compared with another training that plays."""


def make_method(*settings: str, preset: str = "sound") -> DistRLMethod:
    method = override(load_method(DISTRL, preset), settings)
    assert isinstance(method, DistRLMethod)
    return method


REWARDS, VALUES, RATIOS = (np.array(one) for one in ([0.0, 0.0, 1.0], [0.5, 0.4, 0.3], [0.5, 2.0, 0.8]))
NONE = np.zeros(3)


def test_values_and_advantages_are_corrected_by_the_ratios() -> None:
    """The numbers of `retrace_values` in both forms, and what an advantage makes of them."""
    sound = make_method()
    targets = compute_targets(sound, REWARDS, VALUES, RATIOS)
    assert targets == pytest.approx([0.68, 0.86, 0.86])
    assert compute_advantages(sound, REWARDS, VALUES, targets, NONE) == pytest.approx([0.36, 0.46, 0.7])
    fined = compute_advantages(sound, REWARDS, VALUES, targets, np.array([0.0, -0.1, 0.0]))
    assert fined == pytest.approx([0.36, 0.36, 0.7])
    assert compute_targets(make_method("target=q"), REWARDS, VALUES, RATIOS) == pytest.approx([0.86, 0.86, 1.0])
    assert compute_targets(make_method("target=returns"), REWARDS, VALUES, RATIOS).tolist() == [1, 1, 1]
    # The paper's, at γ = 0.5: r + G_next + γ V_next − V, so (0.5 + 0.2 − 0.5, 1 + 0.15 − 0.4, 1 + 0 − 0.3).
    paper = make_method(preset="paper")
    assert compute_advantages(paper, REWARDS, VALUES, targets, NONE) == pytest.approx([0.2, 0.75, 0.7])
    # The public code's, at γ = 0.5: r + G − 0.05 + γ V_next − V is −0.1, 0.2 and 1.65; it learns what is above 0.
    released = make_method(preset="released")
    assert compute_targets(released, REWARDS, VALUES, RATIOS).tolist() == [1, 1, 1]
    assert compute_targets(released, NONE, VALUES, RATIOS).tolist() == [0, 0, 0]
    assert compute_advantages(released, REWARDS, VALUES, targets, NONE).tolist() == [0, 1, 1]
    assert compute_advantages(released, REWARDS, VALUES, targets, np.array([0.0, -0.4, 0.0])).tolist() == [0, 0, 1]
    cut = make_method("advantage_range=[-0.1,0.4]")
    assert compute_advantages(cut, REWARDS, VALUES, targets, NONE) == pytest.approx([0.36, 0.4, 0.4])
    heavy = np.array([-0.4, -0.9, 0.0])
    assert compute_advantages(cut, REWARDS, VALUES, targets, heavy) == pytest.approx([-0.04, -0.1, 0.4])
    assert compute_advantages(sound, REWARDS, VALUES, targets, heavy) == pytest.approx([0.0, 0.0, 0.7])


def test_turns_of_advantage_0_fill_the_optimizer_steps() -> None:
    """They count in the mean of a step; where no turn has a weight, none is learned."""
    method = make_method("updates=3", "rl.batch_rows=4", preset="released")
    drawn: Any = [
        SimpleNamespace(episode=SimpleNamespace(key=("run", str(number))), turns=["turn"] * 7, weights=np.eye(7)[0])
        for number in range(2)
    ]
    lesson = DrawnLesson(refuses=True)
    _deal_out(lesson, drawn, method, 2, random.Random(0))
    assert [len(step) for step in lesson.order] == [4, 4, 4]
    assert lesson.weights == [1, 0, 0, 0, 0, 0, 0] * 2
    lesson = DrawnLesson(refuses=True)
    for one in drawn:
        one.weights = NONE
    _deal_out(lesson, drawn, method, 2, random.Random(0))
    assert (lesson.turns, lesson.order) == ([], [])


@pytest.mark.parametrize(("preset", "mean", "most"), [("sound", 0.4, 0.6), ("paper", 3.0, 4.0), ("released", 3.0, 4.0)])
def test_a_priority_takes_the_entropy_of_the_distribution_or_of_the_reply(
    preset: str, mean: float, most: float
) -> None:
    """Of entropies 0.2 and 0.6 and replies with log π of −2 and −4; δ is (0.5 − 0.5, 1 − 0.5) at γ = 1, V = 0.5."""
    nothing = np.empty(0)
    read = learner._ReadEpisode(
        episode=SimpleNamespace(),  # type: ignore[arg-type]
        turns=[],
        ages=[0, 0],
        states=np.zeros((2, 1), np.float32),
        rewards=np.array([0.0, 1.0]),
        penalties=np.zeros(2),
        ratios=np.array([0.5, 1.0]),
        log_probabilities=np.array([-2.0, -4.0]),
        entropies=np.array([0.2, 0.6]),
        underflowed=0,
        values=nothing,
        targets=nothing,
        advantages=nothing,
        weights=nothing,
    )
    model: Any = SimpleNamespace(values=lambda states: np.full(len(states), 0.5))
    found = read.measure(model, make_method("gamma=1.0", preset=preset))
    assert (found.error, found.most_error, found.ratio) == pytest.approx((0.25, 0.5, 0.75))
    assert (found.entropy, found.most_entropy) == pytest.approx((mean, most))


def make_steps(*seen: tuple[str, str | None]) -> list[Any]:
    return [SimpleNamespace(executed=action, observation=SimpleNamespace(digest=screen)) for screen, action in seen]


def test_an_action_that_was_just_tried_on_the_same_screen_is_penalised() -> None:
    steps = make_steps(("a", "tap"), ("a", "tap"), ("a", "tap"), ("b", "tap"), ("b", "type"), ("b", None), ("b", None))
    assert compute_penalties(make_method(), steps).tolist() == [0, -0.05, -0.05, 0, 0, 0, 0]
    grown = compute_penalties(make_method("repeats_add_up=true"), steps)
    assert grown == pytest.approx([0, -0.05, -0.1, 0, 0, 0, 0])


def test_ratios_in_the_loss_are_of_whole_replies_and_at_most_1() -> None:
    torch = pytest.importorskip("torch")
    from collab.trainers.rl.policy_gradient import compute_ratios

    now = torch.tensor([[-1.0, -2.0], [-1.0, -9.0], [-90.0, -1.0]])
    then = torch.tensor([[-1.5, -2.5], [-0.5, torch.nan], [-1.0, -1.0]])
    said = torch.tensor([[True, True], [True, False], [True, True]])
    assert compute_ratios(now, then, said).tolist() == pytest.approx([1.0, np.exp(-0.5), 0.0])


@pytest.mark.parametrize("name", DISTRL.ablations)
def test_an_ablation_changes_one_thing(name: str) -> None:
    method = make_method()
    changed = override(method, DISTRL.ablations[name].settings)
    assert changed != method


def test_what_a_preset_has_not_cannot_be_left_out() -> None:
    method = load_method(DISTRL, "released")
    with pytest.raises(ConfigError, match="--ablation no-retrace: the method has neither target=v nor target=q"):
        apply_ablation(DISTRL, method, "no-retrace", graph="single")
    assert apply_ablation(DISTRL, load_method(DISTRL, "paper"), "no-retrace", graph="single")[0] != method


def test_the_loss_of_the_present_policy_alone_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"rl\.loss: ppo-clip, but replies of older policies are learned by importance"
    ):
        make_method("rl.loss=ppo-clip")


def test_a_server_that_cannot_tell_the_probability_of_a_reply_is_refused(finetuned: Path, tmp_path: Path) -> None:
    library = write_library(tmp_path / "library", finetuned)
    config = asyncio.run(configure_toy_training(library, *DISTRL.toy, algorithm="distrl", seed=3))
    (slot, agent), *_ = config.run.agents.items()
    served = config.run.model_copy(update={"agents": {slot: agent.model_copy(update={"kind": "openai"})}})
    warm = config.method.model_copy(update={"exploration_temperatures": 0.7})
    told = (
        f"agents.{slot}.sampling.temperature=0.7 is not 1, the only one at which a server reports that probability; "
        "set exploration_temperatures=1.0"
    )
    with pytest.raises(UsageError, match=re.escape(told)):
        DISTRL.list_doubts(config.model_copy(update={"run": served, "method": warm}), CorridorSuite())

    # A model that reports neither tokens nor probabilities is refused when it is asked, before anything is played.
    from collab.models.local import LocalModel

    async def probe(self: LocalModel) -> Capabilities:
        return Capabilities(token_ids=True, counts_tokens=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalModel, "probe", probe)
        with pytest.raises(UsageError, match="does not report their probabilities; use kind: local, or a server that"):
            asyncio.run(start(config, tmp_path / "run", device="cpu"))
    assert not (tmp_path / "run").exists()


@pytest.mark.medium
def test_what_a_method_cannot_hold_is_told_before_the_start(finetuned: Path, tmp_path: Path) -> None:
    """A warm-up beyond the buffer, and exact sampling of episodes whose order time decides; a plan overlaps."""
    library = write_library(tmp_path / "library", finetuned)
    settings = (*DISTRL.toy, "capacity=20", "collection=async", "steps=10", "determinism=exact")
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="distrl", seed=3))
    told = DISTRL.list_doubts(config, CorridorSuite())
    assert any("of the 30 steps that epoch 1 begins with, only the newest are" in one for one in told)
    assert any(one.startswith("determinism=exact: with collection=async") for one in told)
    found = asyncio.run(plan(config, library, "cpu"))
    assert found.total_s is not None
    learned = found.train_s.high + sum(one.seconds.high for one in found.labels if one.seconds is not None)
    assert found.total_s.high == pytest.approx(found.play_s.high + learned), "a single epoch may overlap nothing"
    assert found.total_s.low < found.play_s.low + found.shared_s.low
    assert found.likely_s is not None
    assert found.total_s.low <= found.likely_s <= found.total_s.high
    shown = format_plan(found)
    assert f"; up to {config.method.epochs} versions of the policy to play with" in shown
    assert "; playing continues beside the rest" in shown


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_a_training_remembers_draws_and_ends_alike_when_it_is_resumed(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", finetuned)
    settings = (*DISTRL.toy, *UNMEASURED, "epochs=3", "episodes=4", FEW)
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="distrl", seed=3))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    folder = TrainingDir(result.path)
    assert result.summary is not None
    places = [get_lesson_dir(folder, number, "shared") for number in (1, 2, 3)]

    # Replies of the first epoch are those of the policy that learns; later ones are drawn from all that fits.
    first, *_, last = result.records[1:]
    assert list(first.metrics["distrl"]["staleness"]) == ["0"]
    assert len(last.metrics["distrl"]["staleness"]) > 1
    assert first.metrics["distrl"]["ratio"] == pytest.approx(1.0, abs=1e-3), "μ and π are one policy"
    assert last.metrics["distrl"]["remembered_steps"] <= 60
    buffer = PrioritisedReplay.of(json.loads((places[2] / REPLAY).read_text()))
    runs = {one.run for one in buffer.buffer.episodes}
    assert len(runs) > 1

    estimates = list(read_estimates(places[2]))
    learned = [one for one in estimates if one.weight]
    assert {one.why for one in estimates} >= {"kept", NOT_DRAWN}
    assert all(one.priority is not None for one in estimates)
    assert any(one.staleness for one in learned)
    for one in learned:
        assert one.ratio is not None
        assert 0 <= one.ratio <= 1
        assert one.advantage is not None
        assert -1 <= one.advantage <= 1
    lesson = read_lesson(places[2])
    assert [len(step) for step in lesson.order] == [8, 8]
    lines = DISTRL.format_lines(last)
    assert any(line.startswith("replay   ") for line in lines)
    assert any(line.startswith("age      drawn replies by versions since: ") for line in lines)
    told, found = last.metrics["distrl"], DISTRL.summarize(last).histograms
    ages, ratios, priorities = found.values()
    assert ages == {str(age): told["staleness"].get(str(age), 0) for age in range(1 + max(map(int, told["staleness"])))}
    assert list(ratios)[::9] == ["0.00 – 0.10", "0.90 – 1.00"]
    assert sum(ratios.values()) == sum(ages.values()), "each drawn reply once"
    assert sum(priorities.values()) == told["remembered_episodes"]

    # Resumed in its last epoch, it draws the same episodes and ends with the same weights.
    again = TrainingDir(shutil.copytree(result.path, tmp_path / "elsewhere"))
    shutil.rmtree(again.get_epoch(3).path)
    again.write({name: part for name, part in again.read().items() if name != "summary"})
    spoilt = TrainingDir(shutil.copytree(again.path, tmp_path / "spoilt"))
    assert asyncio.run(resume(again.path)).summary == result.summary
    assert (get_lesson_dir(again, 3, "shared") / METRICS).read_text() == (places[2] / METRICS).read_text()
    assert main(["runs", "show", str(again.path)]) == 0
    assert "replay   " in capsys.readouterr().out

    (get_lesson_dir(spoilt, 2, "shared") / REPLAY).write_text("{}")
    with pytest.raises(RunFormatError, match="epoch 3 begins with these episodes, and they cannot be read"):
        asyncio.run(resume(spoilt.path))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_replies_of_recorded_runs_have_no_known_age(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their policy is version 7 of another training; not even `max_staleness=0` leaves them out."""
    library = write_library(tmp_path / "library", finetuned)
    played = tmp_path / "played"
    easy = "environment.backends.fake.options.declared=false"
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own), "--seed", "5"]
    more = [word for one in (easy, "agents.*.options.version=7") for word in ("--set", one)]
    assert main(["rollout", *asked, *more, "--episodes", "8", "--out", str(played)]) == 0
    settings = (*TOGETHER, "epochs=2", "max_staleness=0")
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="distrl", seed=3, recorded=[played]))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    folder = TrainingDir(result.path)
    first, second = (one.metrics["distrl"] for one in result.records[1:])
    assert first["staleness"] == {}
    assert first["undated"] == first["drawn"] > 0
    assert sum(second["staleness"].values()) + second["undated"] == second["drawn"]
    assert {int(age) for age in second["staleness"]} <= {0}
    estimates = list(read_estimates(get_lesson_dir(folder, 1, "shared")))
    assert {one.staleness for one in estimates} == {None}
    assert any(one.weight for one in estimates)
    assert TOO_OLD not in {one.why for one in estimates}

    capsys.readouterr()
    assert main(["runs", "show", str(result.path)]) == 0
    assert f"age      drawn replies by versions since: {first['drawn']} unknown (recorded before)" in (
        capsys.readouterr().out
    )
    found = DISTRL.summarize(result.records[1])
    assert found.histograms["Drawn replies, by versions since"] == {"unknown (recorded before)": first["drawn"]}
    assert "Versions between reply and learning" not in found.curves
    assert DISTRL.build_columns(result.records[1])["staleness"] == "-"


def list_taken(folder: TrainingDir, epochs: int) -> list[list[Arrival]]:
    found = [read_arrivals(folder.get_epoch(number)) for number in range(1, epochs + 1)]
    return [one for one in found if one is not None]


def list_finished(folder: TrainingDir, epochs: int) -> list[Arrival]:
    """All episodes that ended, learned or not, in the order in which they ended."""
    found = list[tuple[str, Arrival]]()
    for number in range(1, epochs + 1):
        with RunStore.open(folder.get_epoch(number).rollout).open_reader() as reader:
            ends = dict(reader.query("SELECT trajectory, max(plays.updated) FROM plays GROUP BY trajectory"))
            found += [
                (ends[one.id], Arrival(epoch=number, trajectory=one.id, steps=one.steps))
                for one in reader.list_episodes()
                if one.state == "finished"
            ]
    return [arrival for _, arrival in sorted(found, key=lambda one: one[0])]


ASYNC = ("collection=async", "steps=24", "epochs=3", "run.concurrency=4")


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_episodes_are_played_on_while_the_policy_learns(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No episode is learned twice, and what is learned tells its age; a training that is resumed takes up the rest."""
    library = write_library(tmp_path / "library", finetuned)
    config = asyncio.run(configure_toy_training(library, *TOGETHER, *ASYNC, algorithm="distrl", seed=3))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    folder = TrainingDir(result.path)
    assert result.summary is not None
    taken = list_taken(folder, 3)
    assert len(taken) == 3
    every = [one.key for arrivals in taken for one in arrivals]
    assert len(every) == len(set(every)), "an episode is learned once as a new one"
    for number, arrivals in enumerate(taken, 1):
        steps = [one.steps for one in arrivals]
        wanted = 30 if number == 1 else 24
        assert sum(steps[:-1]) < wanted <= sum(steps)
        experience = read_experience(folder, number)
        assert {one.trajectory for one in experience} == {one.trajectory for one in arrivals if one.steps}
        assert all(one.epoch <= number for one in arrivals)
    # While epoch 1 learned, its policy went on beginning episodes.
    assert any(one.epoch < number for number, arrivals in enumerate(taken, 1) for one in arrivals)
    # The record of evidence is of what was learned, too.
    unit = UnitRecord(
        **{"arm": "x", "seed": 3, "phase": "train", "base": "x", "code": ["x"], "commit": None, "command": "x"},
        **{"machine": {}, **_gather_training(result.path, tmp_path, 60.0)},
    )
    learned = [[(row[0], row[4]) for row in epoch.rollout] for epoch in unit.epochs[1:]]
    told = [[(one.trajectory.split("/")[0], one.steps) for one in arrivals] for arrivals in taken]
    assert [sorted(one) for one in learned] == [sorted(one) for one in told]
    assert unit.steps == sum(one.steps for arrivals in taken for one in arrivals)
    ages = [one.metrics["distrl"]["staleness"] for one in result.records[1:]]
    assert list(ages[0]) == ["0"]
    assert max(map(int, ages[-1])) >= 1

    with RunStore.open(folder.get_epoch(1).rollout).open_reader() as reader:
        workers = {worker for (worker,) in reader.query("SELECT worker FROM plays")}
    assert workers == {f"worker {number}" for number in range(1, 5)}, "each episode names who played it"

    # Learned again from what was recorded, without an environment, every weight is the same.
    monkeypatch.setattr(CorridorSuite, "open", None)
    assert main(["train", "--replay", str(result.path), "--out", str(tmp_path / "replayed")]) == 0
    told = capsys.readouterr()
    assert f"epoch 3: its lessons and weights are those of {result.path}" in told.err
    replayed = read_records(TrainingDir(tmp_path / "replayed"), 3)
    for one, before in zip(replayed, result.records, strict=True):
        assert one.hashes.get("weights") == before.hashes.get("weights")
        assert one.hashes.get("values") == before.hashes.get("values")
        assert one.success is None
    monkeypatch.undo()

    # What ended and was not learned when a process died is the next one's.
    again = TrainingDir(shutil.copytree(result.path, tmp_path / "elsewhere"))
    last = again.get_epoch(3)
    for path in (last.examples, last.path / "training", last.evaluation):
        shutil.rmtree(path, ignore_errors=True)
    for file in (last.record, last.path / "arrivals.json"):
        file.unlink()
    again.write({name: part for name, part in again.read().items() if name != "summary"})
    learned = {one.key for arrivals in taken[:2] for one in arrivals}
    left = [one for one in list_finished(again, 3) if one.key not in learned]
    assert {one.key for one in left} >= {one.key for one in taken[2]}
    resumed = asyncio.run(resume(again.path))
    assert resumed.summary is not None
    afresh = list_taken(again, 3)
    assert afresh[:2] == taken[:2]
    assert afresh[2] == take_enough(left, 24), "they have the steps of an epoch, so none is played anew for it"


@pytest.mark.slow
def test_old_episodes_are_not_learned_on_request(finetuned: Path, tmp_path: Path) -> None:
    library = write_library(tmp_path / "library", finetuned)
    settings = (*DISTRL.toy, *ASYNC, "max_staleness=0", "held_out.before=false", "held_out.every=9")
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="distrl", seed=3))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    folder = TrainingDir(result.path)
    every = set[str]()
    for number in (2, 3):
        old = {one.trajectory for one in read_experience(folder, number) if one.versions[0] < number - 1}
        every |= old
        found = {
            one.trajectory: one.why
            for one in read_estimates(get_lesson_dir(folder, number, "shared"))
            if one.why == TOO_OLD
        }
        assert set(found) == old
    assert every, "some arrived late"


@pytest.mark.slow
def test_a_replay_computes_in_the_threads_in_which_was_learned(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a training that samples fast; one that is resumed in between keeps to one number."""
    torch = pytest.importorskip("torch")
    here = torch.get_num_threads()
    seen = list[int]()

    def make_lesson(*given: Any) -> DrawnLesson:
        seen.append(torch.get_num_threads())
        return known(*given)

    known = learner._make_lesson
    monkeypatch.setattr(learner, "_make_lesson", make_lesson)
    library = write_library(tmp_path / "library", finetuned)
    config = asyncio.run(configure_toy_training(library, *TOGETHER, algorithm="distrl", seed=3))
    torch.set_num_threads(here + 1)
    try:
        run = asyncio.run(start(config, tmp_path / "run", device="cpu")).path
    finally:
        torch.set_num_threads(here)
    folder = TrainingDir(run)
    shutil.rmtree(folder.get_epoch(2).path)
    folder.write({name: part for name, part in folder.read().items() if name != "summary"})
    asyncio.run(resume(run))
    assert main(["train", "--replay", str(run), "--out", str(tmp_path / "again")]) == 0
    told = capsys.readouterr().err
    assert f"computing with threads={here + 1}, as it began, not {here}: sums depend on it to the last bit" in told
    assert f"epoch 2: its lessons and weights are those of {run}" in told
    assert seen == [here + 1] * 5, "two epochs, one of them resumed, and two again"
    assert torch.get_num_threads() == here


@pytest.mark.medium
def test_a_replay_that_learns_otherwise_or_cannot_is_refused(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", finetuned)
    config = asyncio.run(configure_toy_training(library, *TOGETHER, FEW, "epochs=1", algorithm="distrl", seed=3))
    run = asyncio.run(start(config, tmp_path / "run", device="cpu")).path
    assert main(["train", "--replay", str(run), "--out", str(tmp_path / "a"), "--seed", "1"]) == 2
    assert "--replay repeats the training as it is; leave out --seed" in capsys.readouterr().err

    # Another record of what was learned: the first epoch says so, and nothing is left to look right.
    record = TrainingDir(run).get_epoch(1).record
    known = read_record(record)
    changed = known.model_copy(update={"hashes": {**known.hashes, "weights": "0" * 64}})
    record.write_text(changed.model_dump_json())
    assert main(["train", "--replay", str(run), "--out", str(tmp_path / "b")]) == 1
    assert "epoch 1 ends with other weights than" in capsys.readouterr().err

    head = json.loads((run / "training.json").read_text())
    head["config"]["algorithm"] = "coach"
    (run / "training.json").write_text(json.dumps(head))
    assert main(["train", "--replay", str(run), "--out", str(tmp_path / "c")]) == 2


TRAIN = """
import asyncio, sys
from pathlib import Path
from collab.library import Library
from collab.loop.loop import start
from collab.testing.toy_team import configure_toy_training

library, out, *settings = sys.argv[1:]
config = configure_toy_training(Library.for_recorded_training(library), *settings, algorithm="distrl", seed=3)
asyncio.run(start(asyncio.run(config), Path(out), device="cpu"))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_training_that_is_killed_while_it_plays_on_loses_no_episode(finetuned: Path, tmp_path: Path) -> None:
    """Killed wherever it is, at three moments, it ends, has learned no episode twice, and can be replayed."""
    write_library(tmp_path / "library", finetuned)
    run, rng = tmp_path / "run", random.Random(1)
    settings = (*ASYNC, "held_out.before=false", "held_out.every=9", "held_out.episodes=1")
    begin = [sys.executable, "-c", TRAIN, str(tmp_path / "library"), str(run), *settings]
    again = [sys.executable, "-m", "collab", "train", "--resume", str(run)]
    for kill in range(3):
        process = subprocess.Popen(begin if not (run / "training.json").exists() else again)
        place = run / "epochs" / str(kill + 1) / ("rollout" if kill % 2 else "arrivals.json")
        while not place.exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(rng.random())
        process.kill()
        process.wait()
    subprocess.run(again, check=True)
    folder = TrainingDir(run)
    every = [one.key for arrivals in list_taken(folder, 3) for one in arrivals]
    assert len(every) == len(set(every)) > 3
    # Of all that ended the first ones are learned, so none that a killed process left is passed over.
    in_order = [one.key for one in list_finished(folder, 3)]
    assert set(in_order[: len(every)]) == set(every)
    begin_replay(run, tmp_path / "replayed")
    replayed = asyncio.run(resume(tmp_path / "replayed"))
    assert [one.hashes["weights"] for one in replayed.records[1:]] == [
        one.hashes["weights"] for one in read_records(folder, 3)[1:]
    ]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_workers_of_ray_play_on_with_the_newest_policy(finetuned: Path, tmp_path: Path) -> None:
    """They live for the whole training, and each reply has the version and the seed of its own run."""
    pytest.importorskip("ray")
    library = write_library(tmp_path / "library", finetuned)
    settings = (*ASYNC, "run.executor=ray", "run.concurrency=2", "held_out.before=false", "held_out.every=9")
    config = asyncio.run(configure_toy_training(library, *DISTRL.toy, *settings, algorithm="distrl", seed=3))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    assert result.summary is not None
    folder = TrainingDir(result.path)
    for number in (1, 2, 3):
        played = RunStore.open(folder.get_epoch(number).rollout).open_reader()
        run = read_recorded_config(folder.get_epoch(number).rollout)
        for episode in played.iterate_trajectories():
            for step in episode.steps:
                (cell,) = step.matrix
                assert cell.policy.version == number - 1
                wanted = run.seeds.cell(0, episode.task.name, episode.episode, step.index, cell.agent, cell.round)
                assert cell.seed == wanted
