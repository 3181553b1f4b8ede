"""Attention to keys that stand in several places, computed place by place and joined exactly.

Softmax over a union of key sets is a mean of the softmaxes over each set, weighted by the exponential of their
log-sum-exp. So rows that share a prefix attend to one copy of its keys, all rows in one product, then to their own
keys, and the two results are joined: nothing is copied per row.

A forward pass packs its tokens into one row, (1, tokens), whichever sequences they belong to. `Pass` says where each
token's keys are; `Pass.attend` is what a transformers model calls in place of its own attention.

Shapes: T tokens, H query heads, G key-value heads (H is a multiple of G), D head size, K keys, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

IMPLEMENTATION = "collab_shared_prefix"
"""Name under which transformers knows this attention."""
_BENDING = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments by which a model asks for other than plain causal attention."""
_SCORES_AT_ONCE = 1 << 24
"""Largest table of scores that is computed in one piece, in elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of new tokens of one sequence inside a pass."""

    first: int
    """Its first token's place in the pass."""
    length: int
    kv: Tensor
    """Where its keys and values are kept: (L, 2, G, length, D)."""

    @property
    def tokens(self) -> slice:
        """Its tokens' places in the pass."""
        return slice(self.first, self.first + self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Keys that several tokens of a pass attend to, all of them."""

    kv: Tensor
    """(L, 2, G, K, D)."""
    tokens: Tensor
    """Places of the tokens that attend, (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A run of tokens of a pass: one new token each for R running sequences, of similar lengths at best."""

    first: int
    """The first one's place in the pass."""
    kv: Tensor
    """The sequences' own keys and values, (L, 2, R, G, room, D)."""
    lengths: Tensor
    """How many keys each has before this token, (R,)."""
    longest: int
    """The largest of `lengths`, plus one."""
    every: Tensor = field(init=False)
    """Numbers of the rows, (R,)."""
    absent: Tensor = field(init=False)
    """Which of `longest` places hold no key of the row, (R, 1, 1, longest)."""

    def __post_init__(self) -> None:
        device = self.lengths.device
        absent = torch.arange(self.longest, device=device) > self.lengths[:, None]
        # Made once for all layers; a frozen dataclass leaves no other way to set what it derives.
        object.__setattr__(self, "every", torch.arange(self.kv.shape[2], device=device))
        object.__setattr__(self, "absent", absent[:, None, None])

    @property
    def tokens(self) -> slice:
        """Its tokens' places in the pass."""
        return slice(self.first, self.first + len(self.lengths))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Which keys the tokens of one forward pass attend to.

    Every token attends to all keys of the `shared` parts it is named in, and to its own sequence's keys up to itself:
    those of its segment, or of its row.
    """

    rows: Sequence[Rows]
    segments: Sequence[Segment]
    shared: Sequence[Shared]
    places: Tensor
    """For each token, which of the partial results are its own, (T, most parts); see `places_of`."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Keep the new keys and values, and attend.

        Args:
            layer: which one.
            query: (T, H, D).
            key: (G, T, D).
            value: (G, T, D).
            scale: what scores are multiplied with.

        Returns:
            (T, H, D).
        """
        for segment in self.segments:
            segment.kv[layer, 0] = key[:, segment.tokens]
            segment.kv[layer, 1] = value[:, segment.tokens]
        parts = [attend(query[part.tokens], part.kv[layer, 0], part.kv[layer, 1], scale) for part in self.shared]
        for segment in self.segments:
            own = segment.tokens
            parts.append(attend_causal(query[own], key[:, own], value[:, own], scale))
        for rows in self.rows:
            own = rows.tokens
            parts.append(_attend_rows(rows, layer, query[own], key[:, own], value[:, own], scale))
        return join(parts, self.places)


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend to all keys.

    Args:
        query: (n, H, D).
        key: (G, K, D).
        value: (G, K, D).
        scale: what scores are multiplied with.

    Returns:
        Output (n, H, D) and log-sum-exp of the scores (n, H), float32.
    """
    n, heads, size = query.shape
    groups = key.shape[0]
    folded = query.view(n, groups, heads // groups, size).transpose(0, 1).reshape(groups, -1, size)
    if query.device.type == "cpu":
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            folded[None], key[None], value[None], scale=scale
        )
        output, lse = output[0], lse[0]
    else:
        output, lse = _attend_in_pieces(folded, key, value, scale)
    output = output.view(groups, n, heads // groups, size).transpose(0, 1).reshape(n, heads, size)
    return output.float(), lse.view(groups, n, -1).transpose(0, 1).reshape(n, heads)


def attend_causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend to the keys up to one's own; as `attend`, with n = K."""
    if query.device.type == "cpu":
        each = query.shape[1] // key.shape[0]
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query.transpose(0, 1)[None],
            key.repeat_interleave(each, 0)[None],
            value.repeat_interleave(each, 0)[None],
            is_causal=True,
            scale=scale,
        )
        return output[0].transpose(0, 1).float(), lse[0].transpose(0, 1)
    return _attend_causal_in_pieces(query, key, value, scale)


def _attend_in_pieces(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Plain matrix products, (G, n, D) against (G, K, D), as many queries at a time as the table of scores allows."""
    outputs, lses = [], []
    for piece in torch.split(query, max(1, _SCORES_AT_ONCE // (key.shape[0] * key.shape[1])), 1):
        scores = (piece @ key.transpose(-1, -2)).float() * scale
        lse = scores.logsumexp(-1)
        outputs.append(((scores - lse[..., None]).exp().to(value.dtype) @ value).float())
        lses.append(lse)
    return torch.cat(outputs, 1), torch.cat(lses, 1)


def _attend_causal_in_pieces(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """As `attend_causal`, by plain matrix products."""
    n, heads, size = query.shape
    groups = key.shape[0]
    folded = query.view(n, groups, heads // groups, size).permute(1, 2, 0, 3)
    outputs, lses = [], []
    step = max(1, _SCORES_AT_ONCE // (heads * n))
    for first in range(0, n, step):
        last = min(first + step, n)
        scores = folded[:, :, first:last].float() @ key[:, None, :last].float().transpose(-1, -2) * scale
        later = torch.arange(last, device=key.device) > torch.arange(first, last, device=key.device)[:, None]
        scores = scores.masked_fill(later, -torch.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse[..., None]).exp().to(value.dtype)
        outputs.append((weights @ value[:, None, :last]).float())
        lses.append(lse)
    output = torch.cat(outputs, 2).permute(2, 0, 1, 3).reshape(n, heads, size)
    return output, torch.cat(lses, 2).permute(2, 0, 1).reshape(n, heads)


def _attend_rows(
    rows: Rows, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """One new token per row against the row's own keys, its new one included."""
    count, groups = rows.kv.shape[2], rows.kv.shape[3]
    heads, size = query.shape[1:]
    kept = rows.kv[layer]
    kept[0, rows.every, :, rows.lengths] = key.transpose(0, 1)
    kept[1, rows.every, :, rows.lengths] = value.transpose(0, 1)
    keys, values = kept[0, :, :, : rows.longest].flatten(0, 1), kept[1, :, :, : rows.longest].flatten(0, 1)
    folded = query.reshape(count * groups, heads // groups, size)
    scores = torch.bmm(folded, keys.transpose(1, 2)).float() * scale
    scores = scores.view(count, groups, -1, rows.longest).masked_fill(rows.absent, -torch.inf).flatten(0, 1)
    lse = scores.logsumexp(-1)
    output = torch.bmm((scores - lse[..., None]).exp().to(values.dtype), values)
    return output.view(count, heads, size).float(), lse.view(count, heads)


def join(parts: Sequence[tuple[Tensor, Tensor]], places: Tensor) -> Tensor:
    """Join partial results.

    Args:
        parts: outputs (n, H, D) with log-sum-exps (n, H), of different n.
        places: for each token, the places of its results among all parts' in a row, (T, most parts); one past the
            last stands for none.

    Returns:
        (T, H, D).
    """
    outputs, lses = torch.cat([output for output, _ in parts]), torch.cat([lse for _, lse in parts])
    outputs = torch.cat([outputs, outputs.new_zeros(1, *outputs.shape[1:])])
    lses = torch.cat([lses, lses.new_full((1, lses.shape[1]), -torch.inf)])
    weights = lses[places].softmax(1)
    return (outputs[places] * weights[..., None]).sum(1)


def places_of(tokens: Sequence[Tensor], count: int) -> Tensor:
    """Where each token finds its partial results, see `join`.

    Args:
        tokens: for each part, in order, the tokens it holds results of, (n,).
        count: T.
    """
    owner = torch.cat(list(tokens))
    order = owner.argsort(stable=True)
    held = torch.bincount(owner, minlength=count)
    nth = torch.arange(len(owner), device=owner.device) - (held.cumsum(0) - held)[owner[order]]
    places = torch.full((count, int(held.max())), len(owner), device=owner.device)
    places[owner[order], nth] = order
    return places


def install() -> None:
    """Make the attention known to transformers; a model then uses it by `set_attn_implementation(IMPLEMENTATION)`."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, _forward)


def _forward(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    shared_prefix: Pass,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: (1, H, T, D) and twice (1, G, T, D) in, (1, T, H, D) out.

    Raises:
        NotImplementedError: the model asks for other than plain causal attention.
    """
    asked = [name for name in _BENDING if others.get(name) is not None]
    if asked:
        raise NotImplementedError(f"its attention has {', '.join(asked)}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = shared_prefix.attend(module.layer_idx, query[0].transpose(0, 1), key[0], value[0], scale)
    return output[None].to(query.dtype), None
