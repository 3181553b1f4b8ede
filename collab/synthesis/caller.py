"""Calls of the models of a synthesis, remembered so that no reply is paid for twice.

caller = Caller(model=model, sampling=sampling, memory=ledger)
text = await caller.ask(prompt, scene.seed, "screen")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from collab.models.base import Model, Reply
from collab.rewards.structured_replies import ask, hash_prompt
from collab.seeds import derive
from collab.types import Prompt, Sampling
from collab.utils.files import hash_text


class ReplyMemory(Protocol):
    """Remembers replies, so that work that is done again does not pay for them again."""

    def recall(self, call: str) -> str | None:
        """Return the earlier reply to this call; None without one."""

    def keep(self, call: str, reply: Reply) -> None:
        """Remember a reply the moment it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Calls a model: one limit per call, one seed per question, no question twice."""

    model: Model
    sampling: Sampling
    call_s: float = 120.0
    """Limit of one call in seconds, with retries but without queueing."""
    memory: ReplyMemory | None = None
    """None repeats every call."""
    who: str = "the teacher"
    """Noun for messages."""

    async def ask(self, prompt: Prompt, seed: int, role: str) -> str:
        """Return the reply's text.

        Args:
            role: kind of question; with `seed` it decides the seed of the call.

        Raises:
            ModelFailure: the call failed after its retries or took longer than its limit.
        """
        call = hash_text("\x1f".join([hash_prompt(prompt), str(seed), role]))
        known = None if self.memory is None else self.memory.recall(call)
        if known is not None:
            return known
        call_seed = derive(seed, "teacher", role)
        reply = await ask(self.model, prompt, self.sampling, seed=call_seed, call_s=self.call_s, who=self.who)
        if self.memory is not None:
            self.memory.keep(call, reply)
        return reply.text
