"""A pattern that holds a server to the reply format, so that every reply is a reason and one well-formed action.

    Reason: one line
    Action: {"action_type": "click", "index": 7}        or        Action: click(id=7)

Which syntax and which actions is read off the list of actions in the system text: what the model was told is what it
may say. The pattern is a plain regular expression without look-around, as grammar engines read it. What an action may
hold (which element, which words) stays the grammar's business.
"""

from __future__ import annotations

import functools
import re

_REASON = r"Reason: [^\n]{1,500}"
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,31}"
_NUMBER = r"-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,6})?"
_JSON_TEXT = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt]){0,500}"'
_JSON_VALUE = rf"({_JSON_TEXT}|{_NUMBER}|true|false)"
_CALL_TEXT = r"""("([^"\\\x00-\x1f]|\\["\\nrt]){0,500}"|'([^'\\\x00-\x1f]|\\['\\nrt]){0,500}')"""
_CALL_VALUE = rf"({_CALL_TEXT}|{_NUMBER}|True|False)"
_MOST_FIELDS = 5

_JSON_LINE = re.compile(r'^\{"action_type": "([A-Za-z0-9_]+)"', re.MULTILINE)
_CALL_LINE = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)\(", re.MULTILINE)


@functools.lru_cache(maxsize=32)
def reply_pattern(system: str) -> str | None:
    """The pattern of a reply to a prompt with this system text; None when the text lists no actions."""
    if types := _JSON_LINE.findall(system):
        return rf"{_REASON}\nAction: {_json_action(types)}"
    if types := _CALL_LINE.findall(system):
        return rf"{_REASON}\nAction: {_call(types)}"
    return None


def _json_action(types: list[str]) -> str:
    field = rf'"{_NAME}": {_JSON_VALUE}'
    return rf'\{{"action_type": "({"|".join(types)})"(, {field}){{0,{_MOST_FIELDS}}}\}}'


def _call(types: list[str]) -> str:
    field = rf"{_NAME}={_CALL_VALUE}"
    return rf"({'|'.join(types)})\(({field}(, {field}){{0,{_MOST_FIELDS - 1}}})?\)"
