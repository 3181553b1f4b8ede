"""Attention to keys in several places, computed per place and joined exactly.

Softmax over a union of key sets is the mean of the softmaxes over each set, weighted by the exponential of their
log-sum-exp. Rows that share a prefix attend to one copy of its keys, all rows in one product, and then to their own
keys. Joining the two results copies nothing per row.

A forward pass packs the tokens of all sequences into one row, (1, tokens). `PackedPass` says where each token's keys
are; a transformers model calls `PackedPass.attend` in place of its own attention.

Shapes: T tokens, H query heads, G key-value heads (H is a multiple of G), D head size, K keys, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

IMPLEMENTATION = "collab_shared_prefix"
"""Name of this attention in transformers."""
_BENDING = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments by which a model requests other than plain causal attention."""
_SCORES_AT_ONCE = 1 << 24
"""Largest table of scores computed at once, in elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSegment:
    """New tokens of one sequence in a pass: one or several consecutive pieces of its prompt."""

    first: int
    """Place of its first token in the pass."""
    kept: Sequence[Tensor]
    """Storage for its pieces' keys and values, (L, 2, G, tokens, D) each, in order."""
    above: Sequence[Tensor] = ()
    """Keys and values of earlier short pieces that it attends to, same shape; one product serves them all. Long pieces
    are in `SharedKeys`."""

    @property
    def tokens(self) -> slice:
        """Its tokens' places in the pass."""
        return slice(self.first, self.first + sum(kv.shape[3] for kv in self.kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKeys:
    """Keys that several tokens of a pass attend to in full."""

    kv: Tensor
    """(L, 2, G, K, D)."""
    tokens: Tensor
    """Places of the attending tokens, (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One new token each for R running sequences, preferably of similar lengths."""

    first: int
    """Place of the first one in the pass."""
    kv: Tensor
    """The sequences' own keys and values, (L, 2, R, G, room, D)."""
    lengths: Tensor
    """Number of keys before this token, (R,)."""
    longest: int
    """The largest of `lengths`, plus one."""
    cells: Tensor = field(init=False)
    """Flat index where each row and group stores this token's keys, (R * G,)."""
    absent: Tensor = field(init=False)
    """Added to scores, (R, 1, 1, longest): minus infinity at places without a key of the row, else 0."""

    def __post_init__(self) -> None:
        device = self.lengths.device
        beyond = torch.arange(self.longest, device=device) > self.lengths[:, None]  # (R, longest)
        # Minus infinity gives a place weight 0, whatever stale key lies there.
        absent = torch.zeros(beyond.shape, device=device).masked_fill(beyond, -torch.inf)
        groups, room = self.kv.shape[3:5]
        lines = torch.arange(len(self.lengths) * groups, device=device).view(-1, groups)  # (R, G)
        # Computed once for all layers; a frozen dataclass needs `object.__setattr__`.
        object.__setattr__(self, "cells", (lines * room + self.lengths[:, None]).flatten())
        object.__setattr__(self, "absent", absent[:, None, None])

    @property
    def tokens(self) -> slice:
        """Its tokens' places in the pass."""
        return slice(self.first, self.first + len(self.lengths))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPass:
    """Keys that the tokens of one forward pass attend to.

    Every token attends to all keys of the `shared` parts that list it, and to its own sequence's keys up to itself:
    those above and in its segment, or those of its row.
    """

    rows: Sequence[Rows]
    segments: Sequence[PassSegment]
    shared: Sequence[SharedKeys]
    asking: Tensor = field(init=False)
    """Places of tokens that attend to shared parts, part by part, (N,)."""
    places: Tensor = field(init=False)
    """Indices of each token's partial results, (T, most parts); see `locate_partials`."""

    def __post_init__(self) -> None:
        # A segment with earlier pieces has two partial results: one over those, one over its own tokens.
        runs = [run for segment in self.segments for run in [segment.tokens] * (2 if segment.above else 1)]
        runs += [part.tokens for part in self.rows]
        count = max(run.stop for run in runs)
        device = (self.segments[0].kept[0] if self.segments else self.rows[0].kv).device
        every = torch.arange(count, device=device)  # (T,)
        asking = [part.tokens for part in self.shared]
        object.__setattr__(self, "asking", torch.cat([every[:0], *asking]))
        # Same order as in `attend`: shared parts, then segments, then rows.
        object.__setattr__(self, "places", locate_partials([*asking, *(every[run] for run in runs)], count))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Store the new keys and values, and attend.

        Args:
            layer: its index.
            query: (T, H, D).
            key: (G, T, D).
            value: (G, T, D).
            scale: what scores are multiplied with.

        Returns:
            (T, H, D).
        """
        # Write all new keys first: a segment may attend to another one of this pass.
        for segment in self.segments:
            first = segment.first
            for kv in segment.kept:
                # A wrong shape would broadcast silently; `Checkpoint.share_prefixes` relies on this error.
                if (kv.shape[2], kv.shape[4]) != (len(key), key.shape[-1]):
                    raise NotImplementedError("its layers have other heads than its configuration says")
                kv[layer, 0] = key[:, first : first + kv.shape[3]]
                kv[layer, 1] = value[:, first : first + kv.shape[3]]
                first += kv.shape[3]
        # softmax over K₁ ∪ K₂ = Σᵢ wᵢ · softmax over Kᵢ, wᵢ ∝ exp(lseᵢ)
        parts = [self._attend_shared(layer, query, scale)] if self.shared else []
        for segment in self.segments:
            own = segment.tokens
            if segment.above:
                # (G, K, D) each
                keys, values = (torch.cat([kv[layer, which] for kv in segment.above], 1) for which in (0, 1))
                parts.append(attend(query[own], keys, values, scale))
            parts.append(attend_causal(query[own], key[:, own], value[:, own], scale))
        for rows in self.rows:
            own = rows.tokens
            parts.append(_attend_rows(rows, layer, query[own], key[:, own], value[:, own], scale))
        return join(parts, self.places)

    def _attend_shared(self, layer: int, query: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Attend to the shared parts, part by part; shapes as in `attend`, with n = N."""
        groups = self.shared[0].kv.shape[2]
        folded = _fold_heads(query[self.asking], groups)  # (G, N * H / G, D)
        each = folded.shape[1] // len(self.asking)  # H / G
        pieces = torch.split(folded, [each * len(part.tokens) for part in self.shared], 1)
        results = [
            _attend_all(piece, part.kv[layer, 0], part.kv[layer, 1], scale)
            for piece, part in zip(pieces, self.shared, strict=True)
        ]
        # (G, N * H / G, D), (G, N * H / G)
        outputs, lses = (torch.cat(together, 1) for together in zip(*results, strict=True))
        return _unfold(outputs, lses, len(self.asking))


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend from query (n, H, D) to all of key and value (G, K, D).

    Returns the output (n, H, D) and the log-sum-exp of the scores (n, H), both float32.
    """
    return _unfold(*_attend_all(_fold_heads(query, key.shape[0]), key, value, scale), len(query))


def attend_causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend causally; shapes as in `attend`, with n = K."""
    # The fused CPU kernel needs no table of scores but has no groups, so keys are repeated per query head.
    if query.device.type == "cpu":
        each = query.shape[1] // key.shape[0]
        output, lse = _flash_attention(  # (1, H, n, D), (1, H, n)
            query.transpose(0, 1)[None],
            key.repeat_interleave(each, 0)[None],
            value.repeat_interleave(each, 0)[None],
            is_causal=True,
            scale=scale,
        )
        return output[0].transpose(0, 1).float(), lse[0].transpose(0, 1)
    return _attend_causal_in_pieces(query, key, value, scale)


def _flash_attention(*tensors: Tensor, scale: float, **options: Any) -> tuple[Tensor, Tensor]:
    """Call PyTorch's CPU kernel, which also returns log-sum-exps."""
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(
        *tensors, scale=scale, **options
    )
    return found


def _fold_heads(query: Tensor, groups: int) -> Tensor:
    """Fold (n, H, D) to (G, n * H / G, D): heads that share keys become separate queries."""
    n, heads, size = query.shape
    return query.view(n, groups, heads // groups, size).transpose(0, 1).reshape(groups, -1, size)


def _unfold(output: Tensor, lse: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Reshape results of folded queries, (G, n * H / G, D) and (G, n * H / G), as `attend` returns them."""
    groups, _, size = output.shape
    output = output.view(groups, n, -1, size).transpose(0, 1).reshape(n, -1, size)
    return output.float(), lse.view(groups, n, -1).transpose(0, 1).reshape(n, -1)


def _attend_all(folded: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend in folded shapes: (G, n, D) in, (G, n, D) and (G, n) out."""
    if folded.device.type != "cpu":
        # Plain products also give the log-sum-exp that `join` needs.
        return _attend_in_pieces(folded, key, value, scale)
    output, lse = _flash_attention(folded[None], key[None], value[None], scale=scale)
    return output[0], lse[0]


def _attend_in_pieces(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend by matrix products, (G, n, D) to (G, K, D), in pieces of queries that bound the table of scores."""
    outputs, lses = [], []
    for piece in torch.split(query, max(1, _SCORES_AT_ONCE // (key.shape[0] * key.shape[1])), 1):
        # (G, piece, K); float32 from here on, for exponentials and their sums
        scores = piece.float() @ key.float().transpose(-1, -2) * scale
        lse = scores.logsumexp(-1)  # (G, piece)
        outputs.append(((scores - lse[..., None]).exp().to(value.dtype) @ value).float())
        lses.append(lse)
    return torch.cat(outputs, 1), torch.cat(lses, 1)


def _attend_causal_in_pieces(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend causally by plain matrix products."""
    n, heads, size = query.shape
    groups = key.shape[0]
    folded = query.view(n, groups, heads // groups, size).permute(1, 2, 0, 3)  # (G, H / G, n, D)
    outputs, lses = [], []
    # Pieces of queries bound the table of scores; a piece needs no keys after its last query.
    step = max(1, _SCORES_AT_ONCE // (heads * n))
    for first in range(0, n, step):
        last = min(first + step, n)
        # (G, H / G, piece, last)
        scores = folded[:, :, first:last].float() @ key[:, None, :last].float().transpose(-1, -2) * scale
        # (piece, last)
        later = torch.arange(last, device=key.device) > torch.arange(first, last, device=key.device)[:, None]
        scores = scores.masked_fill(later, -torch.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse[..., None]).exp().to(value.dtype)
        outputs.append((weights @ value[:, None, :last]).float())
        lses.append(lse)
    output = torch.cat(outputs, 2).permute(2, 0, 1, 3).reshape(n, heads, size)  # (n, H, D)
    return output, torch.cat(lses, 2).permute(2, 0, 1).reshape(n, heads)


def _attend_rows(
    rows: Rows, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend from each row's new token to the row's keys, the new one included."""
    count, groups = rows.kv.shape[2], rows.kv.shape[3]
    heads, size = query.shape[1:]
    kept = rows.kv[layer]  # (2, R, G, room, D)
    for place, new in zip(kept, (key, value), strict=True):
        # Write in place, one line per row and group: growing the tensor would copy everything.
        place.view(-1, size).index_copy_(0, rows.cells, new.transpose(0, 1).reshape(-1, size))
    keys, values = kept[:, :, :, : rows.longest]  # (R, G, longest, D)
    folded = query.reshape(count, groups, heads // groups, size)  # (R, G, H / G, D)
    if query.device.type == "cpu":
        absent = rows.absent.expand(-1, -1, heads // groups, -1)
        output, lse = _flash_attention(folded, keys, values, attn_mask=absent, scale=scale)
    else:
        output, lse = _attend_masked(folded, keys, values, rows.absent, scale)
    return output.reshape(count, heads, size).float(), lse.reshape(count, heads)


def _attend_masked(query: Tensor, key: Tensor, value: Tensor, absent: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend by matrix products, (R, G, n, D) to (R, G, K, D); return output and log-sum-exp (R, G, n)."""
    scores = query.float() @ key.float().transpose(-1, -2) * scale + absent  # (R, G, n, K), float32 as in all parts
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp().to(value.dtype) @ value, lse


def join(parts: Sequence[tuple[Tensor, Tensor]], places: Tensor) -> Tensor:
    """Join partial results.

    Args:
        parts: outputs (n, H, D) with log-sum-exps (n, H), float32, n differs.
        places: indices of each token's results in the concatenated parts, (T, most parts); one past the last
            stands for no result.

    Returns:
        (T, H, D).
    """
    heads, size = parts[0][0].shape[1:]
    # An extra line stands for "no result": its log-sum-exp of minus infinity has weight 0.
    nothing = parts[0][0].new_zeros(1, heads, size), parts[0][1].new_full((1, heads), -torch.inf)
    # (M + 1, H, D), (M + 1, H); M results in all
    outputs, lses = (torch.cat(together) for together in zip(*parts, nothing, strict=True))
    weights = lses[places].softmax(1).transpose(1, 2).reshape(-1, places.shape[1])  # (T * H, most parts)
    # (T * H, most parts)
    each = (places[:, None] * heads + torch.arange(heads, device=places.device)[:, None]).flatten(0, 1)
    # An embedding bag computes this weighted sum of table lines, one line per result and head.
    joined = embedding_bag(each, outputs.view(-1, size), per_sample_weights=weights, mode="sum")
    return joined.view(-1, heads, size)


def locate_partials(tokens: Sequence[Tensor], count: int) -> Tensor:
    """Return the indices of each token's partial results, see `join`.

    Args:
        tokens: for each part, in order, the tokens that it has results of, (n,).
        count: T.
    """
    owner = torch.cat(list(tokens))  # (M,)
    # Sorted by token, the n-th result of each token follows by subtraction, without a loop.
    order = owner.argsort(stable=True)
    held = torch.bincount(owner, minlength=count)  # (T,)
    nth = torch.arange(len(owner), device=owner.device) - (held.cumsum(0) - held)[owner[order]]  # (M,)
    places = torch.full((count, int(held.max())), len(owner), device=owner.device)
    places[owner[order], nth] = order
    return places


def install() -> None:
    """Register the attention in transformers; enable it by `set_attn_implementation(IMPLEMENTATION)`."""
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
    shared_prefix: PackedPass,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend in transformers' shapes: (1, H, T, D) and twice (1, G, T, D) in, (1, T, H, D) out.

    Raises:
        NotImplementedError: the model requests other than plain causal attention.
    """
    # After this error the model falls back to padded batches.
    asked = [name for name in _BENDING if others.get(name) is not None]
    if asked:
        raise NotImplementedError(f"its attention has {', '.join(asked)}")
    # 1 / √D as in "Attention Is All You Need", unless the model sets its own scale.
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = shared_prefix.attend(module.layer_idx, query[0].transpose(0, 1), key[0], value[0], scale)
    return output[None].to(query.dtype), None
