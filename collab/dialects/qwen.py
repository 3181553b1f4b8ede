"""Qwen2.5-VL, Qwen3-VL and Qwen3.5, and what was built on them: GUI-Owl and MAI-UI.

All call a tool `mobile_use` on phones and `computer_use` elsewhere. They differ in the surface of the call, in the
grid, and in what stands around the call.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collab.dialects.actions import Grid, Resize
from collab.dialects.base import Dialect, Spelling, Verb, verb
from collab.dialects.syntaxes import JsonTool, XmlTool

_BUTTONS = {
    "Back": ("back", "go back"),
    "Home": ("home", "go to the home screen"),
    "Menu": ("recents", "show the recent apps"),  # documented as the menu of apps in the background
    "Enter": ("enter", "press Enter"),
}
"""Name of a button → kind and what it does."""
_SOURCE = "https://github.com/QwenLM/Qwen3-VL/tree/main/cookbooks"

_FINGER = (
    verb("click", "click", "tap the point coordinate", point="coordinate", world="mobile"),
    verb(
        *("long_press", "long_press", "hold the point coordinate for time seconds"),
        point="coordinate",
        seconds="time?",
        world="mobile",
    ),
    verb(
        *("swipe", "swipe", "move the finger from coordinate to coordinate2"),
        point="coordinate",
        to="coordinate2",
        world="mobile",
    ),
)
_TYPE = verb("type", "type", "type text into the field with the cursor", text="text")
_KEY = verb("key", "keys", "press the key that text names, such as volume_up", text="text", world="mobile")
_SYSTEM = tuple(
    verb("system_button", kind, f"{name} to {doc}", when={"button": name}, world="mobile")
    for name, (kind, doc) in _BUTTONS.items()
)
_OPEN = verb("open", "open_app", "open the app that text names", text="text", world="mobile")
_ANSWER = verb("answer", "answer", "give the answer text", text="text")
_END = (
    verb("wait", "wait", "wait for time seconds", seconds="time?"),
    verb("terminate", "done", "end the task as solved", when={"status": "success"}),
    verb("terminate", "failed", "end the task as not solvable", when={"status": "failure"}),
)
_MOUSE = (
    verb("left_click", "click", "click the point coordinate", point="coordinate", world="web"),
    verb("double_click", "double_click", "click twice", point="coordinate", world="web"),
    verb("triple_click", "triple_click", "click three times", point="coordinate", world="web"),
    verb("right_click", "right_click", "click with the right button", point="coordinate", world="web"),
    verb("middle_click", "middle_click", "click with the middle button", point="coordinate", world="web"),
    verb("mouse_move", "hover", "move the mouse to coordinate", point="coordinate", world="web"),
    verb("left_click_drag", "drag", "drag from the mouse to coordinate", to="coordinate", world="web"),
    verb("key", "keys", "press the keys in the list keys together", text="keys", world="web"),
    verb(
        *("scroll", "scroll", "scroll by pixels: up if positive, down if negative"),
        amount="pixels",
        point="coordinate?",
        signed=("up", "down"),
        world="web",
    ),
    verb(
        *("hscroll", "scroll", "scroll sideways by pixels: right if positive"),
        amount="pixels",
        point="coordinate?",
        signed=("right", "left"),
        world="web",
    ),
)
_KEYS = Spelling(keys=lambda keys, argument: keys.split("+") if argument == "keys" else keys)
_TOOLS = JsonTool(tools={"mobile": "mobile_use", "web": "computer_use"})
_PIXELS = Grid(span=None)
_THOUSAND = Grid(span=1000)

QWEN25 = Dialect(
    name="qwen2.5-vl",
    title="Qwen2.5-VL",
    models=r"qwen2[._]?5[-_]?vl",
    model_types=("qwen2_5_vl",),
    source=_SOURCE,
    syntax=_TOOLS,
    verbs=(*_FINGER, _TYPE, _KEY, *_SYSTEM, _OPEN, *_MOUSE, *_END, replace(_ANSWER, world="web")),
    grid=_PIXELS,
    resize=Resize(factor=28, least=3_136, most=12_845_056),
    spelling=_KEYS,
    opening="You are a helpful assistant who operates {world} for its user.",
    unit="The screen is {width}x{height}: coordinates are pixels [x, y] of the screenshot.",
    answer="Answer with one call, a JSON object of name and arguments, between <tool_call> and </tool_call>.",
    task="The user's request: {goal}\nDone so far on this device: {history}",
    step="Step {number}: {reason}; ",
    no_steps="nothing",
)

QWEN3 = replace(
    QWEN25,
    name="qwen3-vl",
    title="Qwen3-VL",
    models=r"qwen3[-_]?vl",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    syntax=replace(_TOOLS, form="Thought: {reason}\n{calls}"),
    verbs=(
        *(*_FINGER, _TYPE, _ANSWER, *_SYSTEM, _OPEN),
        verb("open_app", "open_app", text="app_name", world="mobile"),
        *(*_MOUSE, *_END),
    ),
    grid=_THOUSAND,
    resize=Resize(factor=32, least=65_536, most=16_777_216),
    labels=re.compile(r"\bThought:|\bAction:[^\n]*(?=\s*\Z)"),
    unit="Coordinates are [x, y] from 0 to 1000, whatever the size of the screen.",
    answer="Answer in three lines:\nThought: what the screen shows and what follows from it\n"
    "Action: the next step in one sentence\n"
    "<tool_call> one call, a JSON object of name and arguments </tool_call>",
)

QWEN35 = replace(
    QWEN3,
    name="qwen3.5",
    title="Qwen3.5 and later",
    models=r"qwen3[._](?:[5-9])|qwen[4-9]",
    model_types=("qwen3_5", "qwen3_5_moe", "qwen4_exp"),
    source="https://github.com/QwenLM/Qwen3.5",
    syntax=XmlTool(tag="tool_call", tools={"mobile": "mobile_use", "web": "computer_use"}, has_lines=True),
    verbs=(
        *QWEN3.verbs,
        verb("call_user", "ask_user", "ask the user text", text="text?", world="mobile"),
        verb("call_user", "answer", text="text?", world="web"),
        verb("interact", "ask_user", text="text?"),
    ),
    labels=None,
    answer="Answer with one call:\n<tool_call>\n<function=NAME>\n<parameter=action>\nVERB\n</parameter>\n"
    "<parameter=ARGUMENT>\nVALUE\n</parameter>\n</function>\n</tool_call>",
)

GUI_OWL = replace(
    QWEN3,
    name="gui-owl",
    title="GUI-Owl 1.5, Mobile-Agent-v3",
    models=r"gui[-_]?owl|mobile-agent-v3",
    model_types=(),
    source="https://github.com/X-PLUG/MobileAgent",
    syntax=replace(_TOOLS, form='Action: "{reason}"\n{calls}'),
    labels=re.compile(r"\bAction:|(?<=:)\s*\"|\"\s*\Z"),
    unit="The screen counts as 1000x1000: coordinates are [x, y] from 0 to 1000.",
    answer='Answer in two parts:\nAction: "the next step in one sentence"\n'
    "<tool_call> one call, a JSON object of name and arguments </tool_call>",
    task="Instruction: {goal}\nPrevious actions: {history}",
    step="Step{number}: {reason}. ",
    no_steps="none",
)

_MAI_VERBS: tuple[Verb, ...] = (
    verb("click", "click", "tap the point coordinate", point="coordinate"),
    verb("long_press", "long_press", "hold the point coordinate", point="coordinate"),
    verb("double_click", "double_click", "tap the point coordinate twice", point="coordinate"),
    verb("type", "type", "type text into the field with the cursor", text="text"),
    verb("swipe", "swipe", "move the finger in direction, from coordinate", direction="direction", point="coordinate?"),
    verb(
        *("drag", "drag", "hold start_coordinate and move to end_coordinate"),
        point="start_coordinate",
        to="end_coordinate",
    ),
    verb("open", "open_app", "open the app that text names", text="text"),
    *(
        verb("system_button", kind, f"{name.lower()} to {doc}", when={"button": name.lower()})
        for name, (kind, doc) in _BUTTONS.items()
    ),
    verb("wait", "wait", "wait for a change"),
    verb("terminate", "done", "end the task as solved", when={"status": "success"}),
    verb("terminate", "failed", "end the task as not solvable", when={"status": "fail"}),
    verb("answer", "answer", "give the answer text", text="text"),
    verb("ask_user", "ask_user", "ask the user text", text="text"),
)

MAI_UI = Dialect(
    name="mai-ui",
    title="MAI-UI",
    models=r"mai[-_]?ui",
    source="https://github.com/Tongyi-MAI/MAI-UI",
    syntax=JsonTool(
        tools={"mobile": "mobile_use", "web": "mobile_use"}, form="<thinking>\n{reason}\n</thinking>\n{calls}"
    ),
    verbs=tuple(replace(one, world="mobile") for one in _MAI_VERBS),
    grid=Grid(span=999),
    resize=Resize(factor=32, least=65_536, most=16_777_216),
    is_picture_first=False,
    opening="You operate {world} by a tool, one step at a time.",
    unit="Coordinates are [x, y] from 0 to 999.",
    answer="Think first, then call:\n<thinking>\nwhat to do next and why\n</thinking>\n"
    "<tool_call>\na JSON object of name and arguments\n</tool_call>",
    task="Instruction: {goal}\nDone so far:\n{history}",
    step="{number}. {action} -> {effect}",
    no_steps="nothing",
)

DIALECTS = (QWEN25, QWEN3, QWEN35, GUI_OWL, MAI_UI)
