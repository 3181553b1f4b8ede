"""Asking within limits: when they are reached, what is in flight is still kept, and then work stops."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from collab.background import GRACE_S, Stopped, unless_stopped
from collab.collector import Progress as Meter
from collab.config import Budget
from collab.credit.adversary import Adversary, Occasion, Proposal, reads_rewarded
from collab.errors import RunError
from collab.models.meter import lost_by


class Exhausted(RunError):
    """Nothing more may be asked; says why."""


@dataclass(slots=True, kw_only=True)
class AllowedAdversary:
    """Another adversary, asked as long as there is room."""

    adversary: Adversary
    budget: Budget
    meter: Meter
    """What was spent so far; counts on."""
    stop: asyncio.Event
    """Set from outside to end."""
    at_once: int
    """Calls in flight together where money or tokens are limited: so many are paid beyond a limit at most."""
    answered: int = 0
    _flying: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.at_once)

    @property
    def name(self) -> str:
        """Of the one that is asked."""
        return self.adversary.name

    @property
    def version(self) -> str:
        """Of the one that is asked."""
        return self.adversary.version

    @property
    def reads_rewarded(self) -> bool:
        """Of the one that is asked."""
        return reads_rewarded(self.adversary)

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return lost_by(self.adversary)

    async def propose(self, occasion: Occasion) -> Proposal | None:
        """What the other says.

        Raises:
            Exhausted: nothing more may be asked, and nobody is being asked any more.
            Refusal, ModelFailure: as the other raises them.
        """
        if self.budget.usd is None and self.budget.tokens is None:
            return await self._ask(occasion)
        async with self._room:
            return await self._ask(occasion)

    async def _ask(self, occasion: Occasion) -> Proposal | None:
        why = "stopped on request" if self.stop.is_set() else self.meter.exceeded(self.budget)
        if why is not None:
            while self._flying:
                await self._idle.wait()
            raise Exhausted(why)
        self._flying += 1
        self._idle.clear()
        try:
            asking = self.adversary.propose(occasion)
            proposal = await unless_stopped(asking, self.stop, "an adversary was asked", grace_s=GRACE_S)
        except Stopped:
            raise Exhausted("stopped on request") from None
        finally:
            self._flying -= 1
            if not self._flying:
                self._idle.set()
        self.answered += 1
        if proposal is not None:
            self._count(proposal)
        return proposal

    def _count(self, proposal: Proposal) -> None:
        self.meter.calls += proposal.spent.calls
        self.meter.prompt_tokens += proposal.spent.prompt_tokens
        self.meter.completion_tokens += proposal.spent.completion_tokens
        self.meter.cost_usd += proposal.spent.cost_usd
