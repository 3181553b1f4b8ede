"""Cost of a run's recorded calls, from its index: in total, per round, layer, agent and model.

    costs = sum_costs(reader)
    costs.whole.hit_rate          # None if no call reports it
    costs.by_round[0].calls

Models and servers report different numbers, so every sum names how many calls it covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from collab.store.manifest import Manifest
from collab.store.reader import RunReader
from collab.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedSum:
    """A sum over the calls that report a number."""

    calls: int = 0
    total: float = 0.0

    @property
    def known(self) -> float | None:
        """The sum; None if no call reports it."""
        return self.total if self.calls else None

    @property
    def mean(self) -> float | None:
        """Mean per reporting call; None if there is none."""
        return self.total / self.calls if self.calls else None

    def __add__(self, other: CountedSum) -> CountedSum:
        return CountedSum(calls=self.calls + other.calls, total=self.total + other.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of some calls."""

    prompt_tokens: CountedSum = field(default_factory=CountedSum)
    completion_tokens: CountedSum = field(default_factory=CountedSum)
    computed_tokens: CountedSum = field(default_factory=CountedSum)
    """Prompt tokens that were computed; the others came from a prefix cache."""
    cacheable_tokens: CountedSum = field(default_factory=CountedSum)
    """Prompt tokens of the calls that report how many were computed."""
    usd: CountedSum = field(default_factory=CountedSum)
    width: CountedSum = field(default_factory=CountedSum)
    """Sequences computed together with each call."""
    queue_s: CountedSum = field(default_factory=CountedSum)
    work_s: CountedSum = field(default_factory=CountedSum)
    """From the end of the queue to the answer, prompt and reply; only of calls that report their queue."""
    latency_s: CountedSum = field(default_factory=CountedSum)
    """From asking to being answered; every call reports it."""

    @property
    def calls(self) -> int:
        """All recorded calls."""
        return self.latency_s.calls

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that came from a prefix cache, at least 0; None if no call reports it."""
        cacheable = self.cacheable_tokens.total
        return max(0.0, 1 - self.computed_tokens.total / cacheable) if cacheable else None

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Cost)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """Results of the actions that an agent proposed."""

    agent: str
    model: str
    """Its weights, see `format_model`."""
    cells: int
    """Replies, one for each proposal."""
    without_action: int
    """Replies that gave no action."""
    won: int
    """Proposals that were the action with the most votes."""
    first: int
    """Steps whose winning action it was the first to propose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Cost of a run."""

    whole: Cost
    """Cost of all cells of the recorded steps that count."""
    steps: int
    by_round: Mapping[int, Cost]
    """From 0."""
    by_layer: Mapping[int | None, Cost]
    """From 0; None for cells whose recorded graph gives them none."""
    by_agent: Mapping[str, Cost]
    """In the order of the graph."""
    by_model: Mapping[str, Cost]
    """By weights, see `format_model`."""
    proposals: tuple[Proposals, ...]
    """One per agent, in the order of `by_agent`."""
    spent: Usage | None
    """Total of all processes that wrote their usage: unfinished steps, summaries and replaced attempts included. None
    if none did."""
    processes: int
    """Processes that have worked on the run."""
    told: int
    """Processes that wrote their usage; one that died did not, and a running one has not yet."""


_MEASURES = {
    "prompt_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens",
    "computed_tokens": "CASE WHEN prompt_tokens IS NOT NULL THEN computed_tokens END",
    "cacheable_tokens": "CASE WHEN computed_tokens IS NOT NULL THEN prompt_tokens END",
    "usd": "cost_usd",
    "width": "width",
    "queue_s": "queue_s",
    "work_s": "latency_s - queue_s",
    "latency_s": "coalesce(latency_s, 0)",
}
"""Field of `Cost` → its summand in rows of the table `cells`; NULL if a call does not report it."""


_PROPOSED = (
    "SELECT agent, count(*), sum(ballot IS NULL), count(CASE WHEN ballot = 0 THEN 1 END) FROM cells GROUP BY agent"
)
"""Ballot 0 is that of the winner; cells without an action have none."""
_FIRST = """
SELECT agent, count(*) FROM cells
JOIN (SELECT key, step, min(position) AS position FROM cells WHERE ballot = 0 GROUP BY key, step)
    USING (key, step, position)
