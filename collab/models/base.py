"""The seam between the project and a language model.

    reply = await model.generate(Request(prompt=prompt, sampling=sampling, seed=seed))

`generate` is called concurrently, once per cell of the action matrix and by many episodes at once; a model that can
batch gathers the calls that are waiting (`local`), one that talks to a server bounds how many are in flight
(`openai`). Retries live inside the model and nowhere else. A call that cannot be answered raises `ModelFailure`;
the episode that asked is recorded as failed and its siblings go on.

What a model has been asked and what it cost: counted where the calls are made, read by whoever shows it.

meter.retried(), meter.answered(…), meter.failed(…)  →  meter.snapshot().calls
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from collab.config import Budget
from collab.envs.grammar import ActionSpace
from collab.errors import UsageError
from collab.types import Action, Observation, PolicyRef, Prompt, Sampling
from collab.utils.concurrency import wait_unless_stopped

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

    def note_failure(self, problem: str) -> None:
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


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The meter at one moment."""

    calls: int = 0
    """Calls that were answered or failed for good; a call with three retries is one call."""
    failures: int = 0
    """Calls that failed for good."""
    retries: int = 0
    """Attempts beyond each call's first."""
    lost: int = 0
    """Attempts that were sent and never answered whole (cancelled, timed out, cut off): what they cost is not known."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    computed_tokens: int = 0
    """Prompt tokens that were computed, over the calls that tell."""
    cacheable_tokens: int = 0
    """Prompt tokens of the calls that tell how many of them were computed."""
    cost_usd: float = 0.0
    """Sum over the calls whose price is known."""
    queue_s: float = 0.0
    """Sum over the calls that tell how long they stood in line."""
    latency_s: float = 0.0
    """Sum over all calls, waiting and retries included."""

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that came from a prefix cache, over the calls that tell; None before the first.

        0 where more was computed than was asked for: what memory drove out is computed again.
        """
        return max(0.0, 1 - self.computed_tokens / self.cacheable_tokens) if self.cacheable_tokens else None


@dataclass(slots=True)
class Meter:
    """Adds up calls from any thread."""

    _reading: Reading = field(default_factory=Reading)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count_answer(
        self,
        *,
        latency_s: float,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        computed_tokens: int | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Count a call that was answered; None where the model does not count."""
        self._add(
            calls=1,
            latency_s=latency_s,
            prompt_tokens=prompt_tokens or 0,
            completion_tokens=completion_tokens or 0,
            computed_tokens=computed_tokens or 0,
            cacheable_tokens=0 if computed_tokens is None else prompt_tokens or 0,
            cost_usd=cost_usd or 0.0,
        )

    def count_failure(self, *, latency_s: float) -> None:
        """Count a call that failed for good."""
        self._add(calls=1, failures=1, latency_s=latency_s)

    def add_queue_time(self, seconds: float) -> None:
        """Add what one call stood in line."""
        self._add(queue_s=seconds)

    def count_retry(self) -> None:
        """Count one attempt beyond the first."""
        self._add(retries=1)

    def lose(self) -> None:
        """Count one attempt that was sent and never answered whole."""
        self._add(lost=1)

    def snapshot(self) -> Reading:
        """All counts as of now, consistent with one another."""
        return self._reading  # replaced as a whole, never changed

    def _add(self, **amounts: float) -> None:
        with self._lock:
            now = self._reading
            self._reading = replace(now, **{name: getattr(now, name) + amount for name, amount in amounts.items()})


@runtime_checkable
class Metered(Protocol):
    """A model with a meter; all models of this project are."""

    meter: Meter


def count_lost_calls(asker: object) -> int:
    """Return how many attempts of a critic, an adversary or a model are of unknown cost; 0 where it does not tell."""
    told = getattr(asker, "lost", None)
    if told is None:
        return asker.meter.snapshot().lost if isinstance(asker, Metered) else 0
    return int(told)


def tell_lost(model: object, who: str) -> None:
    """Warn of the attempts of a model whose cost is not known; nothing where there is none, or no meter.

    Args:
        who: asked the model, for the message: "the critic".
    """
    lost = count_lost_calls(model)
    if lost:
        calls = "1 call" if lost == 1 else f"{lost} calls"
        logger.warning("%s: %s sent and never answered whole; the cost is not known", who, calls)


class Probed(Protocol):
    """Whatever says what it supports."""

    async def probe(self) -> Capabilities:
        """Find out, once."""
        ...


async def check_counted(model: Probed, budget: Budget, where: str, stop: asyncio.Event | None = None) -> Capabilities:
    """Refuse a limit that would never be reached; a server that does not answer is found before anybody is asked.

    Returns:
        What the model supports.

    Raises:
        UsageError: a limit is on something that the model does not count.
        ModelFailure: its server does not answer.
        Stopped: somebody asked to stop first.
    """
    able = await wait_unless_stopped(model.probe(), stop, f"{where} was asked what it supports")
    if budget.usd is not None and not able.knows_price:
        raise UsageError(
            f"--budget usd: {where} does not say what it costs; set its prices, or limit tokens or minutes"
        )
    if budget.tokens is not None and not able.counts_tokens:
        raise UsageError(f"--budget tokens: {where} does not count tokens; limit minutes instead")
    return able
