"""A run in numbers, over the epochs that it recorded; asked of its index, with one line of the log per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from collab.credit import pair_store
from collab.errors import CollabError
from collab.evaluation import Rate as Counted
from collab.report import report_of
from collab.store.reader import RunReader
from collab.view.finds import HALF
from collab.view.pool import Opened
from collab.view.runs import rate
from collab.view.shapes import Edge, EpochView, GraphView, Heat, Overview, RunRow, Spending, TaskRate
from collab.view.steps import graph_layers

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
_REWARDS = """
SELECT agent, round, count(scored.score), total(scored.score > ?) FROM scored JOIN episodes USING (trajectory)
WHERE labels = ? AND epoch = ? GROUP BY agent, round
"""
_MISSING = """
SELECT missing, count(*) FROM scored JOIN episodes USING (trajectory)
WHERE labels = ? AND epoch = ? AND missing IS NOT NULL GROUP BY missing ORDER BY 2 DESC, 1
"""
_CRITIC = """
SELECT total(calls), sum(prompt_tokens), sum(completion_tokens), sum(cost_usd)
FROM judged JOIN episodes USING (trajectory) WHERE labels = ? AND epoch = ?
"""
_FIRST = """
SELECT trajectory, step FROM steps JOIN episodes USING (key) WHERE epoch = ? ORDER BY task, episode, step LIMIT 1
"""
_AGENTS = "SELECT agent, count(DISTINCT round) FROM cells GROUP BY agent ORDER BY min(position), agent"


def overview(row: RunRow, run: Opened, labels: str | None) -> Overview:
    """A run in numbers.

    Args:
        labels: whose rewards to count; None for none.
    """
    return Overview(run=row, labels=labels, tasks=tasks_of(run.reader), epochs=epochs_of(run, labels), best=None)


def tasks_of(reader: RunReader) -> list[TaskRate]:
    """Success per task, over planned episodes."""
    report = report_of(reader)
    hard = {planned.name: planned.difficulty for planned in reader.manifest.tasks}
    return [TaskRate(name=one.name, difficulty=hard.get(one.name), success=rate(one.planned)) for one in report.by_task]


def epochs_of(run: Opened, labels: str | None) -> list[EpochView]:
    """The epochs of a run; arguments as `overview`."""
    run.beside.labellings()  # reads what is new, so that the queries below see it
    numbers = [number for (number,) in run.reader.query("SELECT DISTINCT epoch FROM episodes ORDER BY epoch")]
    found = [_epoch(run, number, labels, alone=len(numbers) == 1) for number in numbers]
    return with_differences(found)


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
    return GraphView(agents=agents, edges=edges, layers=graph_layers(agents, edges), added=(), removed=())


# ------------------------------------------------------------------------------------------------------ inside


def _epoch(run: Opened, number: int, labels: str | None, *, alone: bool) -> EpochView:
    reader = run.reader
    steps, agreement, entropy, ties, deliberation, environment = reader.query(_STEPS, number)[0]
    calls, *tokens = reader.query(_CELLS, number)[0]
    spent = [_spending("deliberation", deliberation, calls, *tokens), _spending("environment", environment)]
    return EpochView(
        epoch=number,
        over=reader.status == "finished",
        played=rate(report_of(reader).planned if alone else _played(reader, number)),
        measured=None,
        steps=steps,
        rewards=None if labels is None else _heat(run, number, labels),
        missing={} if labels is None else dict(reader.query(_MISSING, labels, number)),
        agreement=agreement,
        entropy=entropy,
        ties=int(ties),
        failures=dict(reader.query(_FAILURES, number)),
        pairs=_pairs(run, number, alone=alone),
        older=None,
        trained=(),
        spent=spent if labels is None else [*spent, _judging(reader, number, labels)],
        graph=_graph(reader, number),
        runs=(),
    )


def _played(reader: RunReader, number: int) -> Counted:
    successes, episodes = reader.query(_PLAYED, number)[0]
    return Counted(successes=int(successes), episodes=int(episodes))


def _heat(run: Opened, number: int, labels: str) -> Heat | None:
    rows = run.reader.query(_REWARDS, HALF, labels, number)
    shares = {(agent, round): rewarded / judged for agent, round, judged, rewarded in rows if judged}
    if not shares:
        return None
    agents = [agent for agent, _ in run.reader.query(_AGENTS)]
    rounds = 1 + max(round for _, round in shares)
    rates = [[shares.get((agent, round)) for round in range(rounds)] for agent in agents]
    critics = run.reader.query("SELECT DISTINCT critic FROM rewards WHERE 'log:' || maker = ?", labels)
    critic = critics[0][0] if critics else run.beside.critic(labels)
    return Heat(agents=agents, rounds=rounds, rates=rates, critic=critic)


def _pairs(run: Opened, number: int, *, alone: bool) -> dict[str, int]:
    """Pairs by source; where the run is one epoch, also the rewarded cells without one, by cause."""
    sets = run.beside.pair_sets()
    if not sets:
        return dict(
            run.reader.query(
                "SELECT source, count(*) FROM pairs JOIN episodes USING (trajectory) WHERE epoch = ? GROUP BY source",
                number,
            )
        )
    if alone:
        try:
            return dict(pair_store.read_head(run.reader.directory, sets[-1]).counts)
        except CollabError:
            pass  # the pairs themselves are counted instead; the head is among the problems
    return dict(
        run.reader.query(
            "SELECT source, count(DISTINCT line) FROM pair_lines JOIN sides ON line = pair_lines.rowid"
            " JOIN episodes USING (trajectory) WHERE pairs = ? AND epoch = ? GROUP BY source",
            *(sets[-1], number),
        )
    )


def _graph(reader: RunReader, number: int) -> GraphView | None:
    """As it was at the first step of the epoch."""
    first = reader.query(_FIRST, number)
    if not first:
        return None
    matrix = reader.step(*first[0]).matrix
    return graph_view(matrix.agents, matrix.edges)


def _spending(part: str, seconds: float, calls: int = 0, *tokens: Any) -> Spending:
    prompt, completion, usd = tokens or (None, None, None)
    return Spending(
        part=part, seconds=seconds, calls=calls, prompt_tokens=prompt, completion_tokens=completion, cost_usd=usd
    )


def _judging(reader: RunReader, number: int, labels: str) -> Spending:
    calls, *tokens = reader.query(_CRITIC, labels, number)[0]
    prompt, completion, usd = tokens
    return Spending(
        part="critic",
        seconds=None,
        calls=int(calls),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost_usd=usd,
    )
