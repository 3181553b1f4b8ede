"""A directed acyclic graph over named slots, and the order of conversation it gives.

    dag = Dag(slots=("ada", "ben", "cyd"), edges=(("ada", "cyd"), ("ben", "cyd")))
    dag.layers  # (("ada", "ben"), ("cyd",))

An edge (speaker, hearer) means that in every round the hearer reads the speaker's new message. A cell is one slot in
one round. Conversation order is round, then layer, then position in the graph file. It is the one order in matrices, in
prompts and for ties of a vote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import networkx

from collab.errors import GraphError, UnknownName
from collab.types import CellRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """A checked graph. Two graphs with the same slots and the same edges are equal, however they were listed.

    Raises:
        GraphError: no slot, a slot or an edge given twice, an edge to an unknown slot or to itself, or a cycle.
    """

    slots: tuple[str, ...]
    """Names, in the order of the graph file."""
    edges: tuple[tuple[str, str], ...] = ()
    """(speaker, hearer), sorted by the positions of both."""
    layers: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)
    """Slots that can speak at the same time, because all their predecessors have spoken; each layer in file order."""
    _heard: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_names(self.slots, self.edges)
        graph: networkx.DiGraph[str] = networkx.DiGraph()
        graph.add_nodes_from(self.slots)
        graph.add_edges_from(self.edges)
        _check_acyclic(graph)
        position = {slot: place for place, slot in enumerate(self.slots)}
        layers = tuple(
            tuple(sorted(generation, key=position.__getitem__))
            for generation in networkx.topological_generations(graph)
        )
        turn = {slot: place for place, slot in enumerate(slot for layer in layers for slot in layer)}
        heard = {slot: tuple(sorted(graph.predecessors(slot), key=turn.__getitem__)) for slot in self.slots}
        edges = tuple(sorted(self.edges, key=lambda edge: (position[edge[0]], position[edge[1]])))
        # The values are frozen from here on; a frozen dataclass leaves no other way to set what it derives.
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "_heard", heard)

    @property
    def order(self) -> tuple[str, ...]:
        """All slots in the order in which they speak within a round: by layer, then by position."""
        return tuple(slot for layer in self.layers for slot in layer)

    def list_predecessors(self, slot: str) -> tuple[str, ...]:
        """List the slots that a slot hears, in the order in which they speak; UnknownName for an unknown slot."""
        if slot not in self._heard:
            raise UnknownName.of("slot", slot, self.slots)
        return self._heard[slot]

    def list_cells(self, rounds: int) -> tuple[CellRef, ...]:
        """List all n·m cells in conversation order; every cell comes after those it depends on."""
        return tuple(CellRef(slot, number) for number in range(rounds) for slot in self.order)

    def list_dependencies(self, cell: CellRef) -> tuple[CellRef, ...]:
        """List the cells that a cell reads: its own last one, then its predecessors' new ones. UnknownName as above."""
        heard = tuple(CellRef(slot, cell.round) for slot in self.list_predecessors(cell.agent))
        return heard if cell.round == 0 else (CellRef(cell.agent, cell.round - 1), *heard)


def _check_names(slots: Sequence[str], edges: Iterable[tuple[str, str]]) -> None:
    if not slots:
        raise GraphError("a graph without slots; give at least one")
    # Names first, then edges, then cycles: each message is about one kind of mistake.
    known: set[str] = set()
    for slot in slots:
        if slot in known:
            raise GraphError(f"slot {slot!r} is given twice; every slot needs a name of its own")
        known.add(slot)
    seen: set[tuple[str, str]] = set()
    for speaker, hearer in edges:
        edge = f"edge {speaker} → {hearer}"
        for slot in (speaker, hearer):
            if slot not in known:
                raise GraphError(f"{edge}: {UnknownName.of('slot', slot, known)}")
        if speaker == hearer:
            # Its own word is part of every slot's input from the second round on.
            raise GraphError(f"{edge}: a slot hears its own last word anyway; remove the edge")
        if (speaker, hearer) in seen:
            raise GraphError(f"{edge} is given twice; give it once")
        seen.add((speaker, hearer))


def _check_acyclic(graph: networkx.DiGraph[str]) -> None:
    if networkx.is_directed_acyclic_graph(graph):
        return
    cycle = [speaker for speaker, _ in networkx.find_cycle(graph)]
    loop = " → ".join([*cycle, cycle[0]])
    raise GraphError(f"the edges form a cycle: {loop}; within a round no agent can wait for itself: remove one edge")
