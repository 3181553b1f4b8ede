"""Plots of an overview: SVG for print, PNG for slides.

    write_plots(draw_plots(overview), Path("plots"))

A run that is no training has one epoch, so that bars replace lines of one point. Colour is never the only sign: every
line has marks of its own shape, every bar and cell its number. An unknown value is left out or shown as a dash, never
drawn as 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, TypeGuard

from collab.errors import GraphError, StoreFailure
from collab.graphs.dag import Dag
from collab.graphs.draw import draw_graph
from collab.utils.files import write_atomic
from collab.utils.plotting import (
    BAR,
    EMPTY,
    INK,
    PALE,
    create_axes,
    format_number,
    make_printable,
    mark_style,
    plot_style,
    to_png,
    to_svg,
)
from collab.view.schema.runs import (
    CalibrationView,
    EpochView,
    GraphView,
    RateView,
    RunOverview,
    SpendingView,
    TaskRateView,
    TrainedView,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

_WIDE, _HIGH, _ROW, _CELL = 420, 220, 26, (72, 40)
"""Pixels: axes of a line chart, a bar's row, a heat map's cell."""
_LONGEST = 48
"""Most shown letters of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotPoint:
    """One value of a line."""

    x: float
    y: float | None
    """None where it is unknown: the line has a gap there."""
    low: float | None = None
    high: float | None = None
    """Interval around y; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """A line of a chart."""

    name: str
    points: tuple[PlotPoint, ...]
    """In ascending order of x."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a chart."""

    name: str
    value: float | None
    """None where it is unknown."""
    told: str
    """The text behind the bar."""
    low: float | None = None
    high: float | None = None


def is_known(value: float | None) -> TypeGuard[float]:
    """Return whether there is a number, and a finite one."""
    return value is not None and math.isfinite(value)


@plot_style()
def draw_lines(
    title: str, axis: str, drawn: Sequence[PlotLine], *, share: bool = False, marks: bool = True, note: str = ""
) -> FigureBase:
    """Draw lines over a common axis of whole numbers.

    Args:
        share: values are shares: the axis goes from 0 to 1 and is shown in percent.
        marks: mark each value; else the last one of a line only, for lines of many values.
        note: one line below the title.
    """
    from matplotlib.ticker import MaxNLocator

    axes = create_axes(title, note, width=_WIDE, height=_HIGH)
    for place, line in enumerate(drawn):
        xs, ys = [point.x for point in line.points], [_number(point.y) for point in line.points]
        last = [number for number, y in enumerate(ys) if is_known(y)][-1:]
        look = mark_style(place)
        axes.plot(
            xs, ys, label=make_printable(line.name, _LONGEST), linewidth=2, markevery=None if marks else last, **look
        )
        for point in line.points:
            if is_known(point.low) and is_known(point.high):
                axes.vlines(point.x, point.low, point.high, color=look["color"], linewidth=1.5)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    axes.set_xlabel(axis)
    axes.grid(axis="y")
    _scale(axes, drawn, share=share)
    # in the order of the lines' ends, from top to bottom
    handles = sorted(axes.get_lines(), key=lambda line: -_get_last(line.get_ydata()))
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    return axes.figure


@plot_style()
def draw_bars(title: str, drawn: Sequence[Bar], *, most: float | None = None, note: str = "") -> FigureBase:
    """Draw horizontal bars that begin at 0, with their names on the left and their numbers behind them.

    Args:
        most: value of the longest bar possible; None for the largest that is drawn.
    """
    axes = create_axes(title, note, width=300, height=max(1, len(drawn)) * _ROW)
    rows = range(len(drawn))
    axes.barh(rows, [bar.value if is_known(bar.value) else 0.0 for bar in drawn], height=0.7, color=BAR)
    for row, bar in enumerate(drawn):
        end = max([value for value in (bar.value, bar.high) if is_known(value)], default=0.0)
        # An interval only where both ends are known.
        if is_known(bar.low) and is_known(bar.high):
            axes.hlines(row, bar.low, bar.high, color=INK, linewidth=1)
        axes.annotate(
            make_printable(bar.told), (end, row), (8, 0), textcoords="offset points", va="center", annotation_clip=False
        )
    axes.set_yticks(rows, [make_printable(bar.name, _LONGEST) for bar in drawn])
    # Upside down: the first bar stands on top, as in the table.
    axes.set_ylim(max(1, len(drawn)) - 0.5, -0.5)
    longest = max((value for bar in drawn for value in (bar.high, bar.value) if is_known(value)), default=0.0)
    axes.set_xlim(0, most or longest or 1)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(PALE)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    return axes.figure


