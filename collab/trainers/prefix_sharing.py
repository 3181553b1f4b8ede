"""Let a causal LM score packed rows: one pass over a micro-batch whose common beginnings are merged.

    share(model)                            # once, after TRL has given the model its head; refuses what would break it
    batch["packed"] = pack_batch(batch)     # in the collator
    model(**batch, labels=labels, fused_lm_head=True).log_probs     # (rows, tokens - 1), as TRL's own
    score_replies(model, batch, entropy=True)                       # the same for RL, each batch at its temperature

TRL only sees the log-probabilities, not the packing. Logits are computed at scored positions only. A pass that is not
packed is computed as before.

TRL's trainers request log-probabilities of labels (`fused_lm_head=True`). TRL computes the output layer only at labels
on a GPU, but everywhere on a CPU: for a prompt of 400 tokens and a reply of 30 ten times too much. `score_labels_only`
computes it only at labels on a CPU too.

Entropy is a metric without a gradient, unless a pass asks for one, which keeps a table of logits for the backward pass.

Rows are padded on the right and attention is causal, so no scored token sees padding. The padding mask is left out for
attention's fastest form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from trl.trainer.utils import FusedCausalLMOutput

from collab.data.tokenize import IGNORED
from collab.errors import ConfigError
from collab.models.checkpoint import get_tolerance, measure_difference
from collab.models.tokenizer import silence_transformers, take_first_line
from collab.models.weights import find_setting
from collab.trainers.batching import SHORTEST, find_scored, pack
from collab.trainers.packed_attention import IMPLEMENTATION, AttentionPlan, Passed, install, plan_attention

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
    model.forward = MethodType(_build_scored_forward(model.forward, is_plain(model), context), model)


def score_replies(model: Any, batch: Mapping[str, Any], *, entropy: bool = False) -> FusedCausalLMOutput:
    """Return log-probabilities of a batch's replies in one forward pass, (rows, tokens − 1); place t is token t + 1.

    Rows hold all tokens that were sampled, the end of the turn included (`collab.data.tokenize.get_reply_tokens`).
    Scores are those of the policy at the batch's temperature: at the weights that sampled the replies, they equal the
    recorded `behaviour_logprobs`.

    Args:
        model: any wrappers around a causal LM to which `score_labels_only` or `share` was applied.
        batch: input_ids, attention_mask and completion_mask (1 for a reply's tokens), (rows, tokens) each, padded on
            the right; `packed` for a model that shares prefixes; the inputs of `policy_gradient.show` for one that
            sees; `temperature`, (rows,), where replies were sampled at one. Without it, the model's temperature stays
            as it is.
        entropy: whether `entropy` has a gradient; without one it is a metric and costs no memory.

    Raises:
        ConfigError: the batch has several temperatures, a greedy one, or one that the model does not allow.
    """
    read = {name: batch[name] for name in ("input_ids", "attention_mask", "packed", *_SEEN) if name in batch}
    # (rows, tokens); −100 where nothing is scored
    labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, IGNORED)
    output: FusedCausalLMOutput = model(
        **read,
        labels=labels,
        fused_lm_head=True,
        use_cache=False,
        temperature=_get_temperature(batch["temperature"]) if "temperature" in batch else None,
        entropy_gradient=entropy,
    )
    return output


def _get_temperature(temperatures: Tensor) -> float:
    """Return the one temperature of a batch's replies, (rows,)."""
    found: list[float] = sorted(set(temperatures.tolist()))
    if len(found) != 1:
        given = ", ".join(f"{one:g}" for one in found) or "none"
        raise ConfigError(
            f"a batch of replies sampled at temperatures {given}: one is needed; batch them by temperature"
        )
    if not found[0] > 0:
        raise ConfigError(
            f"replies sampled at temperature {found[0]:g}: greedy replies have no log-probabilities to learn from; "
            "play at a temperature above 0"
        )
    return found[0]


def temper(model: Any, temperature: float) -> None:
    """Divide the logits of a causal LM by a temperature from now on, wherever they are computed.

    A reply sampled at a temperature came from the policy whose logits are divided by it, so that policy is trained. The
    weights are unchanged. A later call sets another temperature (`score_replies`: one per batch).

    Args:
        model: the innermost causal LM, whatever else is done with it later.

    Raises:
        ConfigError: its logits are no plain product of the hidden states.
    """
    base, is_tempered = model.base_model, hasattr(model.base_model, _TEMPERATURE)
    if temperature == 1 and not is_tempered:
        return
    # Dividing the hidden states divides the logits only if these are a plain product of them.
    head = model.get_output_embeddings()
    if not is_plain(model) or getattr(head, "bias", None) is not None or base is model:
        what = f"the logits of {type(model).__name__} are more than a product of what its base puts out"
        raise ConfigError(f"temperature {temperature:g}: {what}; train it with temperature 1")
    setattr(base, _TEMPERATURE, temperature)
    if not is_tempered:
        base.register_forward_hook(_divide)


_TEMPERATURE = "collab_temperature"
"""Attribute of a tempered base: what its hidden states are divided by."""


def _divide(module: Any, arguments: Any, output: Any) -> Any:
    # W(h / τ) = (W h) / τ: with a hook here, every way to compute logits is tempered, TRL's included.
    output.last_hidden_state = output.last_hidden_state / getattr(module, _TEMPERATURE)
    return output


def is_plain(model: Any) -> bool:
    """Return whether a causal LM's logits are a plain product."""
    config = model.config.get_text_config()
    return not any(getattr(config, name, None) for name in _SCALED)


def _build_scored_forward(theirs: Callable[..., Any], plain: bool, context: Context) -> Callable[..., Any]:
    def forward(
        self: Any,
        *args: Any,
        fused_lm_head: bool = False,
        labels: Tensor | None = None,
        temperature: float | None = None,
        entropy_gradient: bool = False,
        **kwargs: Any,
    ) -> Any:
        if temperature is not None:
            temper(self, temperature)
        # Generation and evaluation without labels stay the model's own.
        if not fused_lm_head or labels is None:
            return theirs(*args, fused_lm_head=fused_lm_head, labels=labels, **kwargs)
        # Rows are padded on the right: no token that counts sees padding, and without a mask attention is faster.
        kwargs.pop("attention_mask", None)
        with context():
            # On a GPU TRL's own pass already scores labels alone, and its entropy always has a gradient.
            if labels.device.type != "cpu" or kwargs.get("output_router_logits") or not plain:
                return theirs(*args, fused_lm_head=True, labels=labels, **kwargs)
            hidden = self.base_model(*args, **kwargs).last_hidden_state  # (rows, tokens, width)
            return _score_positions(hidden, labels, self.get_output_embeddings(), entropy_gradient)

    return forward


def _score_positions(
    hidden: Tensor, labels: Tensor, head: Callable[[Tensor], Tensor], entropy_gradient: bool
) -> FusedCausalLMOutput:
    """Return log-probabilities of labels, and TRL's metrics.

    Args:
        hidden: (rows, tokens, width).
        labels: (rows, tokens), -100 where nothing is scored.
        head: the output layer.
        entropy_gradient: whether entropy has a gradient.
    """
    mask = labels[:, 1:] != -100  # (rows, tokens − 1): the token at t is predicted from t − 1
    wanted = labels[:, 1:][mask]  # (S,)
    # Only scored positions meet the output layer, (S, width).
    chosen, entropy, mean, top = _score_tokens(hidden[:, :-1][mask], wanted, head, entropy_gradient)
    return FusedCausalLMOutput(
        # The mean −log p per scored token, as TRL's own loss.
        loss=-chosen.sum() / mask.sum().clamp(min=1),
        log_probs=_spread(chosen, mask),
        entropy=_spread(entropy, mask),
        mean_logits=_spread(mean, mask),
        is_top1=_spread(top, mask),
        label_mask=mask,
    )


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Return one value per scored position as (rows, tokens − 1), zero elsewhere; keeps the gradient."""
    # `masked_scatter` keeps the gradient; an assignment into zeros would be in place.
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


_LOGITS_AT_ONCE = 1 << 28
"""Largest table of logits that is kept for the backward pass, in elements; larger ones are made again in pieces."""
_OWN = "some of its layers compute attention of their own"
_SEEN = ("pixel_values", "image_grid_thw", "token_type_ids", "mm_token_type_ids")
"""Inputs of models that see."""
_STRETCHING = {"longrope", "dynamic"}
"""Kinds of positions that depend on the longest sequence beside them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """The rows of a micro-batch, packed; T tokens, of which M are scored, for S scored tokens of the rows."""

    ids: Tensor
    """(1, T)."""
    positions: Tensor
    """(1, T)."""
    plan: AttentionPlan
    predictors: Tensor
    """Places after which a scored token is expected, (M,)."""
    wanted: Tensor
    """The tokens expected, (M,)."""
    which: Tensor
    """For each scored token of the rows, its number among these, (S,)."""
    cells: Tensor
    """And its place in the table of log-probabilities, flattened, (S,)."""
    shape: tuple[int, int]
    """Shape of that table: rows, tokens of the longest row less one."""

    def to(self, device: torch.device, non_blocking: bool = False) -> Packed:
        """Return the same on that device."""
        names = ("ids", "positions", "predictors", "wanted", "which", "cells")
        moved = {name: getattr(self, name).to(device, non_blocking=non_blocking) for name in names}
        return replace(self, plan=self.plan.to(device), **moved)


def pack_batch(batch: Mapping[str, Any], shortest: int = SHORTEST) -> Packed:
    """Pack the rows of a batch as TRL's collator makes it.

    Args:
        batch: input_ids, attention_mask and completion_mask, (rows, tokens) each, padded on the right.
        shortest: see `collab.trainers.batching`.
    """
    # (rows, tokens) each
    ids, mask, completion = (batch[name].cpu().numpy() for name in ("input_ids", "attention_mask", "completion_mask"))
    lengths = mask.sum(1)
    # Padding on the left would shift positions of rows that share their beginning.
    if any(not one[:length].all() for one, length in zip(mask, lengths, strict=True)):
        raise ValueError("rows are not padded on the right; packed rows need a collator that pads there, as TRL's does")
    # Padding is cut off before packing: equal rows must be equal whatever the longest one is.
    packing = pack([row[:length] for row, length in zip(ids, lengths, strict=True)], shortest=shortest)
    found = find_scored(packing, completion, ids.shape[1])
    return Packed(
        ids=torch.from_numpy(packing.ids)[None],  # (1, T)
        positions=torch.from_numpy(packing.positions)[None],
        plan=plan_attention(packing.nodes),
        shape=(ids.shape[0], ids.shape[1] - 1),
        **{name: torch.from_numpy(getattr(found, name)) for name in ("predictors", "wanted", "which", "cells")},
    )


def share(model: Any, context: Context = contextlib.nullcontext) -> None:
    """Let a causal LM score packed rows.

    Args:
        model: the innermost causal LM, after `add_fused_lm_head`, its dropout at 0.
        context: what packed passes are computed within (autocast, say).

    Raises:
        ConfigError: it cannot, or would compute something else; says why, and nothing has changed.
    """
    # The configuration first: what it rules out need not be tried.
    switch_attention(model, context)
    model.forward = MethodType(_build_packed_forward(model.forward, context), model)


def switch_attention(model: Any, context: Context = contextlib.nullcontext) -> None:
    """Switch a causal LM to attention that computes packed rows, and no others; arguments and errors as `share`."""
    reason = find_obstacle(model) or _probe(model, context)
    if reason is not None:
        raise ConfigError(
            f"prefixes cannot be shared while training {type(model).__name__}: {reason}; train it with sharing: none"
        )


def compute_shared_hidden(body: Any, rows: Sequence[ArrayLike], device: torch.device) -> list[Tensor]:
    """Return the output of a body's last layer at each token of each row, (tokens, width) each, from one packed pass.

    Args:
        body: of a causal LM to which `switch_attention` was applied.
        rows: token ids.
    """
    packing = pack(rows)
    ids, positions = (torch.from_numpy(one)[None].to(device) for one in (packing.ids, packing.positions))
    passed = Passed(plan=plan_attention(packing.nodes).to(device))
    hidden = _compute_hidden(body, ids, positions, passed)[0]  # (T, width)
    return [hidden[torch.from_numpy(places).to(device)] for places in packing.places]


def _build_packed_forward(theirs: Callable[..., Any], context: Context) -> Callable[..., Any]:
    def forward(
        self: Any,
        *args: Any,
        packed: Packed | None = None,
        fused_lm_head: bool = False,
        temperature: float | None = None,
        entropy_gradient: bool = False,
        **kwargs: Any,
    ) -> Any:
        if temperature is not None:
            temper(self, temperature)
        # Passes that score nothing (generation) are not packed.
        if not fused_lm_head:
            return theirs(*args, **kwargs)
        if packed is None:
            raise ValueError("a batch without its packing; the trainer's own collator packs batches")
        # `context` gives back autocast where the model was wrapped before this forward pass replaced its own.
        with context():
            here = packed.to(self.device)
            hidden = _compute_hidden(self.base_model, here.ids, here.positions, Passed(plan=here.plan))
            return _compute_output(hidden[0], here, self.get_output_embeddings(), entropy_gradient)

    return forward


def _compute_hidden(body: Any, ids: Tensor, positions: Tensor, passed: Passed) -> Tensor:
    """Return what the last layer puts out, (1, T, width); tokens and positions are (1, T)."""
    # A mask of four dimensions is taken as it is by transformers, and not looked at by our attention.
    unused = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=ids.device)
    output = body(input_ids=ids, position_ids=positions, attention_mask=unused, use_cache=False, packing=passed)
    hidden: Tensor = output.last_hidden_state
    return hidden


