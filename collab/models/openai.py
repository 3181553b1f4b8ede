"""Any OpenAI-compatible chat-completions server: OpenAI itself, vLLM, `transformers serve`, and many more.

model = OpenAIModel(model="Qwen/Qwen2-7B-Instruct", base_url="http://127.0.0.1:8000/v1")

`collab.models.probe` finds out once what the server supports: unsupported fields are never sent, refused ones are left
out from then on. `collab.models.http` sends, queues and retries requests; `collab.models.vllm` loads LoRA adapters.
The key comes from the environment, and no message from this module contains it.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from collab.errors import ConfigError, ModelFailure
from collab.models.base import SAMPLERS, Capabilities, Meter, Reply, Request
from collab.models.completion import (
    Completion,
    CountedAnswer,
    ModelList,
    Scoring,
    build_request_body,
    cut_at_stop,
    read_completion,
    reply_pattern,
)
from collab.models.concurrency import CallWindow, Once
from collab.models.http import NO_OBSERVER, CallObserver, ServerRefusal, Transport, check_address, find_key
from collab.models.probe import (
    Body,
    Findings,
    PrefixCacheCounts,
    RequestForm,
    build_metrics_url,
    probe_server,
    read_prefix_cache,
)
from collab.models.tokenizer import estimate_least_tokens, estimate_prompt, estimate_tokens
from collab.models.vllm import AdapterPlace
from collab.types import PolicyRef, Sampling
from collab.utils.concurrency import note_doing
from collab.utils.redact import find_misplaced_key

CountedT = TypeVar("CountedT", bound=CountedAnswer)

_METRICS_S = 5.0
"""Seconds to wait for the counts of the prefix cache."""
_LEAST_SHARE = 0.75
"""A server that counts less than this share of a prompt's fewest possible tokens has cut it."""
_OWN_FIELDS = ("model", "messages", "seed", "n", "stream")
"""Fields of a request that `extra` cannot replace."""
_DEFAULT_URL = "https://api.openai.com/v1"


