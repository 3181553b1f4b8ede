"""The gain of the last norm at a rate of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from collab.errors import ConfigError
from collab.trainers.base_model import silence_libraries
from collab.trainers.optim import check_scales, find_final_gain, keep_direction, set_apart
from collab.trainers.prepare import prepare
from collab.trainers.run_dir import FinetuneDir
from collab.trainers.trainer import build_trainer


class Small(nn.Module):
    """Norms before, in and behind its layers, the layers named last."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(3)
        self.norm = nn.RMSNorm(2)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))])


def test_the_last_gain_is_the_last_trained_vector_outside_all_layers() -> None:
    model = Small()
    assert find_final_gain(model) is model.norm.weight
    model.norm.weight.requires_grad_(False)
    assert find_final_gain(model) is model.first.weight
    with pytest.raises(ConfigError, match="no norm behind its layers"):
        find_final_gain(model.layers)


class PlusOne(nn.Module):
    """A norm as Gemma has it: it multiplies by 1 + weight."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), weight))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * hidden.square().mean(-1, keepdim=True).rsqrt() * (1 + self.weight)


def test_only_a_gain_that_is_all_a_norm_does_is_scaled() -> None:
    for norm in (nn.RMSNorm(4), nn.LayerNorm(4)):
        nn.init.uniform_(norm.weight, 1, 3)
        check_scales(nn.Sequential(norm), norm.weight)
    biased = nn.LayerNorm(4)
    nn.init.ones_(biased.bias)
    for other in (biased, PlusOne(0.0), PlusOne(0.5)):
        with pytest.raises(ConfigError, match=f"last norm of this model \\({type(other).__name__}\\) does more than"):
            check_scales(nn.Sequential(other), other.weight)


def test_a_weight_set_apart_moves_at_its_own_rate_and_does_not_decay() -> None:
    """AdamW's first step is its rate, whatever the gradient; decay takes rate x decay x weight besides."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.LayerNorm(2, bias=False))
    nn.init.ones_(model[0].weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)
    set_apart(model[1].weight, optimizer, 0.1)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    torch.testing.assert_close(model[0].weight, torch.full((2, 2), 1 - 0.01 - 0.01 * 0.5))
    torch.testing.assert_close(model[1].weight, torch.full((2,), 1 - 0.1))


def test_a_weight_that_keeps_its_direction_becomes_longer_by_what_its_step_adds_to_its_length() -> None:
    """AdamW's first step takes the rate off or adds it: (1, 3) would be (0.9, 3.1), and 10.2 / 10 of it is kept."""
    weight = nn.Parameter(torch.tensor([1.0, 3.0]))
    other = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight, other], lr=0.1, weight_decay=0.0)
    keep_direction(weight, optimizer)
    weight.grad, other.grad = torch.tensor([0.2, -5.0]), torch.tensor([0.2, -5.0])
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([1.02, 3.06]))
    torch.testing.assert_close(other.detach(), torch.tensor([0.9, 1.1]))


def test_the_recipes_rate_reaches_the_last_norm_and_nothing_else(samples, base: Path, tmp_path: Path) -> None:
    rates = ["learning_rate=0.001", "final_norm_learning_rate=0.02", "warmup=0", "weight_decay=0.1"]
    task = samples.task(base, "sft", "optimizer=adamw", *rates)
    with silence_libraries():
        trainer = build_trainer(prepare(task, samples.rows(2)), FinetuneDir(tmp_path), "cpu", ())
    trainer.create_optimizer_and_scheduler(10)
    found = {id(weight): group["lr"] for group in trainer.optimizer.param_groups for weight in group["params"]}
    own = [name for name, weight in trainer.model.named_parameters() if found[id(weight)] == 0.02]
    assert own == ["model.norm.weight"]
    assert set(found.values()) == {0.001, 0.02}
    assert len(found) == len(list(trainer.model.parameters()))
    gain = trainer.model.model.norm.weight
    before = gain.detach().clone()
    gain.grad = torch.linspace(-1, 3, len(gain))
    trainer.optimizer.step()
    ratio = gain.detach() / before
    assert ratio[0] != 1  # it moved, and all of it alike
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
