"""Partial attention, joined, against attention over everything at once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collab.models.engine import attention
from collab.models.engine.attention import (
    PackedPass,
    PassSegment,
    Rows,
    SharedKeys,
    attend,
    attend_causal,
    join,
    locate_partials,
)


def whole(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The textbook: (n, H, D), (G, K, D) twice and an (n, K) mask of what is seen, in double precision."""
    heads, groups = query.shape[1], key.shape[0]
    keys, values = (x.double().repeat_interleave(heads // groups, 0) for x in (key, value))
    scores = torch.einsum("nhd,hkd->hnk", query.double(), keys) / query.shape[-1] ** 0.5
    return torch.einsum("hnk,hkd->nhd", scores.masked_fill(~mask, -torch.inf).softmax(-1), values).float()


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def test_two_scores_by_hand() -> None:
    """Keys 0 and ln 3 in two places: weights 1/4 and 3/4, so the mean of values 4 and 8 is 7."""
    query = torch.ones(1, 1, 16)
    first, second = torch.zeros(1, 1, 16), torch.full((1, 1, 16), torch.log(torch.tensor(3.0)).item() / 16)
    parts = [
        attend(query, first, torch.full((1, 1, 16), 4.0), 1.0),
        attend(query, second, torch.full((1, 1, 16), 8.0), 1.0),
    ]
    assert parts[1][1].item() == pytest.approx(1.0986123)
    assert join(parts, torch.tensor([[0, 1]]))[0, 0].tolist() == pytest.approx([7.0] * 16)


@pytest.mark.parametrize("portable", [False, True])
@given(
    new=st.integers(1, 40),
    known=st.integers(1, 70),
    groups=st.sampled_from([1, 2]),
    each=st.sampled_from([1, 3]),
    seed=st.integers(0, 9),
)
def test_parts_joined_equal_attention_at_once(
    portable: bool, new: int, known: int, groups: int, each: int, seed: int
) -> None:
    query = numbers(new, groups * each, 16, seed=seed)
    key, value = numbers(groups, known + new, 16, seed=seed + 1), numbers(groups, known + new, 16, seed=seed + 2)
    everything, causal = attend, attend_causal
    if portable:
        everything, causal = _portable(everything), _portable(causal)
    parts = [
        everything(query, key[:, :known], value[:, :known], 0.25),
        causal(query, key[:, known:], value[:, known:], 0.25),
    ]
    every = torch.arange(new)
    seen = torch.arange(known + new) <= every[:, None] + known
    assert torch.allclose(
        join(parts, locate_partials([every, every], new)), whole(query, key, value, seen), atol=2e-6, rtol=1e-5
    )


def _portable(function):  # type: ignore[no-untyped-def]
    """The form that is used where there is no fused kernel."""

    def call(query, key, value, scale):  # type: ignore[no-untyped-def]
        if function is attend:
            n, heads, size = query.shape
            folded = query.view(n, key.shape[0], -1, size).transpose(0, 1).reshape(key.shape[0], -1, size)
            output, lse = attention._attend_in_pieces(folded, key, value, scale)
            output = output.view(key.shape[0], n, -1, size).transpose(0, 1).reshape(n, heads, size)
            return output, lse.view(key.shape[0], n, -1).transpose(0, 1).reshape(n, heads)
        return attention._attend_causal_in_pieces(query, key, value, scale)

    return call


def test_rows_without_a_fused_kernel_are_the_same() -> None:
    """One row of no keys but its own, one that is full, one in between."""
    kv, lengths = numbers(1, 2, 3, 2, 9, 16), torch.tensor([0, 8, 4])
    rows = Rows(first=0, kv=kv, lengths=lengths, longest=9)
    query, key, value = numbers(3, 4, 16), numbers(2, 3, 16), numbers(2, 3, 16, seed=1)
    output, lse = attention._attend_rows(rows, 0, query, key, value, 0.25)
    folded = query.view(3, 2, 2, 16)
    plain, plain_lse = attention._attend_masked(folded, kv[0, 0], kv[0, 1], rows.absent, 0.25)
    assert torch.allclose(output, plain.reshape(3, 4, 16), atol=2e-6)
    assert torch.allclose(lse, plain_lse.reshape(3, 4), atol=2e-6)
    assert torch.allclose(output[0], value[:, 0].repeat_interleave(2, 0), atol=2e-6)


def test_tables_of_scores_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = numbers(30, 4, 16), numbers(2, 50, 16), numbers(2, 50, 16, seed=5)
    expected = [
        _portable(attend)(query, key, value, 0.25),
        _portable(attend_causal)(query, key[:, :30], value[:, :30], 0.25),
    ]
    monkeypatch.setattr(attention, "_SCORES_AT_ONCE", 300)
    found = [
        _portable(attend)(query, key, value, 0.25),
        _portable(attend_causal)(query, key[:, :30], value[:, :30], 0.25),
    ]
    for (output, lse), (other, other_lse) in zip(expected, found, strict=True):
        assert torch.allclose(output, other, atol=1e-6)
        assert torch.allclose(lse, other_lse, atol=1e-6)


def test_places_list_each_tokens_parts() -> None:
    places = locate_partials([torch.tensor([2, 0]), torch.tensor([2]), torch.tensor([0, 1])], 3)
    assert [sorted(row) for row in places.tolist()] == [[1, 3], [4, 5], [0, 2]]  # 5: none


def test_a_pass_keeps_keys_and_lets_each_token_see_its_own_past() -> None:
    """Two rows apart on a common prefix, and a new sequence of two pieces after a long and two short ones, in one
    pass of two layers."""
    layers, groups, heads, size = 2, 2, 4, 16
    prefix, other = numbers(layers, 2, groups, 9, size), numbers(layers, 2, groups, 5, size)
    short = [numbers(layers, 2, groups, tokens, size, seed=tokens) for tokens in (2, 1)]
    rows = torch.zeros(layers, 2, 2, groups, 8, size)
    rows[:, :, 0, :, :3], rows[:, :, 1, :, :6] = (
        numbers(layers, 2, groups, 3, size),
        numbers(layers, 2, groups, 6, size),
    )
    own = [torch.empty(layers, 2, groups, tokens, size) for tokens in (3, 1)]
    count = 2 + 4
    every = torch.arange(count)
    plan = PackedPass(
        rows=[
            Rows(first=0, kv=rows[:, :, :1], lengths=torch.tensor([3]), longest=4),
            Rows(first=1, kv=rows[:, :, 1:], lengths=torch.tensor([6]), longest=7),
        ],
        segments=[PassSegment(first=2, kept=own, above=short)],
        shared=[SharedKeys(kv=prefix, tokens=every[:2]), SharedKeys(kv=other, tokens=every[2:])],
    )
    for layer in range(layers):
        before = rows.clone()
        query, key, value = (
            numbers(count, heads, size, seed=layer),
            numbers(groups, count, size),
            numbers(groups, count, size, seed=3),
        )
        output = plan.attend(layer, query, key, value, 0.25)
        for row, length in enumerate((3, 6)):
            keys, values = (
                torch.cat([prefix[layer, which], before[layer, which, row, :, :length], new[:, row : row + 1]], 1)
                for which, new in enumerate((key, value))
            )
            expected = whole(query[row : row + 1], keys, values, torch.ones(1, keys.shape[1], dtype=torch.bool))
            assert torch.allclose(output[row : row + 1], expected, atol=2e-6)
            assert torch.equal(rows[layer, 0, row, :, length], key[:, row])
        keys, values = (
            torch.cat([other[layer, which], *(kv[layer, which] for kv in short), new[:, 2:]], 1)
            for which, new in enumerate((key, value))
        )
        seen = torch.arange(12) <= torch.arange(4)[:, None] + 8
        assert torch.allclose(output[2:], whole(query[2:], keys, values, seen), atol=2e-6)
        for kv, tokens in zip(own, (slice(2, 5), slice(5, 6)), strict=True):
            assert torch.equal(kv[layer, 0], key[:, tokens])
            assert torch.equal(kv[layer, 1], value[:, tokens])
