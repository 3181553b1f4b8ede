"""Find out what a chat-completions server supports, with the kind of requests that a run makes.

Every question has the run's system turn and sampling. A server may refuse a field, or accept and ignore it, so each
optional field is judged by the answer. A refused optional field does not end the probe as long as the plain question
is answered. Questions are asked one after the other.

`read_prefix_cache` reads from a server's metrics how often prompts were found in its prefix cache.

    before = read_prefix_cache(metrics)
    …
    read_prefix_cache(metrics).since(before).rate      0.93: share of the prompt tokens that came from the cache

vLLM counts tokens looked up and found, for all its clients together.

`RequestForm` adapts requests to one model behind one server: refused fields are left out or sent in another way.

    form = RequestForm()
    answer = await form.ask(send, body)          # without what the server refuses, from now on

The words of a refusal name the field. A step is kept only if it helped: a refusal without the field was about
something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable
from urllib.parse import urlsplit

from collab.errors import ModelFailure
from collab.models.base import Capabilities
from collab.models.completion import (
    Completion,
    ModelList,
    Scoring,
    build_sampling_fields,
    encode_data_url,
    has_whole_ids,
)
from collab.models.http import ServerRefusal
from collab.types import Sampling

_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
"""Newest name first; two of them in one server count the same thing."""
_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})?[ \t]+(?P<value>[0-9.eE+]+)", re.MULTILINE)
"""One line of the Prometheus text format; comments start with #."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheCounts:
    """Counts since the server's start, or between two moments."""

    queries: int
    """Prompt tokens that were looked up."""
    hits: int
    """Prompt tokens that were found."""

    @property
    def rate(self) -> float:
        """Share of the tokens that were found; 0 when none was looked up."""
        return self.hits / self.queries if self.queries else 0.0

    def since(self, earlier: PrefixCacheCounts) -> PrefixCacheCounts:
        """Return the counts after an earlier reading; all of them if the server has restarted in between."""
        if earlier.queries > self.queries or earlier.hits > self.hits:
            return self
        return PrefixCacheCounts(queries=self.queries - earlier.queries, hits=self.hits - earlier.hits)


@runtime_checkable
class HasPrefixCache(Protocol):
    """A model whose server may have a prefix cache."""

    async def prefix_cache(self) -> PrefixCacheCounts | None:
        """Return the counts since the server's start; None when not reported."""
        ...


def read_prefix_cache(metrics: str) -> PrefixCacheCounts | None:
    """Sum the counters of a Prometheus text over all engines of the server; None without such counters."""
    sums: dict[str, float] = {}
    for sample in _SAMPLE.finditer(metrics):
        if sample["name"] in (*_QUERIES, *_HITS):
            sums[sample["name"]] = sums.get(sample["name"], 0.0) + _count(sample["value"])
    queries = next((sums[name] for name in _QUERIES if name in sums), None)
    hits = next((sums[name] for name in _HITS if name in sums), None)
    return None if queries is None or hits is None else PrefixCacheCounts(queries=round(queries), hits=round(hits))


def _count(written: str) -> float:
    """Read one value; 0 for an invalid count."""
    try:
        value = float(written)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def build_metrics_url(base_url: str) -> str:
    """Return the address of vLLM's metrics: beside /v1, not below it."""
    return f"{base_url.rstrip('/').removesuffix('/v1')}/metrics"


AnswerT = TypeVar("AnswerT")
Body: TypeAlias = dict[str, Any]
Send: TypeAlias = Callable[[Body], Awaitable[AnswerT]]
"""Sends a body; raises ServerRefusal when the server refuses."""

_TELLING = (400, 403, 404, 405, 409, 413, 415, 422, 424, 500, 501)
"""Statuses with which servers refuse a field."""
_UNSPOKEN = (400, 422, 424, 500, 501)
"""Statuses in `_TELLING` that may concern a field without naming it."""
_LONGEST_QUOTE = 120
"""Characters of a server's message in a note."""
_TOO_LONG = (
    *("context length", "context_length", "context size", "context window", "too long", "too large"),
    "output limit was reached",
)
"""Refusals of a too long prompt name the reply's limit, which is not at fault."""


