"""The policy that rows are made for: how it reads a step, a message and a question.

    prompt = reader.decision(context, seat=reader.seat(rng), heard=messages)
    prompt = reader.question(observation, "What does tapping [7] do?")

A decision prompt is letter for letter what `collab.agents.agent.Agent` asks in the same place of the same
conversation, so that a checkpoint trains on the prompts that it will read.

The conversation around a decision: a seat in a team, and what its peers say, right and wrong.

A policy that only ever heard right answers would learn to repeat them. Here every peer is right or wrong by chance,
now and then unreadable, and the reply to learn is always the right one: what others say helps only as far as it fits
the screen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from collab.agents.agent import compute_prefix_limit
from collab.config import EdgeSampler
from collab.graphs.dag import Dag
from collab.graphs.edges import sample
from collab.models.tokenizer import estimate_tokens
from collab.prompts.parse import write_reply
from collab.prompts.render import LAYOUT, PromptContext, PromptMessage, SharedPrompt, Template, fit_shared
from collab.rewards.perturb import DecisionPoint, draw_mistakes
from collab.rewards.query import format_reason, reply
from collab.synthesis.renaming import as_told, as_told_beside
from collab.synthesis.screens import build_decision_point
from collab.synthesis.teacher import Scene
from collab.types import Action, CellRef, HistoryEntry, Observation, Prompt

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
        return self.dag.list_dependencies(self.cell)


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

    def seat_alone(self) -> Seat:
        """The seat of a single agent, who hears nobody."""
        return Seat(dag=SINGLE, rounds=1, cell=CellRef(SINGLE.slots[0], 0))

    def draw_seat(self, rng: random.Random) -> Seat:
        """A random cell of a team over a random graph."""
        dag = sample(self.edges, self.slots, rng.getrandbits(32))
        return Seat(dag=dag, rounds=self.rounds, cell=CellRef(rng.choice(self.slots), rng.randrange(self.rounds)))

    def build_decision(self, context: PromptContext, seat: Seat, heard: Mapping[CellRef, PromptMessage]) -> Prompt:
        """The prompt of one cell: what should be done next?

        Args:
            heard: what each of `seat.hears` said.

        Raises:
            ModelFailure: not even the task alone fits into the context.
        """
        shared = self.build_shared(context, seat)
        said: Sequence[PromptMessage] = [heard[cell] for cell in seat.hears]
        segments = self.template.render_segments(seat.cell.agent, seat.cell.round, seat.rounds, said)
        return Prompt(system=shared.system, shared=shared.text, segments=segments, layout=LAYOUT)

    def build_shared(self, context: PromptContext, seat: Seat) -> SharedPrompt:
        """What all cells of the seat's conversation read before any message.

        Raises:
            ModelFailure: not even the task alone fits into the context.
        """
        most = 1 + max(len(seat.dag.list_predecessors(slot)) for slot in seat.dag.slots)
        limit = compute_prefix_limit(self.context_tokens, messages=most, max_tokens=self.max_tokens)
        return fit_shared(self.template, context, history=self.history, limit=limit, count=self.count_tokens)

    def build_question(self, observation: Observation, question: str) -> Prompt:
        """A question about a screen: no goal, no rules of acting, no messages."""
        return self.template.build_question(observation, question)


QUALITIES = (0.1, 0.35, 0.6, 0.85)
"""Chance that a peer is right, drawn once per conversation."""
BROKEN = 0.04
"""Chance that what a peer says holds no action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """How decisions are asked for.

    Args:
        share: of decisions with at least one message, in [0, 1]. The others are a single agent's and, as often, the
            first word in a team.
    """

    reader: Reader
    share: float = 0.5

    def build_decision(self, scene: Scene, right: Action, rng: random.Random) -> Prompt:
        """The prompt of a decision on a scene, from a seat drawn at random.

        Raises:
            ModelFailure: not even the task alone fits into the reader's context.
        """
        seat, context = self._draw_seat(rng), _build_context(scene, scene.task.goal, scene.history)
        told = self.reader.build_shared(context, seat).text if seat.hears else ""
        return self.reader.build_decision(context, seat, _write_messages(seat, right, scene, told, rng))

    def build_first_decision(
        self, scene: Scene, goal: str, history: tuple[HistoryEntry, ...], rng: random.Random
    ) -> Prompt:
        """The prompt of a decision with another goal and history, from a seat that has heard nothing yet.

        Raises:
            ModelFailure: not even the task alone fits into the reader's context.
        """
        return self.reader.build_decision(_build_context(scene, goal, history), self._draw_quiet_seat(rng), {})

    def _draw_seat(self, rng: random.Random) -> Seat:
        if rng.random() >= self.share:
            return self._draw_quiet_seat(rng)
        seat = self.reader.draw_seat(rng)
        talking = [cell for cell in seat.dag.list_cells(seat.rounds) if seat.dag.list_dependencies(cell)]
        if not talking:
            return self._draw_quiet_seat(rng)
        return Seat(dag=seat.dag, rounds=seat.rounds, cell=rng.choice(talking))

    def _draw_quiet_seat(self, rng: random.Random) -> Seat:
        if rng.random() < 0.5:
            return self.reader.seat_alone()
        seat = self.reader.draw_seat(rng)
        return Seat(dag=seat.dag, rounds=seat.rounds, cell=CellRef(rng.choice(seat.dag.layers[0]), 0))


def _build_context(scene: Scene, goal: str, history: tuple[HistoryEntry, ...]) -> PromptContext:
    return PromptContext(goal=goal, space=scene.suite.space, observation=scene.observation, history=history)


def _write_messages(seat: Seat, right: Action, scene: Scene, told: str, rng: random.Random) -> dict[CellRef, Message]:
    """What each cell that the seat hears has said; `told` is what all of them read."""
    quality, spot = rng.choice(QUALITIES), build_decision_point(scene)
    return {
        cell: Message(agent=cell.agent, round=cell.round, text=_write_message(right, spot, told, quality, rng))
        for cell in seat.hears
    }


def _write_message(right: Action, spot: DecisionPoint, told: str, quality: float, rng: random.Random) -> str:
    """One peer's reply, spelled as the right one is: by all that is told, so that capitals tell nobody who is right."""
    if rng.random() < BROKEN:
        return _write_broken(as_told(right, told), spot, rng)
    drawn = None if rng.random() < quality else next(draw_mistakes(right, spot, rng), None)
    said = as_told(right, told) if drawn is None else as_told_beside(drawn.action, right, told)
    return reply(said, spot.observation, spot.space)


def _write_broken(right: Action, spot: DecisionPoint, rng: random.Random) -> str:
    """A reply without an action: cut off, left out, or nothing that exists."""
    why = format_reason(right, spot.observation, spot.space)
    whole = write_reply(why, right, spot.space)
    cut = whole[: len(whole) - rng.randrange(2, 12)]
    return rng.choice((cut, f"Reason: {why}", "", f"Reason: {why}\nAction: none"))
