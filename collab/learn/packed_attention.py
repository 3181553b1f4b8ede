"""Attention of packed rows: every token sees its own row's tokens up to itself, and shared ones stand there once.

A token of a node attends to its own node causally and to all of every node above it. The parts are computed one by one
and joined by their log-sum-exps, as in `collab.models.attention`; here with a gradient. It needs no parts kept: a
part's gradient is that of plain attention when output and log-sum-exp are those of the whole (as in ring attention,
arXiv 2310.01889), so what is kept is one output, and no key is copied per row.

The query heads that share a key-value head are folded into the length where no order matters, so keys are never
repeated for them, either.

Shapes: T packed tokens, H query heads, G key-value heads (H is a multiple of G), D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from collab.learn.packed_kernels import part, part_backward
from collab.learn.prefix import Node

IMPLEMENTATION = "collab_packed_rows"
"""Name under which transformers knows this attention."""
_BENDING = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments by which a model asks for other than plain causal attention."""
_SHORT = 256
"""Nodes up to so many tokens are computed side by side, padded to the longest among them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Nodes side by side: their own, causal part."""

    index: Tensor
    """Places of their tokens, the last repeated up to the longest, (nodes, longest)."""
    cells: Tensor
    """Which of these, flattened, are tokens and not padding, (n,)."""
    tokens: Tensor
    """Their places, (n,)."""

    def take(self, whole: Tensor) -> Tensor:
        """What belongs to the nodes: (…, T, …) to (…, nodes, longest, …), at the second dimension."""
        return whole[:, self.index]

    def drop(self, part: Tensor) -> Tensor:
        """The same without padding: (…, nodes, longest, …) to (…, n, …)."""
        return part.flatten(1, 2)[:, self.cells]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Which parts the attention of a packing consists of."""

    blocks: tuple[Block, ...]
    """Every node in one of them."""
    above: tuple[Node, ...]
    """Nodes with something under them, which sees all of them."""

    def to(self, device: torch.device) -> Plan:
        """The same, its tensors there."""
        moved = (
            Block(index=one.index.to(device), cells=one.cells.to(device), tokens=one.tokens.to(device))
            for one in self.blocks
        )
        return replace(self, blocks=tuple(moved))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passed:
    """What a forward pass hands down to the attention of each layer."""

    plan: Plan
    layers: set[int] = field(default_factory=set)
    """Layers that have computed by it."""
    dry: bool = False
    """Whether nothing is computed, to see which layers would."""


def plan_of(nodes: Sequence[Node]) -> Plan:
    """The parts of a packing with these nodes."""
    groups: list[list[Node]] = []
    for node in sorted(nodes, key=_length):  # of a group, none is longer than twice the shortest
        if not groups or _length(node) > min(_SHORT, 2 * _length(groups[-1][0])):
            groups.append([])
        groups[-1].append(node)
    return Plan(blocks=tuple(map(_block, groups)), above=tuple(node for node in nodes if node.end > node.stop))


def attend(query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float) -> Tensor:
    """Attention of packed rows, differentiable.

    Args:
        query: (H, T, D).
        key: (G, T, D).
        value: (G, T, D).
        plan: which tokens see which.
        scale: what scores are multiplied with.

    Returns:
        (H, T, D), in the type of `value`, or of autocast inside it.
    """
    device = query.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else value.dtype
    with torch.autocast(device, enabled=False):
        output: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
            query.to(dtype), key.to(dtype), value.to(dtype), plan, scale
        )
    return output


class _Attention(torch.autograd.Function):
    """See `attend`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: Plan, scale: float) -> Tensor:
        output = torch.empty(query.shape, dtype=torch.float32, device=query.device)
        lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
        for block in plan.blocks:
            own, sizes = _causal(block.take(query), block.take(key), block.take(value), scale)
            output[:, block.tokens] = block.drop(own).float()
            lse[:, block.tokens] = block.drop(sizes)
        for node in plan.above:
            here, under = slice(node.start, node.stop), slice(node.stop, node.end)
            more, sizes = _full(query[:, under], key[:, here], value[:, here], scale)
            before, joined = lse[:, under], torch.logaddexp(lse[:, under], sizes)
            kept = output[:, under] * (before - joined).exp()[..., None]
            output[:, under] = kept + more.float() * (sizes - joined).exp()[..., None]
            lse[:, under] = joined
        output = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.plan, ctx.scale = plan, scale
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        grad = grads[0].to(query.dtype)
        sums = [torch.zeros(one.shape, dtype=torch.float32, device=one.device) for one in (query, key, value)]
        with torch.autocast(query.device.type, enabled=False):
            for block in ctx.plan.blocks:
                given = block.take(grad) * _is_token(block)  # padding repeats a token, and adds nothing
                q, k, v, out, sizes = map(block.take, (query, key, value, output, lse))
                for whole, one in zip(sums, _causal_backward(given, q, k, v, out, sizes, ctx.scale), strict=True):
                    whole[:, block.tokens] += block.drop(one)
            for node in ctx.plan.above:
                here, under = slice(node.start, node.stop), slice(node.stop, node.end)
                given, q, out, sizes = (one[:, under] for one in (grad, query, output, lse))
                parts = _full_backward(given, q, key[:, here], value[:, here], out, sizes, ctx.scale)
                for whole, one, where in zip(sums, parts, (under, here, here), strict=True):
                    whole[:, where] += one
        return *(one.to(query.dtype) for one in sums), None, None


