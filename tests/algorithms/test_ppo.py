"""PPO: advantages rest on values before their fit, values go on from epoch to epoch, and all of it resumes exactly."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from collab.algorithms.experience import JudgedEpisode
from collab.algorithms.ppo.learner import PPOMethod, compute_advantages, measure_values, whiten
from collab.algorithms.turn_learner import get_lesson_dir
from collab.algorithms.value_store import VALUES
from collab.cli.main import main
from collab.config import override
from collab.errors import RunFormatError
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.loop import resume, start
from collab.loop.record import TrainingDir
from collab.testing.toy_team import configure_toy_training, write_library, write_toy_candidates
from collab.trainers import estimate
from collab.trainers.rl.step_estimates import read_estimates
from collab.trainers.rl.token_values import TokenValues
from collab.trainers.rl.turns import read_lesson

PPO = load_algorithm("ppo")
SMALL = ("determinism=fast", "episodes=4", "held_out.before=false", "held_out.episodes=1", "rl.save_every=200")


def make_method(*settings: str) -> PPOMethod:
    method = override(load_method(PPO), settings)
    assert isinstance(method, PPOMethod)
    return method


def make_episode(reward: float, steps: int) -> JudgedEpisode:
    return JudgedEpisode(
        run="./epochs/1/rollout",
        trajectory=f"Task/{steps}",
        epoch=1,
        task="Task",
        instance="Task#1",
        goal="Do it.",
        limit=10,
        steps=steps,
        reward=reward,
        versions=(0, 0),
    )


def test_advantages_are_of_the_outcome_over_the_values() -> None:
    """λ = 1: the outcome less V; λ = 0: the next V less this one; the outcome is paid at the last step."""
    values = [np.array([0.5, 0.25]), np.array([0.5])]
    episodes = [make_episode(1.0, 2), make_episode(0.0, 1)]
    far = compute_advantages(make_method(), episodes, values)
    assert [one.tolist() for one in far] == [[0.5, 0.75], [-0.5]]
    near = compute_advantages(make_method("decay=0"), episodes, values)
    assert [one.tolist() for one in near] == [[-0.25, 0.75], [-0.5]]
    discounted = compute_advantages(make_method("gamma=0.5"), episodes, values)
    assert [one.tolist() for one in discounted] == [[0.0, 0.75], [-0.5]]
    scaled = np.concatenate(whiten(far))
    assert scaled == pytest.approx((np.array([0.5, 0.75, -0.5]) - 0.25) / np.sqrt(0.875 / 3))
    assert np.concatenate(whiten([np.array([0.5, 0.5])])).tolist() == [0, 0]


def test_values_are_measured_on_what_they_were_not_fitted_to() -> None:
    returns = np.array([1.0, 1.0, 0.0, 0.0])
    right = measure_values(np.array([0.75, 0.75, 0.25, 0.25]), returns, returns)
    assert (right.explained, right.accuracy, right.auc, right.ece) == (0.75, 1.0, 1.0, 0.25)
    alike = measure_values(np.zeros(2), np.ones(2), np.ones(2))
    assert (alike.explained, alike.auc) == (None, None)


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_a_training_values_its_states_and_ends_alike_when_it_is_resumed(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", finetuned)
    settings = (*SMALL, "epochs=3", "passes=2", "determinism=exact")
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="ppo", seed=4))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    folder = TrainingDir(result.path)
    assert result.summary is not None
    # At first nothing is known: V is 0, and an advantage is the outcome.
    first = list(read_estimates(get_lesson_dir(folder, 1, "shared")))
    assert {(one.value, one.advantage) for one in first} == {(0.0, 0.0), (0.0, 1.0)}
    assert all((one.weight > 0) is (one.reward > 0) for one in first)
    # Then V is what the epoch before fitted, and advantages are the outcome less that.
    second = list(read_estimates(get_lesson_dir(folder, 2, "shared")))
    assert all(one.advantage == pytest.approx(one.reward - (one.value or 0), abs=1e-9) for one in second)
    assert len({one.value for one in second}) > 2
    assert np.mean([one.weight for one in second]) == pytest.approx(0, abs=1e-6)
    lesson = read_lesson(get_lesson_dir(folder, 2, "shared"))
    assert sorted(row for step in lesson.order for row in step) == sorted([*range(len(second))] * 2)
    assert (result.records[2].spent["values"].seconds or 0) > 0, "a part of an epoch's time"
    told = result.records[2].metrics["values"]
    assert (told["states"], told["lost"]) == (len(second), None)
    assert any(
        line.startswith("V        of states: explained variance") for line in PPO.format_lines(result.records[2])
    )
    assert [(get_lesson_dir(folder, one, "shared") / VALUES).exists() for one in (1, 2, 3)] == [False, True, True]

    # Moved, and resumed in its last epoch, it ends with the same values and weights.
    moved = TrainingDir(shutil.copytree(result.path, tmp_path / "elsewhere"))
    shutil.rmtree(moved.get_epoch(3).path)
    moved.write({name: part for name, part in moved.read().items() if name != "summary"})
    lost = TrainingDir(shutil.copytree(moved.path, tmp_path / "lost"))
    assert asyncio.run(resume(moved.path)).summary == result.summary
    assert main(["runs", "show", str(moved.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"][2]["metrics"]["values"]["steps"] > 0

    shutil.rmtree(get_lesson_dir(lost, 2, "shared") / VALUES)
    with pytest.raises(RunFormatError, match="epoch 3 begins with these values, and they are gone"):
        asyncio.run(resume(lost.path))


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_values_may_be_fitted_to_candidates_first(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the replies to each state are right, so V of each is a half before any episode was learned."""
    count = write_toy_candidates(tmp_path / "made")
    library = write_library(tmp_path / "library", finetuned)
    taught = (f"pretraining={tmp_path / 'made'}", "pretraining_passes=12", "values.learning_rate=3e-3")
    settings = (*SMALL, *taught, "epochs=2", "whiten=false", "determinism=exact")
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="ppo", seed=4))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    folder = TrainingDir(result.path)
    first = list(read_estimates(get_lesson_dir(folder, 1, "shared")))
    assert all(0.3 < (one.value or 0) < 0.7 for one in first)
    assert all(one.advantage == pytest.approx(one.reward - (one.value or 0), abs=1e-9) for one in first)
    told = [record.metrics["values"]["pretrained"] for record in result.records[1:]]
    assert told == [count, 0]
    line = f"V        fitted to {count} candidates at first; of states: explained variance"
    assert any(one.startswith(line) for one in PPO.format_lines(result.records[1]))

    # Resumed from its first epoch, it is fitted to the same ones; others are refused.
    shutil.rmtree(folder.get_epoch(2).path)
    shutil.rmtree(folder.get_epoch(1).examples)
    folder.get_epoch(1).record.unlink()
    folder.write({name: part for name, part in folder.read().items() if name != "summary"})
    lost = TrainingDir(shutil.copytree(folder.path, tmp_path / "lost"))
    assert asyncio.run(resume(folder.path)).summary == result.summary
    path = tmp_path / "made" / "candidate.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(RunFormatError, match="not the candidates that this training began with; put them back"):
        asyncio.run(resume(lost.path))
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    assert main(["train", "--algo", "ppo", *asked, "--set", "pretraining=nowhere", "--out", str(tmp_path / "no")]) == 2
    assert "has no candidate.parquet; make it with: collab synth --levels candidate" in capsys.readouterr().err


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_a_fit_whose_values_are_no_numbers_is_undone_and_named(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step at such a rate leaves finite weights, too large to compute with; policies learn by V as it was.

    All is computed in bfloat16, which is doubted before, on a processor that seems to only emulate it.
    """
    taken, notes = {torch.bfloat16: 3e-3, torch.float32: 1e-4}, list[str]()
    monkeypatch.setattr(estimate, "_time_product", lambda dtype, size, device: taken[dtype])
    library = write_library(tmp_path / "library", finetuned)
    values = "values={learning_rate: 3.0e+37, batch_rows: 64, precision: bfloat16}"
    settings = (*SMALL, "epochs=2", values, "rl.precision=bfloat16")
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="ppo", seed=4))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu", note=notes.append))
    assert any("faster: --set rl.precision=float32 --set values.precision=float32" in line for line in notes)
    assert result.summary is not None
    for record in result.records[1:]:
        told = record.metrics["values"]
        assert (told["steps"], told["loss"]) == (0, None)
        assert told["lost"].endswith("some are no numbers; its fit was undone")
        assert any(told["lost"] in line for line in PPO.format_lines(record) if line.startswith("V "))
        assert record.trained


@pytest.mark.timeout(600)
def test_a_plan_times_values_whose_fit_would_be_lost(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    sets = ("epochs=2", "steps=20", "rl.context=2048", "values.learning_rate=3.0e+37", "values.rows_at_once=2")
    more = [word for one in sets for word in ("--set", one)]
    assert main(["train", "--algo", "ppo", *asked, *more, "--device", "cpu", "--plan"]) == 0
    assert "valuing" in capsys.readouterr().out


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_values_that_are_no_numbers_teach_nothing_and_stop_nothing(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next epoch begins with new ones, also when it is resumed there."""
    save = TokenValues.save

    def spoil(self: TokenValues, folder: Path) -> None:
        if "epochs/1/" in str(folder):
            self._model.head.bias.data.fill_(np.nan)
        save(self, folder)

    monkeypatch.setattr(TokenValues, "save", spoil)
    library = write_library(tmp_path / "library", finetuned)
    settings = (*SMALL, "epochs=3", "determinism=exact")
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="ppo", seed=4))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    assert result.summary is not None
    _, first, second, third = result.records
    assert first.trained
    assert second.trained == {}
    why = second.untrained["shared"]
    assert re.fullmatch(
        r"values of tokens, step \d+: some are no numbers; the next epoch begins with new ones; a lower values.*", why
    )
    assert second.metrics["left_out"] == {"its values are no numbers": second.steps}
    assert second.weights == first.weights
    assert third.trained
    assert third.metrics["values"]["steps"] > 0
    assert main(["runs", "show", str(result.path)]) == 0
    assert "n = 0; values of tokens" in capsys.readouterr().out

    shutil.rmtree(TrainingDir(result.path).get_epoch(3).path)
    folder = TrainingDir(result.path)
    folder.write({name: part for name, part in folder.read().items() if name != "summary"})
    assert asyncio.run(resume(result.path)).summary == result.summary
