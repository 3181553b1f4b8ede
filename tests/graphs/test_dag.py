import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import GraphError, UnknownName
from collab.graphs.dag import Dag
from collab.types import CellRef

SLOTS = ("ada", "ben", "cyd", "dee", "eve", "fay")


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    slots = SLOTS[: draw(st.integers(1, len(SLOTS)))]
    order = draw(st.permutations(slots))
    forward = [(speaker, hearer) for i, speaker in enumerate(order) for hearer in order[i + 1 :]]
    edges = draw(st.lists(st.sampled_from(forward), unique=True)) if forward else []
    return Dag(slots=slots, edges=tuple(edges))


DIAMOND = Dag(
    slots=("dee", "ben", "ada", "cyd"),
    edges=(("cyd", "dee"), ("ben", "dee"), ("ada", "cyd"), ("ada", "ben")),
)


def test_layers_hold_whoever_can_speak_in_file_order() -> None:
    assert DIAMOND.layers == (("ada",), ("ben", "cyd"), ("dee",))
    assert DIAMOND.order == ("ada", "ben", "cyd", "dee")


def test_a_slot_waits_only_for_its_own_predecessors() -> None:
    dag = Dag(slots=("a", "b", "c", "d"), edges=(("a", "b"), ("b", "c"), ("a", "d")))
    assert dag.layers == (("a",), ("b", "d"), ("c",))


def test_predecessors_come_in_the_order_in_which_they_speak() -> None:
    dag = Dag(slots=("late", "a", "b", "hearer"), edges=(("a", "late"), ("late", "hearer"), ("b", "hearer")))
    assert dag.list_predecessors("hearer") == ("b", "late")
    assert dag.list_predecessors("a") == ()


def test_equal_graphs_are_equal_however_their_edges_are_listed() -> None:
    one = Dag(slots=("a", "b", "c"), edges=(("b", "c"), ("a", "b")))
    other = Dag(slots=("a", "b", "c"), edges=(("a", "b"), ("b", "c")))
    assert one == other
    assert hash(one) == hash(other)
    assert one.edges == (("a", "b"), ("b", "c"))


def test_a_cell_reads_its_own_last_word_and_then_what_was_just_said() -> None:
    assert DIAMOND.list_dependencies(CellRef("dee", 0)) == (CellRef("ben", 0), CellRef("cyd", 0))
    assert DIAMOND.list_dependencies(CellRef("dee", 2)) == (CellRef("dee", 1), CellRef("ben", 2), CellRef("cyd", 2))
    assert DIAMOND.list_dependencies(CellRef("ada", 0)) == ()
    assert DIAMOND.list_dependencies(CellRef("ada", 1)) == (CellRef("ada", 0),)


def test_conversation_runs_round_by_round() -> None:
    assert Dag(slots=("a", "b"), edges=(("b", "a"),)).list_cells(2) == (("b", 0), ("a", 0), ("b", 1), ("a", 1))


@given(dags())
def test_layers_respect_every_edge_and_cannot_be_earlier(dag: Dag) -> None:
    depth = {slot: number for number, layer in enumerate(dag.layers) for slot in layer}
    assert sorted(depth) == sorted(dag.slots)
    assert all(depth[speaker] < depth[hearer] for speaker, hearer in dag.edges)
    for slot in dag.slots:
        assert depth[slot] == max((depth[other] + 1 for other in dag.list_predecessors(slot)), default=0)
    for layer in dag.layers:
        assert list(layer) == sorted(layer, key=dag.slots.index)


@given(dags(), st.integers(1, 4))
def test_a_conversation_holds_every_cell_once_and_after_what_it_reads(dag: Dag, rounds: int) -> None:
    cells = dag.list_cells(rounds)
    turn = {cell: place for place, cell in enumerate(cells)}
    assert len(turn) == len(cells) == len(dag.slots) * rounds
    for cell in cells:
        turns = [turn[other] for other in dag.list_dependencies(cell)]
        assert turns == sorted(turns)
        assert all(place < turn[cell] for place in turns)


def test_a_cycle_is_named() -> None:
    with pytest.raises(GraphError) as caught:
        Dag(slots=("a", "b", "c", "d"), edges=(("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")))
    assert "b → c → b" in str(caught.value)


@pytest.mark.parametrize(
    ("slots", "edges", "message"),
    [
        ((), (), "without slots"),
        (("a", "a"), (), "'a' is given twice"),
        (("ada", "ben"), (("ada", "bn"),), "edge ada → bn: no slot called 'bn'; did you mean ben?"),
        (("a", "b"), (("a", "a"),), "edge a → a"),
        (("a", "b"), (("a", "b"), ("a", "b")), "edge a → b is given twice"),
    ],
)
def test_what_is_not_a_graph_is_refused_by_name(
    slots: tuple[str, ...], edges: tuple[tuple[str, str], ...], message: str
) -> None:
    with pytest.raises(GraphError) as caught:
        Dag(slots=slots, edges=edges)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_asking_for_an_unknown_slot_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean ada"):
        DIAMOND.list_predecessors("adda")
