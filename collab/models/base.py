"""The interface of a language model, and the meter that counts its calls.

    reply = await model.generate(Request(prompt=prompt, sampling=sampling, seed=seed))

Many episodes call `generate` concurrently, once per cell of the action matrix. The local model batches the waiting
calls (`local`); the client of a server bounds how many are in flight (`openai`). Only the model retries. A call that
cannot be answered raises `ModelFailure`: its episode is recorded as failed, the other episodes continue.

    meter.count_retry(), meter.count_answer(…), meter.count_failure(…)  →  meter.snapshot().calls
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeGuard, runtime_checkable

from collab.config import Budget
from collab.dialects.base import Dialect
from collab.envs.grammar import ActionSpace
from collab.errors import UsageError
from collab.types import Action, Observation, PolicyRef, Prompt, Sampling
from collab.utils.concurrency import wait_unless_stopped

Oracle = Callable[[], tuple[Action, ...] | None]
"""Read-only view of an episode's solution: remaining optimal actions, or None when unknown. Calling it never
changes the episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Privilege:
    """Input that only a privileged model gets: the solution and the screen as data."""

    oracle: Oracle
    observation: Observation
    space: ActionSpace
    dialect: Dialect | None = None
    """In which the reply is read; None for the environment's own actions."""


class CallClock:
    """The time limit of one call; time in the queue does not count.

        clock.hold()            waiting for a free slot or a batch
        clock.go()              the call is being answered from now on

    The clock runs from the start, so a model that never queues needs neither.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._timeout: asyncio.Timeout | None = None
        self.problem = ""
        """Why the call's last attempt failed; empty before a failure."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the block under the limit; TimeoutError with the last problem when it is exceeded."""
        try:
            async with asyncio.timeout(self.limit_s) as self._timeout:
                yield
        except TimeoutError:
            raise TimeoutError(self.problem) from None
        self._timeout = None

    def seconds_left(self) -> float | None:
        """Return the seconds left of the limit; None while the clock is stopped."""
        when = None if self._timeout is None else self._timeout.when()
        return None if when is None else when - asyncio.get_running_loop().time()

    def note_failure(self, problem: str) -> None:
        """Keep why an attempt failed that is retried."""
        self.problem = problem

    def hold(self) -> None:
        """Stop the clock."""
        self._set(None)

    def go(self) -> None:
        """Restart the clock."""
        self._set(asyncio.get_running_loop().time() + self.limit_s)

    def _set(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call."""

    prompt: Prompt
    sampling: Sampling
    seed: int
    """Seed of this call; a server without seeds ignores it."""
    images: tuple[bytes, ...] = ()
    """Encoded pictures (PNG or WebP), in the order of `prompt.images`."""
    has_pixel_points: bool = False
    """Whether the reply's points are pixels of these pictures: a model that makes them smaller must refuse."""
    privilege: Privilege | None = None
    """Set only for a model that declares `privileged`."""
    clock: CallClock | None = None
    """Limit of this call; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer and what the model reports about computing it."""

    text: str
    """As sampled, without the end-of-turn token."""
    finish: str | None = "stop"
    """"stop"; "length" when max_tokens cut it; "reasoning", "refusal", "tool_call" or "content_filter" when the server
    reports one of these in place of a text; None when it does not report how the reply ended."""
    aside: str = ""
    """Shortened output in place of a text (a refusal's words, a tool's name); empty without one."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    computed_tokens: int | None = None
    """Prompt tokens that were computed for this call; the others came from a cache. None when not reported."""
    queue_s: float | None = None
    """Seconds in the queue; None when not reported."""
    work_s: float | None = None
    """Seconds from leaving the queue to the last token; None when not reported."""
    width: float | None = None
    """Sequences computed together, averaged over the reply's tokens; None when not reported."""
    tokens: tuple[int, ...] | None = None
    """Ids as sampled, without the end-of-turn token; None when the server gives none."""
    tokenizer: str | None = None
    """Fingerprint of the tokenizer of `tokens`; None when `tokens` is None."""
    logprobs: tuple[float, ...] | None = None
    """Per token of `tokens`, plain policy, in nats; None when not given."""
    behaviour_logprobs: tuple[float, ...] | None = None
    """Per token, under the distribution sampled from; None when not given."""
    end_token: int | None = None
    """Id of the end-of-turn token; None when none was sampled (a cut reply, a stop string) or it is not given."""
    end_logprob: float | None = None
    """As `logprobs`, of the end-of-turn token; None when none was sampled or it is not given."""
    end_behaviour_logprob: float | None = None
    """As `behaviour_logprobs`, of the end-of-turn token; None as `end_logprob`."""
    cost_usd: float | None = None
    warning: str = ""
    """A problem despite the reply, equal text for equal problems; empty without one."""


SAMPLERS = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty"),
)
"""Names of settings that change which words are drawn, as servers know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Features that a model or its server supports; probed once, stored in the run."""

    logprobs: bool = False
    structured: bool = False
    """Structured replies (`response_format`)."""
    seed: bool = False
    images: bool = False
    adapters: bool = False
    token_ids: bool = False
    counts_tokens: bool = False
    """Whether replies report token counts."""
    knows_price: bool = False
    """Whether replies report their cost in USD."""
    sampled: Mapping[str, float | None] = field(default_factory=dict)
    """Sampling that takes the place of the definition's; None where the model takes no value and uses its own."""
    weights: str | None = None
    """Digest of the weights; None for a server that does not report it."""
    notes: tuple[str, ...] = ()
    """Findings of the probe, one line each."""


