"""Paint elements, one painter per role.

A painter gets a `Brush` and draws inside its box; it reads nothing but the element and the theme.

Some elements are painted by their key, in any app:

…:id/contact/…, …:id/conversation/…   a row of a list that begins with a letter or a person in a disc
…:id/item/…                           a row that begins with a folder, or the kind of a file
…:id/message/…                        a bubble around the text: the owner's on the right, in the accent colour
…:id/day/…                            a day, with a dot when something happens on it
…:id/digital_clock, …_time            large digits

The system's own screens paint roles differently: a switch is a tile, a list item a notification, an app a card.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from collab.envs.simphone.ui.icons import find_sketch, load_sketch
from collab.envs.simphone.ui.layout import MARGIN
from collab.envs.simphone.ui.paint import Canvas, Colour, measure_text, wrap
from collab.envs.simphone.ui.theme import Theme, choose_app_colour, draw_app_icon
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

    def has_flag(self, flag: str) -> bool:
        """Return whether the element has the flag."""
        return flag in self.element.flags

    def words(self, left: int, right: int) -> None:
        """Draw the label, and the value below it."""
        label, value, width = self.element.label, self.element.value, max(1, right - left)
        if not value:
            self.canvas.line(label, left, self.middle, BODY, self.ink, width=width)
            return
        self.canvas.line(label, left, self.middle - 30, BODY, self.ink, width=width)
        self.canvas.line(value, left, self.middle + 32, SMALL, self.theme.faint, width=width)

    def divider(self) -> None:
        """Draw a thin line under a row as wide as the screen's text."""
        left, _, right, bottom = self.box
        if right - left > 400:
            self.canvas.rectangle((left + MARGIN, bottom - 2, right - MARGIN, bottom), self.theme.line)


def draw_plain(brush: Brush) -> None:
    """Draw label and value as text: `text`, and any role that has no painter."""
    left, top, right, bottom = brush.box
    canvas, theme, element = brush.canvas, brush.theme, brush.element
    x, y = left + MARGIN, top + 20
    if element.label:
        end = canvas.draw_paragraph(element.label, (x, y, right - MARGIN, bottom), BODY, 55, theme.ink)
        y = end[1] + 28
    if element.value:
        canvas.draw_paragraph(element.value, (x, y, right - MARGIN, bottom), SMALL, 50, theme.faint)


def _draw_heading(brush: Brush) -> None:
    in_bar = brush.element.key in ("android:id/title", "android:id/alertTitle")
    size, colour = (TITLE, brush.theme.ink) if in_bar else (40, brush.theme.accent)
    left = brush.box.left + (MARGIN if brush.element.key != "android:id/title" else 10)
    width = max(1, brush.box.right - left - 10)
    brush.canvas.line(brush.element.label, left, brush.middle, size, colour, width=width, bold=True)


