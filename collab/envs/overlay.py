"""Numbered boxes on a picture of a screen, as vision agents are shown them (AppVLM), and the touch of an action.

    png = mark_png(png, observation)
    draw_touch(image, action, observation)

Works on any picture that shows the observation's elements: a drawn phone, a web page, a real device. The number is
the element's index, so an answer that names it is an action. The colours are those of Okabe and Ito, which stay apart
for colour-blind readers, on a dark or white rim that keeps them visible on any ground.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from collab.envs.grammar import SPACES
from collab.envs.text import find_place
from collab.types import Action, Box, Element, Observation

COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (240, 228, 66))
"""Okabe and Ito, the strongest first; element i has colour i mod 7."""
TOUCH = (214, 40, 90)
"""Colour of a touch: none of the boxes'."""
_WAYS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def mark_png(png: bytes, observation: Observation) -> bytes:
    """Draw a numbered box on every element that has one; a picture of another size is marked in scale."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    draw_marks(image, observation)
    return encode(image)


def shrink_png(png: bytes, width: int, height: int) -> bytes:
    """Scale the picture to this size."""
    image = Image.open(io.BytesIO(png))
    return png if image.size == (width, height) else encode(image.convert("RGB").resize((width, height)))


def encode(image: Image.Image) -> bytes:
    """Encode as PNG bytes, packed lightly because a step waits for them."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def encode_blank(width: int, height: int) -> bytes:
    """Return a white picture of this size."""
    return encode(Image.new("RGB", (width, height), "white"))


