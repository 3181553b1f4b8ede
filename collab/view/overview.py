"""A run in numbers, over its recorded epochs: from its index, with one line of the log per epoch."""

from __future__ import annotations

import contextlib
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from collab.errors import CollabError
from collab.evaluation.failures import COARSE, WORDS, count_failures, read_failures
from collab.evaluation.metrics import Rate
from collab.preferences import store
from collab.preferences.explain import count_sources, count_unpaired
from collab.store.reader import RunReader
from collab.view.common import shorten
from collab.view.labels import Cells, StepScores
from collab.view.readers import OpenRun, list_spending
from collab.view.runs import ListedRun, build_rate, report_in, select_learned
from collab.view.schema.runs import (
    Edge,
    EpochView,
    FailureModeView,
    GraphView,
    HeatView,
    PlayView,
    RunOverview,
    RunRow,
    TaskRateView,
)
from collab.view.search import HALF
from collab.view.step import list_graph_layers, shorten_edges

_AMONG = "trajectory IN (SELECT value FROM json_each(?))"
"""Episodes whose names are given as a JSON list."""
_STEPS = f"""
SELECT count(*), avg(agreement), avg(entropy), total(tie) FROM steps JOIN episodes USING (key)
WHERE NOT copied AND {_AMONG}
"""
_FAILURES = f"""
SELECT failure, count(*) FROM cells JOIN episodes USING (key)
WHERE {_AMONG} AND failure IS NOT NULL GROUP BY failure ORDER BY 2 DESC, 1
"""
_CELLS = f"SELECT count(*) FROM cells JOIN episodes USING (key) WHERE {_AMONG}"
_PLAYED = f"SELECT total(success), total(state != 'unfinished') FROM episodes WHERE {_AMONG}"
_SECONDS = """
SELECT total(deliberation_s), total(environment_s) FROM steps JOIN episodes USING (key) WHERE NOT copied AND epoch = ?
"""
MOST_PLAYS = 500
"""Plays of an epoch that are shown."""
_FIRST = """
SELECT trajectory, step FROM steps JOIN episodes USING (key) WHERE epoch = ? ORDER BY task, episode, step LIMIT 1
"""


def build_overview(row: RunRow, root: ListedRun, run: OpenRun, labels: str | None) -> RunOverview:
    """Build the overview of a run; `labels` names the label set whose rewards count, or is None."""
    tasks, epochs = build_task_rates(root, run.reader), build_epochs(root, run, labels)
    failures = build_failures(root, run.reader)
    return RunOverview(run=row, labels=labels, tasks=tasks, failures=failures, epochs=epochs, best=None)


def build_task_rates(root: ListedRun, reader: RunReader) -> list[TaskRateView]:
    """Compute success per task, over the episodes that count (`report_in`)."""
    report = report_in(root, reader)
    hard = {planned.name: planned.difficulty for planned in reader.manifest.tasks}
    return [
        TaskRateView(name=shorten(one.name), difficulty=shorten(hard.get(one.name)), success=build_rate(one.planned))
        for one in report.by_task
    ]


def build_failures(root: ListedRun, reader: RunReader) -> list[FailureModeView]:
    """Count why episodes failed, over those that count; empty where they were not looked at."""
    among = select_learned(root, reader)
    episodes = [one for one in reader.list_episodes() if among is None or one.id in among]
    try:
        counts = count_failures(episodes, read_failures(reader.directory))
    except CollabError:  # a spoilt file shows nothing; the command that looks again names it
        return []
    return [
        FailureModeView(mode=mode, words=WORDS[mode], coarse=COARSE.get(mode), episodes=count)
        for mode, count in counts.modes.items()
    ]


def build_epochs(root: ListedRun, run: OpenRun, labels: str | None) -> list[EpochView]:
    """Build the epochs of a run, again only when the run has grown; arguments as `build_overview`.

    Votes, failures and rewards cover the episodes that count (`select_learned`), costs cover all.
    """
    run.beside.read()  # first: reading later would make cached values look old
    # A process that dies writes nothing, and yet ends what it played.
    name = f"epochs {labels!r} {run.reader.status}"
    return add_graph_differences(run.get_cached(name, lambda: _build_epochs(root, run, labels)))


