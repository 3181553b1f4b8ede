import itertools
import random
from collections import Counter

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.config import EdgeSampler, GraphDefinition
from collab.errors import GraphError, UnknownName
from collab.graphs.dag import Dag
from collab.graphs.edges import (
    SAMPLERS,
    _count_dags,
    build_dag,
    connect_all,
    connect_chain,
    connect_layers,
    connect_star,
    draw_ordered,
    draw_uniform,
    sample,
)

RNG = random.Random(0)


def all_dags(slots: str) -> set[frozenset[tuple[str, str]]]:
    """Every labelled DAG, by trying every set of edges."""
    pairs = list(itertools.permutations(slots, 2))
    subsets = itertools.chain.from_iterable(itertools.combinations(pairs, size) for size in range(len(pairs) + 1))
    return {frozenset(edges) for edges in subsets if networkx.is_directed_acyclic_graph(networkx.DiGraph(edges))}


def chi_square(counts: Counter[frozenset[tuple[str, str]]], kinds: int) -> float:
    expected = counts.total() / kinds
    return sum((count - expected) ** 2 / expected for count in counts.values()) + (kinds - len(counts)) * expected


def test_fixed_shapes() -> None:
    assert connect_chain("abc", RNG) == [("a", "b"), ("b", "c")]
    assert connect_star("abc", RNG) == [("a", "b"), ("a", "c")]
    assert connect_all("abc", RNG) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert connect_layers("abcd", RNG, widths=[1, 2, 1]) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    assert connect_layers("abc", RNG, widths=[3]) == []


def test_uniform_gives_all_25_dags_of_three_slots_evenly() -> None:
    rng = random.Random(0)
    counts = Counter(frozenset(draw_uniform("abc", rng)) for _ in range(10_000))
    assert set(counts) == all_dags("abc")
    assert len(counts) == 25
    assert chi_square(counts, 25) < 42.98  # 99 % quantile at 24 degrees of freedom


def test_uniform_gives_all_543_dags_of_four_slots_evenly() -> None:
    rng = random.Random(0)
    counts = Counter(frozenset(draw_uniform("abcd", rng)) for _ in range(20_000))
    assert set(counts) == all_dags("abcd")
    assert len(counts) == 543
    assert chi_square(counts, 543) < 622.8  # 99 % quantile at 542 degrees of freedom


def test_the_recurrence_counts_labelled_dags() -> None:
    counts = [sum(_count_dags(slots, sources) for sources in range(1, slots + 1)) for slots in range(1, 9)]
    assert counts == [1, 3, 25, 543, 29_281, 3_781_503, 1_138_779_265, 783_702_329_343]


def test_uniform_over_eight_slots_favours_no_label() -> None:
    rng = random.Random(0)
    draws = 2_000
    counts = Counter(edge for _ in range(draws) for edge in draw_uniform("abcdefgh", rng))
    share = counts.total() / draws / 56
    assert len(counts) == 56
    assert all(count / draws == pytest.approx(share, abs=0.05) for count in counts.values())


def test_ordered_two_slots_by_hand() -> None:
    """An edge comes with probability p, in either direction equally often."""
    rng = random.Random(0)
    counts = Counter(tuple(draw_ordered("ab", rng, p=0.3)) for _ in range(10_000))
    assert counts[()] / 10_000 == pytest.approx(0.7, abs=0.02)
    assert counts[(("a", "b"),)] / 10_000 == pytest.approx(0.15, abs=0.015)
    assert counts[(("b", "a"),)] / 10_000 == pytest.approx(0.15, abs=0.015)


def test_ordered_three_slots_by_hand() -> None:
    """With p = ½ an order gives each of its graphs 1/8: the empty graph fits 6 orders of 6, a full one 1, a → b 3."""
    rng = random.Random(0)
    counts = Counter(frozenset(draw_ordered("abc", rng, p=0.5)) for _ in range(20_000))
    assert counts[frozenset()] / 20_000 == pytest.approx(1 / 8, abs=0.01)
    assert counts[frozenset(connect_all("abc", rng))] / 20_000 == pytest.approx(1 / 48, abs=0.005)
    assert counts[frozenset({("a", "b")})] / 20_000 == pytest.approx(1 / 16, abs=0.008)


def test_ordered_at_its_limits() -> None:
    assert draw_ordered("abcd", RNG, p=0) == []
    assert len(draw_ordered("abcd", RNG, p=1)) == 6
    with pytest.raises(GraphError, match=r"p is 1\.5, allowed: 0 to 1"):
        draw_ordered("ab", RNG, p=1.5)


@given(st.sampled_from(["chain", "star", "complete", "ordered", "uniform"]), st.integers(1, 12), st.integers(0, 2**32))
def test_every_sampler_gives_a_dag_and_the_same_one_for_the_same_seed(name: str, size: int, seed: int) -> None:
    slots = [f"agent{number}" for number in range(size)]
    spec = EdgeSampler(sampler=name)
    assert sample(spec, slots, seed) == sample(spec, slots, seed)
    assert sample(spec, slots, seed).slots == tuple(slots)


def test_random_samplers_follow_the_seed() -> None:
    for name in ("ordered", "uniform"):
        assert len({sample(EdgeSampler(sampler=name), "abcd", seed) for seed in range(50)}) > 30


def test_parameters_reach_the_sampler() -> None:
    assert sample(EdgeSampler(sampler="ordered", p=1.0), "abc", 0).edges != ()
    assert sample(EdgeSampler(sampler="layered", widths=[2, 1]), "abc", 0).layers == (("a", "b"), ("c",))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (EdgeSampler(sampler="chain", p=0.5), "sampler chain has no parameter p; allowed: none"),
        (EdgeSampler(sampler="ordered", widths=[1]), "sampler ordered has no parameter widths; allowed: p"),
        (EdgeSampler(sampler="layered"), "sampler layered needs widths"),
        (EdgeSampler(sampler="layered", widths=[2, 2]), r"widths \[2, 2\] for 3 slots"),
        (EdgeSampler(sampler="layered", widths=[3, 0]), r"widths \[3, 0\] for 3 slots"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_by_name(spec: EdgeSampler, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        sample(spec, "abc", 0)


def test_an_unknown_sampler_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean uniform"):
        sample(EdgeSampler(sampler="unifrom"), "abc", 0)
    assert sorted(SAMPLERS) == ["chain", "complete", "layered", "ordered", "star", "uniform"]


def test_a_definition_with_its_own_edges_draws_nothing() -> None:
    own = GraphDefinition(slots=["a", "b"], edges=[("b", "a")])
    assert build_dag(own, 0) == build_dag(own, 1) == Dag(slots=("a", "b"), edges=(("b", "a"),))
    drawn = GraphDefinition(slots=["a", "b"], edges=EdgeSampler(sampler="chain"))
    assert build_dag(drawn, 0) == Dag(slots=("a", "b"), edges=(("a", "b"),))
