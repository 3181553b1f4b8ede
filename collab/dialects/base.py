"""A dialect is everything in which one model family speaks about screens, in one object.

    dialect = find_dialect("qwen2.5-vl")
    system = dialect.render_system("mobile", screen=(1080, 2400))      # rules, its own list of actions, reply form
    user = dialect.render_user("Open the clock", steps)                # task and history, in its own words
    picture = dialect.resize.fit(1080, 2400)                           # the size in which the picture is sent
    reply = dialect.read(text)                                         # what the model wrote, as `GuiAction`s
    x, y, clamped = dialect.grid.to_pixel(reply.actions[0].point, picture, (1080, 2400))
    text = dialect.write(reply.actions, reply.reason)                  # `read` gives the same back

What a family decides, and where it stands:

    syntax      surface of an action: a tool call in JSON or XML, a call, a JSON object, a line of fields
    verbs       its words: name and arguments of each action, as a table from which reading, writing and the list in
                the prompt follow, so that they cannot disagree
    grid        unit of its points: 0-1000, 0-999, fractions, or pixels of the picture that was sent
    resize      rule for the picture's size; points in pixels mean this size, so both belong together
    order       picture before the text, or behind it
    history     how a past step is told
    wording     the prompt's texts, written from the documented facts

`GuiAction` is the common vocabulary. It knows no screen: points stay in the dialect's grid, so that reading and
writing are exact. `collab.dialects.ground` turns it into an action of an environment, or says why there is none.

Meanings that families spell alike and mean differently have different kinds here:

    swipe       the finger moves in `direction`, or from `point` to `to`
    scroll      what lies in `direction` comes into sight; the finger moves against it
    type        into the focused field, or the one at `point`; `enter` presses Enter behind it, `clear` empties it first
    done        the task is complete; `text` is the answer or report. `answer` only answers

Several actions in one reply are all read; the first that changes or ends something is executed (`choose`). A move of
the mouse and a drag that begins where the mouse is are one drag. What cannot be read ends the reading: the actions
before it count, unless all of them are looks.
Replies are data: nothing of them is ever evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

from collab.dialects.actions import READERS, Grid, GuiAction, Pair, Resize, Size, read_keys, tidy
from collab.envs.syntax import Reject, shorten_value
from collab.types import ParseFailure

World = Literal["mobile", "web"]
"""Action space of an environment that a dialect may fit."""

IDLE = frozenset({"screenshot", "zoom", "note"})
"""Kinds that change nothing: the screen is looked at anyway."""
KEY_KINDS = ("keys", "hold_keys", "release_keys")
"""Kinds whose text is keys."""
AS_IS = Resize()
LONGEST = 100_000
"""Characters of a reply that are read at all."""

# ------------------------------------------------------------------------------------------------------ surface


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenCall:
    """Name and arguments of one action as they stand in a reply."""

    name: str
    arguments: Mapping[str, Any]
    """By name; those without a name under "0", "1" …"""
    start: int = 0
    """Where it begins in the reply: the reason stands before it."""
    reason: str | None = None
    """The reason where it is a part of its own; None if it is the text before `start`."""


class ActionSyntax(Protocol):
    """Surface of actions in replies."""

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield the actions of a reply, in order.

        Raises:
            Reject: what comes next begins like an action and cannot be read.
        """
        ...

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write a reply."""
        ...

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Format the list of actions for the prompt; `forms` are examples, one per verb."""
        ...