def _compute_output(hidden: Tensor, packed: Packed, head: Any, entropy_gradient: bool) -> FusedCausalLMOutput:
    """Return log-probabilities of the rows' scored tokens and TRL's metrics, as if rows were not packed."""
    # From packed tokens to scored ones: inputs (M, width), wanted (M,), each distinct prediction once.
    inputs, wanted = hidden[packed.predictors], packed.wanted
    at_once = max(1, _LOGITS_AT_ONCE // head.weight.shape[0])
    # Few rows fit at once; else each piece's logits are made again in the backward pass, not kept.
    if len(wanted) <= at_once:
        parts = [_score_tokens(inputs, wanted, head, entropy_gradient)]
    else:
        pieces = zip(torch.split(inputs, at_once), torch.split(wanted, at_once), strict=True)
        parts = [
            checkpoint(_score_tokens, one, ids, head, entropy_gradient, use_reentrant=False) for one, ids in pieces
        ]
    # Rows that share a predicted token read the same number: which spreads (M,) to (S,), and gradients add up there.
    values = [torch.cat(part)[packed.which] for part in zip(*parts, strict=True)]
    rows, width = packed.shape
    # Back to TRL's table, (rows, tokens − 1), so that nothing behind this notices the packing.
    logps, entropy, mean, top, mask = (
        one.new_zeros(rows * width).index_copy(0, packed.cells, one).view(rows, width)
        for one in (*values, torch.ones_like(packed.cells, dtype=torch.bool))
    )
    # As `_score_positions`: the mean −log p per scored token of the rows, shared ones counted for each row.
    return FusedCausalLMOutput(
        loss=-logps.sum() / mask.sum().clamp(min=1),
        log_probs=logps,
        entropy=entropy,
        mean_logits=mean,
        is_top1=top,
        label_mask=mask,
    )


def _score_tokens(
    inputs: Tensor, wanted: Tensor, head: Callable[[Tensor], Tensor], entropy_gradient: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return log-probability of what is wanted, entropy, mean logit, and whether it is likeliest; (M,) each."""
    logits = head(inputs).float()  # (M, vocabulary)
    logps = logits.log_softmax(-1)  # (M, vocabulary)
    chosen = logps.gather(-1, wanted[:, None])[:, 0]  # (M,): log p(a_t | x, a_<t)
    # As metrics alone these have no gradient, and no table of logits is kept for them.
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logps.exp() * logps).sum(-1)  # H = −Σ p log p
    with torch.no_grad():
        top, mean = logits.argmax(-1) == wanted, logits.mean(-1)
    return chosen, entropy, mean, top


def find_obstacle(model: Any) -> str | None:
    """Return why prefixes cannot be shared, as far as the configuration tells; else None."""
    # Each of these would change what is computed without an error.
    config = model.config.get_text_config()
    kinds = set(find_setting(config, "layer_types") or ["full_attention"])
    if kinds != {"full_attention"}:
        return f"its layers are not all full attention ({', '.join(sorted(kinds))})"
    rope = find_setting(config, "rope_parameters") or {}
    if any(isinstance(part, dict) and part.get("rope_type") in _STRETCHING for part in (rope, *rope.values())):
        return "its positions depend on the longest sequence beside them"
    if not is_plain(model):
        return "its logits are more than a product"
    for name, module in model.named_modules():
        chance = module.p if isinstance(module, torch.nn.Dropout) else getattr(module, "attention_dropout", 0.0)
        if isinstance(chance, float) and chance > 0:
            return f"{name} has dropout {chance}: what rows share would lose the same for all of them"
    return None


@silence_transformers()
@torch.no_grad()
def find_structural_obstacle(model: Any) -> str | None:
    """Return why its attention cannot be replaced, as far as a model without weights tells.

    Args:
        model: on the meta device; it keeps the replaced attention.
    """
    ids = torch.zeros(1, 24, dtype=torch.long)
    every = torch.ones_like(ids)
    packed = pack_batch({"input_ids": ids, "attention_mask": every, "completion_mask": every}, shortest=1)
    passed = Passed(plan=packed.plan, dry=True)
    install()
    try:
        model.set_attn_implementation(IMPLEMENTATION)
        there = packed.to(torch.device("meta"))
        _compute_hidden(model.eval().base_model, there.ids, there.positions, passed)
    except NotImplementedError as error:
        return None if "meta" in str(error) else str(error)  # what depends on numbers shows when it is trained
    except ValueError as error:
        return f"its attention cannot be replaced ({take_first_line(error)[:120]})"
    except (TypeError, RuntimeError, KeyError, AttributeError, IndexError):
        return None
    return None if len(passed.layers) == _get_depth(model) else _OWN


@silence_transformers()
@torch.no_grad()
def _probe(model: Any, context: Context) -> str | None:
    """Switch its attention and try it on rows that begin alike; where it fails, say why and switch back."""
    own, training = model.config._attn_implementation, model.training
    # (3, 24): three rows, which share 8 and 16 tokens
    ids = torch.arange(72, device=model.device).view(3, 24) * 7 % len(model.get_input_embeddings().weight)
    ids[1:, :8], ids[2, 8:16] = ids[0, :8], ids[1, 8:16]
    model.eval()
    try:
        with context():
            # (3, 24, vocabulary), each row by itself
            expected = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
            install()
            model.set_attn_implementation(IMPLEMENTATION)
            # The same numbers by both ways prove that mask, scale and positions are right.
            reason = _explain_difference(model, ids, expected)
    except NotImplementedError as error:
        reason = str(error)
    except (TypeError, ValueError, RuntimeError, KeyError, AttributeError, IndexError) as error:
        reason = f"its attention cannot be replaced ({type(error).__name__}: {take_first_line(error)[:120]})"
    model.train(training)
    # Left as it was found: the caller may train it without sharing.
    if reason is not None:
        with contextlib.suppress(ValueError):
            model.set_attn_implementation(own)
    return reason


def _get_depth(model: Any) -> int | None:
    depth: int | None = find_setting(model.config.get_text_config(), "num_hidden_layers")
    return depth


def _explain_difference(model: Any, ids: Tensor, expected: Tensor) -> str | None:
    every = torch.ones_like(ids)
    packed = pack_batch({"input_ids": ids, "attention_mask": every, "completion_mask": every}, shortest=1)
    packed = packed.to(model.device)
    passed = Passed(plan=packed.plan)
    found = (
        model.get_output_embeddings()(_compute_hidden(model.base_model, packed.ids, packed.positions, passed)[0])
        .float()
        .log_softmax(-1)
    )  # (T, vocabulary)
    # A layer that was not asked computes attention of its own; small inputs may hide what that changes.
    if len(passed.layers) != _get_depth(model):
        return _OWN
    own_way = expected[:, :-1].flatten(0, 1)[packed.cells]  # (S, vocabulary)
    apart = measure_difference(found[packed.predictors][packed.which], own_way)
    kind = model.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else model.dtype
    return None if apart <= get_tolerance(dtype, own_way) else f"its log-probabilities would differ by {apart:.2g}"
