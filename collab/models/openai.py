"""Any OpenAI-compatible chat-completions server: OpenAI itself, vLLM, `transformers serve`, and many more.

model = OpenAIModel(model="Qwen/Qwen2-7B-Instruct", base_url="http://127.0.0.1:8000/v1")

The `openai` client does the transport and nothing else: its own retries are off, ours are in `collab.models.retry`.
What the server supports is found out once (`collab.models.probe`); a field that it does not support is never sent.
The key comes from the environment, and no message that leaves this module contains it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import openai
from pydantic import BaseModel, ValidationError

from collab.envs.text import flat
from collab.errors import ConfigError, ModelFailure
from collab.models.base import CallClock, Capabilities, Reply, Request
from collab.models.completion import Completion, ModelList, chat_messages, read_completion
from collab.models.estimate import estimate_prompt, estimate_tokens
from collab.models.meter import Meter
from collab.models.probe import Findings, probe_server
from collab.models.retry import ServerRefusal, TryAgain, retry_after_s, with_retries
from collab.redact import is_secret_name, redact, register
from collab.seeds import derive
from collab.types import PolicyRef

Answer = TypeVar("Answer", bound=BaseModel)

_DEFAULT_URL = "https://api.openai.com/v1"
_NO_KEY = "none"
"""The client insists on a key; servers of one's own take any."""
_LONGEST_QUOTE = 300
"""Characters of a server's error that a message repeats."""
_HINTS = {
    401: "check the key",
    403: "check what the key may do",
    404: "check base_url (it usually ends in /v1) and the model's name",
}


@dataclass(slots=True)
class _Session:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    client: openai.AsyncOpenAI
    slots: asyncio.Semaphore
    probing: asyncio.Future[Findings] | None = None


