"""A learning rate of their own for the gains of norms.

A policy's gains decide how sure it is of what it says anyway: a few thousand numbers that scale what the layers read,
the last ones all logits alike. They are about 1, where the entries of a matrix are a few hundredths, so a rate that is
right for matrices leaves them where they are; and what a hot policy learns of reward is first of all to be surer. Where
they cannot, matrices turn instead, and what they turn away from is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer


def gains_of(model: nn.Module) -> list[nn.Parameter]:
    """Trained weights that are vectors, biases left out, in the model's order."""
    named = model.named_parameters()
    return [weight for name, weight in named if weight.requires_grad and weight.ndim == 1 and not name.endswith("bias")]


def set_apart(weights: Sequence[nn.Parameter], optimizer: Optimizer, rate: float) -> None:
    """Move weights of an optimizer that has not stepped yet into a last group, of another rate and without decay."""
    moved = {id(weight) for weight in weights}
    for group in optimizer.param_groups:
        group["params"] = [weight for weight in group["params"] if id(weight) not in moved]
    optimizer.add_param_group({"params": list(weights), "lr": rate, "weight_decay": 0.0})
