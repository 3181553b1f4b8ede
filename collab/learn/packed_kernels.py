"""One part of an attention and what it adds to the gradients: PyTorch's flash kernels on a processor, else products.

The backward pass of a part takes output and log-sum-exp of the *whole* attention that the part belongs to; where the
part is the whole, it is plain attention's.

Products are no fused kernel: they make tables of scores, each for as many queries at a time as fit into 2^24 float32
numbers (64 MiB). At most three tables stand side by side in a forward pass and five in a backward pass, 320 MiB however
long the rows are; none is kept from one pass to the other. In causal parts, later keys are computed and left out.

Shapes: b batch, h heads, n queries, K keys, D head size; query (b, h, n, D), key and value (b, h, K, D).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_SCORES_AT_ONCE = 1 << 24
"""Largest table of scores that plain matrix products make, in elements."""


def part(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Plain attention: (b, h, n, D) against (b, h, K, D), with its log-sum-exp (b, h, n), float32."""
    if query.device.type == "cpu":
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=causal, scale=scale
        )
        return output, lse
    return by_products(query, key, value, scale, causal=causal)


def part_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What a part adds to the gradients of its query, key and value; `output` and `lse` are those of the whole."""
    if query.device.type == "cpu":
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        by_query, by_key, by_value = kernel(grad, query, key, value, output, lse, 0.0, causal, scale=scale)
        return by_query, by_key, by_value
    return by_products_backward(grad, query, key, value, output, lse, scale, causal=causal)


def by_products(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """A part by plain matrix products, for any device; shapes as the kernels'."""
    outputs, sizes = [], []
    for first, piece in _pieces(query, key):
        scores = _scores(piece, key, scale, first if causal else None)
        lse = scores.logsumexp(-1)
        outputs.append((scores - lse[..., None]).exp().to(value.dtype) @ value)
        sizes.append(lse)
    return torch.cat(outputs, 2), torch.cat(sizes, 2)


def by_products_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradients; weights are computed again, from the log-sum-exp of the whole."""
    by_query = []
    by_key, by_value = (torch.zeros(one.shape, dtype=torch.float32, device=one.device) for one in (key, value))
    for first, piece in _pieces(query, key):
        own = slice(first, first + piece.shape[2])
        given = grad[:, :, own]
        weights = (_scores(piece, key, scale, first if causal else None) - lse[:, :, own, None]).exp()
        by_value += (weights.to(grad.dtype).transpose(2, 3) @ given).float()
        apart = (given @ value.transpose(2, 3)).float() - (given.float() * output[:, :, own]).sum(-1, keepdim=True)
        by_score = (weights * apart * scale).to(query.dtype)
        by_query.append(by_score @ key)
        by_key += (by_score.transpose(2, 3) @ piece).float()
    return torch.cat(by_query, 2), by_key, by_value


def _pieces(query: Tensor, key: Tensor) -> Iterator[tuple[int, Tensor]]:
    """As many queries at a time as the table of scores allows, with the number of the first."""
    step = max(1, _SCORES_AT_ONCE // max(1, query.shape[0] * query.shape[1] * key.shape[2]))
    for first in range(0, query.shape[2], step):
        yield first, query[:, :, first : first + step]


def _scores(query: Tensor, key: Tensor, scale: float, first: int | None) -> Tensor:
    """Scores, float32; later keys are left out where `first`, the first query's number, is given."""
    scores = (query @ key.transpose(2, 3)).float() * scale
    if first is None:
        return scores
    own = torch.arange(first, first + query.shape[2], device=query.device)
    return scores.masked_fill(torch.arange(key.shape[2], device=query.device) > own[:, None], -torch.inf)
