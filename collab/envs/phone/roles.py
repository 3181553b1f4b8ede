"""How an element looks, by its role: one painter each.

A painter gets a `Brush` and draws inside its box; it reads nothing but the element and the theme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from collab.envs.phone.app_icon import app_icon
from collab.envs.phone.icons import named, sketch_of
from collab.envs.phone.layout import MARGIN
from collab.envs.phone.paint import Canvas, Colour, text_width
from collab.envs.phone.theme import Theme
from collab.types import Box, Element

SMALL, BODY, TITLE = 36, 42, 54
"""Sizes of text, in pixels."""
_FLOATING = 168
"""Side of a floating button; no other icon is that large and square."""
_PAGE = 700
"""A text area this high fills the page; a lower one is a field of a form."""


@dataclass(frozen=True, slots=True)
class Brush:
    """One element to paint, with what everything about it needs."""

    canvas: Canvas
    theme: Theme
    element: Element
    box: Box
    picture: str
    """What its icon shows: in most cases the label."""

    @property
    def middle(self) -> int:
        """Half way down the box."""
        return (self.box.top + self.box.bottom) // 2

    @property
    def ink(self) -> Colour:
        """Colour of the label."""
        return self.theme.faint if "disabled" in self.element.flags else self.theme.ink

    def on(self, flag: str) -> bool:
        """Whether the element has the flag."""
        return flag in self.element.flags

    def words(self, left: int, right: int, size: int = BODY) -> None:
        """Label, and the value below it."""
        label, value, width = self.element.label, self.element.value, max(1, right - left)
        if not value:
            self.canvas.line(label, left, self.middle, size, self.ink, width=width)
            return
        self.canvas.line(label, left, self.middle - 30, size, self.ink, width=width)
        self.canvas.line(value, left, self.middle + 32, SMALL, self.theme.faint, width=width)

    def divider(self) -> None:
        """A thin line under a row as wide as the screen's text."""
        left, _, right, bottom = self.box
        if right - left > 400:
            self.canvas.rectangle((left + MARGIN, bottom - 2, right - MARGIN, bottom), self.theme.line)


def plain(brush: Brush) -> None:
    """Label and value as text: how `text` looks, and any role that has no painter."""
    left, top, right, bottom = brush.box
    canvas, theme, element = brush.canvas, brush.theme, brush.element
    x, y = left + MARGIN, top + 20
    if element.label:
        end = canvas.paragraph(element.label, (x, y, right - MARGIN, bottom), BODY, 55, theme.ink)
        y = end[1] + 28
    if element.value:
        canvas.paragraph(element.value, (x, y, right - MARGIN, bottom), SMALL, 50, theme.faint)


def _heading(brush: Brush) -> None:
    in_bar = brush.element.key in ("android:id/title", "android:id/alertTitle")
    size, colour = (TITLE, brush.theme.ink) if in_bar else (40, brush.theme.accent)
    left = brush.box.left + (MARGIN if brush.element.key != "android:id/title" else 10)
    width = max(1, brush.box.right - left - 10)
    brush.canvas.line(brush.element.label, left, brush.middle, size, colour, width=width, bold=True)


