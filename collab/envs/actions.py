"""The two action spaces, and everything that follows from their grammar.

A space is data: a tuple of `ActionSpec`. Parsing, formatting, the canonical form, the words for the history and the
list of actions in the prompt are all derived from it, so they cannot disagree. An environment from outside may bring
a space of its own.

    MOBILE   14 actions in AndroidWorld's JSON form   {"action_type": "click", "index": 7}
    WEB      10 actions in AutoWebGLM's call form     click(id=7)

Canonical form (what votes are counted on): a point becomes the innermost element that contains it, unless that
element is a surface (canvas, slider) or there is none; normalised points become pixels; fields are normalised as
their spec says. Environments execute the canonical form, so equal canonical forms from equal states lead to equal
states.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

from collab.envs.text import flat
from collab.types import Action, Element, ElementTarget, Observation, ParseFailure, Point, Scalar, Target

Fields = dict[str, Any]

_KIND_WORDS = {"text": "text", "integer": "a whole number", "boolean": "true or false"}

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: a reply can hold one, but it cannot be stored, sent or typed."""


class _Reject(Exception):
    """Carries a ParseFailure out of nested checks; never leaves this module."""

    def __init__(self, kind: Any, detail: str) -> None:
        super().__init__(detail)
        self.failure = ParseFailure(kind=kind, detail=detail)


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
        elif _number(value, below=1e18) and not self.choices:
            return str(value)
        raise _Reject("bad_field", f"{where}: {self.name} is {_short(value)}, allowed: {allowed}")

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
            fields = _read_json(text) if self.syntax == "json" else _read_call(text, self)
        except _Reject as reject:
            return reject.failure
        return self._build(fields)

    def _build(self, fields: Fields) -> Action | ParseFailure:
        try:
            return self._checked(fields)
        except _Reject as reject:
            return reject.failure

    def _checked(self, fields: Fields) -> Action:
        given = {key: value for key, value in fields.items() if value is not None}
        type = given.pop("type", None)
        if not isinstance(type, str) or type not in self.types:
            raise _Reject("unknown_type", f"action {_short(type)}, allowed: {', '.join(self.types)}")
        spec = self.spec(type)
        target = self._target(spec, given)
        arguments: list[tuple[str, Scalar]] = []
        for field in spec.fields:
            if field.name not in given:
                if not field.optional:
                    raise _Reject("missing_field", f"{type} needs {field.name}")
                continue
            value = field.read(given.pop(field.name), type)
            if not (field.optional and value == field.default):
                arguments.append((field.name, value))
        if given:
            names = ([] if spec.target == "none" else [self.index_field]) + [field.name for field in spec.fields]
            allowed = ", ".join(names) or "none"
            raise _Reject("bad_field", f"{type} has no field {_short(min(given, key=str))}, allowed: {allowed}")
        return Action(space=self.name, type=type, target=target, arguments=tuple(arguments))

    def _target(self, spec: ActionSpec, given: Fields) -> Target | None:
        index = given.pop(self.index_field, None)
        point = {name: given.pop(name) for name in ("x", "y", "normalised") if self.points and name in given}
        if index is None and not point:
            if spec.target == "required":
                raise _Reject("missing_field", f"{spec.name} needs {self.index_field}" + (" or x and y" * self.points))
            return None
        if spec.target == "none":
            raise _Reject("bad_field", f"{spec.name} takes no target")
        if index is None:
            return _point(spec.name, **point)
        number = _integer(index)
        if number is None or number < 0 or point:
            raise _Reject("bad_field", f"{spec.name}: {self.index_field} is {_short(index)}, allowed: one index ≥ 0")
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
        if self.syntax == "json":
            return json.dumps({"action_type": action.type, **fields}, ensure_ascii=False)
        return f"{action.type}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def describe(self, action: Action, observation: Observation | None = None) -> str:
        """Say an action in one line of words, its element by role and label instead of its index.

        Without an observation, or for an index that is not on it, the element is told by its index.
        """
        spec = self.spec(action.type)
        target = _target_words(action.target, observation)
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
        """The representative of all actions that mean the same here (see the module's page)."""
        spec = self.spec(action.type)
        known = {field.name: field for field in spec.fields}
        arguments = tuple((name, known[name].canonical(value)) for name, value in action.arguments)
        target = action.target
        if isinstance(target, Point):
            target = _locate(target, observation)
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


