"""One question to a model, and its structured reply: items, each by itself right or refused.

Replies are JSON. The reader is generous about everything around it (code fences, words before and after, one list, an
object that holds the list, one object per line, a list that was cut off in the middle) and strict about each item, so
that one broken item costs that item and not the reply. What is refused is counted by its cause, never mended.

The wording of a taught policy: first the element as the screen shows it, then the action.

    Reason: button "Save" [7]
    Action: {"action_type": "click", "index": 7}

A reply that names its element by copying the element's line goes on to the index by copying, too; that is what lets
models of a few million parameters point. An action without an element is named in words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError

from collab.envs.grammar import ActionSpace
from collab.envs.text import format_element
from collab.errors import ModelFailure, boundary
from collab.models.base import CallClock, Model, Reply, Request
from collab.prompts.parse import read_reply, write_reply
from collab.types import Action, ElementTarget, Observation, Prompt, Sampling, Usage

UNFIT = "an item does not fit the schema"
NO_ITEM = "the reply holds no item"
"""Causes, of an item and of a whole reply."""
_LONGEST = 200_000
"""Characters of a reply that are read at all."""
_ATTEMPTS = 500
"""Openings that lead nowhere before reading ends; bounds the work on hostile text."""
_OPENING = re.compile(r"[{\[]")
_NUMBER = re.compile(r"[+-]?(\d{1,20}\.?\d{0,40}|\.\d{1,40})", re.ASCII)
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Half characters cannot be stored or sent; other control characters have no business in a sentence."""


def _check_sentence(text: str) -> str:
    if _UNFIT.search(text):
        raise ValueError("holds characters that cannot be shown")
    return " ".join(text.split())


Words = Annotated[str, AfterValidator(_check_sentence), Field(min_length=1, max_length=2000)]
"""Words on one line."""


class ReplyItem(BaseModel):
    """One thing that is said; fields beyond the schema are left unread, values are never converted."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, str_strip_whitespace=True)


class AnswerItem(ReplyItem):
    """The answer to one question about a screen or one of its elements."""

    question: StrictInt
    """Number of the question in the prompt."""
    answer: Words


class ProposalItem(ReplyItem):
    """An action and why."""

    reason: Words
    action: dict[str, Any] | str
    """As the space writes it: an object (JSON syntax) or a call in text."""


class InstructionItem(ProposalItem):
    """Something a user could ask for on this screen, and the one step that it takes."""

    instruction: Words


def number_in(given: Any) -> Any:
    """Return the number of a text that is nothing but one ("0.9"); anything else as it is."""
    return float(given) if isinstance(given, str) and _NUMBER.fullmatch(given.strip()) else given


class ScoreItem(ReplyItem):
    """A critic's word on one action."""

    id: StrictInt
    """Number of the action in the prompt."""
    score: Annotated[float, Field(ge=0, le=1, strict=True), BeforeValidator(number_in)]
    reason: str = ""


ItemT = TypeVar("ItemT", bound=ReplyItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyItems(Generic[ItemT]):
    """What a reply held."""

    good: tuple[ItemT, ...]
    refused: Counter[str] = field(default_factory=Counter)
    """Items or whole replies that did not fit, by cause."""


def strip_thoughts(text: str) -> str:
    """What a reply says behind the thoughts that it begins with (`<think>`); nothing where they never end."""
    said = text.rpartition("</think>")[2]
    return "" if said.lstrip().startswith("<think>") else said


def read_items(text: str, kind: type[ItemT]) -> ReplyItems[ItemT]:
    """Read all items of one kind from a reply; never raises.

    Causes: the reply is empty, too long, not JSON, or JSON without an item; an item does not fit the schema, once for
    each object that is not an item of this kind. What a model thinks aloud first is left unread, see `strip_thoughts`.
    """
    text = strip_thoughts(text)
    # Each way of saying nothing is counted apart: they have different remedies.
    if not text.strip():
        return ReplyItems(good=(), refused=Counter({"the reply is empty": 1}))
    if len(text) > _LONGEST:
        return ReplyItems(good=(), refused=Counter({"the reply is too long": 1}))
    good: list[ItemT] = []
    refused: Counter[str] = Counter()
    values = list(_iterate_values(text))
    found = [item for value in values for item in _iterate_objects(value, kind)]
    # Item by item: one that does not fit must not cost the others.
    for item in found:
        try:
            good.append(kind.model_validate(item))
        except ValidationError:
            refused[UNFIT] += 1
    if not found:
        refused[NO_ITEM if values else "the reply is not JSON"] += 1
    return ReplyItems(good=tuple(good), refused=refused)


class ContradictoryKey(tuple[Any, Any]):
    """What one key of an object was given, where that differs."""


def read_objects(text: str) -> list[dict[str, Any]]:
    """All JSON objects of a reply, those of its lists, and those right inside of them; never raises."""
    found = [
        one
        for value in _iterate_values(strip_thoughts(text)[:_LONGEST])
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, dict)
    ]
    return [*found, *(inner for value in found for inner in value.values() if isinstance(inner, dict))]


