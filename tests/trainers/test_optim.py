"""Muon and AdamW as one optimizer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from collab.errors import ConfigError
from collab.trainers.optim import MuonAdamW, orthogonalize

SETTINGS: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}


class Small(nn.Module):
    """Something of each kind; the output layer is the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.inner = nn.Linear(6, 8)
        self.back = nn.Linear(8, 6, bias=False)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.back(torch.relu(self.inner(self.embedding(ids))))))


def small() -> Small:
    torch.manual_seed(0)
    return Small()


def walk(model: Small, optimizers: list[torch.optim.Optimizer], steps: int) -> Iterator[None]:
    for step in range(steps):
        ids = torch.tensor([step % 7, (step * 3) % 7])
        model.zero_grad()
        nn.functional.cross_entropy(model(ids), (ids + 1) % 7).backward()
        for optimizer in optimizers:
            optimizer.step()
        yield


def same(left: nn.Module, right: nn.Module) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left.parameters(), right.parameters(), strict=True))


def test_matrices_inside_go_to_muon_and_all_else_to_adamw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to torch's two optimizers, but for the precision of the orthogonal matrix."""
    monkeypatch.setattr(
        "torch.optim._muon._zeropower_via_newtonschulz", lambda grad, abc, steps, _: orthogonalize(grad, abc, steps)
    )
    ours, theirs = small(), small()
    muon = torch.optim.Muon(
        [theirs.inner.weight, theirs.back.weight],
        lr=0.01,
        weight_decay=0.1,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(
        [
            {"params": [theirs.embedding.weight]},
            {"params": [theirs.inner.bias, *theirs.norm.parameters()], "weight_decay": 0.0},
        ],
        **SETTINGS,
        fused=True,
    )
    for _ in zip(walk(ours, [MuonAdamW(ours, **SETTINGS)], 5), walk(theirs, [muon, adamw], 5), strict=True):
        assert same(ours, theirs)
    assert not same(ours, small())


def test_matrices_are_made_orthogonal_in_float32() -> None:
    """All singular values near 1 and the same singular vectors, whichever side is longer."""
    matrix = torch.randn(24, 9, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    for given, ways in ((matrix, (left, right)), (matrix.T, (right.T, left.T))):
        near = orthogonalize(given, (3.4445, -4.7750, 2.0315), 5)
        values = ways[0].T @ near @ ways[1].T
        assert near.dtype == torch.float32
        assert ((0.5 < values.diagonal()) & (values.diagonal() < 1.5)).all()
        assert (values - values.diagonal().diag()).abs().max() < 1e-4


def test_a_step_of_a_matrix_has_the_size_of_adamws() -> None:
    """0.2 times the learning rate, within what five Newton-Schulz iterations leave (0.5 to 1.5)."""
    model = nn.Linear(32, 64, bias=False)
    before = model.weight.detach().clone()
    optimizer = MuonAdamW(model, lr=0.01, weight_decay=0.0, betas=(0.9, 0.999))
    model.weight.grad = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    size = (model.weight.detach() - before).square().mean().sqrt().item()
    assert 0.6 < size / (0.2 * 0.01) < 1.3


def test_what_is_frozen_stays() -> None:
    model = small()
    model.inner.weight.requires_grad_(False)
    frozen = model.inner.weight.clone()
    for _ in walk(model, [MuonAdamW(model, **SETTINGS)], 2):
        assert torch.equal(frozen, model.inner.weight)


def test_a_model_without_an_inner_matrix_that_is_trained_is_refused() -> None:
    model = small()
    for part in (model.inner, model.back):
        part.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"none of them is trained; use optimizer=adamw"):
        MuonAdamW(model, **SETTINGS)


def test_a_schedule_reaches_both() -> None:
    optimizer = MuonAdamW(small(), **SETTINGS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    optimizer.step()
    schedule.step()
    assert {group["lr"] for part in optimizer._both for group in part.param_groups} == {0.005}


def test_a_stored_state_resumes_as_if_nothing_had_been() -> None:
    whole, stopped = small(), small()
    optimizer = MuonAdamW(stopped, **SETTINGS)
    list(walk(whole, [MuonAdamW(whole, **SETTINGS)], 3))
    whole_optimizer = MuonAdamW(whole, **SETTINGS)
    list(walk(stopped, [optimizer], 3))
    assert same(whole, stopped)
    whole_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in zip(walk(whole, [whole_optimizer], 3), walk(stopped, [optimizer], 3), strict=True):
        assert same(whole, stopped)


def test_the_state_of_another_optimizer_is_refused() -> None:
    model = small()
    with pytest.raises(ValueError, match="another optimizer"):
        MuonAdamW(model, **SETTINGS).load_state_dict(torch.optim.AdamW(model.parameters()).state_dict())
