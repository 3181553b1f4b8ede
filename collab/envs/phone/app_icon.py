"""An app's icon: a glyph by the app's name on a colour of its own."""

from __future__ import annotations

import zlib

from collab.envs.phone.icons import sketch_of
from collab.envs.phone.paint import Canvas, Colour

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


def app_colour(name: str) -> Colour:
    """Colour of an app's icon."""
    return _COLOURS[zlib.crc32(name.encode("utf-8", "replace")) % len(_COLOURS)]


def app_icon(canvas: Canvas, name: str, center: tuple[int, int], half: int) -> None:
    """An app's icon, `half` pixels from its middle to its sides."""
    x, y = center
    canvas.rounded((x - half, y - half, x + half, y + half), half * 2 // 3, app_colour(name))
    sketch = sketch_of(name)
    if sketch is not None:
        canvas.sketch(sketch, center, half * 11 // 10, (255, 255, 255))
    else:
        canvas.centred(name[:1].upper(), center, half, (255, 255, 255), width=2 * half, bold=True)
