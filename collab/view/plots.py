"""Every plot of an overview as a file: SVG for print, PNG for slides.

    for figure in figures(overview):
        figure.svg, to_png(figure.svg)

A run that is no training has one epoch; what would be a line of one point is then a bar.

Charts as stand-alone SVG: lines over epochs, bars, heat maps. Pure functions from numbers to text.

    lines("Held-out success", "epoch", [Line(name="team", points=(Point(x=0, y=0.4, low=0.2, high=0.6),))], share=True)

Drawn like the other pictures of this project: white ground, few lines, colours of Okabe and Ito's palette, which
colour-blind readers can tell apart. Nothing is said by colour alone: every line has marks of its own shape and its name
at its end, every bar and cell its number. A value that is not known is left out or told as a dash, never drawn as 0.

The sheet that charts are drawn on: colours, texts, and a stand-alone SVG document around them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TypeGuard

from collab.errors import GraphError, StoreFailure
from collab.graphs import draw
from collab.graphs.dag import Dag
from collab.utils.files import write_atomic
from collab.view.raster import to_png
from collab.view.schema.runs import EpochView, GraphView, RateView, RunOverview, SpendingView, TaskRateView

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A7B00", "#4D4D4D")
"""Of Okabe and Ito, yellow and black exchanged for what can be read on white."""
INK, PALE, GRID, GROUND, EMPTY = "#1B1F24", "#57606A", "#E3E6EA", "#FFFFFF", "#F3F4F6"
BAR = "#9CC7E4"

_LETTER = 6.6
"""Pixels of a letter of size 12, estimated on the large side."""
_LONGEST = 48
"""Letters of a name that are shown."""
_LONGEST_NOTE = 160
_SIZE = re.compile(r'<svg [^>]*?width="(\d+)" height="(\d+)"')
_END = "</svg>\n"


def document(title: str, note: str, width: float, height: float, body: Sequence[str]) -> str:
    """A whole picture, as wide as its title needs; `note` stands below that, empty for none."""
    note = shortened(note, _LONGEST_NOTE)
    wide = max(width, 32 + breadth(title) * 15 / 12, 32 + breadth(note, _LONGEST_NOTE))
    size = f"{wide:.0f}", f"{height:.0f}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        f'viewBox="0 0 {size[0]} {size[1]}" font-family="system-ui, sans-serif" role="img">',
        f"<title>{_escaped(f'{title}: {note}' if note else title)}</title>",
        f'<rect width="{size[0]}" height="{size[1]}" fill="{GROUND}"/>',
        text(16, 24, title, size=15, weight=600, fill=INK),
        *([text(16, 43, note)] if note else []),
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def footed(picture: str, words: Sequence[str]) -> str:
    """A picture of `collab.graphs.draw` with lines of text below it; the same without any."""
    if not words:
        return picture
    found = _SIZE.search(picture)
    if found is None:
        raise ValueError("a picture tells its size in its first line, width before height")
    wide, high = int(found[1]), int(found[2])
    below = high + 18 * len(words) + 12
    broad = max(wide, round(48 + max(breadth(line, _LONGEST_NOTE) for line in words)))
    lines = [text(24, high + 18 * place + 6, shortened(line, _LONGEST_NOTE)) for place, line in enumerate(words)]
    grown = picture.replace(f'width="{wide}" height="{high}"', f'width="{broad}" height="{below}"', 2)  # and its ground
    grown = grown.replace(f'"0 0 {wide} {high}"', f'"0 0 {broad} {below}"', 1)
    return "\n".join([grown.removesuffix(_END).rstrip(), *lines, _END])


def text(
    x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", weight: int = 400, fill: str = PALE
) -> str:
    """One line of text, its baseline at y."""
    place = f'x="{x:.2f}" y="{y:.2f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {place}>{_escaped(words)}</text>"


def breadth(words: str, longest: int = _LONGEST) -> float:
    """Pixels that a text of size 12 takes, as far as it is shown."""
    shown = shortened(words, longest)
    return _LETTER * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in shown)


def shortened(words: str, longest: int = _LONGEST) -> str:
    """The first letters of a name that is too long."""
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def _escaped(words: str) -> str:
    """Escaped for XML, which also knows no control characters and no half ones."""
    return escape("".join(letter if letter.isprintable() else " " for letter in words))


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number, and a finite one."""
    return value is not None and math.isfinite(value)


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


REHEARSAL = "rehearsal: not a language model"
"""The mark of runs whose agents look at solutions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One plot."""

    name: str
    """For its file: letters, digits and dashes."""
    title: str
    svg: str


