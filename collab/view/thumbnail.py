"""Screens made small enough to be taken away: 360 pixels wide, as WebP."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

from collab.errors import EnvironmentFailure, RunFormatError, boundary
from collab.types import Observation
from collab.view.screens import PIXELS, image_of

if TYPE_CHECKING:
    from PIL import Image

_EFFORT = 2
"""Of WebP's six: three times as fast as four, for files larger by a twentieth."""
WIDTH = 360
"""Pixels; smaller pictures stay as they are."""
_QUALITY = 40
"""Of what WebP calls quality: words on screens stay sharp, and 50 episodes are a file that can be sent."""


def thumbnail(observation: Observation, recorded: bytes | None) -> bytes:
    """A screen as a small WebP.

    Args:
        recorded: its picture as WebP; None to draw it from its elements.

    Raises:
        RunFormatError, EnvironmentFailure: what is recorded makes no picture.
        UnknownName: no renderer can draw it.
    """
    from PIL import Image

    if recorded is None:
        return _small(image_of(observation))
    with boundary(EnvironmentFailure, "its picture cannot be read"):  # what is recorded decides what it meets
        with Image.open(io.BytesIO(recorded), formats=("WEBP",)) as image:
            if image.width * image.height > PIXELS:
                raise RunFormatError(f"a picture of {image.width} × {image.height} pixels is not shown")
            return recorded if image.width <= WIDTH else _small(image.convert("RGB"))


def looks(observation: Observation) -> str:
    """Equal for screens of which one picture is enough."""
    if observation.screenshot is not None:
        return observation.screenshot
    drawn = repr((observation.elements, observation.drawing, observation.width, observation.height))
    return hashlib.sha256(drawn.encode("utf-8", "surrogatepass")).hexdigest()


def _small(image: Image.Image) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    if image.width % WIDTH == 0:  # as phones are: the same as below, several times as fast
        image = image.reduce(image.width // WIDTH)
    elif image.width > WIDTH:
        image = image.resize((WIDTH, max(1, round(image.height * WIDTH / image.width))), Image.Resampling.LANCZOS)
    image.save(buffer, "WEBP", quality=_QUALITY, method=_EFFORT)
    return buffer.getvalue()