GROUP BY agent
"""
CALLS = "SELECT count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost_usd) FROM cells"
"""Query of a run's index: usage of its recorded calls; NULL if none reports it."""
_UNTOLD = f"""
{CALLS} JOIN steps USING (key, step)
WHERE segment NOT IN (SELECT segment FROM events WHERE type = 'spent')
"""
"""The same, of processes that wrote no usage at their end."""


def read_usage(reader: RunReader) -> Usage:
    """Return the usage of a run, with unfinished steps and with broken or unneeded episodes.

    It sums what processes wrote at their end; for a killed or running one, the recorded calls.
    """
    calls, prompt, completion, usd = reader.query(_UNTOLD)[0]
    untold = Usage(calls=calls, prompt_tokens=prompt or 0, completion_tokens=completion or 0, cost_usd=usd or 0.0)
    return sum(reader.list_spent(), untold)


def sum_costs(reader: RunReader) -> Costs:
    """Sum the cost of a run's recorded calls.

    Raises:
        RunFormatError: the log was changed while it was read.
    """
    # Count and sum together: a sum over calls of which some did not report must not pass for the whole.
    sums = ", ".join(f"count({what}), total({what})" for what in _MEASURES.values())
    whole = Cost()
    by_round: dict[int, Cost] = {}
    by_layer: dict[int | None, Cost] = {}
    by_agent: dict[str, Cost] = {}
    by_model: dict[str, Cost] = {}
    # Grouped by the database: a large run has more cells than should come into memory.
    grouped = f"SELECT agent, round, layer, {sums} FROM cells GROUP BY agent, round, layer"
    for agent, round, layer, *numbers in reader.query(grouped):
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        cost = Cost(
            **{name: CountedSum(calls=n, total=total) for name, (n, total) in zip(_MEASURES, pairs, strict=True)}
        )
        # The same groups added up along each axis, so that all tables agree.
        whole += cost
        by_round[round] = by_round.get(round, Cost()) + cost
        by_layer[layer] = by_layer.get(layer, Cost()) + cost
        by_agent[agent] = by_agent.get(agent, Cost()) + cost
        model = format_model(reader.manifest, agent)
        by_model[model] = by_model.get(model, Cost()) + cost
    # What processes have counted themselves includes calls whose step was never finished.
    told = reader.list_spent()
    return Costs(
        whole=whole,
        steps=reader.query("SELECT count(*) FROM steps WHERE NOT copied")[0][0],
        by_round=dict(sorted(by_round.items())),
        # Cells without a layer stand last.
        by_layer=dict(sorted(by_layer.items(), key=lambda item: (item[0] is None, item[0] or 0))),
        by_agent={agent: by_agent[agent] for agent in _sort_agents(reader.manifest, by_agent)},
        by_model=by_model,
        proposals=_count_proposals(reader, _sort_agents(reader.manifest, by_agent)),
        spent=sum(told, Usage()) if told else None,
        processes=reader.query("SELECT count(*) FROM events WHERE type IN ('run_started', 'run_resumed')")[0][0],
        told=len(told),
    )


def format_model(manifest: Manifest, agent: str) -> str:
    """Format the weights of an agent of a run: "BASE", "BASE with ADAPTER", and "version N" of trained ones."""
    model = manifest.models.get(agent)
    policy = model.get("policy") if isinstance(model, Mapping) else None
    if not isinstance(policy, Mapping) or not policy.get("base"):
        return "not known"
    adapter, version = policy.get("adapter"), policy.get("version")
    over = f" with {adapter}" if adapter else ""
    return f"{policy['base']}{over}{f', version {version}' if version else ''}"


def _sort_agents(manifest: Manifest, agents: Iterable[str]) -> list[str]:
    """Sort agents as the run's head names them, then all others."""
    places = {slot: place for place, slot in enumerate(manifest.models)}
    return sorted(agents, key=lambda agent: (places.get(agent, len(places)), agent))


def _count_proposals(reader: RunReader, agents: Iterable[str]) -> tuple[Proposals, ...]:
    counts = {agent: numbers for agent, *numbers in reader.query(_PROPOSED)}
    first = dict(reader.query(_FIRST))
    return tuple(
        Proposals(
            agent=agent,
            model=format_model(reader.manifest, agent),
            cells=counts[agent][0],
            without_action=counts[agent][1],
            won=counts[agent][2],
            first=first.get(agent, 0),
        )
        for agent in agents
    )
