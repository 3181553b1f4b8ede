"""Drawing edges: pure samplers over the slots of a graph, found by name.

    dag = sample(EdgeSampler(sampler="ordered", p=0.5), slots=("ada", "ben", "cyd"), seed=7)

A sampler takes the slots, a private random generator and its own parameters, and returns edges (speaker, hearer).
`chain`, `star`, `layered` and `complete` are fixed shapes over the slots in file order and draw nothing. `ordered` and
`uniform` draw a random acyclic sub-graph of the complete graph, as the edge update of CollabUIAgents asks for (before
every epoch, independent of the weights). The paper leaves the distribution open: `ordered` is the default and
`uniform` gives every labelled DAG the same chance.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import random
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TypeAlias

from collab.config import EdgeSampler, GraphDefinition
from collab.errors import GraphError, UnknownName
from collab.graphs.dag import Dag
from collab.seeds import generator

Edges: TypeAlias = list[tuple[str, str]]
"""(speaker, hearer) pairs."""


def sample(spec: EdgeSampler, slots: Sequence[str], seed: int) -> Dag:
    """Draw one graph; the same seed gives the same graph.

    Raises:
        UnknownName: no sampler has that name.
        GraphError: a parameter is missing, does not belong to the sampler, or does not fit the slots.
    """
    if spec.sampler not in SAMPLERS:
        raise UnknownName.of("edge sampler", spec.sampler, SAMPLERS)
    sampler = SAMPLERS[spec.sampler]
    given = spec.model_dump(exclude={"sampler"}, exclude_none=True)
    _check_parameters(spec.sampler, sampler, set(given))
    return Dag(slots=tuple(slots), edges=tuple(sampler(slots, generator(seed), **given)))


def build_dag(graph: GraphDefinition, seed: int) -> Dag:
    """Return a definition's graph: its own edges if listed, else drawn with `seed`. Raises as `sample` and `Dag`."""
    if isinstance(graph.edges, EdgeSampler):
        return sample(graph.edges, graph.slots, seed)
    return Dag(slots=tuple(graph.slots), edges=tuple(graph.edges))


def connect_chain(slots: Sequence[str], rng: random.Random) -> Edges:
    """Connect each slot to the next."""
    return list(itertools.pairwise(slots))


def connect_star(slots: Sequence[str], rng: random.Random) -> Edges:
    """Connect the first slot to all others."""
    return [(slots[0], slot) for slot in slots[1:]]


def connect_all(slots: Sequence[str], rng: random.Random) -> Edges:
    """Connect each slot to all later ones: n(n−1)/2 edges."""
    return list(itertools.combinations(slots, 2))


def connect_layers(slots: Sequence[str], rng: random.Random, *, widths: Sequence[int]) -> Edges:
    """Divide slots into layers of the given widths, in file order; connect each slot to the whole next layer.

    Raises:
        GraphError: a width is below 1, or they do not add up to the number of slots.
    """
    if any(width < 1 for width in widths) or sum(widths) != len(slots):
        raise GraphError(
            f"layered: widths {list(widths)} for {len(slots)} slots; "
            f"give widths of at least 1 that add up to {len(slots)}"
        )
    remaining = iter(slots)
    layers = [list(itertools.islice(remaining, width)) for width in widths]
    return [edge for here, after in itertools.pairwise(layers) for edge in itertools.product(here, after)]


def draw_ordered(slots: Sequence[str], rng: random.Random, *, p: float = 0.5) -> Edges:
    """Draw an order of the slots, then each edge that points forward in it with probability `p`.

    Raises:
        GraphError: `p` is not in [0, 1].
    """
    if not 0 <= p <= 1:
        raise GraphError(f"ordered: p is {p}, allowed: 0 to 1")
    order = rng.sample(list(slots), len(slots))
    return [edge for edge in itertools.combinations(order, 2) if rng.random() < p]


def draw_uniform(slots: Sequence[str], rng: random.Random) -> Edges:
    """Draw every labelled DAG over the slots with the same probability, in exact integer arithmetic.

    The number of sources is drawn in proportion to the number of DAGs with so many (Robinson's recurrence). Then the
    same is drawn for the remaining slots, and so on; slots are dealt to these layers in random order. A slot hears at
    least one of the layer just before its own, or it would be an earlier source, and any of the layers before that.
    """
    order = iter(rng.sample(list(slots), len(slots)))
    layers = [list(itertools.islice(order, width)) for width in _draw_widths(len(slots), rng)]
    edges: Edges = []
    for depth, layer in enumerate(layers):
        for hearer in layer:
            for before in range(depth):
                at_least_one = before == depth - 1
                chosen = rng.randrange(int(at_least_one), 2 ** len(layers[before]))
                edges += [(speaker, hearer) for bit, speaker in enumerate(layers[before]) if chosen >> bit & 1]
    return edges


def _draw_widths(slots: int, rng: random.Random) -> list[int]:
    """Draw the layer widths of a uniformly drawn DAG, sources first."""
    widths: list[int] = []
    weights = [_count_dags(slots, sources) for sources in range(1, slots + 1)]
    while slots:
        ticket = rng.randrange(sum(weights))
        bounds = itertools.accumulate(weights)
        width = next(number for number, bound in enumerate(bounds, start=1) if ticket < bound)
        widths.append(width)
        slots -= width
        weights = [_count_joins(width, slots, sources) * _count_dags(slots, sources) for sources in range(1, slots + 1)]
    return widths


@functools.cache
def _count_dags(slots: int, sources: int) -> int:
    """Count labelled DAGs with that many slots, of which exactly `sources` have no predecessor."""
    rest = slots - sources
    if rest == 0:
        return 1
    below = sum(_count_joins(sources, rest, later) * _count_dags(rest, later) for later in range(1, rest + 1))
    return math.comb(slots, sources) * below


def _count_joins(sources: int, rest: int, later: int) -> int:
    """Count the ways to let `sources` speak to `rest` slots so that each of `later` of these hears at least one."""
    return int((2**sources - 1) ** later * 2 ** (sources * (rest - later)))


SAMPLERS: MappingProxyType[str, Callable[..., Edges]] = MappingProxyType(
    {
        "chain": connect_chain,
        "star": connect_star,
        "layered": connect_layers,
        "complete": connect_all,
        "ordered": draw_ordered,
        "uniform": draw_uniform,
    }
)
"""Every sampler by its name in a graph file; its keyword-only arguments are its parameters there."""


def _check_parameters(name: str, sampler: Callable[..., Edges], given: set[str]) -> None:
    # A sampler's parameters are keyword-only; its signature is the list of what a file may say.
    keywords = [
        parameter
        for parameter in inspect.signature(sampler).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    allowed = {parameter.name for parameter in keywords}
    required = {parameter.name for parameter in keywords if parameter.default is inspect.Parameter.empty}
    if given - allowed:
        raise GraphError(
            f"edges: sampler {name} has no parameter {', '.join(sorted(given - allowed))}; "
            f"allowed: {', '.join(sorted(allowed)) or 'none'}"
        )
    if required - given:
        raise GraphError(f"edges: sampler {name} needs {', '.join(sorted(required - given))}; add it beside `sampler:`")