def _list_item(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    if brush.on("selected"):
        brush.canvas.rounded((left + 12, top + 4, right - 12, bottom - 4), 28, brush.theme.tint)
    brush.words(left + MARGIN, right - MARGIN)
    brush.divider()


def _switch(brush: Brush) -> None:
    right, middle, theme = brush.box.right - MARGIN, brush.middle, brush.theme
    brush.words(brush.box.left + MARGIN, right - 160)
    track = (right - 124, middle - 36, right, middle + 36)
    if brush.on("checked"):
        brush.canvas.rounded(track, 36, theme.accent)
        brush.canvas.rounded((right - 64, middle - 28, right - 8, middle + 28), 28, theme.on_accent)
    else:
        brush.canvas.outlined(track, 36, theme.faint, theme.card, 5)
        brush.canvas.rounded((right - 108, middle - 20, right - 68, middle + 20), 20, theme.faint)
    brush.divider()


def _checkbox(brush: Brush) -> None:
    x = _control(brush)
    box = (x - 30, brush.middle - 30, x + 30, brush.middle + 30)
    if brush.on("checked"):
        brush.canvas.rounded(box, 10, brush.theme.accent)
        brush.canvas.sketch(named("check"), (x, brush.middle), 48, brush.theme.on_accent)
    else:
        brush.canvas.outlined(box, 10, brush.theme.faint, brush.theme.ground, 6)


def _radio(brush: Brush) -> None:
    x, checked = _control(brush), brush.on("checked")
    ring = brush.theme.accent if checked else brush.theme.faint
    brush.canvas.outlined((x - 30, brush.middle - 30, x + 30, brush.middle + 30), 30, ring, brush.theme.card, 6)
    if checked:
        brush.canvas.rounded((x - 15, brush.middle - 15, x + 15, brush.middle + 15), 15, ring)


def _control(brush: Brush) -> int:
    """Where the box or the ring goes, x of its middle: alone in a narrow place, else before the label."""
    left, _, right, _ = brush.box
    if right - left <= 200:
        return (left + right) // 2
    brush.words(left + MARGIN + 100, right - MARGIN)
    return left + MARGIN + 30


def _slider(brush: Brush) -> None:
    left, top, right, _ = brush.box
    canvas, theme = brush.canvas, brush.theme
    digits = (brush.element.value or "0").strip().rstrip("%")
    share = min(1.0, max(0.0, float(digits) / 100)) if digits.replace(".", "", 1).isdecimal() else 0.0
    canvas.line(brush.element.label, left + MARGIN, top + 36, SMALL, theme.ink, width=right - left - 300)
    canvas.line(brush.element.value or "", right - 160, top + 36, SMALL, theme.faint, width=150)
    x, y = left + MARGIN + round((right - left - 2 * MARGIN) * share), brush.box.bottom - 48
    canvas.rounded((left + MARGIN, y - 8, right - MARGIN, y + 8), 8, theme.line)
    canvas.rounded((left + MARGIN, y - 8, x, y + 8), 8, theme.accent)
    canvas.rounded((x - 32, y - 32, x + 32, y + 32), 32, theme.accent)


def _spinner(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme = brush.canvas, brush.theme
    canvas.line(brush.element.label, left + MARGIN, top + 34, 32, theme.faint, width=right - left - 150)
    value = brush.element.value or ""
    canvas.line(value, left + MARGIN, brush.middle + 18, BODY, theme.ink, width=max(1, right - left - 150))
    canvas.sketch(named("down"), (right - MARGIN - 30, brush.middle + 14), 44, theme.faint)
    canvas.rectangle((left + MARGIN, bottom - 25, right - MARGIN, bottom - 22), theme.faint)


def _input(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme, element = brush.canvas, brush.theme, brush.element
    focused, value = brush.on("focused"), element.value or ""
    shown = "•" * len(value) if brush.on("password") else value
    x, width = left + MARGIN, max(1, right - left - 2 * MARGIN)
    if bottom - top > 240:
        caret = _paper(brush, shown)
    else:
        name = theme.accent if focused else theme.faint
        end = x
        if shown:
            canvas.line(element.label, x, top + 34, 32, name, width=width)
            end = canvas.line(shown, x, brush.middle + 18, BODY, theme.ink, width=width, end=focused)
        else:
            canvas.line(element.label, x, brush.middle + 18, BODY, name, width=width)
        caret = end + (3 if shown else -8), brush.middle + 18
        thick = 6 if focused else 3
        canvas.rectangle(
            (x, bottom - 22 - thick, right - MARGIN, bottom - 22), theme.accent if focused else theme.faint
        )
    if focused:
        canvas.rectangle((caret[0], caret[1] - 28, caret[0] + 5, caret[1] + 28), theme.accent)


def _paper(brush: Brush, shown: str) -> tuple[int, int]:
    """A big text area; returns where the caret stands."""
    left, top, right, bottom = brush.box
    inside = (left + MARGIN, top + 24, right - MARGIN, bottom - 24)
    if shown and bottom - top < _PAGE:  # others stand around it: say which this is
        brush.canvas.line(brush.element.label, left + MARGIN, top + 34, 32, brush.theme.faint, width=right - left)
        brush.canvas.rectangle((left + MARGIN, bottom - 25, right - MARGIN, bottom - 22), brush.theme.faint)
        inside = (left + MARGIN, top + 60, right - MARGIN, bottom - 25)
    text, colour = (shown, brush.theme.ink) if shown else (brush.element.label, brush.theme.faint)
    end = brush.canvas.paragraph(text, inside, BODY, 60, colour)
    return (end[0] + 3, end[1]) if shown else (inside[0] - 8, top + 54)


def _button(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    inset = MARGIN if right - left > 900 else min(12, (right - left) // 8)
    off = brush.on("disabled")
    ground, ink = (brush.theme.line, brush.theme.faint) if off else (brush.theme.tint, brush.theme.accent)
    brush.canvas.rounded((left + inset, top + 18, right - inset, bottom - 18), 60, ground)
    middle = (left + right) // 2, brush.middle
    width = max(1, right - left - 50)
    brush.canvas.centred(brush.element.label, middle, 40, ink, width=width, bold=True)


def _icon(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    ink = brush.ink
    if right - left == bottom - top == _FLOATING:
        brush.canvas.rounded(brush.box, 48, brush.theme.accent)
        ink = brush.theme.on_accent
    middle = (left + right) // 2, brush.middle
    sketch = sketch_of(brush.picture)
    if sketch is not None:
        brush.canvas.sketch(sketch, middle, 68, ink)
    else:
        brush.canvas.centred(brush.element.label[:1].upper(), middle, 60, ink, width=90, bold=True)


def _tab(brush: Brush) -> None:
    left, _, right, bottom = brush.box
    colour = brush.theme.accent if brush.on("selected") else brush.theme.faint
    middle = (left + right) // 2, brush.middle
    brush.canvas.centred(brush.element.label, middle, 38, colour, width=right - left - 16, bold=brush.on("selected"))
    if brush.on("selected"):
        brush.canvas.rounded((left + 50, bottom - 14, right - 50, bottom - 4), 5, colour)


def _image(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    brush.canvas.rounded((left + 12, top + 12, right - 12, bottom - 12), 28, brush.theme.line)
    x, tall = (left + right) // 2, bottom - top
    faint = brush.theme.faint
    if tall < 260:
        return brush.canvas.sketch(named("picture"), (x, brush.middle), max(12, tall // 2), faint)
    brush.canvas.sketch(named("picture"), (x, brush.middle - 40), 130, faint)
    brush.canvas.centred(brush.element.label, (x, brush.middle + 80), SMALL, faint, width=max(1, right - left - 60))


def _chip(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    chosen = brush.on("selected") or brush.on("checked")
    ground = brush.theme.tint if chosen else brush.theme.ground
    brush.canvas.outlined((left + 8, top + 16, right - 8, bottom - 16), 24, brush.theme.line, ground)
    middle, value = (left + right) // 2, brush.element.value
    above = 34 if value else 0
    width = right - left - 24
    size = 38 if text_width(brush.element.label, round(38 * brush.canvas.scale)) <= width else 30
    brush.canvas.centred(brush.element.label, (middle, brush.middle - above), size, brush.ink, width=width)
    if value:
        brush.canvas.centred(value, (middle, brush.middle + 34), 28, brush.theme.faint, width=right - left - 24)


def _app(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    name = brush.element.label
    middle, center = (left + right) // 2, top + (bottom - top - 60) // 2
    app_icon(brush.canvas, brush.picture, (middle, center), max(8, min(84, (right - left) // 2 - 10)))
    brush.canvas.centred(name, (middle, bottom - 42), 32, (255, 255, 255), width=right - left - 12)


Painter: TypeAlias = Callable[[Brush], None]
PAINTERS: Mapping[str, Painter] = {
    "app": _app,
    "button": _button,
    "checkbox": _checkbox,
    "chip": _chip,
    "heading": _heading,
    "icon": _icon,
    "image": _image,
    "input": _input,
    "list item": _list_item,
    "radio": _radio,
    "slider": _slider,
    "spinner": _spinner,
    "switch": _switch,
    "tab": _tab,
    "text": plain,
}
"""How each role looks; others are written as text."""
