"""The clipboard task."""

from __future__ import annotations

import random
from dataclasses import replace

from collab.envs.simphone.apps.clipper import PACKAGE
from collab.envs.simphone.content.pools import CLIPS
from collab.envs.simphone.state import Phone
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.spec import Params, TaskSpec, is_similar, make_phrasings
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"
_RESET = "~~~RESET~~~"
"""What the clipboard holds at the start, as in AndroidWorld."""


def _score(start: Phone, end: Phone, params: Params) -> float:
    held = end.clipboard.strip('"\r\n')  # as AndroidWorld reads it out of a broadcast's output
    return float(is_similar(str(params["clipboard_content"]), held))


def _plan(frame: Frame, params: Params, start: Phone) -> Action:
    if _score(frame.phone, frame.phone, params):
        return plans.finish()
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Clipper")
    if frame.page.screen != "clipper.main":
        return plans.press_back()
    step = plans.fill(frame, _ID + "text", str(params["clipboard_content"]))
    return step or plans.aim_at(frame, _ID + "copy")


def _prepare(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return replace(phone, clipboard=_RESET)


TASKS: tuple[TaskSpec, ...] = (
    TaskSpec(
        name="SystemCopyToClipboard",
        apps=("clipper",),
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
            "Put this text on the clipboard: {clipboard_content}",
            'I want to paste "{clipboard_content}" later: copy it to the clipboard.',
            "The clipboard should hold exactly: {clipboard_content}",
        ),
        draw=lambda rng: {"clipboard_content": rng.choice(CLIPS)},
        prepare=_prepare,
        score=_score,
        plan=_plan,
    ),
)
