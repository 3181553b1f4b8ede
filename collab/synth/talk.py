"""The conversation around a decision: a seat in a team, and what its peers say, right and wrong.

A policy that only ever heard right answers would learn to repeat them. Here every peer is right or wrong by chance,
now and then unreadable, and the reply to learn is always the right one: what others say helps only as far as it fits
the screen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from collab.credit.sampler import Spot, mistakes
from collab.credit.wording import reason, reply
from collab.prompts.parse import write_reply
from collab.prompts.render import Context
from collab.synth.reader import Message, Reader, Seat
from collab.synth.renaming import as_told, as_told_beside
from collab.synth.scenes import spot_of
from collab.synth.teacher import Scene
from collab.types import Action, CellRef, HistoryEntry, Prompt

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

    def decision(self, scene: Scene, right: Action, rng: random.Random) -> Prompt:
        """The prompt of a decision on a scene, from a seat drawn at random.

        Raises:
            ModelFailure: not even the task alone fits into the reader's context.
        """
        seat, context = self._seat(rng), _context(scene, scene.task.goal, scene.history)
        told = self.reader.shared(context, seat).text if seat.hears else ""
        return self.reader.decision(context, seat, _said(seat, right, scene, told, rng))

    def first_word(self, scene: Scene, goal: str, history: tuple[HistoryEntry, ...], rng: random.Random) -> Prompt:
        """The prompt of a decision with another goal and history, from a seat that has heard nothing yet.

        Raises:
            ModelFailure: not even the task alone fits into the reader's context.
        """
        return self.reader.decision(_context(scene, goal, history), self._quiet(rng), {})

    def _seat(self, rng: random.Random) -> Seat:
        if rng.random() >= self.share:
            return self._quiet(rng)
        seat = self.reader.seat(rng)
        talking = [cell for cell in seat.dag.conversation(seat.rounds) if seat.dag.dependencies(cell)]
        if not talking:
            return self._quiet(rng)
        return Seat(dag=seat.dag, rounds=seat.rounds, cell=rng.choice(talking))

    def _quiet(self, rng: random.Random) -> Seat:
        if rng.random() < 0.5:
            return self.reader.alone()
        seat = self.reader.seat(rng)
        return Seat(dag=seat.dag, rounds=seat.rounds, cell=CellRef(rng.choice(seat.dag.layers[0]), 0))


def _context(scene: Scene, goal: str, history: tuple[HistoryEntry, ...]) -> Context:
    return Context(goal=goal, space=scene.suite.space, observation=scene.observation, history=history)


def _said(seat: Seat, right: Action, scene: Scene, told: str, rng: random.Random) -> dict[CellRef, Message]:
    """What each cell that the seat hears has said; `told` is what all of them read."""
    quality, spot = rng.choice(QUALITIES), spot_of(scene)
    return {
        cell: Message(agent=cell.agent, round=cell.round, text=_word(right, spot, told, quality, rng))
        for cell in seat.hears
    }


def _word(right: Action, spot: Spot, told: str, quality: float, rng: random.Random) -> str:
    """One peer's reply, spelled as the right one is: by all that is told, so that capitals tell nobody who is right."""
    if rng.random() < BROKEN:
        return _broken(as_told(right, told), spot, rng)
    drawn = None if rng.random() < quality else next(mistakes(right, spot, rng), None)
    said = as_told(right, told) if drawn is None else as_told_beside(drawn.action, right, told)
    return reply(said, spot.observation, spot.space)


def _broken(right: Action, spot: Spot, rng: random.Random) -> str:
    """A reply without an action: cut off, left out, or nothing that exists."""
    why = reason(right, spot.observation, spot.space)
    whole = write_reply(why, right, spot.space)
    cut = whole[: len(whole) - rng.randrange(2, 12)]
    return rng.choice((cut, f"Reason: {why}", "", f"Reason: {why}\nAction: none"))
