"""Pictures for checkpoints with vision: pixels for the forward pass, and their tokens in the prompt.

    reader = PictureReader(chat)
    pictures = reader.read(images)
    ids = chat.prompt_ids(prompt, reader.places(pictures))

Tokens and pixels equal those of the family's own processor in transformers. Pillow resizes pictures, so that
torchvision is not needed and an installed one changes nothing.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from collab.errors import ConfigError, ModelFailure
from collab.models.tokenizer import ChatTokenizer, Places, make_code_error, take_first_line
from collab.models.weights import FAMILIES, GRID_FAMILIES, PREFIX_FAMILIES, read_config

FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""Files beside weights that say how pictures are read."""
PICTURE_TOKENS = 16_384
"""Tokens of pictures in one prompt and in one batch, unless another number is set: the most that one picture takes in
the families whose pictures take tokens by size."""
_KEPT = 16
"""Pictures kept in memory as pixels: all cells of a step have the same one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """One picture, ready for a forward pass."""

    tokens: int
    """Number of its tokens in the prompt."""
    sent: tuple[int, int]
    """Its width and height in pixels."""
    seen: tuple[int, int]
    """The same as the model sees it."""
    inputs: Mapping[str, Any]
    """Input name of the forward pass → tensor on the CPU; pictures are joined along the first dimension."""


class PictureReader:
    """Reads pictures for one checkpoint; thread-safe."""

    def __init__(self, chat: ChatTokenizer) -> None:
        self._chat = chat
        self._lock = threading.Lock()
        self._opened: tuple[Any, Any] | None = None
        """Configuration and image processor; None until the first picture."""
        self._picture = lru_cache(maxsize=_KEPT)(self._read)

    def read(self, images: tuple[bytes, ...]) -> tuple[Picture, ...]:
        """Return encoded pictures as inputs of the checkpoint.

        Raises:
            ModelFailure: the checkpoint takes no pictures, or one of them cannot be read.
            ConfigError: its image processor cannot be loaded.
        """
        with self._lock:  # threads with the same picture read it once
            return tuple(map(self._picture, images))

    def places(self, pictures: tuple[Picture, ...]) -> Places | None:
        """Return the pictures' places in a prompt; None without pictures."""
        if not pictures:
            return None
        config, _ = self._split_tokens()
        counts = tuple(picture.tokens for picture in pictures)
        # PaliGemma was trained with a start token and a line break behind the pictures.
        if config.model_type in PREFIX_FAMILIES:
            start = self._chat.start
            after = () if start is None else (start,)
            return Places(token=config.image_token_id, counts=counts, after=after, closing="\n")
        return Places(token=config.image_token_id, counts=counts)

    def _read(self, image: bytes) -> Picture:
        config, processor = self._split_tokens()
        inputs = read_pixels(processor, image, self._chat.path)
        return Picture(
            tokens=_count_tokens(config, inputs),
            sent=measure_picture(image),
            seen=_measure_seen(config, inputs),
            inputs=inputs,
        )

    def _split_tokens(self) -> tuple[Any, Any]:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> tuple[Any, Any]:
        path, local = self._chat.path, not self._chat.download
        config = read_config(path, local=local)
        if config.model_type not in FAMILIES:
            raise ModelFailure(
                f"{path}: the local model reads text only ({config.model_type}; pictures go to "
                f"{', '.join(FAMILIES)}); use modality: text"
            )
        return config, open_image_processor(path, local)


def open_image_processor(path: str, local: bool = True) -> Any:
    """Return the image processor of a checkpoint; ConfigError if it cannot be loaded.

    Args:
        path: directory, or a model hub id.
        local: whether to search only this machine.
    """
    from transformers import AutoImageProcessor

    try:
        # Always Pillow: torchvision's resizing differs in the last bits, and so would replies and features.
        options = {"local_files_only": local, "trust_remote_code": False, "backend": "pil"}
        return AutoImageProcessor.from_pretrained(path, **options)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise make_code_error(path, error) or ConfigError(
            f"{path}: the image processor cannot be loaded: {take_first_line(error)}; a model that sees has a "
            "preprocessor_config.json beside its weights"
        ) from None


def read_pixels(processor: Any, image: bytes, named: str) -> dict[str, Any]:
    """Return an encoded picture as inputs of a forward pass: name → tensor on the CPU, (1, …).

    Raises:
        ModelFailure: it cannot be read; `named` is the checkpoint's name in the message.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        # RGB: a screenshot's alpha channel would be a fourth plane.
        with Image.open(io.BytesIO(image)) as opened:
            return dict(processor(images=[opened.convert("RGB")], return_tensors="pt"))
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise ModelFailure(f"{named}: a picture of {len(image)} bytes cannot be read: {error}") from None


def measure_picture(image: bytes) -> tuple[int, int]:
    """Return width and height of an encoded picture that can be read."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        return opened.size


def _measure_seen(config: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
    """Return width and height in which the model sees a picture."""
    if config.model_type in GRID_FAMILIES:
        patch = int(config.vision_config.patch_size)
        _, high, wide = inputs["image_grid_thw"][0].tolist()
        return wide * patch, high * patch
    high, wide = inputs["pixel_values"].shape[-2:]
    return int(wide), int(high)


def _count_tokens(config: Any, inputs: Mapping[str, Any]) -> int:
    vision = config.vision_config
    if config.model_type in GRID_FAMILIES:
        # A grid of t × h × w patches; merge² patches become one token.
        return int(inputs["image_grid_thw"].prod()) // int(vision.spatial_merge_size) ** 2
    return int(vision.image_size // vision.patch_size) ** 2
