"""Graphs as a picture, as Mermaid for Markdown, and as text for a terminal.

The picture reads from left to right, one column per layer. An edge that skips layers gets a place in each column it
passes. Places of a column are sorted by the mean height of their neighbours, which avoids most crossings. An edge has
its speaker's colour, but colour alone carries no meaning.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from collab.graphs.dag import Dag
from collab.utils.plotting import PALE, PALETTE, create_axes, make_printable, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

# -------------------------------------------------------------------------------------------------------- text


def to_text(dag: Dag) -> str:
    """Format one line per slot, grouped by layer: the slot and the slots that it hears."""
    width = max(len(slot) for slot in dag.slots)
    lines: list[str] = []
    for number, layer in enumerate(dag.layers, start=1):
        for place, slot in enumerate(layer):
            head = f"layer {number}" if place == 0 else ""
            heard = ", ".join(dag.list_predecessors(slot))
            lines.append(f"{head:<8}  {slot:<{width}}  {'hears ' + heard if heard else ''}".rstrip())
    return "\n".join(lines) + "\n"


def to_mermaid(dag: Dag) -> str:
    """Format a Mermaid flowchart, for a Markdown block of that language."""
    name = {slot: f"slot{place}" for place, slot in enumerate(dag.slots)}
    nodes = [f'    {name[slot]}(["{_escape_mermaid(slot)}"])' for slot in dag.slots]
    edges = [f"    {name[speaker]} --> {name[hearer]}" for speaker, hearer in dag.edges]
    return "\n".join(["flowchart LR", *nodes, *edges]) + "\n"


def _escape_mermaid(slot: str) -> str:
    """Replace letters that Mermaid could read as markup by their decimal character codes."""
    return "".join(letter if letter.isalnum() or letter in " _-." else f"#{ord(letter)};" for letter in slot)


# ------------------------------------------------------------------------------------------------------ layout

EdgePlace: TypeAlias = tuple[str, ...]
"""A place in a column: a slot as (slot,), or an edge that passes through as (speaker, hearer)."""

_MARGIN, _HEADING, _NODE, _ROW, _GAP = 24, 30, 40, 62, 88
"""Pixels: outer margin, height of the headings, height of a node, distance of rows, width between columns."""
_LETTER, _PADDING, _NARROWEST = 10, 36, 88
"""Pixels: estimated width of a letter, space beside a label (both sides), width of the narrowest node."""


@dataclass(frozen=True, slots=True)
class _GraphLayout:
    """Positions of all parts, in pixels."""

    width: int
    height: int
    node: int
    """Width of a node."""
    left: tuple[int, ...]
    """Left side of each column."""
    middle: tuple[dict[EdgePlace, float], ...]
    """Per column: centre line of each place."""
    depth: dict[str, int]
    """Column of each slot."""

    def path(self, edge: tuple[str, str]) -> list[tuple[int, EdgePlace]]:
        """Return the columns and places that an edge touches, its ends included."""
        first, last = (self.depth[slot] for slot in edge)
        passed: list[tuple[int, EdgePlace]] = [(column, edge) for column in range(first + 1, last)]
        return [(first, edge[:1]), *passed, (last, edge[1:])]


def _lay_out(dag: Dag) -> _GraphLayout:
    # An edge over several layers reserves a place in each of them, so that no line crosses a box.
    depth = {slot: number for number, layer in enumerate(dag.layers) for slot in layer}
    columns: list[list[EdgePlace]] = [[(slot,) for slot in layer] for layer in dag.layers]
    links: list[list[tuple[EdgePlace, EdgePlace]]] = [[] for _ in columns]
    for edge in dag.edges:
        first, last = depth[edge[0]], depth[edge[1]]
        for column in range(first + 1, last):
            columns[column].append(edge)
        stations: list[EdgePlace] = [edge[:1], *[edge] * (last - first - 1), edge[1:]]
        for column, link in enumerate(pairwise(stations), start=first):
            links[column].append(link)
    # Rows are reordered first: widths and heights below depend on where things stand.
    _untangle(columns, links)
    # One width for all boxes, that of the longest name: columns stay aligned.
    node = max(_NARROWEST, _PADDING + _LETTER * max(_measure_breadth(slot) for slot in dag.slots))
    rows = max(len(column) for column in columns)
    top = _MARGIN + _HEADING + rows * _ROW / 2
    return _GraphLayout(
        width=2 * _MARGIN + len(columns) * (node + _GAP) - _GAP,
        height=2 * _MARGIN + _HEADING + rows * _ROW,
        node=node,
        left=tuple(_MARGIN + number * (node + _GAP) for number in range(len(columns))),
        middle=tuple({place: top + _ROW * row for place, row in _count_rows(column).items()} for column in columns),
        depth=depth,
    )


def _untangle(columns: list[list[EdgePlace]], links: list[list[tuple[EdgePlace, EdgePlace]]]) -> None:
    """Sort each column by its neighbours on the left, then on the right, a few times over."""
    for _ in range(4):
        for number in range(1, len(columns)):
            _sort(columns[number], columns[number - 1], links[number - 1])
        for number in reversed(range(len(columns) - 1)):
            _sort(columns[number], columns[number + 1], [(right, left) for left, right in links[number]])


def _sort(places: list[EdgePlace], fixed: list[EdgePlace], links: list[tuple[EdgePlace, EdgePlace]]) -> None:
    there, here = _count_rows(fixed), _count_rows(places)

    def pull(place: EdgePlace) -> float:
        rows = [there[other] for other, linked in links if linked == place]
        return fmean(rows) if rows else here[place]

    places.sort(key=pull)


def _count_rows(places: Sequence[EdgePlace]) -> dict[EdgePlace, float]:
    """Return row offsets of a column, counted from its middle."""
    return {place: row - (len(places) - 1) / 2 for row, place in enumerate(places)}


def _measure_breadth(label: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in label)


# ------------------------------------------------------------------------------------------------------ picture


@plot_style()
def draw_graph(dag: Dag, title: str = "", below: Sequence[str] = ()) -> FigureBase:
    """Draw a graph's slots and edges.

    Args:
        dag: the graph.
        title: for screen readers and tooltips; empty names the slots.
        below: lines of text below the picture.
    """
    layout = _lay_out(dag)
    axes = create_axes("", width=layout.width, height=layout.height)
    axes.figure.set_label(make_printable(title or "Who hears whom: " + ", ".join(dag.slots)))
    axes.set(xlim=(0, layout.width), ylim=(layout.height, 0))
    axes.set_axis_off()
    colour = {slot: PALETTE[place % len(PALETTE)] for place, slot in enumerate(dag.slots)}
    for number in range(len(dag.layers)):
        middle = layout.left[number] + layout.node / 2
        axes.text(middle, _MARGIN + 10, f"layer {number + 1}", fontsize=12, color=PALE, ha="center", va="baseline")
    # Edges first, so that boxes lie over their ends.
    for edge in dag.edges:
        _draw_edge(axes, layout, dag, edge, colour[edge[0]])
    for slot in dag.slots:
        _draw_node(axes, layout, slot, colour[slot])
    for place, line in enumerate(below, start=1):
        axes.text(_MARGIN, layout.height - 10 + 18 * place, make_printable(line), fontsize=12, color=PALE)
    return axes.figure


def _draw_node(axes: Axes, layout: _GraphLayout, slot: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    column = layout.depth[slot]
    left, middle = layout.left[column], layout.middle[column][(slot,)]
    shape = f"round,pad=0,rounding_size={_NODE / 2}"
    axes.add_patch(
        FancyBboxPatch(
            (left, middle - _NODE / 2), layout.node, _NODE, boxstyle=shape, facecolor="white", edgecolor=colour, lw=2.5
        )
    )
    name = make_printable(slot)
    axes.text(left + layout.node / 2, middle, name, fontsize=14, fontweight="bold", ha="center", va="center")


def _draw_edge(axes: Axes, layout: _GraphLayout, dag: Dag, edge: tuple[str, str], colour: str) -> None:
    """Draw a line through every place of the edge, level inside columns and curved between them, with its head."""
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path

    # The line starts and ends at ports, not at the box's middle, so that several edges do not lie on each other.
    path = layout.path(edge)
    heights = [layout.middle[column][place] for column, place in path]
    heights[0] += _place_port(layout, dag, edge, end=0)
    heights[-1] += _place_port(layout, dag, edge, end=1)
    x: float = layout.left[path[0][0]] + layout.node
    # Cubic curves between columns, straight lines within: an edge that passes a column keeps its own row there.
    spots, codes = [(x, heights[0])], [Path.MOVETO]
    for (column, _), before, after in zip(path[1:], heights, heights[1:], strict=False):
        last = column == path[-1][0]
        until = layout.left[column] - (7 if last else 0)
        bend = (until - x) / 2
        spots += [(x + bend, before), (until - bend, after), (until, after)]
        codes += [Path.CURVE4] * 3
        x = layout.left[column] + layout.node
        if not last:
            spots.append((x, after))
            codes.append(Path.LINETO)
    axes.add_patch(PathPatch(Path(spots, codes), facecolor="none", edgecolor=colour, lw=2))
    # A head of its own: matplotlib's arrows would bend with the curve.
    tip, height = layout.left[path[-1][0]] - 1, heights[-1]
    axes.add_patch(Polygon([(tip, height), (tip - 9, height - 4.5), (tip - 9, height + 4.5)], color=colour, lw=0))


def _place_port(layout: _GraphLayout, dag: Dag, edge: tuple[str, str], end: int) -> float:
    """Return how far above or below a node's centre line the edge leaves (end 0) or arrives (end 1), in pixels.

    The edges of one side stand in the order of their other ends' heights, so that they do not cross at the node.
    """

    def far(other: tuple[str, str]) -> float:
        column, place = layout.path(other)[1 if end == 0 else -2]
        return layout.middle[column][place]

    side = sorted((other for other in dag.edges if other[end] == edge[end]), key=far)
    return (side.index(edge) - (len(side) - 1) / 2) * min(11, (_NODE - 14) / len(side))
