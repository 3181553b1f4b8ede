"""Ask a model one question, and read its structured reply: items, each by itself accepted or refused.

    answer = await ask(model, prompt, sampling, seed=seed, call_s=60, who="critic")
    read_items(answer.text, ScoreItem).good

Replies are JSON. The reader is generous about everything around it: code fences, words before and after, one list, an
object that holds the list, one object per line, or a list that was cut off in the middle. It is strict about each item,
so that one broken item costs that item and not the reply. Refused items are counted by cause, never repaired.

`format_reply` writes the replies that policies learn.
"""

from __future__ import annotations

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
from collab.prompts.parse import read_reply, strip_thoughts, write_reply
from collab.types import Action, ElementTarget, Observation, Prompt, Sampling, Usage
from collab.utils.files import hash_text

UNFIT = "an item does not fit the schema"
NO_ITEM = "the reply holds no item"
"""Causes of a refused item and of a refused reply."""
_LONGEST = 200_000
"""Most characters of a reply."""
_ATTEMPTS = 500
"""Failed openings before reading ends; bounds the work on hostile text."""
_OPENING = re.compile(r"[{\[]")
_NUMBER = re.compile(r"[+-]?(\d{1,20}\.?\d{0,40}|\.\d{1,40})", re.ASCII)
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Half surrogates cannot be stored or sent; other control characters do not belong in a sentence."""


def _check_sentence(text: str) -> str:
    if _UNFIT.search(text):
        raise ValueError("holds characters that cannot be shown")
    return " ".join(text.split())


Words = Annotated[str, AfterValidator(_check_sentence), Field(min_length=1, max_length=2000)]
"""Words on one line."""


class ReplyItem(BaseModel):
    """One item of a reply; fields beyond the schema are ignored, values are never converted."""

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
    """In the space's syntax: an object (JSON) or a call in text."""


class InstructionItem(ProposalItem):
    """A request that a user could make on this screen, and the one step that it takes."""

    instruction: Words


class AnalysisItem(ReplyItem):
    """Why an action is right or wrong."""

    analysis: Words


def number_in(given: Any) -> Any:
    """Return the number of a purely numeric text ("0.9"), and any other value unchanged."""
    return float(given) if isinstance(given, str) and _NUMBER.fullmatch(given.strip()) else given


class ScoreItem(ReplyItem):
    """A critic's score of one action."""

    id: StrictInt
    """Number of the action in the prompt."""
    score: Annotated[float, Field(ge=0, le=1, strict=True), BeforeValidator(number_in)]
    reason: str = ""


ItemT = TypeVar("ItemT", bound=ReplyItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyItems(Generic[ItemT]):
    """The items of a reply."""

    good: tuple[ItemT, ...]
    refused: Counter[str] = field(default_factory=Counter)
    """Items or whole replies that did not fit, by cause."""


def read_items(text: str, kind: type[ItemT]) -> ReplyItems[ItemT]:
    """Read all items of one kind from a reply; never raises.

    Causes: the reply is empty, too long, not JSON, or JSON without an item; an item does not fit the schema, once for
    each object that is not an item of this kind. A model's leading thoughts are ignored, see `strip_thoughts`.
    """
    text = strip_thoughts(text)
    # Each kind of useless reply is counted apart: they have different remedies.
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
    """The two different values of one key of an object."""


def read_objects(text: str) -> list[dict[str, Any]]:
    """Return all JSON objects of a reply, with those of its lists and those directly inside of them; never raises."""
    found = [
        one
        for value in _iterate_values(strip_thoughts(text)[:_LONGEST])
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, dict)
    ]
    return [*found, *(inner for value in found for inner in value.values() if isinstance(inner, dict))]


def _iterate_values(text: str) -> Iterator[Any]:
    """Yield all JSON values that begin with a brace or bracket, first to last, also those inside of a broken one."""
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
    """Build an object; a key with two different values gets a `ContradictoryKey`."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        made[key] = ContradictoryKey((made[key], value)) if key in made and made[key] != value else value
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _iterate_objects(value: Any, kind: type[ReplyItem]) -> Iterator[dict[str, Any]]:
    """Yield the objects that are items: those of a list, of the one list that an object wraps, or the object itself.

    Beside the list the object may hold others, an analysis for example.
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
    """Some of several questions about one step were answered and one failed for good: the answers are lost.

    Args:
        failure: the failed question's.
        spent: cost of the answers.
    """

    def __init__(self, failure: ModelFailure, spent: Usage) -> None:
        super().__init__(str(failure))
        self.failure, self.spent = failure, spent


def find_first_failure(found: Iterable[object]) -> BaseException | None:
    """Return the exception to raise of `asyncio.gather`: the first that is no ModelFailure, else the first."""
    failures = [one for one in found if isinstance(one, BaseException)]
    return min(failures, key=lambda one: isinstance(one, ModelFailure), default=None)


async def ask(
    model: Model,
    prompt: Prompt,
    sampling: Sampling,
    *,
    seed: int,
    call_s: float,
    who: str,
    images: tuple[bytes, ...] = (),
) -> Reply:
    """Ask a model once.

    Args:
        seed: for this call alone.
        call_s: limit in seconds, with retries, without waiting in line.
        who: name of the caller for messages, e.g. "the critic".
        images: pictures before the text, in the order of `prompt.images`.

    Raises:
        ModelFailure: the call failed after its retries or took longer than its limit.
    """
    clock = CallClock(call_s)
    request = Request(prompt=prompt, sampling=sampling, seed=seed, images=images, clock=clock)
    with boundary(ModelFailure, f"call of {who} to {model.policy.base} (limit {call_s:g} s)"):
        async with clock.running():
            return await model.generate(request)


def hash_prompt(prompt: Prompt) -> str:
    """Return the SHA-256 of a prompt as it was asked, with its pictures."""
    return hash_text("\f".join([prompt.system, prompt.user, *prompt.images]))


def format_reason(action: Action, observation: Observation, space: ActionSpace) -> str:
    """Format the line of the action's element, or the action in words where it has no element on the screen.

        Reason: button "Save" [7]
        Action: {"action_type": "click", "index": 7}

    A policy that copies the element's line reaches the index by copying, too. So even models of a few million
    parameters can point.
    """
    target = action.target
    if isinstance(target, ElementTarget) and target.index < len(observation.elements):
        return format_element(observation.elements[target.index])
    return space.describe(action, observation)


def format_reply(action: Action, observation: Observation, space: ActionSpace, because: str | None = None) -> str:
    """Format a whole reply; `because` replaces the reason."""
    return write_reply(format_reason(action, observation, space) if because is None else because, action, space)


def format_said_reason(text: str, observation: Observation, space: ActionSpace) -> str:
    """Return the reason that will be parsed from a reply, as it appears in the history."""
    return read_reply(text, space, observation).reason
