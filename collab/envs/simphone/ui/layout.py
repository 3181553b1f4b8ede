"""Layout: from a view to boxes on the screen.

A screen has an app bar, a scrolling body, a footer and a floating button; a dialog lies in the middle, a menu at the
top right, a sheet at the bottom. Whatever the scroll position or the keyboard hides is not on the screen: it is
remembered only as lying above or below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from collab.envs.simphone.app import Item, NodeLine, UiNode, View, heading
from collab.envs.simphone.state import HEIGHT, USUAL, WIDTH, Manner, Page
from collab.types import Box

STATUS_BAR = 128
APP_BAR = 168
NAVIGATION_BAR = 63
KEYBOARD_TOP = 1517
CONTROL = 150
"""Width of an icon or a control at the end of a line."""
MARGIN = 42
CHARACTERS = 46
"""About as many fit on one line of text."""
_SCREEN = Box(0, 0, WIDTH, HEIGHT)
_BANNER = Box(24, STATUS_BAR - 16, WIDTH - 24, STATUS_BAR - 16 + 2 * CONTROL)
"""Where heads-up notifications show."""

_HEIGHTS = {
    "list item": 150,
    "heading": 120,
    "switch": 168,
    "checkbox": 150,
    "radio": 140,
    "slider": 150,
    "input": 168,
    "spinner": 168,
    "button": 147,
    "icon": 150,
    "tab": 180,
    "image": 600,
    "chip": 120,
    "app": 300,
    "progress": 600,
}


class Measures(NamedTuple):
    """Sizes of an episode's layout."""

    heights: Mapping[str, int]
    """Pixels, by role."""
    characters: int
    """About as many fit on one line of text."""
    pitch: int
    """From one line of text to the next, in pixels."""
    inset: int
    """Pixels between the sides of the screen and the rows of its body."""


@lru_cache(maxsize=64)
def scale_measures(manner: Manner) -> Measures:
    """Return the measures of a manner."""
    return Measures(
        {role: round(height * manner.rows) for role, height in _HEIGHTS.items()},
        int(CHARACTERS / manner.font),
        round(55 * manner.font),
        manner.inset,
    )


@dataclass(slots=True)
class Placed:
    """A view with places."""

    sizes: Measures
    nodes: list[UiNode] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    hidden: dict[str, str] = field(default_factory=dict)
    """Key → "up" or "down" for what scrolling would bring into sight."""
    body: Box = _SCREEN
    """The part of the screen in which the body scrolls."""
    window: Box = _SCREEN
    """The dialog, menu or sheet; the whole screen otherwise."""
    room: int = 0
    """How far the body can be scrolled at most, in pixels."""
    banner: Box | None = None
    """What a heads-up notification covers; None when there is none."""

    def add(self, node: UiNode, left: int, top: int, right: int, bottom: int) -> None:
        """Put a node on the screen."""
        self.nodes.append(node)
        self.boxes.append(Box(left, top, right, bottom))


def place(view: View, page: Page, *, keyboard: bool, back_icon: UiNode | None, manner: Manner = USUAL) -> Placed:
    """Give every visible node its box, in reading order.

    Args:
        keyboard: whether the keyboard covers the bottom.
        back_icon: the usual arrow for pages that are not their app's first.
        manner: makes rows and text larger or smaller.
    """
    placed = Placed(sizes=scale_measures(manner))
    bottom = KEYBOARD_TOP if keyboard else HEIGHT - NAVIGATION_BAR
    if view.style in ("screen", "plain", "shade", "overview"):
        _place_screen(placed, view, page, bottom, back_icon)
    else:
        _place_window(placed, view, page, bottom)
    return placed


def lay_over(placed: Placed, nodes: list[UiNode]) -> None:
    """Put a banner over the top of the screen, its text above its buttons; what is mostly below it is out of reach."""
    said, *buttons = nodes
    placed.banner = _BANNER
    below = [(node, box) for node, box in zip(placed.nodes, placed.boxes, strict=True) if _is_beyond(box)]
    placed.nodes, placed.boxes = [], []
    left, top, right, bottom = _BANNER
    placed.add(said, left, top, right, bottom - CONTROL)
    _place_line(placed, NodeLine(tuple(buttons)), left, right, bottom - CONTROL, bottom)
    for node, box in below:
        placed.add(node, box.left, max(box.top, bottom), box.right, box.bottom)


def _is_beyond(box: Box) -> bool:
    return 2 * (box.bottom - max(box.top, _BANNER.bottom)) >= box.bottom - box.top


def _place_screen(placed: Placed, view: View, page: Page, bottom: int, back_icon: UiNode | None) -> None:
    top = STATUS_BAR
    if view.style == "screen":
        top += APP_BAR
        _place_app_bar(placed, view, view.navigation or back_icon)
    footer_top = bottom if view.footer is None else bottom - _measure_height(view.footer, 0, placed.sizes)
    placed.body = Box(0, top, WIDTH, footer_top)
    _place_body(placed, view.body, page.scroll, clearance=210 if view.fab else 0)
    if view.footer is not None:
        _place_line(placed, view.footer, 0, WIDTH, footer_top, bottom)
    if view.fab is not None:
        placed.add(view.fab, WIDTH - MARGIN - 168, footer_top - MARGIN - 168, WIDTH - MARGIN, footer_top - MARGIN)


