"""Pictures of this project as PNG: reads back the SVG that its own modules draw, and paints it with Pillow.

    png = to_png(svg)      # twice as many pixels as the SVG has units

Knows what our pictures are made of (rect, circle, path with M L H V C h v l z, text; plain attributes) and nothing
else: an unknown element is an error, not a hole in the picture. Text is painted last, for nothing of ours covers text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from PIL import ImageDraw

    from collab.envs.simphone.ui.paint import Canvas

_SMOOTH = 2
"""Shapes are painted so many times as large and then shrunk, because Pillow's own edges are jagged."""
_TOKEN = re.compile(r"([MLHVChvlz])|(-?\d*\.?\d+(?:e-?\d+)?)")
_CURVE = 16
"""Straight pieces of a curve."""

Spot = tuple[float, float]
Shape = Mapping[str, str]


def to_png(svg: str, scale: float = 2.0) -> bytes:
    """Paint an SVG document that this project drew.

    Args:
        scale: pixels per unit.

    Raises:
        ValueError: it has something that our pictures do not have.
    """
    from PIL import Image, ImageDraw

    from collab.envs.simphone.ui.paint import Canvas

    root = ElementTree.fromstring(svg)
    wide, high = (round(float(root.attrib[side]) * scale) for side in ("width", "height"))
    sheet = Image.new("RGB", (wide * _SMOOTH, high * _SMOOTH), "#FFFFFF")
    pen = ImageDraw.Draw(sheet, "RGBA")
    shapes = list(_leaves(root))
    for kind, shape, _ in shapes:
        _paint(pen, kind, shape, scale * _SMOOTH)
    canvas = Canvas(wide, high, (255, 255, 255))
    canvas.image.paste(sheet.resize((wide, high), Image.Resampling.BOX))
    for kind, shape, words in shapes:
        if kind == "text":
            _write(canvas, shape, words, scale)
    buffer = io.BytesIO()
    canvas.image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _leaves(root: ElementTree.Element) -> Iterator[tuple[str, Shape, str]]:
    """Every shape and text, in the order of painting."""
    for element in root:
        kind = element.tag.rpartition("}")[2]
        if kind == "g":
            yield from _leaves(element)
        elif kind in ("rect", "circle", "path", "text"):
            yield kind, element.attrib, element.text or ""
        elif kind != "title":
            raise ValueError(f"<{kind}>: our pictures have rect, circle, path, text and g")


def _paint(pen: ImageDraw.ImageDraw, kind: str, shape: Shape, scale: float) -> None:
    fill, stroke = _colour(shape, "fill"), _colour(shape, "stroke")
    width = max(1, round(float(shape.get("stroke-width", "1")) * scale))
    match kind:
        case "rect":
            x, y, wide, high = (float(shape.get(name, "0")) * scale for name in ("x", "y", "width", "height"))
            if wide > 0 and high > 0:
                box = (x, y, max(x, x + wide - 1), max(y, y + high - 1))
                round_by = float(shape.get("rx", "0")) * scale
                pen.rounded_rectangle(box, round_by, fill=fill, outline=stroke, width=width if stroke else 0)
        case "circle":
            x, y, radius = (float(shape[name]) * scale for name in ("cx", "cy", "r"))
            box = (x - radius, y - radius, x + radius, y + radius)
            pen.ellipse(box, fill=fill, outline=stroke, width=width if stroke else 0)
        case "path":
            for trace in traces(shape["d"]):
                spots = [(x * scale, y * scale) for x, y in trace]
                if fill is not None and len(spots) > 2:
                    pen.polygon(spots, fill=fill)
                if stroke is not None:
                    for piece in _dashed(
                        spots, [float(one) * scale for one in shape.get("stroke-dasharray", "").split()]
                    ):
                        pen.line(piece, fill=stroke, width=width, joint="curve")