class OpenAIModel:
    """A model behind a chat-completions server.

    Args:
        model: name that the server knows it by.
        base_url: address up to and including /v1; None is OpenAI's own.
        api_key_env: name of the environment variable that holds the key; with `base_url` it may be unset (no key).
        concurrency: upper bound of the requests in flight; within it the number adapts to the server
            (`collab.models.concurrency`).
        adapter: LoRA adapter (vLLM): a directory that the server can read, loaded before the first call and unloaded
            at the end; or the name of one that the server was started with. None: the base model.
        version: of the policy, see `PolicyRef`.
        structured: constrain agents' replies to the reply format by vLLM's `structured_outputs`, if the server can
            (`response_format` knows JSON only). This changes the sampling: a second request fetches the plain
            policy's log-probabilities if the server reports them and there is no picture; otherwise they are None.
        timeout_s: of one attempt; the caller limits the whole call.
        retries: attempts beyond the first, for 429, 5xx, timeouts, lost connections and broken answers.
        usd_per_million_prompt: price of prompt tokens; None for unknown, then no cost is reported.
        usd_per_million_completion: price of completion tokens.
        max_context: most (estimated) tokens of prompt and reply; a longer call fails at once. None: no check.
        extra: further fields of the request body, as the server knows them (`top_k`, `chat_template_kwargs` …). A
            temperature here takes the place of the definition's, and results name it.

    Raises:
        ConfigError: a number is out of range, base_url is no address, the adapter is missing, or the key for OpenAI's
            own server is not set.
    """

    privileged = False

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        adapter: str | None = None,
        version: int = 0,
        structured: bool = False,
        timeout_s: float = 60,
        retries: int = 4,
        usd_per_million_prompt: float | None = None,
        usd_per_million_completion: float | None = None,
        max_context: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        # One message names all numbers that do not fit.
        if concurrency < 1 or timeout_s <= 0 or retries < 0 or version < 0:
            raise ConfigError(
                f"openai: concurrency {concurrency} (allowed: from 1), timeout_s {timeout_s:g} (above 0), "
                f"retries {retries} (from 0), version {version} (from 0)"
            )
        check_address(base_url)
        # A key in a file would be recorded with every run, so refuse it.
        written = find_misplaced_key({"api_key_env": api_key_env, "base_url": base_url, "extra": extra}, "openai")
        if written is not None:
            raise ConfigError(written)
        # What identifies the call is Collab's: a fixed prompt or model in its place would be played unseen.
        taken = [name for name in _OWN_FIELDS if name in (extra or {})]
        if taken:
            raise ConfigError(
                f"openai: extra.{taken[0]} would replace what every call sends itself; leave it out "
                "(model is an option of its own)"
            )
        self.policy = PolicyRef(base=model, adapter=adapter, version=version)
        self.meter = Meter()
        # Looked up at each wait, so that tests can replace it after construction.
        self.wait: Callable[[float], Awaitable[object]] = asyncio.sleep
        """Sleeps between attempts; tests replace it."""
        self.sampling = Sampling()
        """Sampling of the probe; set by the code that knows the definition."""
        self.problem = ""
        """The last problem that led to a retry; empty before the first."""
        self._url = (base_url or _DEFAULT_URL).rstrip("/")
        self._transport = Transport(
            model=model,
            url=self._url,
            key=find_key(api_key_env, base_url),
            concurrency=concurrency,
            timeout_s=timeout_s,
            retries=retries,
            wait=lambda seconds: self.wait(seconds),
            on_retry=self.meter.count_retry,
            on_lost=self.meter.lose,
        )
        # Filled once, at the first call.
        self._place = AdapterPlace(self._transport, self.policy)
        self._form = RequestForm()
        self._cut = ""
        """Warning that the server cuts prompts; empty before it does."""
        self._prepared: Once[Findings] = Once()
        self._probed: Once[Findings] = Once()
        self._structured = structured
        self._prices = (usd_per_million_prompt, usd_per_million_completion)
        self._max_context = max_context
        self._extra = dict(extra or {})

    @property
    def check_command(self) -> str:
        """The command that checks its agents file, for messages; empty if that is unknown."""
        return self._transport.check_command

    @check_command.setter
    def check_command(self, command: str) -> None:
        self._transport.check_command = command

    # ------------------------------------------------------------------------------------------------- the seam

    async def generate(self, request: Request) -> Reply:
        """Answer one prompt; the first call loads the adapter and probes the server.

        Raises:
            ModelFailure: after the retries, or at once when the server refuses, the prompt is too long or the
                server takes no pictures.
        """
        started, clock = time.perf_counter(), request.clock
        queue_s: float | None = None

        def note_begin() -> None:
            nonlocal queue_s
            if queue_s is not None:  # the same call, asked again in another way
                return
            queue_s = time.perf_counter() - started
            if clock is not None:
                clock.go()

        def note_failure(problem: str) -> None:
            self._note_failure(problem)
            if clock is not None:
                clock.note_failure(problem)

        try:
            if clock is not None:
                clock.hold()  # until a slot is free
            caller = CallObserver(
                on_begin=note_begin,
                on_failure=note_failure,
                seconds_left=NO_OBSERVER.seconds_left if clock is None else clock.seconds_left,
            )
            reply = await self._answer(request, caller)
            waited = queue_s or 0.0
            self.meter.add_queue_time(waited)
            return replace(reply, queue_s=waited, work_s=time.perf_counter() - started - waited)
        except ModelFailure:
            self.meter.count_failure(latency_s=time.perf_counter() - started)
            raise

    async def probe(self) -> Capabilities:
        """Find out once, with a few tiny requests, what the server supports; ModelFailure if it does not answer."""
        found = (await self._find_out()).capabilities
        notes = (*found.notes, f"concurrency: {self.window.size} of at most {self.window.limit}")
        priced = found.counts_tokens and None not in self._prices
        return replace(found, knows_price=priced, sampled=self._list_sampled(), notes=notes)

    def count_tokens(self, text: str) -> int:
        """Return an estimate that errs upwards."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Unload the adapter and close the connections; the next call opens and loads them again."""
        self._prepared.cancel()
        await self._place.unload()
        if await self._transport.close():
            self._probed.cancel()

    # ------------------------------------------------------------------------------------- what servers offer more

    @property
    def window(self) -> CallWindow:
        """The current bound of requests in flight."""
        return self._transport.window

    def with_adapter(self, adapter: str | None, version: int) -> OpenAIModel:
        """Return a model with another adapter of the same base that shares connections, window and findings.

        Raises:
            ConfigError: there is no such adapter.
        """
        other = copy.copy(self)
        other.policy = PolicyRef(base=self.policy.base, adapter=adapter, version=version)
        other.meter = Meter()
        other._transport = self._transport.make_sibling(
            wait=lambda s: other.wait(s), on_retry=other.meter.count_retry, on_lost=other.meter.lose
        )
        other._place = AdapterPlace(other._transport, other.policy)
        other._prepared = Once()
        return other

    async def prefix_cache(self) -> PrefixCacheCounts | None:
        """Return the prefix cache's counts for all clients since the server's start.

        None if the server does not report them within `_METRICS_S`.
        """
        try:
            async with asyncio.timeout(_METRICS_S):
                return read_prefix_cache(await self._transport.read(build_metrics_url(self._url)))
        except (ModelFailure, TimeoutError):
            return None

    # ---------------------------------------------------------------------------------------------------- parts

    async def _answer(self, request: Request, caller: CallObserver) -> Reply:
        found = await self._find_out()
        cell = bool(request.prompt.segments)  # only a cell's reply must hold an action
        pattern = reply_pattern(request.prompt.system) if self._structured and found.patterns and cell else None
        body = self._build_body(request, found)
        if pattern is not None:
            body["structured_outputs"] = {"regex": pattern}

        async def send(adapted: Body) -> Completion:
            return await self._send(adapted, request.seed, caller)

        completion = await self._form.ask(send, body)
        masked = pattern is not None and "structured_outputs" not in self._form.steps
        tokenizer = f"{self._url}#{self.policy.base}"
        reply = read_completion(completion, request, tokenizer, self._price(completion), masked=masked)
        prompt, ids = completion.prompt_token_ids, reply.tokens
        if masked and found.scores and not request.images and prompt and ids:
            ends = () if reply.end_token is None else (reply.end_token,)
            scoring = await self._score([*prompt, *ids, *ends])
            cost = None if reply.cost_usd is None else reply.cost_usd + (self._price(scoring) or 0.0)
            plain = scoring.of([*ids, *ends])
            end = plain[-1] if plain and ends else None
            reply = replace(reply, logprobs=plain and plain[: len(ids)], end_logprob=end, cost_usd=cost)
        warning = self._note_length(request, completion) or self._note_sampling(request)
        return replace(cut_at_stop(reply, request.sampling.stop), warning=warning)

    def _note_length(self, request: Request, completion: Completion) -> str:
        """Return a warning if the server counts far fewer prompt tokens than were sent: it has cut the prompt."""
        counted = completion.prompt_tokens
        if counted is None or counted >= _LEAST_SHARE * estimate_least_tokens(
            request.prompt.system, request.prompt.user
        ):
            return ""
        self._cut = self._cut or (
            f"{self._transport.who} cuts long prompts: of about {estimate_prompt(request.prompt)} tokens it read "
            f"{counted}; give it a longer context, or lower context_tokens in the agents file"
        )
        return self._cut

    def _note_sampling(self, request: Request) -> str:
        """Return a warning if the server ignores the wanted temperature or top_p."""
        wanted = {"temperature": request.sampling.temperature, "top_p": request.sampling.top_p}
        left_out = [name for name, value in self._list_sampled().items() if value is None]
        ignored = [f"{name} {value:g}" for name, value in wanted.items() if value != 1 and name in left_out]
        if not ignored:
            return ""
        return f"{self._transport.who} takes no {' and no '.join(ignored)}: it samples at its own"

    def _list_sampled(self) -> dict[str, float | None]:
        """Return the sampling that replies have in place of the definition's."""
        own: dict[str, float | None] = {name: None for name in ("temperature", "top_p") if name in self._form.steps}
        longest = self._extra.get("max_completion_tokens", self._extra.get("max_tokens"))
        mine = {name: self._extra[name] for name in SAMPLERS if name in self._extra} | {"max_tokens": longest}
        return own | {name: value for name, value in mine.items() if isinstance(value, int | float)}

    def _build_body(self, request: Request, found: Findings) -> dict[str, Any]:
        """Build the request body with only fields that the server supports."""
        able = found.capabilities
        if request.images and not able.images:
            raise ModelFailure(f"{self._transport.who} takes no pictures; use modality: text, or a model that can see")
        if self._max_context is not None:
            needed = estimate_prompt(request.prompt) + request.sampling.max_tokens
            if needed > self._max_context:
                raise ModelFailure(
                    f"{self._transport.who}: prompt and reply need about {needed} tokens, max_context is "
                    f"{self._max_context}; lower context_tokens or max_tokens"
                )
        return build_request_body(request, able, explicit=found.explicit)

    async def _find_out(self) -> Findings:
        return await self._prepared.get(self._prepare)

    async def _prepare(self) -> Findings:
        # Load the adapter first: the probe must ask the model that will play.
        await self._place.load()
        try:
            return await self._probed.get(self._probe)
        except ServerRefusal as refusal:
            adapter = self.policy.adapter
            # An unknown name is a slip; the message lists the server's adapters.
            if refusal.status != 404 or adapter is None or not self._place.lasting:
                raise
            known = [card.id for card in (await self._check_offers()).data if card.parent]
            raise ModelFailure(
                f"{self._transport.who}: no directory and no adapter of the server is called {adapter!r}; "
                f"the server has {', '.join(known) or 'none'}"
            ) from None

    async def _probe(self) -> Findings:
        with note_doing(f"asking {self._transport.who} what it supports"):
            return await probe_server(
                self.policy.base,
                self._url,
                self._send,
                self._check_offers,
                sampling=self.sampling,
                form=self._form,
                score=self._score if self._structured else None,
            )

    async def _check_offers(self) -> ModelList:
        return await self._transport.look("/models", ModelList, retries=1)

    async def _send(self, body: Body, seed: int = 0, caller: CallObserver = NO_OBSERVER) -> Completion:
        """Send a body with the user's own fields, which take precedence."""
        if "max_completion_tokens" in self._extra:
            body = {name: value for name, value in body.items() if name != "max_tokens"}
        return await self._ask_counted("/chat/completions", body | self._extra, Completion, seed, caller)

    def _note_failure(self, problem: str) -> None:
        self.problem = problem

    async def _score(self, ids: Sequence[int]) -> Scoring:
        """Request the log-probabilities of token ids under the plain policy; discard the one sampled token."""
        body = {"prompt": list(ids), "max_tokens": 1, "prompt_logprobs": 0}
        return await self._ask_counted("/completions", body, Scoring, seed=0)

    async def _ask_counted(
        self, path: str, body: dict[str, Any], schema: type[CountedT], seed: int, caller: CallObserver = NO_OBSERVER
    ) -> CountedT:
        """Make one call with retries and count its answer; the probe's calls count too.

        A restarted server has lost its adapters: if the model is not found, it is loaded once more.
        """
        # Without an observer, keep the last problem to explain a long wait.
        if caller is NO_OBSERVER:
            caller = replace(NO_OBSERVER, on_failure=self._note_failure)
        started = time.perf_counter()
        try:
            answer = await self._transport.ask(path, {"model": self._place.name} | body, schema, seed, caller)
        except ServerRefusal as refusal:
            # 404 after earlier success: the server restarted and lost the adapter.
            if refusal.status != 404 or self._place.lasting:
                raise
            await self._place.load()
            # The call has already begun; a second `on_begin` would count its wait twice.
            again = replace(caller, on_begin=lambda: None)
            answer = await self._transport.ask(path, {"model": self._place.name} | body, schema, seed, again)
        self.meter.count_answer(
            latency_s=time.perf_counter() - started,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            computed_tokens=answer.computed_tokens,
            cost_usd=self._price(answer),
        )
        return answer

    def _price(self, answer: CountedAnswer) -> float | None:
        """Return the cost in USD; None if a price or a count is unknown."""
        per_prompt, per_completion = self._prices
        prompt, reply = answer.prompt_tokens, answer.completion_tokens
        if per_prompt is None or per_completion is None or prompt is None or reply is None:
            return None
        return (prompt * per_prompt + reply * per_completion) / 1e6
