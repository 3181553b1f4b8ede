"""Charts as stand-alone SVG: lines over epochs, bars, heat maps. Pure functions from numbers to text.

    lines("Held-out success", "epoch", [Line(name="team", points=(Point(x=0, y=0.4, low=0.2, high=0.6),))], share=True)

Drawn like the other pictures of this project: white ground, few lines, colours of Okabe and Ito's palette, which
colour-blind readers can tell apart. Nothing is said by colour alone: every line has marks of its own shape and its name
at its end, every bar and cell its number. A value that is not known is left out or told as a dash, never drawn as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collab.view.sheet import BAR, EMPTY, GRID, GROUND, INK, PALE, PALETTE, breadth, document, is_known, shortened, text

_WIDE, _HIGH, _TOP, _LEFT, _FOOT, _NAMES = 420, 220, 56, 64, 46, 150
"""Pixels: the square of a line chart, what stands around it, and the room for names on the right."""
_ROW, _CELL, _STRETCH = 26, (72, 40), 300
"""Pixels: a bar's row, a heat map's cell, the longest bar."""

Told = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a line."""

    x: float
    y: float | None
    """None where it is not known: the line has a gap there."""
    low: float | None = None
    high: float | None = None
    """Interval around y; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a chart."""

    name: str
    points: tuple[Point, ...]
    """In ascending order of x."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a chart."""

    name: str
    value: float | None
    """None where it is not known."""
    told: str
    """What is written behind it."""
    low: float | None = None
    high: float | None = None


def lines(
    title: str, axis: str, drawn: Sequence[Line], *, share: bool = False, marks: bool = True, note: str = ""
) -> str:
    """Lines over a common axis of whole numbers.

    Args:
        share: values are shares: the axis goes from 0 to 1 and is told in percent.
        marks: mark each value; else the last one of a line only, for lines of many values.
        note: one line below the title.
    """
    told: Told = (lambda value: f"{100 * value:g}%") if share else number
    points = [point for line in drawn for point in line.points]
    ticks = _percents() if share else ticks_of(_extent(points))
    steps = _whole([point.x for point in points])
    plane = _Plane(left=steps[0], right=max(steps[-1], steps[0] + 1), bottom=ticks[0], top=ticks[-1])
    body = [*_grid(plane, ticks, told), *_feet(plane, steps, axis)]
    for place, line in enumerate(drawn):
        body += _line(plane, line, place, marks)
    body += _line_names(plane, drawn)
    return document(title, note, _LEFT + _WIDE + _NAMES, _TOP + _HIGH + _FOOT, body)


def bars(title: str, drawn: Sequence[Bar], *, most: float | None = None, note: str = "") -> str:
    """Horizontal bars that begin at 0, with their names on the left and their numbers behind them.

    Args:
        most: value of the longest bar possible; None for the largest that is drawn.
    """
    left = 16 + max([breadth(bar.name) for bar in drawn], default=0)
    reach = most or max([*(bar.high or bar.value or 0 for bar in drawn), 0]) or 1
    behind = max([breadth(bar.told) for bar in drawn], default=0)
    body = [part for row, bar in enumerate(drawn) for part in _bar(bar, left, _TOP + row * _ROW, reach)]
    return document(title, note, left + _STRETCH + behind + 40, _TOP + max(1, len(drawn)) * _ROW + 16, body)


def heat(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]], note: str = ""
) -> str:
    """A table of shares in [0, 1]: the darker the higher, each with its number.

    Args:
        values: per row, one per column; None where nothing is known.
    """
    left, (wide, high) = 28 + max([breadth(row) for row in rows], default=0), _CELL
    body = [
        text(left + (place + 0.5) * wide, _TOP + 14, column, anchor="middle") for place, column in enumerate(columns)
    ]
    for place, row in enumerate(rows):
        top = _TOP + 24 + place * high
        body.append(text(left - 12, top + high / 2 + 4, shortened(row), anchor="end", fill=INK))
        for column, value in enumerate(values[place]):
            body += _cell(left + column * wide, top, value)
    return document(title, note, left + len(columns) * wide + 28, _TOP + 24 + len(rows) * high + 20, body)


