"""What a model made from nothing gains by reading: a loss on prompts beside the loss on replies.

    loss = mean −log p(reply tokens) + weight · mean −log p(prompt tokens)

A checkpoint that has read much knows its words; one made from nothing meets them here for the first time, and a reply
of 30 tokens tells little about a prompt of 300. Predicting the prompts, too, costs the output layer on all positions (a
sixth of the time at the pocket's size) and nothing else.

Measured with 3.5 million parameters after a copy warm-up, one seed, 256 rows not trained on: after a million tokens the
loss on replies is 0.30 nats per token with weight 0.5 and 0.36 without.

Deviation: CollabUIAgents scores replies only, which is what `prompt_weight: 0` does. Both means are of one forward
pass; where a step is divided into several, each counts as much as the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from trl.trainer.utils import FusedCausalLMOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A forward pass over rows whose prompts are scored, too."""

    loss: Tensor
    """What is minimised; a scalar."""
    prompt_loss: float
    """Mean −log p per prompt token, in nats."""
    accuracy: float
    """Share of reply tokens that were the likeliest."""
    entropy: float
    """Mean over reply tokens, in nats."""


def read(outputs: FusedCausalLMOutput, replies: Tensor, weight: float) -> Read:
    """Weigh prompts against replies.

    Args:
        outputs: of a pass with labels on prompts and replies; (rows, tokens − 1) each.
        replies: (rows, tokens), true where a reply stands.
        weight: of the prompts.
    """
    said = replies[:, 1:]
    asked = outputs.label_mask & ~said
    reply_loss, prompt_loss = (_mean(-outputs.log_probs, where) for where in (said, asked))
    with torch.no_grad():
        accuracy, entropy = (_mean(values.float(), said).item() for values in (outputs.is_top1, outputs.entropy))
    return Read(
        loss=reply_loss + weight * prompt_loss,
        prompt_loss=prompt_loss.item(),
        accuracy=accuracy,
        entropy=entropy,
    )


def _mean(values: Tensor, where: Tensor) -> Tensor:
    """Mean of the values there; 0 where there is none."""
    return (values * where).sum() / where.sum().clamp(min=1)