def _list_item(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    if brush.has_flag("selected"):
        brush.canvas.draw_rounded((left + 12, top + 4, right - 12, bottom - 4), 28, brush.theme.tint)
    brush.words(left + MARGIN, right - MARGIN)
    brush.divider()


def _switch(brush: Brush) -> None:
    right, middle, theme = brush.box.right - MARGIN, brush.middle, brush.theme
    brush.words(brush.box.left + MARGIN, right - 160)
    track = (right - 124, middle - 36, right, middle + 36)
    if brush.has_flag("checked"):
        brush.canvas.draw_rounded(track, 36, theme.accent)
        brush.canvas.draw_rounded((right - 64, middle - 28, right - 8, middle + 28), 28, theme.on_accent)
    else:
        brush.canvas.draw_outlined(track, 36, theme.faint, theme.card, 5)
        brush.canvas.draw_rounded((right - 108, middle - 20, right - 68, middle + 20), 20, theme.faint)
    brush.divider()


def _draw_checkbox(brush: Brush) -> None:
    x = _place_control(brush)
    box = (x - 30, brush.middle - 30, x + 30, brush.middle + 30)
    if brush.has_flag("checked"):
        brush.canvas.draw_rounded(box, 10, brush.theme.accent)
        brush.canvas.sketch(load_sketch("check"), (x, brush.middle), 48, brush.theme.on_accent)
    else:
        brush.canvas.draw_outlined(box, 10, brush.theme.faint, brush.theme.ground, 6)


def _draw_radio(brush: Brush) -> None:
    x, checked = _place_control(brush), brush.has_flag("checked")
    ring = brush.theme.accent if checked else brush.theme.faint
    brush.canvas.draw_outlined((x - 30, brush.middle - 30, x + 30, brush.middle + 30), 30, ring, brush.theme.card, 6)
    if checked:
        brush.canvas.draw_rounded((x - 15, brush.middle - 15, x + 15, brush.middle + 15), 15, ring)


def _place_control(brush: Brush) -> int:
    """Return where the box or the ring goes, x of its middle: alone in a narrow place, else before the label."""
    left, _, right, _ = brush.box
    if right - left <= 200:
        return (left + right) // 2
    brush.words(left + MARGIN + 100, right - MARGIN)
    return left + MARGIN + 30


def _draw_slider(brush: Brush) -> None:
    left, top, right, _ = brush.box
    canvas, theme = brush.canvas, brush.theme
    digits = (brush.element.value or "0").strip().rstrip("%")
    share = min(1.0, max(0.0, float(digits) / 100)) if digits.replace(".", "", 1).isdecimal() else 0.0
    canvas.line(brush.element.label, left + MARGIN, top + 36, SMALL, theme.ink, width=right - left - 300)
    canvas.line(brush.element.value or "", right - 160, top + 36, SMALL, theme.faint, width=150)
    x, y = left + MARGIN + round((right - left - 2 * MARGIN) * share), brush.box.bottom - 48
    canvas.draw_rounded((left + MARGIN, y - 8, right - MARGIN, y + 8), 8, theme.line)
    canvas.draw_rounded((left + MARGIN, y - 8, x, y + 8), 8, theme.accent)
    canvas.draw_rounded((x - 32, y - 32, x + 32, y + 32), 32, theme.accent)


def _draw_spinner(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme = brush.canvas, brush.theme
    canvas.line(brush.element.label, left + MARGIN, top + 34, 32, theme.faint, width=right - left - 150)
    value = brush.element.value or ""
    canvas.line(value, left + MARGIN, brush.middle + 18, BODY, theme.ink, width=max(1, right - left - 150))
    canvas.sketch(load_sketch("down"), (right - MARGIN - 30, brush.middle + 14), 44, theme.faint)
    canvas.rectangle((left + MARGIN, bottom - 25, right - MARGIN, bottom - 22), theme.faint)


def _draw_input(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme, element = brush.canvas, brush.theme, brush.element
    focused, value = brush.has_flag("focused"), element.value or ""
    shown = "•" * len(value) if brush.has_flag("password") else value
    x, width = left + MARGIN, max(1, right - left - 2 * MARGIN)
    # A tall field is a page to write on; others are a line with a label.
    if bottom - top > 240:
        caret = _draw_paper(brush, shown)
    else:
        name = theme.accent if focused else theme.faint
        # The caret stands behind the value, or at the beginning of an empty field.
        end = x
        # With a value the label moves above it, as in Material's fields; else it stands in its place.
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
    # The caret shows which field typing goes to.
    if focused:
        canvas.rectangle((caret[0], caret[1] - 28, caret[0] + 5, caret[1] + 28), theme.accent)


def _draw_paper(brush: Brush, shown: str) -> tuple[int, int]:
    """Return a big text area; returns where the caret stands."""
    left, top, right, bottom = brush.box
    inside = (left + MARGIN, top + 24, right - MARGIN, bottom - 24)
    if shown and bottom - top < _PAGE:  # others stand around it: say which this is
        brush.canvas.line(brush.element.label, left + MARGIN, top + 34, 32, brush.theme.faint, width=right - left)
        brush.canvas.rectangle((left + MARGIN, bottom - 25, right - MARGIN, bottom - 22), brush.theme.faint)
        inside = (left + MARGIN, top + 60, right - MARGIN, bottom - 25)
    text, colour = (shown, brush.theme.ink) if shown else (brush.element.label, brush.theme.faint)
    end = brush.canvas.draw_paragraph(text, inside, BODY, 60, colour)
    return (end[0] + 3, end[1]) if shown else (inside[0] - 8, top + 54)


def _draw_button(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    inset = MARGIN if right - left > 900 else min(12, (right - left) // 8)
    off = brush.has_flag("disabled")
    ground, ink = (brush.theme.line, brush.theme.faint) if off else (brush.theme.tint, brush.theme.accent)
    brush.canvas.draw_rounded((left + inset, top + 18, right - inset, bottom - 18), 60, ground)
    middle = (left + right) // 2, brush.middle
    width = max(1, right - left - 50)
    brush.canvas.draw_centred(brush.element.label, middle, 40, ink, width=width, bold=True)


def _draw_icon(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    ink = brush.ink
    if right - left == bottom - top == _FLOATING:
        brush.canvas.draw_rounded(brush.box, 48, brush.theme.accent)
        ink = brush.theme.on_accent
    middle = (left + right) // 2, brush.middle
    sketch = find_sketch(brush.picture)
    if sketch is not None:
        brush.canvas.sketch(sketch, middle, 68, ink)
    else:
        brush.canvas.draw_centred(brush.element.label[:1].upper(), middle, 60, ink, width=90, bold=True)


def _draw_tab(brush: Brush) -> None:
    left, _, right, bottom = brush.box
    colour = brush.theme.accent if brush.has_flag("selected") else brush.theme.faint
    middle = (left + right) // 2, brush.middle
    brush.canvas.draw_centred(
        brush.element.label, middle, 38, colour, width=right - left - 16, bold=brush.has_flag("selected")
    )
    if brush.has_flag("selected"):
        brush.canvas.draw_rounded((left + 50, bottom - 14, right - 50, bottom - 4), 5, colour)


def _draw_image(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    brush.canvas.draw_rounded((left + 12, top + 12, right - 12, bottom - 12), 28, brush.theme.line)
    x, tall = (left + right) // 2, bottom - top
    faint = brush.theme.faint
    if tall < 260:
        return brush.canvas.sketch(load_sketch("picture"), (x, brush.middle), max(12, tall // 2), faint)
    brush.canvas.sketch(load_sketch("picture"), (x, brush.middle - 40), 130, faint)
    brush.canvas.draw_centred(
        brush.element.label, (x, brush.middle + 80), SMALL, faint, width=max(1, right - left - 60)
    )


def _draw_chip(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    chosen = brush.has_flag("selected") or brush.has_flag("checked")
    ground = brush.theme.tint if chosen else brush.theme.ground
    brush.canvas.draw_outlined((left + 8, top + 16, right - 8, bottom - 16), 24, brush.theme.line, ground)
    middle, value = (left + right) // 2, brush.element.value
    above = 34 if value else 0
    width = right - left - 24
    size = 38 if measure_text(brush.element.label, round(38 * brush.canvas.scale)) <= width else 30
    brush.canvas.draw_centred(brush.element.label, (middle, brush.middle - above), size, brush.ink, width=width)
    if value:
        brush.canvas.draw_centred(value, (middle, brush.middle + 34), 28, brush.theme.faint, width=right - left - 24)


def _draw_app(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    name = brush.element.label
    middle, center = (left + right) // 2, top + (bottom - top - 60) // 2
    draw_app_icon(brush.canvas, brush.picture, (middle, center), max(8, min(84, (right - left) // 2 - 10)))
    brush.canvas.draw_centred(name, (middle, bottom - 42), 32, (255, 255, 255), width=right - left - 12)


Painter: TypeAlias = Callable[[Brush], None]
PAINTERS: Mapping[str, Painter] = {
    "app": _draw_app,
    "button": _draw_button,
    "checkbox": _draw_checkbox,
    "chip": _draw_chip,
    "heading": _draw_heading,
    "icon": _draw_icon,
    "image": _draw_image,
    "input": _draw_input,
    "list item": _list_item,
    "radio": _draw_radio,
    "slider": _draw_slider,
    "spinner": _draw_spinner,
    "switch": _switch,
    "tab": _draw_tab,
    "text": draw_plain,
}
"""How each role looks; others are written as text."""


_PICTURE = 116
"""Pixels that a picture takes at the beginning of a row."""
_DOT = 10
"""Radius of a day's dot."""
_PEOPLE = re.compile(r":id/(contact|conversation)/")
_FILE = re.compile(r":id/item/(?:.*/)?([^/]+)$")
_BUBBLE = re.compile(r":id/message/")
_OWN = ("You: ", "Du: ")
"""How the owner's messages begin, in the languages of the phone."""
_DAY = re.compile(r":id/day/")
_DIGITS = re.compile(r":id/(digital_clock|timer_setup_time|stopwatch_time|timer_time/.*)$")
_KINDS = {"mp3": "music", "wav": "music", "ogg": "music", "jpg": "picture", "jpeg": "picture", "png": "picture"}


def _draw_app_list_item(brush: Brush) -> None:
    people, file = _PEOPLE.search(brush.element.key), _FILE.search(brush.element.key)
    left, top, right, bottom = brush.box
    if not (people or file) or right - left < 500:
        return PAINTERS["list item"](brush)
    if brush.has_flag("selected"):
        brush.canvas.draw_rounded((left + 12, top + 4, right - 12, bottom - 4), 28, brush.theme.tint)
    x, y = left + MARGIN + 40, brush.middle
    if file:
        brush.canvas.sketch(load_sketch(_find_kind(file[1])), (x, y), 72, brush.theme.accent)
    else:
        brush.canvas.draw_rounded((x - 40, y - 40, x + 40, y + 40), 40, choose_app_colour(brush.element.label))
        letter = brush.element.label[:1]
        if letter.isalpha():
            brush.canvas.draw_centred(letter.upper(), (x, y), 44, (255, 255, 255), width=70, bold=True)
        else:
            brush.canvas.sketch(load_sketch("person"), (x, y), 56, (255, 255, 255))
    brush.words(left + MARGIN + _PICTURE, right - MARGIN)
    brush.divider()


def _find_kind(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    return _KINDS.get(ending.lower(), "file") if stem else "folder"


def _draw_text(brush: Brush) -> None:
    key, (left, _, right, _) = brush.element.key, brush.box
    if _DIGITS.search(key):
        middle = (left + right) // 2, brush.middle
        brush.canvas.draw_centred(brush.element.label, middle, 84, brush.ink, width=right - left - 2 * MARGIN)
        return
    if _BUBBLE.search(key):
        return _draw_bubble(brush)
    draw_plain(brush)


def _draw_bubble(brush: Brush) -> None:
    """Draw a bubble as wide as its longest line: sent ones right, received ones left."""
    left, top, right, bottom = brush.box
    theme, label, own = brush.theme, brush.element.label, brush.element.label.startswith(_OWN)
    size, room = round(BODY * brush.canvas.scale), max(1, right - left - 2 * MARGIN)
    shown = label[: (bottom - top) // 55 * room]  # hardly a character is narrower than a pixel
    width = min(room, max(measure_text(line, size) for line in wrap(shown, size, room) or ("",)))
    start = right - MARGIN - width if own else left + MARGIN
    ground, ink = (theme.accent, theme.on_accent) if own else (theme.line, theme.ink)
    if brush.has_flag("selected"):
        ground, ink = theme.tint, theme.ink
    brush.canvas.draw_rounded((start - 22, top + 6, start + width + 22, bottom - 6), 40, ground)
    brush.canvas.draw_paragraph(label, (start, top + 20, start + room, bottom), BODY, 55, ink)


def _draw_app_chip(brush: Brush) -> None:
    PAINTERS["chip"](brush)
    if _DAY.search(brush.element.key) and brush.element.value:
        x, y = (brush.box.left + brush.box.right) // 2, brush.middle + 80
        if y + _DOT < brush.box.bottom - 16:
            brush.canvas.draw_rounded((x - _DOT, y - _DOT, x + _DOT, y + _DOT), _DOT, brush.theme.accent)


APP_PAINTERS: Mapping[str, Painter] = {"chip": _draw_app_chip, "list item": _draw_app_list_item, "text": _draw_text}
"""Painters that take the place of the usual ones in apps."""


_MARGIN, _PAD = 24, 48
"""Around a card, and inside it."""


def _draw_tile(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme, on = brush.canvas, brush.theme, brush.has_flag("checked")
    outer, inner = (_MARGIN, 8) if left == 0 else (8, _MARGIN)
    canvas.draw_rounded((left + outer, top + 8, right - inner, bottom - 8), 76, theme.accent if on else theme.line)
    ink, faint = (theme.on_accent, theme.on_accent) if on else (theme.ink, theme.faint)
    x = left + outer + 86
    sketch = find_sketch(brush.picture)
    if sketch is not None:
        canvas.sketch(sketch, (x - 14, brush.middle), 60, ink)
    width = right - inner - x - 60
    canvas.line(brush.element.label, x + 36, brush.middle - 26, 40, ink, width=width, bold=True)
    canvas.line(brush.element.value or "", x + 36, brush.middle + 28, 34, faint, width=width)


def _draw_notification(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme = brush.canvas, brush.theme
    app, _, title = brush.element.label.partition(": ")
    canvas.draw_rounded((left + _MARGIN, top + 6, right - _MARGIN, bottom - 6), 56, theme.card)
    draw_app_icon(canvas, app, (left + _MARGIN + 90, top + 76), 42)
    x, width = left + _MARGIN + 170, right - left - 2 * _MARGIN - 170 - _PAD
    canvas.line(app, x, top + 48, 32, theme.faint, width=width)
    canvas.line(title, x, top + 98, BODY, theme.ink, width=width, bold=True)
    if brush.element.value:
        canvas.draw_paragraph(brush.element.value, (x, top + 128, x + width, bottom - 16), SMALL, 50, theme.ink)


def _draw_card(brush: Brush) -> None:
    """Draw a running app: its icon and name above a small picture of its page."""
    left, top, right, bottom = brush.box
    canvas, theme = brush.canvas, brush.theme
    name, page = brush.element.label, brush.element.value or ""
    draw_app_icon(canvas, brush.picture, (left + 90, top + 78), 40)
    canvas.line(name, left + 150, top + 78, 40, theme.ink, width=right - left - 180, bold=True)
    sheet = (left + 40, top + 140, right - 40, bottom - 30)
    canvas.draw_rounded(sheet, 44, (250, 250, 252))
    bar = min(sheet[3], sheet[1] + 110)
    canvas.draw_rounded((sheet[0], sheet[1], sheet[2], bar), 44, choose_app_colour(brush.picture))
    canvas.rectangle((sheet[0], sheet[1] + 60, sheet[2], bar), choose_app_colour(brush.picture))
    canvas.line(page, sheet[0] + 32, sheet[1] + 58, 36, (255, 255, 255), width=sheet[2] - sheet[0] - 64, bold=True)
    for number in range(min(7, max(0, (sheet[3] - sheet[1] - 196) // 92 + 1))):
        y = sheet[1] + 170 + number * 92
        canvas.draw_rounded((sheet[0] + 32, y, sheet[2] - 70 - number % 3 * 60, y + 26), 13, (226, 229, 237))


def _draw_progress(brush: Brush) -> None:
    """Draw a wheel of dots, the label below it."""
    left, top, right, bottom = brush.box
    x, y = (left + right) // 2, top + (bottom - top) * 9 // 20
    dots = 10
    for number in range(dots):
        angle = 2 * math.pi * number / dots
        across, down = x + round(78 * math.sin(angle)), y - round(78 * math.cos(angle))
        colour = brush.theme.accent if number < 6 else brush.theme.line
        brush.canvas.draw_rounded((across - 14, down - 14, across + 14, down + 14), 14, colour)
    brush.canvas.draw_centred(brush.element.label, (x, y + 170), BODY, brush.theme.faint, width=right - left - 84)


SURFACE_PAINTERS: Mapping[str, Painter] = {**PAINTERS, **APP_PAINTERS, "progress": _draw_progress}
"""Everything else."""
PANEL: Mapping[str, Painter] = {**PAINTERS, "switch": _draw_tile, "list item": _draw_notification}
"""The shade and quick settings."""
OVERVIEW: Mapping[str, Painter] = {**PAINTERS, "app": _draw_card}
"""The cards of running apps."""
