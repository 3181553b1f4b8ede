"""GLM-4.1V and GLM-4.5V on phones and on desktops, and AutoGLM-Phone.

On phones, GLM-V answers in AndroidWorld's verbs with boxes instead of indices; `swipe` names the way of the finger.
On desktops, it answers with calls. AutoGLM-Phone has two calls, `do` and `finish`, and clears a field before it types.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collab.dialects.actions import Grid, Pair, tidy
from collab.dialects.base import Dialect, Spelling, verb
from collab.dialects.syntaxes import CallText, JsonText

_ACTION = re.compile(r"^[ \t]*+Action:", re.MULTILINE)
_LABELS = re.compile(r"\b(?:Memory|Reason|Action|Thought):|<\|(?:begin|end)_of_box\|>")


def _spell_box(point: Pair) -> list[list[float]]:
    corner = [tidy(point[0]), tidy(point[1])]
    return [corner + corner]


def _spell_pair(point: Pair) -> str:
    return f"[{tidy(point[0])},{tidy(point[1])}]"


GLM = Dialect(
    name="glm-4.5v",
    title="GLM-4.1V, GLM-4.5V and GLM-4.6V on phones",
    models=r"glm-?4[._][1-9]v",
    model_types=("glm4v", "glm4v_moe", "glm46v"),
    source="https://github.com/zai-org/GLM-V/tree/main/examples/gui-agent",
    syntax=JsonText(key="action_type", label=_ACTION, form="Memory: none\nReason: {reason}\nAction: {calls}"),
    verbs=tuple(
        replace(one, world="mobile")
        for one in (
            verb("click", "click", "tap the middle of a box", point="box_2d"),
            verb("double_tap", "double_click", "tap it twice", point="box_2d"),
            verb("long_press", "long_press", "hold it", point="box_2d"),
            verb(
                *("input_text", "type", "type into the field in the box and press Enter; override empties it first"),
                text="text",
                point="box_2d?",
                clear="override?",
                sets={"enter": True},
            ),
            verb("swipe", "swipe", "move the finger in direction", direction="direction", point="box_2d?"),
            verb("keyboard_enter", "enter", "press Enter"),
            verb("navigate_home", "home", "go to the home screen"),
            verb("navigate_back", "back", "go back"),
            verb("open_app", "open_app", "open an app by its name", text="app_name"),
            verb("status", "done", "end the task as solved", when={"goal_status": "complete"}),
            verb("status", "failed", "end the task as not solvable", when={"goal_status": "infeasible"}),
            verb("answer", "answer", "answer the user", text="text"),
            verb("wait", "wait", "wait for a change"),
        )
    ),
    grid=Grid(span=999),
    spelling=Spelling(point=_spell_box),
    labels=re.compile(rf"\bMemory:\s*none\b|{_LABELS.pattern}"),
    opening="You operate {world}: the screenshot shows its present state.",
    unit="A box is [[left, top, right, bottom]], with numbers from 0 to 999.",
    answer="Answer in three lines:\nMemory: what has to be remembered, or none\nReason: why this action\n"
    "Action: one action from the list",
    task="Goal: {goal}\n\nHistory:\n{history}",
    step="Step {number}: {action} -> {effect}",
    no_steps="none",
)

GLM_DESKTOP = replace(
    GLM,
    name="glm-4.5v-desktop",
    title="GLM-4.1V, GLM-4.5V and GLM-4.6V on desktops",
    models="",
    model_types=(),
    syntax=CallText(label=_ACTION, form="Memory: none\nReason: {reason}\nAction: {calls}", joint="\n"),
    verbs=tuple(
        replace(one, world="web")
        for one in (
            verb("left_click", "click", "click", point="start_box"),
            verb("right_click", "right_click", "click with the right button", point="start_box"),
            verb("middle_click", "middle_click", "click with the middle button", point="start_box"),
            verb("hover", "hover", "move the mouse there", point="start_box"),
            verb("left_double_click", "double_click", "click twice", point="start_box"),
            verb("left_drag", "drag", "drag from one point to another", point="start_box", to="end_box"),
            verb("key", "keys", "press a key, or several joined by +", text="keys"),
            verb("type", "type", "type a text", text="content"),
            verb(
                *("scroll", "scroll", "show what lies in direction"),
                point="start_box?",
                direction="direction",
                amount="step?",
            ),
            verb("WAIT", "wait", "wait for a change"),
            verb("DONE", "done", "end the task as solved"),
            verb("FAIL", "failed", "end the task as not solvable"),
        )
    ),
    spelling=Spelling(point=_spell_pair),
    harmless={"element_info": ()},
    unit="A point is '[x,y]', with numbers from 0 to 999.",
)

AUTOGLM = Dialect(
    name="autoglm",
    title="AutoGLM-Phone (Open-AutoGLM)",
    models=r"autoglm",
    source="https://github.com/zai-org/Open-AutoGLM",
    syntax=CallText(
        label=re.compile(r"<answer>"),
        form="<think>{reason}</think>\n<answer>{calls}</answer>",
        joint="\n",
        quote='"',
    ),
    verbs=tuple(
        replace(one, world="mobile")
        for one in (
            verb("do", "click", "tap a point", when={"action": "Tap"}, point="element"),
            verb(
                *("do", "type", "empty the field with the cursor and type"),
                when={"action": "Type"},
                sets={"clear": True},
                text="text",
            ),
            verb("do", "type", when={"action": "Type_Name"}, sets={"clear": True}, text="text"),
            verb("do", "swipe", "move the finger", when={"action": "Swipe"}, point="start", to="end"),
            verb("do", "long_press", "hold a point", when={"action": "Long Press"}, point="element"),
            verb("do", "double_click", "tap a point twice", when={"action": "Double Tap"}, point="element"),
            verb("do", "open_app", "open an app by its name", when={"action": "Launch"}, text="app"),
            verb("do", "back", "go back", when={"action": "Back"}),
            verb("do", "home", "go to the home screen", when={"action": "Home"}),
            verb("do", "wait", "wait", when={"action": "Wait"}, seconds="duration?"),
            verb("do", "ask_user", "let the user take over", when={"action": "Take_over"}, text="message?"),
            verb("do", "ask_user", when={"action": "Interact"}, text="message?"),
            verb("do", "note", "note what the screen shows", when={"action": "Note"}, text="message?"),
            verb("do", "note", when={"action": "Call_API"}, text="instruction?"),
            verb("finish", "done", "end the task with an answer or report", text="message?"),
        )
    ),
    grid=Grid(span=1000),
    spelling=Spelling(seconds=lambda seconds: f"{seconds:g} seconds"),
    labels=re.compile(r"<answer>"),
    unit="Points are [x,y] from [0,0] at the top left to [1000,1000].",
    answer="Answer in two parts:\n<think>why this action</think>\n<answer>one action from the list</answer>",
    task="{goal}\n\n{history}",
    step="{number}. {action} -> {effect}",
)

DIALECTS = (GLM, GLM_DESKTOP, AUTOGLM)
