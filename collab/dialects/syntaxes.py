"""Surfaces of actions that several families share: tool calls in JSON and XML, calls, JSON objects.

    <tool_call>{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [1, 2]}}</tool_call>   JsonTool
    <tool_call><function=click><parameter=coordinate>[1, 2]</parameter></function></tool_call>              XmlTool
    Action: click(start_box='(1,2)')                                                                       CallText
    Action: {"action_type": "click", "box_2d": [[1, 2, 1, 2]]}                                             JsonText

Each finds the actions of a reply and writes them. Reading is linear in the reply's length, forgives the slips that
these models are known for, and evaluates nothing.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collab.dialects.base import SpokenCall, Verb, World
from collab.envs.syntax import Reject, shorten_value

_MOST = 50
"""Places of a reply that are tried; bounds the work on hostile text."""


def decode_json(text: str, begin: int) -> tuple[Any, int] | None:
    """Return the JSON value at a place of a text and where it ends; None if there is none."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None


def dump_json(value: Any) -> str:
    """Write JSON in one line, as models write it."""
    return json.dumps(value, ensure_ascii=False)


def _list_objects(text: str, opening: re.Pattern[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield where each JSON object begins, and the object, None if it is broken; none within another."""
    last = -1
    for number, found in enumerate(opening.finditer(text)):
        begin = found.end() - 1
        if begin < last or number >= _MOST:
            continue
        decoded = decode_json(text, begin) or _mend(text, begin)
        if decoded is None:
            yield found.start(), None
        elif isinstance(decoded[0], dict):
            last = decoded[1]
            yield found.start(), decoded[0]


def _mend(text: str, begin: int) -> tuple[Any, int] | None:
    """Decode an object with single quotes or a comma too many, or without its last brackets; None if more is wrong."""
    end = text.find("</tool_call>", begin)
    body = text[begin : len(text) if end < 0 else end].rstrip()
    for closing in ("}", "}}", "]}}"):
        decoded = decode_json(body + closing, 0)
        if decoded is not None:
            return decoded[0], begin + len(body)
    literal = _parse_literal(body) if len(body) <= _LONGEST_LITERAL else None
    return (literal, begin + len(body)) if isinstance(literal, dict) else None


_LONGEST_LITERAL = 5_000
"""Characters of an object that is tried as one in Python's spelling."""


def _parse_literal(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an escape that Python does not know
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None


# ---------------------------------------------------------------------------------------------------- tool calls


def build_tool(name: str, verbs: Sequence[Verb], forms: Sequence[SpokenCall]) -> dict[str, Any]:
    """Build the schema of one tool whose argument `action` names the verb; `forms` are examples, one per verb."""
    properties: dict[str, Any] = {
        "action": {
            "type": "string",
            "enum": list(dict.fromkeys(one.says for one in verbs)),
            "description": "\n".join(f"{one.says}: {one.doc}" for one in verbs),
        }
    }
    # Verbs share arguments: each is described once, with the verbs that take it.
    for one, form in zip(verbs, forms, strict=True):
        for argument, value in form.arguments.items():
            schema = _add_user(properties, argument, {"type": _name_type(value)}, one.says)
            if argument in one.when and value not in schema.setdefault("enum", []):
                schema["enum"].append(value)
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Acts on the screen; the screenshot shows its present state.",
            "parameters": {"type": "object", "properties": properties, "required": ["action"]},
        },
    }


def _add_user(properties: dict[str, Any], argument: str, schema: dict[str, Any], verb: str) -> dict[str, Any]:
    """Note that a verb takes an argument; return the argument's schema."""
    known: dict[str, Any] = properties.setdefault(argument, schema | {"description": f"For {verb}"})
    if verb not in known["description"].removeprefix("For ").split(", "):
        known["description"] += f", {verb}"
    return known


def _name_type(value: Any) -> str:
    """Return the name that a schema has for a value's type."""
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "boolean" if isinstance(value, bool) else "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTool:
    """A tool call in JSON between tags; the argument `action` names the verb."""

    tools: Mapping[World, str]
    """Environment → name of the tool."""
    form: str = "{reason}\n{calls}"
    """A reply."""

    _TAGGED = re.compile(r"<tool_call>\s*+\{")
    _BARE = re.compile(r"\{(?=\s*+\"(?:name|arguments)\"\s*+:)")

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield tool calls; without tags, objects with a name and arguments."""
        for begin, found in _list_objects(text, self._TAGGED if self._TAGGED.search(text) else self._BARE):
            arguments = None if found is None else found.get("arguments", found)
            # Some give the arguments as a text that holds the object.
            if isinstance(arguments, str):
                decoded = decode_json(arguments.strip(), 0)
                arguments = None if decoded is None else decoded[0]
            if found is None or not isinstance(arguments, dict):
                raise Reject("malformed", f"a tool call is not JSON: {shorten_value(text[begin : begin + 80])}")
            # A known slip: the name of the action in the place of the tool's.
            name = arguments.get("action", found.get("name"))
            own = ("action",) if arguments is not found else ("action", "name")
            rest = {key: value for key, value in arguments.items() if key not in own}
            yield SpokenCall(name=str(name), arguments=rest, start=begin)

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write tool calls behind the reason."""
        tool = self.tools[world]
        bodies = [dump_json({"name": tool, "arguments": {"action": call.name, **call.arguments}}) for call in calls]
        written = "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)
        return self.form.format(reason=reason, calls=written).strip()

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Format the tool's schema."""
        schema = dump_json(build_tool(self.tools[world], verbs, forms))
        return f"# Tools\n\nThese functions may be called:\n<tools>\n{schema}\n</tools>"


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlTool:
    """A tool call of nested tags; the function names the verb, or its parameter `action` does."""

    tag: str
    """Around all functions of a reply."""
    tools: Mapping[World, str]
    """Environment → name of the function; empty if each verb is a function."""
    has_lines: bool
    """Whether a value stands on lines of its own."""
    form: str = "{reason}\n{calls}"

    # Three spellings of one call: `<function=click>`, `<function name="click">` with parameters that say whether they
    # are texts, and the tokens of the vendor, whose names end in "_never_used_" and a number.
    _FUNCTION = re.compile(r"<function(?:_never_used_\w{1,40})?(?:=\s*+| name=\")([\w.-]{1,60})\"?\s*+>")
    _PARAMETER = re.compile(
        r"<parameter(?:_never_used_\w{1,40})?(?:=\s*+| name=\")([\w.-]{1,60})\"?(?: string=\"\w{1,5}\")?\s*+>"
        r"(.*?)(?:</parameter\w{0,60}>|(?=<parameter\w{0,60}[= ])|(?=</function\w{0,60}>)|\Z)",
        re.DOTALL,
    )
    _REST_OF_TAG = re.compile(r"\w*+>\s*+")

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield functions; a parameter that is never closed ends where the next one begins."""
        found = list(self._FUNCTION.finditer(text))[:_MOST]
        ends = [*(one.start() for one in found[1:]), len(text)]
        for function, end in zip(found, ends, strict=False):
            body = text[function.end() : end]
            arguments = {name: self._trim(value) for name, value in self._PARAMETER.findall(body)}
            name = function[1]
            if self.tools and name in self.tools.values() and "action" in arguments:
                name = arguments.pop("action").strip()
            else:
                arguments.pop("action", None)
            yield SpokenCall(name=name, arguments=arguments, start=self._find_start(text, function.start()))

    def _find_start(self, text: str, begin: int) -> int:
        opened = text.rfind(f"<{self.tag}", 0, begin)
        between = opened + 1 + len(self.tag)
        return opened if opened >= 0 and self._REST_OF_TAG.fullmatch(text, between, begin) else begin

    def _trim(self, value: str) -> str:
        return value.removeprefix("\n").removesuffix("\n") if self.has_lines else value

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write functions behind the reason."""
        return self.form.format(reason=reason, calls=self._write_calls(calls, world)).strip()

    def _write_calls(self, calls: Sequence[SpokenCall], world: World) -> str:
        line = "\n" if self.has_lines else ""
        functions = []
        for call in calls:
            named = {"action": call.name, **call.arguments} if self.tools else call.arguments
            body = "".join(
                f"<parameter={name}>{line}{value if isinstance(value, str) else dump_json(value)}{line}</parameter>"
                + line
                for name, value in named.items()
            )
            functions.append(f"<function={self.tools.get(world, call.name)}>{line}{body}</function>")
        if self.tools:  # each function in a tag of its own
            return "\n".join(f"<{self.tag}>\n{one}\n</{self.tag}>" for one in functions)
        return f"<{self.tag}>{''.join(functions)}</{self.tag}>"

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Format the schema of the one tool, or one form per function."""
        if self.tools:
            schema = dump_json(build_tool(self.tools[world], verbs, forms))
            return f"# Tools\n\nThese functions may be called:\n<tools>\n{schema}\n</tools>"
        lines = [f"{self._write_calls([form], world)} - {one.doc}" for one, form in zip(verbs, forms, strict=True)]
        return "Functions:\n" + "\n".join(lines)


# ----------------------------------------------------------------------------------------------------- calls


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText:
    """Calls with named arguments, such as `click(start_box='(1,2)')`."""

    label: re.Pattern[str] | None = None
    """Behind its last occurrence the actions stand; without it in a reply, anywhere."""
    form: str = "Thought: {reason}\nAction: {calls}"
    joint: str = "\n\n"
    """Between two calls of a reply."""
    quote: str = "'"
    tight: bool = True
    """Whether lists are written without spaces."""

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield calls of known verbs; an unknown call right behind the label is an error."""
        labels = [] if self.label is None else list(self.label.finditer(text))
        start = labels[-1].end() if labels else 0
        names = sorted({re.escape(one.says) for one in verbs}, key=len, reverse=True)
        known = re.compile(rf"(?<![\w.])({'|'.join(names)})\(", re.IGNORECASE)
        count, last = 0, start
        for found in known.finditer(text, start):
            if found.start() < last or count >= _MOST:
                continue
            read = read_arguments(text, found.end())
            if read is None:
                raise Reject("malformed", f"a call is never closed: {shorten_value(text[found.start() :][:80])}")
            arguments, last = read
            begin = labels[-1].start() if labels and not count else found.start()
            count += 1
            yield SpokenCall(name=found[1], arguments=arguments, start=begin)
        if not count:  # a verb alone, without brackets
            bare = re.compile(rf"(?:\s|<\|\w+\|>)*+({'|'.join(names)})[ \t.]*+(?:\n|<|\Z)").match(text, start)
            if bare is not None:
                yield SpokenCall(name=bare[1], arguments={}, start=labels[-1].start() if labels else bare.start(1))
                return
        if not count and labels:
            unknown = re.compile(r"\s*+([A-Za-z_][\w.]{0,60})\s*+\(").match(text, start)
            if unknown is not None:
                allowed = ", ".join(dict.fromkeys(one.says for one in verbs))
                raise Reject("unknown_type", f"action {shorten_value(unknown[1])}, allowed: {allowed}")

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write calls behind the reason."""
        return self.form.format(reason=reason, calls=self.joint.join(map(self._write_call, calls))).strip()

    def _write_call(self, call: SpokenCall) -> str:
        inner = (f"{name}={self._write_value(value)}" for name, value in call.arguments.items())
        return f"{call.name}({', '.join(inner)})"

    def _write_value(self, value: Any) -> str:
        if isinstance(value, str):
            return self.quote + escape(value, self.quote) + self.quote
        if isinstance(value, list | tuple):
            inner = ("," if self.tight else ", ").join(map(self._write_value, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        return str(value)

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Format one form per line."""
        lines = [f"{self._write_call(form)} - {one.doc}" for one, form in zip(verbs, forms, strict=True)]
        return "Actions:\n" + "\n".join(lines)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def escape(text: str, quote: str) -> str:
    """Write a text so that it can stand between these quotes."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text.replace(quote, f"\\{quote}")


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|.)", re.DOTALL)


def unescape(text: str) -> str:
    """Read the escapes of a quoted text, those of Python; an unknown one stays as it is."""
    return _ESCAPE.sub(_read_escape, text)


def _read_escape(found: re.Match[str]) -> str:
    spelt = found[1]
    return chr(int(spelt[1:], 16)) if len(spelt) > 1 else _ESCAPES.get(spelt, found[0])


_NAME = re.compile(r"\s*+([A-Za-z_]\w{0,60})\s*+=\s*+")
_CLOSES = {"(": ")", "[": "]", "{": "}"}


def read_arguments(text: str, begin: int) -> tuple[dict[str, Any], int] | None:
    """Read what stands in the brackets of a call.

    Args:
        begin: place behind the opening bracket.

    Returns:
        Arguments by name, those without one under "0", "1" …, and the place behind the closing bracket; None if the
        call is never closed. Values are texts and numbers; a list or pair stays the text that spells it.
    """
    arguments: dict[str, Any] = {}
    place, position = begin, 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place >= len(text):
            return None
        if text[place] == ")":
            return arguments, place + 1
        named = _NAME.match(text, place)
        name = named[1] if named else str(position)
        read = _read_value(text, named.end() if named else place)
        if read is None:
            return None
        position += named is None
        arguments[name], place = read


def _read_value(text: str, begin: int) -> tuple[Any, int] | None:
    """Read one value: a quoted text, what brackets enclose, or a bare word; with the place behind it."""
    opening = text[begin : begin + 1]
    if opening in ("'", '"') and opening:
        end = _find_quote(text, begin + 1, opening)
        return None if end is None else (unescape(text[begin + 1 : end]), end + 1)
    if opening in _CLOSES:
        end = _find_bracket(text, begin)
        return None if end is None else (text[begin:end], end)
    found = re.compile(r"[^,)\n]*+").match(text, begin)
    assert found is not None
    word = found[0].strip()
    if found.end() >= len(text) or (not word and text[found.end()] == "\n"):
        return None
    return _read_word(word), found.end()


def _read_word(word: str) -> Any:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if word.lower() in ("none", "null"):
        return None
    try:
        return float(word) if re.search(r"[.eE]", word) else int(word)
    except ValueError:
        return word


def _find_quote(text: str, begin: int, quote: str) -> int | None:
    """Return the place of the quote that ends a text, as texts may hold others: before a bracket or an argument."""
    argument = r"[A-Za-z_]\w{0,60}\s*+=|[\d.+'\"(\[{)\]}-]|(?:True|False|None)\b|\Z"
    ending = re.compile(rf"\\.|{quote}(?=\s*+(?:[)\]}}]|,\s*+(?:{argument})))", re.DOTALL)
    for found in ending.finditer(text, begin):
        if found[0] == quote:
            return found.start()
    return None


def _find_bracket(text: str, begin: int) -> int | None:
    """Return the place behind the bracket that closes the one at `begin`; quotes are skipped."""
    depth, quote = 0, ""
    for place in range(begin, min(len(text), begin + 2000)):
        letter = text[place]
        if quote:
            quote = "" if letter == quote and text[place - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth == 0:
                return place + 1
    return None


# -------------------------------------------------------------------------------------------------- JSON objects


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonText:
    """A JSON object, one of whose fields names the verb."""

    key: str
    """Field that names the verb; empty if the fields themselves do."""
    label: re.Pattern[str] | None = None
    form: str = "Action: {calls}"
    known: tuple[str, ...] = ()
    """Without `key`: fields of which an action has at least one."""

    _OPENING = re.compile(r"\{")

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield objects that name an action; a broken one before the first is an error if there is none."""
        labels = [] if self.label is None else list(self.label.finditer(text))
        start = labels[-1].end() if labels else 0
        broken: int | None = None
        is_first = True
        for place, found in _list_objects(text[start:], self._OPENING):
            if found is None:
                broken = place if broken is None else broken
            elif self.key in found if self.key else any(name in found for name in self.known):
                rest = {name: value for name, value in found.items() if name != self.key}
                begin = labels[-1].start() if labels and is_first else start + place
                is_first, broken = False, None
                yield SpokenCall(name=str(found.get(self.key, "")), arguments=rest, start=begin)
        if broken is not None:
            raise Reject("malformed", f"not JSON: {shorten_value(text[start + broken :][:80])}")

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write objects behind the reason."""
        return self.form.format(reason=reason, calls="\n".join(map(self._write_call, calls))).strip()

    def _write_call(self, call: SpokenCall) -> str:
        return dump_json(({self.key: call.name} if self.key else {}) | dict(call.arguments))

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Format one form per line."""
        lines = [f"{self._write_call(form)} - {one.doc}" for one, form in zip(verbs, forms, strict=True)]
        return "Actions:\n" + "\n".join(lines)
