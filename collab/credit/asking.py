"""One question to a model, with one limit; and the names of texts and prompts."""

from __future__ import annotations

import hashlib

from collab.errors import ModelFailure, boundary
from collab.models.base import CallClock, Model, Reply, Request
from collab.types import Prompt, Sampling


async def ask(model: Model, prompt: Prompt, sampling: Sampling, *, seed: int, call_s: float, who: str) -> Reply:
    """Ask a model once.

    Args:
        seed: of this call alone.
        call_s: limit in seconds, retries included and waiting in line not.
        who: asks, for messages: "the critic".

    Raises:
        ModelFailure: the call failed after its retries or took longer than its limit.
    """
    clock = CallClock(call_s)
    request = Request(prompt=prompt, sampling=sampling, seed=seed, clock=clock)
    with boundary(ModelFailure, f"call of {who} to {model.policy.base} (limit {call_s:g} s)"):
        async with clock.running():
            return await model.generate(request)


def text_hash(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def prompt_hash(prompt: Prompt) -> str:
    """SHA-256 of a prompt as it was asked."""
    return text_hash("\f".join([prompt.system, prompt.user]))