def _rename_field(old: str, new: str) -> Callable[[Body], Body]:
    return lambda body: {new if name == old else name: value for name, value in body.items()}


def _drop_field(field: str) -> Callable[[Body], Body]:
    return lambda body: {name: value for name, value in body.items() if name != field}


def merge_system(body: Body) -> Body:
    """Put the system text at the beginning of the first user turn."""
    first, *rest = body["messages"]
    if first["role"] != "system" or not rest:
        return body
    content = rest[0]["content"]
    if isinstance(content, list):
        content = [{"type": "text", "text": first["content"]}, *content]
    else:
        content = f"{first['content']}\n\n{content}"
    return body | {"messages": [{**rest[0], "content": content}, *rest[1:]]}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFormStep:
    """One change of a request."""

    field: str
    """Field of the body that it changes."""
    change: Callable[[Body], Body]
    named: str
    """Pattern of the field's names in a refusal."""
    says: str
    """In a note: "{field}: {says} (the server's words)"."""


def _format_left_out(field: str, named: str) -> RequestFormStep:
    return RequestFormStep(field=field, change=_drop_field(field), named=named, says="left out, refused")


def _build_rename_step(field: str, name: str, named: str) -> RequestFormStep:
    return RequestFormStep(field=field, change=_rename_field(field, name), named=named, says=f"called {name}")


STEPS = {
    "max_completion_tokens": _build_rename_step("max_tokens", "max_completion_tokens", r"max_(completion_)?tokens"),
    "max_tokens": _build_rename_step("max_completion_tokens", "max_tokens", r"max_completion_tokens"),
    "system": RequestFormStep(
        field="messages",
        change=merge_system,
        named=r"system|\broles?\b|alternate|developer instruction",
        says="the system text stands in the user's turn",
    ),
    "random_seed": _build_rename_step("seed", "random_seed", r"random_seed"),
    "logprobs": _format_left_out("logprobs", r"log[ _-]?prob"),
    "return_token_ids": _format_left_out("return_token_ids", r"token_ids"),
    "seed": _format_left_out("seed", r"\bseed"),
    "top_p": _format_left_out("top_p", r"top[_ -]?p\b"),
    "temperature": _format_left_out("temperature", r"temperature"),
    "stop": _format_left_out("stop", r"\bstop\b|stop[_ ]sequence"),
    "structured_outputs": _format_left_out("structured_outputs", r"structured_outputs|guided|regex"),
}
"""Least loss first."""
GUESSES = ("max_completion_tokens", "system", "top_p", "temperature", "stop")
"""Steps to try in turn if a plain request is refused without a reason."""


class RequestForm:
    """Changes that one model's requests need; shared by all its clients."""

    def __init__(self) -> None:
        self.steps: tuple[str, ...] = ()
        """In the order of learning."""
        self.notes: tuple[str, ...] = ()
        """What was learned, one line per step."""

    def adapt(self, body: Body, more: Sequence[str] = ()) -> Body:
        """Return a body with the learned steps and `more` steps applied."""
        for name in (*self.steps, *more):
            if STEPS[name].field in body:
                body = STEPS[name].change(body)
        return body

    def learn(self, steps: Mapping[str, ServerRefusal]) -> None:
        """Keep steps that helped, each with the refusal that it was taken for."""
        for step, refusal in steps.items():
            if step in self.steps:
                continue
            words = refusal.words if len(refusal.words) <= _LONGEST_QUOTE else f"{refusal.words[:_LONGEST_QUOTE]}…"
            self.steps += (step,)
            self.notes += (f"{STEPS[step].field}: {STEPS[step].says} ({words})",)

    async def ask(self, send: Send[AnswerT], body: Body, *, guesses: Sequence[str] = ()) -> AnswerT:
        """Ask; if the server refuses a field, ask without it and keep that step if it helps.

        Args:
            send: sends a body unchanged.
            guesses: steps to try if the server does not say what it refuses.

        Raises:
            ServerRefusal: nothing helped; the refusal of the original request.
        """
        # A server may refuse several fields in turn, so steps accumulate.
        tried: dict[str, ServerRefusal] = {}
        first: ServerRefusal | None = None
        while True:
            adapted = self.adapt(body, tuple(tried))
            try:
                answer = await send(adapted)
            except ServerRefusal as refusal:
                step = choose_next_step(refusal, adapted, tuple(tried))
                if step is None:
                    # A later refusal replaces the first only if it says more about the request.
                    first = first if first is not None and refusal.status in _TELLING else refusal
                    break
                first = first or refusal
                tried[step] = refusal
            else:
                self.learn(tried)
                return answer
        # The server does not name the field: try each guess alone, then all, to lose as few fields as possible.
        if _is_about_fields(first):
            possible = [step for step in guesses if step in list_possible_steps(self.adapt(body), tuple(tried))]
            for steps in [[step] for step in possible] + ([possible] if len(possible) > 1 else []):
                with contextlib.suppress(ServerRefusal):
                    answer = await send(self.adapt(body, steps))
                    self.learn(dict.fromkeys(steps, first))
                    return answer
        # Nothing helped, so show the error about the original request.
        raise first


