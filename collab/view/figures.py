"""Every plot of an overview as a file: SVG for print, PNG for slides.

    for figure in figures(overview):
        figure.svg, to_png(figure.svg)

A run that is no training has one epoch; what would be a line of one point is then a bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean

from collab.errors import GraphError, StoreFailure
from collab.graphs import draw
from collab.graphs.dag import Dag
from collab.store.files import write_atomic
from collab.view.chart import Bar, Line, Point, bars, heat, lines, number
from collab.view.raster import to_png
from collab.view.shapes.common import Rate
from collab.view.shapes.overview import EpochView, GraphView, Overview, Spending, TaskRate
from collab.view.sheet import footed

REHEARSAL = "rehearsal: not a language model"
"""The mark of runs whose agents look at solutions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One plot."""

    name: str
    """For its file: letters, digits and dashes."""
    title: str
    svg: str


def figures(overview: Overview) -> tuple[Figure, ...]:
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


def _note(overview: Overview) -> str:
    run = overview.run
    told = f"{run.environment}, {run.agents} on {run.graph}, seed {run.seed}"
    return f"{REHEARSAL}; {told}" if run.privileged else told


def _success(overview: Overview, note: str) -> Iterator[Figure]:
    """Success over epochs, where there are several; success per task."""
    kinds: tuple[tuple[str, Callable[[EpochView], Rate | None]], ...] = (
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


def _rate(epoch: EpochView, rate: Rate | None) -> Point:
    if rate is None or rate.value is None:
        return Point(x=epoch.epoch, y=None)
    return Point(x=epoch.epoch, y=rate.value, low=rate.low, high=rate.high)


def _task(task: TaskRate) -> Bar:
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
    name: str, title: str, counts: Sequence[Mapping[str, float]], overview: Overview, note: str
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


def _spent(overview: Overview, note: str) -> Iterator[Figure]:
    def tokens(one: Spending) -> float | None:
        told = [count for count in (one.prompt_tokens, one.completion_tokens) if count is not None]
        return sum(told) if told else None

    clock = "Seconds by part" if overview.run.kind == "training" else "Seconds by part, added up over episodes"
    measures: tuple[tuple[str, str, Callable[[Spending], float | None]], ...] = (
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
