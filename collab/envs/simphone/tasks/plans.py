"""Steps that the solutions of tasks are made of.

A plan looks at the screen and says the next action, whatever happened before: junk text is cleared, unknown pages are
left by the back key, things out of sight are scrolled to. The oracle is a plan played to its end on a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collab.envs.grammar import MOBILE
from collab.envs.simphone.app import UiNode, list_selected
from collab.envs.simphone.state import find_folder
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action


class PlanError(Exception):
    """The plan knows no way from here: what it needs is not there any more."""


def finish() -> Action:
    """Say that the task is complete."""
    return MOBILE.make("status", goal_status="complete")


def press_back() -> Action:
    """Press back."""
    return MOBILE.make("navigate_back")


def open_app(name: str) -> Action:
    """Start an app by name."""
    return MOBILE.make("open_app", app_name=name)


def is_in_app(frame: Frame, package: str) -> bool:
    """Return whether an app is in front."""
    return frame.phone.foreground == package


def find_node(frame: Frame, key: str) -> UiNode | None:
    """Return the visible node with this key."""
    index = frame.index(key)
    return None if index is None else frame.placed.nodes[index]


def aim_at(frame: Frame, key: str, type: str = "click", **fields: Any) -> Action:
    """Return an action on the element with this key; scrolls first when it is out of sight.

    Raises:
        PlanError: the screen has no such element.
    """
    index = frame.index(key)
    if index is not None:
        return MOBILE.make(type, index=index, **fields)
    if key in frame.placed.hidden:
        return MOBILE.make("scroll", direction=frame.placed.hidden[key])
    raise PlanError(f"no element {key} on {frame.observation.title!r}")


def fill(frame: Frame, key: str, text: str) -> Action | None:
    """Make a field hold `text`; None when it does already (a line break at its end does not count)."""
    found = find_node(frame, key)
    if found is None:
        return aim_at(frame, key)
    if (found.value or "").rstrip("\n") == text:
        return None
    return aim_at(frame, key, "input_text", text=text, clear_text=bool(found.value))


def paste(frame: Frame, key: str) -> Action | None:
    """Make a field hold the clipboard's text by its long-press menu; None when it does already."""
    found = find_node(frame, key)
    if found is None:
        return aim_at(frame, key)
    if (found.value or "").rstrip("\n") == frame.phone.clipboard:
        return None
    return aim_at(frame, key, "long_press")


def follow(frame: Frame, app: str, package: str, route: Mapping[str, str]) -> Action | None:
    """Return the next action along a route of an app's pages; None on the last page.

    Args:
        route: page (see `name_page`) → key of the element to tap; "" for the last page. From other pages it goes back.
    """
    if not is_in_app(frame, package):
        return open_app(app)
    key = route.get(name_page(frame))
    if key is None:
        return press_back()
    return aim_at(frame, key) if key else None


def name_page(frame: Frame) -> str:
    """Return which page is in front: its screen, and what it is about where one screen serves many pages."""
    about = frame.page.data.get("page")
    return f"{frame.page.screen}/{about}" if about else frame.page.screen


def select_file(
    frame: Frame,
    path: str,
    list_page: str,
    to_folder: Callable[[Frame, str], Action | None],
    entry_key: Callable[[str], str],
) -> Action | None:
    """Select exactly one entry of its folder; None when it is selected.

    Args:
        list_page: screen of the app's list.
        to_folder: walks to the list of a folder.
        entry_key: path → its key in the list.
    """
    if frame.page.screen == list_page and list_selected(frame.page) == (path,):
        return None
    if path not in frame.phone.files:
        raise PlanError(f"{path} does not exist any more")
    return to_folder(frame, find_folder(path)) or aim_at(frame, entry_key(path), "long_press")


def enter_folder(frame: Frame, folder: str, entry_key: Callable[[str], str]) -> Action | None:
    """Go from the folder that a list shows towards another one; None when it is shown.

    Args:
        entry_key: path of a folder → its key in the list.
    """
    here = str(frame.page.data["folder"])
    if here == folder:
        return None
    if not folder.startswith(here + "/"):
        return press_back()
    child = folder[len(here) + 1 :].partition("/")[0]
    return aim_at(frame, entry_key(f"{here}/{child}"))
