"""Deliberation of agents on a DAG for m rounds (`Network`), and the majority vote on its action matrix (`vote`).

A cell (agent, round) waits for its own predecessors only — the agents it hears in this round, and what it said itself
in the round before — and starts the moment they are done. There is no barrier between layers or rounds.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A team: who fills which slot, and who hears whom."""

    dag: Dag
    agents: Mapping[str, Agent]
    """Slot → agent."""
    rounds: int
    """m."""

    def rewire(self, dag: Dag) -> Network:
        """The same team over other edges; this one does not change."""
        return replace(self, dag=dag)

    @property
    def privileged(self) -> bool:
        """Whether any agent looks at the solution."""
        return any(agent.model.privileged for agent in self.agents.values())

    async def deliberate(self, scene: StepContext) -> tuple[ActionMatrix, tuple[SharedPrompt, ...]]:
        """Let all n × m cells speak.

        Returns:
            The matrix, in conversation order, and the distinct shared prompt parts that were read.

        Raises:
            ModelFailure: one call failed; the others are cancelled.
        """
        messages = 1 + max(len(self.dag.list_predecessors(slot)) for slot in self.dag.slots)
        shared = self._render_shared(scene, messages)
        order = self.dag.list_cells(self.rounds)
        tasks: dict[CellRef, asyncio.Task[Utterance]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for cell in order:
                    heard = [tasks[other] for other in self.dag.list_dependencies(cell)]
                    speaking = self._speak(cell, scene, shared[self.agents[cell.agent].definition], heard)
                    tasks[cell] = group.create_task(speaking)
        except ExceptionGroup as failures:
            raise _find_plain_error(failures) from None
        matrix = ActionMatrix(
            agents=self.dag.slots,
            rounds=self.rounds,
            edges=self.dag.edges,
            utterances=tuple(tasks[cell].result() for cell in order),
        )
        return matrix, tuple({part.prefix: part for part in shared.values()}.values())

    def _render_shared(self, scene: StepContext, messages: int) -> dict[str, SharedPrompt]:
        parts: dict[str, SharedPrompt] = {}
        for agent in self.agents.values():
            if agent.definition not in parts:
                parts[agent.definition] = agent.shared(scene, messages)
        return parts

    async def _speak(
        self, cell: CellRef, scene: StepContext, shared: SharedPrompt, heard: list[asyncio.Task[Utterance]]
    ) -> Utterance:
        said = [await task for task in heard]
        place = CellContext(round=cell.round, rounds=self.rounds)
        return await self.agents[cell.agent].speak(scene, shared, place, said)


def _find_plain_error(failures: ExceptionGroup[Exception]) -> Exception:
    """The first plain error inside nested groups: one failed call is what the episode reports."""
    cause: Exception = failures
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    return cause


def vote(matrix: ActionMatrix) -> Vote:
    """Majority over all n × m cells (CollabUIAgents, eq. 5), on canonical actions; unparsed cells abstain.

    Deviation: eq. 5 leaves ties open; of the tied actions the one whose latest vote comes last in conversation order
    (round, layer, position) wins, so that the vote is deterministic and the better informed word decides.
    """
    cells: dict[Action, list[CellRef]] = defaultdict(list)
    latest: dict[Action, int] = {}
    abstained: list[CellRef] = []
    for position, utterance in enumerate(matrix):
        if utterance.action is None:
            abstained.append(utterance.cell)
            continue
        cells[utterance.action].append(utterance.cell)
        latest[utterance.action] = position
    ranked = sorted(cells, key=lambda action: (-len(cells[action]), -latest[action]))
    ballots = tuple(Ballot(action=action, cells=tuple(cells[action])) for action in ranked)
    winner = ballots[0] if ballots else None
    return Vote(
        action=winner.action if winner else None,
        representative=winner.cells[-1] if winner else None,
        ballots=ballots,
        abstained=tuple(abstained),
        entropy=_compute_entropy([len(ballot.cells) for ballot in ballots]),
        tie=len(ballots) > 1 and len(ballots[0].cells) == len(ballots[1].cells),
    )


def _compute_entropy(counts: list[int]) -> float:
    total = sum(counts)
    return sum(-count / total * math.log(count / total) for count in counts)
