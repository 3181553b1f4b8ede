"""What the fake server says: an echo model that can follow a pattern, speak with adapters and score tokens.

Plain functions from a request's body to the answer's; connections and faults are `collab.models.fake_server`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

FIELDS = {
    "seed": "seed",
    "logprobs": "logprobs",
    "response_format": "response_format",
    "token_ids": "return_token_ids",
    "patterns": "structured_outputs",
}
"""What can be supported, and the field that asks for it; all else shows otherwise."""

BLOCK = 16
"""Tokens that a prefix cache looks up together."""
PLAIN, MASKED = -0.5, -0.125
"""Log-probability of every token: of the plain policy, and where a pattern forbids the rest."""
_FITTING = (
    "colour=123",
    'Reason: A pattern says so.\nAction: {"action_type": "wait"}',
    "Reason: A pattern says so.\nAction: finish()",
)
"""What is said to keep to a pattern: the first that does."""


def refusal(body: Mapping[str, Any], supports: Collection[str]) -> str | None:
    """Why a server that can do so much and no more refuses a request; None when it does not."""
    wanted = {name for name, field in FIELDS.items() if field in body} | ({"images"} if _pictures(body) else set())
    refused = sorted(wanted - set(supports))
    return f"unsupported: {', '.join(refused)}" if refused else None


def completion(
    body: Mapping[str, Any], supports: Collection[str], cached: int | None = None, text: str | None = None
) -> dict[str, Any]:
    """The answer to a chat.

    Args:
        cached: tokens of the prompt that were in the prefix cache; None when the server does not say.
        text: what is said; None echoes the last turn.
    """

    def gives(name: str) -> bool:
        return name in supports and bool(body.get(FIELDS[name]))

    text, logprob = said(body) if text is None else text, PLAIN
    if gives("response_format"):
        text = '{"ok": true}'
    if gives("patterns"):
        pattern = body["structured_outputs"]["regex"]
        text, logprob = next(reply for reply in _FITTING if re.fullmatch(pattern, reply)), MASKED
    tokens = [*text.encode(), 0]  # one token per byte, and the end of the turn
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    if gives("logprobs"):
        words = [(chr(token), logprob) for token in tokens[:-1]] + [("<|end|>", -0.25)]
        choice["logprobs"] = {"content": [{"token": word, "logprob": value} for word, value in words]}
    if gives("token_ids"):
        choice["token_ids"] = tokens
    seen = len(json.dumps(body["messages"])) if "images" in supports else sum(map(len, _texts(body)))
    usage = _usage(seen if cached is None else len(prompt_tokens(body)), len(tokens))
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    answer = {"id": "fake", "object": "chat.completion", "created": 0, "choices": [choice], "usage": usage}
    return answer | ({"prompt_token_ids": list(prompt_tokens(body))} if gives("token_ids") else {})


def scoring(body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a text completion that asks for the log-probabilities of its prompt."""
    ids: list[int] = body["prompt"]
    given = [None, *({str(token): {"logprob": PLAIN, "rank": 1}} for token in ids[1:])]
    choice = {"index": 0, "text": "", "finish_reason": "length", "prompt_logprobs": given}
    return {"id": "fake", "object": "text_completion", "choices": [choice], "usage": _usage(len(ids), 1)}


def prompt_tokens(body: Mapping[str, Any]) -> bytes:
    """A chat as the model reads it, one token per byte; also what a prefix cache looks up."""
    return json.dumps([body.get("model"), body["messages"]]).encode()


def shared_blocks(prompt: bytes, known: Sequence[bytes]) -> int:
    """Tokens in whole blocks that a prompt has in common with the beginning of a known one."""
    return max((_common(prompt, other) // BLOCK * BLOCK for other in known), default=0)


def said(body: Mapping[str, Any]) -> str:
    """The text of the last turn; an adapter says it under its name, so that its replies can be told apart."""
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else str(content[-1]["text"])
    speaker = str(body.get("model", ""))
    return f"{speaker}: {text}" if re.search(r"-v\d+-", speaker) else text


def _texts(body: Mapping[str, Any]) -> list[str]:
    """What a model reads that sees no pictures: the text of every turn."""
    contents = [message["content"] for message in body["messages"]]
    parts = [content if isinstance(content, list) else [{"text": content}] for content in contents]
    return [str(part["text"]) for one in parts for part in one if "text" in part]


def _common(one: bytes, other: bytes) -> int:
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


def _pictures(body: Mapping[str, Any]) -> bool:
    return any(isinstance(message["content"], list) for message in body["messages"])


def _usage(prompt: int, reply: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}
