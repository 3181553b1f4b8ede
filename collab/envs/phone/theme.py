"""Colours of the drawn phone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collab.envs.phone.paint import Colour


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
WALLPAPER = replace(DARK, ink=(255, 255, 255), faint=(214, 220, 235), line=(120, 134, 172))
"""Text and fields straight on the launcher's picture."""
