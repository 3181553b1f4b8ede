"""Who executes the actions of our solution: SimPhone's engine, or AndroidWorld with adb taps, keys and intents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

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


Execute: TypeAlias = Callable[[Action, Frame], None]
"""Carry out an action on the phone behind the handle, which shows this frame."""
MAX_ACTIONS = 120


class Stuck(Exception):
    """The solution does not reach its end; the message says where it stands still."""


def play(instance: Instance, handle: PhoneHandle, execute: Execute) -> tuple[int, Phone]:
    """Plan on SimPhone's screens and execute to the end: (number of actions, `status` included; the phone then).

    Raises:
        Stuck: the end is not reached.
    """
    handle.put(instance.start)
    for count in range(1, MAX_ACTIONS + 1):
        frame = look(handle.phone)
        try:
            planned = MOBILE.canonical(instance.spec.plan(frame, instance.params, instance.start), frame.observation)
            if planned.type == "status":
                return count, handle.phone
            execute(planned, frame)
        except (Lost, Refused) as problem:
            raise Stuck(f"step {count}: {problem}") from None
        if replace(handle.phone, now_ms=frame.phone.now_ms) == frame.phone:
            raise Stuck(f"step {count} changes nothing: {MOBILE.describe(planned, frame.observation)[:80]}")
    raise Stuck(f"the goal is not reached after {MAX_ACTIONS} actions")


def our_hands(handle: PhoneHandle) -> Execute:
    """SimPhone's engine."""
    return lambda action, frame: handle.put(act(frame, action))


def their_hands(handle: PhoneHandle, judge: Judge) -> Execute:
    """AndroidWorld; an answer goes to whoever asked, not to the phone, so it is noted here."""

    def execute(action: Action, frame: Frame) -> None:
        if action.type == "answer":
            handle.put(act(frame, action))
        else:
            judge.ask("act", action=as_json(action, frame))

    return execute


def as_json(action: Action, frame: Frame) -> dict[str, Any]:
    """AndroidWorld's form of an action; an element, which AndroidWorld counts differently, becomes its middle."""
    said: dict[str, Any] = json.loads(MOBILE.format(action))
    index = said.pop("index", None)
    box = None if index is None else frame.observation.elements[index].box
    if box is not None:
        said |= {"x": (box.left + box.right) // 2, "y": (box.top + box.bottom) // 2}
    return said
