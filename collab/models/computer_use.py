"""Computer use of OpenAI, Anthropic and Gemini: interfaces that answer in typed items instead of text.

    model = ComputerUseModel(vendor="anthropic", model="claude-sonnet-4-5")

A call is one turn: system text, picture and task, and the vendor's own tool for a screen of the picture's size. No
earlier turn is sent, since the prompt tells the history. The text of a reply is the JSON of the answer's items, which
the vendor's dialect reads (`collab.dialects.computer_use`). Requests are queued and retried like those to any server
(`collab.models.http`); the key comes from the environment, and no message contains it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from collab.dialects.computer_use import NOT_DONE
from collab.errors import ConfigError, ModelFailure
from collab.models.answer import replace_halves
from collab.models.base import Capabilities, Meter, Reply, Request
from collab.models.completion import Count, Maybe, encode_data_url
from collab.models.concurrency import Once
from collab.models.http import CallObserver, Transport, check_address, find_key
from collab.models.tokenizer import estimate_tokens
from collab.types import PolicyRef, Prompt, Sampling
from collab.utils.redact import find_misplaced_key

Vendor = Literal["openai", "anthropic", "gemini"]
_TOOLSET = "computer_toolset_20260801"
_BETAS = {
    **{"computer_20250124": {"anthropic-beta": "computer-use-2025-01-24"}},
    **{"computer_20251124": {"anthropic-beta": "computer-use-2025-11-24"}},
    _TOOLSET: {},
}
"""Anthropic's tools, and the header that allows each."""
_LONGEST_ASIDE = 200
_CUT = ("max_tokens", "max_output_tokens")


# ----------------------------------------------------------------------------------------------------- answers


class ResponsesUsage(BaseModel):
    """Token counts of OpenAI and Anthropic."""

    input_tokens: Count = None
    output_tokens: Count = None


class IncompleteDetails(BaseModel):
    """Cause for which OpenAI cut an answer."""

    reason: Maybe[str] = None


class ResponsesAnswer(BaseModel):
    """An answer of OpenAI's Responses interface."""

    output: list[Any]
    usage: Maybe[ResponsesUsage] = None
    incomplete_details: Maybe[IncompleteDetails] = None

    @property
    def items(self) -> list[Any]:
        """Items of the reply."""
        return self.output

    @property
    def ending(self) -> str:
        """Cause of its end; empty for a whole one."""
        return (self.incomplete_details.reason if self.incomplete_details else None) or ""

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Tokens of prompt and reply."""
        return (self.usage.input_tokens, self.usage.output_tokens) if self.usage else (None, None)


class MessagesAnswer(BaseModel):
    """An answer of Anthropic's Messages interface."""

    content: list[Any]
    usage: Maybe[ResponsesUsage] = None
    stop_reason: Maybe[str] = None

    @property
    def items(self) -> list[Any]:
        """Items of the reply."""
        return self.content

    @property
    def ending(self) -> str:
        """Cause of its end."""
        return self.stop_reason or ""

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Tokens of prompt and reply."""
        return (self.usage.input_tokens, self.usage.output_tokens) if self.usage else (None, None)


class GeminiCandidate(BaseModel):
    """One answer of Gemini; a filtered one has no content."""

    content: Maybe[dict[str, Any]] = None
    finish_reason: Maybe[str] = Field(default=None, alias="finishReason")


class GeminiUsage(BaseModel):
    """Token counts of Gemini."""

    prompt: Count = Field(default=None, alias="promptTokenCount")
    reply: Count = Field(default=None, alias="candidatesTokenCount")


class GenerateAnswer(BaseModel):
    """An answer of Gemini's generateContent."""

    candidates: Annotated[list[GeminiCandidate], Field(min_length=1)]
    usage: Maybe[GeminiUsage] = Field(default=None, alias="usageMetadata")

    @property
    def items(self) -> list[Any]:
        """Items of the reply."""
        parts = (self.candidates[0].content or {}).get("parts")
        return parts if isinstance(parts, list) else []

    @property
    def ending(self) -> str:
        """Cause of its end."""
        return self.candidates[0].finish_reason or ""

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Tokens of prompt and reply."""
        return (self.usage.prompt, self.usage.reply) if self.usage else (None, None)


Answer = ResponsesAnswer | MessagesAnswer | GenerateAnswer


# ---------------------------------------------------------------------------------------------------- requests


def _order(prompt: Prompt, text: dict[str, Any], pictures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [text, *pictures] if prompt.pictures_last else [*pictures, text]


def _choose_sampling(sampling: Sampling, temperature: str, top_p: str) -> dict[str, float]:
    """Return the fields of what differs from the interface's own sampling."""
    told = {temperature: sampling.temperature, top_p: sampling.top_p}
    return {name: value for name, value in told.items() if value != 1}


