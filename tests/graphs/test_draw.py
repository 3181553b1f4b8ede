import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.patches import Polygon

from collab.config import EdgeSampler
from collab.graphs.dag import Dag
from collab.graphs.draw import _lay_out, draw_graph, to_mermaid, to_text
from collab.graphs.edges import sample
from collab.utils.plotting import to_svg

SVG = "{http://www.w3.org/2000/svg}"
DAG = Dag(slots=("ada", "ben", "cyd"), edges=(("ada", "cyd"), ("ben", "cyd")))
HOSTILE = '<b>&"#</b>\x07'


def random_dag(size: int, seed: int) -> Dag:
    return sample(EdgeSampler(sampler="uniform"), [f"agent-{number}" for number in range(size)], seed)


def test_text_tells_layers_and_who_hears_whom() -> None:
    assert to_text(DAG) == "layer 1   ada\n          ben\nlayer 2   cyd  hears ada, ben\n"


def test_mermaid_names_every_slot_and_edge() -> None:
    assert to_mermaid(DAG) == (
        'flowchart LR\n    slot0(["ada"])\n    slot1(["ben"])\n    slot2(["cyd"])\n'
        "    slot0 --> slot2\n    slot1 --> slot2\n"
    )


def test_labels_cannot_become_markup() -> None:
    dag = Dag(slots=("a", HOSTILE), edges=(("a", HOSTILE),))
    picture = ElementTree.fromstring(to_svg(draw_graph(dag, title=HOSTILE)))
    assert HOSTILE.replace("\x07", " ") in [text.text for text in picture.iter(f"{SVG}text")]
    assert picture.find(f".//{SVG}b") is None
    assert re.search(r'\(\["[\w#;]+"\]\)', to_mermaid(dag).splitlines()[2])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(0, 1000))
def test_svg_is_xml_with_one_label_per_slot_and_one_head_per_edge(size: int, seed: int) -> None:
    dag = random_dag(size, seed)
    figure = draw_graph(dag)
    picture = ElementTree.fromstring(to_svg(figure))
    labels = [text.text for text in picture.iter(f"{SVG}text")]
    assert labels == [f"layer {number + 1}" for number in range(len(dag.layers))] + list(dag.slots)
    heads = [patch for patch in figure.axes[0].patches if isinstance(patch, Polygon)]
    assert len(heads) == len(dag.edges)


@given(st.integers(1, 8), st.integers(0, 1000))
def test_nothing_stands_on_anything_else_and_all_of_it_is_in_the_picture(size: int, seed: int) -> None:
    dag = random_dag(size, seed)
    layout = _lay_out(dag)
    for places in layout.middle:
        heights = sorted(places.values())
        assert all(below - above >= 60 for above, below in pairwise(heights))
        assert heights[0] >= 20
        assert heights[-1] <= layout.height - 20
    for edge in dag.edges:
        path = layout.path(edge)
        assert [column for column, _ in path] == list(range(path[0][0], path[-1][0] + 1))
        assert all(place in layout.middle[column] for column, place in path)
    assert layout.left[-1] + layout.node < layout.width


def test_the_complete_graph_of_four_has_no_crossing() -> None:
    dag = sample(EdgeSampler(sampler="complete"), ("ada", "ben", "cyd", "dee"), 0)
    layout = _lay_out(dag)
    paths = [layout.path(edge) for edge in dag.edges]
    gaps = [
        (column, layout.middle[column][place], layout.middle[column + 1][after])
        for path in paths
        for (column, place), (_, after) in pairwise(path)
    ]
    for column, here, there in gaps:
        for other, before, after in gaps:
            assert column != other or (here - before) * (there - after) >= 0
