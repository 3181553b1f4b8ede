"""Muon for a model's matrices, AdamW for all its other weights, as one optimizer.

Muon (Jordan et al. 2024) replaces the momentum of a matrix by its nearest orthogonal matrix, so that rare directions
are learned as fast as common ones. It is meant for the matrices inside a network: embeddings, the output layer, norms
and biases stay with AdamW. Steps of both have equal root mean square ("match_rms_adamw", Liu et al. 2025, section 2.2:
0.2 sqrt(max(rows, columns)) times the learning rate), so that one learning rate and one weight decay serve both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from collab.errors import ConfigError

MOMENTUM = 0.95


class MuonAdamW(torch.optim.Optimizer):
    """Both as one: schedulers see all groups, a checkpoint holds both states."""

    def __init__(self, model: nn.Module, *, lr: float, weight_decay: float, betas: tuple[float, float]) -> None:
        """An optimizer of the weights that are trained.

        Args:
            model: whose weights they are.
            lr: of both.
            weight_decay: of all matrices, embeddings included; vectors do not decay.
            betas: of AdamW. Muon's momentum is 0.95, with Nesterov's step.

        Raises:
            ConfigError: no matrix inside the network is trained.
        """
        inner, outer, vectors = parts_of(model)
        if not inner:
            raise ConfigError(
                "optimizer: muon is for matrices inside the network, and none of them is trained; use optimizer=adamw"
            )
        muon = torch.optim.Muon(
            inner, lr=lr, weight_decay=weight_decay, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"
        )
        others: list[dict[str, Any]] = [{"params": outer}, {"params": vectors, "weight_decay": 0.0}]
        adamw = torch.optim.AdamW(others, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        self._both: tuple[torch.optim.Optimizer, ...] = (muon, adamw)
        super().__init__([group for part in self._both for group in part.param_groups], {})  # shared: schedules act

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of both; `closure` computes the loss again, as everywhere in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._both:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """State of both, in order."""
        return {"both": [part.state_dict() for part in self._both]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes up a state that `state_dict` gave; ValueError where it is another optimizer's."""
        if "both" not in state_dict:
            raise ValueError(
                "the stored state is another optimizer's; train on with the optimizer that it was begun with"
            )
        for part, state in zip(self._both, state_dict["both"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self._both for group in part.param_groups]


def parts_of(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Trained weights: matrices inside the network, embeddings and output layer, vectors; each once."""
    outside = {id(weight) for part in model.modules() if isinstance(part, nn.Embedding) for weight in part.parameters()}
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if head is not None:
        outside |= {id(weight) for weight in head.parameters()}
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    matrices = [weight for weight in trained if weight.ndim == 2 and id(weight) not in outside]
    inner = {id(weight) for weight in matrices}
    rest = [weight for weight in trained if id(weight) not in inner]
    return matrices, [weight for weight in rest if weight.ndim > 1], [weight for weight in rest if weight.ndim <= 1]
