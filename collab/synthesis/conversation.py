"""Build the prompts that the trained policy will read, with a team conversation around each decision.

    prompt = reader.build_decision(context, reader.draw_seat(rng), heard=messages)
    prompt = reader.build_question(observation, "What does tapping [7] do?")

A decision prompt equals, letter for letter, that of `collab.agents.agent.Agent` at the same place of the conversation.

A policy that only heard right answers would learn to repeat them. So each peer is right or wrong by chance, sometimes
unreadable, while the reply to learn is always right.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from collab.agents.agent import compute_prefix_limit
from collab.config import EdgeSampler
from collab.errors import ModelFailure
from collab.graphs.dag import Dag
from collab.graphs.edges import sample
from collab.models.tokenizer import estimate_tokens
from collab.prompts.parse import write_reply
from collab.prompts.render import LAYOUT, PromptContext, PromptMessage, SharedPrompt, Template, fit_shared
from collab.rewards.mistakes import DecisionPoint, draw_mistakes
from collab.rewards.structured_replies import format_reason, format_reply
from collab.synthesis.renaming import as_told, as_told_beside
from collab.synthesis.screens import build_decision_point
from collab.synthesis.teacher import Scene
from collab.types import Action, CellRef, HistoryEntry, Observation, Prompt

ORDERED = EdgeSampler(sampler="ordered", p=0.5)
"""Sampler of edges in the paper's method, as in `graphs/team.yaml`."""

SINGLE = Dag(slots=("ada",))
"""A team of one, as in `graphs/single.yaml`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A peer's message in a prompt."""

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
        """The cells that it hears, in conversation order."""
        return self.dag.list_dependencies(self.cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Builds the policy's prompts; fields as in `agents/*.yaml` and `graphs/*.yaml`."""

    template: Template
    slots: tuple[str, ...] = ("ada", "ben", "cyd", "dee")
    rounds: int = 3
    edges: EdgeSampler = ORDERED
    """Sampler of a conversation's edges."""
    context_tokens: int = 8192
    history: int = 5
    max_tokens: int = 256
    """Room for a reply and for each message heard."""
    count_tokens: Callable[[str], int] = estimate_tokens

    def seat_alone(self) -> Seat:
        """Return the seat of a single agent without peers."""
        return Seat(dag=SINGLE, rounds=1, cell=CellRef(SINGLE.slots[0], 0))

    def draw_seat(self, rng: random.Random) -> Seat:
        """Draw a random cell of a team over a random graph."""
        dag = sample(self.edges, self.slots, rng.getrandbits(32))
        return Seat(dag=dag, rounds=self.rounds, cell=CellRef(rng.choice(self.slots), rng.randrange(self.rounds)))

    def build_decision(self, context: PromptContext, seat: Seat, heard: Mapping[CellRef, PromptMessage]) -> Prompt:
        """Build the decision prompt of one cell.

        Args:
            heard: the message of each cell in `seat.hears`.

        Raises:
            ModelFailure: not even the task alone fits into the context.
        """
        shared = self.build_shared(context, seat)
        said: Sequence[PromptMessage] = [heard[cell] for cell in seat.hears]
        segments = self.template.render_segments(seat.cell.agent, seat.cell.round, seat.rounds, said)
        return Prompt(system=shared.system, shared=shared.text, segments=segments, layout=LAYOUT)

    def build_alone(self, scene: Scene, goal: str | None = None) -> Prompt | None:
        """Build the decision prompt of a single agent; None if the task does not fit into the context.

        Args:
            goal: replaces the scene's task and history; None for the task.
        """
        alone = _build_context(scene, goal or scene.task.goal, () if goal else scene.history)
        with contextlib.suppress(ModelFailure):
            return self.build_decision(alone, self.seat_alone(), {})
        return None

    def build_shared(self, context: PromptContext, seat: Seat) -> SharedPrompt:
        """Build the prompt part shared by all cells; ModelFailure if not even the task fits into the context."""
        most = 1 + max(len(seat.dag.list_predecessors(slot)) for slot in seat.dag.slots)
        limit = compute_prefix_limit(self.context_tokens, messages=most, max_tokens=self.max_tokens)
        return fit_shared(self.template, context, history=self.history, limit=limit, count=self.count_tokens)

    def build_question(self, observation: Observation, question: str) -> Prompt:
        """Build a question about a screen, without goal, rules of acting and messages."""
        return self.template.build_question(observation, question)


QUALITIES = (0.1, 0.35, 0.6, 0.85)
"""Chance that a peer is right, drawn once per conversation."""
BROKEN = 0.04
"""Chance that a peer's reply has no action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """Draws conversations around decisions.

    Args:
        share: of decisions with at least one message, in [0, 1]. The others are equally often a single agent's and the
            first of a team.
    """

    reader: Reader
    share: float = 0.5

    def build_decision(self, scene: Scene, right: Action, rng: random.Random) -> Prompt:
        """Build a decision prompt on a scene for a random seat; ModelFailure as in `build_shared`."""
        seat, context = self._draw_seat(rng), _build_context(scene, scene.task.goal, scene.history)
        told = self.reader.build_shared(context, seat).text if seat.hears else ""
        return self.reader.build_decision(context, seat, _write_messages(seat, right, scene, told, rng))

    def build_first_decision(
        self, scene: Scene, goal: str, history: tuple[HistoryEntry, ...], rng: random.Random
    ) -> Prompt:
        """Build a decision prompt with another goal and history, and no messages; errors as `build_shared`."""
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
    """Write the message of each cell that the seat hears; `told` is their shared prompt."""
    quality, spot = rng.choice(QUALITIES), build_decision_point(scene)
    return {
        cell: Message(agent=cell.agent, round=cell.round, text=_write_message(right, spot, told, quality, rng))
        for cell in seat.hears
    }


def _write_message(right: Action, spot: DecisionPoint, told: str, quality: float, rng: random.Random) -> str:
    """Write one peer's reply, spelled as the prompt does, so that capitals do not reveal the right one."""
    if rng.random() < BROKEN:
        return _write_broken(as_told(right, told), spot, rng)
    drawn = None if rng.random() < quality else next(draw_mistakes(right, spot, rng), None)
    said = as_told(right, told) if drawn is None else as_told_beside(drawn.action, right, told)
    return format_reply(said, spot.observation, spot.space)


def _write_broken(right: Action, spot: DecisionPoint, rng: random.Random) -> str:
    """Write a reply without an action: cut off, missing, or of an unknown type."""
    why = format_reason(right, spot.observation, spot.space)
    whole = write_reply(why, right, spot.space)
    cut = whole[: len(whole) - rng.randrange(2, 12)]
    return rng.choice((cut, f"Reason: {why}", "", f"Reason: {why}\nAction: none"))
