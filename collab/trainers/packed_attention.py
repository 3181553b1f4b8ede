"""Attention of packed rows, with gradient: every token sees its own row up to itself; shared tokens are stored once.

A token attends causally to its own node and to all of every node above it. The parts are computed one by one and
joined by their log-sum-exps, as in `collab.models.engine.attention`. A part's gradient equals that of plain attention
with output and log-sum-exp of the whole (as in ring attention, arXiv 2310.01889). So only one output is kept, and no
key is copied per row.

In full parts, query heads that share a key-value head are folded into the length, so keys are not repeated.

Shapes: T packed tokens, H query heads, G key-value heads (H is a multiple of G), D head size.

How a part is computed:

    CPU              flash kernel of any floating type
    GPU, 16 bits     flash kernel, compared with products once per process (`is_fused`)
    anything else    products

Products make tables of scores for as many queries as fit into 2^24 float32 numbers (64 MiB). A forward pass holds at
most three tables, a backward pass five (320 MiB), whatever the rows' length; none is kept.

Shapes: b batch, h heads, n queries, K keys, D head size; query (b, h, n, D), key and value (b, h, K, D).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from collab.trainers.batching import Node

_SCORES_AT_ONCE = 1 << 24
"""Largest table of scores that plain matrix products make, in elements."""
_ROUNDING = {torch.float16: 5e-3, torch.bfloat16: 2e-2}
"""Types that GPUs have flash kernels for, and the relative error that rounding may make."""
_LARGEST = 256
"""Head size up to which they go."""


def compute_part(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Attend plainly: (b, h, n, D) against (b, h, K, D), with the log-sum-exp (b, h, n), float32."""
    # Processors have a flash kernel for every floating type.
    if query.device.type == "cpu":
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=causal, scale=scale
        )
        return output, lse
    # Trusted after one comparison per process: kernels differ between GPUs and versions of PyTorch.
    if is_fused(query.device, query.dtype, query.shape[-1]):
        return compute_on_gpu(query, key, value, scale, causal=causal)
    return compute_by_products(query, key, value, scale, causal=causal)


def compute_part_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a part's gradients of its query, key and value; `output` and `lse` are those of the whole."""
    if query.device.type == "cpu":
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        by_query, by_key, by_value = kernel(grad, query, key, value, output, lse, 0.0, causal, scale=scale)
        return by_query, by_key, by_value
    if is_fused(query.device, query.dtype, query.shape[-1]):
        return compute_on_gpu_backward(grad, query, key, value, output, lse, scale, causal=causal)
    return compute_by_products_backward(grad, query, key, value, output, lse, scale, causal=causal)


@functools.cache
def is_fused(device: torch.device, dtype: torch.dtype, size: int) -> bool:
    """Return whether to use a GPU's flash kernels (16 bits only): they must agree with products.

    Tried once per device, type and head size; warns if kernels fail or differ.
    """
    if device.type != "cuda" or dtype not in _ROUNDING or size % 8 or size > _LARGEST:
        return False
    try:
        error = measure_kernel_error(device, dtype, size)
    except RuntimeError as failed:  # a GPU that is too old for them, or a PyTorch built without them
        reason = (str(failed) or type(failed).__name__).splitlines()[0]
    else:
        # Rounding explains small differences; larger ones mean another formula, such as a shifted causal mask.
        if error <= _ROUNDING[dtype]:
            return True
        reason = f"they are off by {error:.2g}, where rounding explains {_ROUNDING[dtype]:g}"
    warnings.warn(f"shared prefixes on {device}: slower products in place of flash kernels: {reason}", stacklevel=2)
    return False


def compute_on_gpu(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Compute a part by PyTorch's flash kernel for GPUs, 16 bits; shapes as `compute_part`."""
    output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, causal, False, scale=scale
    )
    return output, lse


