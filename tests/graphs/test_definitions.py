"""The graphs that come with the project."""

import pytest

from collab.config import GraphDefinition
from collab.graphs.edges import build_dag
from collab.library import Library

NAMES = Library().list_names("graphs")


def load(name: str) -> GraphDefinition:
    return Library().load("graphs", name, GraphDefinition)


@pytest.mark.parametrize("name", NAMES)
def test_every_definition_gives_a_graph_and_says_what_it_is_for(name: str) -> None:
    definition = load(name)
    assert definition.description
    for seed in range(20):
        assert build_dag(definition, seed).slots == tuple(definition.slots)


def test_the_shapes_are_what_their_names_say() -> None:
    assert {"single", "team", "chain4", "star4", "layered4", "complete4", "silent4"} <= set(NAMES)
    layers = {name: [len(layer) for layer in build_dag(load(name), 0).layers] for name in NAMES}
    edges = {name: len(build_dag(load(name), 0).edges) for name in NAMES}
    assert (layers["single"], load("single").rounds) == ([1], 1)
    assert (layers["chain4"], edges["chain4"]) == ([1, 1, 1, 1], 3)
    assert (layers["star4"], edges["star4"]) == ([1, 3], 3)
    assert (layers["layered4"], edges["layered4"]) == ([1, 2, 1], 4)
    assert (layers["complete4"], edges["complete4"]) == ([1, 1, 1, 1], 6)
    assert (layers["silent4"], edges["silent4"]) == ([4], 0)


def test_the_team_is_drawn_anew_for_every_epoch() -> None:
    team = load("team")
    assert (len(team.slots), team.rounds, team.rewire) == (4, 3, "epoch")
    assert len({build_dag(team, seed) for seed in range(20)}) > 10
