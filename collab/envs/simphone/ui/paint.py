"""Brushes for the renderer: anti-aliased text, rounded boxes and glyphs on a Pillow image.

Everything that costs time (fonts, glyph masks, corner masks) is cached, and every mask is drawn once at four times
its size and shrunk, because Pillow's own shapes have jagged edges.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont, features

Colour: TypeAlias = tuple[int, int, int]
Font: TypeAlias = ImageFont.FreeTypeFont
Sketch: TypeAlias = Callable[[ImageDraw.ImageDraw, float], None]
"""Draws a shape in white on a square canvas of the given side."""

OVERSAMPLE = 4
_FONTS = Path("/usr/share/fonts")
_WIDE = (
    "truetype/dejavu/DejaVuSans.ttf",
    "opentype/noto/NotoSansCJK-Regular.ttc",
    "truetype/noto/NotoSansDevanagari-Regular.ttf",
    "truetype/noto/NotoEmoji-Regular.ttf",
    "truetype/ancient-scripts/Symbola_hint.ttf",
)
"""Used only for characters that the bundled font lacks, so that Latin text looks the same on every machine. Where none
of them is installed or knows a character, a box stands for it, as on a phone without the font."""


@lru_cache(maxsize=128)
def load_font(size: int, wide: Path | None = None, *, joined: bool = False) -> Font:
    """Return a font.

    Args:
        wide: a file that knows more scripts; None for Pillow's bundled font.
        joined: for scripts that are written from right to left or join their letters; needs libfribidi, without
            which letters stand apart, from left to right.
    """
    if wide is not None:
        engine = ImageFont.Layout.RAQM if joined and features.check("fribidi") else ImageFont.Layout.BASIC
        return ImageFont.truetype(str(wide), size, layout_engine=engine)
    bundled = ImageFont.load_default(size)
    if not isinstance(bundled, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow was built without FreeType; install an official Pillow wheel")
    return bundled


@lru_cache(maxsize=1)
def _list_installed() -> tuple[Path, ...]:
    return tuple(path for path in (_FONTS / name for name in _WIDE) if path.exists())


@lru_cache(maxsize=1 << 14)
def _has_glyph(character: str, wide: Path | None = None) -> bool:
    """Return whether a font has a glyph for a character (a missing one looks like U+FFFF)."""
    face = load_font(20, wide)
    return character.isspace() or bytes(face.getmask(character)) != bytes(face.getmask("\uffff"))


@lru_cache(maxsize=1 << 12)
def _is_right_to_left(character: str) -> bool:
    """Return whether a character belongs to a script that is written from right to left."""
    return unicodedata.bidirectional(character) in ("R", "AL")


@lru_cache(maxsize=4096)
def _remove_unprintable(text: str) -> str:
    """Return the text without what no font can draw: half characters, joiners, variation selectors."""
    return "".join(char for char in text if char.isprintable() and not 0xFE00 <= ord(char) <= 0xFE0F)


def _choose_font(text: str, size: int) -> Font:
    """Return the bundled font if it knows every character, else the installed one that knows the most of them."""
    if all(map(_has_glyph, text)):
        return load_font(size)
    best = max(_list_installed(), key=lambda path: sum(_has_glyph(character, path) for character in text), default=None)
    return load_font(size, best, joined=any(map(_is_right_to_left, text)))


@lru_cache(maxsize=4096)
def measure_text(text: str, size: int) -> int:
    """Return the width of a line in pixels."""
    shown = _remove_unprintable(text)
    return round(_choose_font(shown, size).getlength(shown))


@lru_cache(maxsize=512)
def _draw_text_mask(text: str, size: int, bold: bool) -> Image.Image:
    """Return a line of text, white on black; its baseline lies `size` below the top."""
    face = _choose_font(text, size)
    mask = Image.new("L", (max(1, measure_text(text, size) + 4), round(size * 1.4)))
    ImageDraw.Draw(mask).text((1, size), text, fill=255, font=face, anchor="ls", stroke_width=0.6 if bold else 0)
    return mask


@lru_cache(maxsize=2048)
def fit(text: str, size: int, width: int, *, end: bool = False) -> str:
    """Return the text, shortened with an ellipsis to fit `width` pixels; with `end` it is the beginning that goes."""
    if measure_text(text, size) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        part = "…" + text[len(text) - middle :] if end else text[:middle] + "…"
        low, high = (middle, high) if measure_text(part, size) <= width else (low, middle - 1)
    return "…" + text[len(text) - low :].lstrip() if end else text[:low].rstrip() + "…"


@lru_cache(maxsize=512)
def wrap(text: str, size: int, width: int) -> tuple[str, ...]:
    """Return the lines of at most `width` pixels, broken at spaces, or inside words that are too long."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if measure_text(longer, size) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            while measure_text(word, size) > width and len(word) > 1:
                count = max(1, len(fit(word, size, width)) - 1)
                lines.append(word[:count])
                word = word[count:]
            line = word
        lines.append(line)
    return tuple(lines)


