"""One question to a model, with one limit; what several at once came to; and the names of texts and prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from collab.errors import ModelFailure, boundary
from collab.models.base import CallClock, Model, Reply, Request
from collab.types import Prompt, Sampling, Spent


class PartlyAnswered(ModelFailure):
    """Of several questions about one thing, some were answered and one failed for good: the answers are lost.

    Args:
        failure: what went wrong.
        spent: what the answers cost.
    """

    def __init__(self, failure: ModelFailure, spent: Spent) -> None:
        super().__init__(str(failure))
        self.failure, self.spent = failure, spent


def first_failure(found: Iterable[object]) -> BaseException | None:
    """What is to be raised of what `asyncio.gather` returned; None where nothing failed.

    The first in order; but whatever is no ModelFailure ends more than this one thing and comes before any that is.
    """
    failures = [one for one in found if isinstance(one, BaseException)]
    return min(failures, key=lambda one: isinstance(one, ModelFailure), default=None)


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