def choose_next_step(refusal: ServerRefusal, body: Body, tried: Sequence[str] = ()) -> str | None:
    """Return the untried step for the field that a refusal of `body` names; None without one."""
    words = refusal.words.lower()
    if refusal.status not in _TELLING or any(phrase in words for phrase in _TOO_LONG):
        return None
    return next((name for name in list_possible_steps(body, tried) if re.search(STEPS[name].named, words)), None)


def list_possible_steps(body: Body, tried: Sequence[str] = ()) -> list[str]:
    """Return the untried steps that would change a body."""
    return [
        name for name, step in STEPS.items() if name not in tried and step.field in body and step.change(body) != body
    ]


def _is_about_fields(refusal: ServerRefusal) -> bool:
    """Return whether the refusal may concern a field that it does not name."""
    if any(phrase in refusal.words.lower() for phrase in _TOO_LONG):
        return False
    return refusal.status in _UNSPOKEN or (refusal.status in _TELLING and "parameter" in refusal.words.lower())


Ask = Callable[[Body], Awaitable[Completion]]
"""Sends a request body (without the model's name); raises ServerRefusal when the server refuses."""

Offers = Callable[[], Awaitable[ModelList]]
"""Requests the list of models; raises ModelFailure without one."""

ScoreCall = Callable[[Sequence[int]], Awaitable[Scoring]]
"""Requests the log-probabilities of these token ids; raises ServerRefusal when the server refuses."""

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
"""No model answers a greeting like this unless constrained."""
_MOST_OF_ONE = 2
"""Most tokens of an answer that was limited to one; some servers count the end of the turn."""
_TWO_TOKENS = (0, 1)
"""Ids that every vocabulary has."""
_PICTURE_SIDE = 32
"""Pixels; some vision models refuse pictures smaller than one of their patches."""
_LIST_S = 10.0
"""Seconds to wait for the list of models, which is optional."""
_DEFINITE = (400, 403, 405, 413, 415, 422, 501)
"""Statuses after which the plain question need not be asked again."""
_OWN_DEFAULTS = ("vllm", "sglang", "llamacpp", "llama.cpp", "library", "organization_owner", "transformers", "tgi")
"""`owned_by` of servers that default to the checkpoint's or the user's sampling: vLLM, SGLang, llama.cpp, Ollama,
LM Studio."""
_OWN_DEFAULTS_AT = ("googleapis.com", "mistral.ai", "together.xyz", "together.ai")
"""Hosts with other sampling defaults (Gemini's top_p is 0.95)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Results of a probe."""

    capabilities: Capabilities
    explicit: bool = False
    """Whether to send temperature and top_p even if they are 1, because the server has other defaults."""
    patterns: bool = False
    """Whether replies can be constrained by a regular expression."""
    scores: bool = False
    """Whether the server reports the log-probabilities of given token ids."""


