"""The policy that rows are made for: how it reads a step, a message and a question.

    prompt = reader.decision(context, seat=reader.seat(rng), heard=messages)
    prompt = reader.question(observation, "What does tapping [7] do?")

A decision prompt is letter for letter what `collab.agents.agent.Agent` asks in the same place of the same
conversation, so that a checkpoint trains on the prompts that it will read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from collab.agents.agent import prefix_limit
from collab.config import EdgeSampler
from collab.graphs.dag import Dag
from collab.graphs.edges import sample
from collab.models.estimate import estimate_tokens
from collab.prompts.render import LAYOUT, Context, Said, Shared, Template, fit
from collab.types import CellRef, Observation, Prompt

ORDERED = EdgeSampler(sampler="ordered", p=0.5)
"""How the paper's method draws edges, as in `graphs/team.yaml`."""

SINGLE = Dag(slots=("ada",))
"""A team of one, as in `graphs/single.yaml`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a peer said, as a prompt carries it."""

    agent: str
    round: int
    text: str
    tokens: None = None
    tokenizer: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A cell of a conversation: the place from which a policy speaks."""

    dag: Dag
    rounds: int
    cell: CellRef

    @property
    def hears(self) -> tuple[CellRef, ...]:
        """Whom it hears, in conversation order."""
        return self.dag.dependencies(self.cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What the policy reads of a step; the fields mean what they mean in `agents/*.yaml` and `graphs/*.yaml`."""

    template: Template
    slots: tuple[str, ...] = ("ada", "ben", "cyd", "dee")
    rounds: int = 3
    edges: EdgeSampler = ORDERED
    """How the graph of a conversation is drawn."""
    context_tokens: int = 8192
    history: int = 5
    max_tokens: int = 256
    """Room for a reply and for each message heard."""
    count_tokens: Callable[[str], int] = estimate_tokens

    def alone(self) -> Seat:
        """The seat of a single agent, who hears nobody."""
        return Seat(dag=SINGLE, rounds=1, cell=CellRef(SINGLE.slots[0], 0))

    def seat(self, rng: random.Random) -> Seat:
        """A random cell of a team over a random graph."""
        dag = sample(self.edges, self.slots, rng.getrandbits(32))
        return Seat(dag=dag, rounds=self.rounds, cell=CellRef(rng.choice(self.slots), rng.randrange(self.rounds)))

    def decision(self, context: Context, seat: Seat, heard: Mapping[CellRef, Said]) -> Prompt:
        """The prompt of one cell: what should be done next?

        Args:
            heard: what each of `seat.hears` said.

        Raises:
            ModelFailure: not even the task alone fits into the context.
        """
        shared = self.shared(context, seat)
        said: Sequence[Said] = [heard[cell] for cell in seat.hears]
        segments = self.template.segments(seat.cell.agent, seat.cell.round, seat.rounds, said)
        return Prompt(system=shared.system, shared=shared.text, segments=segments, layout=LAYOUT)

    def shared(self, context: Context, seat: Seat) -> Shared:
        """What all cells of the seat's conversation read before any message.

        Raises:
            ModelFailure: not even the task alone fits into the context.
        """
        most = 1 + max(len(seat.dag.predecessors(slot)) for slot in seat.dag.slots)
        limit = prefix_limit(self.context_tokens, messages=most, max_tokens=self.max_tokens)
        return fit(self.template, context, history=self.history, limit=limit, count=self.count_tokens)

    def question(self, observation: Observation, question: str) -> Prompt:
        """A question about a screen: no goal, no rules of acting, no messages."""
        return self.template.question(observation, question)