@plot_style()
def draw_heat(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]], note: str = ""
) -> FigureBase:
    """Draw a table of shares in [0, 1]: the darker the higher, each with its number.

    Args:
        values: per row, one per column; None where nothing is known.
    """
    from matplotlib.colors import LinearSegmentedColormap

    axes = create_axes(title, note, width=len(columns) * _CELL[0], height=len(rows) * _CELL[1])
    # Cells without a value have a colour of their own, and are no 0.
    colours = LinearSegmentedColormap.from_list("share", ["#EEF4F9", "#004F7C"]).with_extremes(bad=EMPTY)
    shares = [[_number(value) for value in row] for row in values]
    axes.pcolormesh(shares, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=2)
    for row, cells in enumerate(shares):
        for column, share in enumerate(cells):
            # White on dark cells, so that numbers can be read on every colour.
            words, ink = (f"{100 * share:.0f}%", "white" if share > 0.55 else INK) if is_known(share) else ("–", INK)
            axes.text(column + 0.5, row + 0.5, words, color=ink, ha="center", va="center")
    axes.set_xticks([place + 0.5 for place in range(len(columns))], columns)
    axes.set_yticks([place + 0.5 for place in range(len(rows))], [make_printable(row, _LONGEST) for row in rows])
    axes.set_ylim(len(rows), 0)
    axes.tick_params(length=0, labelcolor=INK)
    for side in axes.spines.values():
        side.set_visible(False)
    return axes.figure


def _scale(axes: Axes, drawn: Sequence[PlotLine], *, share: bool) -> None:
    """Set the axes' ends and their ticks: shares from 0 to 100 %, other values from 0 or below."""
    from matplotlib.ticker import MaxNLocator

    steps = [point.x for line in drawn for point in line.points] or [0.0]
    room = 0.035 * max(1.0, max(steps) - min(steps))
    axes.set_xlim(min(steps) - room, max(max(steps), min(steps) + 1) + room)
    # Shares always have the same scale, so that plots can be compared by eye.
    if share:
        axes.set_ylim(-0.02, 1.02)
        axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0%", "20%", "40%", "60%", "80%", "100%"])
        return
    known = [one for line in drawn for point in line.points for one in (point.y, point.low, point.high)]
    ends = [0.0, *(value for value in known if is_known(value))]
    top = max(ends) if max(ends) > min(ends) else 1.0
    # Ticks at round numbers, and the axis ends at a tick.
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(min(ends), top)
    room = 0.02 * (ticks[-1] - ticks[0])
    axes.set_ylim(ticks[0] - room, ticks[-1] + room)
    axes.set_yticks(ticks, [format_number(round(float(tick), 12)) for tick in ticks])


def _number(value: float | None) -> float:
    """Return what matplotlib leaves out where a value is not known."""
    return value if is_known(value) else math.nan


def _get_last(values: object) -> float:
    known = [float(value) for value in values if is_known(float(value))]  # type: ignore[attr-defined]
    return known[-1] if known else -math.inf


REHEARSAL = "rehearsal: not a language model"
"""Mark of runs whose agents read solutions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot."""

    name: str
    """Name of its file: letters, digits and dashes."""
    title: str
    figure: FigureBase

    @property
    def svg(self) -> str:
        """The plot as a stand-alone SVG document."""
        return to_svg(self.figure)