def add_graph_differences(epochs: Sequence[EpochView]) -> list[EpochView]:
    """Add to each epoch's graph its changes against the one before."""
    found: list[EpochView] = []
    last: GraphView | None = None
    for epoch in epochs:
        graph = epoch.graph
        if graph is not None and last is not None:
            before, after = set(last.edges), set(graph.edges)
            added, removed = sorted(after - before), sorted(before - after)
            graph = replace(graph, added=added, removed=removed)
        last = graph or last
        found.append(replace(epoch, graph=graph))
    return found


def build_graph_view(agents: Sequence[str], edges: Sequence[Edge]) -> GraphView:
    """Build the view of a graph with its layers, without changes."""
    return GraphView(
        agents=[shorten(agent) for agent in agents],
        edges=shorten_edges(edges),
        layers=list_graph_layers(agents, edges),
        added=(),
        removed=(),
    )


# ------------------------------------------------------------------------------------------------------ inside


def _build_epochs(root: ListedRun, run: OpenRun, labels: str | None) -> list[EpochView]:
    numbers = [number for (number,) in run.reader.query("SELECT DISTINCT epoch FROM episodes ORDER BY epoch")]
    among = select_learned(root, run.reader)
    views = [_build_epoch(root, run, number, among, labels, alone=len(numbers) == 1) for number in numbers]
    if len(views) == 1:
        return [replace(views[0], played=build_rate(report_in(root, run.reader).planned))]
    return views


def _build_epoch(
    root: ListedRun, run: OpenRun, number: int, among: frozenset[str] | None, labels: str | None, *, alone: bool
) -> EpochView:
    reader = run.reader
    # As one JSON list: a query takes any number of episodes in one argument.
    episodes = _list_episodes(reader, number, among)
    names = json.dumps(sorted(episodes))
    steps, agreement, entropy, ties = reader.query(_STEPS, names)[0]
    # Labels are read only where they are shown: they may be larger than the run.
    words = [] if labels is None else _read_scores(run, episodes, labels)
    graph = _read_graph(reader, number)
    # What is not recorded per epoch is counted only where the run has a single one.
    pairs, unpaired = _build_pairs(run, number, episodes, alone=alone)
    plays = _list_plays(root, reader, number)
    return EpochView(
        epoch=number,
        over=reader.status == "finished",
        played=build_rate(_list_played(reader, names)),
        measured=None,
        steps=steps,
        rewards=None if labels is None else _build_counted_heat(run, words, labels, graph, names),
        missing=Counter(shorten(why) for said in words for why in said.missing if why is not None),
        agreement=agreement,
        entropy=entropy,
        ties=int(ties),
        # Kinds of failures come from recorded text and are cut like all of it.
        failures={shorten(kind): count for kind, count in reader.query(_FAILURES, names)},
        pairs=pairs,
        unpaired=unpaired,
        older=None,
        trained=(),
        spent=list(list_spending(run, number, reader.query(_SECONDS, number)[0], alone=alone)),
        graph=graph,
        runs=(),
        plays=plays[:MOST_PLAYS],
        more_plays=max(0, len(plays) - MOST_PLAYS),
    )


def _list_plays(root: ListedRun, reader: RunReader, number: int) -> list[PlayView]:
    """List the plays of an epoch whose worker is known."""
    return [
        PlayView(
            run=root.id,
            episode=one.episode,
            worker=shorten(one.worker),
            version=one.version,
            begun=one.started.timestamp(),
            seconds=one.seconds,
            first=one.first,
            steps=one.steps,
            again=one.again,
            end=one.end,
        )
        for one in reader.list_plays()
        if one.epoch == number and one.worker
    ]


