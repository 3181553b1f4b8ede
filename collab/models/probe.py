"""Find out what a chat-completions server supports, by asking it what a run will ask it.

Every question has the system turn and the sampling that will be used. A server may refuse a field, or accept and
ignore it; so each optional field is judged by what comes back, not by whether it was accepted. No optional field's
refusal ends the probe, as long as the plain question is answered. Questions are asked one after the other.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from collab.errors import ModelFailure
from collab.models.base import Capabilities
from collab.models.completion import Completion, ModelList, Scoring, data_url, sampling_fields
from collab.models.dialect import GUESSES, Body, Dialect
from collab.models.retry import ServerRefusal
from collab.types import Sampling

Ask = Callable[[Body], Awaitable[Completion]]
"""Sends a request body as it is (without the model's name); raises ServerRefusal when the server says no."""

Offers = Callable[[], Awaitable[ModelList]]
"""Asks which models the server has; raises ModelFailure when it does not tell."""

Score = Callable[[Sequence[int]], Awaitable[Scoring]]
"""Asks for the log-probabilities of these token ids; raises ServerRefusal when the server says no."""

_SYSTEM = {"role": "system", "content": "Answer in few words."}
_HELLO = [_SYSTEM, {"role": "user", "content": "Say hello."}]
_LETTERS = [_SYSTEM, {"role": "user", "content": "Write twelve random letters."}]
_SEED = 7
_SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}},
            "required": ["ok"],
            "additionalProperties": False,
        },
    },
}
_PATTERN = "colour=[0-9]{3}"
"""Nobody answers a greeting like this unless held to it."""
_TWO_TOKENS = (0, 1)
"""Ids that every vocabulary has."""
_PICTURE_SIDE = 32
"""Pixels; some vision models refuse pictures smaller than one of their patches."""
_LIST_S = 10.0
"""How long the list of models is waited for: an answer does not depend on it."""
_DEFINITE = (400, 403, 405, 413, 415, 422, 501)
"""Refusals after which the plain question need not be asked again."""
_OWN_DEFAULTS = ("vllm", "sglang", "llamacpp", "llama.cpp", "library", "organization_owner", "transformers", "tgi")
"""Owners in the lists of models of servers that take the checkpoint's or the user's sampling where a request says none:
vLLM, SGLang, llama.cpp, Ollama, LM Studio."""
_OWN_DEFAULTS_AT = ("googleapis.com", "mistral.ai", "together.xyz", "together.ai")
"""Hosts whose models have defaults of their own (Gemini's top_p is 0.95)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a probe found out."""

    capabilities: Capabilities
    explicit: bool = False
    """Whether to send a temperature and a top_p of 1, because the server has defaults of its own."""
    patterns: bool = False
    """Whether replies can be held to a regular expression."""
    scores: bool = False
    """Whether the server tells the log-probabilities of given token ids."""


async def probe_server(
    model: str, url: str, ask: Ask, offers: Offers, *, sampling: Sampling, dialect: Dialect, score: Score | None = None
) -> Findings:
    """Ask a server what it can.

    Args:
        model: name of the model that will be asked.
        url: the server's address.
        sampling: with which the model will be asked.
        dialect: learns how the server wants to be asked.
        score: None when nobody wants replies of a certain form, which nothing is found out about then.

    Raises:
        ModelFailure: it does not answer a plain request, or stops answering in between.
    """
    interview = _Interview(ask=ask, dialect=dialect, notes=[])
    offered = await interview.list_models(model, offers)
    explicit = _has_own_defaults(model, url, offered)
    plain_body: Body = {"messages": _HELLO, **sampling_fields(sampling, explicit=explicit)}
    plain = await dialect.ask(ask, plain_body, guesses=GUESSES)
    interview.plain = plain_body
    limit = "max_completion_tokens" if "max_completion_tokens" in dialect.adapt(plain_body) else "max_tokens"
    interview.notes[:0] = [f"reply length is limited by {limit}", *dialect.notes]
    question = interview.question
    capabilities = Capabilities(
        logprobs=await question("logprobs", {"logprobs": True}, lambda answer: bool(answer.scored)),
        structured=await question("response_format", {"response_format": _SCHEMA}, lambda answer: _fits(answer.text)),
        seed=await interview.seed(),
        images=await question("images", {"messages": _picture_messages()}, lambda answer: _saw(answer, plain)),
        token_ids=await question("token ids", {"return_token_ids": True}, lambda answer: answer.has_ids),
        adapters=any(card.parent is not None for card in offered.data),
        counts_tokens=plain.prompt_tokens is not None and plain.completion_tokens is not None,
        notes=(),
    )
    patterns = scores = False
    if score is not None:
        held = {"structured_outputs": {"regex": _PATTERN}}
        patterns = await question("patterns", held, lambda answer: re.fullmatch(_PATTERN, answer.text) is not None)
        scores = patterns and capabilities.token_ids and await interview.scores(score)
    capabilities = replace(capabilities, notes=tuple(interview.notes))
    return Findings(capabilities=capabilities, explicit=explicit, patterns=patterns, scores=scores)


