"""A grammar of actions, and everything that follows from it.

A space is data: a tuple of `ActionSpec`. Parsing, formatting, the canonical form, the words for the history and the
list of actions in the prompt are all derived from it, so they cannot disagree. An environment from outside may bring
a space of its own; the built-in ones are in `collab.envs.grammar`.

Canonical form (what votes are counted on): a point becomes the innermost element that contains it, unless that
element is a surface (canvas, slider) or there is none; normalised points become pixels; fields are normalised as
their spec says. An end of a drag becomes the element only in the inner half of its box, since its rim means something
else (a corner resizes); texts and fields are selected from point to point and keep their points, and so does a drag
within one element. A drag may begin where the mouse hovers, so that the point of a hover is read like its end.
Environments execute the canonical form, so equal canonical forms from equal states lead to equal states.

The two action spaces of this project are data, too:

MOBILE   AndroidWorld's 14 actions in its JSON form    {"action_type": "click", "index": 7}
WEB      AutoWebGLM's 10 actions in its call form      click(id=7)

Each also understands actions that its prompt does not list (`ActionSpec.listed`): pointer and keyboard, as models
use them that were trained to operate screens.

"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from collab.envs.syntax import (
    _LONGEST_NUMBER,
    Fields,
    Reject,
    order_keys,
    read_call,
    read_json,
    shorten_value,
    spell,
    write_call,
    write_json,
)
from collab.envs.text import describe_target, locate, locate_middle
from collab.types import Action, ElementTarget, Observation, ParseFailure, Point, Scalar, Target

_KIND_WORDS = {"text": "text", "integer": "a whole number", "boolean": "true or false"}


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
    normalise: Literal["exact", "strip", "casefold", "keys"] = "exact"
    """How equal meanings are made equal in the canonical form."""
    example: str = ""
    """What the prompt shows in its place."""

    def read(self, value: Any, where: str) -> Scalar:
        """Check one value from outside; rejects what does not fit."""
        allowed = " or ".join(self.choices) or _KIND_WORDS[self.kind]
        # Each kind is read as models write it, e.g. "True" or 3.0, and kept in one form.
        if self.kind == "integer":
            number = _read_integer(value)
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
            # A number in place of a text: "type 42" is meant as the text.
            spelling = spell(value)
            if len(spelling) <= _LONGEST_NUMBER and spelling not in ("nan", "inf", "-inf"):
                return spelling
        raise Reject("bad_field", f"{where}: {self.name} is {shorten_value(value)}, allowed: {allowed}")

    def canonical(self, value: Scalar) -> Scalar:
        """Return the value with irrelevant differences removed."""
        if not isinstance(value, str) or self.normalise == "exact":
            return value
        if self.normalise == "keys":
            return order_keys(value)
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
    has_end: bool = False
    """Whether it leads to a second target, given as to_index (or to_id), or as to_x and to_y."""
    is_start: bool = False
    """Whether a drag may begin where it leads: its point means an element as an end of a drag does."""
    listed: bool = True
    """Whether the prompt lists it; one that is not listed is understood all the same."""


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
        """Return the spec of an action type; KeyError when there is none."""
        for spec in self.specs:
            if spec.name == type:
                return spec
        raise KeyError(type)

    @property
    def types(self) -> tuple[str, ...]:
        """All action types, in grammar order."""
        return tuple(spec.name for spec in self.specs)

    @property
    def listed_specs(self) -> tuple[ActionSpec, ...]:
        """The actions that the prompt lists."""
        return tuple(spec for spec in self.specs if spec.listed)

    # ------------------------------------------------------------------------------------------------- building

    def make(self, type: str, **fields: Any) -> Action:
        """Build a checked action: `MOBILE.make("click", index=7)`, `WEB.make("select", id=3, option="Red")`.

        Raises:
            ValueError: the grammar has no such action, or a field does not fit.
        """
        built = self.build({"type": type, **fields})
        if isinstance(built, ParseFailure):
            raise ValueError(f"{self.name}.{type}: {built.detail}")
        return built

    def parse(self, text: str) -> Action | ParseFailure:
        """Read one action; never raises. Null fields count as left out; unknown fields are refused."""
        try:
            if self.syntax == "json":
                fields = read_json(text)
            else:
                # Keys to hold are given by name alone: click(120, 45) is a slip for a point.
                orders = {spec.name: self._list_arguments(spec, named=False) for spec in self.specs}
                fields = read_call(text, orders)
        except Reject as reject:
            return reject.failure
        return self.build(fields)

    def build(self, fields: Fields) -> Action | ParseFailure:
        """Build an action from its type and fields, or say why they do not fit; never raises."""
        try:
            return self._build_action(fields)
        except Reject as reject:
            return reject.failure

    def _build_action(self, fields: Fields) -> Action:
        # null means "not given", as JSON models write it.
        given = {key: value for key, value in fields.items() if value is not None}
        type = given.pop("type", None)
        if not isinstance(type, str) or type not in self.types:
            raise Reject("unknown_type", f"action {shorten_value(type)}, allowed: {', '.join(self.types)}")
        spec = self.spec(type)
        target = self._read_target(spec, given)
        arguments = self._list_end(self._read_target(spec, given, _TO)) if spec.has_end else []
        for field in spec.fields:
            if field.name not in given:
                if not field.optional:
                    raise Reject("missing_field", f"{type} needs {field.name}")
                continue
            value = field.read(given.pop(field.name), type)
            # Defaults are left out, so that equal actions compare equal.
            if not (field.optional and value == field.default):
                arguments.append((field.name, value))
        # A leftover field is a slip that could change the meaning, so it is no silent loss.
        if given:
            allowed = ", ".join(self._list_arguments(spec)) or "none"
            raise Reject("bad_field", f"{type} has no field {shorten_value(min(given, key=str))}, allowed: {allowed}")
        return Action(space=self.name, type=type, target=target, arguments=tuple(arguments))

    def _list_arguments(self, spec: ActionSpec, *, named: bool = True) -> list[str]:
        """Return the names of what an action takes, in the order of the grammar; points apart.

        Args:
            named: whether to include what is given by name alone.
        """
        targets = [] if spec.target == "none" else [self.index_field]
        targets += [_TO + self.index_field] * spec.has_end
        return targets + [field.name for field in spec.fields if named or field is not _HOLD]

    def _read_target(self, spec: ActionSpec, given: Fields, prefix: str = "") -> Target | None:
        """Take a target out of the fields, so that what is left is the arguments; `prefix` is that of its fields."""
        index_field = prefix + self.index_field
        index = given.pop(index_field, None)
        # Both ends of a drag are pixels: fractions of one of them alone would not be seen.
        names = ("x", "y") if spec.has_end else ("x", "y", "normalised")
        point = {name: given.pop(prefix + name) for name in names if self.points and prefix + name in given}
        if index is None and not point:
            if spec.target == "required" or prefix:
                points = f" or {prefix}x and {prefix}y" * self.points
                raise Reject("missing_field", f"{spec.name} needs {index_field}{points}")
            return None
        if spec.target == "none":
            raise Reject("bad_field", f"{spec.name} takes no target")
        if index is None:
            return _point(spec.name, **point)
        # One target: an index and a point may contradict each other.
        number = _read_integer(index)
        if number is None or number < 0 or point:
            raise Reject("bad_field", f"{spec.name}: {index_field} is {shorten_value(index)}, allowed: one index ≥ 0")
        return ElementTarget(index=number)

    def _list_end(self, end: Target | None) -> list[tuple[str, Scalar]]:
        """Return the arguments that name the second target."""
        if isinstance(end, ElementTarget):
            return [(_TO + self.index_field, end.index)]
        return [] if end is None else [(f"{_TO}x", end.x), (f"{_TO}y", end.y)]

    def find_end(self, action: Action) -> Target | None:
        """Return the second target of an action; None when it has none."""
        index, x, y = (action.get(_TO + name) for name in (self.index_field, "x", "y"))
        if isinstance(index, int):
            return ElementTarget(index=index)
        return Point(x=x, y=y) if isinstance(x, int | float) and isinstance(y, int | float) else None

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
        """Describe an action in one line, its element by role and label instead of its index.

        Without an observation, or for an index that is not on it, the element is named by its index.
        """
        spec = self.spec(action.type)
        target = describe_target(action.target, observation)
        words: dict[str, str] = {"target": target, "end": describe_target(self.find_end(action), observation)}
        for field in spec.fields:
            value = action.get(field.name, field.default)
            free = field.kind == "text" and not field.choices
            words[field.name] = json.dumps(value, ensure_ascii=False) if free else str(value)
        phrase = spec.phrase.format(**words)
        phrase += f" {spec.preposition} {target}" if target and "{target}" not in spec.phrase else ""
        held = action.get(_HOLD.name)
        return phrase if held is None else f"{phrase} with {held} held"

    def listing(self) -> str:
        """Return the action list of the prompt: one line per listed action, form first, then what it does."""
        return "\n".join(f"{self._format_form(spec)} - {spec.doc}" for spec in self.listed_specs)

    def _format_form(self, spec: ActionSpec) -> str:
        fields: dict[str, str] = {}
        if spec.target != "none":
            fields[self.index_field] = "N"
        # The form shows what is needed; optional fields are explained apart.
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
        """Return the representative of all actions that mean the same here (see the head of this file)."""
        spec = self.spec(action.type)
        if spec.has_end:
            return self._canonical_drag(action, observation)
        known = {field.name: field for field in spec.fields}
        arguments = tuple((name, known[name].canonical(value)) for name, value in action.arguments)
        target = action.target
        if isinstance(target, Point):
            is_exact = spec.is_start and target.space == "pixel"
            target = (locate_middle if is_exact else locate)(target, observation)
        if target is action.target and arguments == action.arguments:
            return action
        return replace(action, target=target, arguments=arguments)

    def _canonical_drag(self, action: Action, observation: Observation) -> Action:
        """Return a drag whose ends are elements where their middles were meant, whole pixels elsewhere."""
        ends = [one for one in (action.target, self.find_end(action)) if one is not None]
        named = [locate_middle(one, observation) if isinstance(one, Point) else one for one in ends]
        # Within one element only the points say where to.
        if len(set(named)) < len(named):
            named = [Point(x=math.floor(one.x), y=math.floor(one.y)) if isinstance(one, Point) else one for one in ends]
        known = {field.name: field for field in self.spec(action.type).fields}
        others = [(name, known[name].canonical(value)) for name, value in action.arguments if name in known]
        start = None if action.target is None else named[0]
        return replace(action, target=start, arguments=(*self._list_end(named[-1]), *others))

    def check(self, action: Action, observation: Observation) -> ParseFailure | None:
        """Refuse a target that is not on the screen; None when the action can be tried."""
        for target, prefix in ((action.target, ""), (self.find_end(action), _TO)):
            if isinstance(target, ElementTarget) and target.index >= len(observation.elements):
                count = len(observation.elements)
                known = f"0 to {count - 1}" if count else "no elements"
                detail = f"{prefix}{self.index_field} {target.index}, the screen has {known}"
                return ParseFailure(kind="no_such_element", detail=detail)
            if isinstance(target, Point) and target.space == "pixel":
                if not (0 <= target.x < observation.width and 0 <= target.y < observation.height):
                    size = f"{observation.width} × {observation.height}"
                    detail = f"point ({target.x:g}, {target.y:g}) is outside the screen of {size} pixels"
                    return ParseFailure(kind="outside", detail=detail)
        return None


def _is_number(value: object) -> bool:
    """Return whether it is a finite number of sensible size; booleans are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e9