def _build_openai(request: Request, model: str, tool: str, size: tuple[int, int] | None) -> dict[str, Any]:
    prompt = request.prompt
    text = {"type": "input_text", "text": replace_halves(prompt.user)}
    pictures = [{"type": "input_image", "image_url": encode_data_url(image)} for image in request.images]
    body: dict[str, Any] = {
        "model": model,
        "input": [{"role": "user", "content": _order(prompt, text, pictures)}],
        "max_output_tokens": request.sampling.max_tokens,
        "truncation": "auto",
        **_choose_sampling(request.sampling, "temperature", "top_p"),
    }
    if prompt.system:
        body["instructions"] = replace_halves(prompt.system)
    if size is not None:
        # The preview's tool has to be told of the screen; the present one sees it.
        screen = {"display_width": size[0], "display_height": size[1], "environment": "browser"}
        body["tools"] = [{"type": tool, **(screen if tool == "computer_use_preview" else {})}]
    return body


def _build_anthropic(request: Request, model: str, tool: str, size: tuple[int, int] | None) -> dict[str, Any]:
    prompt = request.prompt
    text = {"type": "text", "text": replace_halves(prompt.user)}
    pictures = [
        {"type": "image", "source": {"type": "base64", "media_type": _find_type(image), "data": _encode(image)}}
        for image in request.images
    ]
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": _order(prompt, text, pictures)}],
        "max_tokens": request.sampling.max_tokens,
        **_choose_sampling(request.sampling, "temperature", "top_p"),
    }
    if prompt.system:
        body["system"] = replace_halves(prompt.system)
    if size is not None:
        screen = {"name": "computer", "display_width_px": size[0], "display_height_px": size[1]}
        # A set of tools, one per action, has no name and no size of its own, and each of them can be left out.
        members = {"configs": {name: {"enabled": False} for name in NOT_DONE["anthropic"]}}
        body["tools"] = [{"type": tool, **(members if tool == _TOOLSET else screen)}]
    return body


def _build_gemini(request: Request, model: str, tool: str, size: tuple[int, int] | None) -> dict[str, Any]:
    prompt = request.prompt
    pictures = [{"inlineData": {"mimeType": _find_type(image), "data": _encode(image)}} for image in request.images]
    body: dict[str, Any] = {
        "contents": [{"role": "user", "parts": _order(prompt, {"text": replace_halves(prompt.user)}, pictures)}],
        "generationConfig": {
            "maxOutputTokens": request.sampling.max_tokens,
            "seed": request.seed % 2**31,
            **_choose_sampling(request.sampling, "temperature", "topP"),
        },
    }
    if prompt.system:
        body["systemInstruction"] = {"parts": [{"text": replace_halves(prompt.system)}]}
    if size is not None:
        excluded = list(NOT_DONE["gemini"])
        body["tools"] = [{"computerUse": {"environment": tool, "excludedPredefinedFunctions": excluded}}]
    return body


def _encode(image: bytes) -> str:
    return base64.b64encode(image).decode()


def _find_type(image: bytes) -> str:
    return encode_data_url(image[:16]).partition(";")[0].removeprefix("data:")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorInterface:
    """Wire format of one vendor."""

    url: str
    key: str
    """Environment variable of the key."""
    tool: str
    """Kind of tool, unless an option names another."""
    tools: tuple[str, ...]
    path: str
    """Below `url`; {model} is filled in."""
    schema: type[Answer]
    build: Callable[[Request, str, str, tuple[int, int] | None], dict[str, Any]]
    headers: Callable[[str, str], dict[str, str]] | None = None
    """Key and tool → headers in place of a bearer's."""


