"""The look of every plot, and plots as SVG and PNG; drawn with matplotlib, without pyplot's global state.

    with plot_style():
        axes = create_axes("Held-out success", width=420, height=220)
        axes.plot([0, 1], [0.2, 0.4])
    to_svg(axes.figure), to_png(axes.figure)

White ground, few lines, colours of Okabe and Ito's palette, which colour-blind readers can tell apart. A picture grows
with what stands around its axes, so that no label is cut off. The same numbers give the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A7B00", "#4D4D4D")
"""Colours of Okabe and Ito, without yellow and black, which are hard to read on white."""
INK, PALE, GRID, EMPTY, BAR = "#1B1F24", "#57606A", "#E3E6EA", "#F3F4F6", "#9CC7E4"
MARKS = "osvDosvD"
"""Marks of lines, so that colour alone carries no meaning; the second four are drawn hollow."""

_DPI = 72
"""One point is one pixel, so sizes of text and of axes have the same unit."""
_STYLE: Any = {
    "axes.edgecolor": GRID,
    "axes.labelcolor": PALE,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.color": GRID,
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "collab",
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is no formula
    "xtick.color": GRID,
    "xtick.labelcolor": PALE,
    "ytick.color": GRID,
    "ytick.labelcolor": PALE,
}


@contextlib.contextmanager
def plot_style() -> Iterator[None]:
    """Draw inside this block in the project's style; also a decorator, `@plot_style()`."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def create_axes(title: str, note: str = "", *, width: float, height: float) -> Axes:
    """Return the axes of a new picture, inside `plot_style`.

    Args:
        note: one line below the title; empty for none.
        width: of the axes, in pixels of the SVG; the PNG has twice as many.
        height: likewise.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    # The label is what a reader of the SVG without the picture gets.
    figure.set_label(make_printable(f"{title}: {note}" if note else title))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axisbelow(True)
    # In points above the axes, so that texts keep their distance whatever the picture's size.
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    if title:
        place = (0, 34 if note else 16)
        axes.annotate(make_printable(title), (0, 1), place, fontsize=14, fontweight="bold", **above)
    if note:
        axes.annotate(make_printable(note), (0, 1), (0, 16), color=PALE, **above)
    return axes


def mark_style(place: int) -> dict[str, Any]:
    """Return colour and mark of the line at a place; both differ from its neighbours'."""
    colour = PALETTE[place % len(PALETTE)]
    hollow = place % len(MARKS) >= len(MARKS) // 2
    face = "#FFFFFF" if hollow else colour
    return {"color": colour, "marker": MARKS[place % len(MARKS)], "markersize": 7, "markerfacecolor": face}


def make_printable(words: str, longest: int = 160) -> str:
    """Return a text that any format can hold: without control characters or lone surrogates, and cut if too long."""
    clean = "".join(letter if letter.isprintable() else " " for letter in words)
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def format_number(value: float) -> str:
    """Format a number for people, with three significant digits: 12,345 → 12.3k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.3g}{letter}"
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def to_svg(figure: FigureBase) -> str:
    """Return a stand-alone SVG document."""
    written = _save(figure, "svg", {"Title": figure.get_label(), "Date": None, "Creator": None}).decode()
    return '<svg role="img"' + written[written.index("<svg") + 4 :]


def to_png(figure: FigureBase) -> bytes:
    """Return a PNG with twice as many pixels as the SVG has units."""
    return _save(figure, "png", {"Software": None})


def _save(figure: FigureBase, kind: str, metadata: dict[str, Any]) -> bytes:
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    buffer = io.BytesIO()
    with plot_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        dpi = 2 * _DPI if kind == "png" else _DPI
        figure.savefig(buffer, format=kind, dpi=dpi, bbox_inches="tight", pad_inches=0.2, metadata=metadata)
    return buffer.getvalue()
