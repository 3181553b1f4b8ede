"""AgentCPM-GUI and AppVLM: one JSON object per reply.

AgentCPM-GUI names no verb: the fields say what is done, in short keys. AppVLM names a verb in the words of
AndroidControl, and elements by the number that is drawn on them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from collab.dialects.actions import Grid, Resize
from collab.dialects.base import Dialect, verb
from collab.dialects.syntaxes import JsonText

_SIDES = {"up": "above", "down": "below", "left": "to the left", "right": "to the right"}

AGENTCPM = Dialect(
    name="agentcpm-gui",
    title="AgentCPM-GUI",
    models=r"agentcpm",
    source="https://github.com/OpenBMB/AgentCPM-GUI",
    syntax=JsonText(key="", known=("POINT", "to", "TYPE", "PRESS", "STATUS", "duration"), form="{calls}"),
    verbs=tuple(
        replace(one, world="mobile")
        for one in (
            verb("", "swipe", "move the finger in a direction", point="POINT", direction="to"),
            verb("", "swipe", "move the finger to a point", point="POINT", to="to"),
            verb("", "type", "type a text", text="TYPE", point="POINT?"),
            verb("", "back", "go back", when={"PRESS": "BACK"}),
            verb("", "home", "go to the home screen", when={"PRESS": "HOME"}),
            verb("", "enter", "press Enter", when={"PRESS": "ENTER"}),
            verb("", "recents", "show the recent apps", when={"PRESS": "APPSELECT"}),
            verb("", "long_press", "hold a point for so many milliseconds", point="POINT", seconds="duration"),
            verb("", "click", "tap a point", point="POINT"),
            verb("", "done", "end the task as solved", when={"STATUS": "finish"}),
            verb("", "done", when={"STATUS": "satisfied"}),
            verb("", "failed", "end the task as not solvable", when={"STATUS": "impossible"}),
            verb("", "ask_user", "ask the user", when={"STATUS": "need_feedback"}),
            verb("", "wait", "wait for so many milliseconds", seconds="duration"),
        )
    ),
    grid=Grid(span=1000),
    resize=Resize(long_side=1120),
    second=1000,
    harmless={"thought": (), "STATUS": ("continue",)},  # the task goes on
    is_picture_first=False,
    unit="A point is [x, y] from 0 to 1000, from the top left.",
    answer='Answer with one JSON object, "thought" first, then the fields of one action.',
    task="{goal}\n{history}",
    step="{number}. {action}",
)

APPVLM = Dialect(
    name="appvlm",
    title="AppVLM",
    models=r"appvlm",
    source="https://arxiv.org/abs/2502.06395",
    syntax=JsonText(key="action-type", form="{calls}"),
    verbs=tuple(
        replace(one, world="mobile")
        for one in (
            verb("click", "click", "tap an element", index="target-element"),
            verb("long-press", "long_press", "hold an element", index="target-element"),
            verb(
                *("input-text", "type", "type into the field with the cursor and press Enter"),
                text="text",
                sets={"enter": True},
            ),
            *(
                verb(f"scroll-{way}", "scroll", f"show what lies {side}", sets={"direction": way})
                for way, side in _SIDES.items()
            ),
            verb("open-app", "open_app", "open an app by its name", text="app-name"),
            verb("navigate-home", "home", "go to the home screen"),
            verb("navigate-back", "back", "go back"),
            verb("wait", "wait", "wait for a change"),
        )
    ),
    grid=Grid(span=None),
    answer="Answer with one action from the list; N in target-element is the number on the element.",
    task="Goal: {goal}\nHistory:\n{history}",
    step="{action}",
    labels=re.compile(r"\bAction:"),
)

DIALECTS = (AGENTCPM, APPVLM)
