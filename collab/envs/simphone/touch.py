"""Execute an action of the mobile space on the phone, and describe its effect for the history.

Execution follows AndroidWorld. `input_text` taps its target, types and presses Enter (a new line in a multi-line
editor, the field's own action elsewhere). `clear_text` empties the field first, and `press_enter: false` leaves the
last Enter out.
`scroll` names the direction of reading, `swipe` that of the finger. A swipe without a target starts at the screen's
edge, so that one downwards pulls down the notifications. `drag` takes the content along as far as the finger goes.

Deviations: a scroll that starts on an element moves its container by the usual distance, not by half the element's
height; an empty text does nothing only without `clear_text`, which empties the field here; the caret is always at the
end of a field; a long press on a field offers to copy, cut or paste the whole
text instead of selecting a word. A finger that drags a slider ends at the slider's edge, as it does there.

An effect is described by comparing the screens before and after, in the same way for every app.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from collab.envs.androidworld_apps import find_app_package
from collab.envs.grammar import MOBILE
from collab.envs.simphone.app import App, Apps, UiNode
from collab.envs.simphone.apps import TEXT_MENU
from collab.envs.simphone.apps.system import open_recents, pull_down
from collab.envs.simphone.distractions.interruptions import act_on
from collab.envs.simphone.distractions.looks import load_english_names
from collab.envs.simphone.distractions.presets import act_while_loading
from collab.envs.simphone.state import Page, Phone, close_panel, edit_page, focus_on, go_home, push, put_field, start
from collab.envs.simphone.ui.layout import KEYBOARD_TOP, STATUS_BAR
from collab.envs.simphone.ui.screen import OVERLAYS, Frame, build_view, go_back, leave, list_inputs, look
from collab.envs.text import MAX_TITLE, cut, find_direction, find_place, locate
from collab.types import Action, Element, ElementTarget, Point

DRAG = 1100
"""How far a scroll moves the content, in pixels: about half a screen, as AndroidWorld's gesture does."""
_STEP, _MOST_SCROLLS = 100, 400
"""How far, in pixels, and how often a field is scrolled towards the middle of the screen."""
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def act(frame: Frame, action: Action) -> Phone:
    """Execute a canonical action; one that makes no sense here returns the phone unchanged.

    `status` ends an episode and is not the phone's business: it changes nothing here.
    """
    phone = _clear_toast(frame.phone)
    if phone.cover is None and not phone.loading:
        return _carry_out(frame, action, phone)
    below = partial(_carry_out, frame, action)
    if phone.loading:
        below = partial(act_while_loading, action=action, below=below)
    if phone.cover is None:
        return below(phone)
    node = _find_target(frame, action) if _has_target(frame, action) else None
    return act_on(phone, phone.cover, node, action, below)


def _carry_out(frame: Frame, action: Action, phone: Phone) -> Phone:
    """Return the action on a phone that shows, or would show, what the frame does."""
    handler = _HANDLERS.get(action.type)
    if handler is None or not _has_target(frame, action):
        return phone
    return handler(replace(frame, phone=phone), action)


def _clear_toast(phone: Phone) -> Phone:
    return replace(phone, notice=None) if phone.notice is not None else phone


def _has_target(frame: Frame, action: Action) -> bool:
    return not isinstance(action.target, ElementTarget) or action.target.index < len(frame.placed.nodes)


def _find_target(frame: Frame, action: Action) -> UiNode | None:
    """Return the node an action is aimed at; None when it has no target or the point lies on nothing."""
    if isinstance(action.target, ElementTarget):
        return frame.placed.nodes[action.target.index]
    if isinstance(action.target, Point):
        index = _find_surface(frame, action.target)
        return None if index is None else frame.placed.nodes[index]
    return None


def _find_surface(frame: Frame, point: Point) -> int | None:
    for index, (node, box) in enumerate(zip(frame.placed.nodes, frame.placed.boxes, strict=True)):
        if node.slide is not None and box.contains(point.x, point.y):
            return index
    return None


# ------------------------------------------------------------------------------------------------------- touching


def _tap(frame: Frame, action: Action) -> Phone:
    node = _find_target(frame, action)
    if node is None:
        return _tap_outside(frame, action)
    if node.slide is not None and isinstance(action.target, Point):
        box = frame.placed.boxes[frame.placed.nodes.index(node)]
        return node.slide(frame.phone, (action.target.x - box.left) / (box.right - 1 - box.left))
    return tap_node(frame.phone, node)


