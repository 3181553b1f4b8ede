"""How the system's own screens look: tiles and notifications of the shade, cards of the overview, what loads.

They show the same roles as apps do, drawn in another way: a switch is a tile, a list item a notification, an app a
card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from collab.envs.phone import app_roles
from collab.envs.phone.app_icon import app_colour, app_icon
from collab.envs.phone.icons import sketch_of
from collab.envs.phone.roles import BODY, PAINTERS, SMALL, Brush, Painter

_MARGIN, _PAD = 24, 48
"""Around a card, and inside it."""


def _tile(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme, on = brush.canvas, brush.theme, brush.on("checked")
    outer, inner = (_MARGIN, 8) if left == 0 else (8, _MARGIN)
    canvas.rounded((left + outer, top + 8, right - inner, bottom - 8), 76, theme.accent if on else theme.line)
    ink, faint = (theme.on_accent, theme.on_accent) if on else (theme.ink, theme.faint)
    x = left + outer + 86
    sketch = sketch_of(brush.picture)
    if sketch is not None:
        canvas.sketch(sketch, (x - 14, brush.middle), 60, ink)
    width = right - inner - x - 60
    canvas.line(brush.element.label, x + 36, brush.middle - 26, 40, ink, width=width, bold=True)
    canvas.line(brush.element.value or "", x + 36, brush.middle + 28, 34, faint, width=width)


def _notification(brush: Brush) -> None:
    left, top, right, bottom = brush.box
    canvas, theme = brush.canvas, brush.theme
    app, _, title = brush.element.label.partition(": ")
    canvas.rounded((left + _MARGIN, top + 6, right - _MARGIN, bottom - 6), 56, theme.card)
    app_icon(canvas, app, (left + _MARGIN + 90, top + 76), 42)
    x, width = left + _MARGIN + 170, right - left - 2 * _MARGIN - 170 - _PAD
    canvas.line(app, x, top + 48, 32, theme.faint, width=width)
    canvas.line(title, x, top + 98, BODY, theme.ink, width=width, bold=True)
    if brush.element.value:
        canvas.paragraph(brush.element.value, (x, top + 128, x + width, bottom - 16), SMALL, 50, theme.ink)


def _card(brush: Brush) -> None:
    """A running app: its icon and name above a small picture of its page."""
    left, top, right, bottom = brush.box
    canvas, theme = brush.canvas, brush.theme
    name, page = brush.element.label, brush.element.value or ""
    app_icon(canvas, brush.picture, (left + 90, top + 78), 40)
    canvas.line(name, left + 150, top + 78, 40, theme.ink, width=right - left - 180, bold=True)
    sheet = (left + 40, top + 140, right - 40, bottom - 30)
    canvas.rounded(sheet, 44, (250, 250, 252))
    bar = min(sheet[3], sheet[1] + 110)
    canvas.rounded((sheet[0], sheet[1], sheet[2], bar), 44, app_colour(brush.picture))
    canvas.rectangle((sheet[0], sheet[1] + 60, sheet[2], bar), app_colour(brush.picture))
    canvas.line(page, sheet[0] + 32, sheet[1] + 58, 36, (255, 255, 255), width=sheet[2] - sheet[0] - 64, bold=True)
    for number in range(min(7, max(0, (sheet[3] - sheet[1] - 196) // 92 + 1))):
        y = sheet[1] + 170 + number * 92
        canvas.rounded((sheet[0] + 32, y, sheet[2] - 70 - number % 3 * 60, y + 26), 13, (226, 229, 237))


def _progress(brush: Brush) -> None:
    """A wheel of dots, the label below it."""
    left, top, right, bottom = brush.box
    x, y = (left + right) // 2, top + (bottom - top) * 9 // 20
    dots = 10
    for number in range(dots):
        angle = 2 * math.pi * number / dots
        across, down = x + round(78 * math.sin(angle)), y - round(78 * math.cos(angle))
        colour = brush.theme.accent if number < 6 else brush.theme.line
        brush.canvas.rounded((across - 14, down - 14, across + 14, down + 14), 14, colour)
    brush.canvas.centred(brush.element.label, (x, y + 170), BODY, brush.theme.faint, width=right - left - 84)


SURFACE_PAINTERS: Mapping[str, Painter] = {**PAINTERS, **app_roles.APP_PAINTERS, "progress": _progress}
"""Everything else."""
PANEL: Mapping[str, Painter] = {**PAINTERS, "switch": _tile, "list item": _notification}
"""The shade and quick settings."""
OVERVIEW: Mapping[str, Painter] = {**PAINTERS, "app": _card}
"""The cards of running apps."""
