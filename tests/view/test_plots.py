import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from collab.errors import StoreFailure
from collab.graphs.dag import Dag
from collab.graphs.draw import draw_graph
from collab.utils.plotting import format_number, to_png, to_svg
from collab.view.plots import (
    REHEARSAL,
    Bar,
    PlotLine,
    PlotPoint,
    average_rewards,
    draw_bars,
    draw_heat,
    draw_lines,
    draw_plots,
    write_plots,
)
from collab.view.schema.runs import HeatView

HOSTILE = "</text><script>alert(1)</script>&\"'\x00\ud800\u202e"


def words(figure):
    return [one.text for one in ElementTree.fromstring(to_svg(figure)).iter() if one.tag.endswith("}text")]


def test_a_training_has_every_plot(overview):
    names = [figure.name for figure in draw_plots(overview)]
    assert names == [
        *("success", "success-tasks", "rewards", "rewards-1", "rewards-2", "agreement", "entropy", "pairs", "unpaired"),
        *("loss", "margin", "staleness", "tokens", "seconds", "graph-1", "graph-2"),
    ]


def test_charts_that_only_the_algorithm_knows_are_drawn_of_all_epochs_or_the_newest(overview):
    ages = {"Drawn, by versions since": {"0": 3, "1": 5}}
    curves = [{"Ratio of replies": {"mean": ratio}} for ratio in (0.5, 0.25)]
    first, second = (replace(one, curves=own) for one, own in zip(overview.epochs, curves, strict=True))
    epochs = (replace(first, histograms={**ages, "By priority": {"0 – 1": 2}}), replace(second, histograms=ages))
    drawn = {plot.name: plot for plot in draw_plots(replace(overview, epochs=epochs))}
    assert "mean" in words(drawn["ratio-of-replies"].figure)
    assert drawn["drawn-by-versions-since"].title == "Drawn, by versions since, epoch 2"
    assert {"0", "1", "3", "5"} <= set(words(drawn["drawn-by-versions-since"].figure))
    assert drawn["by-priority"].title == "By priority, epoch 1"


def test_an_agent_is_drawn_at_the_mean_of_its_rounds_and_older_rows_at_their_number(overview):
    half = replace(overview.epochs[0].rewards, rates=((1.0, 0.5), (None, None)))
    epochs = (replace(overview.epochs[0], older=None), replace(overview.epochs[1], older=60, rewards=half))
    assert [average_rewards(one) for one in epochs] == [{"ada": 0.375, "ben": 0.75}, {"ada": 0.75, "ben": None}]
    drawn = {plot.name: plot.figure for plot in draw_plots(replace(overview, epochs=epochs))}
    lines = {line.get_label(): list(line.get_ydata()) for line in drawn["rewards"].axes[0].lines}
    assert lines == {"ada": [0.375, 0.75], "ben": [0.75, pytest.approx(float("nan"), nan_ok=True)]}
    assert {"ada", "ben"} <= set(words(drawn["rewards"]))
    assert "60" in words(drawn["staleness"]), "the highest mark of the axis"
    [older] = drawn["staleness"].axes[0].lines
    assert list(older.get_ydata()) == [pytest.approx(float("nan"), nan_ok=True), 60], "none for what is not known"


def test_a_graph_tells_what_changed_below_it(overview):
    graph = replace(overview.epochs[1].graph, added=(("ada", "ben"),), removed=(("ben", "cyd"),))
    same = replace(graph, added=(), removed=())
    first, second = overview.epochs
    epochs = (first, replace(second, graph=graph), replace(second, epoch=3, graph=same))
    drawn = {plot.name: plot.figure for plot in draw_plots(replace(overview, epochs=epochs))}
    assert not [word for word in words(drawn["graph-1"]) if "→" in word], "there is none before the first"
    assert words(drawn["graph-2"])[-2:] == ["+ ada → ben", "− ben → cyd"]
    assert words(drawn["graph-3"])[-1] == "as in the epoch before"
    plain, changed = (Image.open(io.BytesIO(to_png(drawn[name]))) for name in ("graph-1", "graph-2"))
    assert plain.height < changed.height


def test_a_run_has_bars_where_a_training_has_lines(one_epoch):
    drawn = {plot.name: plot.figure for plot in draw_plots(one_epoch)}
    assert list(drawn) == ["success-tasks", "rewards-0", "pairs", "unpaired", "tokens", "seconds", "graph-0"]
    assert {"adversary", "contrast", "40"} <= set(words(drawn["pairs"]))
    assert "44k" in words(drawn["tokens"])
    assert "training" not in words(drawn["seconds"]), "seconds of training are not known, which is not 0"


@pytest.mark.medium
def test_a_rehearsal_is_marked_in_every_plot_with_numbers(overview):
    marked = replace(overview, run=replace(overview.run, privileged=True))
    for plot in draw_plots(marked):
        assert plot.name.startswith("graph-") or any(REHEARSAL in word for word in words(plot.figure))


def test_training_steps_of_epochs_stand_behind_one_another(overview):
    [loss] = [plot.figure for plot in draw_plots(overview) if plot.name == "loss"]
    assert {"1", "4", "8"} <= set(words(loss))
    assert list(loss.axes[0].lines[0].get_xdata()) == list(range(1, 9))


