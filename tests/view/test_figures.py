import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from collab.errors import StoreFailure
from collab.graphs.dag import Dag
from collab.graphs.draw import to_svg
from collab.view.plots import (
    REHEARSAL,
    Bar,
    Line,
    Point,
    bars,
    figures,
    heat,
    lines,
    number,
    rewards_of,
    ticks_of,
    write_figures,
)
from collab.view.raster import to_png, traces
from collab.view.schema.runs import HeatView

HOSTILE = "</text><script>alert(1)</script>&\"'\x00\ud800\u202e"


def words(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


def test_a_training_has_every_plot(overview):
    names = [figure.name for figure in figures(overview)]
    assert names == [
        *("success", "success-tasks", "rewards", "rewards-1", "rewards-2", "agreement", "entropy", "pairs", "unpaired"),
        *("loss", "margin", "staleness", "tokens", "seconds", "graph-1", "graph-2"),
    ]


def test_an_agent_is_drawn_at_the_mean_of_its_rounds_and_older_rows_at_their_number(overview):
    half = replace(overview.epochs[0].rewards, rates=((1.0, 0.5), (None, None)))
    epochs = (replace(overview.epochs[0], older=None), replace(overview.epochs[1], older=60, rewards=half))
    assert [rewards_of(one) for one in epochs] == [{"ada": 0.375, "ben": 0.75}, {"ada": 0.75, "ben": None}]
    drawn = {figure.name: figure.svg for figure in figures(replace(overview, epochs=epochs))}
    discs = re.findall(r'<circle cx="470.00" cy="([\d.]+)"', drawn["rewards"])
    assert discs[0] == "111.00", "three quarters of 220 above 276"
    assert {"ada", "ben"} <= set(words(drawn["rewards"]))
    assert "60" in words(drawn["staleness"]), "the highest mark of the axis"
    assert drawn["staleness"].count("<circle") == 2, "one mark, none for what is not known, and that of the name"


def test_a_graph_tells_what_changed_below_it(overview):
    graph = replace(overview.epochs[1].graph, added=(("ada", "ben"),), removed=(("ben", "cyd"),))
    same = replace(graph, added=(), removed=())
    first, second = overview.epochs
    epochs = (first, replace(second, graph=graph), replace(second, epoch=3, graph=same))
    drawn = {figure.name: figure.svg for figure in figures(replace(overview, epochs=epochs))}
    assert not [word for word in words(drawn["graph-1"]) if "→" in word], "there is none before the first"
    assert words(drawn["graph-2"])[-2:] == ["+ ada → ben", "− ben → cyd"]
    assert words(drawn["graph-3"])[-1] == "as in the epoch before"
    plain, told = (ElementTree.fromstring(drawn[name]) for name in ("graph-1", "graph-2"))
    lowest = max(float(one.attrib["y"]) for one in told.iter() if one.tag.endswith("text"))
    assert int(plain.attrib["height"]) < lowest < int(told.attrib["height"])
    assert to_png(drawn["graph-2"], 1.0)


def test_a_run_has_bars_where_a_training_has_lines(one_epoch):
    drawn = {figure.name: figure.svg for figure in figures(one_epoch)}
    assert list(drawn) == ["success-tasks", "rewards-0", "pairs", "unpaired", "tokens", "seconds", "graph-0"]
    assert {"adversary", "contrast", "40"} <= set(words(drawn["pairs"]))
    assert "44k" in words(drawn["tokens"])
    assert "training" not in words(drawn["seconds"]), "seconds of training are not known, which is not 0"


def test_a_rehearsal_is_marked_in_every_plot_with_numbers(overview):
    marked = replace(overview, run=replace(overview.run, privileged=True))
    for figure in figures(marked):
        assert figure.name.startswith("graph-") or REHEARSAL in figure.svg


def test_training_steps_of_epochs_stand_behind_one_another(overview):
    [svg] = [figure.svg for figure in figures(overview) if figure.name == "loss"]
    assert {"0", "1", "4", "8"} <= set(words(svg))


def test_a_graph_with_a_cycle_is_no_plot(overview):
    graph = replace(overview.epochs[0].graph, edges=(("ada", "ben"), ("ben", "ada")))
    spoilt = replace(overview, epochs=(replace(overview.epochs[0], graph=graph),))
    assert not [figure for figure in figures(spoilt) if figure.name.startswith("graph")]


def test_values_stand_where_the_axis_says():
    line = Line(name="a", points=(Point(x=0, y=0.0), Point(x=1, y=None), Point(x=2, y=1.0, low=0.5, high=1.0)))
    svg = lines("t", "epoch", [line], share=True)
    marks = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    assert marks[:2] == [("78.00", "276.00"), ("470.00", "56.00")], "bottom left and top right of the square"
    assert "M470.00,166.00 L470.00,56.00" in svg, "the interval from a half to one"
    assert 'd="M78.00,276.00 M470.00,56.00"' in svg, "a gap, no line through what is not known"


def test_the_longest_bar_is_the_largest_value_and_unknown_is_no_bar():
    svg = bars(
        "t", [Bar(name="a", value=2, told="2"), Bar(name="b", value=1, told="1"), Bar(name="c", value=None, told="–")]
    )
    assert re.findall(r'<rect x="[\d.]+" y="\d+" width="([\d.]+)"', svg) == ["300.00", "150.00"]


def test_a_heat_map_tells_every_number_and_a_dash_for_none():
    svg = heat("t", ["ada"], ["round 1", "round 2", "round 3"], [[0.0, 1.0, None]])
    assert words(svg)[-3:] == ["0%", "100%", "–"]


@settings(max_examples=40)
@given(
    low=st.floats(-1e9, 1e9),
    span=st.floats(0, 1e9),
)
def test_ticks_are_few_ascending_and_enclose(low, span):
    ticks = ticks_of((low, low + span))
    assert 2 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))
    slack = 1e-9 * max(1.0, abs(low) + span)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0"), (999, "999"), (12345, "12.3k"), (2_500_000, "2.5M"), (0.12345, "0.123"), (-7.5, "-7.5")],
)
def test_numbers_are_short(value, told):
    assert number(value) == told