def _tap_outside(frame: Frame, action: Action) -> Phone:
    """Return a tap beside a dialog or menu closes it, as one beside what the shade shows; else it does nothing."""
    if frame.view.style in OVERLAYS and isinstance(action.target, Point):
        below_keyboard = frame.phone.keyboard and action.target.y >= KEYBOARD_TOP
        if not frame.placed.window.contains(action.target.x, action.target.y) and not below_keyboard:
            return go_back(replace(frame.phone, keyboard=False))
    elif frame.phone.panel is not None and isinstance(action.target, Point):
        return close_panel(frame.phone)
    return frame.phone


def tap_node(phone: Phone, node: UiNode) -> Phone:
    """Tap a node in its middle."""
    if "disabled" in node.flags:
        return phone
    if node.field is not None:
        return focus(phone, node.field)
    if node.slide is not None:
        return node.slide(phone, 0.5)
    return node.tap(phone) if node.tap is not None else phone


def _double_tap(frame: Frame, action: Action) -> Phone:
    """Return two taps; the second counts only if the same element is still there."""
    once = _tap(frame, action)
    node = _find_target(frame, action)
    again = look(once)
    if node is None or node.slide is not None or once.page.screen != frame.page.screen:
        return once
    index = again.index(node.key)
    return once if index is None else tap_node(once, again.placed.nodes[index])


def _press_long(frame: Frame, action: Action) -> Phone:
    node = _find_target(frame, action)
    if node is None or "disabled" in node.flags:
        return frame.phone
    if node.hold is not None:
        return node.hold(frame.phone)
    if node.field is not None:
        phone = focus_on(frame.phone, node.field)
        return push(phone, Page(screen=TEXT_MENU, data={"field": node.field, "text": node.value or ""}))
    return _tap(frame, action)


# --------------------------------------------------------------------------------------------------------- moving


def _scroll(frame: Frame, action: Action) -> Phone:
    return _drag(frame, action, _OPPOSITE[str(action["direction"])])


def _swipe(frame: Frame, action: Action) -> Phone:
    direction = str(action["direction"])
    if direction == "down" and _is_from_status_bar(action):
        return pull_down(frame.phone)
    return _drag(frame, action, direction)


def _drag_to(frame: Frame, action: Action) -> Phone:
    """Move the finger from one place to another; along a slider it carries the knob."""
    seen, end = frame.observation, MOBILE.find_end(action)
    places = [find_place(one, seen) for one in (action.target, end) if one is not None]
    start, stop = places[0], places[-1]
    if start is None or stop is None or start == stop:
        return frame.phone
    finger = find_direction(start, stop)
    swipe = replace(action, target=locate(Point(x=start[0], y=start[1]), seen), arguments=(("direction", finger),))
    node = _find_target(frame, swipe)
    if node is not None and node.slide is not None and finger in ("left", "right"):
        box = frame.placed.boxes[frame.placed.nodes.index(node)]
        return node.slide(frame.phone, min(1.0, max(0.0, (stop[0] - box.left) / max(1, box.right - 1 - box.left))))
    if finger == "down" and _is_from_status_bar(swipe):
        return pull_down(frame.phone)
    return _drag(frame, swipe, finger, round(abs(stop[1] - start[1])))


def _is_from_status_bar(action: Action) -> bool:
    """Return whether a swipe starts at the top edge; without a target it goes over the whole screen."""
    return action.target is None or (isinstance(action.target, Point) and action.target.y < STATUS_BAR)


