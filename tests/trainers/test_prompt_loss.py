"""The loss on prompts beside the loss on replies: both means are right, and both are learned."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.trainer.utils import FusedCausalLMOutput

from collab.trainers.prepare import prepare
from collab.trainers.pretrain import compute_prompt_loss
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir


def output(log_probs: list[list[float]], mask: list[list[int]]) -> FusedCausalLMOutput:
    likely, there = torch.tensor(log_probs), torch.tensor(mask) == 1
    return FusedCausalLMOutput(log_probs=likely, entropy=-likely, is_top1=likely > -1.5, label_mask=there)


def test_by_hand() -> None:
    outputs = output([[-4.0, -2.0, -1.0], [-6.0, -3.0, 0.0]], [[1, 1, 1], [1, 1, 0]])
    replies = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0]]) == 1
    found = compute_prompt_loss(outputs, replies, 0.5)
    assert found.loss.item() == pytest.approx((2 + 1 + 3) / 3 + 0.5 * (4 + 6) / 2)
    assert found.prompt_loss == pytest.approx(5.0)
    assert (found.accuracy, found.entropy) == (pytest.approx(1 / 3), pytest.approx(2.0))


def test_a_pass_without_a_prompt_is_its_replies() -> None:
    found = compute_prompt_loss(output([[-1.0, -3.0]], [[1, 1]]), torch.tensor([[0, 1, 1]]) == 1, 0.5)
    assert (found.loss.item(), found.prompt_loss) == (pytest.approx(2.0), 0.0)


def first_line(samples, base: Path, out: Path, *settings: str) -> dict[str, Any]:
    task = samples.task(base, "sft", "learning_rate=1e-3", "epochs=1", *settings)
    prepared = prepare(task, samples.rows(8, ("basic",)))
    train(prepared, begin(prepared, out), device="cpu")
    return FinetuneDir(out).read_metrics()[0]


@pytest.mark.slow
def test_a_training_step_adds_what_it_says(samples, base: Path, tmp_path: Path) -> None:
    alone = first_line(samples, base, tmp_path / "alone")
    both = first_line(samples, base, tmp_path / "both", "prompt_weight=0.25")
    assert both["loss"] == pytest.approx(alone["loss"] + 0.25 * both["prompt_loss"], rel=1e-4)
    assert both["token_accuracy"] == pytest.approx(alone["token_accuracy"])
    assert both["entropy"] == pytest.approx(alone["entropy"], rel=1e-4)
    assert both["prompt_loss"] > math.log(2)
    assert "prompt_loss" not in alone


@pytest.mark.slow
def test_a_step_in_several_passes_is_their_mean(samples, base: Path, tmp_path: Path) -> None:
    whole = first_line(samples, base, tmp_path / "whole", "prompt_weight=1")
    parts = first_line(samples, base, tmp_path / "parts", "prompt_weight=1", "rows_at_once=4")
    assert parts["loss"] == pytest.approx(whole["loss"], rel=0.05)
