"""A structured reply → its items, each by itself right or refused.

Replies are JSON. The reader is generous about everything around it (code fences, words before and after, one list, an
object that holds the list, one object per line, a list that was cut off in the middle) and strict about each item, so
that one broken item costs that item and not the reply. What is refused is counted by its cause, never mended.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError

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


def _sentence(text: str) -> str:
    if _UNFIT.search(text):
        raise ValueError("holds characters that cannot be shown")
    return " ".join(text.split())


Words = Annotated[str, AfterValidator(_sentence), Field(min_length=1, max_length=2000)]
"""Words on one line."""


class Item(BaseModel):
    """One thing that is said; fields beyond the schema are left unread, values are never converted."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, str_strip_whitespace=True)


class Answer(Item):
    """The answer to one question about a screen or one of its elements."""

    question: StrictInt
    """Number of the question in the prompt."""
    answer: Words


class Proposal(Item):
    """An action and why."""

    reason: Words
    action: dict[str, Any] | str
    """As the space writes it: an object (JSON syntax) or a call in text."""


class Instruction(Proposal):
    """Something a user could ask for on this screen, and the one step that it takes."""

    instruction: Words


def number_in(given: Any) -> Any:
    """Return the number of a text that is nothing but one ("0.9"); anything else as it is."""
    return float(given) if isinstance(given, str) and _NUMBER.fullmatch(given.strip()) else given


class Score(Item):
    """A critic's word on one action."""

    id: StrictInt
    """Number of the action in the prompt."""
    score: Annotated[float, Field(ge=0, le=1, strict=True), BeforeValidator(number_in)]
    reason: str = ""


ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Generic[ItemT]):
    """What a reply held."""

    good: tuple[ItemT, ...]
    refused: Counter[str] = field(default_factory=Counter)
    """Items or whole replies that did not fit, by cause."""


def spoken(text: str) -> str:
    """What a reply says behind the thoughts that it begins with (`<think>`); nothing where they never end."""
    said = text.rpartition("</think>")[2]
    return "" if said.lstrip().startswith("<think>") else said


def read_items(text: str, kind: type[ItemT]) -> Items[ItemT]:
    """Read all items of one kind from a reply; never raises.

    Causes: the reply is empty, too long, not JSON, or JSON without an item; an item does not fit the schema, once for
    each object that is not an item of this kind. What a model thinks aloud first is left unread, see `spoken`.
    """
    text = spoken(text)
    if not text.strip():
        return Items(good=(), refused=Counter({"the reply is empty": 1}))
    if len(text) > _LONGEST:
        return Items(good=(), refused=Counter({"the reply is too long": 1}))
    good: list[ItemT] = []
    refused: Counter[str] = Counter()
    values = list(_values(text))
    found = [item for value in values for item in _objects(value, kind)]
    for item in found:
        try:
            good.append(kind.model_validate(item))
        except ValidationError:
            refused[UNFIT] += 1
    if not found:
        refused[NO_ITEM if values else "the reply is not JSON"] += 1
    return Items(good=tuple(good), refused=refused)


class Twice(tuple[Any, Any]):
    """What one key of an object was given, where that differs."""


def read_objects(text: str) -> list[dict[str, Any]]:
    """All JSON objects of a reply, those of its lists, and those right inside of them; never raises."""
    found = [
        one
        for value in _values(spoken(text)[:_LONGEST])
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, dict)
    ]
    return [*found, *(inner for value in found for inner in value.values() if isinstance(inner, dict))]


def _values(text: str) -> Iterator[Any]:
    """All JSON values that begin with a brace or bracket, first to last; those inside of one that is broken, too."""
    decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object)
    position, failures = 0, 0
    while failures < _ATTEMPTS and (opening := _OPENING.search(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            position = opening.start() + 1
            failures += 1
        else:
            yield value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; what is said twice and differently under one key is neither score nor reason."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        made[key] = Twice((made[key], value)) if key in made and made[key] != value else value
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _objects(value: Any, kind: type[Item]) -> Iterator[dict[str, Any]]:
    """The objects that are items: those of a list, of the one list that an object wraps, or the object itself.

    Beside the list the object may hold other things, an analysis for example, as a list, too.
    """
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
    elif isinstance(value, dict):
        lists = [inner for inner in value.values() if isinstance(inner, list) and _holds_objects(inner)]
        if len(lists) > 1:
            lists = [inner for inner in lists if any(isinstance(item, dict) and _fits(item, kind) for item in inner)]
        if len(value) == 1 and [] in value.values():
            return
        if len(lists) == 1 and not _fits(value, kind):
            yield from _objects(lists[0], kind)
        elif value:
            yield value


def _fits(value: dict[str, Any], kind: type[Item]) -> bool:
    try:
        kind.model_validate(value)
    except ValidationError:
        return False
    return True


def _holds_objects(values: list[Any]) -> bool:
    return any(isinstance(item, dict) for item in values)
