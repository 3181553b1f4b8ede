"""Numbered boxes on a picture of a screen, as vision agents are shown them (AppVLM).

    png = mark_png(png, observation)

Works on any picture that shows the observation's elements: a drawn phone, a web page, a real device. The number is
the element's index, so an answer that names it is an action. The colours are those of Okabe and Ito, which stay apart
for colour-blind readers, on a dark or white rim that keeps them visible on any ground.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from collab.types import Box, Element, Observation

COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (240, 228, 66))
"""Okabe and Ito, the strongest first; element i has colour i mod 7."""


def mark_png(png: bytes, observation: Observation) -> bytes:
    """Draw a numbered box on every element that has one; a picture of another size is marked in scale."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    draw_marks(image, observation)
    return encode(image)


def encode(image: Image.Image) -> bytes:
    """PNG bytes; packed lightly, because a step waits for them."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def draw_marks(image: Image.Image, observation: Observation) -> None:
    """Draw on an RGB image in place."""
    scale = image.width / observation.width, image.height / observation.height
    thick = max(1, min(image.size) // 270)
    draw = ImageDraw.Draw(image)
    seen = [(element, box) for element in observation.elements if (box := _scaled(element.box, scale, image.size))]
    for element, box in seen:
        _frame(draw, box, _colour(element), thick)
    size = max(9, min(image.width // 30, 36))
    taken: list[Box] = []
    for element, box in seen:
        taken.append(_tag(draw, element, box, taken, size, image.size))


def _colour(element: Element) -> tuple[int, int, int]:
    return COLOURS[element.index % len(COLOURS)]


def _ink(colour: tuple[int, int, int]) -> tuple[int, int, int]:
    """Black or white, whatever reads better on the colour."""
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140
    return (0, 0, 0) if bright else (255, 255, 255)


def _scaled(box: Box | None, scale: tuple[float, float], size: tuple[int, int]) -> Box | None:
    """The visible part of a box on the picture; None when there is none."""
    if box is None:
        return None
    left, top = max(0, round(box.left * scale[0])), max(0, round(box.top * scale[1]))
    right, bottom = min(size[0], round(box.right * scale[0])), min(size[1], round(box.bottom * scale[1]))
    return Box(left, top, right, bottom) if right > left and bottom > top else None


def _frame(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, int, int], thick: int) -> None:
    """A border inside the box: the colour, and a thin rim of the opposite brightness."""
    left, top, right, bottom = box.left, box.top, box.right - 1, box.bottom - 1
    draw.rectangle((left, top, right, bottom), outline=colour, width=thick)
    if right - left > 4 * thick and bottom - top > 4 * thick:
        draw.rectangle((left + thick, top + thick, right - thick, bottom - thick), outline=_ink(colour))


def _tag(
    draw: ImageDraw.ImageDraw, element: Element, box: Box, taken: Sequence[Box], size: int, screen: tuple[int, int]
) -> Box:
    """The number in a filled box at the top left corner, moved aside while it would cover another number."""
    font = ImageFont.load_default(size)
    text = str(element.index)
    width, height = round(draw.textlength(text, font=font)) + size // 2, round(size * 1.15)
    places = [
        (left, top)
        for top in range(box.top, max(box.top, box.bottom - height) + 1, height)
        for left in range(box.left, max(box.left, box.right - width) + 1, width)
    ]
    spots = (_clamped(Box(left, top, left + width, top + height), screen) for left, top in places)
    spot = next((spot for spot in spots if not any(_touch(spot, other) for other in taken)), None)
    spot = spot or _clamped(Box(box.left, box.top, box.left + width, box.top + height), screen)
    colour = _colour(element)
    draw.rectangle((spot.left, spot.top, spot.right - 1, spot.bottom - 1), fill=colour, outline=_ink(colour))
    middle = (spot.left + spot.right) / 2, (spot.top + spot.bottom) / 2
    draw.text(middle, text, fill=_ink(colour), font=font, anchor="mm")
    return spot


def _clamped(box: Box, screen: tuple[int, int]) -> Box:
    """The box moved onto the picture."""
    left = max(0, min(box.left, screen[0] - (box.right - box.left)))
    top = max(0, min(box.top, screen[1] - (box.bottom - box.top)))
    return Box(left, top, left + box.right - box.left, top + box.bottom - box.top)


def _touch(one: Box, other: Box) -> bool:
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom
