"""Find out what a chat-completions server supports, with a few tiny requests.

A server may refuse a field, or accept and ignore it; so each question is judged by what comes back, not by whether
it was accepted. Questions are asked one after the other, before any other call.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collab.models.base import Capabilities
from collab.models.completion import Completion, ModelList, Scoring, data_url
from collab.models.retry import ServerRefusal

Ask = Callable[[dict[str, Any]], Awaitable[Completion]]
"""Sends a request body (without the model's name); raises ServerRefusal when the server says no."""

Offers = Callable[[], Awaitable[ModelList]]
"""Asks which models the server has; raises ServerRefusal when it does not tell."""

Score = Callable[[Sequence[int]], Awaitable[Scoring]]
"""Asks for the log-probabilities of these token ids; raises ServerRefusal when the server says no."""

_HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Say hello."}]
_LETTERS: list[dict[str, Any]] = [{"role": "user", "content": "Write twelve random letters."}]
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
_OUT_OF_QUESTION = (401, 403, 404, 429)
"""Refusals that say nothing about a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a probe found out."""

    capabilities: Capabilities
    length_field: str = "max_tokens"
    """How the server calls the limit of the reply's length; OpenAI renamed it."""
    patterns: bool = False
    """Whether replies can be held to a regular expression."""
    scores: bool = False
    """Whether the server tells the log-probabilities of given token ids."""


async def probe_server(model: str, ask: Ask, offers: Offers, score: Score | None = None) -> Findings:
    """Ask a server what it can.

    Args:
        model: name of the model that will be asked.
        score: None when nobody wants replies of a certain form, which nothing is found out about then.

    Raises:
        ModelFailure: it does not answer a plain request, or stops answering in between.
    """
    length, plain = await _plain(ask)
    interview = _Interview(ask=ask, notes=[f"reply length is limited by {length}"])
    hello = {"messages": _HELLO, length: 1}
    letters = {"messages": _LETTERS, length: 12, "temperature": 1.0, "seed": 7}
    structured = {"messages": _HELLO, length: 24, "response_format": _SCHEMA}
    drawn: set[str] = set()

    def same_again(answer: Completion) -> bool:
        drawn.add(answer.text)
        return len(drawn) == 1

    question = interview.question
    capabilities = Capabilities(
        logprobs=await question("logprobs", {**hello, "logprobs": True}, lambda answer: bool(answer.scored)),
        structured=await question("response_format", structured, lambda answer: _fits(answer.text)),
        seed=await question("seed", letters, same_again) and await question("same seed again", letters, same_again),
        images=await question("images", {**hello, "messages": _picture_messages()}, lambda answer: _saw(answer, plain)),
        token_ids=await question("token ids", {**hello, "return_token_ids": True}, lambda answer: answer.has_ids),
        adapters=await interview.adapters(model, offers),
        counts_tokens=plain.prompt_tokens is not None and plain.completion_tokens is not None,
        notes=(),
    )
    patterns = scores = False
    if score is not None:
        held = {"messages": _HELLO, length: 24, "structured_outputs": {"regex": _PATTERN}}
        patterns = await question("patterns", held, lambda answer: re.fullmatch(_PATTERN, answer.text) is not None)
        scores = patterns and capabilities.token_ids and await interview.scores(score)
    capabilities = replace(capabilities, notes=tuple(interview.notes))
    return Findings(capabilities=capabilities, length_field=length, patterns=patterns, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interview:
    ask: Ask
    notes: list[str]

    async def question(self, name: str, body: dict[str, Any], judge: Callable[[Completion], bool]) -> bool:
        """Send one request and judge its answer; what was seen goes to the notes."""

        async def seen() -> bool:
            return judge(await self.ask(body))

        return await self._noted(name, seen)

    async def scores(self, score: Score) -> bool:
        """Whether the server tells log-probabilities of tokens that it did not sample."""

        async def seen() -> bool:
            return (await score(_TWO_TOKENS)).of(_TWO_TOKENS[1:]) is not None

        return await self._noted("scores", seen, telling=(404,))  # it has an address of its own

    async def _noted(self, name: str, seen: Callable[[], Awaitable[bool]], telling: tuple[int, ...] = ()) -> bool:
        try:
            found = await seen()
        except ServerRefusal as refusal:
            if refusal.status in _OUT_OF_QUESTION and refusal.status not in telling:
                raise
            self.notes.append(f"{name}: refused ({refusal.status})")
            return False
        self.notes.append(f"{name}: {'yes' if found else 'accepted and ignored'}")
        return found

    async def adapters(self, model: str, offers: Offers) -> bool:
        """Whether the server has adapters loaded; notes the model's context where the server tells it."""
        try:
            cards = (await offers()).data
        except ServerRefusal as refusal:
            self.notes.append(f"list of models: refused ({refusal.status})")
            return False
        names = [card.id for card in cards if card.parent is not None]
        self.notes.append(f"adapters: {', '.join(names) or 'none listed'}")
        lengths = [card.max_model_len for card in cards if card.id == model and card.max_model_len is not None]
        self.notes.extend(f"context: {length} tokens" for length in lengths)
        return bool(names)


async def _plain(ask: Ask) -> tuple[str, Completion]:
    """A plain request must work, under one of the two names of the length limit."""
    try:
        return "max_tokens", await ask({"messages": _HELLO, "max_tokens": 1})
    except ServerRefusal as refusal:
        if "max_completion_tokens" not in str(refusal):
            raise
        return "max_completion_tokens", await ask({"messages": _HELLO, "max_completion_tokens": 1})


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
    return [{"role": "user", "content": [picture, {"type": "text", "text": "Say hello."}]}]


def small_picture() -> bytes:
    """A grey square as PNG, about a hundred bytes."""
    side = _PICTURE_SIDE
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)  # 8 bits per pixel, grey
    pixels = zlib.compress((b"\0" + b"\x80" * side) * side)
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