def compute_on_gpu_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute its gradients; shapes as `compute_part_backward`."""
    # Where random numbers of dropout would start: not read without it, in shapes as the forward pass gives them.
    unused = [torch.empty(shape, dtype=torch.uint64, device=query.device) for shape in ((2,), ())]
    by_query, by_key, by_value = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        *(grad, query, key, value, output, lse.contiguous()),
        *(None, None, query.shape[2], key.shape[2], 0.0, causal, *unused),
        scale=scale,
    )
    return by_query, by_key, by_value


def measure_kernel_error(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Return the largest relative error of a GPU's flash kernels in what each part of a whole puts out.

    The whole is a causal part and a full one of random numbers with heads of that size; it is compared with products in
    float32.
    """
    drawn = torch.Generator().manual_seed(0)

    def some(length: int) -> Tensor:
        return torch.randn(1, 2, length, size, generator=drawn).to(device, dtype)

    query, grad, scale = some(96), some(96), size**-0.5  # (1, 2, 96, D)
    # A causal part and a full one: both forms that `_Attention` uses.
    parts = [(some(length), some(length), causal) for length, causal in ((96, True), (160, False))]
    # Float32 uses plain matrix products: tests compare the kernels with this readable code.
    exact = [
        compute_by_products(query.float(), one.float(), other.float(), scale, causal=way) for one, other, way in parts
    ]
    lse = torch.logaddexp(*(sums for _, sums in exact))  # (1, 2, 96), of both parts together
    output = torch.stack([own * (sums - lse).exp()[..., None] for own, sums in exact]).sum(0).to(dtype)  # (1, 2, 96, D)
    errors = []
    for (key, value, causal), forward in zip(parts, exact, strict=True):
        given = (grad, query, key, value, output)
        # The backward kernel must accept output and log-sum-exp of the whole, not those of its own part.
        g, q, k, v, out = (one.float() for one in given)
        found = (
            *compute_on_gpu(query, key, value, scale, causal=causal),
            *compute_on_gpu_backward(*given, lse, scale, causal=causal),
        )
        wanted = *forward, *compute_by_products_backward(g, q, k, v, out, lse, scale, causal=causal)
        errors += [(one.float() - other).norm() / other.norm() for one, other in zip(found, wanted, strict=True)]
    return float(torch.stack(errors).nan_to_num(torch.inf).max())