def _read_integer(value: object) -> int | None:
    """Return a whole number given as int, integral float or digits; None for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    if _is_number(value) and value == int(value):  # type: ignore[call-overload]
        return int(value)  # type: ignore[call-overload, no-any-return]
    return None


def _point(where: str, x: Any = None, y: Any = None, normalised: Any = False) -> Point:
    if not _is_number(x) or not _is_number(y):
        raise Reject("bad_field", f"{where}: point ({shorten_value(x)}, {shorten_value(y)}), allowed: two numbers")
    x, y = (int(part) if isinstance(part, int) else float(part) for part in (x, y))  # without their spelling
    if not FieldSpec(name="normalised", kind="boolean").read(normalised, where):
        return Point(x=x, y=y)
    if not (0 <= x <= 1 and 0 <= y <= 1):
        raise Reject("bad_field", f"{where}: normalised point ({x}, {y}), allowed: fractions in [0, 1]")
    return Point(x=x, y=y, space="normalised")


_TO = "to_"
"""Begins the fields of a second target."""
_DIRECTIONS = ("up", "down", "left", "right")
_KEYS = FieldSpec(name="keys", normalise="keys", example="ctrl+a")
_HOLD = FieldSpec(name="hold", normalise="keys", optional=True, example="ctrl")
"""Keys that are held while the pointer acts."""

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
                FieldSpec(name="press_enter", kind="boolean", default=True, optional=True),
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
            fields=(
                FieldSpec(name="goal_status", choices=("complete", "infeasible")),
                FieldSpec(name="answer", normalise="strip", default="", optional=True),
            ),
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
        ActionSpec(
            name="drag",
            target="required",
            has_end=True,
            phrase="drag {target} to {end}",
            doc="put the finger down at one place and lift it at another",
            listed=False,
        ),
        ActionSpec(
            name="press_keys",
            phrase="press the keys {keys}",
            fields=(_KEYS,),
            doc="press a key, e.g. delete",
            listed=False,
        ),
        ActionSpec(
            name="open_recents", phrase="open the recent apps", doc="show the apps that were used last", listed=False
        ),
        ActionSpec(
            name="ask_user",
            phrase="ask the user {question}",
            fields=(FieldSpec(name="question", normalise="strip"),),
            doc="ask the user something",
            listed=False,
        ),
    ),
)
"""A phone: AndroidWorld's fourteen actions, then those that are understood beside them. `scroll` moves the content's
view, `swipe` the finger."""

WEB = ActionSpace(
    name="web",
    syntax="call",
    index_field="id",
    points=True,
    specs=(
        ActionSpec(name="click", target="required", phrase="click {target}", fields=(_HOLD,), doc="click an element"),
        ActionSpec(
            name="hover",
            target="required",
            phrase="hover over {target}",
            fields=(_HOLD,),
            is_start=True,
            doc="move the mouse over an element",
        ),
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
            fields=(FieldSpec(name="direction", choices=_DIRECTIONS),),
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
        *(
            ActionSpec(
                name=f"{kind}_click",
                target="required",
                phrase=f"{kind}-click {{target}}",
                fields=(_HOLD,),
                doc=f"{kind}-click an element",
                listed=False,
            )
            for kind in ("double", "triple", "right", "middle")
        ),
        ActionSpec(
            name="drag",
            target="optional",
            has_end=True,
            phrase="drag to {end}",
            preposition="from",
            fields=(_HOLD,),
            doc="press the mouse button at one place, or where the mouse is, and release it at another",
            listed=False,
        ),
        ActionSpec(
            name="scroll_at",
            target="required",
            phrase="scroll {direction}",
            fields=(FieldSpec(name="direction", choices=_DIRECTIONS), _HOLD),
            doc="scroll the part of the page that lies there",
            listed=False,
        ),
        ActionSpec(
            name="insert_text",
            phrase="type {content}",
            fields=(
                FieldSpec(name="content"),
                FieldSpec(name="press_enter", kind="boolean", default=False, optional=True),
            ),
            doc="type at the cursor",
            listed=False,
        ),
        ActionSpec(
            name="press_keys",
            phrase="press the keys {keys}",
            fields=(_KEYS,),
            doc="press a key or several together",
            listed=False,
        ),
        ActionSpec(name="wait", phrase="wait", doc="let time pass", listed=False),
    ),
)
"""A web page: AutoWebGLM's ten actions, then those that are understood beside them."""

SPACES = {space.name: space for space in (MOBILE, WEB)}
"""The built-in spaces by name."""
