"""Glyphs for icon buttons and app icons, drawn from lines and discs on a 24 × 24 grid.

`find_sketch` finds the glyph for a content description by the words in it; a description that no glyph fits gets its
first letter from the renderer.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from PIL import ImageDraw

from collab.envs.simphone.ui.paint import Sketch

GlyphShape = tuple[str, tuple[float, ...]]
"""("line" | "fill" | "ring" | "disc" | "erase", numbers on the grid)."""

GRID = 24

_GLYPHS: dict[str, tuple[GlyphShape, ...]] = {
    "back": (("line", (20, 12, 4, 12)), ("line", (11, 5, 4, 12, 11, 19))),
    "forward": (("line", (4, 12, 20, 12)), ("line", (13, 5, 20, 12, 13, 19))),
    "down": (("line", (5, 9, 12, 16, 19, 9)),),
    "up": (("line", (5, 16, 12, 9, 19, 16)),),
    "more": (("disc", (12, 5, 2)), ("disc", (12, 12, 2)), ("disc", (12, 19, 2))),
    "menu": (("line", (3, 6, 21, 6)), ("line", (3, 12, 21, 12)), ("line", (3, 18, 21, 18))),
    "search": (("ring", (10, 10, 6)), ("line", (15, 15, 21, 21))),
    "add": (("line", (12, 4, 12, 20)), ("line", (4, 12, 20, 12))),
    "minus": (("line", (4, 12, 20, 12)),),
    "check": (("line", (4, 12, 10, 18, 20, 6)),),
    "close": (("line", (5, 5, 19, 19)), ("line", (5, 19, 19, 5))),
    "delete": (("line", (4, 6, 20, 6)), ("line", (9, 6, 9, 3, 15, 3, 15, 6)), ("line", (6, 6, 7, 21, 17, 21, 18, 6))),
    "edit": (("line", (4, 20, 5, 15, 16, 4, 20, 8, 9, 19, 4, 20)),),
    "save": (
        ("line", (4, 4, 17, 4, 20, 7, 20, 20, 4, 20, 4, 4)),
        ("line", (8, 4, 8, 9, 15, 9, 15, 4)),
        ("ring", (12, 15, 2)),
    ),
    "send": (("fill", (3, 4, 22, 12, 3, 20, 6, 12)),),
    "play": (("fill", (7, 4, 20, 12, 7, 20)),),
    "pause": (("fill", (6, 4, 10, 4, 10, 20, 6, 20)), ("fill", (14, 4, 18, 4, 18, 20, 14, 20))),
    "stop": (("fill", (6, 6, 18, 6, 18, 18, 6, 18)),),
    "reset": (("arc", (12, 12, 8, 300, 240)), ("fill", (3, 3, 11, 4, 5, 10))),
    "share": (
        ("disc", (18, 5, 3)),
        ("disc", (6, 12, 3)),
        ("disc", (18, 19, 3)),
        ("line", (6, 12, 18, 5)),
        ("line", (6, 12, 18, 19)),
    ),
    "gear": (
        ("ring", (12, 12, 5)),
        *(
            ("line", (12 + 6 * dx, 12 + 6 * dy, 12 + 9 * dx, 12 + 9 * dy))
            for dx, dy in ((1, 0), (0.7, 0.7), (0, 1), (-0.7, 0.7), (-1, 0), (-0.7, -0.7), (0, -1), (0.7, -0.7))
        ),
    ),
    "person": (("disc", (12, 8, 4)), ("fill", (4, 20, 5, 16, 9, 14, 15, 14, 19, 16, 20, 20))),
    "phone": (("line", (5, 4, 9, 4, 11, 9, 8, 11, 13, 16, 15, 13, 20, 15, 20, 19, 17, 20, 9, 15, 4, 7, 5, 4)),),
    "message": (("fill", (3, 4, 21, 4, 21, 16, 8, 16, 3, 21)), ("erase", (7, 8, 17, 8)), ("erase", (7, 12, 14, 12))),
    "camera": (("fill", (2, 7, 7, 7, 9, 4, 15, 4, 17, 7, 22, 7, 22, 20, 2, 20)), ("hole", (12, 13, 4))),
    "clock": (("ring", (12, 12, 9)), ("line", (12, 6, 12, 12, 16, 15))),
    "alarm": (
        ("ring", (12, 13, 8)),
        ("line", (12, 8, 12, 13, 15, 15)),
        ("line", (3, 6, 7, 3)),
        ("line", (21, 6, 17, 3)),
    ),
    "calendar": (
        ("line", (4, 5, 20, 5, 20, 21, 4, 21, 4, 5)),
        ("line", (4, 10, 20, 10)),
        ("line", (8, 2, 8, 6)),
        ("line", (16, 2, 16, 6)),
    ),
    "folder": (("fill", (2, 5, 9, 5, 11, 8, 22, 8, 22, 20, 2, 20)),),
    "file": (("line", (6, 3, 14, 3, 19, 8, 19, 21, 6, 21, 6, 3)), ("line", (14, 3, 14, 8, 19, 8))),
    "note": (
        ("line", (5, 3, 19, 3, 19, 21, 5, 21, 5, 3)),
        ("line", (9, 8, 15, 8)),
        ("line", (9, 12, 15, 12)),
        ("line", (9, 16, 13, 16)),
    ),
    "list": (
        ("disc", (5, 6, 1.5)),
        ("disc", (5, 12, 1.5)),
        ("disc", (5, 18, 1.5)),
        ("line", (9, 6, 21, 6)),
        ("line", (9, 12, 21, 12)),
        ("line", (9, 18, 21, 18)),
    ),
    "copy": (("line", (8, 7, 20, 7, 20, 21, 8, 21, 8, 7)), ("line", (5, 17, 4, 17, 4, 3, 16, 3, 16, 4))),
    "star": (("fill", (12, 2, 15, 9, 22, 9, 16, 14, 18, 21, 12, 17, 6, 21, 8, 14, 2, 9, 9, 9)),),
    "money": (("line", (16, 7, 13, 5, 9, 6, 8, 9, 16, 14, 15, 18, 11, 19, 8, 17)), ("line", (12, 2, 12, 22))),
    "food": (
        ("line", (7, 3, 7, 21)),
        ("line", (4, 3, 4, 9, 10, 9, 10, 3)),
        ("line", (17, 21, 17, 3, 14, 8, 14, 13, 17, 13)),
    ),
    "music": (("disc", (7, 18, 3)), ("disc", (18, 16, 3)), ("line", (9, 18, 9, 6, 20, 4, 20, 16))),
    "picture": (
        ("line", (3, 4, 21, 4, 21, 20, 3, 20, 3, 4)),
        ("fill", (5, 18, 10, 11, 13, 15, 16, 12, 19, 18)),
        ("disc", (16, 8, 1.5)),
    ),
    "globe": (
        ("ring", (12, 12, 9)),
        ("line", (3, 12, 21, 12)),
        ("line", (12, 3, 8, 8, 8, 16, 12, 21, 16, 16, 16, 8, 12, 3)),
    ),
    "map": (("fill", (12, 22, 6, 12, 5, 8, 8, 4, 12, 2, 16, 4, 19, 8, 18, 12)), ("hole", (12, 8, 2.5))),
    "microphone": (
        ("fill", (9, 4, 12, 2, 15, 4, 15, 12, 12, 14, 9, 12)),
        ("line", (6, 11, 7, 15, 12, 17, 17, 15, 18, 11)),
        ("line", (12, 17, 12, 21)),
    ),
    "palette": (
        ("ring", (12, 12, 9)),
        ("disc", (8, 9, 1.5)),
        ("disc", (15, 8, 1.5)),
        ("disc", (17, 13, 1.5)),
        ("disc", (8, 15, 1.5)),
    ),
    "info": (("ring", (12, 12, 9)), ("disc", (12, 7.5, 1.2)), ("line", (12, 11, 12, 17))),
    "sort": (("line", (4, 6, 20, 6)), ("line", (7, 12, 17, 12)), ("line", (10, 18, 14, 18))),
    "eye": (("line", (2, 12, 7, 7, 12, 5, 17, 7, 22, 12, 17, 17, 12, 19, 7, 17, 2, 12)), ("disc", (12, 12, 3))),
    "bold": (
        ("line", (7, 4, 13, 4, 16, 8, 13, 12, 7, 12)),
        ("line", (7, 4, 7, 20, 14, 20, 17, 16, 13, 12)),
    ),
    "link": (
        ("line", (10, 14, 14, 10)),
        ("line", (8, 10, 4, 14, 4, 17, 7, 20, 10, 20, 14, 16)),
        ("line", (10, 8, 14, 4, 17, 4, 20, 7, 20, 10, 16, 14)),
    ),
    "enter": (("line", (20, 5, 20, 13, 4, 13)), ("line", (9, 8, 4, 13, 9, 18))),
    "erase": (
        ("line", (2, 12, 8, 5, 22, 5, 22, 19, 8, 19, 2, 12)),
        ("line", (12, 9, 18, 15)),
        ("line", (12, 15, 18, 9)),
    ),
    "shift": (("line", (12, 4, 4, 12, 8, 12, 8, 19, 16, 19, 16, 12, 20, 12, 12, 4)),),
    "wifi": (("fill", (12, 21, 1, 8, 6, 4.5, 12, 3.3, 18, 4.5, 23, 8)),),
    "keypad": (*(("disc", (x, y, 2)) for x in (5, 12, 19) for y in (4, 10, 16)), ("disc", (12, 22, 2))),
    "select": (("line", (3, 13, 8, 18, 16, 8)), ("line", (12, 16, 14, 18, 22, 8))),
    "move": (
        ("line", (10, 20, 2, 20, 2, 5, 9, 5, 11, 8, 22, 8, 22, 10)),
        ("line", (9, 15, 20, 15)),
        ("line", (16, 11, 20, 15, 16, 19)),
    ),
    "lap": (("line", (6, 22, 6, 3)), ("fill", (6, 3, 20, 4, 16, 8, 20, 13, 6, 13))),
    "shutter": (("ring", (12, 12, 10)), ("disc", (12, 12, 6))),
    "bluetooth": (("line", (6, 7, 18, 17, 12, 22, 12, 2, 18, 7, 6, 17)),),
    "flashlight": (("fill", (7, 2, 17, 2, 17, 6, 14, 10, 14, 22, 10, 22, 10, 10, 7, 6)),),
    "silent": (("ring", (12, 12, 9)), ("line", (8, 12, 16, 12))),
    "airplane": (
        ("fill", (12, 1, 14, 4, 14, 9, 22, 14, 22, 16, 14, 14, 14, 19, 17, 22, 12, 21)),
        ("fill", (12, 1, 10, 4, 10, 9, 2, 14, 2, 16, 10, 14, 10, 19, 7, 22, 12, 21)),
    ),
    "moon": (("disc", (12, 12, 9)), ("hole", (16, 9, 8))),
    "battery": (("fill", (8, 5, 10, 5, 10, 3, 14, 3, 14, 5, 16, 5, 16, 21, 8, 21)),),
}

_WORDS: tuple[tuple[str, str], ...] = (
    ("internet", "wifi"),
    ("bluetooth", "bluetooth"),
    ("flashlight", "flashlight"),
    ("do not disturb", "silent"),
    ("airplane", "airplane"),
    ("auto-rotate", "reset"),
    ("battery", "battery"),
    ("dark theme", "moon"),
    ("navigate up|back|previous", "back"),
    ("more options|overflow|options", "more"),
    ("navigation drawer|drawer|menu|roots", "menu"),
    ("add|new|create|insert|plus|increase", "add"),
    ("key ?pad|dial ?pad", "keypad"),
    ("select all", "select"),
    ("move", "move"),
    ("lap", "lap"),
    ("shutter", "shutter"),
    ("search|find|filter", "search"),
    ("delete|remove|trash|discard", "delete"),
    ("send", "send"),
    ("save", "save"),
    ("start|play|resume", "play"),
    ("pause", "pause"),
    ("stop", "stop"),
    ("reset|refresh|restart|undo", "reset"),
    ("share", "share"),
    ("sort", "sort"),
    ("preview|view|show|visibility", "eye"),
    ("edit|rename|write", "edit"),
    ("clear|close|cancel|dismiss", "close"),
    ("settings?|preferences", "gear"),
    ("sms|messages?|messenger|conversation|chat", "message"),
    ("contacts?|person|people|account|profile", "person"),
    ("phone|call|dial|dialer", "phone"),
    ("camera|photo", "camera"),
    ("alarm", "alarm"),
    ("clock|time|timer|stopwatch|recent|history", "clock"),
    ("calendar|date|event|today", "calendar"),
    ("folder|files?|directory|attach", "folder"),
    ("minus|decrease", "minus"),
    ("done|ok|check|confirm|confirmed|apply|accept", "check"),
    ("markor|notes?|joplin|document|text", "note"),
    ("tasks?|list|to-?do", "list"),
    ("copy|clipboard|clipper|paste", "copy"),
    ("star|favou?rites?", "star"),
    ("expense|money|amount", "money"),
    ("broccoli|recipes?|food", "food"),
    ("music|vlc|player|song", "music"),
    ("gallery|image|picture", "picture"),
    ("chrome|browser|web|language", "globe"),
    ("map|osmand|location|tracks?|tracker", "map"),
    ("record|recorder|microphone|voice|audio", "microphone"),
    ("draw|colou?r|palette", "palette"),
    ("info|about|help|details", "info"),
    ("link", "link"),
    ("bold", "bold"),
    ("next|forward", "forward"),
    ("expand|dropdown|collapse", "down"),
)
_PATTERNS = tuple((re.compile(rf"\b(?:{words})\b"), name) for words, name in _WORDS)


@cache
def load_sketch(name: str) -> Sketch:
    """Return the glyph of that name; KeyError when there is none."""
    shapes = _GLYPHS[name]

    def sketch(draw: ImageDraw.ImageDraw, side: float) -> None:
        for shape in shapes:
            _draw_shape(draw, shape, side / GRID)

    return sketch


@lru_cache(maxsize=1024)
def find_sketch(description: str) -> Sketch | None:
    """Return the glyph for a content description or an app's name; None when no word in it is known."""
    words = description.casefold()
    return next((load_sketch(name) for pattern, name in _PATTERNS if pattern.search(words)), None)


def _draw_shape(draw: ImageDraw.ImageDraw, shape: GlyphShape, unit: float) -> None:
    kind, numbers = shape
    scaled = [number * unit for number in numbers]
    width = round(2.2 * unit)
    if kind in ("line", "erase"):
        ink = 255 if kind == "line" else 0
        draw.line(scaled, fill=ink, width=width, joint="curve")
        for x, y in (scaled[:2], scaled[-2:]):
            draw.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=ink)
    elif kind == "fill":
        draw.polygon(scaled, fill=255)
    elif kind == "arc":
        x, y, radius = scaled[:3]
        draw.arc((x - radius, y - radius, x + radius, y + radius), numbers[3], numbers[4], fill=255, width=width)
    else:
        x, y, radius = scaled
        box = (x - radius, y - radius, x + radius, y + radius)
        if kind == "ring":
            draw.ellipse(box, outline=255, width=width)
        else:
            draw.ellipse(box, fill=0 if kind == "hole" else 255)