@runtime_checkable
class Model(Protocol):
    """Answers prompts."""

    policy: PolicyRef
    privileged: bool
    """True only for models that read the solution (the rehearsal)."""

    async def generate(self, request: Request) -> Reply:
        """Answer one prompt.

        Raises:
            ModelFailure: after the model's own retries, or at once when retrying cannot help.
        """
        ...

    async def probe(self) -> Capabilities:
        """Return what the model supports; found out once, then remembered."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return a text's length in tokens; without the tokenizer, an estimate at most a tenth too low."""
        ...

    async def close(self) -> None:
        """Give back memory and connections. May be called twice."""
        ...


@runtime_checkable
class Adaptable(Protocol):
    """A model that can use other adapters over the same weights in memory."""

    def with_adapter(self, adapter: str | None, version: int) -> Model:
        """Return a separate model with another adapter; None for the base weights.

        Raises:
            ConfigError: the adapter does not fit.
        """
        ...


@runtime_checkable
class AskedAlike(Protocol):
    """A model that is probed with the run's own sampling."""

    sampling: Sampling


@runtime_checkable
class NamesItsCheck(Protocol):
    """A model whose errors name the command that checks its agents file."""

    check_command: str


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
    """Attempts without a complete answer (cancelled, timed out, cut off); their cost is unknown."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    computed_tokens: int = 0
    """Prompt tokens that were computed, over the calls that report it."""
    cacheable_tokens: int = 0
    """Prompt tokens of the calls that report how many were computed."""
    cost_usd: float = 0.0
    """Sum over the calls whose price is known."""
    queue_s: float = 0.0
    """Sum over the calls that report their time in the queue."""
    latency_s: float = 0.0
    """Sum over all calls, waiting and retries included."""


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
        """Count an answered call; None for numbers that the model does not report."""
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
        """Add one call's time in the queue."""
        self._add(queue_s=seconds)

    def count_retry(self) -> None:
        """Count one attempt beyond the first."""
        self._add(retries=1)

    def lose(self) -> None:
        """Count one attempt without a complete answer."""
        self._add(lost=1)

    def snapshot(self) -> Reading:
        """Return all counts at this moment, consistent with one another."""
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
    """Return how many attempts of a critic, an adversary or a model have unknown cost; 0 without a meter."""
    told = getattr(asker, "lost", None)
    if told is None:
        return asker.meter.snapshot().lost if isinstance(asker, Metered) else 0
    return int(told)


def warn_of_lost_calls(model: object, who: str) -> None:
    """Warn of attempts with unknown cost, if any; `who` names the caller, e.g. "the critic"."""
    lost = count_lost_calls(model)
    if lost:
        calls = "1 call" if lost == 1 else f"{lost} calls"
        logger.warning("%s: %s sent and never answered whole; the cost is not known", who, calls)


class Probed(Protocol):
    """A model that reports what it supports."""

    async def probe(self) -> Capabilities:
        """Return what it supports; found out once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardScore:
    """A reward model's score of one ending."""

    logits: tuple[float, ...]
    """One per label; may be NaN."""
    tokens: int
    """Tokens of the whole sequence, prompt included."""
    seconds: float
    """Its share of the computing time of the prompt's endings, without queueing."""


class Scorer(Protocol):
    """Scores endings of a prompt: a reward model, here without what it is made of."""

    policy: PolicyRef
    context: int
    """The most tokens of prompt and ending together."""

    @property
    def weights(self) -> str:
        """SHA-256 of its weights."""

    def length(self, prompt: Prompt, endings: Sequence[str]) -> int:
        """Count the tokens of the longest sequence."""
        ...

    async def score(self, prompt: Prompt, endings: Sequence[str]) -> list[RewardScore]:
        """Score each ending of a prompt."""
        ...

    async def probe(self) -> Capabilities:
        """Return what it supports."""
        ...

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""
        ...

    async def close(self) -> None:
        """Free the weights."""


def is_scorer(model: object) -> TypeGuard[Scorer]:
    """Return whether a model scores endings and writes no replies."""
    return hasattr(model, "score")


async def check_counted(model: Probed, budget: Budget, where: str, stop: asyncio.Event | None = None) -> Capabilities:
    """Check that the model counts what the budget limits; return what it supports.

    Raises:
        UsageError: a limit is on something that the model does not count.
        ModelFailure: its server does not answer.
        Stopped: `stop` was set first.
    """
    able = await wait_unless_stopped(model.probe(), stop, f"{where} was asked what it supports")
    if budget.usd is not None and not able.knows_price:
        raise UsageError(
            f"--budget usd: {where} does not say what it costs; set its prices, or limit tokens or minutes"
        )
    if budget.tokens is not None and not able.counts_tokens:
        raise UsageError(f"--budget tokens: {where} does not count tokens; limit minutes instead")
    return able
