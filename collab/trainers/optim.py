"""Muon with AdamW as one optimizer, beyond TRL's: recipe `optimizer: muon`.

optimizer = MuonAdamW(model, lr=1e-3, weight_decay=0.0, betas=(0.9, 0.999))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from collab.errors import ConfigError

MOMENTUM = 0.95


class MuonAdamW(torch.optim.Optimizer):
    """Muon for a model's matrices, AdamW for all its other weights.

    It is one optimizer: schedulers see all groups, a checkpoint holds both states. Muon (Jordan et al. 2024) replaces
    the momentum of a matrix by its nearest orthogonal matrix, so that rare directions are learned as fast as common
    ones. It is meant for the matrices inside a network: embeddings, the output layer, norms and biases stay with AdamW.
    Steps of both have equal root mean square ("match_rms_adamw", Liu et al. 2025, section 2.2:
    0.2 sqrt(max(rows, columns)) times the learning rate), so that one learning rate and one weight decay serve both.
    """

    def __init__(self, model: nn.Module, *, lr: float, weight_decay: float, betas: tuple[float, float]) -> None:
        """Build an optimizer of the trained weights.

        Args:
            model: whose weights they are.
            lr: of both.
            weight_decay: of all matrices, embeddings included; vectors do not decay.
            betas: of AdamW. Muon's momentum is 0.95, with Nesterov's step.

        Raises:
            ConfigError: no matrix inside the network is trained.
        """
        # Muon's orthogonal steps make sense for maps between hidden states, not for tables of tokens.
        inner, outer, vectors = split_parts(model)
        if not inner:
            raise ConfigError(
                "optimizer: muon is for matrices inside the network, and none of them is trained; use optimizer=adamw"
            )
        muon = _Muon(inner, lr=lr, weight_decay=weight_decay, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw")
        # No decay for vectors: gains and biases are scales, not maps.
        others: list[dict[str, Any]] = [{"params": outer}, {"params": vectors, "weight_decay": 0.0}]
        adamw = torch.optim.AdamW(others, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        self._both: tuple[torch.optim.Optimizer, ...] = (muon, adamw)
        # The groups are the optimizers' own dictionaries, so a scheduler that changes a rate changes theirs.
        super().__init__([group for part in self._both for group in part.param_groups], {})  # shared: schedules act

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Step both; `closure` computes the loss again, as everywhere in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._both:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both, in order."""
        return {"both": [part.state_dict() for part in self._both]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state that `state_dict` gave; ValueError where it is another optimizer's."""
        if "both" not in state_dict:
            raise ValueError(
                "the stored state is another optimizer's; train on with the optimizer that it was begun with"
            )
        for part, state in zip(self._both, state_dict["both"], strict=True):
            part.load_state_dict(state)
        # Loading has replaced the groups; a scheduler must find the new ones.
        self.param_groups = [group for part in self._both for group in part.param_groups]


class _Muon(torch.optim.Muon):
    """torch's Muon, whose orthogonal matrices are computed in float32 on processors.

    torch computes them in bfloat16 everywhere. Processors without bfloat16 products take thirty times longer for it:
    seven of the eight seconds of a step of the pocket model.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Step all matrices that have a gradient; `closure` is not called."""
        for group in self.param_groups:
            matrices, grads, momenta = [], [], []  # type: ignore[var-annotated]
            self._init_group(group, matrices, grads, momenta)
            for weight, grad, momentum in zip(matrices, grads, momenta, strict=True):
                momentum.lerp_(grad, 1 - group["momentum"])
                step = orthogonalize(
                    grad.lerp(momentum, group["momentum"]), group["ns_coefficients"], group["ns_steps"]
                )
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(step, alpha=-0.2 * max(weight.shape) ** 0.5 * group["lr"])


def orthogonalize(matrix: torch.Tensor, coefficients: tuple[float, float, float], steps: int) -> torch.Tensor:
    """Return about the nearest orthogonal matrix: U Vᵀ of U S Vᵀ, its singular values between 0.7 and 1.2.

    Args:
        matrix: (rows, columns).
        coefficients: a, b, c of the Newton-Schulz iteration X ← a X + (b X Xᵀ + c (X Xᵀ)²) X (Jordan et al. 2024).
        steps: how often it is repeated.

    Returns:
        (rows, columns), computed in float32 on a processor, in bfloat16 elsewhere.
    """
    a, b, c = coefficients
    x = matrix.to(torch.float32 if matrix.device.type == "cpu" else torch.bfloat16)
    x = x.T if x.shape[0] > x.shape[1] else x  # the smaller side gives the smaller products
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def split_parts(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Return trained weights: matrices inside the network, embeddings and output layer, vectors; each once."""
    # Tied output layers are embeddings too; by identity, each weight falls into one part.
    outside = {id(weight) for part in model.modules() if isinstance(part, nn.Embedding) for weight in part.parameters()}
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if head is not None:
        outside |= {id(weight) for weight in head.parameters()}
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    matrices = [weight for weight in trained if weight.ndim == 2 and id(weight) not in outside]
    inner = {id(weight) for weight in matrices}
    rest = [weight for weight in trained if id(weight) not in inner]
    return matrices, [weight for weight in rest if weight.ndim > 1], [weight for weight in rest if weight.ndim <= 1]
