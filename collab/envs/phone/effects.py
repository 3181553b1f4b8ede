"""What an action did to the screen, in a few words for the history.

Told by comparing the looks before and after, so that every app is described in the same way and none has to
describe itself.
"""

from __future__ import annotations

from dataclasses import replace

from collab.envs.phone.screen import Frame
from collab.envs.text import MAX_TITLE, cut
from collab.types import Action, Element, ElementTarget


def effect(before: Frame, after: Frame, action: Action) -> str:
    """One short text: "opened Contacts", "typed into Name", "nothing changed"."""
    target = action.target.index if isinstance(action.target, ElementTarget) else None
    if target is not None and target >= len(before.observation.elements):
        return f"nothing changed: the screen has no element {target}"
    if after.observation.notice:
        return f'the phone said "{after.observation.notice}"'
    if action.type == "wait":
        return "one second passed"
    if after.phone == before.phone or after.phone == replace(before.phone, notice=None):
        return "nothing changed"
    came = _came_up(before, after)
    if came:
        return came
    if action.type == "answer":
        return "noted the answer"
    if after.observation.title != before.observation.title:
        return f"{'went back to' if _closed_a_page(before, after) else 'opened'} {after.observation.title}"
    return (
        _typed(before, after, action, target)
        or _scrolled(before, after)
        or _touched(before, after, target)
        or ("the screen changed" if before.observation.text != after.observation.text else "nothing visible changed")
    )


def _came_up(before: Frame, after: Frame) -> str:
    """What came over the screen without being asked for."""
    if after.phone.loading:
        return "the screen is loading"
    if after.phone.cover is None or before.phone.cover is not None:
        return ""
    return "a notification came up" if after.placed.banner else f"{after.observation.title} came up"


def _closed_a_page(before: Frame, after: Frame) -> bool:
    if before.phone.cover is not None and after.phone.cover is None:
        return True
    package = after.phone.foreground
    same_app = package == before.phone.foreground
    if before.phone.panel is not None and after.phone.panel is None:
        return same_app and after.phone.stacks == before.phone.stacks
    return same_app and len(after.phone.stacks[package]) < len(before.phone.stacks[package])


def _typed(before: Frame, after: Frame, action: Action, target: int | None) -> str:
    if action.type != "input_text" or before.page.fields == after.page.fields:
        return ""
    field = before.page.focus if target is None else before.placed.nodes[target].field
    label = next((node.label for node in before.placed.nodes if field and node.field == field), "")
    return f"typed into {cut(label, MAX_TITLE)}" if label else "typed"


def _scrolled(before: Frame, after: Frame) -> str:
    if before.page.scroll == after.page.scroll:
        return ""
    return "scrolled down" if after.page.scroll > before.page.scroll else "scrolled up"


def _touched(before: Frame, after: Frame, target: int | None) -> str:
    if target is not None:
        element = before.observation.elements[target]
        index = after.index(element.key)
        words = "" if index is None else _changed(element, after.observation.elements[index])
        if words:
            return words
    return "closed the keyboard" if before.phone.keyboard and not after.phone.keyboard else ""


def _changed(before: Element, after: Element) -> str:
    if ("checked" in before.flags) != ("checked" in after.flags):
        return f"turned {'on' if 'checked' in after.flags else 'off'} {after.label}"
    if ("selected" in before.flags) != ("selected" in after.flags):
        return f"{'selected' if 'selected' in after.flags else 'unselected'} {after.label}"
    if "focused" in after.flags and "focused" not in before.flags:
        return f"put the cursor into {after.label}"
    if after.role == "slider" and before.value != after.value:
        return f"set {after.label} to {after.value}"
    return ""
