"""AndroidWorld's screens and actions in this project's terms, and back.

AndroidWorld tells a screen as a flat list of UI elements (leaves, described and scrollable views), so what belongs to
one row is several elements here; roles and words are those of every device. Actions are AndroidWorld's own JSON form.
An element is aimed at by its middle, as AndroidWorld does with an index, because AndroidWorld numbers the elements
anew before it acts; only scrolling inside an element needs its number (and number 0 scrolls the whole screen there).
Its swipes to the left and to the right move the finger the other way round than its own swipes up and down; here a
swipe names the way of the finger, so these two are exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collab.envs.android.app_names import title_of
from collab.envs.android.device_screen import observe, read_views
from collab.types import Action, ElementTarget, Observation, Point

_TEXTS = {
    "text": "text",
    "content_description": "content-desc",
    "hint_text": "hint",
    "class_name": "class",
    "package_name": "package",
    "resource_name": "resource-id",
}
_FLAGS = {
    "is_checkable": "checkable",
    "is_checked": "checked",
    "is_clickable": "clickable",
    "is_enabled": "enabled",
    "is_focusable": "focusable",
    "is_focused": "focused",
    "is_long_clickable": "long-clickable",
    "is_scrollable": "scrollable",
    "is_selected": "selected",
    "is_visible": "visible-to-user",
}
"""AndroidWorld's names → those of a UiAutomator dump."""
_EXCHANGED = {"left": "right", "right": "left"}


def read_screen(told: Mapping[str, Any]) -> tuple[Observation, tuple[int, ...]]:
    """What the helper's `look` tells: the observation, and each element's index in AndroidWorld's list."""
    width, height = int(told["width"]), int(told["height"])
    screen, numbers = read_views([_view(one) for one in told["elements"]], width=width, height=height)
    package = str(told["activity"]).partition("/")[0] or screen.package
    return observe(screen, app=title_of(package, {}), notice=None, width=width, height=height), numbers


def _view(element: Mapping[str, Any]) -> dict[str, str]:
    view = {name: str(element[key]) for key, name in _TEXTS.items() if element.get(key)}
    view |= {name: "true" if element[key] else "false" for key, name in _FLAGS.items() if element.get(key) is not None}
    if "box" in element:
        left, top, right, bottom = element["box"]
        view["bounds"] = f"[{left},{top}][{right},{bottom}]"
    return view


def as_json_action(action: Action, observation: Observation, numbers: Sequence[int]) -> dict[str, Any] | str:
    """A canonical action as the fields of AndroidWorld's JSONAction; in words why there is none.

    Args:
        numbers: each element's index in AndroidWorld's list.
    """
    fields: dict[str, Any] = {"action_type": action.type, **dict(action.arguments)}
    if action.type == "swipe":
        fields["direction"] = _EXCHANGED.get(fields["direction"], fields["direction"])
    if isinstance(action.target, Point):
        fields |= {"x": round(action.target.x), "y": round(action.target.y)}
    elif isinstance(action.target, ElementTarget):
        index = action.target.index
        if index >= len(observation.elements):
            return f"the screen has no element {index}"
        box = observation.elements[index].box
        if action.type == "scroll":
            fields["index"] = numbers[index]
        elif box is not None:
            fields["x"], fields["y"] = box.center
    return fields