def _length(node: Node) -> int:
    return node.stop - node.start


def _block(nodes: Sequence[Node]) -> Block:
    starts, stops = (torch.tensor([getattr(node, name) for node in nodes])[:, None] for name in ("start", "stop"))
    places = starts + torch.arange(max(map(_length, nodes)))
    real = places < stops
    return Block(index=places.minimum(stops - 1), cells=real.flatten().nonzero()[:, 0], tokens=places[real])


def _is_token(block: Block) -> Tensor:
    """(nodes, longest, 1), bool."""
    real = torch.zeros(block.index.numel(), dtype=torch.bool, device=block.index.device)
    real[block.cells] = True
    return real.view(*block.index.shape, 1)


def _causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """(H, B, L, D) against (G, B, L, D), up to one's own: output and log-sum-exp (H, B, L)."""
    each = len(query) // len(key)
    return part(query, key.repeat_interleave(each, 0), value.repeat_interleave(each, 0), scale, causal=True)


def _causal_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    each = len(query) // len(key)
    keys, values = key.repeat_interleave(each, 0), value.repeat_interleave(each, 0)
    by_query, by_key, by_value = part_backward(grad, query, keys, values, output, lse, scale, causal=True)
    by_key, by_value = (one.float().view(len(key), each, *one.shape[1:]).sum(1) for one in (by_key, by_value))
    return by_query, by_key, by_value


def _full(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """(H, n, D) against all of (G, K, D): output and log-sum-exp (H, n)."""
    output, lse = part(_fold(query, key), key[None], value[None], scale, causal=False)
    return output.reshape(query.shape), lse.reshape(query.shape[:2])


def _full_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    given, asking, out, sizes = (_fold(one, key) for one in (grad, query, output, lse))
    by_query, by_key, by_value = part_backward(given, asking, key[None], value[None], out, sizes, scale, causal=False)
    return by_query.reshape(query.shape), by_key[0], by_value[0]


def _fold(rows: Tensor, key: Tensor) -> Tensor:
    """Query heads of one key-value head as one length: (H, n, …) to (1, G, H/G·n, …)."""
    return rows.reshape(1, len(key), -1, *rows.shape[2:])


def install() -> None:
    """Make the attention known to transformers; a model then uses it by `set_attn_implementation(IMPLEMENTATION)`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(IMPLEMENTATION, _forward)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)


def _forward(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    packing: Passed | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: (1, H, T, D) and twice (1, G, T, D) in, (1, T, H, D) out.

    A pass that is not packed (generation, say) is computed by PyTorch's own attention, as it would be elsewhere.

    Raises:
        NotImplementedError: the model asks for other than plain causal attention.
    """
    if packing is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        plain = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return plain[0], None
    asked = [name for name in _BENDING if others.get(name) is not None] + ["dropout"] * (dropout > 0)
    if asked:
        raise NotImplementedError(f"its attention has {', '.join(asked)}")
    packing.layers.add(module.layer_idx)
    if packing.dry:
        return query.new_empty(*query.transpose(1, 2).shape[:3], value.shape[-1]), None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = attend(query[0], key[0], value[0], packing.plan, scale)
    return output.transpose(0, 1)[None], None
