"""A reward model as the critic: its calls are metered, traced to its weights, and made once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from collab.algorithms.judging import admit_critic
from collab.config import Budget
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.loop import resume, start
from collab.models.checkpoint_card import hash_weights
from collab.preferences.store import read_pairs
from collab.rewards.calibration.config import CalibrationRequest, configure
from collab.rewards.calibration.run import start as calibrate
from collab.rewards.labels import read_labels
from collab.rollout.build import build_suite
from collab.testing.tiny_checkpoint import make_tiny_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture
def config(configure_finetuned, tmp_path: Path) -> TrainingConfig:
    weights = make_tiny_checkpoint(tmp_path / "critic", labels=1, hidden=16, layers=1)
    (tmp_path / "scorer.yaml").write_text(
        f"kind: model\noptions: {{path: {json.dumps(str(weights))}, device: cpu}}\nprompt: critic-model\n"
    )
    found: TrainingConfig = configure_finetuned(f"critic={tmp_path / 'scorer.yaml'}", "min_critic_auc=null", "epochs=1")
    return found


def test_a_training_that_stopped_while_it_judged_ends_like_one_that_did_not(
    config: TrainingConfig, tmp_path: Path
) -> None:
    whole = asyncio.run(start(config, tmp_path / "whole", device="cpu"))
    assert whole.summary is not None
    rollout = tmp_path / "whole/epochs/1/rollout"
    labels, spent = read_labels(rollout, "training"), whole.records[1].spent["critic"]
    assert labels.head.critic == "model-1"
    assert labels.head.options["weights"] == hash_weights(tmp_path / "critic")
    assert spent.calls == sum(len(judgement.calls) for judgement in labels.judged.values()) > 0
    assert spent.prompt_tokens > 0
    assert spent.completion_tokens == 0
    assert {pair.critic for pair in read_pairs(rollout, "training").pairs} == {"model-1"}
    before = whole.records[0].spent["evaluation"], whole.records[1].spent["rollout"]
    played = sum(one.prompt_tokens + one.completion_tokens for one in before)
    stopped = asyncio.run(start(config, tmp_path / "run", device="cpu", budget=Budget(tokens=played + 1)))
    assert stopped.stopped is not None
    judged = read_labels(tmp_path / "run/epochs/1/rollout", "training").judged
    assert 0 < len(judged) < len(labels.judged)
    assert asyncio.run(resume(tmp_path / "run", device="cpu")).summary == whole.summary


def test_its_calibration_is_found_by_its_weights(config: TrainingConfig, tmp_path: Path) -> None:
    library, out = Library(own=Path(str(config.library))), tmp_path / "measured"
    given = CalibrationRequest(
        env="corridor", critic=str(tmp_path / "scorer.yaml"), cases=2, settings=["permutations=0"]
    )
    asyncio.run(calibrate(asyncio.run(configure(library, given)), out))
    suite = build_suite(config.run)
    assert asyncio.run(admit_critic(config, suite, calibrations=out)).startswith("calibrated 2")
    make_tiny_checkpoint(tmp_path / "critic", labels=1, hidden=16, layers=1, seed=1)
    assert asyncio.run(admit_critic(config, suite, calibrations=out)) == f"no finished calibration of it in {out}"
