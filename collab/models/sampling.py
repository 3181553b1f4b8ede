"""Draw one token per sequence from logits: temperature and top-p, each by its own settings and its own random number.

A row's draw is a function of its logits, its settings and its number alone (inverse of the cumulative distribution),
so its companions in the batch cannot change it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint
from collab.models.generation import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One token per row; every tensor has shape (rows,)."""

    tokens: Tensor
    logprobs: Tensor
    """Plain policy: temperature 1, nothing left out; in nats."""
    behaviour: Tensor
    """Under the distribution drawn from; 0 where greedy."""


def sample(drawing: list[Generation], logits: Tensor, checkpoint: Checkpoint) -> Tensor:
    """Draw one token for each generation and note it; whatever takes memory is done before anything is noted.

    Args:
        drawing: n of them.
        logits: (n, vocabulary).
        checkpoint: for messages.

    Returns:
        The tokens, (n,).
    """
    broken = (~logits.isfinite().all(-1)).tolist()
    samplings = [generation.job.sampling for generation in drawing]
    device = logits.device
    drawn = draw(
        logits.nan_to_num(0.0),
        temperature=torch.tensor([sampling.temperature for sampling in samplings], device=device),
        top_p=torch.tensor([sampling.top_p for sampling in samplings], dtype=torch.float64, device=device),
        uniforms=torch.tensor([generation.uniform for generation in drawing], dtype=torch.float64, device=device),
    )
    values = zip(drawn.tokens.tolist(), drawn.logprobs.tolist(), drawn.behaviour.tolist(), strict=True)
    for generation, bad, (token, logprob, behaviour) in zip(drawing, broken, values, strict=True):
        if bad:
            generation.result = ModelFailure(
                f"{checkpoint.chat.path}: the model computed NaN or infinite logits after {len(generation.tokens)} "
                f"tokens ({checkpoint.dtype} on {checkpoint.device}); try dtype: float32, or check the weights"
            )
        else:
            generation.take(token, logprob, behaviour, width=len(drawing))
    return drawn.tokens


def draw(logits: Tensor, temperature: Tensor, top_p: Tensor, uniforms: Tensor) -> Drawn:
    """Draw a token for each row.

    Args:
        logits: (rows, vocabulary), finite.
        temperature: (rows,); 0 takes the most probable token.
        top_p: (rows,), in (0, 1]; only the smallest set of most probable tokens that reaches it is drawn from.
        uniforms: (rows,), float64, in [0, 1).
    """
    plain = logits.float().log_softmax(-1)
    greedy = temperature == 0
    tokens = plain.argmax(-1)
    behaviour = torch.zeros_like(tokens, dtype=torch.float32)
    for rows, pick in ((~greedy & (top_p >= 1), _any), (~greedy & (top_p < 1), _nucleus)):
        if rows.any():
            below = plain[rows] - plain[rows].amax(-1, keepdim=True)  # at most 0: no temperature makes it overflow
            bent = (below / temperature[rows, None]).softmax(-1, dtype=torch.float64)
            tokens[rows], chosen = pick(bent, top_p[rows], uniforms[rows])
            behaviour[rows] = chosen.log().float()
    return Drawn(tokens=tokens, logprobs=plain.gather(-1, tokens[:, None])[:, 0], behaviour=behaviour)


def _any(probabilities: Tensor, top_p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from the whole vocabulary."""
    tokens = _invert(probabilities, uniforms)
    return tokens, probabilities.gather(-1, tokens[:, None])[:, 0]


def _nucleus(probabilities: Tensor, top_p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from the smallest set of most probable tokens whose mass reaches top-p."""
    sorted_, order = probabilities.sort(dim=-1, descending=True, stable=True)
    kept = sorted_.masked_fill(sorted_.cumsum(-1) - sorted_ >= top_p[:, None], 0.0)
    kept[:, 0] = sorted_[:, 0]
    position = _invert(kept, uniforms)
    chosen = kept.gather(-1, position[:, None])[:, 0] / kept.sum(-1)
    return order.gather(-1, position[:, None])[:, 0], chosen


def _invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The first position whose cumulative weight exceeds uniform · total."""
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    position = torch.searchsorted(cumulative, uniforms[:, None] * total, right=True)
    last = torch.searchsorted(cumulative, total)  # rounding must not pass the last weight
    return torch.minimum(position, last)[:, 0]