def figures(overview: RunOverview) -> tuple[Figure, ...]:
    """All plots for which there are numbers, in the order of the overview."""
    note = _note(overview)
    parts = (
        _success(overview, note),
        _by_agent(overview.epochs, note),
        _rewards(overview.epochs, note),
        _votes(overview.epochs, note),
        _counted("pairs", "Pairs by source", [one.pairs for one in overview.epochs], overview, note),
        _counted("unpaired", "Without a pair, by cause", [one.unpaired for one in overview.epochs], overview, note),
        _training(overview.epochs, note),
        _staleness(overview.epochs, note),
        _spent(overview, note),
        _graphs(overview.epochs),
    )
    return tuple(chain.from_iterable(parts))


def rewards_of(epoch: EpochView) -> dict[str, float | None]:
    """Reward rate of each judged agent: the mean over its rounds, as far as they are known; None where none is."""
    if epoch.rewards is None:
        return {}
    known = {
        agent: [rate for rate in rates if rate is not None]
        for agent, rates in zip(epoch.rewards.agents, epoch.rewards.rates, strict=True)
    }
    return {agent: fmean(rates) if rates else None for agent, rates in known.items()}


def write_figures(drawn: Sequence[Figure], folder: Path) -> list[Path]:
    """Write NAME.svg and NAME.png of each into a folder, which is made; StoreFailure when it cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in drawn:
            for path, content in (
                (folder / f"{figure.name}.svg", figure.svg.encode()),
                (folder / f"{figure.name}.png", to_png(figure.svg)),
            ):
                write_atomic(path, content)
                written.append(path)
    except OSError as error:
        raise StoreFailure(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None
    return written


# ------------------------------------------------------------------------------------------------------ inside


def _note(overview: RunOverview) -> str:
    run = overview.run
    told = f"{run.environment}, {run.agents} on {run.graph}, seed {run.seed}"
    return f"{REHEARSAL}; {told}" if run.privileged else told


def _success(overview: RunOverview, note: str) -> Iterator[Figure]:
    """Success over epochs, where there are several; success per task."""
    kinds: tuple[tuple[str, Callable[[EpochView], RateView | None]], ...] = (
        ("held out", lambda one: one.measured),
        ("played", lambda one: one.played),
    )
    drawn = [Line(name=name, points=tuple(_rate(one, of(one)) for one in overview.epochs)) for name, of in kinds]
    drawn = [line for line in drawn if any(point.y is not None for point in line.points)]
    if drawn and len(overview.epochs) > 1:
        title = "Success, with 95 % intervals"
        yield Figure(name="success", title=title, svg=lines(title, "epoch", drawn, share=True, note=note))
    if overview.tasks:
        title = "Success per task, with 95 % intervals"
        rows = [_task(task) for task in overview.tasks]
        yield Figure(name="success-tasks", title=title, svg=bars(title, rows, most=1.0, note=note))


def _rate(epoch: EpochView, rate: RateView | None) -> Point:
    if rate is None or rate.value is None:
        return Point(x=epoch.epoch, y=None)
    return Point(x=epoch.epoch, y=rate.value, low=rate.low, high=rate.high)


def _task(task: TaskRateView) -> Bar:
    rate = task.success
    told = "–" if rate.value is None else f"{100 * rate.value:.0f}% ({rate.successes}/{rate.episodes})"
    return Bar(name=task.name, value=rate.value, told=told, low=rate.low, high=rate.high)


def _rewards(epochs: Sequence[EpochView], note: str) -> Iterator[Figure]:
    for one in epochs:
        if one.rewards is not None and one.rewards.agents:
            title = f"Share of rewarded cells, epoch {one.epoch}"
            rounds = [f"round {place + 1}" for place in range(one.rewards.rounds)]
            judged = f"{note}; judged by {one.rewards.critic}" if one.rewards.critic else note
            svg = heat(title, one.rewards.agents, rounds, one.rewards.rates, judged)
            yield Figure(name=f"rewards-{one.epoch}", title=title, svg=svg)


def _by_agent(epochs: Sequence[EpochView], note: str) -> Iterator[Figure]:
    """A line per agent over epochs: the mean of its rounds."""
    agents = list(dict.fromkeys(agent for one in epochs if one.rewards is not None for agent in one.rewards.agents))
    if not agents or len(epochs) < 2:
        return
    title = "Reward rate by agent, mean over rounds"
    means = [rewards_of(one) for one in epochs]
    drawn = [
        Line(
            name=agent,
            points=tuple(Point(x=one.epoch, y=known.get(agent)) for one, known in zip(epochs, means, strict=True)),
        )
        for agent in agents
    ]
    yield Figure(name="rewards", title=title, svg=lines(title, "epoch", drawn, share=True, note=note))


def _staleness(epochs: Sequence[EpochView], note: str) -> Iterator[Figure]:
    """What was learned from again, over epochs."""
    points = tuple(Point(x=one.epoch, y=one.older) for one in epochs)
    if len(epochs) > 1 and any(point.y is not None for point in points):
        title = "Staleness: rows of older epochs"
        line = Line(name="older rows", points=points)
        yield Figure(name="staleness", title=title, svg=lines(title, "epoch", [line], note=note))


def _votes(epochs: Sequence[EpochView], note: str) -> Iterator[Figure]:
    measures: tuple[tuple[str, str, bool, Callable[[EpochView], float | None]], ...] = (
        ("agreement", "Agreement: share of cells that voted for the winner", True, lambda one: one.agreement),
        ("entropy", "Entropy of the votes, nats", False, lambda one: one.entropy),
    )
    for name, title, share, of in measures:
        points = tuple(Point(x=one.epoch, y=of(one)) for one in epochs)
        if any(point.y is not None for point in points) and len(epochs) > 1:
            line = Line(name=name, points=points)
            yield Figure(name=name, title=title, svg=lines(title, "epoch", [line], share=share, note=note))


def _counted(
    name: str, title: str, counts: Sequence[Mapping[str, float]], overview: RunOverview, note: str
) -> Iterator[Figure]:
    """Numbers by cause: lines over epochs, or bars where there is one epoch."""
    causes = list(dict.fromkeys(cause for one in counts for cause in one))
    if not causes:
        return
    if len(counts) == 1:
        rows = [Bar(name=cause, value=counts[0][cause], told=number(counts[0][cause])) for cause in causes]
        yield Figure(name=name, title=title, svg=bars(title, rows, note=note))
        return
    drawn = [
        Line(
            name=cause,
            points=tuple(
                Point(x=epoch.epoch, y=one.get(cause)) for epoch, one in zip(overview.epochs, counts, strict=True)
            ),
        )
        for cause in causes
    ]
    yield Figure(name=name, title=title, svg=lines(title, "epoch", drawn, note=note))


def _training(epochs: Sequence[EpochView], note: str) -> Iterator[Figure]:
    """Loss and margin of every policy over all steps of training, one epoch behind the other."""
    for name, title in (("loss", "Loss of training"), ("margin", "Margin: chosen less rejected, times β")):
        points: dict[str, list[Point]] = {}
        begun: dict[str, int] = {}
        for trained in (one for epoch in epochs for one in epoch.trained):
            before = begun.get(trained.policy, 0)
            found = [Point(x=before + one.step, y=getattr(one, name)) for one in trained.measures]
            points.setdefault(trained.policy, []).extend(found)
            begun[trained.policy] = before + trained.steps
        drawn = [
            Line(name=policy, points=tuple(found))
            for policy, found in points.items()
            if any(point.y is not None for point in found)
        ]
        if drawn:
            svg = lines(title, "step of training", drawn, marks=False, note=note)
            yield Figure(name=name, title=title, svg=svg)


def _spent(overview: RunOverview, note: str) -> Iterator[Figure]:
    def tokens(one: SpendingView) -> float | None:
        told = [count for count in (one.prompt_tokens, one.completion_tokens) if count is not None]
        return sum(told) if told else None

    clock = "Seconds by part" if overview.run.kind == "training" else "Seconds by part, added up over episodes"
    measures: tuple[tuple[str, str, Callable[[SpendingView], float | None]], ...] = (
        ("tokens", "Tokens by part", tokens),
        ("seconds", clock, lambda one: one.seconds),
    )
    for name, title, of in measures:
        counts = [
            {part.part: value for part in one.spent if (value := of(part)) is not None} for one in overview.epochs
        ]
        yield from _counted(name, title, counts, overview, note)


def _graphs(epochs: Sequence[EpochView]) -> Iterator[Figure]:
    first = next((one.epoch for one in epochs if one.graph is not None), None)
    for one in epochs:
        if one.graph is None:
            continue
        try:
            dag = Dag(slots=tuple(one.graph.agents), edges=tuple(one.graph.edges))
        except GraphError:  # a spoilt record: it has no layers to be drawn in
            continue
        title = f"Who hears whom, epoch {one.epoch}"
        changes = () if one.epoch == first else _changes(one.graph)
        yield Figure(name=f"graph-{one.epoch}", title=title, svg=footed(draw.to_svg(dag, title), changes))


def _changes(graph: GraphView) -> list[str]:
    """What changed since the epoch before, an edge a line."""
    edges = [*(("+", edge) for edge in graph.added), *(("−", edge) for edge in graph.removed)]
    return [f"{mark} {speaker} → {hearer}" for mark, (speaker, hearer) in edges] or ["as in the epoch before"]
