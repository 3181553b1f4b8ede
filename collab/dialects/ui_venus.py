"""UI-Venus 1.5 and 2: a thought, then one call such as `Click(box=(x,y))` between tags.

The documents of version 1.5 give points from 0 to 1000, its code divides by the size of the resized picture; the
dialect `ui-venus-1.5-pixels` follows the code. Version 2 names its points `point`, from 0 to 999, which its code
divides by 1000; it refuses by (-1, -1).
"""

from __future__ import annotations

import re
from dataclasses import replace

from collab.dialects.actions import Grid, Pair, Resize, tidy
from collab.dialects.base import Dialect, Spelling, Verb, verb
from collab.dialects.syntaxes import CallText


def _list_verbs(point: str, other: str) -> tuple[Verb, ...]:
    """List the verbs, with this argument for points; `other` is understood, too."""
    pointed = (
        verb("Click", "click", "tap or click", point=point),
        verb("DoubleClick", "double_click", "tap or click twice", point=point),
        verb("LongPress", "long_press", "hold a point", point=point, seconds="duration?"),
        verb("RightClick", "right_click", "click with the right button", point=point, world="web"),
        verb("Hover", "hover", "move the mouse", point=point, world="web"),
    )
    return (
        *pointed,
        *(replace(one, doc="", takes={**one.takes, "point": other}) for one in pointed),
        verb("Drag", "drag", "hold start and move to end", point="start", to="end"),
    )


_SHARED = (
    verb("Type", "type", "type into the field with the cursor", text="content"),
    verb("Wait", "wait", "wait for a change"),
    verb("CallUser", "ask_user", "ask the user", text="content?"),
    verb("PressBack", "back", "go back"),
    verb("PressHome", "home", "go to the home screen", world="mobile"),
    verb("PressEnter", "enter", "press Enter"),
    verb("PressRecent", "recents", "show the recent apps", world="mobile"),
    verb("Hotkey", "keys", "press keys together", text="keys", world="web"),
    verb("Launch", "open_url", "open an address", text="url", world="web"),
    verb("Answer", "answer", "answer the user", text="content", world="mobile"),
    verb("Finished", "done", "end the task with an answer or report", text="content?"),
    verb("TakeNote", "note", "note what the screen shows", text="content", world="web"),
    verb("GetScreenshot", "screenshot", world="mobile"),
)


def _spell_pair(point: Pair) -> tuple[float, float]:
    return (tidy(point[0]), tidy(point[1]))


UI_VENUS = Dialect(
    name="ui-venus-1.5",
    title="UI-Venus 1.0 and 1.5",
    models=r"ui-?venus(?!.*[-_]2(?![0-9b]))",
    source="https://github.com/inclusionAI/UI-Venus",
    syntax=CallText(
        label=re.compile(r"<action>", re.IGNORECASE),
        form="<think>{reason}</think>\n<action>{calls}</action>",
        joint="\n",
    ),
    verbs=(
        *_list_verbs("box", "point"),
        verb("Scroll", "swipe", "move the finger from start to end", point="start", to="end", world="mobile"),
        verb("Scroll", "scroll", "show what lies in direction", direction="direction", point="box?", world="web"),
        verb("Launch", "open_app", "open an app by its name", text="app", world="mobile"),
        *_SHARED,
    ),
    grid=Grid(span=1000),
    resize=Resize(factor=28, least=2_000_000, most=4_800_000),
    spelling=Spelling(point=_spell_pair, keys=lambda keys, argument: tuple(keys.split("+"))),
    labels=re.compile(r"</?action>", re.IGNORECASE),
    unit="Points are (x,y) from 0 to 1000.",
    answer="Answer in two parts:\n<think>why this action</think>\n<action>one action from the list</action>",
    task="Task: {goal}\n\nEarlier actions:\n{history}",
    step="Step {number}: {action}",
    no_steps="none",
)

UI_VENUS_PIXELS = replace(
    UI_VENUS,
    name="ui-venus-1.5-pixels",
    title="UI-Venus 1.5 as its code reads points",
    models="",
    grid=Grid(span=None),
    unit="Points are (x,y) in pixels of the screenshot, which is {width}x{height}.",
)

UI_VENUS_2 = replace(
    UI_VENUS,
    name="ui-venus-2",
    title="UI-Venus 2",
    models=r"ui-?venus.*[-_]2(?![0-9b])",
    verbs=(
        *_list_verbs("point", "box"),
        verb("Swipe", "swipe", "move the finger from start to end", point="start", to="end", world="mobile"),
        verb("Scroll", "scroll", "show what lies in direction", point="point?", direction="direction", world="web"),
        verb("LaunchApp", "open_app", "open an app by its name", text="app", world="mobile"),
        *_SHARED,
    ),
    unit="Points are (x,y) from 0 to 999.",
)

DIALECTS = (UI_VENUS, UI_VENUS_PIXELS, UI_VENUS_2)