def draw_plots(overview: RunOverview) -> tuple[Plot, ...]:
    """Draw all plots for which there are numbers, in the order of the overview."""
    note = _note(overview)
    parts = (
        _plot_success(overview, note),
        _plot_by_agent(overview.epochs, note),
        _plot_rewards(overview.epochs, note),
        _plot_votes(overview.epochs, note),
        _plot_counts("pairs", "Pairs by source", [one.pairs for one in overview.epochs], overview, note),
        _plot_counts("unpaired", "Without a pair, by cause", [one.unpaired for one in overview.epochs], overview, note),
        _plot_learned(overview, note),
        _plot_own_charts(overview, note),
        _plot_training(overview.epochs, note),
        _plot_staleness(overview.epochs, note),
        _plot_spent(overview, note),
        _plot_graphs(overview.epochs),
    )
    return tuple(chain.from_iterable(parts))


def average_rewards(epoch: EpochView) -> dict[str, float | None]:
    """Return the reward rate of each judged agent: the mean over its rounds with a rate; None without any."""
    if epoch.rewards is None:
        return {}
    known = {
        agent: [rate for rate in rates if rate is not None]
        for agent, rates in zip(epoch.rewards.agents, epoch.rewards.rates, strict=True)
    }
    return {agent: fmean(rates) if rates else None for agent, rates in known.items()}