@lru_cache(maxsize=128)
def _draw_corner(radius: int) -> Image.Image:
    """Return the top left quarter of a disc."""
    side = radius * OVERSAMPLE
    mask = Image.new("L", (side, side))
    ImageDraw.Draw(mask).ellipse((0, 0, 2 * side - 1, 2 * side - 1), fill=255)
    return mask.resize((radius, radius), Image.Resampling.BOX)


@lru_cache(maxsize=256)
def draw_glyph(sketch: Sketch, side: int) -> Image.Image:
    """Return the mask of a sketch; pass a module-level function, so that it is drawn only once."""
    mask = Image.new("L", (side * OVERSAMPLE, side * OVERSAMPLE))
    sketch(ImageDraw.Draw(mask), side * OVERSAMPLE)
    return mask.resize((side, side), Image.Resampling.BOX)


class Canvas:
    """An image and what can be put on it.

    Coordinates are pixels; boxes are (left, top, right, bottom), right and bottom exclusive. All text is drawn `scale`
    times as large as asked for.
    """

    def __init__(self, width: int, height: int, ground: Colour, scale: float = 1.0) -> None:
        self.image = Image.new("RGB", (width, height), ground)
        self.scale = scale
        self._draw = ImageDraw.Draw(self.image)

    def rectangle(self, box: tuple[int, int, int, int], fill: Colour) -> None:
        """Draw a filled box; an empty one draws nothing."""
        left, top, right, bottom = box
        if right > left and bottom > top:
            self._draw.rectangle((left, top, right - 1, bottom - 1), fill=fill)

    def draw_rounded(self, box: tuple[int, int, int, int], radius: int, fill: Colour) -> None:
        """Draw a filled box with round corners; the radius is cut to half the shorter side."""
        left, top, right, bottom = box
        radius = min(radius, (right - left) // 2, (bottom - top) // 2)
        if radius <= 0:
            return self.rectangle(box, fill)
        self.rectangle((left + radius, top, right - radius, bottom), fill)
        self.rectangle((left, top + radius, left + radius, bottom - radius), fill)
        self.rectangle((right - radius, top + radius, right, bottom - radius), fill)
        corner = _draw_corner(radius)
        turns = (
            (left, top, corner),
            (right - radius, top, corner.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
            (left, bottom - radius, corner.transpose(Image.Transpose.FLIP_TOP_BOTTOM)),
            (right - radius, bottom - radius, corner.transpose(Image.Transpose.ROTATE_180)),
        )
        for x, y, mask in turns:
            self.image.paste(fill, (x, y), mask)

    def draw_outlined(
        self, box: tuple[int, int, int, int], radius: int, line: Colour, fill: Colour, width: int = 3
    ) -> None:
        """Draw a rounded box with a border."""
        left, top, right, bottom = box
        self.draw_rounded(box, radius, line)
        self.draw_rounded((left + width, top + width, right - width, bottom - width), radius - width, fill)

    def sketch(self, sketch: Sketch, center: tuple[int, int], side: int, fill: Colour) -> None:
        """Draw a glyph in the middle of `center`."""
        self.image.paste(fill, (center[0] - side // 2, center[1] - side // 2), draw_glyph(sketch, side))

    def line(
        self,
        text: str,
        x: int,
        middle: int,
        size: int,
        fill: Colour,
        *,
        width: int,
        bold: bool = False,
        end: bool = False,
    ) -> int:
        """Return one line of text, vertically centred on `middle`, shortened to `width`; returns where it ends.

        Args:
            end: show the end of a text that is too long, not its beginning.
        """
        size = round(size * self.scale)
        most = max(1, width) + 1  # hardly a character is narrower than a pixel; long texts would fill the caches
        shown = fit(_remove_unprintable(text[-most:] if end else text[:most]), size, width, end=end)
        if shown:
            self.image.paste(fill, (x, middle - round(size * 0.66)), _draw_text_mask(shown, size, bold))
        return x + measure_text(shown, size)

    def draw_centred(
        self, text: str, center: tuple[int, int], size: int, fill: Colour, *, width: int, bold: bool = False
    ) -> None:
        """Draw one line of text in the middle of `center`."""
        large = round(size * self.scale)
        shown = fit(_remove_unprintable(text[: max(1, width) + 1]), large, width)
        self.line(shown, center[0] - measure_text(shown, large) // 2, center[1], size, fill, width=width, bold=bold)

    def draw_paragraph(
        self, text: str, box: tuple[int, int, int, int], size: int, pitch: int, fill: Colour
    ) -> tuple[int, int]:
        """Draw wrapped text from the top of a box, as far as it fits; return the end of the last line."""
        left, top, right, bottom = box
        pitch, large = round(pitch * self.scale), round(size * self.scale)
        width, room = max(1, right - left), max(1, (bottom - top) // pitch)
        text = text[: (room + 1) * width]  # hardly a character is narrower than a pixel
        lines = wrap("\n".join(_remove_unprintable(part) for part in text.split("\n")), large, width)
        end = (left, top + pitch // 2)
        for number, shown in enumerate(lines[:room]):
            last = number == room - 1 and len(lines) > room
            middle = top + pitch // 2 + number * pitch
            end = self.line(shown + "…" if last else shown, left, middle, size, fill, width=right - left), middle
        return end