def traces(path: str) -> list[list[Spot]]:
    """The pen's ways through a path, curves as straight pieces; ValueError for commands that we do not draw with."""
    words = [command or float(value) for command, value in _TOKEN.findall(path)]
    if re.sub(r"[\s,]", "", _TOKEN.sub("", path)):
        raise ValueError(f"path {path[:80]!r}: our pictures have M L H V C h v l z")
    found: list[list[Spot]] = []
    here, command = (0.0, 0.0), ""
    stream = iter(words)
    for word in stream:
        if isinstance(word, str):
            command, first = word, None
            if command == "z":
                found[-1].append(found[-1][0])
                continue
        else:
            first = word
        numbers = [first] if first is not None else []
        numbers += [float(next(stream)) for _ in range({"C": 6, "M": 2, "L": 2, "l": 2}.get(command, 1) - len(numbers))]
        if command == "M":
            found.append([])
        steps = _reached(command, here, numbers)
        found[-1] += steps
        here = steps[-1]
    return found


def _reached(command: str, here: Spot, numbers: list[float]) -> list[Spot]:
    """Where a command leads the pen to, by way of what."""
    x, y = here
    match command, numbers:
        case "M" | "L", [to_x, to_y]:
            return [(to_x, to_y)]
        case "l", [by_x, by_y]:
            return [(x + by_x, y + by_y)]
        case "H" | "h", [to]:
            return [(to if command == "H" else x + to, y)]
        case "V" | "v", [to]:
            return [(x, to if command == "V" else y + to)]
        case "C", [ax, ay, bx, by, cx, cy]:
            parts = (place / _CURVE for place in range(1, _CURVE + 1))
            return [(_bent(x, ax, bx, cx, part), _bent(y, ay, by, cy, part)) for part in parts]
    raise ValueError(f"path: {command!r} with {numbers}")


def _bent(start: float, one: float, two: float, end: float, part: float) -> float:
    """A cubic Bézier curve in one dimension."""
    rest = 1 - part
    return rest**3 * start + 3 * rest**2 * part * one + 3 * rest * part**2 * two + part**3 * end


def _dashed(spots: list[Spot], dashes: list[float]) -> Iterator[list[Spot]]:
    """A line as it is, or as the straight pieces that its dashes leave."""
    if not dashes:
        yield spots
        return
    on, off = dashes[0], dashes[-1]
    for (ax, ay), (bx, by) in pairwise(spots):
        length = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5
        begin = 0.0
        while begin < length:
            end = min(length, begin + on)
            yield [(ax + (bx - ax) * at / length, ay + (by - ay) * at / length) for at in (begin, end)]
            begin = end + off


def _write(canvas: Canvas, shape: Shape, words: str, scale: float) -> None:
    from collab.envs.simphone.ui.paint import measure_text

    size = round(float(shape["font-size"]) * scale)
    x, y, width = float(shape["x"]) * scale, float(shape["y"]) * scale, measure_text(words, size)
    if shape.get("dominant-baseline") == "central":
        y += 0.35 * size
    bold = shape.get("font-weight", "400") >= "600"
    ink = _colour(shape, "fill") or (0, 0, 0, 255)
    shift = {"middle": width / 2, "end": float(width)}.get(shape.get("text-anchor", "start"), 0.0)
    if "transform" in shape:
        _write_upwards(canvas, words, size, (x, y), ink[:3])
        return
    middle = round(y) - size + round(size * 0.66)
    canvas.line(words, round(x - shift), middle, size, ink[:3], width=width + 2, bold=bold)


def _write_upwards(canvas: Canvas, words: str, size: int, middle: Spot, ink: tuple[int, int, int]) -> None:
    """Text that was turned to read upwards, around its middle: the only turn that our pictures have."""
    from collab.envs.simphone.ui.paint import Canvas, measure_text

    wide, high = measure_text(words, size) + 4, round(size * 1.4)
    strip = Canvas(wide, high, (0, 0, 0))
    strip.line(words, 0, round(size * 0.66), size, (255, 255, 255), width=wide)
    turned = strip.image.convert("L").rotate(90, expand=True)
    canvas.image.paste(ink, (round(middle[0]) - size, round(middle[1] - wide / 2)), turned)


def _colour(shape: Shape, role: str) -> tuple[int, int, int, int] | None:
    """The colour of a fill or a stroke, with its opacity; None for none."""
    from PIL import ImageColor

    told = shape.get(role, "none" if role == "stroke" else "#000000")
    if told == "none":
        return None
    red, green, blue = ImageColor.getrgb(told)[:3]
    return red, green, blue, round(255 * float(shape.get(f"{role}-opacity", "1")))
