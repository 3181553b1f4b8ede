"""Computer use of OpenAI, Anthropic and Gemini: actions as typed items of the vendor's own interface.

    {"type": "computer_call", "actions": [{"type": "click", "button": "left", "x": 1, "y": 2}]}        openai
    {"type": "tool_use", "name": "computer", "input": {"action": "left_click", "coordinate": [1, 2]}}  anthropic
    {"type": "tool_use", "name": "left_click", "input": {"coordinate": [1, 2]}}                        its toolset
    {"function_call": {"name": "click_at", "args": {"x": 1, "y": 2}}}                                  gemini

A reply is the JSON of one item, of a list, or of the whole response; an item of text alone ends the task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collab.dialects.actions import Grid, Resize
from collab.dialects.base import Dialect, Spelling, SpokenCall, Verb, World, verb
from collab.dialects.syntaxes import dump_json

Found = tuple[str, Mapping[str, Any] | str]
"""Name and arguments of an action; "text" or "thought" and a text for words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedItems:
    """Items of a vendor's interface, as JSON."""

    unpack: Callable[[Any], Iterator[Found]]
    """Decoded JSON → what it says, in order."""
    pack: Callable[[str, Sequence[SpokenCall]], Any]
    """Reason and actions → JSON."""

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield the actions of an item, a list or a response; words alone are the end of the task."""
        try:
            found = list(self.unpack(json.loads(text, strict=False)))[:50]
        except (ValueError, RecursionError):
            return
        words, answer = (
            "\n".join(value for name, value in found if name in names and isinstance(value, str))
            for names in (("thought", "text"), ("text",))
        )
        calls = [
            SpokenCall(name=name, arguments=value, reason=words) for name, value in found if isinstance(value, Mapping)
        ]
        yield from calls
        if answer.strip() and not calls:
            yield SpokenCall(name="text", arguments={"text": answer}, reason="")

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write one response."""
        return dump_json(self.pack(reason, calls))

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Return nothing: the interface declares the tool itself."""
        return ""


def _list_items(value: Any, *keys: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of an item, a list of items, or a response that holds them under one of these keys."""
    if isinstance(value, list):
        for one in value[:50]:
            yield from _list_items(one)
    elif isinstance(value, Mapping):
        inner = next((value[key] for key in keys if isinstance(value.get(key), list)), None)
        yield from [value] if inner is None else _list_items(inner, *keys)


def _get_text(item: Mapping[str, Any]) -> str:
    text = item.get("text")
    return text if isinstance(text, str) else ""


_TEXT = verb("text", "done", text="text")

# ------------------------------------------------------------------------------------------------------- OpenAI


def _unpack_openai(value: Any) -> Iterator[Found]:
    for item in _list_items(value, "output"):
        kind = item.get("type")
        if kind == "message":
            yield from (("text", _get_text(part)) for part in _list_items(item.get("content")))
        elif kind == "reasoning":
            yield from (("thought", _get_text(part)) for part in _list_items(item.get("summary")))
        elif kind == "computer_call":
            actions = item.get("actions")
            yield from map(_unpack_openai_action, actions if isinstance(actions, list) else [item.get("action")])


def _unpack_openai_action(action: Any) -> Found:
    if not isinstance(action, Mapping):
        return "nothing", {}
    fields = {name: value for name, value in action.items() if name != "type"}
    name = str(action.get("type"))
    path = fields.pop("path", None)
    if isinstance(path, list) and len(path) >= 2 and all(isinstance(one, Mapping) for one in path):
        fields["start"], fields["end"] = ([one.get("x"), one.get("y")] for one in (path[0], path[-1]))
    if not fields.get("keys"):  # no keys are null or an empty list
        fields.pop("keys", None)
    if fields.get("button") in ("back", "forward"):  # they have a place, too
        fields = {"button": fields["button"]}
    across, down = fields.get("scroll_x"), fields.get("scroll_y")
    if isinstance(across, int) and isinstance(down, int) and across and down:  # the longer way counts
        fields["scroll_y" if abs(across) > abs(down) else "scroll_x"] = 0
    return name, fields