def _place_app_bar(placed: Placed, view: View, navigation: UiNode | None) -> None:
    top, bottom = STATUS_BAR, STATUS_BAR + APP_BAR
    left = MARGIN
    if navigation is not None:
        placed.add(navigation, 0, top, CONTROL, bottom)
        left = CONTROL
    right = WIDTH - CONTROL * len(view.actions)
    placed.add(heading(view.title, "android:id/title"), left, top, right, bottom)
    for node in view.actions:
        placed.add(node, right, top, right + CONTROL, bottom)
        right += CONTROL


def _place_window(placed: Placed, view: View, page: Page, bottom: int) -> None:
    # Menus are narrow, sheets as wide as the screen, dialogs in between.
    width = {"menu": 580, "sheet": WIDTH}.get(view.style, WIDTH - 240)
    share = (width - 2 * MARGIN) / (WIDTH - 2 * MARGIN)
    # Texts break by characters per line, so a narrower window needs fewer of them.
    placed.sizes = placed.sizes._replace(characters=int(placed.sizes.characters * share))
    content = sum(_measure_height(entry, 0, placed.sizes) for entry in view.body)
    title = 150 if view.title and view.style != "menu" else 0
    buttons = 150 if view.actions else 0
    # What does not fit is scrolled: a window never leaves the screen.
    limit = bottom - STATUS_BAR - 2 * MARGIN
    height = min(content + title + buttons, limit)
    # Where windows of each kind stand on Android: below the menu button, at the bottom, in the middle.
    if view.style == "menu":
        left, right, top = WIDTH - 20 - width, WIDTH - 20, STATUS_BAR + 20
    elif view.style == "sheet":
        left, right, top = 0, WIDTH, bottom - height
    else:
        left, right, top = 120, WIDTH - 120, STATUS_BAR + MARGIN + (limit - height) // 2
    placed.window = Box(left, top, right, top + height)
    # Only the part between title and buttons scrolls.
    placed.body = Box(left, top + title, right, top + height - buttons)
    if title:
        placed.add(heading(view.title, "android:id/alertTitle"), left, top, right, top + title)
    _place_body(placed, view.body, page.scroll, clearance=0)
    if buttons:
        _place_line(placed, NodeLine(view.actions), left, right, top + height - buttons, top + height)


def _place_body(placed: Placed, body: list[Item], scroll: int, clearance: int) -> None:
    left, top, right, bottom = placed.body
    if right - left == WIDTH:
        left, right = left + placed.sizes.inset, right - placed.sizes.inset
    space = bottom - top
    heights = [_measure_height(entry, space, placed.sizes) for entry in body]
    content = sum(heights)
    placed.room = max(0, content + (clearance if content > space - clearance else 0) - space)
    y = top - min(scroll, placed.room)
    for entry, height in zip(body, heights, strict=True):
        upper, lower = max(y, top), min(y + height, bottom)
        if 2 * (lower - upper) >= min(height, space):
            _place_line(placed, entry, left, right, upper, lower)
        else:
            direction = "up" if y < top else "down"
            nodes = entry.nodes if isinstance(entry, NodeLine) else (entry,)
            placed.hidden.update((node.key, direction) for node in nodes)
        y += height


def _place_line(placed: Placed, entry: Item, left: int, right: int, top: int, bottom: int) -> None:
    if isinstance(entry, UiNode):
        placed.add(entry, left, top, right, bottom)
    elif entry.split:
        width, count = right - left, entry.columns or len(entry.nodes)
        for position, node in enumerate(entry.nodes):
            placed.add(node, left + width * position // count, top, left + width * (position + 1) // count, bottom)
    else:
        controls = entry.nodes[1:]
        placed.add(entry.nodes[0], left, top, right, bottom)
        x = right - CONTROL * len(controls)
        for node in controls:
            placed.add(node, x, top + 8, x + CONTROL, bottom - 8)
            x += CONTROL


def _measure_height(entry: Item, space: int, sizes: Measures) -> int:
    if isinstance(entry, NodeLine):
        return max(_measure_height(node, space, sizes) for node in entry.nodes)
    if entry.height:
        return entry.height
    if entry.role == "text":
        lines = sum(1 + len(part) // sizes.characters for part in entry.label.split("\n"))
        return 60 + sizes.pitch * lines + (50 if entry.value else 0)
    if entry.multiline:
        lines = sum(1 + len(part) // sizes.characters for part in (entry.value or "").split("\n"))
        return max(space, 120 + 60 * lines)
    return sizes.heights[entry.role] + (50 if entry.value and entry.role == "list item" else 0)
