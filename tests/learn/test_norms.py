"""Gains of norms at a rate of their own."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from collab.learn.base import quiet
from collab.learn.folder import RunFolder
from collab.learn.norms import gains_of, set_apart
from collab.learn.prepare import prepare
from collab.learn.trainer import trainer_of


def test_gains_are_trained_vectors_that_are_no_biases() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False), nn.RMSNorm(2))
    model[3].weight.requires_grad_(False)
    assert [id(weight) for weight in gains_of(model)] == [id(model[1].weight)]


def test_a_weight_set_apart_moves_at_its_own_rate_and_does_not_decay() -> None:
    """AdamW's first step is its rate, whatever the gradient; decay takes rate x decay x weight besides."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.LayerNorm(2, bias=False))
    nn.init.ones_(model[0].weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)
    set_apart(gains_of(model), optimizer, 0.1)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    torch.testing.assert_close(model[0].weight, torch.full((2, 2), 1 - 0.01 - 0.01 * 0.5))
    torch.testing.assert_close(model[1].weight, torch.full((2,), 1 - 0.1))


def test_the_recipes_rate_reaches_every_norm_and_nothing_else(samples, base: Path, tmp_path: Path) -> None:
    rates = ["learning_rate=0.001", "norm_learning_rate=0.02", "warmup=0", "weight_decay=0.1"]
    task = samples.task(base, "sft", "optimizer=adamw", *rates)
    with quiet():
        trainer = trainer_of(prepare(task, samples.rows(2)), RunFolder(tmp_path), "cpu", ())
    trainer.create_optimizer_and_scheduler(10)
    found = {id(weight): group["lr"] for group in trainer.optimizer.param_groups for weight in group["params"]}
    own = {name.split(".")[-2] for name, weight in trainer.model.named_parameters() if found[id(weight)] == 0.02}
    assert own == {"input_layernorm", "post_attention_layernorm", "norm"}
    assert set(found.values()) == {0.001, 0.02}
    assert len(found) == len(list(trainer.model.parameters()))