class OpenAIModel:
    """A model behind a chat-completions server.

    Args:
        model: name that the server knows it by.
        base_url: address up to and including /v1; None is OpenAI's own.
        api_key_env: name of the environment variable that holds the key. A server of one's own needs none: with
            `base_url`, an unset variable means no key.
        concurrency: requests in flight at once.
        timeout_s: of one attempt; the whole call is limited by whoever makes it.
        retries: attempts beyond the first, for 429, 5xx, timeouts, lost connections and broken answers.
        usd_per_million_prompt: price of prompt tokens; None when not known, then no cost is reported.
        usd_per_million_completion: price of completion tokens.
        max_context: longest prompt plus reply in (estimated) tokens; a longer call fails at once. None: no check.
        extra: further fields of the request body, as the server knows them (`top_k`, `chat_template_kwargs` …).

    Raises:
        ConfigError: a number is out of range, base_url is no address, or OpenAI's own server is meant and the key is
            not set.
    """

    privileged = False

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        timeout_s: float = 60,
        retries: int = 4,
        usd_per_million_prompt: float | None = None,
        usd_per_million_completion: float | None = None,
        max_context: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        if concurrency < 1 or timeout_s <= 0 or retries < 0:
            raise ConfigError(
                f"openai: concurrency {concurrency} (allowed: from 1), timeout_s {timeout_s:g} (above 0), "
                f"retries {retries} (from 0)"
            )
        key = os.environ.get(api_key_env, "").strip() if api_key_env else ""
        if not key.isascii():
            raise ConfigError(f"openai: the value of {api_key_env} is no key: keys are plain ASCII")
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"openai: base_url {redact(base_url)!r} is no address; write it as http://host:port/v1")
        if base_url is not None and "@" in base_url.split("://", 1)[1].split("/", 1)[0]:
            raise ConfigError("openai: base_url holds a user name or password; keys stand in the environment only")
        written = [name for name in (extra or {}) if is_secret_name(name) or name.lower() == "authorization"]
        if written:
            raise ConfigError(f"openai: extra holds {written[0]!r}; keys stand in the environment only (api_key_env)")
        if not key and base_url is None:
            raise ConfigError(
                f"openai: the environment variable {api_key_env or 'OPENAI_API_KEY'} is not set; "
                "export your key in it, or give base_url for a server of your own"
            )
        self.policy = PolicyRef(base=model)
        self.meter = Meter()
        self.wait: Callable[[float], Awaitable[object]] = asyncio.sleep
        """Sleeps between attempts; tests replace it."""
        if key:
            register(key)
        self._key = key or _NO_KEY
        self._url = (base_url or _DEFAULT_URL).rstrip("/")
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._retries = retries
        self._prices = (usd_per_million_prompt, usd_per_million_completion)
        self._max_context = max_context
        self._extra = dict(extra or {})
        self._session: _Session | None = None
        self._found: Findings | None = None

    # ------------------------------------------------------------------------------------------------- the seam

    async def generate(self, request: Request) -> Reply:
        """Answer one prompt; the first call probes the server.

        Raises:
            ModelFailure: after the retries, or at once when the server refuses, the prompt is too long or the
                server takes no pictures.
        """
        started = time.perf_counter()
        try:
            if request.clock is not None:
                request.clock.hold()  # until a slot is free
            found = await self._findings()
            completion = await self._ask(self._body(request, found), request.seed, request.clock)
        except ModelFailure:
            self.meter.failed(latency_s=time.perf_counter() - started)
            raise
        return read_completion(completion, request, f"{self._url}#{self.policy.base}", self._cost(completion))

    async def probe(self) -> Capabilities:
        """What the server supports, found out once with a few tiny requests.

        Raises:
            ModelFailure: it does not answer at all.
        """
        found = (await self._findings()).capabilities
        return replace(found, knows_price=found.counts_tokens and None not in self._prices)

    def count_tokens(self, text: str) -> int:
        """An estimate that errs upwards, see `collab.models.estimate`."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Close the connections; the next call would open new ones."""
        session, self._session = self._session, None
        if session is not None and session.loop is asyncio.get_running_loop():
            if session.probing is not None:
                session.probing.cancel()
            await session.client.close()

    # ---------------------------------------------------------------------------------------------------- parts

    def _body(self, request: Request, found: Findings) -> dict[str, Any]:
        """The request body: nothing in it that the probe did not find supported."""
        able, sampling = found.capabilities, request.sampling
        if request.images and not able.images:
            raise ModelFailure(f"{self._who} takes no pictures; use modality: text, or a model that can see")
        if self._max_context is not None:
            needed = estimate_prompt(request.prompt) + sampling.max_tokens
            if needed > self._max_context:
                raise ModelFailure(
                    f"{self._who}: prompt and reply need about {needed} tokens, max_context is {self._max_context}; "
                    "lower context_tokens or max_tokens"
                )
        body: dict[str, Any] = {
            "messages": chat_messages(request),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            found.length_field: sampling.max_tokens,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if able.seed:
            body["seed"] = request.seed
        if able.logprobs:
            body["logprobs"] = True
        if able.token_ids:
            body["return_token_ids"] = True
        return body

    async def _findings(self) -> Findings:
        """All callers that come while the probe runs share it, and share its failure; the next one tries again."""
        if self._found is None:
            session = self._open()
            if session.probing is None or session.probing.done():
                session.probing = asyncio.ensure_future(probe_server(self.policy.base, self._ask_probe, self._offers))
            self._found = await asyncio.shield(session.probing)
        return self._found

    async def _ask_probe(self, body: dict[str, Any]) -> Completion:
        return await self._ask(body, seed=0)

    async def _offers(self) -> ModelList:
        client = self._open().client
        return await self._retried(lambda: client.get("/models", cast_to=object), ModelList, seed=0)

    async def _ask(self, body: dict[str, Any], seed: int, clock: CallClock | None = None) -> Completion:
        """One call with its retries; its answer is counted, the probe's too, since they cost as much."""
        session = self._open()
        started = time.perf_counter()
        payload = {"model": self.policy.base, **body, **self._extra}
        async with session.slots:
            if clock is not None:
                clock.go()
            completion = await self._retried(
                lambda: session.client.post("/chat/completions", cast_to=object, body=payload), Completion, seed
            )
        self.meter.answered(
            latency_s=time.perf_counter() - started,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            cost_usd=self._cost(completion),
        )
        return completion

    async def _retried(self, send: Callable[[], Awaitable[object]], schema: type[Answer], seed: int) -> Answer:
        return await with_retries(
            lambda: self._attempt(send, schema),
            retries=self._retries,
            rng=random.Random(derive(seed, "retry")),
            wait=self.wait,
            on_retry=self.meter.retried,
        )

    async def _attempt(self, send: Callable[[], Awaitable[object]], schema: type[Answer]) -> Answer:
        """One request. TryAgain where another may succeed, ServerRefusal where not."""
        try:
            async with asyncio.timeout(self._timeout_s):  # the client's own limits one read, not the whole answer
                return schema.model_validate(await send())
        except (TimeoutError, openai.APITimeoutError):
            raise TryAgain(f"{self._who} gave no answer within {self._timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            cause = self._clean(str(error.__cause__ or error) or type(error.__cause__).__name__)
            raise TryAgain(f"{self._who} cannot be reached: {cause}; start the server or correct base_url") from None
        except openai.APIStatusError as error:
            raise self._status(error) from None
        except (ValidationError, json.JSONDecodeError, UnicodeDecodeError, openai.APIResponseValidationError):
            raise TryAgain(f"{self._who} sent a broken answer: not the JSON of a chat-completions server") from None

    def _status(self, error: openai.APIStatusError) -> TryAgain | ServerRefusal:
        status = error.status_code
        message = f"{self._who} answered {status}: {self._clean(_said(error))}"
        if status in (408, 429) or status >= 500:
            return TryAgain(message, status=status, after_s=retry_after_s(error.response.headers))
        hint = f"; {_HINTS[status]}" if status in _HINTS else ""
        return ServerRefusal(message + hint, status)

    @property
    def _who(self) -> str:
        return f"{self.policy.base} at {redact(self._url, self._key)}"

    def _clean(self, text: str) -> str:
        """Foreign text in one short line without secrets."""
        text = redact(flat(text), self._key)
        return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"

    def _cost(self, completion: Completion) -> float | None:
        """In USD; None when a price or a count is not known."""
        per_prompt, per_completion = self._prices
        prompt, reply = completion.prompt_tokens, completion.completion_tokens
        if per_prompt is None or per_completion is None or prompt is None or reply is None:
            return None
        return (prompt * per_prompt + reply * per_completion) / 1e6

    def _open(self) -> _Session:
        """The session of the running event loop; a model may outlive a loop."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.loop is not loop:
            client = openai.AsyncOpenAI(api_key=self._key, base_url=self._url, max_retries=0, timeout=self._timeout_s)
            self._session = _Session(loop=loop, client=client, slots=asyncio.Semaphore(self._concurrency))
        return self._session


def _said(error: openai.APIStatusError) -> str:
    """What the server wrote: the message of an OpenAI-style or FastAPI-style error, else whatever there is."""
    body = error.body if isinstance(error.body, dict) else {}
    return str(body.get("message") or body.get("detail") or error)