@dataclass(frozen=True, slots=True)
class Verb:
    """One word of a dialect: a row of its table."""

    says: str
    """Name in replies."""
    kind: str
    doc: str = ""
    """What it does, for the prompt; empty for a word that is understood and not taught."""
    takes: Mapping[str, str] = field(default_factory=dict)
    """Field of `GuiAction` → argument; "x,y" names two arguments; "name?" is optional."""
    when: Mapping[str, str | int] = field(default_factory=dict)
    """Argument → value that selects this row."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    """Field of `GuiAction` → value that this word implies."""
    signed: tuple[str, str] | None = None
    """Directions that a positive and a negative `amount` mean; None if a direction is named."""
    world: World | None = None
    """Where it exists; None for everywhere."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields that must be given."""
        return tuple(name for name, argument in self.takes.items() if not argument.endswith("?"))

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Its arguments in order."""
        return tuple(part for argument in self.takes.values() for part in argument.rstrip("?").split(","))


def verb(
    says: str,
    kind: str,
    doc: str = "",
    *,
    when: Mapping[str, str | int] | None = None,
    sets: Mapping[str, Any] | None = None,
    signed: tuple[str, str] | None = None,
    world: World | None = None,
    **takes: str,
) -> Verb:
    """Build a row of a dialect's table: `verb("type", "type", "type a text", text="content")`."""
    return Verb(says, kind, doc, takes, when or {}, sets or {}, signed, world)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Forms in which a dialect writes values; reading understands every form."""

    point: Callable[[Pair], Any] = lambda point: [tidy(point[0]), tidy(point[1])]
    keys: Callable[[str, str], Any] = lambda keys, argument: keys
    """Takes keys joined by "+", and the argument that is to hold them."""
    seconds: Callable[[float], Any] = lambda seconds: tidy(seconds)
    direction: Callable[[str], str] = str
    boolean: Callable[[bool], Any] = bool


# ------------------------------------------------------------------------------------------------------ dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectReply:
    """Reason and actions of a reply."""

    reason: str
    """Text before the first action."""
    actions: tuple[GuiAction, ...] = ()
    """All that it names, in order; empty exactly when `failure` is not None."""
    failure: ParseFailure | None = None
    unread: ParseFailure | None = None
    """Why what follows the actions cannot be read; None if all is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStep:
    """One executed step, for a prompt."""

    action: str
    """In words."""
    effect: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The way in which one model family speaks; see the head of this file."""

    name: str
    title: str
    """Models that speak it, for people."""
    models: str
    """Pattern of names of models that speak it, in small letters; empty if nothing is guessed."""
    model_types: tuple[str, ...] = ()
    """Types of checkpoints that speak it, as in config.json."""
    source: str
    """Where the vendor documents it."""
    syntax: ActionSyntax
    verbs: tuple[Verb, ...]
    grid: Grid
    resize: Resize = AS_IS
    spelling: Spelling = Spelling()
    is_picture_first: bool = True
    """Whether the picture comes before the text."""
    has_submitting_newline: bool = False
    """Whether a line break at the end of a typed text means Enter."""
    second: float = 1
    """Number that means a second: 1000 where times are in milliseconds."""
    harmless: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Arguments without which an action means the same: name → its values of that kind, empty for all."""
    typed_items: bool = False
    """Whether actions are typed items of the vendor's own interface instead of text."""
    labels: re.Pattern[str] | None = None
    """What is left out of a reason: labels and tags."""
    opening: str = "You operate {world} on behalf of its user."
    """First paragraph of the system text."""
    answer: str = ""
    """Form of the reply, the last paragraph of the system text."""
    unit: str = ""
    """Sentence on points; {width} and {height} are those of the sent picture."""
    task: str = "Task: {goal}"
    """The user turn; {history} stands in it, or goes below it."""
    step: str = "Step {number}: {action}"
    """One past step; {action}, {reason} and {effect} are filled in."""
    no_steps: str = ""
    """The history at the first step."""

    @property
    def worlds(self) -> tuple[World, ...]:
        """Environments that it fits: those in which it can click."""
        both: tuple[World, ...] = ("mobile", "web")
        return tuple(world for world in both if any(one.kind == "click" for one in self.list_verbs(world)))

    def list_verbs(self, world: World) -> tuple[Verb, ...]:
        """List the words that exist in this kind of environment."""
        return tuple(one for one in self.verbs if one.world in (None, world))

    def _sort(self, world: World | None) -> list[Verb]:
        """Return the table with the rows of this environment first: some words mean another thing elsewhere."""
        return sorted(self.verbs, key=lambda one: world is not None and one.world not in (None, world))

    @property
    def points(self) -> str:
        """The unit of its points, in words."""
        return "numbers of elements" if self.names_elements else self.grid.title

    @property
    def names_elements(self) -> bool:
        """True if it names elements by number instead of points."""
        return any("index" in one.takes for one in self.verbs)

    @property
    def has_pixel_points(self) -> bool:
        """True if its points are pixels of the picture, so that it must be seen in the size in which it is sent."""
        return self.grid.span is None and not self.names_elements

    # ------------------------------------------------------------------------------------------------- reading

    def read(self, text: str, world: World | None = None) -> DialectReply:
        """Read a reply, given in this kind of environment if it is known; never raises."""
        if not text.strip():
            return DialectReply(reason="", failure=ParseFailure(kind="empty", detail="the reply is empty"))
        if len(text) > LONGEST:
            detail = f"the reply has {len(text)} characters, at most {LONGEST} are read"
            return DialectReply(reason="", failure=ParseFailure(kind="malformed", detail=detail))
        # A thought may hold actions that were only considered: it is blanked, so that places stay the same.
        said, is_open = blank_thoughts(text)
        reason, actions = text, list[GuiAction]()
        unread: ParseFailure | None = None
        try:
            for call in self.syntax.find(said, self.verbs):
                actions.append(self._read_call(call, world))
                if len(actions) == 1:
                    reason = text[: call.start] if call.reason is None else call.reason
        except Reject as reject:
            unread = reject.failure
        # A look is no action worth keeping: the one that the model was after is lost.
        if unread is not None and all(one.kind in IDLE for one in actions):
            return DialectReply(reason=self._clean(text), failure=unread)
        if not actions:
            return DialectReply(reason=self._clean(text), failure=self._explain_none(said, is_open))
        return DialectReply(reason=self._clean(reason), actions=_join_drags(actions), unread=unread)

    def _explain_none(self, said: str, is_open: bool) -> ParseFailure:
        if is_open or not said.strip():
            return ParseFailure(kind="reasoning", detail="the reply is all reasoning: nothing follows the thought")
        example = " ".join(self.write([build_example(self.verbs[0], self.grid)]).split())
        return ParseFailure(kind="no_action", detail=f"no action of the dialect {self.name}, expected e.g. {example}")

    def _clean(self, reason: str) -> str:
        kept = self.labels.sub(" ", reason) if self.labels is not None else reason
        return " ".join(_TAGS.sub(" ", kept).split())

    def _read_call(self, call: SpokenCall, world: World | None) -> GuiAction:
        """Return the action that a call names; raises Reject."""
        rows = [one for one in self._sort(world) if one.says.lower() == call.name.lower()]
        if not rows:
            known = ", ".join(dict.fromkeys(one.says for one in self.verbs if one.says))
            raise Reject("unknown_type", f"action {shorten_value(call.name)}, allowed in {self.name}: {known}")
        arguments = dict(call.arguments)
        chosen = [one for one in rows if all(_is_same(arguments.get(name), value) for name, value in one.when.items())]
        if not chosen:
            name = next(iter(rows[0].when))
            allowed = ", ".join(dict.fromkeys(str(one.when[name]) for one in rows if name in one.when))
            raise Reject(
                "bad_field", f"{call.name}: {name} is {shorten_value(arguments.get(name))}, allowed: {allowed}"
            )
        # Of rows with one name the first counts that ignores least; the first problem explains a call that fits none.
        fitting, problems = list[GuiAction](), list[Reject]()
        for row in chosen:
            try:
                fitting.append(self._read_row(row, arguments))
            except Reject as reject:
                problems.append(reject)
        if fitting:
            return min(fitting, key=lambda one: len(one.ignored))
        raise (None if call.name else _explain_choice(arguments, rows, chosen)) or problems[0]

    def _read_row(self, row: Verb, arguments: Mapping[str, Any]) -> GuiAction:
        given, used = dict(row.sets), set(row.when)
        order = {part: str(place) for place, part in enumerate(row.argument_names)}
        for name, argument in row.takes.items():
            # An argument without its name counts by its place.
            parts = [part if part in arguments else order[part] for part in argument.rstrip("?").split(",")]
            values = [arguments.get(part) for part in parts]
            used.update(parts)
            if any(value is None for value in values):
                if argument.endswith("?"):
                    continue
                raise Reject("missing_field", f"{row.says or row.kind} needs {argument}")
            is_keys = name == "text" and row.kind in KEY_KINDS
            if is_keys and parts == ["0"]:  # each key may be an argument of its own
                keys = {place: key for place, key in arguments.items() if place.isdigit() and isinstance(key, str)}
                used.update(keys)
                values = [list(keys.values())] if len(keys) > 1 else values
            given[name] = (read_keys if is_keys else READERS[name])(values if len(values) > 1 else values[0])
        if "seconds" in given:
            given["seconds"] /= self.second
        if row.signed is not None and "amount" in given:
            given["direction"] = row.signed[given["amount"] < 0]
            given["amount"] = abs(given["amount"])
        ignored = tuple(
            shorten_value(value) if name.isdigit() else f"{_shorten_name(name)}={shorten_value(value)}"
            for name, value in arguments.items()
            if name not in used and not self._is_harmless(name, value)
        )
        action = GuiAction(kind=row.kind, ignored=ignored, **given)
        if self.has_submitting_newline and action.kind == "type" and action.text is not None:
            # The vendor's parser takes a line break that was escaped twice for one, too.
            for ending in ("\n", "\\n"):
                if action.text.endswith(ending):
                    return replace(action, text=action.text.removesuffix(ending), enter=True)
        return action

    def _is_harmless(self, name: str, value: Any) -> bool:
        """Return whether an argument says nothing beyond its action."""
        if value in (None, "", False, [], {}):
            return True
        values = self.harmless.get(name)
        return values is not None and (not values or any(_is_same(value, one) for one in values))

    # ------------------------------------------------------------------------------------------------- writing

    def write(self, actions: Sequence[GuiAction], reason: str = "", world: World | None = None) -> str:
        """Write a reply with these actions, so that `read` gives them back.

        Raises:
            ValueError: the dialect has no word for one of them.
        """
        world = world or self.worlds[0]
        return self.syntax.write([self._write_call(one, world) for one in actions], reason, world)

    def can_say(self, action: GuiAction) -> bool:
        """Return whether the dialect has a word for an action."""
        return self._find_row(action) is not None

    def _find_row(self, action: GuiAction, world: World | None = None) -> Verb | None:
        """Return the first row that expresses an action whole, one of this environment first."""
        told = {name: value for name, value in _to_fields(action).items() if name not in ("kind", "ignored")}
        given = {name for name, value in told.items() if value is not None and value is not False}  # 0 is a number
        for row in self._sort(world):
            known = set(row.takes) | set(row.sets)
            if row.signed and action.direction in row.signed:
                known.add("direction")
            if self.has_submitting_newline and row.kind == "type":
                known.add("enter")
            implied = all(getattr(action, name) == value for name, value in row.sets.items())
            if row.kind == action.kind and given <= known and set(row.needs) - {"enter", "clear"} <= given and implied:
                return row
        return None

    def _write_call(self, action: GuiAction, world: World | None = None) -> SpokenCall:
        row = self._find_row(action, world)
        if row is None:
            raise ValueError(f"{self.name} has no word for: {action}")
        arguments: dict[str, Any] = dict(row.when)
        for name, argument in row.takes.items():
            value = getattr(action, name)
            if value is None or (value is False and argument.endswith("?")):
                continue
            parts = argument.rstrip("?").split(",")
            spelt = [tidy(part) for part in value] if len(parts) > 1 else [self._spell(row, name, value, action)]
            arguments.update(zip(parts, spelt, strict=True))
        return SpokenCall(name=row.says, arguments=arguments)

    def _spell(self, row: Verb, name: str, value: Any, action: GuiAction) -> Any:
        if name in ("point", "to"):
            return self.spelling.point(value)
        if name == "hold" or (name == "text" and row.kind in KEY_KINDS):
            return self.spelling.keys(value, row.takes[name].rstrip("?"))
        if name == "text" and row.kind == "type" and self.has_submitting_newline and action.enter:
            return value + "\n"
        if name == "direction":
            return self.spelling.direction(value)
        if name in ("enter", "clear"):
            return self.spelling.boolean(value)
        if name == "amount":
            return tidy(-value if row.signed and action.direction == row.signed[1] else value)
        return self.spelling.seconds(value * self.second) if name == "seconds" else value

    # ------------------------------------------------------------------------------------------------- prompts

    def render_system(self, world: World, screen: Size) -> str:
        """Render rules, the list of actions, the unit of points and the form of a reply."""
        taught = [one for one in self.list_verbs(world) if one.doc]
        forms = [self._write_call(build_example(one, self.grid), world) for one in taught]
        width, height = self.resize.fit(*screen)
        place = "a phone" if world == "mobile" else "a web page"
        parts = [
            self.opening.format(world=place),
            self.syntax.list_verbs(taught, forms, world),
            self.unit.format(width=width, height=height),
            self.answer,
        ]
        return "\n\n".join(part for part in parts if part)

    def render_user(self, goal: str, steps: Sequence[PastStep], first: int = 1) -> str:
        """Render the task and the past steps, of which the first has the number `first`."""
        told = [
            self.step.format(number=number, action=one.action, effect=one.effect, reason=one.reason or one.action)
            for number, one in enumerate(steps, start=first)
        ]
        return self.task.format(goal=goal, history="\n".join(told) or self.no_steps).strip()

    def choose(self, actions: Sequence[GuiAction]) -> GuiAction:
        """Return the one of a reply's actions that is executed: the first that is more than a look."""
        return next((one for one in actions if one.kind not in IDLE), actions[0])


