"""Layers as the index has them are those of the graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collab.graphs.dag import Dag
from collab.store.tables import compute_layers

NAMES = ("ada", "ben", "cyd", "dee", "eve")
PAIRS = [(first, second) for place, first in enumerate(NAMES) for second in NAMES[place + 1 :]]


def test_a_layer_is_behind_all_its_speakers() -> None:
    edges = (("ada", "ben"), ("ben", "dee"), ("ada", "dee"), ("cyd", "dee"))
    assert compute_layers(NAMES, edges) == {"ada": 0, "cyd": 0, "eve": 0, "ben": 1, "dee": 2}


@given(st.permutations(NAMES), st.sets(st.sampled_from(PAIRS)))
def test_they_are_the_layers_of_the_graph(agents: list[str], edges: set[tuple[str, str]]) -> None:
    dag = Dag(slots=tuple(agents), edges=tuple(edges))
    assert compute_layers(dag.slots, dag.edges) == {
        slot: depth for depth, layer in enumerate(dag.layers) for slot in layer
    }


def test_a_cycle_and_what_is_behind_it_have_none() -> None:
    assert compute_layers(NAMES, (("ada", "ben"), ("ben", "cyd"), ("cyd", "ben"), ("cyd", "dee"))) == {
        "ada": 0,
        "eve": 0,
    }
