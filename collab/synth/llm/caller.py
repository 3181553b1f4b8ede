"""Asking a teacher's model: one limit per call, one seed per question, and everything that it cost told at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collab.errors import ModelFailure, boundary
from collab.models.base import CallClock, Model, Reply, Request
from collab.seeds import derive
from collab.types import Prompt, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A model that is asked."""

    model: Model
    sampling: Sampling
    call_s: float = 120.0
    """Limit of one call, retries included and waiting in line not."""
    spent: Callable[[Reply], None] = lambda reply: None
    """Told of every reply the moment it comes."""

    async def ask(self, prompt: Prompt, seed: int, role: str) -> str:
        """The reply's text.

        Args:
            role: what is asked; with `seed` it decides the seed of the call.

        Raises:
            ModelFailure: the call failed after its retries or took longer than its limit.
        """
        clock = CallClock(self.call_s)
        request = Request(prompt=prompt, sampling=self.sampling, seed=derive(seed, "teacher", role), clock=clock)
        with boundary(ModelFailure, f"call of the teacher to {self.model.policy.base} (limit {self.call_s:g} s)"):
            async with clock.running():
                reply = await self.model.generate(request)
        self.spent(reply)
        return reply.text