def test_whatever_is_in_names_stays_text(overview):
    run = replace(overview.run, environment=HOSTILE, agents=HOSTILE)
    epoch = replace(
        overview.epochs[0],
        rewards=HeatView(agents=(HOSTILE,), rounds=1, rates=((0.5,),), critic=HOSTILE),
        pairs={HOSTILE: 3},
    )
    task = replace(overview.tasks[0], name=HOSTILE)
    for figure in figures(replace(overview, run=run, epochs=(epoch,), tasks=(task,))):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(figure.svg).iter()}
        assert tags <= {"svg", "title", "rect", "path", "circle", "text", "g"}
        assert to_png(figure.svg, 0.5)


def test_a_png_shows_what_the_svg_says():
    svg = heat("t", ["ada"], ["round 1"], [[1.0]])
    image = Image.open(io.BytesIO(to_png(svg, 1.0)))
    root = ElementTree.fromstring(svg)
    assert image.size == (int(root.attrib["width"]), int(root.attrib["height"]))
    [cell] = [one for one in root if one.get("rx")]
    x, y = (int(float(cell.get(side))) + 6 for side in ("x", "y"))
    assert image.getpixel((x, y)) == (0x00, 0x4F, 0x7C)
    assert image.getpixel((2, 2)) == (255, 255, 255)


def test_the_thinnest_bar_is_painted():
    svg = bars("t", [Bar(name="a", value=1e-6, told="little"), Bar(name="b", value=1.0, told="much")])
    assert to_png(svg, 1.0)


def test_graphs_are_painted_with_their_curves():
    dag = Dag(slots=("ada", "ben", "cyd"), edges=(("ada", "cyd"), ("ben", "cyd"), ("ada", "ben")))
    image = Image.open(io.BytesIO(to_png(to_svg(dag), 1.0))).convert("RGB")
    colours = {colour for count, colour in image.getcolors(1 << 20) if count > 30}
    assert (0x00, 0x72, 0xB2) in colours, "ada's edges"
    assert (0xD5, 0x5E, 0x00) in colours, "ben's"


def test_paths_lead_where_their_commands_say():
    assert traces("M1,2 h3 v4 L0,0 l1,1 z") == [[(1, 2), (4, 2), (4, 6), (0, 0), (1, 1), (1, 2)]]
    curve = traces("M0,0 C0,8 8,8 8,0")[0]
    assert curve[-1] == (8, 0)
    assert curve[8] == (4, 6), "the middle of a Bézier curve: (0 + 3·8 + 3·8 + 0) / 8"
    with pytest.raises(ValueError, match="our pictures have"):
        traces("M0,0 A1,1 0 0 1 2,2")


def test_what_is_not_ours_is_refused():
    with pytest.raises(ValueError, match="<image>"):
        to_png('<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><image/></svg>')


def test_files_are_written_as_svg_and_png(overview, tmp_path):
    drawn = figures(overview)[1:2]
    paths = write_figures(drawn, tmp_path / "new" / "figures")
    assert [path.name for path in paths] == ["success-tasks.svg", "success-tasks.png"]
    with Image.open(paths[1]) as image:
        assert image.format == "PNG"
    assert paths[0].read_text() == drawn[0].svg
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailure, match="file"):
        write_figures(drawn, tmp_path / "file")
