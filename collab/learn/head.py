"""The output layer on scored positions only, and no padding mask.

TRL's trainers ask a model for log-probabilities of labels (`fused_lm_head=True`). On a GPU TRL computes the output
layer only where there is a label; on a processor it computes it everywhere, which for a prompt of 400 tokens and a
reply of 30 is ten times too much. `score_labels_only` computes it where there is a label on a processor, too.

Rows are padded on the right and attention looks back only, so no token that counts ever sees padding: the padding mask
is left out, and attention can use its fastest form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import FusedCausalLMOutput

from collab.errors import ConfigError

Context = Callable[[], contextlib.AbstractContextManager[Any]]
"""Makes what a pass is computed within."""
_SCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Settings of models whose logits are more than a product; TRL knows what to do with them."""


def score_labels_only(model: Any, context: Context = contextlib.nullcontext) -> None:
    """Replace the forward pass that TRL has given a causal LM, for training on rows padded on the right.

    Args:
        model: the innermost causal LM, after `add_fused_lm_head`.
        context: what its passes are computed within. A model that mixed precision was prepared for before (TRL's
            reference) would lose it here, and one that is sharded never had it; autocast gives it back.
    """
    model.forward = MethodType(_scored_forward(model.forward, is_plain(model), context), model)


def temper(model: Any, temperature: float) -> None:
    """Divide the logits of a causal LM by a temperature, wherever they are computed.

    A reply that was sampled at a temperature came from a policy whose logits are divided by it; that policy is trained
    where its probabilities are taken in the same way, and no other. The weights stay what they are.

    Args:
        model: the innermost causal LM, whatever else is done with it later.

    Raises:
        ConfigError: its logits are more than a product, so dividing what they are computed from divides not them.
    """
    if temperature == 1:
        return
    head = model.get_output_embeddings()
    if not is_plain(model) or getattr(head, "bias", None) is not None or model.base_model is model:
        what = f"the logits of {type(model).__name__} are more than a product of what its base puts out"
        raise ConfigError(f"temperature {temperature:g}: {what}; train it with temperature 1")

    def divide(module: Any, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state / temperature
        return output

    model.base_model.register_forward_hook(divide)


def is_plain(model: Any) -> bool:
    """Whether the logits of a causal LM are a product and nothing more."""
    config = model.config.get_text_config()
    return not any(getattr(config, name, None) for name in _SCALED)


def _scored_forward(theirs: Callable[..., Any], plain: bool, context: Context) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, labels: Tensor | None = None, **kwargs: Any) -> Any:
        if not fused_lm_head or labels is None:
            return theirs(*args, fused_lm_head=fused_lm_head, labels=labels, **kwargs)
        kwargs.pop("attention_mask", None)
        with context():
            if labels.device.type != "cpu" or kwargs.get("output_router_logits") or not plain:
                return theirs(*args, fused_lm_head=True, labels=labels, **kwargs)
            hidden = self.base_model(*args, **kwargs).last_hidden_state
            return _score_positions(hidden, labels, self.get_output_embeddings())

    return forward


def _score_positions(hidden: Tensor, labels: Tensor, head: Callable[[Tensor], Tensor]) -> FusedCausalLMOutput:
    """Log-probabilities of labels and what TRL's metrics want.

    Args:
        hidden: (rows, tokens, width).
        labels: (rows, tokens), -100 where nothing is scored.
        head: the output layer.
    """
    mask = labels[:, 1:] != -100
    wanted = labels[:, 1:][mask]
    logits = head(hidden[:, :-1][mask]).float()
    logps = logits.log_softmax(-1)
    chosen = logps.gather(-1, wanted[:, None])[:, 0]
    with torch.no_grad():
        entropy = -(logps.exp() * logps).sum(-1)
        top = logits.argmax(-1) == wanted
        mean = logits.mean(-1)
    return FusedCausalLMOutput(
        loss=-chosen.sum() / mask.sum().clamp(min=1),
        log_probs=_spread(chosen, mask),
        entropy=_spread(entropy, mask),
        mean_logits=_spread(mean, mask),
        is_top1=_spread(top, mask),
        label_mask=mask,
    )


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """One value per scored position as (rows, tokens − 1), zero elsewhere; keeps the gradient."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
