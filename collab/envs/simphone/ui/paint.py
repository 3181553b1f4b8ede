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
def font(size: int, wide: Path | None = None, *, joined: bool = False) -> Font:
    """A font.

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
def _installed() -> tuple[Path, ...]:
    return tuple(path for path in (_FONTS / name for name in _WIDE) if path.exists())


@lru_cache(maxsize=1 << 14)
def _known(character: str, wide: Path | None = None) -> bool:
    """Whether a font has a glyph for a character (a missing one looks like U+FFFF)."""
    face = font(20, wide)
    return character.isspace() or bytes(face.getmask(character)) != bytes(face.getmask("\uffff"))


@lru_cache(maxsize=1 << 12)
def _turned(character: str) -> bool:
    """Whether a character belongs to a script that is written from right to left."""
    return unicodedata.bidirectional(character) in ("R", "AL")


@lru_cache(maxsize=4096)
def _printable(text: str) -> str:
    """The text without what no font can draw: half characters, joiners, variation selectors."""
    return "".join(char for char in text if char.isprintable() and not 0xFE00 <= ord(char) <= 0xFE0F)


def _font_for(text: str, size: int) -> Font:
    """The bundled font if it knows every character, else the installed one that knows the most of them."""
    if all(map(_known, text)):
        return font(size)
    best = max(_installed(), key=lambda path: sum(_known(character, path) for character in text), default=None)
    return font(size, best, joined=any(map(_turned, text)))


@lru_cache(maxsize=4096)
def text_width(text: str, size: int) -> int:
    """Width of a line in pixels."""
    shown = _printable(text)
    return round(_font_for(shown, size).getlength(shown))


@lru_cache(maxsize=512)
def _text_mask(text: str, size: int, bold: bool) -> Image.Image:
    """A line of text, white on black; its baseline lies `size` below the top."""
    face = _font_for(text, size)
    mask = Image.new("L", (max(1, text_width(text, size) + 4), round(size * 1.4)))
    ImageDraw.Draw(mask).text((1, size), text, fill=255, font=face, anchor="ls", stroke_width=0.6 if bold else 0)
    return mask


@lru_cache(maxsize=2048)
def fit(text: str, size: int, width: int, *, end: bool = False) -> str:
    """The text, shortened with an ellipsis to fit `width` pixels; with `end` it is the beginning that goes."""
    if text_width(text, size) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        part = "…" + text[len(text) - middle :] if end else text[:middle] + "…"
        low, high = (middle, high) if text_width(part, size) <= width else (low, middle - 1)
    return "…" + text[len(text) - low :].lstrip() if end else text[:low].rstrip() + "…"


@lru_cache(maxsize=512)
def wrap(text: str, size: int, width: int) -> tuple[str, ...]:
    """Lines of at most `width` pixels, broken at spaces, or inside words that are too long."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if text_width(longer, size) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            while text_width(word, size) > width and len(word) > 1:
                count = max(1, len(fit(word, size, width)) - 1)
                lines.append(word[:count])
                word = word[count:]
            line = word
        lines.append(line)
    return tuple(lines)


@lru_cache(maxsize=128)
def _corner(radius: int) -> Image.Image:
    """The top left quarter of a disc."""
    side = radius * OVERSAMPLE
    mask = Image.new("L", (side, side))
    ImageDraw.Draw(mask).ellipse((0, 0, 2 * side - 1, 2 * side - 1), fill=255)
    return mask.resize((radius, radius), Image.Resampling.BOX)


@lru_cache(maxsize=256)
def glyph(sketch: Sketch, side: int) -> Image.Image:
    """The mask of a sketch; pass a module-level function, so that it is drawn only once."""
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
        """A filled box; an empty one draws nothing."""
        left, top, right, bottom = box
        if right > left and bottom > top:
            self._draw.rectangle((left, top, right - 1, bottom - 1), fill=fill)

    def rounded(self, box: tuple[int, int, int, int], radius: int, fill: Colour) -> None:
        """A filled box with round corners; the radius is cut to half the shorter side."""
        left, top, right, bottom = box
        radius = min(radius, (right - left) // 2, (bottom - top) // 2)
        if radius <= 0:
            return self.rectangle(box, fill)
        self.rectangle((left + radius, top, right - radius, bottom), fill)
        self.rectangle((left, top + radius, left + radius, bottom - radius), fill)
        self.rectangle((right - radius, top + radius, right, bottom - radius), fill)
        corner = _corner(radius)
        turns = (
            (left, top, corner),
            (right - radius, top, corner.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
            (left, bottom - radius, corner.transpose(Image.Transpose.FLIP_TOP_BOTTOM)),
            (right - radius, bottom - radius, corner.transpose(Image.Transpose.ROTATE_180)),
        )
        for x, y, mask in turns:
            self.image.paste(fill, (x, y), mask)

    def outlined(self, box: tuple[int, int, int, int], radius: int, line: Colour, fill: Colour, width: int = 3) -> None:
        """A rounded box with a border."""
        left, top, right, bottom = box
        self.rounded(box, radius, line)
        self.rounded((left + width, top + width, right - width, bottom - width), radius - width, fill)

    def sketch(self, sketch: Sketch, center: tuple[int, int], side: int, fill: Colour) -> None:
        """A glyph in the middle of `center`."""
        self.image.paste(fill, (center[0] - side // 2, center[1] - side // 2), glyph(sketch, side))

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
        """One line of text, vertically centred on `middle`, shortened to `width`; returns where it ends.

        Args:
            end: show the end of a text that is too long, not its beginning.
        """
        size = round(size * self.scale)
        most = max(1, width) + 1  # hardly a character is narrower than a pixel; long texts would fill the caches
        shown = fit(_printable(text[-most:] if end else text[:most]), size, width, end=end)
        if shown:
            self.image.paste(fill, (x, middle - round(size * 0.66)), _text_mask(shown, size, bold))
        return x + text_width(shown, size)

    def centred(
        self, text: str, center: tuple[int, int], size: int, fill: Colour, *, width: int, bold: bool = False
    ) -> None:
        """One line of text in the middle of `center`."""
        large = round(size * self.scale)
        shown = fit(_printable(text[: max(1, width) + 1]), large, width)
        self.line(shown, center[0] - text_width(shown, large) // 2, center[1], size, fill, width=width, bold=bold)

    def paragraph(
        self, text: str, box: tuple[int, int, int, int], size: int, pitch: int, fill: Colour
    ) -> tuple[int, int]:
        """Wrapped text from the top of a box; lines that do not fit are left out. Returns the end of the last line."""
        left, top, right, bottom = box
        pitch, large = round(pitch * self.scale), round(size * self.scale)
        width, room = max(1, right - left), max(1, (bottom - top) // pitch)
        text = text[: (room + 1) * width]  # hardly a character is narrower than a pixel
        lines = wrap("\n".join(_printable(part) for part in text.split("\n")), large, width)
        end = (left, top + pitch // 2)
        for number, shown in enumerate(lines[:room]):
            last = number == room - 1 and len(lines) > room
            middle = top + pitch // 2 + number * pitch
            end = self.line(shown + "…" if last else shown, left, middle, size, fill, width=right - left), middle
        return end
