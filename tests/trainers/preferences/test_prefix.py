"""Packing of shared prefixes: rows come back, no token is stored twice, and counts match those by hand."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.trainers.batching import Node, compute_token_ratio, count_packed_tokens, find_scored, pack

ROWS = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=9)


def test_a_trie_by_hand() -> None:
    """1 2 is common to three rows, 3 to two of them; the fourth begins otherwise, the fifth is the second again."""
    rows = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6], [7, 8], [1, 2, 3, 5]]
    packing = pack(rows, shortest=1)
    assert packing.ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert packing.positions.tolist() == [0, 1, 2, 3, 3, 2, 0, 1]
    assert packing.nodes == (
        Node(start=0, stop=2, end=6),
        Node(start=2, stop=3, end=5),
        Node(start=3, stop=4, end=4),
        Node(start=4, stop=5, end=5),
        Node(start=5, stop=6, end=6),
        Node(start=6, stop=8, end=8),
    )
    assert [places.tolist() for places in packing.places] == [
        [0, 1, 2, 3],
        [0, 1, 2, 4],
        [0, 1, 5],
        [6, 7],
        [0, 1, 2, 4],
    ]
    assert (sum(map(len, rows)), len(pack(rows, shortest=1))) == (17, 8)


def test_a_common_part_too_short_is_repeated() -> None:
    rows = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6]]
    assert pack(rows, shortest=2).ids.tolist() == [1, 2, 3, 4, 3, 5, 6]
    assert pack(rows, shortest=3).ids.tolist() == [1, 2, 3, 4, 5, 1, 2, 6]
    assert pack(rows, shortest=4).ids.tolist() == [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 6]


def test_a_row_that_ends_where_others_go_on() -> None:
    packing = pack([[1, 2, 3], [1, 2], [1, 2, 4]], shortest=1)
    assert packing.ids.tolist() == [1, 2, 3, 4]
    assert packing.places[1].tolist() == [0, 1]


def test_what_is_scored_by_hand() -> None:
    """Both rows end with 9 after the same 1 2 3: it is scored once, and counts in both."""
    packing = pack([[1, 2, 3, 9], [1, 2, 3, 9, 5], [1, 2, 4]], shortest=1)
    found = find_scored(packing, [[0, 0, 0, 1], [0, 0, 0, 1, 1], [1, 0, 1, 1, 1]], width=5)
    assert list(zip(found.predictors.tolist(), found.wanted.tolist(), strict=True)) == [(1, 4), (2, 9), (3, 5)]
    assert found.which.tolist() == [1, 1, 2, 0]
    assert found.cells.tolist() == [2, 4 + 2, 4 + 3, 8 + 1]


@pytest.mark.parametrize(("prompt", "reply", "ratio"), [(500, 40, 8.9), (2000, 80, 12.7), (8000, 100, 18.7)])
def test_the_ratio_is_that_of_real_rows(prompt: int, reply: int, ratio: float) -> None:
    """12 pairs of one prompt, all replies different: 24 (P + C) tokens against P + 24 C."""
    rows = [[1] * prompt + [2 + row] * reply for row in range(24)]
    assert sum(map(len, rows)) == 24 * (prompt + reply)
    assert count_packed_tokens(rows) == prompt + 24 * reply
    assert (
        compute_token_ratio(prompt, reply, 12)
        == sum(map(len, rows)) / count_packed_tokens(rows)
        == pytest.approx(ratio, abs=0.06)
    )


@given(rows=ROWS, shortest=st.integers(1, 5))
def test_every_row_comes_back(rows: list[list[int]], shortest: int) -> None:
    packing = pack(rows, shortest=shortest)
    for number, row in enumerate(rows):
        assert packing.ids[packing.places[number]].tolist() == row
        assert packing.positions[packing.places[number]].tolist() == list(range(len(row)))


@given(rows=ROWS)
def test_every_beginning_stands_once(rows: list[list[int]]) -> None:
    beginnings = {tuple(row[: length + 1]) for row in rows for length in range(len(row))}
    assert len(pack(rows, shortest=1)) == len(beginnings)


@given(rows=ROWS, shortest=st.integers(1, 5))
def test_a_longer_shortest_part_only_adds(rows: list[list[int]], shortest: int) -> None:
    assert len(pack(rows, shortest=1)) <= len(pack(rows, shortest=shortest)) <= sum(map(len, rows))


@given(rows=ROWS, shortest=st.integers(1, 5))
def test_nodes_cover_all_and_what_stands_under_one_follows_it(rows: list[list[int]], shortest: int) -> None:
    """Each row's places are whole nodes, each under the one before."""
    packing = pack(rows, shortest=shortest)
    assert [token for node in packing.nodes for token in range(node.start, node.stop)] == list(range(len(packing)))
    for places in packing.places:
        path = [node for node in packing.nodes if node.start in places]
        assert [token for node in path for token in range(node.start, node.stop)] == places.tolist()
        assert all(above.stop <= node.start < node.end <= above.end for above, node in pairwise(path))
        others = [node for node in packing.nodes if node not in path]
        assert not any(above.start <= token < above.stop for above in others for token in places)


@given(rows=ROWS, data=st.data())
def test_scored_tokens_are_those_of_the_masks(rows: list[list[int]], data: st.DataObject) -> None:
    masks = [data.draw(st.lists(st.integers(0, 1), min_size=len(row), max_size=len(row))) for row in rows]
    width = max(map(len, rows), default=0) + 1
    packing = pack(rows, shortest=1)
    found = find_scored(packing, masks, width)
    expected = {
        number * (width - 1) + at - 1: (tuple(row[:at]), row[at])
        for number, (row, mask) in enumerate(zip(rows, masks, strict=True))
        for at in range(1, len(row))
        if mask[at]
    }
    assert sorted(found.cells.tolist()) == sorted(expected)
    for cell, which in zip(found.cells.tolist(), found.which.tolist(), strict=True):
        before, token = expected[cell]
        assert found.wanted[which] == token
        assert packing.ids[found.predictors[which]] == before[-1]
        assert packing.positions[found.predictors[which]] == len(before) - 1
    assert len(found.wanted) == len(set(expected.values()))


def test_a_packing_of_nothing() -> None:
    assert len(pack([])) == len(pack([[], []])) == 0
    with pytest.raises(ValueError, match="at least 1"):
        pack([[1]], shortest=0)
    assert pack(np.array([[1, 2], [1, 3]], np.int32)).ids.dtype == np.int64
