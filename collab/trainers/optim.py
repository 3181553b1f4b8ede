"""Optimizers beyond TRL's: Muon with AdamW as one, and a separate learning rate for the last norm's gain.

    optimizer = MuonAdamW(model, lr=1e-3, weight_decay=0.0, betas=(0.9, 0.999))     # recipe `optimizer: muon`

    gain = find_final_gain(model)                                                   # `final_norm_learning_rate`
    set_apart(gain, optimizer, rate=1e-2)
    keep_direction(gain, optimizer)

The last norm's gain scales all logits, so it sets how confident a policy is. Its few hundred entries are about 1, those
of a matrix a few hundredths, so a learning rate that suits matrices barely moves it. A policy sampled at high
temperature first learns to be more confident. If the gain cannot move, the matrices change instead and lose other
abilities. Gains inside the layers keep the common rate: at a fast one they drift apart by a tenth without more
confidence.

At its own rate the last gain keeps its direction and only changes its length, like a temperature. AdamW moves every
entry by about the rate, whatever its gradient. Freely trained entries drift apart by a seventh per epoch, which also
changes the mixture of features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from collab.errors import ConfigError
from collab.models.weights import read_config, readable


def find_final_gain(model: nn.Module) -> nn.Parameter:
    """Return the last norm's gain: the last trained vector that is no bias and stands in no numbered layer.

    Raises:
        ConfigError: it has none.
    """
    # The last norm stands behind all layers, so its gain is the last vector without a layer number in its name.
    gains = [weight for name, weight in model.named_parameters() if weight.requires_grad and _is_gain(name, weight)]
    if not gains:
        raise ConfigError("final_norm_learning_rate: this model has no norm behind its layers; set it to null")
    return gains[-1]


def check_scales(model: nn.Module, gain: nn.Parameter) -> None:
    """Check that a norm multiplies by its gain alone, so that scaling the gain scales its output.

    Raises:
        ConfigError: it adds a bias, or multiplies by something else, as 1 + gain in Gemma.
    """
    # Tried, not read from the class: families name and compute their norms differently.
    norm = next(part for part in model.modules() if getattr(part, "weight", None) is gain)
    signs = torch.ones_like(gain)
    signs[1::2] = -1  # mean 0 and mean square 1, so that nothing is left to normalise
    with torch.no_grad():
        scales = torch.allclose(norm(signs[None])[0], signs * gain, rtol=1e-2, atol=1e-4)
    if not (scales and gain.any()):
        raise ConfigError(
            f"final_norm_learning_rate: the last norm of this model ({type(norm).__name__}) does more than multiply by "
            "its gain, which cannot be scaled as a whole then; set it to null"
        )


def check_last_norm(model: nn.Module) -> None:
    """Check that the last norm can be trained at its own rate.

    Args:
        model: on the meta device.

    Raises:
        ConfigError: as `find_final_gain` and `check_scales`.
    """
    # Weights are on the meta device: the norm alone gets numbers, which is enough to see what it does.
    gain = find_final_gain(model)
    norm = copy.deepcopy(next(part for part in model.modules() if getattr(part, "weight", None) is gain))
    norm.to_empty(device="cpu")
    with torch.no_grad():
        for weight in norm.parameters():
            weight.copy_(torch.linspace(0.5, 1.5, weight.numel()).view_as(weight))
    check_scales(norm, next(weight for name, weight in norm.named_parameters() if name == "weight"))


def set_apart(weight: nn.Parameter, optimizer: Optimizer, rate: float) -> None:
    """Move a weight of a fresh optimizer into a last group with another rate and without decay."""
    # Decay would reduce the policy's confidence.
    for group in optimizer.param_groups:
        group["params"] = [one for one in group["params"] if one is not weight]
    optimizer.add_param_group({"params": [weight], "lr": rate, "weight_decay": 0.0})


def keep_direction(weight: nn.Parameter, optimizer: Optimizer) -> None:
    """Restrict every step of an optimizer to scaling a weight as a whole.

    With w before a step and w' after it, the weight becomes (w'·w / w·w) w. A resume needs no stored state.
    """
    before = torch.empty_like(weight)

    def remember(*_: object) -> None:
        # (width,): the hook before a step sees the weight as the gradient was taken.
        before.copy_(weight.detach())

    def project(*_: object) -> None:
        with torch.no_grad():
            # w ← (w'·w / w·w) w: the length is learned, the direction stays.
            weight.copy_((weight * before).sum() / before.square().sum() * before)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(project)


def measure_gain(directory: Path) -> float:
    """Return the length of the last norm's gain in a checkpoint directory; no other weight is read.

    Raises:
        ConfigError: the checkpoint cannot be read, or has no such norm.
    """
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    # On the meta device, so that only one small tensor of the checkpoint is read.
    with readable(str(directory)), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read_config(directory))
        gain = find_final_gain(model)
        wanted = next(name for name, weight in model.named_parameters() if weight is gain)
        # Sharded checkpoints: the tensor is in one of several files.
        for file in sorted(directory.glob("*.safetensors")):
            with safe_open(file, "pt", device="cpu") as tensors:
                if wanted in tensors.keys():
                    return float(tensors.get_tensor(wanted).float().norm())
    raise ConfigError(f"{directory}: there is no {wanted} in its safetensors")


def _is_gain(name: str, weight: nn.Parameter) -> bool:
    parts = name.split(".")
    return weight.ndim == 1 and parts[-1] != "bias" and not any(part.isdigit() for part in parts)


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
