"""Who executes the actions of our solution: SimPhone's engine, or AndroidWorld with adb taps, keys and intents."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from collab.envs.actions import MOBILE
from collab.envs.phone.adb.handle import PhoneHandle
from collab.envs.phone.androidworld.judge import Judge, Refused
from collab.envs.phone.screen import Frame, look
from collab.envs.phone.state import Phone
from collab.envs.phone.tasks.plans import Lost
from collab.envs.phone.tasks.spec import Params, TaskSpec
from collab.envs.phone.touch import act
from collab.types import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A task as AndroidWorld has set it up."""

    spec: TaskSpec
    params: Params
    start: Phone

    def score(self, phone: Phone) -> float:
        """Our score of a phone, in [0, 1]."""
        return self.spec.score(self.start, phone, self.params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """Who carries out actions."""

    execute: Callable[[Action, Frame], None]
    """Carry out an action on the phone behind the handle, which shows this frame."""
    typed: Callable[[str], str] = str
    """What appears when a text is typed."""


MAX_ACTIONS = 120


class Stuck(Exception):
    """The solution does not reach its end; the message says where it stands still."""


def play(instance: Instance, handle: PhoneHandle, hands: Hands) -> tuple[int, Phone]:
    """Plan on SimPhone's screens and execute to the end: (number of actions, `status` included; the phone then).

    Raises:
        Stuck: the end is not reached.
    """
    handle.put(instance.start)
    params = _with_texts(instance.params, hands.typed)
    for count in range(1, MAX_ACTIONS + 1):
        frame = look(handle.phone)
        try:
            planned = MOBILE.canonical(instance.spec.plan(frame, params, instance.start), frame.observation)
            if planned.type == "status":
                return count, handle.phone
            hands.execute(planned, frame)
        except (Lost, Refused) as problem:
            raise Stuck(f"step {count}: {problem}") from None
        if replace(handle.phone, now_ms=frame.phone.now_ms) == frame.phone:
            raise Stuck(f"step {count} changes nothing: {MOBILE.describe(planned, frame.observation)[:80]}")
    raise Stuck(f"the goal is not reached after {MAX_ACTIONS} actions")


def _with_texts(params: Any, change: Callable[[str], str]) -> Any:
    """Parameters with every text changed; names of parameters stay."""
    if isinstance(params, Mapping):
        return {name: _with_texts(value, change) for name, value in params.items()}
    if isinstance(params, (list, tuple)):
        return [_with_texts(value, change) for value in params]
    return change(params) if isinstance(params, str) else params


def our_hands(handle: PhoneHandle) -> Hands:
    """SimPhone's engine."""
    return Hands(execute=lambda action, frame: handle.put(act(frame, action)))


def their_hands(handle: PhoneHandle, judge: Judge) -> Hands:
    """AndroidWorld; an answer goes to whoever asked, not to the phone, so it is noted here."""

    def execute(action: Action, frame: Frame) -> None:
        if action.type == "answer":
            handle.put(act(frame, action))
        else:
            judge.ask("act", action=as_json(action, frame))

    return Hands(execute=execute, typed=ascii_only)


def ascii_only(text: str) -> str:
    """A text as AndroidWorld types it: letters without their accents, and nothing else outside ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def as_json(action: Action, frame: Frame) -> dict[str, Any]:
    """AndroidWorld's form of an action.

    An element, which AndroidWorld counts differently, becomes its middle. Its swipes begin in the middle of the
    screen, so that what moves a slider to its end is a tap there.
    """
    said: dict[str, Any] = json.loads(MOBILE.format(action))
    index = said.pop("index", None)
    box = None if index is None else frame.observation.elements[index].box
    if box is None:
        return said
    middle = (box.top + box.bottom) // 2
    if action.type == "swipe" and frame.observation.elements[index].role == "slider":
        end = box.right - 1 if said["direction"] == "right" else box.left
        return {"action_type": "click", "x": end, "y": middle}
    return {**said, "x": (box.left + box.right) // 2, "y": middle}
