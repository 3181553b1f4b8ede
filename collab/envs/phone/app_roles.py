"""How some things look in apps, beyond their role: what they are is told by their key, whatever app they belong to.

…:id/contact/…, …:id/conversation/…   a row of a list that begins with a letter or a person in a disc
…:id/item/…                           a row that begins with a folder, or the kind of a file
…:id/message/…                        a bubble around the text: the owner's on the right, in the accent colour
…:id/day/…                            a day, with a dot when something happens on it
…:id/digital_clock, …_time            large digits
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from collab.envs.phone.app_icon import app_colour
from collab.envs.phone.icons import named
from collab.envs.phone.layout import MARGIN
from collab.envs.phone.paint import text_width, wrap
from collab.envs.phone.roles import BODY, PAINTERS, Brush, Painter, plain

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


def _app_list_item(brush: Brush) -> None:
    people, file = _PEOPLE.search(brush.element.key), _FILE.search(brush.element.key)
    left, top, right, bottom = brush.box
    if not (people or file) or right - left < 500:
        return PAINTERS["list item"](brush)
    if brush.on("selected"):
        brush.canvas.rounded((left + 12, top + 4, right - 12, bottom - 4), 28, brush.theme.tint)
    x, y = left + MARGIN + 40, brush.middle
    if file:
        brush.canvas.sketch(named(_kind(file[1])), (x, y), 72, brush.theme.accent)
    else:
        brush.canvas.rounded((x - 40, y - 40, x + 40, y + 40), 40, app_colour(brush.element.label))
        letter = brush.element.label[:1]
        if letter.isalpha():
            brush.canvas.centred(letter.upper(), (x, y), 44, (255, 255, 255), width=70, bold=True)
        else:
            brush.canvas.sketch(named("person"), (x, y), 56, (255, 255, 255))
    brush.words(left + MARGIN + _PICTURE, right - MARGIN)
    brush.divider()


def _kind(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    return _KINDS.get(ending.lower(), "file") if stem else "folder"


def _text(brush: Brush) -> None:
    key, (left, _, right, _) = brush.element.key, brush.box
    if _DIGITS.search(key):
        middle = (left + right) // 2, brush.middle
        brush.canvas.centred(brush.element.label, middle, 84, brush.ink, width=right - left - 2 * MARGIN)
        return
    if _BUBBLE.search(key):
        return _bubble(brush)
    plain(brush)


def _bubble(brush: Brush) -> None:
    """As wide as its longest line: sent ones on the right, received ones on the left."""
    left, top, right, bottom = brush.box
    theme, label, own = brush.theme, brush.element.label, brush.element.label.startswith(_OWN)
    size, room = round(BODY * brush.canvas.scale), max(1, right - left - 2 * MARGIN)
    shown = label[: (bottom - top) // 55 * room]  # hardly a character is narrower than a pixel
    width = min(room, max(text_width(line, size) for line in wrap(shown, size, room) or ("",)))
    start = right - MARGIN - width if own else left + MARGIN
    ground, ink = (theme.accent, theme.on_accent) if own else (theme.line, theme.ink)
    if brush.on("selected"):
        ground, ink = theme.tint, theme.ink
    brush.canvas.rounded((start - 22, top + 6, start + width + 22, bottom - 6), 40, ground)
    brush.canvas.paragraph(label, (start, top + 20, start + room, bottom), BODY, 55, ink)


def _app_chip(brush: Brush) -> None:
    PAINTERS["chip"](brush)
    if _DAY.search(brush.element.key) and brush.element.value:
        x, y = (brush.box.left + brush.box.right) // 2, brush.middle + 80
        if y + _DOT < brush.box.bottom - 16:
            brush.canvas.rounded((x - _DOT, y - _DOT, x + _DOT, y + _DOT), _DOT, brush.theme.accent)


APP_PAINTERS: Mapping[str, Painter] = {"chip": _app_chip, "list item": _app_list_item, "text": _text}
"""Painters that take the place of the usual ones in apps."""
