"""Trainings on rewarded replies or on whole trajectories: they end, learn, and repeat exactly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collab.algorithms.collabuiagents.metrics import CollabCounts, read_metrics
from collab.errors import NothingToLearn
from collab.loop.config import TrainingConfig
from collab.loop.examples import read_counts
from collab.loop.loop import TrainingResult, resume, start
from collab.loop.record import LABELS, TrainingDir
from collab.loop.state import LoopState
from collab.preferences.store import read_pairs
from collab.testing.kill_resume import compare_trainings
from collab.trainers.run_dir import FinetuneDir

pytestmark = pytest.mark.slow

SETTINGS = ("epochs=1", "held_out.episodes=1", "run.environment.backends.fake.options.declared=false")
"""A task is solved by pressing its button: the taught checkpoint, which never says that it is done, solves some."""


class Died(BaseException):
    """The process of a training would have ended here."""


def run(config: TrainingConfig, out: Path) -> TrainingResult:
    return asyncio.run(start(config, out, device="cpu"))


def dying(config: TrainingConfig, out: Path, monkeypatch: pytest.MonkeyPatch, *points: str) -> TrainingResult:
    """The same training, stopped where each of these parts would begin or after a checkpoint, then resumed."""
    begin, keep, left = LoopState.begin, FinetuneDir.keep_checkpoint, list(points)

    def at(point: str) -> None:
        if left and left[0] == point:
            del left[0]
            raise Died

    def begun(loop: LoopState, part: str) -> None:
        begin(loop, part)
        at(part)

    def kept(folder: FinetuneDir, *rest: int) -> None:
        keep(folder, *rest)
        at("checkpoint")

    monkeypatch.setattr(LoopState, "begin", begun)
    monkeypatch.setattr(FinetuneDir, "keep_checkpoint", kept)
    for number in range(len(points)):
        with pytest.raises(Died):
            asyncio.run(resume(out, device="cpu") if number else start(config, out, device="cpu"))
    return asyncio.run(resume(out, device="cpu"))


def same(one: Path, other: Path) -> bool:
    """Whether two trainings are alike in every part."""
    return all(part.same for part in compare_trainings(TrainingDir(one), TrainingDir(other)))


def test_whole_trajectories_are_compared_without_a_critic(configure_finetuned, tmp_path: Path, monkeypatch) -> None:
    config = configure_finetuned(*SETTINGS, "episodes=6", ablation="no-cr")
    whole = run(config, tmp_path / "whole")
    record, pairs = whole.records[1], read_pairs(tmp_path / "whole/epochs/1/rollout", LABELS).pairs
    assert len(pairs) == record.examples["shared"].examples > 0
    assert record.trained["shared"].steps > 0
    counts = read_counts(tmp_path / "whole/epochs/1/examples", CollabCounts)
    assert counts is not None
    assert counts["shared"].replies == [(len(one.chosen), len(one.rejected)) for one in pairs]
    told = read_metrics(record)
    assert (told.rewards, told.missing, "critic" in record.spent) == ({}, {}, False)
    assert not (tmp_path / "whole/epochs/1/rollout/labels").exists()
    assert FinetuneDir(tmp_path / "whole/epochs/1/training").read_metrics()[0]["margin"] == pytest.approx(0, abs=1e-4)
    again = dying(config, tmp_path / "again", monkeypatch, "rollout", "examples", "training", "checkpoint")
    assert again.summary == whole.summary
    parts = ("rollout", "training", "evaluation")
    assert all((record.spent[part].seconds or 0) > 0 for part in parts)
    known = [again.records[1].spent[part].seconds is not None for part in parts]
    assert known == [False, False, True]  # of the process that came to the end, only what it did as a whole
    assert same(tmp_path / "whole", tmp_path / "again")


def test_rewarded_replies_are_learned_and_nothing_is_compared(configure_finetuned, tmp_path: Path, monkeypatch) -> None:
    config = configure_finetuned(*SETTINGS, ablation="rft")
    whole = run(config, tmp_path / "whole")
    record = whole.records[1]
    trained = record.trained["shared"]
    assert not any(trained.metrics.values())
    assert trained.steps > 0
    told = read_metrics(record)
    assert told.rewards
    assert told.pairs.counts == {}
    rewarded = sum(rate or 0 for rates in told.rewards.values() for rate in rates)
    assert (record.examples["shared"].examples > 0) is (rewarded > 0)
    manifest = FinetuneDir(tmp_path / "whole/epochs/1/training").read()
    assert (manifest["stage"], manifest["recipe"]["levels"]) == ("sft", ["demonstration"])
    again = dying(config, tmp_path / "again", monkeypatch, "critic", "examples", "checkpoint")
    assert again.summary == whole.summary
    assert same(tmp_path / "whole", tmp_path / "again")


def test_epochs_of_so_many_steps_are_equal_however_they_are_played(
    configure_finetuned, tmp_path: Path, monkeypatch
) -> None:
    """One episode at a time, or four with a death between: what is learned from is the same."""
    asked = (*SETTINGS, "episodes=null", "steps=5")
    alone = run(configure_finetuned(*asked, concurrency=1), tmp_path / "alone")
    assert 5 <= alone.records[1].steps < 5 + 3
    together = dying(configure_finetuned(*asked), tmp_path / "together", monkeypatch, "critic")
    assert together.records[1].hash == alone.records[1].hash
    single = run(configure_finetuned(*asked, ablation="single-agent"), tmp_path / "single").records[1]
    assert 5 <= single.steps < 5 + 3
    assert (single.edges, set(single.weights)) == ([], {"ada"})
    assert sum(row.examples for row in single.examples.values()) <= single.steps


@pytest.mark.parametrize(
    ("ablation", "why"), [("no-cr", "0 pairs, 0 of 2 episodes solved"), ("rft", "0 rewarded replies")]
)
def test_a_first_epoch_with_nothing_to_learn_ends_the_training(
    configure_finetuned, tiny: Path, tmp_path: Path, ablation: str, why: str
) -> None:
    """A checkpoint that knows nothing solves nothing and is rewarded for nothing."""
    asked = (*SETTINGS, f"run.agents.*.options.path={tiny}")
    with pytest.raises(NothingToLearn, match=f"nothing to learn from this first rollout: {why}"):
        run(configure_finetuned(*asked, ablation=ablation), tmp_path / "run")
