"""A device's screen dump as elements, in the roles and words that SimPhone uses.

A layout that can be touched and holds only text is one element: its first text is the label, the rest the value; a
switch or checkbox inside gives it its role. Texts, inputs and controls are elements by themselves; scrolling
containers are none. The status bar is left out, and the keyboard is only noted.

An observation is bounded: of longer texts it tells the beginning, the end and how many characters lie between.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from collab.envs.text import MAX_ELEMENTS, MAX_NOTICE, MAX_TITLE, bound_elements, cut_middle, describe_screen
from collab.types import Box, Element, Observation

_BOUNDS = re.compile(r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]")
_SYSTEM_BARS = "com.android.systemui"
_TITLES = ("android:id/title", "android:id/alertTitle")
_ROLES = (
    ("EditText", "input"),
    ("AutoCompleteTextView", "input"),
    ("Switch", "switch"),
    ("SwitchCompat", "switch"),
    ("SwitchMaterial", "switch"),
    ("ToggleButton", "switch"),
    ("CheckBox", "checkbox"),
    ("RadioButton", "radio"),
    ("CheckedTextView", "radio"),
    ("SeekBar", "slider"),
    ("Spinner", "spinner"),
    ("ImageButton", "icon"),
    ("ImageView", "image"),
    ("Button", "button"),
    ("Chip", "chip"),
    ("Tab", "tab"),
    ("ProgressBar", "progress"),
)
"""End of a class name → role; the first that fits."""
_CONTROLS = frozenset({"switch", "checkbox", "radio"})


class DumpError(ValueError):
    """The dump is no XML of views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenDump:
    """Content of a dump."""

    elements: tuple[Element, ...]
    package: str
    """Package of the first window that is not the system's; empty when there is none."""
    keyboard: bool
    scrollable: bool


def read_size(xml: str, width: int, height: int) -> tuple[int, int]:
    """Return the size of a dump's screen: the given one, or turned if its windows fit only then; else DumpError."""
    # A device may turn between the dump and the query of its size.
    boxes = [box for box in map(_parse_box, _parse(xml)) if box is not None]
    right, bottom = max((box.right for box in boxes), default=0), max((box.bottom for box in boxes), default=0)
    is_turned = (right > width or bottom > height) and right <= height and bottom <= width
    return (height, width) if is_turned else (width, height)


def read_dump(xml: str, *, width: int, height: int) -> ScreenDump:
    """Read a UiAutomator dump.

    Raises:
        DumpError: it is none.
    """
    root = _parse(xml)
    reader = _DumpReader(width=width, height=height)
    package, keyboard, thin = "", False, max(width, height) // 10
    for window in root:
        owner = window.get("package", "")
        if "inputmethod" in owner:
            keyboard = True
            continue
        box = _parse_box(window)
        if owner == _SYSTEM_BARS and box is not None and min(box.bottom - box.top, box.right - box.left) < thin:
            continue  # the status bar, and the navigation bar, which stands at the side of a turned device
        package = package or owner
        reader.visit(window)
    return ScreenDump(elements=tuple(reader.elements), package=package, keyboard=keyboard, scrollable=reader.scrollable)