VENDORS: Mapping[str, VendorInterface] = {
    "openai": VendorInterface(
        url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        tool="computer",
        tools=("computer", "computer_use_preview"),
        path="/responses",
        schema=ResponsesAnswer,
        build=_build_openai,
    ),
    "anthropic": VendorInterface(
        url="https://api.anthropic.com/v1",
        key="ANTHROPIC_API_KEY",
        tool="computer_20250124",
        tools=tuple(_BETAS),
        path="/messages",
        schema=MessagesAnswer,
        build=_build_anthropic,
        headers=lambda key, tool: {
            "x-api-key": key,
            "anthropic-version": "2023-06-01",
            **_BETAS[tool],
        },
    ),
    "gemini": VendorInterface(
        url="https://generativelanguage.googleapis.com/v1beta",
        key="GEMINI_API_KEY",
        tool="ENVIRONMENT_BROWSER",
        tools=("ENVIRONMENT_BROWSER", "ENVIRONMENT_DESKTOP"),
        path="/models/{model}:generateContent",
        schema=GenerateAnswer,
        build=_build_gemini,
        headers=lambda key, tool: {"x-goog-api-key": key},
    ),
}


# ------------------------------------------------------------------------------------------------------- model


class ComputerUseModel:
    """A vendor's computer-use model.

    Args:
        vendor: whose interface it is.
        model: name that the vendor knows it by.
        base_url: address of the interface, up to and including its version; None for the vendor's own.
        api_key_env: name of the environment variable that holds the key; None for the vendor's usual one.
        tool: kind of the vendor's tool; None for "computer", "computer_20250124" or "ENVIRONMENT_BROWSER".
        confirm_safety_checks: execute actions for which the vendor asks for the user's consent; otherwise such a reply
            counts as refused.
        concurrency: upper bound of the requests in flight; within it the number adapts to the server.
        timeout_s: of one attempt; the caller limits the whole call.
        retries: attempts beyond the first, for 429, 5xx, timeouts, lost connections and broken answers.
        usd_per_million_prompt: price of prompt tokens; None for unknown, then no cost is reported.
        usd_per_million_completion: price of completion tokens.

    Raises:
        ConfigError: an option does not fit, or the key for the vendor's own server is not set.
    """

    privileged = False

    def __init__(
        self,
        *,
        vendor: Vendor,
        model: str,
        base_url: str | None = None,
        api_key_env: str | None = None,
        tool: str | None = None,
        confirm_safety_checks: bool = False,
        concurrency: int = 4,
        timeout_s: float = 120,
        retries: int = 4,
        usd_per_million_prompt: float | None = None,
        usd_per_million_completion: float | None = None,
    ) -> None:
        # All is checked before anything is asked: a mistake must not cost a call.
        interface = VENDORS[vendor]
        if concurrency < 1 or timeout_s <= 0 or retries < 0:
            raise ConfigError(
                f"computer-use: concurrency {concurrency} (allowed: from 1), timeout_s {timeout_s:g} (above 0), "
                f"retries {retries} (from 0)"
            )
        if tool is not None and tool not in interface.tools:
            raise ConfigError(f"computer-use: tool is {tool!r}, allowed for {vendor}: {', '.join(interface.tools)}")
        check_address(base_url, "computer-use")
        written = find_misplaced_key({"api_key_env": api_key_env or "", "base_url": base_url}, "computer-use")
        if written is not None:
            raise ConfigError(written)
        key = find_key(api_key_env or interface.key, base_url, "computer-use")
        self.policy = PolicyRef(base=model)
        self.meter = Meter()
        self._interface = interface
        self._tool = tool or interface.tool
        self._confirmed = confirm_safety_checks
        self._prices = (usd_per_million_prompt, usd_per_million_completion)
        self._transport = Transport(
            model=model,
            url=(base_url or interface.url).rstrip("/"),
            key=key,
            concurrency=concurrency,
            timeout_s=timeout_s,
            retries=retries,
            wait=asyncio.sleep,
            on_retry=self.meter.count_retry,
            on_lost=self.meter.lose,
            headers=None if interface.headers is None else interface.headers(key, self._tool),
        )
        self._probed: Once[Capabilities] = Once()

    async def generate(self, request: Request) -> Reply:
        """Answer one prompt.

        Raises:
            ModelFailure: after the retries, or at once when the server refuses.
        """
        started, clock = time.perf_counter(), request.clock
        began: list[float] = []

        def note_begin() -> None:
            began.append(time.perf_counter())
            if clock is not None:
                clock.go()

        if clock is not None:
            clock.hold()  # until a slot is free
        caller = CallObserver(
            on_begin=note_begin,
            on_failure=(lambda problem: None) if clock is None else clock.note_failure,
            seconds_left=(lambda: None) if clock is None else clock.seconds_left,
        )
        try:
            answer = await self._ask(request, caller)
        except ModelFailure:
            self.meter.count_failure(latency_s=time.perf_counter() - started)
            raise
        queue_s = began[0] - started
        self.meter.add_queue_time(queue_s)
        return self._read(answer, queue_s, time.perf_counter() - began[0])

    async def probe(self) -> Capabilities:
        """Find out with one short request whether the model answers; ModelFailure if not."""
        return await self._probed.get(self._probe)

    def count_tokens(self, text: str) -> int:
        """Return an estimate that errs upwards."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Close the connections; the next call opens them again."""
        if await self._transport.close():
            self._probed.cancel()

    # ---------------------------------------------------------------------------------------------------- parts

    async def _probe(self) -> Capabilities:
        prompt = Prompt(system="", shared="Answer with the word ok.", segments=(), layout="")
        answer = await self._ask(Request(prompt=prompt, sampling=Sampling(max_tokens=16), seed=0), CallObserver())
        counted = None not in answer.counts
        return Capabilities(
            images=True,
            counts_tokens=counted,
            knows_price=counted and None not in self._prices,
            notes=(f"tool: {self._tool}",),
        )

    async def _ask(self, request: Request, caller: CallObserver) -> Answer:
        # The tool is given the size of the picture that goes along; a text without one needs no tool.
        interface, model = self._interface, self.policy.base
        started = time.perf_counter()
        size = _measure(request.images[-1]) if request.images else None
        body = interface.build(request, model, self._tool, size)
        path = interface.path.format(model=model)
        answer = await self._transport.ask(path, body, interface.schema, request.seed, caller)
        prompt, reply = answer.counts
        self.meter.count_answer(
            latency_s=time.perf_counter() - started,
            prompt_tokens=prompt,
            completion_tokens=reply,
            computed_tokens=None,
            cost_usd=self._price(answer),
        )
        return answer

    def _read(self, answer: Answer, queue_s: float, work_s: float) -> Reply:
        finish, aside = _read_ending(answer)
        asked = "; ".join(_list_checks(answer.items))
        if asked and not self._confirmed:
            finish, aside = "refusal", f"it asks for the user's consent: {asked}"
        withheld = finish in ("refusal", "content_filter")
        prompt, reply = answer.counts
        return Reply(
            text="" if withheld or not answer.items else json.dumps(answer.items, ensure_ascii=False),
            finish=finish,
            aside=aside[:_LONGEST_ASIDE],
            prompt_tokens=prompt,
            completion_tokens=reply,
            queue_s=queue_s,
            work_s=work_s,
            cost_usd=self._price(answer),
        )

    def _price(self, answer: Answer) -> float | None:
        """Return the cost in USD; None if a price or a count is unknown."""
        counted = zip(self._prices, answer.counts, strict=True)
        parts = [None if price is None or count is None else price * count / 1e6 for price, count in counted]
        return None if None in parts else sum(part for part in parts if part is not None)


