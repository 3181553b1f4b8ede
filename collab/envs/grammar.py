"""A grammar of actions, and everything that follows from it.

A space is data: a tuple of `ActionSpec`. Parsing, formatting, the canonical form, the words for the history and the
list of actions in the prompt are all derived from it, so they cannot disagree. An environment from outside may bring
a space of its own; the built-in ones are in `collab.envs.actions`.

Canonical form (what votes are counted on): a point becomes the innermost element that contains it, unless that
element is a surface (canvas, slider) or there is none; normalised points become pixels; fields are normalised as
their spec says. Environments execute the canonical form, so equal canonical forms from equal states lead to equal
states.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from collab.envs.syntax import Fields, Reject, read_call, read_json, short, spell, write_call, write_json
from collab.envs.targets import locate, target_words
from collab.types import Action, ElementTarget, Observation, ParseFailure, Point, Scalar, Target

_KIND_WORDS = {"text": "text", "integer": "a whole number", "boolean": "true or false"}

_LONGEST_NUMBER = 100
"""Characters of a number that may stand for a text."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: a reply can hold one, but it cannot be stored, sent or typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """One argument of an action."""

    name: str
    kind: Literal["text", "integer", "boolean"] = "text"
    choices: tuple[str, ...] = ()
    """Allowed words; empty when any text is."""
    default: Scalar = None
    """Value when left out; a field without `optional` must be given."""
    optional: bool = False
    normalise: Literal["exact", "strip", "casefold"] = "exact"
    """How equal meanings are made equal in the canonical form."""
    example: str = ""
    """What the prompt shows in its place."""

    def read(self, value: Any, where: str) -> Scalar:
        """Check one value from outside; rejects what does not fit."""
        allowed = " or ".join(self.choices) or _KIND_WORDS[self.kind]
        if self.kind == "integer":
            number = _integer(value)
            if number is not None:
                return number
        elif self.kind == "boolean":
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.strip().lower() in ("true", "false"):
                return value.strip().lower() == "true"
        elif isinstance(value, str):
            if not self.choices and not _SURROGATE.search(value):
                return value
            if value.strip().lower() in self.choices:
                return value.strip().lower()
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and not self.choices:
            spelling = spell(value)
            if len(spelling) <= _LONGEST_NUMBER and spelling not in ("nan", "inf", "-inf"):
                return spelling
        raise Reject("bad_field", f"{where}: {self.name} is {short(value)}, allowed: {allowed}")

    def canonical(self, value: Scalar) -> Scalar:
        """The value with irrelevant differences removed."""
        if not isinstance(value, str) or self.normalise == "exact":
            return value
        return value.strip() if self.normalise == "strip" else value.strip().casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """One kind of action."""

    name: str
    doc: str
    """What it does, for the prompt."""
    phrase: str
    """How the history tells it; {target} and field names in braces are filled in."""
    target: Literal["none", "optional", "required"] = "none"
    preposition: str = "in"
    """Joins an optional target to the phrase."""
    fields: tuple[FieldSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpace:
    """A grammar of actions."""

    name: str
    syntax: Literal["json", "call"]
    index_field: str
    """Argument that names an element: "index" (mobile), "id" (web)."""
    points: bool
    """Whether a target may be a point."""
    specs: tuple[ActionSpec, ...]

    def spec(self, type: str) -> ActionSpec:
        """The spec of an action type; KeyError when there is none."""
        for spec in self.specs:
            if spec.name == type:
                return spec
        raise KeyError(type)

    @property
    def types(self) -> tuple[str, ...]:
        """All action types, in grammar order."""
        return tuple(spec.name for spec in self.specs)

    # ------------------------------------------------------------------------------------------------- building

    def make(self, type: str, **fields: Any) -> Action:
        """Build a checked action: `MOBILE.make("click", index=7)`, `WEB.make("select", id=3, option="Red")`.

        Raises:
            ValueError: the grammar has no such action, or a field does not fit.
        """
        built = self._build({"type": type, **fields})
        if isinstance(built, ParseFailure):
            raise ValueError(f"{self.name}.{type}: {built.detail}")
        return built

    def parse(self, text: str) -> Action | ParseFailure:
        """Read one action; never raises. Null fields count as left out; unknown fields are refused."""
        try:
            if self.syntax == "json":
                fields = read_json(text)
            else:
                fields = read_call(text, {spec.name: self._arguments(spec) for spec in self.specs})
        except Reject as reject:
            return reject.failure
        return self._build(fields)

    def _build(self, fields: Fields) -> Action | ParseFailure:
        try:
            return self._checked(fields)
        except Reject as reject:
            return reject.failure

    def _checked(self, fields: Fields) -> Action:
        given = {key: value for key, value in fields.items() if value is not None}
        type = given.pop("type", None)
        if not isinstance(type, str) or type not in self.types:
            raise Reject("unknown_type", f"action {short(type)}, allowed: {', '.join(self.types)}")
        spec = self.spec(type)
        target = self._target(spec, given)
        arguments: list[tuple[str, Scalar]] = []
        for field in spec.fields:
            if field.name not in given:
                if not field.optional:
                    raise Reject("missing_field", f"{type} needs {field.name}")
                continue
            value = field.read(given.pop(field.name), type)
            if not (field.optional and value == field.default):
                arguments.append((field.name, value))
        if given:
            allowed = ", ".join(self._arguments(spec)) or "none"
            raise Reject("bad_field", f"{type} has no field {short(min(given, key=str))}, allowed: {allowed}")
        return Action(space=self.name, type=type, target=target, arguments=tuple(arguments))

    def _arguments(self, spec: ActionSpec) -> list[str]:
        """Names of what an action takes, in the order of the grammar; points apart."""
        return ([] if spec.target == "none" else [self.index_field]) + [field.name for field in spec.fields]

    def _target(self, spec: ActionSpec, given: Fields) -> Target | None:
        index = given.pop(self.index_field, None)
        point = {name: given.pop(name) for name in ("x", "y", "normalised") if self.points and name in given}
        if index is None and not point:
            if spec.target == "required":
                raise Reject("missing_field", f"{spec.name} needs {self.index_field}" + (" or x and y" * self.points))
            return None
        if spec.target == "none":
            raise Reject("bad_field", f"{spec.name} takes no target")
        if index is None:
            return _point(spec.name, **point)
        number = _integer(index)
        if number is None or number < 0 or point:
            raise Reject("bad_field", f"{spec.name}: {self.index_field} is {short(index)}, allowed: one index ≥ 0")
        return ElementTarget(index=number)

    # ----------------------------------------------------------------------------------------------- writing

    def format(self, action: Action) -> str:
        """Write an action so that `parse` gives it back."""
        fields: Fields = {}
        if isinstance(action.target, ElementTarget):
            fields[self.index_field] = action.target.index
        elif isinstance(action.target, Point):
            fields |= {"x": action.target.x, "y": action.target.y}
            if action.target.space == "normalised":
                fields["normalised"] = True
        fields |= dict(action.arguments)
        return write_json(action.type, fields) if self.syntax == "json" else write_call(action.type, fields)

    def describe(self, action: Action, observation: Observation | None = None) -> str:
        """Say an action in one line of words, its element by role and label instead of its index.

        Without an observation, or for an index that is not on it, the element is told by its index.
        """
        spec = self.spec(action.type)
        target = target_words(action.target, observation)
        words: dict[str, str] = {"target": target}
        for field in spec.fields:
            value = action.get(field.name, field.default)
            free = field.kind == "text" and not field.choices
            words[field.name] = json.dumps(value, ensure_ascii=False) if free else str(value)
        phrase = spec.phrase.format(**words)
        return f"{phrase} {spec.preposition} {target}" if target and "{target}" not in spec.phrase else phrase

    def listing(self) -> str:
        """The action list of the prompt: one line per action, form first, then what it does."""
        return "\n".join(f"{self._form(spec)} - {spec.doc}" for spec in self.specs)

    def _form(self, spec: ActionSpec) -> str:
        fields: dict[str, str] = {}
        if spec.target != "none":
            fields[self.index_field] = "N"
        for field in spec.fields:
            if field.optional:
                continue
            example = field.example or "|".join(field.choices) or "…"
            fields[field.name] = example if field.kind != "text" else json.dumps(example, ensure_ascii=False)
        if self.syntax == "json":
            inner = "".join(f', "{name}": {value}' for name, value in fields.items())
            return f'{{"action_type": "{spec.name}"{inner}}}'
        return f"{spec.name}({', '.join(f'{name}={value}' for name, value in fields.items())})"

    # --------------------------------------------------------------------------------------------- meaning

    def canonical(self, action: Action, observation: Observation) -> Action:
        """The representative of all actions that mean the same here (see the head of this file)."""
        spec = self.spec(action.type)
        known = {field.name: field for field in spec.fields}
        arguments = tuple((name, known[name].canonical(value)) for name, value in action.arguments)
        target = action.target
        if isinstance(target, Point):
            target = locate(target, observation)
        if target is action.target and arguments == action.arguments:
            return action
        return replace(action, target=target, arguments=arguments)

    def check(self, action: Action, observation: Observation) -> ParseFailure | None:
        """Refuse an index that is not on the screen; None when the action can be tried."""
        if isinstance(action.target, ElementTarget) and action.target.index >= len(observation.elements):
            count = len(observation.elements)
            known = f"0 to {count - 1}" if count else "no elements"
            detail = f"{self.index_field} {action.target.index}, the screen has {known}"
            return ParseFailure(kind="no_such_element", detail=detail)
        return None


def _number(value: object, below: float = 1e9) -> bool:
    """Whether it is a finite number of sensible size; booleans are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < below


def _integer(value: object) -> int | None:
    """A whole number given as int, integral float or digits; None for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    if _number(value) and value == int(value):  # type: ignore[call-overload]
        return int(value)  # type: ignore[call-overload, no-any-return]
    return None


def _point(where: str, x: Any = None, y: Any = None, normalised: Any = False) -> Point:
    if not _number(x) or not _number(y):
        raise Reject("bad_field", f"{where}: point ({short(x)}, {short(y)}), allowed: two numbers")
    x, y = (int(part) if isinstance(part, int) else float(part) for part in (x, y))  # without their spelling
    if not FieldSpec(name="normalised", kind="boolean").read(normalised, where):
        return Point(x=x, y=y)
    if not (0 <= x <= 1 and 0 <= y <= 1):
        raise Reject("bad_field", f"{where}: normalised point ({x}, {y}), allowed: fractions in [0, 1]")
    return Point(x=x, y=y, space="normalised")
