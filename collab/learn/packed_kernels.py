"""One part of an attention and what it adds to the gradients: PyTorch's flash kernels where it has them, else products.

The backward pass of a part takes output and log-sum-exp of the *whole* attention that the part belongs to; where the
part is the whole, it is plain attention's.

    processor        flash kernel of any floating type
    GPU, 16 bits     flash kernel, tried against products once per process before it is relied on (`fused`)
    anything else    products

Products are no fused kernel: they make tables of scores, each for as many queries at a time as fit into 2^24 float32
numbers (64 MiB). At most three tables stand side by side in a forward pass and five in a backward pass, 320 MiB however
long the rows are; none is kept from one pass to the other. In causal parts, later keys are computed and left out.

Shapes: b batch, h heads, n queries, K keys, D head size; query (b, h, n, D), key and value (b, h, K, D).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

_SCORES_AT_ONCE = 1 << 24
"""Largest table of scores that plain matrix products make, in elements."""
_ROUNDING = {torch.float16: 5e-3, torch.bfloat16: 2e-2}
"""Types that GPUs have flash kernels for, and the relative error that rounding may make."""
_LARGEST = 256
"""Head size up to which they go."""


def part(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Plain attention: (b, h, n, D) against (b, h, K, D), with its log-sum-exp (b, h, n), float32."""
    if query.device.type == "cpu":
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=causal, scale=scale
        )
        return output, lse
    if fused(query.device, query.dtype, query.shape[-1]):
        return on_gpu(query, key, value, scale, causal=causal)
    return by_products(query, key, value, scale, causal=causal)


def part_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What a part adds to the gradients of its query, key and value; `output` and `lse` are those of the whole."""
    if query.device.type == "cpu":
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        by_query, by_key, by_value = kernel(grad, query, key, value, output, lse, 0.0, causal, scale=scale)
        return by_query, by_key, by_value
    if fused(query.device, query.dtype, query.shape[-1]):
        return on_gpu_backward(grad, query, key, value, output, lse, scale, causal=causal)
    return by_products_backward(grad, query, key, value, output, lse, scale, causal=causal)


@functools.cache
def fused(device: torch.device, dtype: torch.dtype, size: int) -> bool:
    """Whether a GPU's flash kernels are used: they exist for 16 bits, and must give there what products give.

    Tried once per device, type and head size; where kernels that should exist fail or differ, a warning says so.
    """
    if device.type != "cuda" or dtype not in _ROUNDING or size % 8 or size > _LARGEST:
        return False
    try:
        error = error_of_kernels(device, dtype, size)
    except RuntimeError as failed:  # a GPU that is too old for them, or a PyTorch built without them
        reason = (str(failed) or type(failed).__name__).splitlines()[0]
    else:
        if error <= _ROUNDING[dtype]:
            return True
        reason = f"they are off by {error:.2g}, where rounding explains {_ROUNDING[dtype]:g}"
    warnings.warn(f"shared prefixes on {device}: slower products in place of flash kernels: {reason}", stacklevel=2)
    return False


def on_gpu(query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """A part by PyTorch's flash kernel for GPUs, 16 bits; shapes as `part`."""
    output, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, causal, False, scale=scale
    )
    return output, lse


def on_gpu_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradients; shapes as `part_backward`."""
    # Where random numbers of dropout would start: not read without it, in shapes as the forward pass gives them.
    unused = [torch.empty(shape, dtype=torch.uint64, device=query.device) for shape in ((2,), ())]
    by_query, by_key, by_value = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        *(grad, query, key, value, output, lse.contiguous()),
        *(None, None, query.shape[2], key.shape[2], 0.0, causal, *unused),
        scale=scale,
    )
    return by_query, by_key, by_value


def error_of_kernels(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Largest relative error of a GPU's flash kernels in what each part of a whole puts out.

    The whole is a causal part and a full one of random numbers with heads of that size; it is compared with products in
    float32.
    """
    drawn = torch.Generator().manual_seed(0)

    def some(length: int) -> Tensor:
        return torch.randn(1, 2, length, size, generator=drawn).to(device, dtype)

    query, grad, scale = some(96), some(96), size**-0.5
    parts = [(some(length), some(length), causal) for length, causal in ((96, True), (160, False))]
    exact = [by_products(query.float(), one.float(), other.float(), scale, causal=way) for one, other, way in parts]
    lse = torch.logaddexp(*(sums for _, sums in exact))
    output = torch.stack([own * (sums - lse).exp()[..., None] for own, sums in exact]).sum(0).to(dtype)
    errors = []
    for (key, value, causal), forward in zip(parts, exact, strict=True):
        given = (grad, query, key, value, output)
        g, q, k, v, out = (one.float() for one in given)
        found = *on_gpu(query, key, value, scale, causal=causal), *on_gpu_backward(*given, lse, scale, causal=causal)
        wanted = *forward, *by_products_backward(g, q, k, v, out, lse, scale, causal=causal)
        errors += [(one.float() - other).norm() / other.norm() for one, other in zip(found, wanted, strict=True)]
    return float(torch.stack(errors).nan_to_num(torch.inf).max())


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