def _measure(image: bytes) -> tuple[int, int]:
    """Return the size of an encoded picture."""
    from PIL import Image  # loads only for agents that see

    with Image.open(io.BytesIO(image)) as opened:
        return opened.size


def _read_ending(answer: Answer) -> tuple[str, str]:
    """Return how a reply ended, as `Reply.finish` has it, and the words of a refusal."""
    ending = answer.ending.lower()
    refusals = [
        str(part.get("refusal"))
        for item in answer.items
        if isinstance(item, Mapping) and isinstance(item.get("content"), list)
        for part in item["content"]
        if isinstance(part, Mapping) and part.get("type") == "refusal"
    ]
    if refusals or ending == "refusal":
        return "refusal", "; ".join(refusals)
    if ending in _CUT:
        return "length", ""
    if any(word in ending for word in ("filter", "safety", "blocklist", "prohibited", "recitation", "spii")):
        return "content_filter", ""
    return "stop", ""


def _list_checks(items: Sequence[Any]) -> Iterator[str]:
    """Yield the words in which a vendor asks for the user's consent to an action."""
    for item in items:
        if not isinstance(item, Mapping):
            continue
        checks = item.get("pending_safety_checks")
        for check in checks if isinstance(checks, list) else ():
            if isinstance(check, Mapping):
                yield str(check.get("message") or check.get("code") or "a safety check")
        call = item.get("functionCall", item.get("function_call"))
        arguments = call.get("args") if isinstance(call, Mapping) else None
        decision = arguments.get("safety_decision") if isinstance(arguments, Mapping) else None
        if isinstance(decision, Mapping) and "confirm" in str(decision.get("decision")).lower():
            yield str(decision.get("explanation") or "a safety decision")