def _pack_openai(reason: str, calls: Sequence[SpokenCall]) -> Any:
    said = [{"type": "output_text", "text": reason, "annotations": []}] if reason else []
    message = {"id": "msg", "type": "message", "role": "assistant", "status": "completed"}
    items: list[Any] = [message | {"content": said}] if said else []
    actions = []
    for call in calls:
        fields = dict(call.arguments)
        if call.name == "text":
            final = {"type": "output_text", "text": fields.get("text", ""), "annotations": []}
            return [message | {"content": [final]}]
        if call.name == "drag":
            ends = fields.pop("start"), fields.pop("end")
            fields["path"] = [{"x": point[0], "y": point[1]} for point in ends]
        place = {"x": 0, "y": 0} if call.name == "click" else {}  # the buttons "back" and "forward" have one, too
        actions.append({"type": call.name} | place | fields)
    head = {"id": "item", "call_id": "call", "type": "computer_call", "status": "completed"}
    return [*items, head | {"pending_safety_checks": [], "actions": actions}]


_SCROLLS: tuple[tuple[dict[str, str | int], tuple[str, str], str], ...] = (
    ({"scroll_x": 0}, ("down", "up"), "scroll_y"),
    ({"scroll_y": 0}, ("right", "left"), "scroll_x"),
    ({}, ("down", "up"), "scroll_y"),
)
"""Argument that selects a form of OpenAI's scroll, its directions, and the argument of its size."""

OPENAI = Dialect(
    name="openai-computer",
    title="OpenAI computer use",
    models=r"^computer-use-preview",
    source="https://pypi.org/project/openai",
    syntax=TypedItems(unpack=_unpack_openai, pack=_pack_openai),
    verbs=tuple(
        replace(one, world="web")
        for one in (
            verb("click", "click", when={"button": "left"}, point="x,y", hold="keys?"),
            verb("click", "right_click", when={"button": "right"}, point="x,y", hold="keys?"),
            verb("click", "middle_click", when={"button": "wheel"}, point="x,y", hold="keys?"),
            verb("click", "back", when={"button": "back"}),
            verb("click", "forward", when={"button": "forward"}),
            verb("double_click", "double_click", point="x,y", hold="keys?"),
            verb("drag", "drag", point="start", to="end", hold="keys?"),
            verb("keypress", "keys", text="keys"),
            verb("move", "hover", point="x,y", hold="keys?"),
            verb("screenshot", "screenshot"),
            *(
                verb("scroll", "scroll", when=when, signed=signed, point="x,y", amount=amount, hold="keys?")
                for when, signed, amount in _SCROLLS
            ),
            verb("type", "type", text="text"),
            verb("wait", "wait"),
            _TEXT,
        )
    ),
    grid=Grid(span=None),
    resize=Resize(long_side=2048),
    spelling=Spelling(keys=lambda keys, argument: keys.split("+")),
    typed_items=True,
    step="{number}. {action} -> {effect}",
    task="{goal}\n{history}",
)

# ----------------------------------------------------------------------------------------------------- Anthropic


def _unpack_anthropic(value: Any) -> Iterator[Found]:
    for item in _list_items(value, "content"):
        if item.get("type") == "text":
            yield "text", _get_text(item)
        fields = item.get("input") if item.get("type") == "tool_use" else item if "action" in item else None
        if isinstance(fields, Mapping):
            # In the set of tools, the tool itself is the action.
            name = fields.get("action", item.get("name"))
            yield str(name), {key: one for key, one in fields.items() if key != "action" and one != ""}


def _pack_anthropic(reason: str, calls: Sequence[SpokenCall]) -> Any:
    if calls and calls[0].name == "text":
        return [{"type": "text", "text": calls[0].arguments.get("text", "")}]
    uses = [
        {"type": "tool_use", "id": "toolu", "name": "computer", "input": {"action": call.name, **call.arguments}}
        for call in calls
    ]
    return [*([{"type": "text", "text": reason}] if reason else []), *uses]


ANTHROPIC = Dialect(
    name="anthropic-computer",
    title="Anthropic computer use",
    models=r"claude",
    source="https://pypi.org/project/anthropic",
    syntax=TypedItems(unpack=_unpack_anthropic, pack=_pack_anthropic),
    verbs=tuple(
        replace(one, world="web")
        for one in (
            verb("left_click", "click", point="coordinate?", hold="text?"),
            verb("right_click", "right_click", point="coordinate?", hold="text?"),
            verb("middle_click", "middle_click", point="coordinate?", hold="text?"),
            verb("double_click", "double_click", point="coordinate?", hold="text?"),
            verb("triple_click", "triple_click", point="coordinate?", hold="text?"),
            verb("left_click_drag", "drag", point="start_coordinate", to="coordinate", hold="text?"),
            verb("left_mouse_down", "mouse_down"),
            verb("left_mouse_up", "mouse_up"),
            verb("mouse_move", "hover", point="coordinate"),
            verb("key", "keys", text="text", amount="repeat?"),
            verb("hold_key", "hold_keys", text="text", seconds="duration"),
            verb("type", "type", text="text"),
            verb(
                *("scroll", "scroll"),
                point="coordinate?",
                direction="scroll_direction",
                amount="scroll_amount?",
                hold="text?",
            ),
            verb("wait", "wait", seconds="duration?"),
            verb("screenshot", "screenshot"),
            verb("cursor_position", "screenshot"),
            verb("zoom", "zoom"),
            _TEXT,
        )
    ),
    grid=Grid(span=None),
    resize=Resize(long_side=1568, sizes=((1024, 768), (1280, 800), (1366, 768))),
    harmless={"region": ()},
    typed_items=True,
    step=OPENAI.step,
    task=OPENAI.task,
)

