"""Colours of the drawn phone.

An app's icon: a glyph by the app's name on a colour of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from collab.envs.simphone.ui.icons import find_sketch
from collab.envs.simphone.ui.paint import Canvas, Colour


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours of a screen."""

    ground: Colour
    bar: Colour
    card: Colour
    ink: Colour
    faint: Colour
    """Second lines, hints, inactive icons."""
    line: Colour
    """Dividers and outlines."""
    accent: Colour
    on_accent: Colour
    tint: Colour
    """Buttons and selected rows."""
    key: Colour
    """Keys of the keyboard."""
    board: Colour
    """Between the keys."""


LIGHT = Theme(
    ground=(250, 250, 252),
    bar=(237, 240, 247),
    card=(243, 244, 250),
    ink=(27, 28, 32),
    faint=(92, 95, 104),
    line=(216, 219, 227),
    accent=(28, 90, 180),
    on_accent=(255, 255, 255),
    tint=(212, 225, 250),
    key=(255, 255, 255),
    board=(226, 229, 237),
)
DARK = Theme(
    ground=(18, 19, 22),
    bar=(31, 33, 38),
    card=(40, 42, 48),
    ink=(230, 231, 236),
    faint=(160, 164, 174),
    line=(62, 65, 73),
    accent=(160, 198, 255),
    on_accent=(4, 40, 92),
    tint=(42, 66, 108),
    key=(60, 63, 71),
    board=(31, 33, 38),
)
ACCENTS: Mapping[str, tuple[Mapping[str, Colour], Mapping[str, Colour]]] = {
    "green": (
        {"accent": (20, 108, 62), "tint": (206, 236, 216)},
        {"accent": (134, 214, 164), "on_accent": (0, 57, 27), "tint": (32, 76, 50)},
    ),
    "red": (
        {"accent": (176, 38, 52), "tint": (252, 218, 220)},
        {"accent": (255, 180, 178), "on_accent": (104, 0, 16), "tint": (102, 42, 46)},
    ),
    "violet": (
        {"accent": (104, 64, 164), "tint": (234, 221, 252)},
        {"accent": (210, 188, 255), "on_accent": (56, 14, 114), "tint": (74, 54, 110)},
    ),
    "orange": (
        {"accent": (146, 76, 0), "tint": (255, 222, 192)},
        {"accent": (255, 184, 112), "on_accent": (77, 38, 0), "tint": (96, 62, 24)},
    ),
}
"""Other colours of buttons and headings, by name: on light ground, on dark ground."""


def apply_accent(theme: Theme, name: str | None) -> Theme:
    """Return a light or dark theme with another accent; None leaves it as it is."""
    if name is None:
        return theme
    light, dark = ACCENTS[name]
    return replace(theme, **(dark if theme.ground == DARK.ground else light))


WALLPAPER = replace(DARK, ink=(255, 255, 255), faint=(214, 220, 235), line=(120, 134, 172))
"""Text and fields straight on the launcher's picture."""


_COLOURS: tuple[Colour, ...] = (
    (66, 103, 210),
    (219, 88, 72),
    (46, 140, 87),
    (233, 151, 30),
    (124, 77, 172),
    (0, 137, 150),
    (191, 58, 120),
    (96, 108, 122),
)


def choose_app_colour(name: str) -> Colour:
    """Return the colour of an app's icon."""
    return _COLOURS[zlib.crc32(name.encode("utf-8", "replace")) % len(_COLOURS)]


def draw_app_icon(canvas: Canvas, name: str, center: tuple[int, int], half: int) -> None:
    """Draw an app's icon, `half` pixels from its middle to its sides."""
    x, y = center
    canvas.draw_rounded((x - half, y - half, x + half, y + half), half * 2 // 3, choose_app_colour(name))
    sketch = find_sketch(name)
    if sketch is not None:
        canvas.sketch(sketch, center, half * 11 // 10, (255, 255, 255))
    else:
        canvas.draw_centred(name[:1].upper(), center, half, (255, 255, 255), width=2 * half, bold=True)