def write_plots(plots: Sequence[Plot], folder: Path) -> list[Path]:
    """Write NAME.svg and NAME.png of each into a folder, which is made; StoreFailure when it cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for plot in plots:
            for path, content in (
                (folder / f"{plot.name}.svg", plot.svg.encode()),
                (folder / f"{plot.name}.png", to_png(plot.figure)),
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


def _plot_success(overview: RunOverview, note: str) -> Iterator[Plot]:
    """Plot success over epochs, where there are several, and success per task."""
    kinds: tuple[tuple[str, Callable[[EpochView], RateView | None]], ...] = (
        ("held out", lambda one: one.measured),
        ("played", lambda one: one.played),
    )
    drawn = [
        PlotLine(name=name, points=tuple(_build_rate_point(one, of(one)) for one in overview.epochs))
        for name, of in kinds
    ]
    # A line without a point would be an empty entry in the legend.
    drawn = [line for line in drawn if any(point.y is not None for point in line.points)]
    if drawn and len(overview.epochs) > 1:
        title = "Success, with 95 % intervals"
        yield Plot(name="success", title=title, figure=draw_lines(title, "epoch", drawn, share=True, note=note))
    if overview.tasks:
        title = "Success per task, with 95 % intervals"
        rows = [_build_task_bar(task) for task in overview.tasks]
        yield Plot(name="success-tasks", title=title, figure=draw_bars(title, rows, most=1.0, note=note))


def _build_rate_point(epoch: EpochView, rate: RateView | None) -> PlotPoint:
    if rate is None or rate.value is None:
        return PlotPoint(x=epoch.epoch, y=None)
    return PlotPoint(x=epoch.epoch, y=rate.value, low=rate.low, high=rate.high)


def _build_task_bar(task: TaskRateView) -> Bar:
    rate = task.success
    told = "–" if rate.value is None else f"{100 * rate.value:.0f}% ({rate.successes}/{rate.episodes})"
    return Bar(name=task.name, value=rate.value, told=told, low=rate.low, high=rate.high)


def _plot_rewards(epochs: Sequence[EpochView], note: str) -> Iterator[Plot]:
    for one in epochs:
        if one.rewards is not None and one.rewards.agents:
            title = f"Share of rewarded cells, epoch {one.epoch}"
            rounds = [f"round {place + 1}" for place in range(one.rewards.rounds)]
            judged = f"{note}; judged by {one.rewards.critic}" if one.rewards.critic else note
            figure = draw_heat(title, one.rewards.agents, rounds, one.rewards.rates, judged)
            yield Plot(name=f"rewards-{one.epoch}", title=title, figure=figure)


def _plot_by_agent(epochs: Sequence[EpochView], note: str) -> Iterator[Plot]:
    """Plot a line per agent over epochs: the mean of its rounds."""
    agents = list(dict.fromkeys(agent for one in epochs if one.rewards is not None for agent in one.rewards.agents))
    if not agents or len(epochs) < 2:
        return
    title = "Reward rate by agent, mean over rounds"
    means = [average_rewards(one) for one in epochs]
    drawn = [
        PlotLine(
            name=agent,
            points=tuple(PlotPoint(x=one.epoch, y=known.get(agent)) for one, known in zip(epochs, means, strict=True)),
        )
        for agent in agents
    ]
    yield Plot(name="rewards", title=title, figure=draw_lines(title, "epoch", drawn, share=True, note=note))


def _plot_staleness(epochs: Sequence[EpochView], note: str) -> Iterator[Plot]:
    """Plot the replayed share of the training data over epochs."""
    points = tuple(PlotPoint(x=one.epoch, y=one.older) for one in epochs)
    if len(epochs) > 1 and any(point.y is not None for point in points):
        title = "Staleness: rows of older epochs"
        line = PlotLine(name="older rows", points=points)
        yield Plot(name="staleness", title=title, figure=draw_lines(title, "epoch", [line], note=note))


def _plot_votes(epochs: Sequence[EpochView], note: str) -> Iterator[Plot]:
    measures: tuple[tuple[str, str, bool, Callable[[EpochView], float | None]], ...] = (
        ("agreement", "Agreement: share of cells that voted for the winner", True, lambda one: one.agreement),
        ("entropy", "Entropy of the votes, nats", False, lambda one: one.entropy),
    )
    for name, title, share, of in measures:
        points = tuple(PlotPoint(x=one.epoch, y=of(one)) for one in epochs)
        if any(point.y is not None for point in points) and len(epochs) > 1:
            line = PlotLine(name=name, points=points)
            yield Plot(name=name, title=title, figure=draw_lines(title, "epoch", [line], share=share, note=note))


def _plot_counts(
    name: str,
    title: str,
    counts: Sequence[Mapping[str, float]],
    overview: RunOverview,
    note: str,
    *,
    share: bool = False,
) -> Iterator[Plot]:
    """Plot numbers by cause: lines over epochs, or bars where there is one epoch."""
    causes = list(dict.fromkeys(cause for one in counts for cause in one))
    if not causes:
        return
    if len(counts) == 1:
        rows = [Bar(name=cause, value=counts[0][cause], told=format_number(counts[0][cause])) for cause in causes]
        yield Plot(name=name, title=title, figure=draw_bars(title, rows, note=note))
        return
    drawn = [
        PlotLine(
            name=cause,
            points=tuple(
                PlotPoint(x=epoch.epoch, y=one.get(cause)) for epoch, one in zip(overview.epochs, counts, strict=True)
            ),
        )
        for cause in causes
    ]
    yield Plot(name=name, title=title, figure=draw_lines(title, "epoch", drawn, share=share, note=note))


def _plot_learned(overview: RunOverview, note: str) -> Iterator[Plot]:
    """Plot shares that were kept, steps that were left out, how well values predict, and their calibration."""
    shares = [{name: part / whole for name, (part, whole) in one.kept.items() if whole} for one in overview.epochs]
    yield from _plot_counts("kept", "Kept, of what was remembered", shares, overview, note, share=True)
    left_out = [one.left_out for one in overview.epochs]
    yield from _plot_counts("left-out", "Steps left out, by cause", left_out, overview, note)
    for key, measure in (("accuracy", "Accuracy"), ("auc", "AUC"), ("ece", "Calibration error (ECE)")):
        known = [
            {f"V of {name}": value for name, one in epoch.predictions.items() if is_known(value := getattr(one, key))}
            for epoch in overview.epochs
        ]
        title = f"{measure} on episodes held out"
        yield from _plot_counts(f"values-{key}", title, known, overview, note, share=key == "accuracy")
    for epoch in sorted({one.epoch for one in overview.calibrations}):
        title = f"How often V came true, epoch {epoch}"
        curves = [one for one in overview.calibrations if one.epoch == epoch]
        drawn = [PlotLine(name=_name_curve(one, curves), points=_build_curve(one)) for one in curves]
        right = PlotLine(name="as predicted", points=tuple(PlotPoint(x=100 * y, y=y) for y in (0.05, 0.95)))
        figure = draw_lines(title, "V in %, in ten bins", [*drawn, right], share=True, note=note)
        yield Plot(name=f"calibration-{epoch}", title=title, figure=figure)


def _plot_own_charts(overview: RunOverview, note: str) -> Iterator[Plot]:
    """Plot what only the algorithm of a training knows: its curves over epochs, and its newest histograms."""
    curves = [one.curves for one in overview.epochs]
    for title in dict.fromkeys(title for one in curves for title in one):
        yield from _plot_counts(_name_file(title), title, [one.get(title, {}) for one in curves], overview, note)
    # Of one epoch: bins may differ from epoch to epoch.
    newest = {title: (one.epoch, bins) for one in overview.epochs for title, bins in one.histograms.items()}
    for title, (epoch, bins) in newest.items():
        rows = [Bar(name=name, value=count, told=str(count)) for name, count in bins.items()]
        told = f"{title}, epoch {epoch}"
        yield Plot(name=_name_file(title), title=told, figure=draw_bars(told, rows, note=note))


def _name_file(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _name_curve(curve: CalibrationView, curves: Sequence[CalibrationView]) -> str:
    several = len({one.policy for one in curves}) > 1
    return f"V of {curve.rated}{f', {curve.policy}' if several else ''}"


def _build_curve(curve: CalibrationView) -> tuple[PlotPoint, ...]:
    known = (one for one in curve.bins if one.solved is not None)
    return tuple(PlotPoint(x=round(50 * (one.low + one.high)), y=one.solved) for one in known)


def _plot_training(epochs: Sequence[EpochView], note: str) -> Iterator[Plot]:
    """Plot each logged metric of every policy over all steps of training, one epoch behind the other."""
    titles = {name: one.title for policy in _list_trained(epochs) for name, one in policy.metrics.items() if one.points}
    for name, title in titles.items():
        points: dict[str, list[PlotPoint]] = {}
        begun: dict[str, int] = {}
        for trained in _list_trained(epochs):
            before = begun.get(trained.policy, 0)
            metric = trained.metrics.get(name)
            found = [PlotPoint(x=before + step, y=value) for step, value in (metric.points if metric else ())]
            points.setdefault(trained.policy, []).extend(found)
            begun[trained.policy] = before + trained.steps
        drawn = [PlotLine(name=policy, points=tuple(found)) for policy, found in points.items() if found]
        figure = draw_lines(title, "step of training", drawn, marks=False, note=note)
        yield Plot(name=name.replace(" ", "-"), title=title, figure=figure)


def _list_trained(epochs: Sequence[EpochView]) -> list[TrainedView]:
    return [one for epoch in epochs for one in epoch.trained]


def _plot_spent(overview: RunOverview, note: str) -> Iterator[Plot]:
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
        yield from _plot_counts(name, title, counts, overview, note)


def _plot_graphs(epochs: Sequence[EpochView]) -> Iterator[Plot]:
    first = next((one.epoch for one in epochs if one.graph is not None), None)
    for one in epochs:
        if one.graph is None:
            continue
        try:
            dag = Dag(slots=tuple(one.graph.agents), edges=tuple(one.graph.edges))
        except GraphError:  # a spoilt record: it has no layers to be drawn in
            continue
        title = f"Who hears whom, epoch {one.epoch}"
        changes = () if one.epoch == first else _format_changes(one.graph)
        yield Plot(name=f"graph-{one.epoch}", title=title, figure=draw_graph(dag, title, changes))


def _format_changes(graph: GraphView) -> list[str]:
    """Format the changes since the epoch before, one line per edge."""
    edges = [*(("+", edge) for edge in graph.added), *(("−", edge) for edge in graph.removed)]
    return [f"{mark} {speaker} → {hearer}" for mark, (speaker, hearer) in edges] or ["as in the epoch before"]