@dataclass(slots=True, kw_only=True)
class _Interview:
    ask: Ask
    dialect: Dialect
    notes: list[str]
    plain: Body = field(default_factory=dict)
    """A question that was answered."""
    refused: dict[str, str] = field(default_factory=dict)
    """Question → what the server said instead of an answer, in small letters."""

    async def question(self, name: str, fields: Body, judge: Callable[[Completion], bool]) -> bool:
        """Ask the plain question with further fields, and judge the answer; what was seen goes to the notes."""

        async def seen() -> bool:
            return judge(await self.ask(self.dialect.adapt(self.plain | fields)))

        return await self._noted(name, seen)

    async def seed(self) -> bool:
        """Whether equal seeds draw equal replies, under either of the names that servers have for them."""
        drawn: set[str] = set()

        def same_again(answer: Completion) -> bool:
            drawn.add(answer.text)
            return len(drawn) == 1

        async def asked(name: str, field: str) -> bool:
            return await self.question(name, {"messages": _LETTERS, field: _SEED}, same_again)

        if await asked("seed", "seed"):
            return await asked("same seed again", "seed")
        # A server that takes no field it does not know answers under a name only if it knows it.
        strict = "extra" in self.refused.get("seed", "") or "random_seed" in self.refused.get("seed", "")
        if strict and await asked("random_seed", "random_seed"):
            self.dialect.steps += ("random_seed",)
            return await asked("same seed again", "seed")
        return False

    async def scores(self, score: Score) -> bool:
        """Whether the server tells log-probabilities of tokens that it did not sample."""

        async def seen() -> bool:
            return (await score(_TWO_TOKENS)).of(_TWO_TOKENS[1:]) is not None

        return await self._noted("scores", seen)

    async def list_models(self, model: str, offers: Offers) -> ModelList:
        """What the server offers, for the notes; empty where it does not tell."""
        try:
            async with asyncio.timeout(_LIST_S):
                offered = await offers()
        except TimeoutError:
            self.notes.append(f"list of models: none within {_LIST_S:g} s")
            return ModelList()
        except ModelFailure as failure:
            self.notes.append(f"list of models: {_why(failure)}")
            return ModelList()
        names = [card.id for card in offered.data if card.parent is not None]
        self.notes.append(f"adapters: {', '.join(names) or 'none listed'}")
        cards = [card for card in offered.data if card.id == model]
        if offered.data and not cards:
            self.notes.append("list of models: this one is not in it")
        self.notes.extend(f"context: {card.max_model_len} tokens" for card in cards if card.max_model_len is not None)
        return offered

    async def _noted(self, name: str, seen: Callable[[], Awaitable[bool]]) -> bool:
        try:
            found = await seen()
        except ModelFailure as failure:
            if not (isinstance(failure, ServerRefusal) and failure.status in _DEFINITE):
                await self.ask(self.dialect.adapt(self.plain))  # if that is answered, the field was the trouble
            self.refused[name] = failure.words.lower() if isinstance(failure, ServerRefusal) else ""
            self.notes.append(f"{name}: {_why(failure)}")
            return False
        self.notes.append(f"{name}: {'yes' if found else 'accepted and ignored'}")
        return found


def _why(failure: ModelFailure) -> str:
    return f"refused ({failure.status})" if isinstance(failure, ServerRefusal) else "no usable answer"


def _has_own_defaults(model: str, url: str, offered: ModelList) -> bool:
    """Whether a server may sample otherwise than at temperature 1 and top_p 1 where a request does not say it."""
    host = urlsplit(url).hostname or ""
    if any(host == name or host.endswith(f".{name}") for name in _OWN_DEFAULTS_AT):
        return True
    cards = [card for card in offered.data if card.id == model] or offered.data
    return any((card.owned_by or "").lower() in _OWN_DEFAULTS for card in cards)


def _fits(text: str) -> bool:
    """Whether a reply to a greeting keeps to the schema."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and isinstance(answer.get("ok"), bool)


def _saw(answer: Completion, plain: Completion) -> bool:
    """Whether a picture entered the prompt: some servers drop it and answer the rest. Without counts, believe them."""
    if answer.prompt_tokens is None or plain.prompt_tokens is None:
        return True
    return answer.prompt_tokens > plain.prompt_tokens


def _picture_messages() -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": data_url(small_picture())}}
    return [_SYSTEM, {"role": "user", "content": [picture, {"type": "text", "text": "Say hello."}]}]


def small_picture() -> bytes:
    """A grey square as PNG, about a hundred bytes."""
    side = _PICTURE_SIDE
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)  # 8 bits per pixel, grey
    pixels = zlib.compress((b"\0" + b"\x80" * side) * side)
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