def test_a_graph_with_a_cycle_is_no_plot(overview):
    graph = replace(overview.epochs[0].graph, edges=(("ada", "ben"), ("ben", "ada")))
    spoilt = replace(overview, epochs=(replace(overview.epochs[0], graph=graph),))
    assert not [plot for plot in draw_plots(spoilt) if plot.name.startswith("graph")]


def test_values_stand_where_the_axis_says():
    line = PlotLine(
        name="a", points=(PlotPoint(x=0, y=0.0), PlotPoint(x=1, y=None), PlotPoint(x=2, y=1.0, low=0.5, high=1.0))
    )
    axes = draw_lines("t", "epoch", [line], share=True).axes[0]
    gap = pytest.approx(float("nan"), nan_ok=True)
    assert list(axes.lines[0].get_ydata()) == [0.0, gap, 1.0], "a gap, no line through what is not known"
    [[interval]] = [lines.get_segments() for lines in axes.collections]
    assert interval.tolist() == [[2, 0.5], [2, 1.0]], "from a half to one"
    bottom, top = axes.get_ylim()
    assert bottom <= 0 < 1 <= top


def test_the_longest_bar_is_the_largest_value_and_unknown_is_no_bar():
    bars = [Bar(name="a", value=2, told="2"), Bar(name="b", value=1, told="1"), Bar(name="c", value=None, told="–")]
    figure = draw_bars("t", bars)
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [2, 1, 0]
    assert axes.get_xlim() == (0, 2)
    assert {"a", "b", "c", "2", "1", "–"} <= set(words(figure))


def test_a_heat_map_shows_every_number_and_a_dash_for_none():
    figure = draw_heat("t", ["ada"], ["round 1", "round 2", "round 3"], [[0.0, 1.0, None]])
    assert {"0%", "100%", "–", "ada", "round 3"} <= set(words(figure))


@settings(max_examples=10, deadline=None)
@given(low=st.floats(-1e9, 1e9), span=st.floats(0, 1e9))
def test_ticks_are_few_ascending_and_enclose(low, span):
    line = PlotLine(name="a", points=(PlotPoint(x=0, y=low), PlotPoint(x=1, y=low + span)))
    ticks = list(draw_lines("t", "epoch", [line]).axes[0].get_yticks())
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
    assert format_number(value) == told


@pytest.mark.medium
def test_whatever_is_in_names_stays_text(overview):
    run = replace(overview.run, environment=HOSTILE, agents=HOSTILE)
    epoch = replace(
        overview.epochs[0],
        rewards=HeatView(agents=(HOSTILE,), rounds=1, rates=((0.5,),), critic=HOSTILE),
        pairs={HOSTILE: 3},
    )
    task = replace(overview.tasks[0], name=HOSTILE)
    for plot in draw_plots(replace(overview, run=run, epochs=(epoch,), tasks=(task,))):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(plot.svg).iter()}
        assert not {"script", "image", "a", "foreignObject"} & tags
        assert to_png(plot.figure)


def test_a_name_with_dollars_is_no_formula():
    figure = draw_bars("$a$", [Bar(name="$x_1$", value=1, told="$y^2$")], note="$n$")
    assert {"$a$", "$x_1$", "$y^2$", "$n$"} <= set(words(figure))


def test_a_png_shows_what_the_svg_says():
    figure = draw_heat("t", ["ada"], ["round 1"], [[1.0]])
    image = Image.open(io.BytesIO(to_png(figure))).convert("RGB")
    root = ElementTree.fromstring(to_svg(figure))
    size = [float(root.attrib[side].removesuffix("pt")) for side in ("width", "height")]
    assert image.size == pytest.approx([2 * side for side in size], abs=2)
    colours = {colour for count, colour in image.getcolors(1 << 20) if count > 1000}
    assert (0x00, 0x4F, 0x7C) in colours
    assert image.getpixel((2, 2)) == (255, 255, 255)


def test_the_thinnest_bar_is_painted():
    bars = [Bar(name="a", value=1e-6, told="little"), Bar(name="b", value=1.0, told="much")]
    assert to_png(draw_bars("t", bars))


def test_the_same_numbers_give_the_same_bytes():
    line = PlotLine(name="a", points=(PlotPoint(x=0, y=0.0), PlotPoint(x=2, y=1.0, low=0.5, high=1.0)))
    first, second = (draw_lines("t", "epoch", [line]) for _ in range(2))
    assert to_svg(first) == to_svg(second)
    assert to_png(first) == to_png(second)
    assert "date" not in to_svg(first)


def test_graphs_are_painted_with_their_curves():
    dag = Dag(slots=("ada", "ben", "cyd"), edges=(("ada", "cyd"), ("ben", "cyd"), ("ada", "ben")))
    image = Image.open(io.BytesIO(to_png(draw_graph(dag)))).convert("RGB")
    colours = {colour for count, colour in image.getcolors(1 << 20) if count > 30}
    assert (0x00, 0x72, 0xB2) in colours, "ada's edges"
    assert (0xD5, 0x5E, 0x00) in colours, "ben's"


def test_files_are_written_as_svg_and_png(overview, tmp_path):
    drawn = draw_plots(overview)[1:2]
    paths = write_plots(drawn, tmp_path / "new" / "figures")
    assert [path.name for path in paths] == ["success-tasks.svg", "success-tasks.png"]
    with Image.open(paths[1]) as image:
        assert image.format == "PNG"
    assert paths[0].read_text() == drawn[0].svg
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailure, match="file"):
        write_plots(drawn, tmp_path / "file")
