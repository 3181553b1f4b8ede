"""Build requests to a chat-completions server and read its answers: plain functions and the answer's schema.

Everything but the message may be absent, as servers differ. An odd optional value (null, another type, a count below
0) counts as absent; an unreadable message breaks the answer.

`reply_pattern` makes a server keep to the reply format: a reason and one well-formed action.

    Reason: one line
    Action: {"action_type": "click", "index": 7}        or        Action: click(id=7)

Syntax and actions come from the list of actions in the system text. The pattern is a plain regular expression without
look-around, as grammar engines need it. It does not restrict the values of an action (which element, which words).
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from collab.envs.text import flatten
from collab.models.answer import replace_halves
from collab.models.base import Capabilities, Reply, Request
from collab.types import Sampling

T = TypeVar("T")

MOST_TOKENS = 10**8
"""Larger counts are wrong and count as absent."""
SEEDS = 2**31
"""Exclusive upper bound of seeds; some servers refuse larger ones."""


def _drop_if_odd(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        return None


def _count(value: Any) -> int | None:
    """Return a token count; None for an impossible value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value <= MOST_TOKENS and value == int(value) else None


def _drop_if_infinite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("is not finite")
    return value


Maybe = Annotated[T | None, WrapValidator(_drop_if_odd)]
"""An optional part of an answer; None where it is absent or odd."""
Count = Annotated[int | None, BeforeValidator(_count)]
Logprob = Annotated[float, AfterValidator(_drop_if_infinite)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Byte = Annotated[int, Field(ge=0, lt=256)]


def _keep_first(choices: Any) -> Any:
    """Return only the first choice; no others were requested."""
    return choices[:1] if isinstance(choices, list) else choices


_CUT = ("length", "max_tokens")
"""Finish reasons of replies that were too long."""
_FILTERED = ("filter", "safety", "blocklist", "prohibited", "recitation", "spii")
"""Part of the finish reason where a filter ended a reply."""
_LONGEST_ASIDE = 200
"""Characters quoted of output in place of a text."""


class PromptDetails(BaseModel):
    """Details about the tokens of a prompt."""

    cached_tokens: Count = None


class TokenUsage(BaseModel):
    """Token counts of one call."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: Maybe[PromptDetails] = None


class CountedAnswer(BaseModel):
    """An answer that may report token counts."""

    usage: Maybe[TokenUsage] = None

    @property
    def prompt_tokens(self) -> int | None:
        """Length of the prompt; None when the server does not count."""
        return self.usage.prompt_tokens if self.usage else None

    @property
    def completion_tokens(self) -> int | None:
        """Length of the reply; None when the server does not count."""
        return self.usage.completion_tokens if self.usage else None

    @property
    def computed_tokens(self) -> int | None:
        """Prompt tokens that the server computed for this call; None when not reported."""
        prompt, cached = self.prompt_tokens, self.cached_tokens
        return max(0, prompt - cached) if prompt is not None and cached is not None else None

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens from the server's prefix cache; None when not reported."""
        details = self.usage.prompt_tokens_details if self.usage else None
        return details.cached_tokens if details else None


class ChoiceMessage(BaseModel):
    """A reply or what came in its place; servers use two names for a thought."""

    content: str | None = None
    refusal: Any = None
    tool_calls: Any = None
    reasoning_content: Any = None
    reasoning: Any = None

    @model_validator(mode="before")
    @classmethod
    def _join_parts(cls, message: Any) -> Any:
        """Join a content of several parts (Mistral, gateways): its text, its thoughts, its refusal."""
        content = message.get("content") if isinstance(message, dict) else None
        # A plain text is the common case.
        if not isinstance(content, list | dict):
            return message
        parts = [
            part if isinstance(part, dict) else {"text": part}
            for part in (content if isinstance(content, list) else [content])
        ]
        thoughts = [part["thinking"] for part in parts if part.get("thinking")]
        refusals = [part["refusal"] for part in parts if part.get("refusal")]
        # Only parts that are text: pictures and tool results are no reply.
        texts = [
            part["text"] for part in parts if part.get("type", "text") in ("text", "output_text") and "text" in part
        ]
        joined: dict[str, Any] = {"content": "".join(text for text in texts if isinstance(text, str))}
        if thoughts:
            joined["reasoning"] = thoughts
        if refusals:
            joined["refusal"] = "; ".join(map(str, refusals))
        return message | joined


class TokenLogprob(BaseModel):
    """One sampled token."""

    token: str
    logprob: Logprob
    utf8: Maybe[list[Byte]] = Field(default=None, alias="bytes")

    def decode(self) -> bytes:
        """Return the token's text in UTF-8; may be part of a character."""
        return bytes(self.utf8) if self.utf8 else self.token.encode("utf-8", "surrogatepass")


class Logprobs(BaseModel):
    """Log-probabilities of the sampled tokens."""

    content: Maybe[list[TokenLogprob]] = None


class Choice(BaseModel):
    """One reply."""

    message: ChoiceMessage
    finish_reason: Maybe[str] = None
    logprobs: Maybe[Logprobs] = None
    token_ids: Maybe[list[TokenId]] = None
    """Some servers (vLLM) return ids when asked."""


class Completion(CountedAnswer):
    """An answer; only its first choice is used."""

    choices: Annotated[list[Choice], BeforeValidator(_keep_first), Field(min_length=1)]
    prompt_token_ids: Maybe[list[TokenId]] = None
    """The prompt's token ids; reported together with `Choice.token_ids`."""

    @property
    def text(self) -> str:
        """The reply's text; empty when the server gave none."""
        return self.choices[0].message.content or ""

    @property
    def scored(self) -> list[TokenLogprob]:
        """The sampled tokens with their log-probabilities, the end-of-turn token included; empty when not given."""
        logprobs = self.choices[0].logprobs
        return (logprobs.content or []) if logprobs else []


class PromptLogprob(BaseModel):
    """One token of a prompt."""

    logprob: Logprob


class ScoredText(BaseModel):
    """Log-probabilities of a prompt's tokens, by id as text; None for the first token."""

    prompt_logprobs: Maybe[list[dict[str, PromptLogprob] | None]] = None


class Scoring(CountedAnswer):
    """vLLM's answer to a text completion that requests its prompt's log-probabilities."""

    choices: Annotated[list[ScoredText], BeforeValidator(_keep_first), Field(min_length=1)]

    def of(self, last: Sequence[int]) -> tuple[float, ...] | None:
        """Return the log-probabilities of the last tokens, in nats; None when not reported."""
        given = (self.choices[0].prompt_logprobs or [])[-len(last) :]
        found = [(entry or {}).get(str(token)) for entry, token in zip(given, last, strict=False)]
        known = tuple(entry.logprob for entry in found if entry is not None)
        return known if len(known) == len(last) else None


class ModelCard(BaseModel):
    """One model that a server offers."""

    id: str
    parent: Maybe[str] = None
    """Base of an adapter, which vLLM lists as a model."""
    max_model_len: Count = None
    """Longest sequence in tokens; None when not reported."""
    owned_by: Maybe[str] = None
    """Local servers give their own name."""


class ModelList(BaseModel):
    """Models that a server offers; unreadable cards are left out."""

    data: list[ModelCard] = []

    @model_validator(mode="before")
    @classmethod
    def _keep_readable(cls, answer: Any) -> Any:
        """Keep cards with a name; Together sends a bare list."""
        cards = answer.get("data") if isinstance(answer, dict) else answer
        listed = cards if isinstance(cards, list) else []
        return {"data": [card for card in listed if isinstance(card, dict) and isinstance(card.get("id"), str)]}


def build_request_body(request: Request, able: Capabilities, *, explicit: bool) -> dict[str, Any]:
    """Build a request body with only fields that the server supports.

    Args:
        explicit: whether to send temperature and top_p even if they are 1, because the server has other defaults.
    """
    body = {"messages": build_chat_messages(request), **build_sampling_fields(request.sampling, explicit=explicit)}
    if able.seed:
        body["seed"] = request.seed % SEEDS
    if able.logprobs:
        body["logprobs"] = True
    if able.token_ids:
        body["return_token_ids"] = True
    return body


def build_sampling_fields(sampling: Sampling, *, explicit: bool) -> dict[str, Any]:
    """Return a request's sampling fields; defaults of the API are left out unless `explicit`."""
    fields: dict[str, Any] = {"max_tokens": sampling.max_tokens}
    if explicit or sampling.temperature != 1:
        fields["temperature"] = sampling.temperature
    if explicit or sampling.top_p != 1:
        fields["top_p"] = sampling.top_p
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    return fields


def build_chat_messages(request: Request) -> list[dict[str, Any]]:
    """Return the prompt as messages: system (if not empty), then one user turn with its pictures."""
    prompt = request.prompt
    user = replace_halves(prompt.user)  # half a character cannot be sent
    content: str | list[dict[str, Any]] = user
    if request.images:
        pictures = [{"type": "image_url", "image_url": {"url": encode_data_url(image)}} for image in request.images]
        text = {"type": "text", "text": user}
        content = [text, *pictures] if prompt.pictures_last else [*pictures, text]
    system = [{"role": "system", "content": replace_halves(prompt.system)}] if prompt.system else []
    return [*system, {"role": "user", "content": content}]


def encode_data_url(image: bytes) -> str:
    """Return a PNG, WebP or JPEG as a data URL."""
    kind = "webp" if image[8:12] == b"WEBP" else "jpeg" if image.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def read_completion(
    completion: Completion, request: Request, tokenizer: str, cost_usd: float | None, *, masked: bool = False
) -> Reply:
    """Return a server's answer as a `Reply`; the end-of-turn token stands beside its ids and log-probabilities.

    Servers report log-probabilities of the plain policy. Those of the behaviour policy equal them only at temperature
    1 without top-p.

    Args:
        masked: whether the reply was constrained by a pattern. vLLM then reports the behaviour policy's
            log-probabilities; the plain policy's are unknown.
    """
    choice = completion.choices[0]
    finish, aside = _read_finish(choice)
    # Put the end of the turn aside: the local engine does so too, and training must see the same.
    scored, ids = completion.scored, choice.token_ids
    end_token: int | None = None
    end_logprob: float | None = None
    if scored and finish in ("stop", None) and _is_end(scored[-1], completion.text):
        # With stop strings, the last token may be one of these.
        end_logprob = None if request.sampling.stop else scored[-1].logprob
        if ids is not None and len(ids) == len(scored):
            end_token = None if end_logprob is None else ids[-1]
            ids = ids[:-1]
        scored, finish = scored[:-1], "stop"
    elif not scored and finish in ("stop", None):
        # Without log-probabilities the last id may be the end of the turn, so the ids cannot be used.
        ids = None
    # None: no log-probabilities were sent. Empty: a reply without tokens.
    logprobs = tuple(entry.logprob for entry in scored) if completion.scored else None
    # Servers report log p of the unscaled policy; the reply was drawn from it only at temperature 1 and top-p 1.
    plain = request.sampling.temperature == 1 and request.sampling.top_p == 1
    return Reply(
        text=completion.text,
        finish=finish,
        aside=aside,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        computed_tokens=completion.computed_tokens,
        tokens=None if ids is None else tuple(ids),
        tokenizer=None if ids is None else tokenizer,
        # Under a pattern, vLLM masks first: it reports the behaviour policy; the plain policy is unknown.
        logprobs=None if masked else logprobs,
        behaviour_logprobs=logprobs if plain else None,
        end_token=end_token,
        end_logprob=None if masked else end_logprob,
        end_behaviour_logprob=end_logprob if plain else None,
        cost_usd=cost_usd,
    )


def _read_finish(choice: Choice) -> tuple[str | None, str]:
    """Return `Reply.finish` and `Reply.aside` of an answer; a text takes precedence over everything else."""
    message, why = choice.message, (choice.finish_reason or "").lower()
    # Filtered first: the text of a filtered answer may be a part of it.
    if any(word in why for word in _FILTERED):
        return "content_filter", _quote(why)
    cut = ("length" if why in _CUT else "stop") if why else None
    # A text counts, whatever finish reason the server gives.
    if (message.content or "").strip():
        return cut, ""
    if message.refusal or why == "refusal":
        return "refusal", _quote(message.refusal)
    if message.tool_calls or why in ("tool_calls", "function_call"):
        return "tool_call", _quote(message.tool_calls)
    # Without a text, thoughts explain why: the reply was all reasoning.
    thought = message.reasoning_content or message.reasoning
    return ("reasoning", "cut by max_tokens" if cut == "length" else "") if thought else (cut, "")


def _quote(foreign: Any) -> str:
    """Return a server's value as one short line."""
    text = flatten(foreign if isinstance(foreign, str) else json.dumps(foreign, default=str)) if foreign else ""
    return text if len(text) <= _LONGEST_ASIDE else f"{text[:_LONGEST_ASIDE]}…"


def has_whole_ids(completion: Completion) -> bool:
    """Return whether ids and log-probabilities are of the same tokens: of a reply and, if it ended, of its end."""
    choice, scored = completion.choices[0], completion.scored
    if not scored or len(choice.token_ids or ()) != len(scored):
        return False
    finish, _ = _read_finish(choice)
    return finish == "length" or _is_end(scored[-1], completion.text)


def _is_end(entry: TokenLogprob, text: str) -> bool:
    """Return whether the last token is an end-of-turn token, which the text does not contain."""
    spelled = entry.decode()
    return not spelled or not text.encode("utf-8", "surrogatepass").endswith(spelled)


def cut_at_stop(reply: Reply, stop: Sequence[str]) -> Reply:
    """Cut a reply before the first stop string, if the server did not; its tokens are unknown then."""
    places = [place for place in (reply.text.find(one) for one in stop if one) if place >= 0]
    if not places:
        return reply
    text = reply.text[: min(places)]
    return replace(reply, text=text, finish="stop", tokens=None, tokenizer=None, logprobs=None, behaviour_logprobs=None)


_REASON = r"Reason: [^\n]{1,500}"
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,31}"
_NUMBER = r"-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,6})?"
_JSON_TEXT = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt]){0,500}"'
_JSON_VALUE = rf"({_JSON_TEXT}|{_NUMBER}|true|false)"
_CALL_TEXT = r"""("([^"\\\x00-\x1f]|\\["\\nrt]){0,500}"|'([^'\\\x00-\x1f]|\\['\\nrt]){0,500}')"""
_CALL_VALUE = rf"({_CALL_TEXT}|{_NUMBER}|True|False)"
_MOST_FIELDS = 5

_JSON_LINE = re.compile(r'^\{"action_type": "([A-Za-z0-9_]+)"', re.MULTILINE)
_CALL_LINE = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)\(", re.MULTILINE)


@functools.lru_cache(maxsize=32)
def reply_pattern(system: str) -> str | None:
    """Return the pattern of a reply to this system text; None when the text lists no actions."""
    if types := _JSON_LINE.findall(system):
        return rf"{_REASON}\nAction: {_json_action_schema(types)}"
    if types := _CALL_LINE.findall(system):
        return rf"{_REASON}\nAction: {_call(types)}"
    return None


def _json_action_schema(types: list[str]) -> str:
    field = rf'"{_NAME}": {_JSON_VALUE}'
    return rf'\{{"action_type": "({"|".join(types)})"(, {field}){{0,{_MOST_FIELDS}}}\}}'


def _call(types: list[str]) -> str:
    field = rf"{_NAME}={_CALL_VALUE}"
    return rf"({'|'.join(types)})\(({field}(, {field}){{0,{_MOST_FIELDS - 1}}})?\)"