def _iterate_values(text: str) -> Iterator[Any]:
    """All JSON values that begin with a brace or bracket, first to last; those inside of one that is broken, too."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_build_object)
    position, failures = 0, 0
    while failures < _ATTEMPTS and (opening := _OPENING.search(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            position = opening.start() + 1
            failures += 1
        else:
            yield value


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; what is said twice and differently under one key is neither score nor reason."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        made[key] = ContradictoryKey((made[key], value)) if key in made and made[key] != value else value
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _iterate_objects(value: Any, kind: type[ReplyItem]) -> Iterator[dict[str, Any]]:
    """The objects that are items: those of a list, of the one list that an object wraps, or the object itself.

    Beside the list the object may hold other things, an analysis for example, as a list, too.
    """
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
    elif isinstance(value, dict):
        # Models wrap lists in objects of any name; several lists are told apart by which of them fits.
        lists = [inner for inner in value.values() if isinstance(inner, list) and _holds_objects(inner)]
        if len(lists) > 1:
            lists = [inner for inner in lists if any(isinstance(item, dict) and _fits(item, kind) for item in inner)]
        if len(value) == 1 and [] in value.values():
            return
        if len(lists) == 1 and not _fits(value, kind):
            yield from _iterate_objects(lists[0], kind)
        elif value:
            yield value


def _fits(value: dict[str, Any], kind: type[ReplyItem]) -> bool:
    try:
        kind.model_validate(value)
    except ValidationError:
        return False
    return True


def _holds_objects(values: list[Any]) -> bool:
    return any(isinstance(item, dict) for item in values)


class PartlyAnswered(ModelFailure):
    """Of several questions about one thing, some were answered and one failed for good: the answers are lost.

    Args:
        failure: what went wrong.
        spent: what the answers cost.
    """

    def __init__(self, failure: ModelFailure, spent: Usage) -> None:
        super().__init__(str(failure))
        self.failure, self.spent = failure, spent


def find_first_failure(found: Iterable[object]) -> BaseException | None:
    """What is to be raised of what `asyncio.gather` returned; None where nothing failed.

    The first in order; but whatever is no ModelFailure ends more than this one thing and comes before any that is.
    """
    failures = [one for one in found if isinstance(one, BaseException)]
    return min(failures, key=lambda one: isinstance(one, ModelFailure), default=None)


async def ask(model: Model, prompt: Prompt, sampling: Sampling, *, seed: int, call_s: float, who: str) -> Reply:
    """Ask a model once.

    Args:
        seed: of this call alone.
        call_s: limit in seconds, retries included and waiting in line not.
        who: asks, for messages: "the critic".

    Raises:
        ModelFailure: the call failed after its retries or took longer than its limit.
    """
    clock = CallClock(call_s)
    request = Request(prompt=prompt, sampling=sampling, seed=seed, clock=clock)
    with boundary(ModelFailure, f"call of {who} to {model.policy.base} (limit {call_s:g} s)"):
        async with clock.running():
            return await model.generate(request)


def hash_text(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hash_prompt(prompt: Prompt) -> str:
    """SHA-256 of a prompt as it was asked."""
    return hash_text("\f".join([prompt.system, prompt.user]))


def format_reason(action: Action, observation: Observation, space: ActionSpace) -> str:
    """The line of the element that the action aims at, or the action in words where it aims at none on the screen."""
    target = action.target
    if isinstance(target, ElementTarget) and target.index < len(observation.elements):
        return format_element(observation.elements[target.index])
    return space.describe(action, observation)


def reply(action: Action, observation: Observation, space: ActionSpace, because: str | None = None) -> str:
    """The whole reply; `because` stands in for the reason where something else is worth naming."""
    return write_reply(format_reason(action, observation, space) if because is None else because, action, space)


def format_said_reason(text: str, observation: Observation, space: ActionSpace) -> str:
    """The reason of a reply as it will be read from it, and so stand in the history."""
    return read_reply(text, space, observation).reason
