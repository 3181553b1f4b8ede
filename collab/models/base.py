"""The seam between the project and a language model.

    reply = await model.generate(Request(prompt=prompt, sampling=sampling, seed=seed))

`generate` is called concurrently, once per cell of the action matrix and by many episodes at once; a model that can
batch gathers the calls that are waiting (`local`), one that talks to a server bounds how many are in flight
(`openai`). Retries live inside the model and nowhere else. A call that cannot be answered raises `ModelFailure`;
the episode that asked is recorded as failed and its siblings go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from collab.envs.grammar import ActionSpace
from collab.types import Action, Observation, PolicyRef, Prompt, Sampling

Oracle = Callable[[], tuple[Action, ...] | None]
"""Read-only view of an episode's solution: remaining optimal actions, or None when unknown. Calling it never
changes the episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Privilege:
    """What only a privileged model is handed: the solution and the screen as data."""

    oracle: Oracle
    observation: Observation
    space: ActionSpace


class CallClock:
    """The time limit of one call, which counts work and not waiting in line.

        clock.hold()            waiting for a free slot or a batch
        clock.go()              the call is being answered from now on

    A model that never queues needs neither: the clock runs from the start.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timeout: asyncio.Timeout | None = None
        self.problem = ""
        """What the last failed attempt of the call met; empty before one has failed."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the block under the limit; TimeoutError, with the last problem, when it is used up."""
        try:
            async with asyncio.timeout(self._limit_s) as self._timeout:
                yield
        except TimeoutError:
            raise TimeoutError(self.problem) from None
        self._timeout = None

    def seconds_left(self) -> float | None:
        """Return what is left of the limit; None while the clock stands still."""
        when = None if self._timeout is None else self._timeout.when()
        return None if when is None else when - asyncio.get_running_loop().time()

    def failed(self, problem: str) -> None:
        """Keep why an attempt failed after which another follows."""
        self.problem = problem

    def hold(self) -> None:
        """Stop the clock."""
        self._set(None)

    def go(self) -> None:
        """Start it anew."""
        self._set(asyncio.get_running_loop().time() + self._limit_s)

    def _set(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call."""

    prompt: Prompt
    sampling: Sampling
    seed: int
    """Of this call alone; a server that takes no seed ignores it."""
    images: tuple[bytes, ...] = ()
    """Encoded pictures (PNG or WebP), in the order of `prompt.images`."""
    privilege: Privilege | None = None
    """Set only for a model that declares `privileged`."""
    clock: CallClock | None = None
    """Limit of this call; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer, with what the model can tell about how it came about."""

    text: str
    """As sampled, without the end-of-turn token."""
    finish: str = "stop"
    """"stop"; "length" when max_tokens cut it; "reasoning", "refusal", "tool_call" or "content_filter" when the server
    says that this came in place of a text."""
    aside: str = ""
    """What the server gave in place of a text (the words of a refusal, a tool's name), cut; empty when nothing."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    computed_tokens: int | None = None
    """Prompt tokens that were computed for this call; the others came from a cache. None when not told."""
    queue_s: float | None = None
    """Seconds in line before anything was computed; None when not told."""
    work_s: float | None = None
    """Seconds from then to the last token, prompt and reply; None when not told."""
    width: float | None = None
    """Sequences computed together, on average over the reply's tokens; None when not told."""
    tokens: tuple[int, ...] | None = None
    """Ids as sampled, without the end-of-turn token; None when the server gives none."""
    tokenizer: str | None = None
    """Fingerprint of the tokenizer of `tokens`; None when `tokens` is None."""
    logprobs: tuple[float, ...] | None = None
    """Per token of `tokens`, plain policy, in nats; None when not given."""
    behaviour_logprobs: tuple[float, ...] | None = None
    """Per token, under the distribution sampled from; None when not given."""
    cost_usd: float | None = None
    warning: str = ""
    """What is amiss though there is a reply, the same words for the same thing; empty for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model or its server was found to support; probed once, stored in the run."""

    logprobs: bool = False
    structured: bool = False
    """Structured replies (`response_format`)."""
    seed: bool = False
    images: bool = False
    adapters: bool = False
    token_ids: bool = False
    counts_tokens: bool = False
    """Whether replies say how many tokens they cost."""
    knows_price: bool = False
    """Whether replies say what they cost in USD."""
    weights: str | None = None
    """Digest of the weights that answer; None when a server answers and does not tell."""
    notes: tuple[str, ...] = ()
    """What the probe saw, one line each."""


@runtime_checkable
class Model(Protocol):
    """Answers prompts."""

    policy: PolicyRef
    privileged: bool
    """True only for models that look at the solution (the rehearsal)."""

    async def generate(self, request: Request) -> Reply:
        """Answer one prompt.

        Raises:
            ModelFailure: after the model's own retries, or at once when retrying cannot help.
        """
        ...

    async def probe(self) -> Capabilities:
        """Find out, once, what the model supports; later calls return the same answer."""
        ...

    def count_tokens(self, text: str) -> int:
        """Length of a text in tokens.

        Where the tokenizer is not at hand, an estimate that is never too low by more than a tenth.
        """
        ...

    async def close(self) -> None:
        """Give back memory and connections. May be called twice."""
        ...


@runtime_checkable
class Adaptable(Protocol):
    """A model that can speak with other adapters over the same weights in memory."""

    def with_adapter(self, adapter: str | None, version: int) -> Model:
        """A model of its own under another adapter; None for the base weights.

        Raises:
            ConfigError: the adapter does not fit.
        """
        ...


@runtime_checkable
class AskedAlike(Protocol):
    """A model that is probed with the sampling that a run will ask it with."""

    sampling: Sampling
