"""Draw a SimPhone screen from its observation alone, so that stored episodes stay viewable.

    image = render(observation)                # Pillow image, 1080 × 2400
    png = render_png(observation, marks=True)  # with a numbered box on every element

The input is the elements (role, label, value, flags, box) and `Observation.drawing`:

    app            name of the app in front
    app_bar        title of the app bar; None on a screen without one
    keyboard       whether the soft keyboard covers the bottom
    dialog         [left, top, right, bottom] of a dialog, menu or sheet; None when there is none
    notifications  names of apps whose icons stand beside the clock
    surface        "shade" (notifications, quick settings) or "overview" (running apps); None: an app
    dark           whether the dark theme is on
    clock          time in the status bar, "15:34"
    toast          short message near the bottom; None when there is none
    font           size of text, relative to the usual one
    accent         name of the colour of buttons and headings (`theme.ACCENTS`); None: blue
    pictures       what the icons show whose labels say it in other words: index as text → usual label
    banner         [left, top, right, bottom] of a notification that came up; its elements lie inside

A missing key means "no". Any change of the drawing needs a new renderer name, as stored screens name their renderer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from collab.envs.overlay import draw_marks, encode
from collab.envs.simphone.ui.icons import find_sketch, load_sketch
from collab.envs.simphone.ui.layout import APP_BAR, KEYBOARD_TOP, MARGIN, NAVIGATION_BAR, STATUS_BAR
from collab.envs.simphone.ui.paint import Canvas, measure_text
from collab.envs.simphone.ui.roles import OVERVIEW, PANEL, SMALL, SURFACE_PAINTERS, Brush, Painter, draw_plain
from collab.envs.simphone.ui.theme import DARK, LIGHT, WALLPAPER, Theme, apply_accent
from collab.errors import UsageError
from collab.types import Element, Observation

RENDERER = "simphone-1"
"""Name that observations carry for this renderer."""

_HINTS = 4
"""So many notifications have an icon in the status bar."""
_NOTHING: Mapping[str, Any] = {}
_SURFACES: Mapping[str | None, Mapping[str, Painter]] = {"shade": PANEL, "overview": OVERVIEW}


def render(observation: Observation, *, marks: bool = False, taps: Sequence[tuple[int, int, str]] = ()) -> Image.Image:
    """Draw a screen.

    Args:
        marks: draw a numbered box on every element.
        taps: (x, y, label) of touches to show as labelled rings, in pixels.

    Raises:
        UsageError: the observation was not made for this renderer.
    """
    # An older renderer's screen would be drawn wrongly: refused, as pictures are evidence.
    if observation.renderer != RENDERER:
        raise UsageError(f"render: the screen is for renderer {observation.renderer}, this one is {RENDERER}")
    drawing = observation.drawing or _NOTHING
    # Everything comes from the observation, so that a recorded screen can be drawn without its phone.
    theme = _choose_theme(observation, drawing)
    canvas = Canvas(observation.width, observation.height, theme.ground, drawing.get("font") or 1.0)
    _draw_ground(canvas, observation, drawing, theme)
    banner = drawing.get("banner")
    # A banner lies over the page: its elements are drawn last, on its own card.
    over = [element for element in observation.elements if banner and element.box and element.box.bottom <= banner[3]]
    _draw_elements(canvas, [one for one in observation.elements if one not in over], drawing, theme)
    if banner:
        card = _build_theme(drawing)
        canvas.draw_rounded(tuple(banner), 56, card.line)
        canvas.draw_rounded((banner[0] + 3, banner[1] + 3, banner[2] - 3, banner[3] - 3), 54, card.card)
        _draw_elements(canvas, over, drawing, card)
    # The status bar does not grow with the user's font.
    canvas.scale = 1.0
    _draw_chrome(canvas, observation, drawing, theme)
    # Marks and touches are ours and not the phone's, so they come on top of all.
    if marks:
        draw_marks(canvas.image, observation)
    for x, y, label in taps:
        _touch(canvas, x, y, label)
    return canvas.image


def render_png(observation: Observation, marks: bool = False) -> bytes:
    """Return the drawn screen as PNG bytes."""
    return encode(render(observation, marks=marks))


# ---------------------------------------------------------------------------------------------- around the elements


def _draw_elements(canvas: Canvas, elements: Sequence[Element], drawing: Mapping[str, Any], theme: Theme) -> None:
    painters, pictures = _SURFACES.get(drawing.get("surface"), SURFACE_PAINTERS), drawing.get("pictures", _NOTHING)
    for element in elements:
        if element.box is not None:
            picture = pictures.get(str(element.index), element.label)
            painters.get(element.role, draw_plain)(Brush(canvas, theme, element, element.box, picture))


def _build_theme(drawing: Mapping[str, Any]) -> Theme:
    return apply_accent(DARK if drawing.get("dark") else LIGHT, drawing.get("accent"))


def _choose_theme(observation: Observation, drawing: Mapping[str, Any]) -> Theme:
    if _is_on_launcher(observation, drawing):
        return WALLPAPER
    theme = _build_theme(drawing)
    return replace(theme, ground=theme.bar, card=theme.ground) if drawing.get("surface") == "shade" else theme


def _draw_ground(canvas: Canvas, observation: Observation, drawing: Mapping[str, Any], theme: Theme) -> None:
    """Draw wallpaper, app bar, or the scrim and window of a dialog."""
    width, height = observation.width, observation.height
    window = drawing.get("dialog")
    if window is not None:
        scrim = tuple(round(part * 0.55) for part in theme.ground)
        canvas.rectangle((0, 0, width, height), (scrim[0], scrim[1], scrim[2]))
        left, top, right, bottom = window
        canvas.draw_rounded((left, top, right, bottom), 48, theme.card)
        if _is_sheet(window, height):
            canvas.rectangle((left, bottom - 48, right, height), theme.card)
    elif _is_on_launcher(observation, drawing):
        _draw_wallpaper(canvas, width, height)
    elif drawing.get("app_bar") is not None:
        canvas.rectangle((0, 0, width, STATUS_BAR + APP_BAR), theme.bar)


def _is_sheet(window: Sequence[int] | None, height: int) -> bool:
    """Return whether the window stands on the bottom of the screen."""
    return window is not None and window[3] >= height - NAVIGATION_BAR


def _is_on_launcher(observation: Observation, drawing: Mapping[str, Any]) -> bool:
    return drawing.get("surface") == "overview" or any(element.role == "app" for element in observation.elements)


def _draw_wallpaper(canvas: Canvas, width: int, height: int) -> None:
    """Draw hills at dusk, in bands."""
    bands = 48
    for band in range(bands):
        share = band / (bands - 1)
        colour = (round(38 + 70 * share), round(58 + 52 * share), round(104 + 30 * share))
        canvas.rectangle((0, height * band // bands, width, height * (band + 1) // bands), colour)


def _draw_chrome(canvas: Canvas, observation: Observation, drawing: Mapping[str, Any], theme: Theme) -> None:
    """Draw status bar, keyboard, navigation bar, toast: what lies above the app."""
    width, height = observation.width, observation.height
    ink = (255, 255, 255) if drawing.get("dialog") or _is_on_launcher(observation, drawing) else theme.ink
    middle = STATUS_BAR // 2
    canvas.line(str(drawing.get("clock") or ""), MARGIN + 10, middle, SMALL, ink, width=300, bold=True)
    for place, name in enumerate(drawing.get("notifications", ())[:_HINTS]):
        canvas.sketch(find_sketch(name) or load_sketch("info"), (MARGIN + 170 + 62 * place, middle), 40, ink)
    canvas.sketch(load_sketch("battery"), (width - 70, middle), 48, ink)
    canvas.sketch(load_sketch("wifi"), (width - 128, middle), 48, ink)
    if drawing.get("keyboard"):
        _draw_keyboard(canvas, width, height, theme)
    if drawing.get("keyboard") or _is_sheet(drawing.get("dialog"), height):
        ink = theme.ink
    canvas.draw_rounded((width // 2 - 140, height - 38, width // 2 + 140, height - 26), 6, ink)
    if drawing.get("toast"):
        _draw_toast(canvas, str(drawing["toast"]), width, height)


def _draw_keyboard(canvas: Canvas, width: int, height: int, theme: Theme) -> None:
    canvas.rectangle((0, KEYBOARD_TOP, width, height), theme.board)
    rows = ("1234567890", "qwertyuiop", "asdfghjkl", "⇧zxcvbnm⌫")
    pitch = (height - NAVIGATION_BAR - KEYBOARD_TOP - 20) // 5
    for number, row in enumerate(rows):
        step = width / 10
        left = (width - step * len(row)) / 2
        top = KEYBOARD_TOP + 12 + number * pitch
        for position, key in enumerate(row):
            box = round(left + step * position) + 6, top + 6, round(left + step * (position + 1)) - 6, top + pitch - 6
            _draw_key(canvas, box, key, theme)
    top = KEYBOARD_TOP + 12 + 4 * pitch
    for key, left_end, right_end in (
        ("?123", 0, 160),
        (",", 160, 270),
        ("", 270, 790),
        (".", 790, 900),
        ("⏎", 900, 1080),
    ):
        box = left_end * width // 1080 + 6, top + 6, right_end * width // 1080 - 6, top + pitch - 6
        _draw_key(canvas, box, key, theme)


def _draw_key(canvas: Canvas, box: tuple[int, int, int, int], key: str, theme: Theme) -> None:
    pictures = {"⇧": "shift", "⌫": "erase", "⏎": "enter"}
    middle = (box[0] + box[2]) // 2, (box[1] + box[3]) // 2
    enter = key == "⏎"
    canvas.draw_rounded(box, 18, theme.accent if enter else theme.key)
    if key in pictures:
        canvas.sketch(load_sketch(pictures[key]), middle, 56, theme.on_accent if enter else theme.ink)
    else:
        canvas.draw_centred(key, middle, 44, theme.ink, width=140)


def _draw_toast(canvas: Canvas, text: str, width: int, height: int) -> None:
    half = min(measure_text(text, SMALL) // 2 + 60, width // 2 - 40)
    middle = height - 300
    canvas.draw_rounded((width // 2 - half, middle - 56, width // 2 + half, middle + 56), 56, (50, 52, 58))
    canvas.draw_centred(text, (width // 2, middle), SMALL, (255, 255, 255), width=2 * half - 60)


def _touch(canvas: Canvas, x: int, y: int, label: str) -> None:
    """Draw a ring where a finger was, and its owner."""
    canvas.draw_rounded((x - 44, y - 44, x + 44, y + 44), 44, (255, 255, 255))
    canvas.draw_rounded((x - 38, y - 38, x + 38, y + 38), 38, (214, 40, 90))
    canvas.draw_centred(label, (x, y), 32, (255, 255, 255), width=70, bold=True)
