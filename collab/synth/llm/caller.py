"""Asking a teacher's model: one limit per call, one seed per question, and no question twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from collab.credit.asking import ask, prompt_hash, text_hash
from collab.models.base import Model, Reply
from collab.seeds import derive
from collab.types import Prompt, Sampling


class Memory(Protocol):
    """Remembers replies, so that work that is done again does not pay for them again."""

    def recall(self, call: str) -> str | None:
        """What was replied to this call before; None when it was never answered."""

    def keep(self, call: str, reply: Reply) -> None:
        """Remember a reply the moment it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A model that is asked."""

    model: Model
    sampling: Sampling
    call_s: float = 120.0
    """Limit of one call, retries included and waiting in line not."""
    memory: Memory | None = None
    """None asks anew every time."""

    async def ask(self, prompt: Prompt, seed: int, role: str) -> str:
        """The reply's text.

        Args:
            role: what is asked; with `seed` it decides the seed of the call.

        Raises:
            ModelFailure: the call failed after its retries or took longer than its limit.
        """
        call = text_hash("\x1f".join([prompt_hash(prompt), str(seed), role]))
        known = None if self.memory is None else self.memory.recall(call)
        if known is not None:
            return known
        call_seed = derive(seed, "teacher", role)
        reply = await ask(self.model, prompt, self.sampling, seed=call_seed, call_s=self.call_s, who="the teacher")
        if self.memory is not None:
            self.memory.keep(call, reply)
        return reply.text
