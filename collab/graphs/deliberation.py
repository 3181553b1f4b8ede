"""Deliberation of agents on a DAG for m rounds (`Network`), and the majority vote on its action matrix (`vote`).

A cell (agent, round) waits only for its own predecessors: the agents it hears in this round, and its own cell of the
round before. It starts the moment they are done; there is no barrier between layers or rounds.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from collab.agents.agent import Agent, CellContext, StepContext
from collab.graphs.dag import Dag
from collab.prompts.render import SharedPrompt
from collab.types import Action, ActionMatrix, Ballot, CellRef, Utterance, Vote
from collab.utils.concurrency import find_plain_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A team: the agent in each slot, and the graph that says which slot hears which."""

    dag: Dag
    agents: Mapping[str, Agent]
    """Slot → agent."""
    rounds: int
    """m."""

    def rewire(self, dag: Dag) -> Network:
        """Return the same team over other edges; this one does not change."""
        return replace(self, dag=dag)

    @property
    def privileged(self) -> bool:
        """Return whether any agent sees the solution."""
        return any(agent.model.privileged for agent in self.agents.values())

    async def deliberate(self, scene: StepContext) -> tuple[ActionMatrix, tuple[SharedPrompt, ...]]:
        """Run all n × m cells and collect their utterances.

        Returns:
            The matrix, in conversation order, and the distinct shared prompt parts that were read.

        Raises:
            ModelFailure: one call failed; the others are cancelled.
        """
        # A cell hears its predecessors and, from the second round on, its own last word: prompts keep room for so many.
        messages = 1 + max(len(self.dag.list_predecessors(slot)) for slot in self.dag.slots)
        shared = self._render_shared(scene, messages)
        # Conversation order puts every dependency before its reader, so each task that a cell waits for exists already.
        order = self.dag.list_cells(self.rounds)
        tasks: dict[CellRef, asyncio.Task[Utterance]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for cell in order:
                    heard = [tasks[other] for other in self.dag.list_dependencies(cell)]
                    speaking = self._speak(cell, scene, shared[self.agents[cell.agent].definition], heard)
                    tasks[cell] = group.create_task(speaking)
        except ExceptionGroup as failures:
            # One failed call cancels the others: no vote is taken on a matrix with holes.
            raise find_plain_error(failures) from None
        # In conversation order, whichever cell answered first: records must not depend on latency.
        matrix = ActionMatrix(
            agents=self.dag.slots,
            rounds=self.rounds,
            edges=self.dag.edges,
            utterances=tuple(tasks[cell].result() for cell in order),
        )
        return matrix, tuple({part.prefix: part for part in shared.values()}.values())

    def _render_shared(self, scene: StepContext, messages: int) -> dict[str, SharedPrompt]:
        # Rendered once per definition, not per cell: equal prefixes let a server reuse its cache.
        parts: dict[str, SharedPrompt] = {}
        for agent in self.agents.values():
            if agent.definition not in parts:
                parts[agent.definition] = agent.build_shared(scene, messages)
        return parts

    async def _speak(
        self, cell: CellRef, scene: StepContext, shared: SharedPrompt, heard: list[asyncio.Task[Utterance]]
    ) -> Utterance:
        # Waiting here, and not for a whole round, is what lets layers and rounds overlap.
        said = [await task for task in heard]
        place = CellContext(round=cell.round, rounds=self.rounds)
        return await self.agents[cell.agent].speak(scene, shared, place, said)


def vote(matrix: ActionMatrix) -> Vote:
    """Return the majority vote over all n × m cells (CollabUIAgents, eq. 5).

    Votes are counted on canonical actions; cells whose reply did not parse abstain. Deviation: eq. 5 leaves ties open.
    Here the tied action whose latest vote comes last in conversation order (round, layer, position) wins. So the vote
    is deterministic, and the better informed cell decides.
    """
    # Actions are equal when their canonical forms are, however a cell worded them.
    cells: dict[Action, list[CellRef]] = defaultdict(list)
    latest: dict[Action, int] = {}
    abstained: list[CellRef] = []
    # eq. 5: a* = argmax_a Σ_{i,j} 1[a_ij = a], over every agent i and round j, not over the last round alone.
    for position, utterance in enumerate(matrix):
        if utterance.action is None:
            abstained.append(utterance.cell)
            continue
        cells[utterance.action].append(utterance.cell)
        latest[utterance.action] = position
    # Most votes first; of equal counts the action that was proposed last, by a cell that had heard more.
    ranked = sorted(cells, key=lambda action: (-len(cells[action]), -latest[action]))
    ballots = tuple(Ballot(action=action, cells=tuple(cells[action])) for action in ranked)
    winner = ballots[0] if ballots else None
    return Vote(
        action=winner.action if winner else None,
        # The representative is the winner's last cell: its reason is the one that later prompts quote.
        representative=winner.cells[-1] if winner else None,
        ballots=ballots,
        abstained=tuple(abstained),
        entropy=_compute_entropy([len(ballot.cells) for ballot in ballots]),
        tie=len(ballots) > 1 and len(ballots[0].cells) == len(ballots[1].cells),
    )


def _compute_entropy(counts: list[int]) -> float:
    # H = -Σ p log p in nats over the actions that got votes; 0 when all agree, or when none parsed.
    total = sum(counts)
    return sum(-count / total * math.log(count / total) for count in counts)