# -------------------------------------------------------------------------------------------------------- Gemini


def _unpack_gemini(value: Any) -> Iterator[Found]:
    for outer in _list_items(value, "candidates", "parts"):
        content = outer.get("content", outer)
        for part in _list_items(content, "parts"):
            call = part.get("function_call", part.get("functionCall"))
            arguments = (call.get("args") or {}) if isinstance(call, Mapping) else None
            if isinstance(call, Mapping) and isinstance(arguments, Mapping):
                yield str(call.get("name")), _fill_gemini(str(call.get("name")), dict(arguments))
            elif _get_text(part):
                yield "thought" if part.get("thought") is True else "text", _get_text(part)


def _fill_gemini(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Give arguments their documented defaults and one spelling."""
    if name == "type_text_at":
        fields.setdefault("press_enter", True)
        fields.setdefault("clear_before_typing", True)
    for old, new in (("end_x", "destination_x"), ("end_y", "destination_y")):
        if old in fields:
            fields[new] = fields.pop(old)
    return fields


def _pack_gemini(reason: str, calls: Sequence[SpokenCall]) -> Any:
    if calls and calls[0].name == "text":
        return [{"text": calls[0].arguments.get("text", "")}]
    parts = [{"function_call": {"name": call.name, "args": dict(call.arguments)}} for call in calls]
    return [*([{"text": reason}] if reason else []), *parts]


GEMINI = Dialect(
    name="gemini-computer",
    title="Gemini computer use",
    models=r"gemini.*computer-use",
    source="https://github.com/google-gemini/computer-use-preview",
    syntax=TypedItems(unpack=_unpack_gemini, pack=_pack_gemini),
    verbs=tuple(
        replace(one, world="web")
        for one in (
            verb("click_at", "click", point="x,y"),
            verb("click", "click", point="x,y"),
            verb("double_click", "double_click", point="x,y"),
            verb("triple_click", "triple_click", point="x,y"),
            verb("middle_click", "middle_click", point="x,y"),
            verb("right_click", "right_click", point="x,y"),
            verb("hover_at", "hover", point="x,y"),
            verb("move", "hover", point="x,y"),
            verb(
                *("type_text_at", "type"),
                point="x,y",
                text="text",
                enter="press_enter",
                clear="clear_before_typing",
            ),
            verb("type", "type", text="text", enter="press_enter?"),
            verb("scroll_document", "scroll", direction="direction"),
            verb("scroll_at", "scroll", point="x,y", direction="direction", amount="magnitude?"),
            verb("scroll", "scroll", point="x,y", direction="direction", amount="magnitude?"),
            verb("drag_and_drop", "drag", point="x,y", to="destination_x,destination_y"),
            verb("key_combination", "keys", text="keys"),
            verb("hotkey", "keys", text="keys"),
            verb("press_key", "keys", text="key"),
            verb("key_down", "hold_keys", text="key"),
            verb("key_up", "release_keys", text="key"),
            verb("mouse_down", "mouse_down"),
            verb("mouse_up", "mouse_up"),
            verb("wait_5_seconds", "wait", sets={"seconds": 5.0}),
            verb("wait", "wait", seconds="seconds?"),
            verb("go_back", "back"),
            verb("go_forward", "forward"),
            verb("navigate", "open_url", text="url"),
            verb("open_web_browser", "screenshot"),
            verb("take_screenshot", "screenshot"),
            _TEXT,
        )
    ),
    grid=Grid(span=1000),
    harmless={"safety_decision": ()},
    typed_items=True,
    step=OPENAI.step,
    task=OPENAI.task,
)

NOT_DONE: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("hold_key", "left_mouse_down", "left_mouse_up", "zoom"),
    "gemini": ("key_down", "key_up", "mouse_down", "mouse_up", "search"),
}
"""Vendor → actions that no page here can do: requests exclude them, since each would cost a step."""

DIALECTS = (OPENAI, ANTHROPIC, GEMINI)