def draw_marks(image: Image.Image, observation: Observation) -> None:
    """Draw on an RGB image in place."""
    scale = image.width / observation.width, image.height / observation.height
    thick = max(1, min(image.size) // 270)
    draw = ImageDraw.Draw(image)
    seen = [(element, box) for element in observation.elements if (box := _scale_box(element.box, scale, image.size))]
    for element, box in seen:
        _draw_frame(draw, box, _pick_colour(element), thick)
    size = max(9, min(image.width // 30, 36))
    taken: list[Box] = []
    for element, box in seen:
        taken.append(_draw_tag(draw, element, box, taken, size, image.size))


def _pick_colour(element: Element) -> tuple[int, int, int]:
    return COLOURS[element.index % len(COLOURS)]


def _pick_ink(colour: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return black or white, whichever reads better on the colour."""
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140
    return (0, 0, 0) if bright else (255, 255, 255)


def _scale_box(box: Box | None, scale: tuple[float, float], size: tuple[int, int]) -> Box | None:
    """Return the visible part of a box on the picture; None when there is none."""
    if box is None:
        return None
    left, top = max(0, round(box.left * scale[0])), max(0, round(box.top * scale[1]))
    right, bottom = min(size[0], round(box.right * scale[0])), min(size[1], round(box.bottom * scale[1]))
    return Box(left, top, right, bottom) if right > left and bottom > top else None


def _draw_frame(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, int, int], thick: int) -> None:
    """Draw a border inside the box: the colour, and a thin rim of the opposite brightness."""
    left, top, right, bottom = box.left, box.top, box.right - 1, box.bottom - 1
    draw.rectangle((left, top, right, bottom), outline=colour, width=thick)
    if right - left > 4 * thick and bottom - top > 4 * thick:
        draw.rectangle((left + thick, top + thick, right - thick, bottom - thick), outline=_pick_ink(colour))


def _draw_tag(
    draw: ImageDraw.ImageDraw, element: Element, box: Box, taken: Sequence[Box], size: int, screen: tuple[int, int]
) -> Box:
    """Draw the number in a filled box at the top left corner, moved aside from other numbers."""
    font = ImageFont.load_default(size)
    text = str(element.index)
    width, height = round(draw.textlength(text, font=font)) + size // 2, round(size * 1.15)
    places = [
        (left, top)
        for top in range(box.top, max(box.top, box.bottom - height) + 1, height)
        for left in range(box.left, max(box.left, box.right - width) + 1, width)
    ]
    spots = (_clamp_box(Box(left, top, left + width, top + height), screen) for left, top in places)
    spot = next((spot for spot in spots if not any(_touch(spot, other) for other in taken)), None)
    spot = spot or _clamp_box(Box(box.left, box.top, box.left + width, box.top + height), screen)
    colour = _pick_colour(element)
    draw.rectangle((spot.left, spot.top, spot.right - 1, spot.bottom - 1), fill=colour, outline=_pick_ink(colour))
    middle = (spot.left + spot.right) / 2, (spot.top + spot.bottom) / 2
    draw.text(middle, text, fill=_pick_ink(colour), font=font, anchor="mm")
    return spot


def _clamp_box(box: Box, screen: tuple[int, int]) -> Box:
    """Return the box moved onto the picture."""
    left = max(0, min(box.left, screen[0] - (box.right - box.left)))
    top = max(0, min(box.top, screen[1] - (box.bottom - box.top)))
    return Box(left, top, left + box.right - box.left, top + box.bottom - box.top)


def _touch(one: Box, other: Box) -> bool:
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom


# ------------------------------------------------------------------------------------------------------- touches


def draw_touch(image: Image.Image, action: Action, observation: Observation) -> None:
    """Draw an action on an RGB image in place.

    A tap is a ring, a long press or a double click two rings, a scroll, swipe or drag an arrow along the finger's way.
    What touches nothing (opening an app, going back) is not drawn.
    """
    space = SPACES.get(action.space)
    target, end = action.target, None if space is None else space.find_end(action)
    spot = None if target is None else find_place(target, observation)
    stop = None if end is None else find_place(end, observation)
    if spot is None:  # a drag from where the mouse is: only its end is known
        spot, stop = stop, None
    way = _WAYS.get(str(action.get("direction")))
    if spot is None and way is None:
        return
    x, y = spot or (observation.width / 2, observation.height / 2)
    scale = image.width / observation.width, image.height / observation.height
    x, y = x * scale[0], y * scale[1]
    size = min(image.size) / 24
    draw = ImageDraw.Draw(image)
    if stop is not None:
        _draw_arrow(draw, (x, y), (stop[0] * scale[0], stop[1] * scale[1]), size)
    elif way is None:
        _draw_rings(draw, x, y, size, 2 if action.type in ("long_press", "double_tap", "double_click") else 1)
    else:
        sign = 1 if action.type == "swipe" else -1  # a scroll names the way of the view, the finger goes the other
        length = min(image.size) / 4
        step = sign * way[0] * length, sign * way[1] * length
        _draw_arrow(draw, (x - step[0], y - step[1]), (x + step[0], y + step[1]), size)


def _draw_rings(draw: ImageDraw.ImageDraw, x: float, y: float, size: float, count: int) -> None:
    """Draw rings around a dot, on a white rim that keeps them visible on any ground."""
    thick = max(2, round(size / 6))
    for ring in range(1, count + 1):
        radius = size * (0.45 + 0.55 * ring)
        for reach, colour, width in ((radius + thick / 2, (255, 255, 255), 2 * thick), (radius, TOUCH, thick)):
            draw.ellipse((x - reach, y - reach, x + reach, y + reach), outline=colour, width=width)
    draw.ellipse((x - size / 3, y - size / 3, x + size / 3, y + size / 3), fill=TOUCH, outline=(255, 255, 255))


def _draw_arrow(draw: ImageDraw.ImageDraw, start: tuple[float, float], end: tuple[float, float], size: float) -> None:
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    head = [(end[0] + size * math.cos(angle + turn), end[1] + size * math.sin(angle + turn)) for turn in (0, 2.3, -2.3)]
    thick = max(3, round(size / 3))
    draw.line((*start, *end), fill=(255, 255, 255), width=2 * thick)
    draw.line((*start, *end), fill=TOUCH, width=thick)
    draw.polygon(head, fill=TOUCH, outline=(255, 255, 255))
    draw.ellipse((start[0] - thick, start[1] - thick, start[0] + thick, start[1] + thick), fill=TOUCH)
