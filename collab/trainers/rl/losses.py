"""Losses of policies and values over the turns of a batch: pure functions of tensors.

    logps, mask       log π of each reply token, and which tokens there are, (N, C): N turns, C tokens of the longest
    advantages, …     one number per turn, (N,); no gradient flows through them, whatever they were made of
    total             turns (tokens, where the mean is over tokens) of the whole optimizer step, if the batch is one of
                      its passes: then the losses of the passes add up to that of the step. None: those of the batch

Each function returns one number to minimise. Log-probabilities are float32 or better, divided by the temperature at
which the reply was sampled, and include the end of the turn where the reply has one.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

# ----------------------------------------------------------------------------------------------------- policies


def nll(
    logps: Tensor, mask: Tensor, weights: Tensor | None = None, *, per_token: bool = False, total: float | None = None
) -> Tensor:
    """Return −mean over turns of w Σ_tokens log π: imitation of what passed the filters (DigiRL, eq. 2.1 and 2.2).

    Args:
        logps: (N, C).
        mask: (N, C), bool.
        weights: w, (N,), e.g. `awr_weights`; None: 1 each. With all at 0, the gradient is exactly 0.
        per_token: take the mean over tokens, so that long replies count more; the public code sums over tokens.
        total: see the module.
    """
    weighted = logps if weights is None else logps * weights.detach()[:, None]
    if per_token:
        return -_mean(weighted, mask, total)
    return -_mean(_sum_tokens(weighted, mask), None, total)


def policy_gradient(
    logps: Tensor,
    mask: Tensor,
    advantages: Tensor,
    ratios: Tensor | None = None,
    *,
    invalid: Tensor | None = None,
    invalid_weight: float = 0.0,
    total: float | None = None,
) -> Tensor:
    """Return −mean over turns of ρ̄ (A − λ_inv · invalid) Σ_tokens log π (DistRL, eq. 1).

    Eq. 1 adds λ E[P_invalid] to the loss instead, which has no gradient in the policy. As a part of the advantage it
    has one: where λ_inv exceeds A, an invalid reply becomes less likely although its episode went well.

    Args:
        logps: (N, C).
        mask: (N, C), bool.
        advantages: A, (N,).
        ratios: ρ̄, (N,), of `importance_ratios`; None: 1 each, on-policy.
        invalid: 1 for a reply that is no valid action, else 0, (N,).
        invalid_weight: λ_inv.
        total: see the module.
    """
    factors = advantages.detach()
    if invalid is not None:
        factors = factors - invalid_weight * invalid.detach().to(factors.dtype)
    if ratios is not None:
        factors = ratios.detach() * factors
    return -_mean(factors * _sum_tokens(logps, mask), None, total)


def ppo_clip(
    logps: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float = 0.2,
    level: Literal["token", "reply"] = "token",
    total: float | None = None,
) -> Tensor:
    """Return −mean of min(ρ A, clip(ρ, 1 ± ε) A), ρ = π / π_old (Schulman et al. 2017, eq. 7).

    Android Coach (eq. 4) prints it without the minus and with the ratio of whole replies. It trains with verl, where
    ratio and clip are of tokens and the mean is over all reply tokens: the level "token". Where ρ has left 1 ± ε on the
    side that A pushes to, the gradient is exactly 0.

    Args:
        logps: (N, C).
        old: log π_old of the same tokens, (N, C), before the first update on them.
        advantages: A, (N,); each token has its reply's.
        mask: (N, C), bool.
        clip: ε.
        level: whether ρ is of a token and the mean over tokens, or both of whole replies.
        total: see the module.
    """
    factors = advantages.detach()
    if level == "token":
        logs = torch.where(mask, logps - old.detach(), 0.0)  # (N, C)
        factors = factors[:, None]
    else:
        logs = _sum_tokens(logps - old.detach(), mask)  # (N,)
    ratios = logs.exp()
    terms = torch.minimum(ratios * factors, ratios.clamp(1 - clip, 1 + clip) * factors)
    return -_mean(terms, mask if level == "token" else None, total)


def entropy_bonus(entropy: Tensor, mask: Tensor, weight: float, *, total: float | None = None) -> Tensor:
    """Return −β times the mean of H over reply tokens: added to a policy's loss, it keeps the policy from getting sure.

    H is the entropy over the vocabulary at each token (DistRL, eq. 1). Its eq. 4 has ∇ log π in this place, with a sign
    that would lower the entropy.

    Args:
        entropy: H, (N, C), with its gradient.
        mask: (N, C), bool.
        weight: β.
        total: see the module.

    Raises:
        ValueError: H carries no gradient although one is computed, so that the bonus would do nothing.
    """
    if weight and torch.is_grad_enabled() and not entropy.requires_grad:
        raise ValueError("the entropy was computed without a gradient, so its bonus would do nothing")
    return -weight * _mean(entropy, mask, total)


# ------------------------------------------------------------------------------------------------------- values


def bce_soft(logits: Tensor, targets: Tensor, *, total: float | None = None) -> Tensor:
    """Return the mean of −y log V − (1 − y) log(1 − V): the cross-entropy of a value that is a probability of success.

    DigiRL (eq. 2.5 and 2.6) has y = r_T, at every step; it prints V(s, a), but the value is of a state. DistRL (section
    5.1) has y = 1[G > 0]; with corrected values, y is `retrace_values` clipped to [0, 1].

    Args:
        logits: of failure and success, (n, 2); V is the softmax's second.
        targets: y, in [0, 1], (n,).
        total: see the module.

    Raises:
        ValueError: a target is outside [0, 1], where the loss has no lower bound.
    """
    wanted = targets.detach().to(logits.dtype)
    if not bool(((wanted >= 0) & (wanted <= 1)).all()):
        raise ValueError("targets of a cross-entropy are probabilities; one is outside [0, 1] or not a number")
    # Two logits and a softmax are one logit and a sigmoid, whose cross-entropy takes soft targets.
    terms = functional.binary_cross_entropy_with_logits(logits[:, 1] - logits[:, 0], wanted, reduction="none")
    return _mean(terms, None, total)


def value_mse(values: Tensor, targets: Tensor, *, total: float | None = None) -> Tensor:
    """Return the mean of (V − y)², (n,) each: regression, which DigiRL compares its cross-entropy with (figure 6)."""
    return _mean((values - targets.detach().to(values.dtype)) ** 2, None, total)


def mse_clipped(
    values: Tensor,
    old: Tensor,
    targets: Tensor,
    *,
    clip: float,
    mask: Tensor | None = None,
    total: float | None = None,
) -> Tensor:
    """Return ½ mean of max((Q − R)², (clip(Q, Q_old ± ε) − R)²) (Android Coach, eq. 2).

    Where Q has moved more than ε and is nearer to R than Q_old ± ε is, the clipped term is the larger one and the
    gradient is exactly 0. So a round moves Q by about ε at most.

    Args:
        values: Q of each action, (n,), or of each reply token, (N, C).
        old: Q before the first update of the round, of the same shape.
        targets: R, of the same shape or one per row.
        clip: ε.
        mask: which tokens there are, (N, C), bool; None for actions.
        total: see the module.
    """
    wanted = targets.detach().to(values.dtype)
    if wanted.ndim < values.ndim:
        wanted = wanted[:, None]  # one target per row: every token of a reply has its return
    before = old.detach()
    moved = values.clamp(before - clip, before + clip)
    return 0.5 * _mean(torch.maximum((values - wanted) ** 2, (moved - wanted) ** 2), mask, total)


# ------------------------------------------------------------------------------------------------------- shared


def _sum_tokens(values: Tensor, mask: Tensor) -> Tensor:
    """Return the sum over each reply's tokens, (N, C) to (N,)."""
    return torch.where(mask, values, 0.0).sum(1)


def _mean(terms: Tensor, mask: Tensor | None, total: float | None) -> Tensor:
    """Return the sum of what the mask leaves over `total`, or over their number; 0 where nothing is left."""
    held = terms if mask is None else torch.where(mask, terms, 0.0)
    if total is None:
        total = terms.numel() if mask is None else int(mask.sum())
    return held.sum() / max(total, 1)
