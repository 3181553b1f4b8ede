"""Aguvis: calls of pyautogui and of a few functions for phones and browsers, with points as fractions of the screen."""

from __future__ import annotations

import re

from collab.dialects.actions import Grid, Resize, tidy
from collab.dialects.base import Dialect, Spelling, verb
from collab.dialects.syntaxes import CallText

AGUVIS = Dialect(
    name="aguvis",
    title="Aguvis",
    models=r"aguvis",
    source="https://github.com/xlang-ai/aguvis",
    syntax=CallText(
        label=re.compile(r"<\|recipient\|>\s*+os\b"),
        form="<|recipient|>all\nThought: {reason}\n<|recipient|>os\n{calls}<|diff_marker|>",
        joint="\n",
        tight=False,
    ),
    verbs=(
        verb("pyautogui.click", "click", "tap or click", point="x,y"),
        verb("pyautogui.doubleClick", "double_click", "click twice", point="x,y", world="web"),
        verb("pyautogui.tripleClick", "triple_click", point="x,y", world="web"),
        verb("pyautogui.rightClick", "right_click", "click with the right button", point="x,y", world="web"),
        verb("pyautogui.middleClick", "middle_click", point="x,y", world="web"),
        *(
            verb("pyautogui.click", kind, when={argument: value}, point="x,y", world="web")
            for argument, value, kind in (
                *(("clicks", 2, "double_click"), ("clicks", 3, "triple_click")),
                *(("button", "right", "right_click"), ("button", "middle", "middle_click")),
            )
        ),
        verb("pyautogui.moveTo", "hover", "move the mouse", point="x,y", world="web"),
        verb("pyautogui.dragTo", "drag", "drag from the mouse to a point", to="x,y", world="web"),
        verb("pyautogui.write", "type", "type a text", text="message"),
        verb("pyautogui.press", "keys", "press one key, such as enter", text="keys"),
        verb("pyautogui.press", "keys", text="keys", amount="presses"),
        verb("pyautogui.hotkey", "keys", "press keys together", text="keys", world="web"),
        verb(
            *("pyautogui.scroll", "scroll", "scroll by pages: up if positive"),
            amount="page",
            signed=("up", "down"),
            world="web",
        ),
        verb("browser.select_option", "select", "choose an option", point="x,y", text="value", world="web"),
        verb("mobile.swipe", "swipe", "move the finger", point="from_coord", to="to_coord", world="mobile"),
        verb("mobile.long_press", "long_press", "hold a point", point="x,y", seconds="duration?", world="mobile"),
        verb("mobile.open_app", "open_app", "open an app by its name", text="app_name", world="mobile"),
        verb("mobile.home", "home", "go to the home screen", world="mobile"),
        verb("mobile.back", "back", "go back", world="mobile"),
        verb("mobile.wait", "wait", "wait", seconds="seconds?", world="mobile"),
        verb("wait", "wait", "wait", seconds="seconds?", world="web"),
        verb("terminate", "done", "end the task as solved", when={"status": "success"}),
        verb("terminate", "failed", "end the task as not solvable", when={"status": "failure"}),
        verb("answer", "answer", "answer the user", text="answer"),
    ),
    grid=Grid(span=1, digits=4),
    resize=Resize(factor=28, least=3_136, most=12_845_056),
    spelling=Spelling(
        point=lambda point: [tidy(point[0]), tidy(point[1])],
        keys=lambda keys, argument: keys.split("+") if "+" in keys else keys,
    ),
    # Defaults of pyautogui, and the time that a movement takes.
    harmless={
        **{"clicks": (1,), "button": ("left",)},
        **dict.fromkeys(("interval", "duration", "tween", "logScreenshot", "_pause"), ()),
    },
    labels=re.compile(r"<\|recipient\|>\s*(?:all|os)|\b(?:Thought|Action):"),
    opening="You operate {world}: from a screenshot, an instruction and the earlier steps, choose the next action.",
    unit="Points are fractions of the screen's width and height, from 0 to 1.",
    answer="Answer in two parts:\n<|recipient|>all\nThought: why this action\n"
    "<|recipient|>os\none action from the list",
    task="Instruction: {goal}\n\nPrevious actions:\n{history}",
    step="Step {number}: {action}",
    no_steps="None",
)

DIALECTS = (AGUVIS,)