def _parse(xml: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(xml.encode("utf-8", "replace"))
    except ElementTree.ParseError as problem:
        raise DumpError(f"screen dump: {problem}") from None


def read_views(views: Iterable[Mapping[str, str]], *, width: int, height: int) -> tuple[ScreenDump, tuple[int, ...]]:
    """Read views that come as a list, without a tree.

    Args:
        views: attributes as in a dump ("class", "text", "bounds" …).

    Returns:
        The screen, and for each of its elements the position of its view in `views`.
    """
    reader = _DumpReader(width=width, height=height)
    places: list[int] = []
    package, keyboard = "", False
    for place, view in enumerate(views):
        owner, box = view.get("package", ""), _parse_bounds(view.get("bounds", ""))
        # The keyboard belongs to a process of its own, and is no part of the app's screen.
        if "inputmethod" in owner:
            keyboard = True
        elif not (owner == _SYSTEM_BARS and box is not None and box.bottom <= height // 10):
            # The status bar is left out; system dialogs lower down are not.
            package = package or owner
            reader.visit(ElementTree.Element("node", dict(view)))
            # Several elements may come of one view, all of them at its place.
            places += [place] * (len(reader.elements) - len(places))
    screen = ScreenDump(
        elements=tuple(reader.elements), package=package, keyboard=keyboard, scrollable=reader.scrollable
    )
    return screen, tuple(places)


def observe(screen: ScreenDump, *, app: str, notice: str | None, width: int, height: int) -> Observation:
    """Return the observation of a screen.

    Args:
        app: readable name of the app in front.
        notice: the toast that was seen since the last step.
    """
    # An app's own heading is its title; a list item may have the same id.
    heading = next((one.label for one in screen.elements if one.key in _TITLES and one.role != "list item"), "")
    title = cut_middle(app if heading in ("", app) else f"{app}: {heading}", MAX_TITLE)
    elements = bound_elements(screen.elements)
    notice = cut_middle(notice, MAX_NOTICE) if notice else notice
    extra = [f"Message: {notice}"] if notice else []
    extra += ["The keyboard is open."] if screen.keyboard else []
    extra += ["The screen can be scrolled."] if screen.scrollable else []
    # What is left out is mentioned, or an agent would take the screen for whole.
    if len(elements) < len(screen.elements):
        extra.append(f"Left out: everything after the first {MAX_ELEMENTS} elements of the screen")
    return Observation(
        space="mobile",
        title=title,
        elements=elements,
        text=describe_screen(title, elements, extra),
        width=width,
        height=height,
        notice=notice,
    )


# -------------------------------------------------------------------------------------------------------- reading


@dataclass(slots=True, kw_only=True)
class _DumpReader:
    width: int
    height: int
    elements: list[Element] = field(default_factory=list)
    scrollable: bool = False

    def visit(self, root: ElementTree.Element) -> None:
        """Take over a view and what is in it, in reading order; a stack, because dumps may be thousands deep."""
        waiting = [(root, False)]
        while waiting:
            node, claimed = waiting.pop()  # claimed: its texts already belong to an element around it
            self.scrollable = self.scrollable or _is(node, "scrollable")
            box = self._clip(node)
            if box is not None and self._is_group(node, box):
                self._emit(node, box, _collect_texts(node))
                claimed = True
            elif box is not None and _is_own(node) and not (claimed and not _is_touchable(node)):
                self._emit(node, box, [])
            waiting += [(child, claimed) for child in reversed(node)]

    def _clip(self, node: ElementTree.Element) -> Box | None:
        """Return where the view is on the screen; None when nowhere."""
        box = _parse_box(node)
        if box is None or node.get("visible-to-user") == "false":
            return None
        box = Box(max(0, box.left), max(0, box.top), min(self.width, box.right), min(self.height, box.bottom))
        return box if box.area else None

    def _is_group(self, node: ElementTree.Element, box: Box) -> bool:
        """Return whether a layout and the texts in it are one element."""
        if len(node) == 0 or _is(node, "scrollable") or 2 * box.area > self.width * self.height:
            return False
        if not (_is_touchable(node) or _is(node, "focusable")) or not _collect_texts(node):
            return False
        return _is_touchable(node) or not any(
            _is_touchable(below) or _is(below, "scrollable") for below in _walk_below(node)
        )

    def _emit(self, node: ElementTree.Element, box: Box, parts: list[str]) -> None:
        # A grouped row acts through its switch or box, and is described as that.
        control = (
            next((below for below in _walk_below(node) if _map_class(below) in _CONTROLS), None) if parts else None
        )
        role = _map_class(control) if control is not None else _find_role(node, grouped=bool(parts))
        label, value = (parts[0], ", ".join(parts[1:]) or None) if parts else _read_words(node, role)
        element = Element(
            index=len(self.elements),
            role=role,
            label=label,
            box=box,
            value=value,
            flags=_read_flags(node, control, role),
            key=node.get("resource-id", ""),
        )
        self.elements.append(element)


def _is(node: ElementTree.Element, flag: str) -> bool:
    return node.get(flag) == "true"


def _is_touchable(node: ElementTree.Element) -> bool:
    return _is(node, "clickable") or _is(node, "long-clickable") or _map_class(node) == "input"


def _is_own(node: ElementTree.Element) -> bool:
    """Return whether a view is an element by itself."""
    said = node.get("text") or node.get("content-desc")
    known = _map_class(node) not in ("", "image")
    return bool(said) or known or (len(node) == 0 and _is_touchable(node))


def _walk_below(node: ElementTree.Element) -> Iterator[ElementTree.Element]:
    return (one for one in node.iter() if one is not node)


def _collect_texts(node: ElementTree.Element) -> list[str]:
    """Return the texts in a layout that do not belong to something that can be touched by itself."""
    own = node.get("content-desc") or node.get("text") or ""
    found, waiting = ([own] if own else []), list(reversed(node))
    while waiting:
        child = waiting.pop()
        said = "" if _is_touchable(child) else child.get("text") or child.get("content-desc") or ""
        if said:
            found.append(said)
        elif not _is_touchable(child):
            waiting += reversed(child)
    return found


def _parse_box(node: ElementTree.Element) -> Box | None:
    return _parse_bounds(node.get("bounds", ""))


def _parse_bounds(text: str) -> Box | None:
    match = _BOUNDS.fullmatch(text)
    return Box(*(int(number) for number in match.groups())) if match else None


def _map_class(node: ElementTree.Element) -> str:
    name = node.get("class", "").rpartition(".")[2].rpartition("$")[2]
    return next((role for end, role in _ROLES if name == end or name.endswith(end)), "")


def _find_role(node: ElementTree.Element, *, grouped: bool) -> str:
    role = _map_class(node)
    if role == "image" and _is(node, "clickable"):
        return "icon"
    if role and not (grouped and role == "image"):
        return role
    if grouped:
        return "list item" if _is(node, "clickable") else "text"
    if _is(node, "clickable"):
        return "app" if "launcher" in node.get("package", "") else "button"
    return "heading" if _is(node, "heading") else "text"


def _read_words(node: ElementTree.Element, role: str) -> tuple[str, str | None]:
    """Return (label, value) of a view by itself."""
    text, description, hint = node.get("text", ""), node.get("content-desc", ""), node.get("hint", "")
    if role == "input":
        return hint or description, "" if hint and text == hint else text
    if role in ("slider", "progress", "spinner"):
        return (description or text), (text if description and text else None)
    return text or description, description if text and description not in ("", text) else None


def _read_flags(node: ElementTree.Element, control: ElementTree.Element | None, role: str) -> tuple[str, ...]:
    checked = _is(node, "checked") or (control is not None and _is(control, "checked"))
    held = {
        "checked": checked,
        "selected": _is(node, "selected"),
        "disabled": node.get("enabled") == "false",
        "password": _is(node, "password"),
        "focused": _is(node, "focused") and role == "input",
        "long-clickable": _is(node, "long-clickable"),
        "surface": role == "slider",
    }
    return tuple(name for name, holds in held.items() if holds)
