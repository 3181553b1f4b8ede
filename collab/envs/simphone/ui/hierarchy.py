"""Build the screen as UiAutomator sees it: a tree of Android views, and its XML.

It has one view per element, in the order of the phone's own observation:

    list item, text with two lines   a layout that holds text views
    switch                           a layout that holds its text and a checkable Switch
    input                            EditText; an empty one shows its hint
    icon, image, slider, spinner     their label is the content description, their value the text
    anything else                    label as text, value as content description
    what scrolls                     one ScrollView around the body

A keyboard is a window of the input method's package. `heading` marks headings; Android's own dump has no such
attribute, and other readers ignore it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from collab.envs.simphone.state import HEIGHT, WIDTH, Phone
from collab.envs.simphone.ui.layout import KEYBOARD_TOP
from collab.envs.simphone.ui.screen import Frame, look
from collab.types import Box, Element

INPUT_METHOD = "com.google.android.inputmethod.latin"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold."""

CLASSES = {
    "app": "android.widget.TextView",
    "button": "android.widget.Button",
    "checkbox": "android.widget.CheckBox",
    "chip": "com.google.android.material.chip.Chip",
    "heading": "android.widget.TextView",
    "icon": "android.widget.ImageButton",
    "image": "android.widget.ImageView",
    "input": "android.widget.EditText",
    "list item": "android.widget.LinearLayout",
    "progress": "android.widget.ProgressBar",
    "radio": "android.widget.RadioButton",
    "slider": "android.widget.SeekBar",
    "spinner": "android.widget.Spinner",
    "switch": "android.widget.LinearLayout",
    "tab": "android.app.ActionBar$Tab",
    "text": "android.widget.TextView",
}
_CHECKABLE = frozenset({"switch", "checkbox", "radio"})
_LAYOUTS = frozenset({"text", *_CHECKABLE})
"""Roles whose second line makes them a layout."""
_BY_DESCRIPTION = frozenset({"icon", "image", "slider", "spinner"})


@dataclass(slots=True, kw_only=True)
class ViewNode:
    """One view of the tree."""

    kind: str
    """Class name."""
    package: str
    box: Box
    text: str = ""
    description: str = ""
    id: str = ""
    """Resource id."""
    hint: str = ""
    flags: frozenset[str] = frozenset()
    """Those of checkable, checked, clickable, focusable, focused, scrollable, long-clickable, password, selected,
    heading, disabled that hold."""
    children: list[ViewNode] = field(default_factory=list)
    element: int | None = None
    """Index of the phone's element that it stands for; None for layouts and parts."""
    parent: ViewNode | None = field(default=None, repr=False)

    def walk(self) -> Iterator[ViewNode]:
        """Yield the view and all below it, in reading order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def add(self, child: ViewNode) -> ViewNode:
        """Put a view into this one."""
        child.parent = self
        self.children.append(child)
        return child


def build_hierarchy(phone: Phone) -> list[ViewNode]:
    """Return the windows on the screen, each as its root view; the app's first."""
    frame = look(phone)
    package = frame.view.package or phone.foreground
    root = ViewNode(kind="android.widget.FrameLayout", package=package, box=frame.placed.window)
    scroller = root
    if frame.placed.room > 0:
        scroller = _build_scroller(frame, package)
    for index, element in enumerate(frame.elements):
        inside = scroller is not root and _is_in_body(frame, index, element)
        if inside and scroller.parent is None:
            root.add(scroller)
        view = _build_view(element, package)
        view.element = index
        (scroller if inside else root).add(view)
    if not phone.keyboard:
        return [root]
    return [root, _build_keyboard()]


def _build_scroller(frame: Frame, package: str) -> ViewNode:
    return ViewNode(
        kind="android.widget.ScrollView",
        package=package,
        box=frame.placed.body,
        flags=frozenset({"scrollable", "focusable"}),
    )


def _is_in_body(frame: Frame, index: int, element: Element) -> bool:
    body, box = frame.placed.body, element.box
    if box is None or frame.placed.nodes[index] is frame.view.fab:
        return False
    return body.top <= box.top and box.bottom <= body.bottom and body.left <= box.left and box.right <= body.right


def _build_keyboard() -> ViewNode:
    box = Box(0, KEYBOARD_TOP, WIDTH, HEIGHT)
    return ViewNode(kind="android.widget.FrameLayout", package=INPUT_METHOD, box=box, id=INPUT_METHOD + ":id/keyboard")