def _join_drags(actions: Sequence[GuiAction]) -> tuple[GuiAction, ...]:
    """Return actions with one drag for each move of the mouse that a drag from there follows."""
    joined: list[GuiAction] = []
    for one in actions:
        last = joined[-1] if joined else None
        if one.kind == "drag" and one.point is None and last is not None and last.kind == "hover":
            joined[-1] = replace(one, point=last.point)
        else:
            joined.append(one)
    return tuple(joined)


def _shorten_name(name: str) -> str:
    return name if name.isidentifier() and len(name) <= 40 else shorten_value(name)


def _explain_choice(arguments: Mapping[str, Any], rows: Sequence[Verb], chosen: Sequence[Verb]) -> Reject | None:
    """Return what is wrong with the value of an argument that chooses between rows; None if it chose one."""
    for name in dict.fromkeys(name for row in rows for name in row.when):
        value = arguments.get(name)
        if value is not None and not any(name in row.when for row in chosen):
            allowed = ", ".join(dict.fromkeys(str(row.when[name]) for row in rows if name in row.when))
            return Reject("bad_field", f"{name} is {shorten_value(value)}, allowed: {allowed}")
    return None


def _to_fields(action: GuiAction) -> dict[str, Any]:
    return {one.name: getattr(action, one.name) for one in fields(action)}


