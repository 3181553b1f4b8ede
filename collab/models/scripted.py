"""A model that says what it was told to say: for tests, of this project and of its users.

model = ScriptedModel(replies=["Reason: nothing loads yet. Action: wait()", "…"])
model = ScriptedModel(rule=lambda prompt, seed: f"Action: click(id={seed % 3})")

It fails and dawdles on demand, so that what stands around a model can be tested without a server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from collab.errors import ConfigError, ModelFailure
from collab.models.base import Capabilities, Reply, Request
from collab.models.estimate import estimate_prompt, estimate_tokens
from collab.models.meter import Meter
from collab.types import PolicyRef, Prompt


class ScriptedModel:
    """Replies from a list or from a rule.

    Args:
        replies: given out by position, over and over. Which call gets which depends on the order of the calls; use a
            rule where that must not matter.
        rule: a pure function of (prompt, seed); excludes `replies`.
        fail_calls: positions (from 0) of calls that raise ModelFailure.
        hang_calls: positions of calls that never return.
        delay_s: seconds that every call takes.
        name: what a run calls the policy.

    Raises:
        ConfigError: not exactly one of `replies` and `rule` was given.
    """

    privileged = False

    def __init__(
        self,
        *,
        replies: list[str] | None = None,
        rule: Callable[[Prompt, int], str] | None = None,
        fail_calls: list[int] | None = None,
        hang_calls: list[int] | None = None,
        delay_s: float = 0.0,
        name: str = "scripted",
    ) -> None:
        if bool(replies) == (rule is not None):
            raise ConfigError("a scripted model needs either replies (at least one) or a rule")
        self.policy = PolicyRef(base=name)
        self.meter = Meter()
        self.requests: list[Request] = []
        """Everything that was asked, in order."""
        self._replies = replies or []
        self._rule = rule
        self._fail = frozenset(fail_calls or ())
        self._hang = frozenset(hang_calls or ())
        self._delay_s = delay_s

    @property
    def calls(self) -> int:
        """How many calls came in, failed and hanging ones included."""
        return len(self.requests)

    async def generate(self, request: Request) -> Reply:
        """The next reply; ModelFailure where it was told to fail."""
        position = len(self.requests)
        self.requests.append(request)
        started = time.perf_counter()
        if position in self._hang:
            await asyncio.Event().wait()
        await asyncio.sleep(self._delay_s)
        if position in self._fail:
            self.meter.failed(latency_s=time.perf_counter() - started)
            raise ModelFailure(f"{self.policy.base}: call {position} was told to fail")
        text = self._text(request, position)
        reply = Reply(
            text=text,
            prompt_tokens=estimate_prompt(request.prompt),
            completion_tokens=self.count_tokens(text),
        )
        self.meter.answered(
            latency_s=time.perf_counter() - started,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )
        return reply

    def _text(self, request: Request, position: int) -> str:
        if self._rule is not None:
            return self._rule(request.prompt, request.seed)
        return self._replies[position % len(self._replies)]

    async def probe(self) -> Capabilities:
        """It can do nothing but talk; a rule depends on the seed."""
        return Capabilities(seed=self._rule is not None, counts_tokens=True, notes=("scripted: not a language model",))

    def count_tokens(self, text: str) -> int:
        """An estimate."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Nothing is held."""