def _build_view(element: Element, package: str) -> ViewNode:
    role, flags = element.role, set(element.flags)
    view = ViewNode(
        kind=CLASSES.get(role, "android.view.View"), package=package, box=element.box or Box(0, 0, 0, 0), id=element.key
    )
    passive = role in ("text", "heading", "image")
    view.flags = frozenset(
        flags & {"checked", "focused", "selected", "long-clickable", "password", "disabled"}
        | ({"clickable", "focusable"} if not passive else set())
        | ({"checkable"} if role in _CHECKABLE else set())
        | ({"heading"} if role == "heading" else set())
    )
    if role in _BY_DESCRIPTION:
        view.description, view.text = element.label, element.value or ""
    elif role == "input":
        view.hint, view.text = element.label, element.value or element.label
    elif role in ("list item", "switch") or (element.value is not None and role in _LAYOUTS):
        _fill(view, element)
    else:
        view.text, view.description = element.label, element.value or ""
    return view


def _fill(view: ViewNode, element: Element) -> None:
    """Make a layout of several parts: label, second line, switch."""
    view.kind = "android.widget.LinearLayout"
    view.flags |= {"focusable"}
    box = view.box
    middle = (box.top + box.bottom) // 2
    lower = middle if element.value is not None else box.bottom
    label = Box(box.left, box.top, box.right, lower)
    view.add(_build_part(view, "android.widget.TextView", label, text=element.label, id="android:id/title"))
    if element.value is not None:
        value = Box(box.left, middle, box.right, box.bottom)
        view.add(_build_part(view, "android.widget.TextView", value, text=element.value, id="android:id/summary"))
    if element.role in _CHECKABLE:
        flags = frozenset({"checkable"} | (set(view.flags) & {"checked"}))
        view.flags -= {"checkable", "checked"}
        place = Box(max(box.left, box.right - 166), middle - 36, box.right - 42, middle + 36)
        kind = {"checkbox": "CheckBox", "radio": "RadioButton"}.get(element.role, "Switch")
        part = _build_part(view, f"android.widget.{kind}", place, id=f"android:id/{kind.lower()}_widget")
        part.flags |= flags
        view.add(part)


def _build_part(view: ViewNode, kind: str, box: Box, *, text: str = "", id: str = "") -> ViewNode:
    return ViewNode(kind=kind, package=view.package, box=box, text=text, id=id, flags=view.flags & {"disabled"})


# ------------------------------------------------------------------------------------------------------------ XML


def dump(roots: list[ViewNode], max_depth: int = 50) -> str:
    """Return the XML that `uiautomator dump` writes; `max_depth` counts levels of views."""
    parts = ["<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>\n", '<hierarchy rotation="0">\n']
    for index, root in enumerate(roots):
        _write(root, index, parts, max_depth)
    parts.append("</hierarchy>\n")
    return "".join(parts)


def _write(view: ViewNode, index: int, parts: list[str], depth: int) -> None:
    if depth <= 0:
        return
    box = view.box
    flags = "".join(f' {name}="{str(name in view.flags).lower()}"' for name in _WRITTEN)
    bounds = f"[{box.left},{box.top}][{box.right},{box.bottom}]"
    hint = f" hint={quote_xml(view.hint)}" if view.hint else ""
    heading = ' heading="true"' if "heading" in view.flags else ""
    parts.append(
        f'<node index="{index}" text={quote_xml(view.text)} resource-id={quote_xml(view.id)} '
        f"class={quote_xml(view.kind)} package={quote_xml(view.package)} "
        f"content-desc={quote_xml(view.description)}{flags} "
        f'enabled="{str("disabled" not in view.flags).lower()}" visible-to-user="true" bounds="{bounds}"{hint}{heading}'
    )
    if not view.children:
        parts.append(" />\n")
        return
    parts.append(">\n")
    for place, child in enumerate(view.children):
        _write(child, place, parts, depth - 1)
    parts.append("</node>\n")


_WRITTEN = (
    *("checkable", "checked", "clickable", "focusable", "focused"),
    *("scrollable", "long-clickable", "password", "selected"),
)


def quote_xml(text: str) -> str:
    """Return an attribute value with its quotes; what XML cannot hold becomes a question mark."""
    cleaned = _FORBIDDEN.sub("?", text)
    return quoteattr(cleaned, {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})