async def probe_server(
    model: str,
    url: str,
    ask: Ask,
    offers: Offers,
    *,
    sampling: Sampling,
    form: RequestForm,
    score: ScoreCall | None = None,
) -> Findings:
    """Find out what a server supports.

    Args:
        model: name of the model.
        url: the server's address.
        sampling: of the run.
        form: learns the changes that requests need.
        score: None to skip patterns and scores.

    Raises:
        ModelFailure: it does not answer a plain request, sends the prompt back with its answer, or stops answering.
    """
    # The list of models costs nothing and exposes a wrong name better than a failed call.
    interview = _Interview(ask=ask, form=form, notes=[])
    offered = await interview.list_models(model, offers)
    explicit = _has_own_defaults(model, url, offered)
    # Plain request first: every later question adds one field, so a refusal is about that field.
    plain_body: Body = {"messages": _HELLO, **build_sampling_fields(sampling, explicit=explicit)}
    plain = await form.ask(ask, plain_body, guesses=GUESSES)
    if _has_prompt(plain.text) and await interview.is_prompt_sent_back(plain_body):
        raise ModelFailure(
            f"{model} at {url}: sends the whole prompt back in front of its reply; transformers serve does so for a "
            "Qwen architecture whose chat template does not use Qwen's turn markers: set response_template in the "
            "checkpoint's tokenizer_config.json, as agents/pocket does, or use another server"
        )
    interview.plain = plain_body
    limit = "max_completion_tokens" if "max_completion_tokens" in form.adapt(plain_body) else "max_tokens"
    interview.notes[:0] = [f"reply length is limited by {limit}", *form.notes]
    question = interview.question
    # In sequence: fields that the form learned to leave out apply to the next question.
    capabilities = Capabilities(
        logprobs=await question("logprobs", {"logprobs": True}, lambda answer: bool(answer.scored)),
        structured=await question(
            "response_format", {"response_format": _SCHEMA}, lambda answer: _is_fitting(answer.text)
        ),
        seed=await interview.has_seed(),
        images=await question(
            "images", {"messages": _build_picture_messages()}, lambda answer: _is_picture_counted(answer, plain)
        ),
        # Ids are of use only where the log-probabilities beside them show the end of the turn.
        token_ids=await question(
            "token ids up to the end of the turn", {"return_token_ids": True, "logprobs": True}, has_whole_ids
        ),
        adapters=any(card.parent is not None for card in offered.data),
        counts_tokens=plain.prompt_tokens is not None and plain.completion_tokens is not None,
        notes=(),
    )
    # Patterns and scores cost calls of their own, so they are tried only where a critic needs them.
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
    form: RequestForm
    notes: list[str]
    plain: Body = field(default_factory=dict)
    """The answered plain question."""
    refused: dict[str, str] = field(default_factory=dict)
    """Question → the server's refusal in lower case."""

    async def question(self, name: str, fields: Body, judge: Callable[[Completion], bool]) -> bool:
        """Ask the plain question with further fields, judge the answer and note the result."""

        async def look() -> bool:
            return judge(await self.ask(self.form.adapt(self.plain | fields)))

        return await self._note(name, look)

    async def has_seed(self) -> bool:
        """Return whether equal seeds give equal replies, under either field name."""
        drawn: set[str] = set()

        def same_again(answer: Completion) -> bool:
            drawn.add(answer.text)
            return len(drawn) == 1

        async def ask_twice(name: str, field: str) -> bool:
            return await self.question(name, {"messages": _LETTERS, field: _SEED}, same_again)

        if await ask_twice("seed", "seed"):
            return await ask_twice("same seed again", "seed")
        # A server that refuses unknown fields answers only under the name that it knows.
        strict = "extra" in self.refused.get("seed", "") or "random_seed" in self.refused.get("seed", "")
        if strict and await ask_twice("random_seed", "random_seed"):
            self.form.steps += ("random_seed",)
            return await ask_twice("same seed again", "seed")
        return False

    async def is_prompt_sent_back(self, plain: Body) -> bool:
        """Return whether an answer of one token repeats the prompt, which no model can do."""
        try:
            answer = await self.ask(self.form.adapt(plain | {"max_tokens": 1}))
        except ServerRefusal:
            self.notes.append("prompt sent back: not known, so short a limit is refused")
            return False
        # The user's `extra` or the server may override the limit: then the model may have repeated the prompt itself.
        return (answer.completion_tokens or 1) <= _MOST_OF_ONE and _has_prompt(answer.text)

    async def scores(self, score: ScoreCall) -> bool:
        """Return whether the server reports log-probabilities of tokens that it did not sample."""

        async def look() -> bool:
            return (await score(_TWO_TOKENS)).of(_TWO_TOKENS[1:]) is not None

        return await self._note("scores", look)

    async def list_models(self, model: str, offers: Offers) -> ModelList:
        """Return the server's models and note them; empty if it has no list, which is optional."""
        try:
            async with asyncio.timeout(_LIST_S):
                offered = await offers()
        except TimeoutError:
            self.notes.append(f"list of models: none within {_LIST_S:g} s")
            return ModelList()
        except ModelFailure as failure:
            self.notes.append(f"list of models: {_explain(failure)}")
            return ModelList()
        names = [card.id for card in offered.data if card.parent is not None]
        self.notes.append(f"adapters: {', '.join(names) or 'none listed'}")
        cards = [card for card in offered.data if card.id == model]
        # Not an error: gateways route names that they do not list.
        if offered.data and not cards:
            self.notes.append("list of models: this one is not in it")
        self.notes.extend(f"context: {card.max_model_len} tokens" for card in cards if card.max_model_len is not None)
        return offered

    async def _note(self, name: str, look: Callable[[], Awaitable[bool]]) -> bool:
        try:
            found = await look()
        except ModelFailure as failure:
            if not (isinstance(failure, ServerRefusal) and failure.status in _DEFINITE):
                await self.ask(self.form.adapt(self.plain))  # if answered, the field was the problem
            self.refused[name] = failure.words.lower() if isinstance(failure, ServerRefusal) else ""
            self.notes.append(f"{name}: {_explain(failure)}")
            return False
        self.notes.append(f"{name}: {'yes' if found else 'accepted and ignored'}")
        return found