# ------------------------------------------------------------------------------------------------------ helpers


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits or brackets than Python prints
        return "something huge"
    return text if len(text) <= 60 else text[:57] + "…"


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
        raise _Reject("bad_field", f"{where}: point ({_short(x)}, {_short(y)}), allowed: two numbers")
    if not FieldSpec(name="normalised", kind="boolean").read(normalised, where):
        return Point(x=x, y=y)
    if not (0 <= x <= 1 and 0 <= y <= 1):
        raise _Reject("bad_field", f"{where}: normalised point ({x}, {y}), allowed: fractions in [0, 1]")
    return Point(x=x, y=y, space="normalised")


def _read_json(text: str) -> Fields:
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise _Reject("malformed", f"not JSON: {_short(text)} ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise _Reject("malformed", f"not a JSON object: {_short(text)}")
    if "type" in value:
        raise _Reject("bad_field", "no field 'type', allowed: action_type")
    value["type"] = value.pop("action_type", None)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Fields:
    """A JSON object; one that says a thing twice is ambiguous."""
    fields: Fields = {}
    for name, value in pairs:
        if name in fields:
            raise _Reject("bad_field", f"{_short(name)} given twice")
        fields[name] = value
    return fields


_JSON = json.JSONDecoder(object_pairs_hook=_unique)


def _read_call(text: str, space: ActionSpace) -> Fields:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "C:\\dir" has an unknown escape, and that is no concern of the user's
            call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Reject("malformed", f"not a call: {_short(text)} ({type(error).__name__})") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise _Reject("malformed", f"not a call: {_short(text)}")
    name = call.func.id
    if name not in space.types:
        raise _Reject("unknown_type", f"action {_short(name)}, allowed: {', '.join(space.types)}")
    spec = space.spec(name)
    order = ([space.index_field] if spec.target != "none" else []) + [field.name for field in spec.fields]
    if len(call.args) > len(order):
        raise _Reject("bad_field", f"{name} takes {len(order)} arguments, got {len(call.args)}")
    fields: Fields = {"type": name}
    pairs = [*zip(order, call.args, strict=False), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    for key, node in pairs:
        if key is None or key in fields:
            raise _Reject("bad_field", f"{name}: argument {_short(key)} given twice or unpacked")
        fields[key] = _literal(node, name)
    return fields


def _literal(node: ast.expr, where: str) -> Any:
    if isinstance(node, ast.Name) and node.id.lower() in ("true", "false", "null", "none"):
        return {"true": True, "false": False}.get(node.id.lower())
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise _Reject("bad_field", f"{where}: an argument is not a plain value") from None


def _locate(point: Point, observation: Observation) -> Target:
    x, y = point.x, point.y
    if point.space == "normalised":
        x, y = min(x * observation.width, observation.width - 1), min(y * observation.height, observation.height - 1)
    x, y = math.floor(x), math.floor(y)
    element = element_at(observation, x, y)
    if element is None or "surface" in element.flags:
        return Point(x=x, y=y)
    return ElementTarget(index=element.index)


def element_at(observation: Observation, x: float, y: float) -> Element | None:
    """The innermost element that contains a pixel: smallest box, of equal ones the last; None outside all."""
    inside = [element for element in observation.elements if element.box is not None and element.box.contains(x, y)]
    return min(inside, key=lambda element: (element.box.area if element.box else 0, -element.index), default=None)


def _target_words(target: Target | None, observation: Observation | None) -> str:
    if target is None:
        return ""
    if isinstance(target, Point):
        unit = "" if target.space == "pixel" else " of the screen"
        return f"({target.x:g}, {target.y:g}){unit}"
    if observation is None or target.index >= len(observation.elements):
        return f"element {target.index}"
    element = observation.elements[target.index]
    label = flat(element.label)
    return f'{element.role} "{label}"' if label else f"{element.role} without a label"


# ----------------------------------------------------------------------------------------------------- the spaces

_DIRECTIONS = ("up", "down", "left", "right")

MOBILE = ActionSpace(
    name="mobile",
    syntax="json",
    index_field="index",
    points=True,
    specs=(
        ActionSpec(name="click", target="required", phrase="tap {target}", doc="tap an element"),
        ActionSpec(name="double_tap", target="required", phrase="double-tap {target}", doc="tap an element twice"),
        ActionSpec(
            name="long_press", target="required", phrase="long-press {target}", doc="hold an element for a second"
        ),
        ActionSpec(
            name="scroll",
            target="optional",
            phrase="scroll {direction}",
            fields=(FieldSpec(name="direction", choices=_DIRECTIONS),),
            doc="show what lies in that direction; without an index the whole screen scrolls",
        ),
        ActionSpec(
            name="swipe",
            target="optional",
            phrase="swipe {direction}",
            preposition="on",
            fields=(FieldSpec(name="direction", choices=_DIRECTIONS),),
            doc="move the finger in that direction",
        ),
        ActionSpec(
            name="input_text",
            target="optional",
            phrase="type {text}",
            preposition="into",
            fields=(
                FieldSpec(name="text"),
                FieldSpec(name="clear_text", kind="boolean", default=False, optional=True),
            ),
            doc='tap a field, type the text and press Enter; "clear_text": true empties the field first',
        ),
        ActionSpec(name="navigate_home", phrase="go to the home screen", doc="go to the home screen"),
        ActionSpec(name="navigate_back", phrase="go back", doc="go back one screen"),
        ActionSpec(name="keyboard_enter", phrase="press Enter", doc="press the Enter key"),
        ActionSpec(
            name="open_app",
            phrase="open the app {app_name}",
            fields=(FieldSpec(name="app_name", normalise="casefold"),),
            doc="start an app by its name",
        ),
        ActionSpec(
            name="status",
            phrase="declare the task {goal_status}",
            fields=(FieldSpec(name="goal_status", choices=("complete", "infeasible")),),
            doc="end the episode: the task is done, or cannot be done",
        ),
        ActionSpec(name="wait", phrase="wait", doc="let one second pass"),
        ActionSpec(
            name="answer",
            phrase="answer {text}",
            fields=(FieldSpec(name="text", normalise="strip"),),
            doc="give the answer to a question",
        ),
        ActionSpec(name="unknown", phrase="do nothing", doc="no action fits"),
    ),
)
"""A phone: AndroidWorld's fourteen actions. `scroll` moves the content's view, `swipe` the finger."""

WEB = ActionSpace(
    name="web",
    syntax="call",
    index_field="id",
    points=False,
    specs=(
        ActionSpec(name="click", target="required", phrase="click {target}", doc="click an element"),
        ActionSpec(name="hover", target="required", phrase="hover over {target}", doc="move the mouse over an element"),
        ActionSpec(
            name="select",
            target="required",
            phrase="select {option} in {target}",
            fields=(FieldSpec(name="option", normalise="strip"),),
            doc="choose an option of a list",
        ),
        ActionSpec(
            name="type_string",
            target="required",
            phrase="type {content} into {target}",
            fields=(
                FieldSpec(name="content"),
                FieldSpec(name="press_enter", kind="boolean", default=False, optional=True),
            ),
            doc="replace what a field holds by the text; press_enter=True presses Enter afterwards",
        ),
        ActionSpec(
            name="scroll_page",
            phrase="scroll {direction}",
            fields=(FieldSpec(name="direction", choices=("up", "down")),),
            doc="scroll the page by one screen",
        ),
        ActionSpec(
            name="go",
            phrase="go {direction}",
            fields=(FieldSpec(name="direction", choices=("forward", "backward")),),
            doc="move in the tab's history",
        ),
        ActionSpec(
            name="jump_to",
            phrase="open the address {url}",
            fields=(
                FieldSpec(name="url", normalise="strip"),
                FieldSpec(name="new_tab", kind="boolean", default=False, optional=True),
            ),
            doc="open an address; new_tab=True opens it in a new tab",
        ),
        ActionSpec(
            name="switch_tab",
            phrase="switch to tab {i}",
            fields=(FieldSpec(name="i", kind="integer", example="0"),),
            doc="show another tab, counted from 0",
        ),
        ActionSpec(
            name="user_input",
            phrase="ask the user {message}",
            fields=(FieldSpec(name="message", normalise="strip"),),
            doc="hand over to the user, for a password or a confirmation",
        ),
        ActionSpec(
            name="finish",
            phrase="finish",
            fields=(FieldSpec(name="answer", normalise="strip", optional=True),),
            doc='end the episode; finish(answer="…") gives an answer',
        ),
    ),
)
"""A web page: AutoWebGLM's ten actions."""

SPACES = {space.name: space for space in (MOBILE, WEB)}
"""The built-in spaces by name."""