def compute_by_products(
    query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """Compute a part by plain matrix products, for any device; shapes as the kernels'."""
    outputs, sizes = [], []
    for first, piece in _split_queries(query, key):
        scores = _compute_scores(piece, key, scale, first if causal else None)  # (b, h, piece, K)
        lse = scores.logsumexp(-1)  # (b, h, piece)
        # softmax = exp(s − lse): with the log-sum-exp at hand, no second normalisation is needed.
        outputs.append((scores - lse[..., None]).exp().to(value.dtype) @ value)
        sizes.append(lse)
    return torch.cat(outputs, 2), torch.cat(sizes, 2)


def compute_by_products_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute its gradients; weights are computed again, from the log-sum-exp of the whole."""
    by_query = []
    # Summed in float32 over pieces: in 16 bits, small contributions would be lost.
    by_key, by_value = (torch.zeros(one.shape, dtype=torch.float32, device=one.device) for one in (key, value))
    for first, piece in _split_queries(query, key):
        own = slice(first, first + piece.shape[2])
        given = grad[:, :, own]
        # (b, h, piece, K): weights of the whole, p = exp(s − lse)
        weights = (_compute_scores(piece, key, scale, first if causal else None) - lse[:, :, own, None]).exp()
        # dV = pᵀ dO
        by_value += (weights.to(grad.dtype).transpose(2, 3) @ given).float()
        # dS = p ∘ (dO Vᵀ − rowsum(dO ∘ O)), with O of the whole attention, not of this part.
        apart = (given @ value.transpose(2, 3)).float() - (given.float() * output[:, :, own]).sum(-1, keepdim=True)
        # dQ = dS K · scale, dK = dSᵀ Q · scale.
        by_score = (weights * apart * scale).to(query.dtype)
        by_query.append(by_score @ key)
        by_key += (by_score.transpose(2, 3) @ piece).float()
    return torch.cat(by_query, 2), by_key, by_value


def _split_queries(query: Tensor, key: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield as many queries at a time as the table of scores allows, with the number of the first."""
    step = max(1, _SCORES_AT_ONCE // max(1, query.shape[0] * query.shape[1] * key.shape[2]))
    for first in range(0, query.shape[2], step):
        yield first, query[:, :, first : first + step]


def _compute_scores(query: Tensor, key: Tensor, scale: float, first: int | None) -> Tensor:
    """Return scores, float32; later keys are left out where `first`, the first query's number, is given."""
    scores = (query @ key.transpose(2, 3)).float() * scale
    if first is None:
        return scores
    own = torch.arange(first, first + query.shape[2], device=query.device)  # (piece,)
    return scores.masked_fill(torch.arange(key.shape[2], device=query.device) > own[:, None], -torch.inf)


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
        """Select the nodes' tokens: (heads, T, …) to (heads, nodes, longest, …)."""
        return whole[:, self.index]  # (heads, nodes, longest, D), or (heads, nodes, longest)

    def drop(self, part: Tensor) -> Tensor:
        """Return the same without padding: (…, nodes, longest, …) to (…, n, …)."""
        return part.flatten(1, 2)[:, self.cells]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionPlan:
    """Which parts the attention of a packing consists of."""

    blocks: tuple[Block, ...]
    """Every node in one of them."""
    above: tuple[Node, ...]
    """Nodes with something under them, which sees all of them."""

    def to(self, device: torch.device) -> AttentionPlan:
        """Return the same, its tensors there."""
        moved = (
            Block(index=one.index.to(device), cells=one.cells.to(device), tokens=one.tokens.to(device))
            for one in self.blocks
        )
        return replace(self, blocks=tuple(moved))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passed:
    """Arguments that a forward pass hands to the attention of each layer."""

    plan: AttentionPlan
    layers: set[int] = field(default_factory=set)
    """Layers that have computed by it."""
    dry: bool = False
    """Whether nothing is computed, to see which layers would."""


def plan_attention(nodes: Sequence[Node]) -> AttentionPlan:
    """Return the parts of a packing with these nodes."""
    groups: list[list[Node]] = []
    # Short nodes side by side cost padding, long ones cost kernels: groups stop at twice their shortest.
    for node in sorted(nodes, key=_measure_node):  # of a group, none is longer than twice the shortest
        if not groups or _measure_node(node) > min(_SHORT, 2 * _measure_node(groups[-1][0])):
            groups.append([])
        groups[-1].append(node)
    # A node with nothing under it needs no second part.
    return AttentionPlan(
        blocks=tuple(map(_build_block, groups)), above=tuple(node for node in nodes if node.end > node.stop)
    )


def attend(query: Tensor, key: Tensor, value: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Attend with packed rows, differentiably.

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
    # One type for all three: projections may come from autocast and from plain code.
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else value.dtype
    with torch.autocast(device, enabled=False):
        output: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
            query.to(dtype), key.to(dtype), value.to(dtype), plan, scale
        )
    return output


class _Attention(torch.autograd.Function):
    """See `attend`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
        output = torch.empty(query.shape, dtype=torch.float32, device=query.device)  # (H, T, D)
        lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)  # (H, T)
        # Every token first attends to its own node; nodes of similar length go through one kernel.
        for block in plan.blocks:
            # (H, nodes, longest, D), (H, nodes, longest)
            own, sizes = _attend_causal(block.take(query), block.take(key), block.take(value), scale)
            output[:, block.tokens] = block.drop(own).float()
            lse[:, block.tokens] = block.drop(sizes)
        # Then to each node above it. What stands under a node follows it without a gap, so a slice names it.
        for node in plan.above:
            here, under = slice(node.start, node.stop), slice(node.stop, node.end)
            more, sizes = _attend_full(query[:, under], key[:, here], value[:, here], scale)  # (H, n, D), (H, n)
            # lse of the union is log(e^a + e^b); each part's output is weighted by its share of it.
            before, joined = lse[:, under], torch.logaddexp(lse[:, under], sizes)
            # output = output · e^(before − joined) + more · e^(sizes − joined)
            kept = output[:, under] * (before - joined).exp()[..., None]
            output[:, under] = kept + more.float() * (sizes - joined).exp()[..., None]
            lse[:, under] = joined
        output = output.to(query.dtype)
        # One output and one log-sum-exp: parts are computed anew in the backward pass.
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.plan, ctx.scale = plan, scale
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        grad = grads[0].to(query.dtype)
        # (H, T, D), (G, T, D) twice
        sums = [torch.zeros(one.shape, dtype=torch.float32, device=one.device) for one in (query, key, value)]
        with torch.autocast(query.device.type, enabled=False):
            # Every part takes output and log-sum-exp of the whole, as in ring attention: no part was kept.
            for block in ctx.plan.blocks:
                given = block.take(grad) * _is_token(block)  # padding repeats a token, and adds nothing
                q, k, v, out, sizes = map(block.take, (query, key, value, output, lse))  # (heads, nodes, longest, …)
                # Added, not set: a key is attended to by its own node and by all under it.
                for whole, one in zip(
                    sums, _attend_causal_backward(given, q, k, v, out, sizes, ctx.scale), strict=True
                ):
                    whole[:, block.tokens] += block.drop(one)
            for node in ctx.plan.above:
                here, under = slice(node.start, node.stop), slice(node.stop, node.end)
                # In a full part, queries are under the node, keys and values in it.
                given, q, out, sizes = (one[:, under] for one in (grad, query, output, lse))
                parts = _attend_full_backward(given, q, key[:, here], value[:, here], out, sizes, ctx.scale)
                for whole, one, where in zip(sums, parts, (under, here, here), strict=True):
                    whole[:, where] += one
        return *(one.to(query.dtype) for one in sums), None, None


def _measure_node(node: Node) -> int:
    return node.stop - node.start


def _build_block(nodes: Sequence[Node]) -> Block:
    starts, stops = (torch.tensor([getattr(node, name) for node in nodes])[:, None] for name in ("start", "stop"))
    places = starts + torch.arange(max(map(_measure_node, nodes)))  # (nodes, longest)
    # Padding repeats the last token: a real index, whose results are dropped.
    real = places < stops
    return Block(index=places.minimum(stops - 1), cells=real.flatten().nonzero()[:, 0], tokens=places[real])


def _is_token(block: Block) -> Tensor:
    """Return which places are tokens and no padding, (nodes, longest, 1), bool."""
    real = torch.zeros(block.index.numel(), dtype=torch.bool, device=block.index.device)
    real[block.cells] = True
    return real.view(*block.index.shape, 1)


def _attend_causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend (H, B, L, D) to (G, B, L, D), up to one's own: output and log-sum-exp (H, B, L)."""
    # Kernels know no groups in a causal part, so keys are repeated for each query head: (H, B, L, D).
    each = len(query) // len(key)
    return compute_part(query, key.repeat_interleave(each, 0), value.repeat_interleave(each, 0), scale, causal=True)


def _attend_causal_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    each = len(query) // len(key)
    keys, values = key.repeat_interleave(each, 0), value.repeat_interleave(each, 0)
    by_query, by_key, by_value = compute_part_backward(grad, query, keys, values, output, lse, scale, causal=True)
    # Each key head served H / G query heads: its gradients add up.
    by_key, by_value = (one.float().view(len(key), each, *one.shape[1:]).sum(1) for one in (by_key, by_value))
    return by_query, by_key, by_value


def _attend_full(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend (H, n, D) to all of (G, K, D): output and log-sum-exp (H, n)."""
    # Order does not matter in a full part, so heads of a group fold into the length and keys are not repeated.
    output, lse = compute_part(_fold(query, key), key[None], value[None], scale, causal=False)
    return output.reshape(query.shape), lse.reshape(query.shape[:2])


def _attend_full_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    given, asking, out, sizes = (_fold(one, key) for one in (grad, query, output, lse))  # (1, G, H / G · n, …)
    by_query, by_key, by_value = compute_part_backward(
        given, asking, key[None], value[None], out, sizes, scale, causal=False
    )
    return by_query.reshape(query.shape), by_key[0], by_value[0]


def _fold(rows: Tensor, key: Tensor) -> Tensor:
    """Fold query heads into the length: (H, n, …) to (1, G, H/G·n, …)."""
    return rows.reshape(1, len(key), -1, *rows.shape[2:])


def install() -> None:
    """Make the attention known to transformers; a model then uses it by `set_attn_implementation(IMPLEMENTATION)`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(IMPLEMENTATION, _forward)
    # A mask function of transformers' own for passes that are not packed.
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
    """Attend as transformers asks: (1, H, T, D) and twice (1, G, T, D) in, (1, T, H, D) out.

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
    # Noted per layer: one that never comes here computes attention of its own, and is refused.
    packing.layers.add(module.layer_idx)
    if packing.dry:
        return query.new_empty(*query.transpose(1, 2).shape[:3], value.shape[-1]), None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = attend(query[0], key[0], value[0], packing.plan, scale)
    return output.transpose(0, 1)[None], None
