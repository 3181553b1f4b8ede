"""Decide what an agent may do on a user's real phone.

Apps that were not allowed are not touched: an agent may only leave them. What reaches beyond the screen (sending,
calling, buying, deleting, granting permissions) needs `allow_effects`, or a "yes" at the terminal. So does moving a
finger sideways over a row of a list, which deletes or archives it in many apps and looks the same in all.

All other effects are recognised by the words on a control and in its resource id. That is a seat belt and no proof: an
unlabelled control shows nothing, and labels in other languages are known only by their ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collab.envs.android.device_adb import find_package
from collab.envs.grammar import MOBILE
from collab.envs.text import cut, find_direction, find_element_at, find_place
from collab.types import Action, Element, ElementTarget, Observation, Point

_EFFECTS = frozenset(
    (
        "send sms call dial redial buy pay purchase checkout order subscribe donate transfer delete remove erase trash "
        "uninstall wipe reset format allow grant permit install publish submit"
    ).split()
)
_SHOWN = 80
"""Characters of a name or label that a verdict repeats."""
_PERMISSION_DIALOGS = ("permissioncontroller", "packageinstaller")
_DECLINES = frozenset("deny don't dont not cancel no never".split())
_LONGEST_LABEL = 4
"""Words; a longer label is content (a message, a title) and not the name of a control."""
TERMINAL = Path("/dev/tty")
"""Where questions are asked, whatever stdin and stdout are connected to."""
TOUCHING = frozenset("click double_tap long_press input_text scroll swipe drag keyboard_enter press_keys".split())
"""Types of actions that put a finger on the screen or press a key in an app."""
_PRESSING = frozenset({"click", "double_tap", "long_press"})
_DRAGGING = frozenset({"scroll", "swipe", "drag"})
_ROWS = ("list item", "checkbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardVerdict:
    """A decision whether an action may be executed."""

    refused: str | None = None
    """Why not, for the history; None when it may be."""
    effect: str | None = None
    """What it would reach beyond the screen, to be confirmed; None when nothing."""
    enter: bool = True
    """Whether typing may end with the Enter key."""


def judge(action: Action, observation: Observation, package: str, allowed: Mapping[str, str]) -> GuardVerdict:
    """Judge a canonical action.

    Args:
        package: of the app in front.
        allowed: name → package of the apps that may be touched.
    """
    # Opening an app is checked by name, before it is in front.
    if action.type == "open_app" and find_package(str(action["app_name"]), allowed) not in allowed.values():
        return GuardVerdict(refused=f"the app {cut(str(action['app_name']), _SHOWN)} is not in allow_apps")
    # Looking, waiting and going back touch nothing.
    if action.type not in TOUCHING:
        return GuardVerdict()
    element = _find_target(action, observation)
    # Permission dialogs belong to a system package, and are judged by what is pressed in them.
    asking = any(word in package for word in _PERMISSION_DIALOGS)
    # The launcher leads to allowed apps and to all others.
    if "launcher" in package:
        return _judge_on_launcher(action, element, allowed)
    # What the app in front is, decides first: in a foreign one nothing is harmless.
    if not asking and package not in allowed.values():
        return GuardVerdict(refused=f"the app {package} is not in allow_apps; go back or home")
    # An allowed app can still send, buy or call: that is not refused but named, for the user to allow.
    if action.type in _PRESSING and element is not None and has_outside_effect(element, asking=asking):
        return GuardVerdict(effect=f'{action.type} on {element.role} "{cut(element.label, _SHOWN)}" in {package}')
    # Swiping a row may delete or archive it, which no button says.
    row = _find_swept_row(action, element, observation)
    if row is not None:
        way = _find_direction(action, observation)
        return GuardVerdict(effect=f'{action.type} {way} on {row.role} "{cut(row.label, _SHOWN)}" in {package}')
    # Enter sends where a screen has something to send; elsewhere it ends a line.
    sending = any(has_outside_effect(one) for one in observation.elements)
    if sending and (action.type == "keyboard_enter" or action.get("keys") == "enter" or _has_lines(action)):
        return GuardVerdict(effect=f"the Enter key in {package}")
    # Where nothing can be sent, typing may end with Enter.
    return GuardVerdict(enter=not sending)


def has_outside_effect(element: Element, *, asking: bool = False) -> bool:
    """Return whether touching an element may reach beyond the screen.

    Args:
        asking: whether it is part of a permission dialog, where everything but a "no" grants something.
    """
    words = re.findall(r"[a-z']+", element.label.lower())
    if asking:
        return element.role in ("button", "radio", "checkbox", "switch") and not _DECLINES & set(words)
    if element.role in ("text", "heading", "image", "input") and "long-clickable" not in element.flags:
        return False
    key = element.key.partition(":id/")[2] or element.key
    parts = re.findall(r"[A-Z]?[a-z]+", key.partition("/")[0])
    named = set(words) if len(words) <= _LONGEST_LABEL else set()
    return bool((named | {part.lower() for part in parts}) & _EFFECTS)


def ask_for_confirmation(question: str) -> bool:
    """Ask at the controlling terminal; without one, the answer is no."""
    try:
        with TERMINAL.open("w") as screen, TERMINAL.open() as keyboard:
            screen.write(f"\n{question}: allow this once? [y/N] ")
            screen.flush()
            return keyboard.readline().strip().lower() in ("y", "yes")
    except OSError:
        return False


def _find_target(action: Action, observation: Observation) -> Element | None:
    if isinstance(action.target, ElementTarget):
        inside = action.target.index < len(observation.elements)
        return observation.elements[action.target.index] if inside else None
    if isinstance(action.target, Point):
        return find_element_at(observation, action.target.x, action.target.y)
    return None


def _find_swept_row(action: Action, element: Element | None, observation: Observation) -> Element | None:
    """Return the row that a finger moves over sideways; without a target it crosses the middle of the screen."""
    if action.type not in _DRAGGING or _find_direction(action, observation) not in ("left", "right"):
        return None
    if action.target is None:
        element = find_element_at(observation, observation.width // 2, observation.height // 2)
    return element if element is not None and element.role in _ROWS else None


def _find_direction(action: Action, observation: Observation) -> str:
    """Return the direction of a moving finger, by its name or from its two ends."""
    end = MOBILE.find_end(action)
    if action.target is None or end is None:
        return str(action["direction"])
    start, stop = find_place(action.target, observation), find_place(end, observation)
    return find_direction(start, stop) if start is not None and stop is not None else ""


def _has_lines(action: Action) -> bool:
    """Return whether a text has lines, which are typed with the Enter key between them."""
    return action.type == "input_text" and "\n" in str(action["text"])


def _judge_on_launcher(action: Action, element: Element | None, allowed: Mapping[str, str]) -> GuardVerdict:
    """Judge an action on the home screen: scrolling and searching are free, opening only what is allowed."""
    if action.type in _DRAGGING or (action.type == "input_text" and not _has_lines(action)):
        return GuardVerdict(enter=False)
    if action.type == "click" and element is not None:
        if element.role == "input" or element.label.casefold() in allowed:
            return GuardVerdict()
        return GuardVerdict(refused=f"{cut(element.label, _SHOWN) or 'this'} is not in allow_apps")
    return GuardVerdict(refused="only allowed apps can be opened from the home screen")