def _list_episodes(reader: RunReader, number: int, among: frozenset[str] | None) -> set[str]:
    found = {episode for (episode,) in reader.query("SELECT trajectory FROM episodes WHERE epoch = ?", number)}
    return found if among is None else found & among


def _list_played(reader: RunReader, names: str) -> Rate:
    successes, episodes = reader.query(_PLAYED, names)[0]
    return Rate(successes=int(successes), episodes=int(episodes))


def _read_scores(run: OpenRun, episodes: Container[str], labels: str) -> list[StepScores]:
    """Read a label set's scores of some episodes' steps."""
    return [said for (episode, _), said in run.beside.read_scores(labels).items() if episode in episodes]


def build_heat(
    shares: Mapping[str, Sequence[float | None]], order: Sequence[str], critic: str | None
) -> HeatView | None:
    """Compute rewards per agent and round; None where nothing was judged.

    Args:
        shares: of each judged agent, by round.
        order: of agents as they are shown, everywhere that of the graph; those that are not in it come behind.
    """
    if not shares:
        return None
    shares = {shorten(agent): row for agent, row in shares.items()}
    rounds = max(len(row) for row in shares.values())
    nothing: Sequence[float | None] = (None,) * rounds
    agents = list(dict.fromkeys([*order, *shares]))
    rates = [shares.get(agent, nothing) for agent in agents]
    return HeatView(agents=agents, rounds=rounds, rates=rates, critic=shorten(critic))


def _build_counted_heat(
    run: OpenRun, words: Sequence[StepScores], labels: str, graph: GraphView | None, names: str
) -> HeatView | None:
    """Build the rewards of the episodes of these names, a JSON list, and how much of them is labelled."""
    known = compute_rates(words)
    rounds = range(1 + max((round for _, round in known), default=-1))
    shares = {agent: [known.get((agent, round)) for round in rounds] for agent, _ in known}
    heat = build_heat(shares, graph.agents if graph else (), run.beside.critic(labels))
    (cells,) = run.reader.query(_CELLS, names)[0]
    return heat and replace(heat, labelled=sum(len(said.cells) for said in words), cells=cells)


def compute_rates(words: Iterable[StepScores]) -> dict[tuple[str, int], float]:
    """Share of rewarded among judged cells, per agent and round; cells that were never judged are left out."""
    alike: defaultdict[Cells, list[array[float]]] = defaultdict(list)
    for said in words:
        alike[said.cells].append(said.scores)
    judged, rewarded = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for cells, rows in alike.items():
        scores = np.asarray(rows).reshape(len(rows), len(cells))
        counts = zip(cells, np.isfinite(scores).sum(axis=0), (scores > HALF).sum(axis=0), strict=True)
        for cell, known, above in counts:
            judged[cell] += int(known)
            rewarded[cell] += int(above)
    return {cell: rewarded[cell] / count for cell, count in judged.items() if count}


def shorten_names(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts under names of a length that can be shown; those that then have the same name are added up."""
    total: Counter[str] = Counter()
    for name, count in counts.items():
        total[shorten(name)] += count
    return dict(total)


def _build_pairs(
    run: OpenRun, number: int, episodes: Container[str], *, alone: bool
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return pairs by source and, where the run is one epoch, by cause what no pair was made of."""
    last = run.beside.read_last_pairs()
    if last is None:
        return {}, {}
    if alone:
        with contextlib.suppress(CollabError):  # the pairs themselves are counted instead
            head = store.read_pair_head(run.reader.directory, last.name)
            return shorten_names(count_sources(head)), shorten_names(count_unpaired(head))
    return shorten_names(last.sources(episodes.__contains__)), {}


def _read_graph(reader: RunReader, number: int) -> GraphView | None:
    """Return the graph at the first step of the epoch."""
    first = reader.query(_FIRST, number)
    if not first:
        return None
    matrix = reader.step(*first[0]).matrix
    return build_graph_view(matrix.agents, matrix.edges)