def number(value: float) -> str:
    """A number as people read it: 12,345 → 12.3k; three digits that count."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.3g}{letter}"
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def ticks_of(extent: tuple[float, float], most: int = 6) -> list[float]:
    """At most `most` round numbers that enclose an extent, in ascending order; at least two."""
    low, high = extent
    if math.isclose(low, high, rel_tol=1e-9, abs_tol=1e-9):
        low, high = (low - 1, high + 1) if low else (0.0, 1.0)
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power, 20 * power):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first < most:
            return [round(place * step, 12) for place in range(first, last + 1)]
    return [low, high]


# -------------------------------------------------------------------------------------------------------- lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plane:
    """Where values stand on the page."""

    left: float
    right: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        return _LEFT + 14 + (_WIDE - 28) * (value - self.left) / (self.right - self.left)

    def y(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        return _TOP + _HIGH * (1 - min(1.0, max(0.0, share)))


def _extent(points: Sequence[Point]) -> tuple[float, float]:
    known = [value for point in points for value in (point.y, point.low, point.high) if is_known(value)]
    return (min(0.0, *known), max(0.0, *known)) if known else (0.0, 1.0)


def _percents() -> list[float]:
    return [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def _whole(values: Sequence[float]) -> list[int]:
    """Whole numbers to stand below an axis: all of them, or every so many."""
    if not values:
        return [0]
    first, last = math.floor(min(values)), math.ceil(max(values))
    step = max(1, math.ceil((last - first) / 10))
    return list(range(first, last + step, step))


def _grid(plane: _Plane, ticks: Sequence[float], told: Told) -> list[str]:
    parts = []
    for tick in ticks:
        y = plane.y(tick)
        parts.append(f'<path d="M{_LEFT},{y:.2f} h{_WIDE}" stroke="{GRID}" fill="none"/>')
        parts.append(text(_LEFT - 8, y + 4, told(tick), size=11, anchor="end"))
    return parts


def _feet(plane: _Plane, steps: Sequence[int], axis: str) -> list[str]:
    floor = _TOP + _HIGH
    feet = [text(plane.x(step), floor + 18, str(step), size=11, anchor="middle") for step in steps]
    return [*feet, text(_LEFT + _WIDE / 2, floor + 36, axis, anchor="middle")]


def _line(plane: _Plane, line: Line, place: int, marks: bool) -> list[str]:
    """Whiskers, the line with its gaps, and its marks."""
    colour = PALETTE[place % len(PALETTE)]
    known = [(point, point.y) for point in line.points if is_known(point.y)]
    parts = [
        f'<path d="M{plane.x(point.x):.2f},{plane.y(point.low):.2f} L{plane.x(point.x):.2f},{plane.y(point.high):.2f}" '
        f'stroke="{colour}" stroke-width="1.5" fill="none"/>'
        for point, _ in known
        if point.low is not None and point.high is not None
    ]
    path, pen_down = [], False
    for point in line.points:
        if not is_known(point.y):
            pen_down = False
            continue
        path.append(f"{'L' if pen_down else 'M'}{plane.x(point.x):.2f},{plane.y(point.y):.2f}")
        pen_down = True
    if path:
        parts.append(f'<path d="{" ".join(path)}" stroke="{colour}" stroke-width="2" fill="none"/>')
    return [
        *parts,
        *(_mark(plane.x(point.x), plane.y(y), colour, place) for point, y in (known if marks else known[-1:])),
    ]


def _mark(x: float, y: float, colour: str, place: int) -> str:
    """A mark of the line's own shape: disc, square, triangle, diamond, and then the same four hollow."""
    look = f'fill="{colour if place % 8 < 4 else GROUND}" stroke="{colour}" stroke-width="1.5"'
    match place % 4:
        case 0:
            return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" {look}/>'
        case 1:
            return f'<rect x="{x - 3.5:.2f}" y="{y - 3.5:.2f}" width="7" height="7" {look}/>'
        case 2:
            return f'<path d="M{x:.2f},{y - 5:.2f} l4.5,8.5 l-9,0 z" {look}/>'
        case _:
            return f'<path d="M{x:.2f},{y - 5.5:.2f} l5,5.5 l-5,5.5 l-5,-5.5 z" {look}/>'


def _line_names(plane: _Plane, drawn: Sequence[Line]) -> list[str]:
    """Names on the right, near the ends of their lines and never upon one another."""
    ends = []
    for place, line in enumerate(drawn):
        known = [point.y for point in line.points if is_known(point.y)]
        ends.append((plane.y(known[-1]) if known else _TOP + _HIGH, place, line.name))
    parts, lowest = [], _TOP - 8.0
    ends.sort()
    for left, (height, place, name) in enumerate(ends):
        room = _TOP + _HIGH + 8 - 18 * (len(ends) - 1 - left)
        y = max(lowest + 18, min(height, room))
        lowest = y
        parts.append(_mark(_LEFT + _WIDE + 14, y, PALETTE[place % len(PALETTE)], place))
        parts.append(text(_LEFT + _WIDE + 26, y + 4, shortened(name, 17), fill=INK))
    return parts


# -------------------------------------------------------------------------------------------------- bars, cells


def _bar(bar: Bar, left: float, top: float, reach: float) -> list[str]:
    parts = [text(left - 8, top + 17, shortened(bar.name), anchor="end", fill=INK)]
    parts.append(f'<path d="M{left:g},{top:g} v{_ROW}" stroke="{PALE}" fill="none"/>')
    end = left
    if is_known(bar.value):
        wide = _STRETCH * min(1.0, max(0.0, bar.value) / reach)
        end = left + wide
        parts.append(f'<rect x="{left:g}" y="{top + 4:g}" width="{wide:.2f}" height="{_ROW - 8}" fill="{BAR}"/>')
    if bar.low is not None and bar.high is not None:
        begin, end = left + _STRETCH * bar.low / reach, max(end, left + _STRETCH * bar.high / reach)
        middle = top + _ROW / 2
        parts.append(f'<path d="M{begin:.2f},{middle:g} L{end:.2f},{middle:g}" stroke="{INK}" fill="none"/>')
    return [*parts, text(end + 8, top + 17, bar.told)]


def _cell(left: float, top: float, value: float | None) -> list[str]:
    wide, high = _CELL
    known = is_known(value)
    share = min(1.0, max(0.0, value or 0.0))
    fill = _shade(share) if known else EMPTY
    ink = GROUND if known and share > 0.55 else INK
    place = f'x="{left + 1:g}" y="{top + 1:g}" width="{wide - 2}" height="{high - 2}"'
    told = f"{100 * share:.0f}%" if known else "–"
    return [
        f'<rect {place} rx="3" fill="{fill}"/>',
        text(left + wide / 2, top + high / 2 + 4, told, anchor="middle", fill=ink),
    ]


def _shade(share: float) -> str:
    """From nearly white to the palette's blue."""
    light, dark = (0xEE, 0xF4, 0xF9), (0x00, 0x4F, 0x7C)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(light, dark, strict=True))
