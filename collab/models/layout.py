"""What a checkpoint made here says of itself: `collab.json` beside its weights.

It names the prompt layout that it was trained on: a policy that learned to read one layout does worse on another
without any error to be seen, so it is only loaded where prompts have that layout. And it names its weights by their
SHA-256, so that half a copy or another file under the same name is never taken for it. A checkpoint without the file
was not trained here; it reads any layout.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collab.background import doing
from collab.errors import ConfigError
from collab.prompts.render import LAYOUT

FILE = "collab.json"
CARD = "card.json"
"""What a training writes beside its weights: what they were made of."""


def write_layout(directory: Path) -> None:
    """Note that what lies in `directory` was trained on the present layout, and which weights these are."""
    weights = {path.name: sha256(path) for path in sorted(directory.glob("*.safetensors"))}
    text = json.dumps({"prompt_layout": LAYOUT, "weights": weights}, indent=2)
    (directory / FILE).write_text(text + "\n", encoding="utf-8")


def check_layout(directory: Path) -> None:
    """Refuse a checkpoint of another layout, or with other weights than it was written with; ConfigError names both."""
    path = directory / FILE
    if not path.is_file():
        return
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        trained_on, weights = said["prompt_layout"], dict(said.get("weights", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f'{path}: cannot be read; it should hold {{"prompt_layout": "{LAYOUT}"}}') from None
    if trained_on != LAYOUT:
        raise ConfigError(
            f"{directory}: trained on prompt layout {trained_on!r}, prompts here have layout {LAYOUT!r}; "
            "use the Collab version that trained it, or train it again"
        )
    _check_weights(directory, weights)


def read_card(directory: Path) -> dict[str, Any]:
    """What `card.json` beside weights says; empty where there is none.

    Raises:
        ConfigError: it cannot be read, or is no card: an object whose "base", where it names one, is an object.
    """
    path = directory / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(card, dict) or not isinstance(card.get("base") or {}, dict):
        raise ConfigError(f"{path}: cannot be read: no card of a training; copy the whole directory again")
    return card


def check_over(adapter: Path, base: Path, again: str) -> None:
    """Refuse an adapter over another base than it was trained on, where its `card.json` tells which that was.

    Args:
        base: directory of a checkpoint; one that is not here cannot be compared.
        again: what to do about it, for the message.

    Raises:
        ConfigError: the two do not belong together, or the card cannot be read.
    """
    trained_on = (read_card(adapter).get("base") or {}).get("digest") if base.is_dir() else None
    if trained_on is not None and trained_on != (found := weights_digest(base)):
        raise ConfigError(
            f"{base}: not the base that {adapter} was trained on (digest {found[:12]}, expected {trained_on[:12]}); "
            f"{again}"
        )


def _check_weights(directory: Path, weights: Mapping[str, str]) -> None:
    for name, digest in weights.items():
        file = directory / name
        found = sha256(file)[:12] if file.is_file() else "no file"
        if found != digest[:12]:
            raise ConfigError(
                f"{file}: not the weights that this checkpoint was written with "
                f"(SHA-256 {found}, expected {digest[:12]}); copy the whole directory again"
            )


def weights_digest(directory: Path) -> str:
    """SHA-256 over the names and digests of a checkpoint's weights: the same wherever it lies."""
    digest = hashlib.sha256()
    for file in sorted(directory.glob("*.safetensors")):
        digest.update(f"{file.name}\x1f{sha256(file)}\n".encode())
    return digest.hexdigest()


def played_digest(base: Path, adapter: str | None) -> str:
    """Digest of the weights that speak: the base's, and behind a plus those of the adapter over it.

    Args:
        adapter: its directory; None for the base alone.
    """
    return weights_digest(base) + ("" if adapter is None else f"+{weights_digest(Path(adapter))}")


def sha256(path: Path) -> str:
    """SHA-256 of a file; a large one that is as it was is read once per process, for many adapters share a base."""
    there = path.stat()
    if there.st_size < _LARGE:
        return _sha256(path)
    return _remembered(path.resolve(), there.st_ino, there.st_size, there.st_mtime_ns)


_LARGE = 64 * 2**20
"""Bytes. Reading so many takes longer than the smallest step of a file's time, so a change afterwards shows in it."""


@functools.lru_cache(maxsize=256)
def _remembered(path: Path, inode: int, size: int, changed: int) -> str:
    return _sha256(path)


def _sha256(path: Path) -> str:
    with doing(f"hashing {path}"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
