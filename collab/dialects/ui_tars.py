"""UI-TARS 1.0, 1.5 and 2, and the hosted Doubao-1.5-UI-TARS.

One vocabulary in two surfaces: `Thought: … Action: click(…)`, and nested tags from version 2 on. A line break at the
end of a typed text submits it. `scroll` names the side of the content that comes into sight.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collab.dialects.actions import Grid, Pair, Resize, tidy
from collab.dialects.base import Dialect, Spelling, Verb, verb
from collab.dialects.syntaxes import CallText, XmlTool


def _list_verbs(point: str, start: str, end: str) -> tuple[Verb, ...]:
    """List the verbs, with these arguments for points."""
    # One word may mean two things: a drag moves the finger on a phone, and what the mouse holds elsewhere.
    return (
        verb("click", "click", "tap or click", point=point),
        verb("long_press", "long_press", "hold a point", point=point, seconds="time?", world="mobile"),
        verb("left_double", "double_click", "click twice", point=point, world="web"),
        verb("right_single", "right_click", "click with the right button", point=point, world="web"),
        verb("drag", "swipe", "move the finger from one point to another", point=start, to=end, world="mobile"),
        verb("drag", "drag", "drag from one point to another", point=start, to=end, world="web"),
        verb("scroll", "swipe", point=start, to=end, world="mobile"),
        verb(
            *("scroll", "scroll", "show what lies in direction: up, down, left or right"),
            point=f"{point}?",
            direction="direction",
        ),
        verb("type", "type", r"type content; \n at its end submits it", text="content"),
        verb("hotkey", "keys", "press keys together, in small letters with spaces between", text="key", world="web"),
        verb("open_app", "open_app", "open an app by its name", text="app_name", world="mobile"),
        verb("press_home", "home", "go to the home screen", world="mobile"),
        verb("press_back", "back", "go back", world="mobile"),
        verb("press_enter", "enter", world="mobile"),
        verb("wait", "wait", "wait for a change"),
        verb("finished", "done", "end the task; content is the answer or report", text="content?"),
        verb("call_user", "ask_user", "ask the user for help", text="content?"),
        # Words that only the vendor's parser knows.
        verb("left_single", "click", point=point, world="web"),
        verb("hover", "hover", point=point, world="web"),
        verb("move_to", "hover", point=point, world="web"),
        verb("select", "drag", point=start, to=end, world="web"),
        verb("mouse_down", "mouse_down", world="web"),
        verb("mouse_up", "mouse_up", world="web"),
        verb("hotkey", "keys", text="hotkey", world="web"),
        *(
            verb(says, kind, text=argument, world="web")
            for says, kind in (("press", "hold_keys"), ("release", "release_keys"))
            for argument in ("key", "press")
        ),
    )


def _spell_box(point: Pair) -> str:
    return f"({tidy(point[0])},{tidy(point[1])})"


def _spell_point(point: Pair) -> str:
    return f"<point>{tidy(point[0])} {tidy(point[1])}</point>"


def _spell_keys(keys: str, argument: str) -> str:
    return keys.replace("+", " ")


_LABELS = re.compile(r"\bThought:|\bAction:\s*\Z")

UI_TARS_15 = Dialect(
    name="ui-tars-1.5",
    title="UI-TARS-1.5 (open weights)",
    models=r"ui-?tars[-_]?1[._]5|ui-?tars(?!.*(?:doubao|[-_](?:1[._]0|2|(?:2|7|72)b-(?:sft|dpo))))",
    source="https://github.com/bytedance/UI-TARS/blob/main/README_coordinates.md",
    syntax=CallText(label=re.compile(r"^[ \t]*+Action:", re.MULTILINE)),
    verbs=_list_verbs("start_box", "start_box", "end_box"),
    grid=Grid(span=None),
    resize=Resize(factor=28, least=78_400, most=12_845_056),
    spelling=Spelling(point=_spell_box, keys=_spell_keys),
    has_submitting_newline=True,
    labels=_LABELS,
    opening="You operate {world} from its screenshots and your earlier steps, one action at a time.",
    unit="Points are (x,y) in pixels of the screenshot, which is {width}x{height}.",
    answer="Answer in two lines:\nThought: a small plan, then the next action and its target in one sentence\n"
    "Action: one action from the list",
    task="Task: {goal}\n{history}",
    step="Thought: {reason}\nDone: {action}",
)

UI_TARS_10 = replace(
    UI_TARS_15,
    name="ui-tars-1.0",
    title="UI-TARS 1.0 (on Qwen2-VL)",
    models=r"ui-?tars[-_](?:1[._]0|(?:2|7|72)b-(?:sft|dpo))",
    source="https://github.com/bytedance/UI-TARS/blob/main/README_v1.md",
    grid=Grid(span=1000),
    resize=Resize(),
    spelling=Spelling(
        point=lambda point: f"<|box_start|>{_spell_box(point)}<|box_end|>",
        keys=_spell_keys,
    ),
    unit="Points are (x,y) from 0 to 1000, between <|box_start|> and <|box_end|>.",
)

DOUBAO = replace(
    UI_TARS_15,
    name="ui-tars-doubao",
    title="Doubao-1.5-UI-TARS (hosted)",
    models=r"doubao.*ui-?tars",
    source="https://github.com/bytedance/UI-TARS/blob/main/codes/ui_tars/prompt.py",
    verbs=_list_verbs("point", "start_point", "end_point"),
    grid=Grid(span=1000),
    resize=Resize(),
    spelling=Spelling(point=_spell_point, keys=_spell_keys),
    unit="Points are <point>x y</point> with numbers from 0 to 1000.",
)

UI_TARS_2 = replace(
    DOUBAO,
    name="ui-tars-2",
    title="UI-TARS-2, Seed 1.6 and later",
    models=r"ui-?tars[-_]?2(?![0-9b])|seed-?[12][._]\d",
    source="https://pypi.org/project/ui-tars",
    syntax=XmlTool(tag="seed:tool_call", tools={}, has_lines=False, form="<gui_think>{reason}</gui_think>{calls}"),
    labels=None,
    answer="Think between <gui_think> and </gui_think>, then call one function between <seed:tool_call> and "
    "</seed:tool_call>.",
)

DIALECTS = (UI_TARS_10, UI_TARS_15, DOUBAO, UI_TARS_2)