def _is_same(value: Any, wanted: str | int) -> bool:
    if isinstance(wanted, int):
        return not isinstance(value, bool) and value == wanted
    return isinstance(value, str) and value.strip().lower() == wanted.lower()


def build_example(row: Verb, grid: Grid) -> GuiAction:
    """Build an action that shows the form of a word."""
    span = grid.span or 1000
    low, high = ((round(share * span, grid.digits), round(0.8 * share * span, grid.digits)) for share in (0.25, 0.5))
    values: dict[str, Any] = {
        **{"point": low, "to": high, "index": 7, "text": "text", "direction": "down", "amount": 3.0, "seconds": 2.0},
        **{"enter": True, "clear": True},
    }
    if row.kind in KEY_KINDS:
        values["text"] = "ctrl+c"
    given = {name: values[name] for name in row.takes if name in values} | dict(row.sets)
    if row.signed is not None:
        given["direction"] = row.signed[1]
    return GuiAction(kind=row.kind, **given)


_OPEN = re.compile(r"<(think|thinking|gui_think|thought|seed:think)>", re.IGNORECASE)
_CLOSE = re.compile(r"</(think|thinking|gui_think|thought|seed:think)>", re.IGNORECASE)
_TAGS = re.compile(r"</?(?:think|thinking|gui_think|thought|seed:think|conclusion)>", re.IGNORECASE)


def blank_thoughts(text: str) -> tuple[str, bool]:
    """Return a reply with spaces up to the end of its last thought, and whether a thought is never closed."""
    ends = [found.end() for found in _CLOSE.finditer(text)]
    end = ends[-1] if ends else 0
    opened = _OPEN.search(text, end)
    if opened is not None and not text[end : opened.start()].strip():
        return " " * len(text), True
    return " " * end + text[end:], False