def _has_prompt(answer: str) -> bool:
    """Return whether an answer repeats the greeting's prompt."""
    return _HELLO[1]["content"] in answer.partition(_HELLO[0]["content"])[2]


def _explain(failure: ModelFailure) -> str:
    return f"refused ({failure.status})" if isinstance(failure, ServerRefusal) else "no usable answer"


def _has_own_defaults(model: str, url: str, offered: ModelList) -> bool:
    """Return whether the server's defaults may differ from temperature 1 and top_p 1."""
    host = urlsplit(url).hostname or ""
    if any(host == name or host.endswith(f".{name}") for name in _OWN_DEFAULTS_AT):
        return True
    cards = [card for card in offered.data if card.id == model] or offered.data
    return any((card.owned_by or "").lower() in _OWN_DEFAULTS for card in cards)


def _is_fitting(text: str) -> bool:
    """Return whether the reply to a greeting follows the schema."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and isinstance(answer.get("ok"), bool)


def _is_picture_counted(answer: Completion, plain: Completion) -> bool:
    """Return whether a picture entered the prompt, as some servers drop it; True without token counts."""
    if answer.prompt_tokens is None or plain.prompt_tokens is None:
        return True
    return answer.prompt_tokens > plain.prompt_tokens


def _build_picture_messages() -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": encode_data_url(make_small_picture())}}
    return [_SYSTEM, {"role": "user", "content": [picture, {"type": "text", "text": "Say hello."}]}]


def make_small_picture() -> bytes:
    """Return a grey square as PNG, about 100 bytes."""
    side = _PICTURE_SIDE
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)  # 8 bits per pixel, grey
    pixels = zlib.compress((b"\0" + b"\x80" * side) * side)
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
