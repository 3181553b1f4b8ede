"""Pictures of a graph: SVG for pages, Mermaid for Markdown, text for a terminal.

The SVG reads from left to right, one column per layer. An edge that skips layers is led through a place of its own in
each column it passes, and the places of a column are sorted by the mean height of their neighbours, which keeps most
crossings away. An edge has its speaker's colour (from Okabe and Ito's palette, which colour-blind readers can tell
apart), but nothing is said by colour alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

from collab.graphs.dag import Dag

# -------------------------------------------------------------------------------------------------------- text


def to_text(dag: Dag) -> str:
    """One line per slot, grouped by layer: who it is and whom it hears."""
    width = max(len(slot) for slot in dag.slots)
    lines: list[str] = []
    for number, layer in enumerate(dag.layers, start=1):
        for place, slot in enumerate(layer):
            head = f"layer {number}" if place == 0 else ""
            heard = ", ".join(dag.predecessors(slot))
            lines.append(f"{head:<8}  {slot:<{width}}  {'hears ' + heard if heard else ''}".rstrip())
    return "\n".join(lines) + "\n"


def to_mermaid(dag: Dag) -> str:
    """A Mermaid flowchart, to stand in a Markdown block of that language."""
    name = {slot: f"slot{place}" for place, slot in enumerate(dag.slots)}
    nodes = [f'    {name[slot]}(["{_mermaid_label(slot)}"])' for slot in dag.slots]
    edges = [f"    {name[speaker]} --> {name[hearer]}" for speaker, hearer in dag.edges]
    return "\n".join(["flowchart LR", *nodes, *edges]) + "\n"


def _mermaid_label(slot: str) -> str:
    """Whatever Mermaid could read as markup becomes its decimal character code."""
    return "".join(letter if letter.isalnum() or letter in " _-." else f"#{ord(letter)};" for letter in slot)


# ------------------------------------------------------------------------------------------------------ layout

EdgePlace: TypeAlias = tuple[str, ...]
"""What stands in a column: a slot as (slot,), or an edge that passes through as (speaker, hearer)."""

_MARGIN, _HEADING, _NODE, _ROW, _GAP = 24, 30, 40, 62, 88
"""Pixels: outer margin, height of the headings, height of a node, distance of rows, width between columns."""
_LETTER, _PADDING, _NARROWEST = 9, 36, 88
"""Pixels: estimated width of a letter, space beside a label (both sides), width of the narrowest node."""


@dataclass(frozen=True, slots=True)
class _GraphLayout:
    """Where everything stands, in pixels."""

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
        """Columns and places that an edge touches, its ends included."""
        first, last = (self.depth[slot] for slot in edge)
        passed: list[tuple[int, EdgePlace]] = [(column, edge) for column in range(first + 1, last)]
        return [(first, edge[:1]), *passed, (last, edge[1:])]


def _lay_out(dag: Dag) -> _GraphLayout:
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
    _untangle(columns, links)
    node = max(_NARROWEST, _PADDING + _LETTER * max(_breadth(slot) for slot in dag.slots))
    rows = max(len(column) for column in columns)
    top = _MARGIN + _HEADING + rows * _ROW / 2
    return _GraphLayout(
        width=2 * _MARGIN + len(columns) * (node + _GAP) - _GAP,
        height=2 * _MARGIN + _HEADING + rows * _ROW,
        node=node,
        left=tuple(_MARGIN + number * (node + _GAP) for number in range(len(columns))),
        middle=tuple({place: top + _ROW * row for place, row in _rows(column).items()} for column in columns),
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
    there, here = _rows(fixed), _rows(places)

    def pull(place: EdgePlace) -> float:
        rows = [there[other] for other, linked in links if linked == place]
        return fmean(rows) if rows else here[place]

    places.sort(key=pull)


def _rows(places: Sequence[EdgePlace]) -> dict[EdgePlace, float]:
    """Rows of a column, counted from its middle."""
    return {place: row - (len(places) - 1) / 2 for row, place in enumerate(places)}


def _breadth(label: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in label)


# --------------------------------------------------------------------------------------------------------- svg

_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A7B00", "#4D4D4D")
_INK, _PALE = "#1B1F24", "#6B7480"


def to_svg(dag: Dag, title: str = "") -> str:
    """Draw a stand-alone SVG document.

    Args:
        dag: what to draw.
        title: for screen readers and tooltips; empty tells the slots.
    """
    layout = _lay_out(dag)
    colour = {slot: _PALETTE[place % len(_PALETTE)] for place, slot in enumerate(dag.slots)}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width}" height="{layout.height}" '
        f'viewBox="0 0 {layout.width} {layout.height}" font-family="system-ui, sans-serif" role="img">',
        f"<title>{_text(title or 'Who hears whom: ' + ', '.join(dag.slots))}</title>",
        f'<rect width="{layout.width}" height="{layout.height}" fill="#FFFFFF"/>',
        *(_heading(layout, number) for number in range(len(dag.layers))),
        *(_arrow(layout, dag, edge, colour[edge[0]]) for edge in dag.edges),
        *(_node(layout, slot, colour[slot]) for slot in dag.slots),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _heading(layout: _GraphLayout, number: int) -> str:
    x = layout.left[number] + layout.node / 2
    where = f'x="{x:g}" y="{_MARGIN + 10}" text-anchor="middle"'
    return f'<text {where} font-size="12" fill="{_PALE}">layer {number + 1}</text>'


def _node(layout: _GraphLayout, slot: str, colour: str) -> str:
    column = layout.depth[slot]
    left, middle = layout.left[column], layout.middle[column][(slot,)]
    return (
        f'<g><rect x="{left}" y="{middle - _NODE / 2:g}" width="{layout.node}" height="{_NODE}" rx="{_NODE / 2:g}" '
        f'fill="#FFFFFF" stroke="{colour}" stroke-width="2.5"/>'
        f'<text x="{left + layout.node / 2:g}" y="{middle:g}" text-anchor="middle" dominant-baseline="central" '
        f'font-size="15" font-weight="600" fill="{_INK}">{_text(slot)}</text></g>'
    )


def _arrow(layout: _GraphLayout, dag: Dag, edge: tuple[str, str], colour: str) -> str:
    """A line through every place of the edge, level inside columns and curved between them, with its head."""
    path = layout.path(edge)
    heights = [layout.middle[column][place] for column, place in path]
    heights[0] += _port(layout, dag, edge, end=0)
    heights[-1] += _port(layout, dag, edge, end=1)
    x = layout.left[path[0][0]] + layout.node
    line = [f"M{x:g},{heights[0]:g}"]
    for (column, _), before, after in zip(path[1:], heights, heights[1:], strict=False):
        last = column == path[-1][0]
        until = layout.left[column] - (7 if last else 0)
        bend = (until - x) / 2
        line.append(f"C{x + bend:g},{before:g} {until - bend:g},{after:g} {until:g},{after:g}")
        x = layout.left[column] + layout.node
        if not last:
            line.append(f"H{x:g}")
    tip = layout.left[path[-1][0]] - 1
    head = f"M{tip},{heights[-1]:g} l-9,-4.5 v9 z"
    return (
        f'<g><path d="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        f'<path d="{head}" fill="{colour}"/></g>'
    )


def _port(layout: _GraphLayout, dag: Dag, edge: tuple[str, str], end: int) -> float:
    """How far above or below a node's centre line the edge leaves (end 0) or arrives (end 1), in pixels.

    The edges of one side stand in the order of the heights they come from, so that they do not cross at the node.
    """

    def far(other: tuple[str, str]) -> float:
        column, place = layout.path(other)[1 if end == 0 else -2]
        return layout.middle[column][place]

    side = sorted((other for other in dag.edges if other[end] == edge[end]), key=far)
    return (side.index(edge) - (len(side) - 1) / 2) * min(11, (_NODE - 14) / len(side))


def _text(label: str) -> str:
    """Escaped for XML, which also knows no control characters."""
    return escape("".join(letter if letter.isprintable() else " " for letter in label))
