"""Syntax of actions: a JSON object or a call, each read into plain fields and written from them.

    {"action_type": "click", "index": 7}     read_json, write_json
    click(id=7)                              read_call, write_call

A number without quotes keeps its spelling (21.00, 007, +1): where the grammar wants a text, it becomes that spelling.
Fields are not checked here beyond their form: what an action may say is the grammar's business
(`collab.envs.grammar`).
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from collab.types import ParseFailure

Fields = dict[str, Any]
"""The action under "type", its target and arguments under their names."""


class Reject(Exception):
    """Carries a ParseFailure out of nested checks; `ActionSpace` catches it, so that no caller sees it."""

    def __init__(self, kind: Any, detail: str) -> None:
        super().__init__(detail)
        self.failure = ParseFailure(kind=kind, detail=detail)


class SpelledInt(int):
    """A whole number that remembers how it was written."""

    spelling: str


class SpelledFloat(float):
    """A number with a fraction or an exponent that remembers how it was written."""

    spelling: str


def spell(value: float) -> str:
    """Return a number as it was written; one that was never written, as Python writes it."""
    return value.spelling if isinstance(value, (SpelledInt, SpelledFloat)) else str(value)


def _parse_int(text: str) -> SpelledInt:
    number = SpelledInt(text)
    number.spelling = text
    return number


def _parse_float(text: str) -> SpelledFloat:
    number = SpelledFloat(text)
    number.spelling = text
    return number


def shorten_value(value: object) -> str:
    """Return the value as a failure shows it: at most 60 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits or brackets than Python prints
        return "something huge"
    return text if len(text) <= 60 else text[:57] + "…"


def read_json(text: str) -> Fields:
    """Return fields of a JSON object; Reject when it is none."""
    try:
        try:
            # Models write numbers that JSON does not know; quoted, they are read and then refused by their field.
            value = _JSON.decode(text)
        except ValueError:
            value = _JSON.decode(_quote_odd_numbers(text, _JSON_NUMBER))
    except (ValueError, RecursionError) as error:
        raise Reject("malformed", f"not JSON: {shorten_value(text)} ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise Reject("malformed", f"not a JSON object: {shorten_value(text)}")
    # "type" is our own name for it, and must not come in by the back door.
    if "type" in value:
        raise Reject("bad_field", "no field 'type', allowed: action_type")
    # One name from here on, whatever the syntax calls it.
    value["type"] = value.pop("action_type", None)
    return value


def _build_unique(pairs: list[tuple[str, Any]]) -> Fields:
    """Build a JSON object; Reject when a key stands twice."""
    fields: Fields = {}
    for name, value in pairs:
        if name in fields:
            raise Reject("bad_field", f"{shorten_value(name)} given twice")
        fields[name] = value
    return fields


_JSON = json.JSONDecoder(object_pairs_hook=_build_unique, parse_int=_parse_int, parse_float=_parse_float)
_STRING_OR_NUMBER = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?<=[\s=:,(\[])(?P<number>[+-]?\.?\d[\w.+-]*)(?=\s*[,)}\]])""",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PYTHON_NUMBER = re.compile(r"(?![+-]?0\d).*")
_LONGEST_ODD = 10_000
"""Characters of a text in which numbers are quoted; a longer one that cannot be read is no action."""


def _quote_odd_numbers(text: str, readable: re.Pattern[str]) -> str:
    """Put quotes around numbers that the syntax itself cannot read: 007, and in JSON +1 or .5."""

    def quote(match: re.Match[str]) -> str:
        number = match["number"]
        is_odd = number is not None and _NUMBER.fullmatch(number) and not readable.fullmatch(number)
        return f'"{number}"' if is_odd else match[0]

    return _STRING_OR_NUMBER.sub(quote, text) if len(text) <= _LONGEST_ODD else text


def write_json(type: str, fields: Fields) -> str:
    """Write what `read_json` reads back."""
    return json.dumps({"action_type": type, **fields}, ensure_ascii=False)


def read_call(text: str, arguments: Mapping[str, Sequence[str]]) -> Fields:
    """Return fields of a call.

    Args:
        arguments: per action type the names of its arguments, in the order in which they may stand without a name.

    Raises:
        Reject: it is no call, of no known type, or its arguments are not plain values.
    """
    try:
        # Parsed as Python and never run: only literals are read below.
        call, source = _parse_call(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Reject("malformed", f"not a call: {shorten_value(text)} ({type(error).__name__})") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise Reject("malformed", f"not a call: {shorten_value(text)}")
    name = call.func.id
    if name not in arguments:
        raise Reject("unknown_type", f"action {shorten_value(name)}, allowed: {', '.join(arguments)}")
    order = arguments[name]
    # More arguments than fields cannot be guessed into place.
    if len(call.args) > len(order):
        raise Reject("bad_field", f"{name} takes {len(order)} arguments, got {len(call.args)}")
    fields: Fields = {"type": name}
    pairs = [*zip(order, call.args, strict=False), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    for key, node in pairs:
        # Given twice, by place and by name: which one is meant is not known.
        if key is None or key in fields:
            raise Reject("bad_field", f"{name}: argument {shorten_value(key)} given twice or unpacked")
        fields[key] = _read_literal(node, name, source)
    return fields


def _parse_call(text: str) -> tuple[ast.expr, str]:
    """Return the expression, and the text that it was read from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "C:\\dir" has an unknown escape, and that is no concern of the user's
        try:
            return ast.parse(text, mode="eval").body, text
        except SyntaxError:
            text = _quote_odd_numbers(text, _PYTHON_NUMBER)
            return ast.parse(text, mode="eval").body, text


def write_call(type: str, fields: Fields) -> str:
    """Write what `read_call` reads back."""
    return f"{type}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def _read_literal(node: ast.expr, where: str, source: str) -> Any:
    if isinstance(node, ast.Name) and node.id.lower() in ("true", "false", "null", "none"):
        return {"true": True, "false": False}.get(node.id.lower())
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise Reject("bad_field", f"{where}: an argument is not a plain value") from None
    if type(value) not in (int, float):
        return value
    number = SpelledInt(value) if isinstance(value, int) else SpelledFloat(value)
    number.spelling = (ast.get_source_segment(source, node) or str(value)).replace(" ", "")
    return number


_LONGEST_NUMBER = 100
"""Characters of a number that may stand for a text."""


_KEY_NAMES = {
    **{"control": "ctrl", "command": "meta", "cmd": "meta", "super": "meta", "win": "meta", "option": "alt"},
    **{"return": "enter", "esc": "escape", "del": "delete", "ins": "insert", "spacebar": "space"},
    **{"pgup": "pageup", "page_up": "pageup", "pgdn": "pagedown", "page_down": "pagedown", "prior": "pageup"},
    **{f"arrow{side}": side for side in ("up", "down", "left", "right")},
}
_MODIFIERS = ("ctrl", "alt", "shift", "meta")


def order_keys(keys: str) -> str:
    """Return a key combination in one spelling: usual names joined by "+", modifiers first."""
    text = keys.strip().casefold()
    # The key "+" stands at the end: "+" or "ctrl++".
    ending = ["plus"] * text.endswith("+")
    parts = (re.sub(r"^(keycode_)+", "", part.strip()) for part in text.split("+"))
    named = [_KEY_NAMES.get(part, part) for part in parts if part] + ending
    held = [name for name in _MODIFIERS if name in named]
    return "+".join([*held, *(name for name in named if name not in _MODIFIERS)])
