"""How some things look in apps, beyond their role: what they are is told by their key, whatever app they belong to.

…:id/contact/…, …:id/conversation/…   a row of a list that begins with a letter or a person in a disc
…:id/item/…                           a row that begins with a folder, or the kind of a file
…:id/message/…                        a bubble around the text
…:id/digital_clock, …_time            large digits
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from collab.envs.phone.app_icon import app_colour
from collab.envs.phone.icons import named
from collab.envs.phone.layout import MARGIN
from collab.envs.phone.roles import PAINTERS, Brush, Painter, plain

_PICTURE = 116
"""Pixels that a picture takes at the beginning of a row."""
_PEOPLE = re.compile(r":id/(contact|conversation)/")
_FILE = re.compile(r":id/item/(?:.*/)?([^/]+)$")
_BUBBLE = re.compile(r":id/message/")
_DIGITS = re.compile(r":id/(digital_clock|timer_setup_time|stopwatch_time|timer_time/.*)$")
_KINDS = {"mp3": "music", "wav": "music", "ogg": "music", "jpg": "picture", "jpeg": "picture", "png": "picture"}


def _list_item(brush: Brush) -> None:
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
    key, (left, top, right, bottom) = brush.element.key, brush.box
    if _DIGITS.search(key):
        middle = (left + right) // 2, brush.middle
        brush.canvas.centred(brush.element.label, middle, 84, brush.ink, width=right - left - 2 * MARGIN)
        return
    if _BUBBLE.search(key):
        ground = brush.theme.line if brush.on("selected") else brush.theme.tint
        brush.canvas.rounded((left + 20, top + 6, right - 20, bottom - 6), 40, ground)
    plain(brush)


APPS: Mapping[str, Painter] = {"list item": _list_item, "text": _text}
"""Painters that take the place of the usual ones in apps."""