def _drag(frame: Frame, action: Action, finger: str, length: int | None = None) -> Phone:
    """Move the finger; `length` is how far it takes the content along, None for the usual distance."""
    node = _find_target(frame, action)
    if node is not None and node.slide is not None and finger in ("left", "right"):
        return node.slide(frame.phone, 0.0 if finger == "left" else 1.0)
    if node is not None and finger in node.swipes:
        return node.swipes[finger](frame.phone)
    if finger in ("up", "down"):
        body = frame.placed.body
        distance = length or min(DRAG, max(1, (body.bottom - body.top) * 3 // 4))
        before = min(frame.page.scroll, frame.placed.room)
        offset = before + distance if finger == "up" else before - distance
        offset = max(0, min(offset, frame.placed.room))
        if offset != before:
            return edit_page(frame.phone, scroll=offset)
    return frame.view.swipes[finger](frame.phone) if finger in frame.view.swipes else frame.phone


# --------------------------------------------------------------------------------------------------------- typing


def _type_text(frame: Frame, action: Action) -> Phone:
    text, clear = str(action["text"]), bool(action.get("clear_text", False))
    if not text and not clear:
        return frame.phone
    phone = _tap(frame, action) if action.target is not None else frame.phone
    node = find_focused_input(phone)
    if node is None or node.field is None:
        return phone
    if clear:
        phone = put_field(phone, node.field, "")
    *lines, last = text.split("\n")
    for line in lines:
        phone = press_enter(_append(phone, line))
    phone = _append(phone, last)
    return press_enter(phone) if action.get("press_enter", True) else phone


def _append(phone: Phone, text: str) -> Phone:
    node = find_focused_input(phone)
    if node is None or node.field is None or not text:
        return phone
    return put_field(phone, node.field, phone.page.fields.get(node.field, "") + text)


def focus(phone: Phone, field: str | None) -> Phone:
    """Give a field the focus, and scroll it into sight should the keyboard cover it."""
    phone = focus_on(phone, field)
    node = find_focused_input(phone)
    if node is None:
        return phone
    for _ in range(_MOST_SCROLLS):
        placed = look(phone).placed
        side = placed.hidden.get(node.key)
        if side is None:
            return phone
        offset = min(phone.page.scroll, placed.room) + (_STEP if side == "down" else -_STEP)
        phone = edit_page(phone, scroll=max(0, min(offset, placed.room)))
    return phone


def find_focused_input(phone: Phone) -> UiNode | None:
    """Return the input field that has the focus; None when there is none on this page."""
    page = phone.page
    if page.focus is None:
        return None
    return next((node for node in list_inputs(build_view(phone)) if node.field == page.focus), None)


def press_enter(phone: Phone) -> Phone:
    """Press Enter: a new line, the field's action, the next field, or the end of typing."""
    node = find_focused_input(phone)
    if node is None:
        return phone
    if node.multiline:
        return _append(phone, "\n")
    if node.enter is not None:
        return node.enter(phone)
    fields = [other.field for other in list_inputs(build_view(phone))]
    position = fields.index(node.field)
    if position + 1 < len(fields):
        return focus(phone, fields[position + 1])
    return replace(phone, keyboard=False)


def erase_letter(phone: Phone) -> Phone:
    """Take the last letter off the focused field."""
    node = find_focused_input(phone)
    if node is None or node.field is None:
        return phone
    return put_field(phone, node.field, phone.page.fields.get(node.field, "")[:-1])


def focus_next(phone: Phone) -> Phone:
    """Move the focus to the next field, behind the last one to the first."""
    fields = [node.field for node in list_inputs(build_view(phone))]
    if phone.page.focus not in fields:
        return phone
    return focus(phone, fields[(fields.index(phone.page.focus) + 1) % len(fields)])


def _press_keys(frame: Frame, action: Action) -> Phone:
    key = _KEYS.get(str(action["keys"]))
    return frame.phone if key is None else key(frame.phone)


_KEYS: dict[str, Callable[[Phone], Phone]] = {
    "back": go_back,
    "escape": go_back,
    "home": lambda phone: go_home(leave(phone)),
    "recents": open_recents,
    "app_switch": open_recents,
    "enter": press_enter,
    "backspace": erase_letter,
    "delete": erase_letter,
    "tab": focus_next,
}
"""Keys of the phone and its keyboard by name, as `order_keys` gives it."""

# -------------------------------------------------------------------------------------------------- system actions


def _open_app(frame: Frame, action: Action) -> Phone:
    app = _find_app(str(action["app_name"]), frame.phone.apps)
    if app is None:
        return frame.phone
    if app.package == frame.phone.foreground:
        return close_panel(frame.phone)
    return start(leave(frame.phone), app.package, app.pages)


def _find_app(name: str, apps: Apps) -> App | None:
    """Return the app that a name means: exactly its own, else AndroidWorld's rule, else what its own name begins."""
    german = load_english_names()
    exact = apps.by_name.get(name) or apps.by_name.get(german.get(name, ""))
    found = exact or apps.by_package.get(find_app_package(name) or name)
    if found is None:
        begun = max((known for known in (*apps.by_name, *german) if name.startswith(known)), key=len, default="")
        found = apps.by_name.get(german.get(begun, begun))
    return None if found is apps.all[0] else found  # the launcher is no app that can be opened


def _go_home(frame: Frame, action: Action) -> Phone:
    return go_home(leave(frame.phone))


def _go_back(frame: Frame, action: Action) -> Phone:
    return go_back(frame.phone)


def _enter(frame: Frame, action: Action) -> Phone:
    return press_enter(frame.phone)


def _open_recents(frame: Frame, action: Action) -> Phone:
    return open_recents(frame.phone)


def _wait(frame: Frame, action: Action) -> Phone:
    return replace(frame.phone, now_ms=frame.phone.now_ms + 1000)


def _answer(frame: Frame, action: Action) -> Phone:
    return replace(frame.phone, answer=str(action["text"]))


_HANDLERS: dict[str, Callable[[Frame, Action], Phone]] = {
    "click": _tap,
    "double_tap": _double_tap,
    "long_press": _press_long,
    "scroll": _scroll,
    "swipe": _swipe,
    "input_text": _type_text,
    "navigate_home": _go_home,
    "navigate_back": _go_back,
    "keyboard_enter": _enter,
    "open_app": _open_app,
    "wait": _wait,
    "answer": _answer,
    "drag": _drag_to,
    "press_keys": _press_keys,
    "open_recents": _open_recents,
}


def describe_effect(before: Frame, after: Frame, action: Action) -> str:
    """Return one short text: "opened Contacts", "typed into Name", "nothing changed"."""
    # The order below is that of what an agent needs to know most: refusals, messages, interruptions, then changes.
    target = action.target.index if isinstance(action.target, ElementTarget) else None
    if target is not None and target >= len(before.observation.elements):
        return f"nothing changed: the screen has no element {target}"
    if after.observation.notice:
        return f'the phone said "{after.observation.notice}"'
    if action.type == "wait":
        return "one second passed"
    if action.type == "ask_user":
        return "nothing changed: nobody answers questions here"
    if action.type == "press_keys" and action["keys"] not in _KEYS:
        return f"nothing changed: the phone has no key {cut(str(action['keys']), 40)}, it has {', '.join(_KEYS)}"
    # A notice that vanished is no change of the phone.
    if after.phone == before.phone or after.phone == replace(before.phone, notice=None):
        return "nothing changed"
    # Interruptions come before the action's own effect, which they may have prevented.
    came = _describe_interruption(before, after)
    if came:
        return came
    if action.type == "answer":
        return "noted the answer"
    # A new title means another page; whether it was opened or left, the page stack knows.
    if after.observation.title != before.observation.title:
        return f"{'went back to' if _has_closed_page(before, after) else 'opened'} {after.observation.title}"
    # On the same page, the most specific description that fits.
    return (
        _describe_typing(before, after, action, target)
        or _describe_scroll(before, after)
        or _describe_touch(before, after, target)
        or ("the screen changed" if before.observation.text != after.observation.text else "nothing visible changed")
    )


def _describe_interruption(before: Frame, after: Frame) -> str:
    """Return what came over the screen without being asked for."""
    if after.phone.loading:
        return "the screen is loading"
    if after.phone.cover is None or before.phone.cover is not None:
        return ""
    return "a notification came up" if after.placed.banner else f"{after.observation.title} came up"


def _has_closed_page(before: Frame, after: Frame) -> bool:
    if before.phone.cover is not None and after.phone.cover is None:
        return True
    package = after.phone.foreground
    same_app = package == before.phone.foreground
    if before.phone.panel is not None and after.phone.panel is None:
        return same_app and after.phone.stacks == before.phone.stacks
    return same_app and len(after.phone.stacks[package]) < len(before.phone.stacks[package])


def _describe_typing(before: Frame, after: Frame, action: Action, target: int | None) -> str:
    if action.type != "input_text" or before.page.fields == after.page.fields:
        return ""
    field = before.page.focus if target is None else before.placed.nodes[target].field
    label = next((node.label for node in before.placed.nodes if field and node.field == field), "")
    if not action["text"]:
        return f"emptied {cut(label, MAX_TITLE)}" if label else "emptied the field"
    return f"typed into {cut(label, MAX_TITLE)}" if label else "typed"


def _describe_scroll(before: Frame, after: Frame) -> str:
    if before.page.scroll == after.page.scroll:
        return ""
    return "scrolled down" if after.page.scroll > before.page.scroll else "scrolled up"


def _describe_touch(before: Frame, after: Frame, target: int | None) -> str:
    if target is not None:
        element = before.observation.elements[target]
        index = after.index(element.key)
        words = "" if index is None else _describe_change(element, after.observation.elements[index])
        if words:
            return words
    return "closed the keyboard" if before.phone.keyboard and not after.phone.keyboard else ""


def _describe_change(before: Element, after: Element) -> str:
    if ("checked" in before.flags) != ("checked" in after.flags):
        return f"turned {'on' if 'checked' in after.flags else 'off'} {after.label}"
    if ("selected" in before.flags) != ("selected" in after.flags):
        return f"{'selected' if 'selected' in after.flags else 'unselected'} {after.label}"
    if "focused" in after.flags and "focused" not in before.flags:
        return f"put the cursor into {after.label}"
    if after.role == "slider" and before.value != after.value:
        return f"set {after.label} to {after.value}"
    return ""
