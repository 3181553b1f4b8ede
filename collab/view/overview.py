"""A run in numbers, over the epochs that it recorded; asked of its index, with one line of the log per epoch."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from collab.credit import pair_store
from collab.errors import CollabError
from collab.evaluation import Rate as Counted
from collab.store.reader import RunReader
from collab.view.answer import short
from collab.view.finds import HALF
from collab.view.labelled import NOTHING, Cells, Said, Sums
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.runs import rate, report_in
from collab.view.shapes.common import Edge
from collab.view.shapes.overview import EpochView, GraphView, Heat, Overview, Spending, TaskRate
from collab.view.shapes.runs import RunRow
from collab.view.steps import graph_layers, short_edges

_STEPS = """
SELECT count(*), avg(agreement), avg(entropy), total(tie), total(deliberation_s), total(environment_s)
FROM steps JOIN episodes USING (key) WHERE epoch = ?
"""
_CELLS = """
SELECT count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost_usd)
FROM cells JOIN episodes USING (key) WHERE epoch = ?
"""
_FAILURES = """
SELECT failure, count(*) FROM cells JOIN episodes USING (key)
WHERE epoch = ? AND failure IS NOT NULL GROUP BY failure ORDER BY 2 DESC, 1
"""
_PLAYED = "SELECT total(success), total(state != 'unfinished') FROM episodes WHERE epoch = ?"
_FIRST = """
SELECT trajectory, step FROM steps JOIN episodes USING (key) WHERE epoch = ? ORDER BY task, episode, step LIMIT 1
"""


def overview(row: RunRow, root: Root, run: Opened, labels: str | None) -> Overview:
    """A run in numbers.

    Args:
        labels: whose rewards to count; None for none.
    """
    return Overview(run=row, labels=labels, tasks=tasks_of(root, run.reader), epochs=epochs_of(run, labels), best=None)


def tasks_of(root: Root, reader: RunReader) -> list[TaskRate]:
    """Success per task, over the episodes that count (`report_in`)."""
    report = report_in(root, reader)
    hard = {planned.name: planned.difficulty for planned in reader.manifest.tasks}
    return [
        TaskRate(name=short(one.name), difficulty=_short(hard.get(one.name)), success=rate(one.planned))
        for one in report.by_task
    ]


def epochs_of(run: Opened, labels: str | None) -> list[EpochView]:
    """The epochs of a run; arguments as `overview`. Computed again only when the run has grown."""
    run.beside.read()  # before anything is kept: what is read for it would make it look old
    return with_differences(run.kept(f"epochs {labels!r}", lambda: _epochs(run, labels)))


def with_differences(epochs: Sequence[EpochView]) -> list[EpochView]:
    """The same epochs, whose graphs say what changed against the one before."""
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


def graph_view(agents: Sequence[str], edges: Sequence[Edge]) -> GraphView:
    """A graph with its layers; what changed is not known yet."""
    return GraphView(
        agents=[short(agent) for agent in agents],
        edges=short_edges(edges),
        layers=graph_layers(agents, edges),
        added=(),
        removed=(),
    )


# ------------------------------------------------------------------------------------------------------ inside


def _epochs(run: Opened, labels: str | None) -> list[EpochView]:
    numbers = [number for (number,) in run.reader.query("SELECT DISTINCT epoch FROM episodes ORDER BY epoch")]
    return [_epoch(run, number, labels, alone=len(numbers) == 1) for number in numbers]


def _epoch(run: Opened, number: int, labels: str | None, *, alone: bool) -> EpochView:
    reader = run.reader
    steps, agreement, entropy, ties, deliberation, environment = reader.query(_STEPS, number)[0]
    words = [] if labels is None else _words(run, number, labels)
    graph = _graph(reader, number)
    return EpochView(
        epoch=number,
        over=reader.status == "finished",
        played=rate(_played(reader, number)),
        measured=None,
        steps=steps,
        rewards=None if labels is None else _heat(run, words, labels, graph),
        missing=Counter(short(why) for said in words for why in said.missing if why is not None),
        agreement=agreement,
        entropy=entropy,
        ties=int(ties),
        failures={short(kind): count for kind, count in reader.query(_FAILURES, number)},
        pairs={short(cause): count for cause, count in _pairs(run, number, alone=alone).items()},
        older=None,
        trained=(),
        spent=list(_spent(run, number, deliberation, environment, alone=alone)),
        graph=graph,
        runs=(),
    )


def _played(reader: RunReader, number: int) -> Counted:
    successes, episodes = reader.query(_PLAYED, number)[0]
    return Counted(successes=int(successes), episodes=int(episodes))


def _words(run: Opened, number: int, labels: str) -> list[Said]:
    """What a labelling says about the steps of an epoch."""
    episodes = _episodes(run, number)
    return [said for (episode, _), said in run.beside.said(labels).items() if episode in episodes]


def heat(shares: Mapping[str, Sequence[float | None]], order: Sequence[str], critic: str | None) -> Heat | None:
    """Rewards per agent and round; None where nothing was judged.

    Args:
        shares: of each judged agent, by round.
        order: of agents as they are shown, everywhere that of the graph; those that are not in it come behind.
    """
    if not shares:
        return None
    shares = {short(agent): row for agent, row in shares.items()}
    rounds = max(len(row) for row in shares.values())
    nothing: Sequence[float | None] = (None,) * rounds
    agents = list(dict.fromkeys([*order, *shares]))
    rates = [shares.get(agent, nothing) for agent in agents]
    return Heat(agents=agents, rounds=rounds, rates=rates, critic=_short(critic))


def _heat(run: Opened, words: Sequence[Said], labels: str, graph: GraphView | None) -> Heat | None:
    known = rates(words)
    rounds = range(1 + max((round for _, round in known), default=-1))
    shares = {agent: [known.get((agent, round)) for round in rounds] for agent, _ in known}
    return heat(shares, graph.agents if graph else (), run.beside.critic(labels))


def rates(words: Iterable[Said]) -> dict[tuple[str, int], float]:
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


def _pairs(run: Opened, number: int, *, alone: bool) -> Mapping[str, int]:
    """Pairs by source; where the run is one epoch, also the rewarded cells without one, by cause."""
    last = run.beside.last_pairs()
    if last is None:
        sources = "SELECT source, count(*) FROM pairs JOIN episodes USING (trajectory) WHERE epoch = ? GROUP BY source"
        return dict(run.reader.query(sources, number))
    if alone:
        with contextlib.suppress(CollabError):  # the pairs themselves are counted instead
            return pair_store.read_head(run.reader.directory, last.name).counts
    return last.sources(_episodes(run, number).__contains__)


def _graph(reader: RunReader, number: int) -> GraphView | None:
    """As it was at the first step of the epoch."""
    first = reader.query(_FIRST, number)
    if not first:
        return None
    matrix = reader.step(*first[0]).matrix
    return graph_view(matrix.agents, matrix.edges)


def _spent(run: Opened, number: int, deliberation: float, environment: float, *, alone: bool) -> Iterator[Spending]:
    """By part; what an adversary took is known of whole runs only."""
    yield _spending("deliberation", deliberation, run.reader.query(_CELLS, number)[0])
    yield _spending("environment", environment, NOTHING)
    judging = run.beside.judging(_episodes(run, number).__contains__)
    if judging[0]:
        yield _spending("critic", None, judging)
    erring = run.beside.erring() if alone else NOTHING
    if erring[0]:
        yield _spending("adversary", None, erring)


def _spending(part: str, seconds: float | None, sums: Sums) -> Spending:
    calls, prompt, completion, usd = sums
    return Spending(
        part=part, seconds=seconds, calls=calls, prompt_tokens=prompt, completion_tokens=completion, cost_usd=usd
    )


def _episodes(run: Opened, number: int) -> set[str]:
    return {episode for (episode,) in run.reader.query("SELECT trajectory FROM episodes WHERE epoch = ?", number)}


def _short(text: str | None) -> str | None:
    return None if text is None else short(text)
