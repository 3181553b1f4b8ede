"""The card of a checkpoint that was trained here, `collab.json`: prompt layout and SHA-256 of its weights.

On another prompt layout a policy silently does worse, so it is refused. The digest exposes an incomplete copy or
another file of the same name. A checkpoint without a card reads any layout.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from collab.errors import ConfigError
from collab.prompts.render import LAYOUT
from collab.utils.files import hash_file

FILE = "collab.json"
CARD = "card.json"
"""File that a training writes beside its weights: their origin."""


def write_layout(directory: Path) -> None:
    """Write the prompt layout and the weights' digests of a checkpoint trained here; all of it gets one file mode."""
    files = sorted(directory.glob("*.safetensors"))
    weights = {path.name: hash_file(path) for path in files}
    text = json.dumps({"prompt_layout": LAYOUT, "weights": weights}, indent=2)
    (directory / FILE).write_text(text + "\n", encoding="utf-8")
    # safetensors writes for its owner alone; a server or a colleague reads weights as all that lies beside them.
    for path in files:
        shutil.copymode(directory / FILE, path)


def check_layout(directory: Path) -> None:
    """Check a checkpoint's prompt layout and digests; ConfigError names the found and the expected one."""
    path = directory / FILE
    # Checkpoints from elsewhere have no such file.
    if not path.is_file():
        return
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        trained_on, weights = said["prompt_layout"], dict(said.get("weights", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f'{path}: cannot be read; it should hold {{"prompt_layout": "{LAYOUT}"}}') from None
    # Another layout feeds the model prompts that it has never seen.
    if trained_on != LAYOUT:
        raise ConfigError(
            f"{directory}: trained on prompt layout {trained_on!r}, prompts here have layout {LAYOUT!r}; "
            "use the Collab version that trained it, or train it again"
        )
    _check_weights(directory, weights)


def read_card(directory: Path) -> dict[str, Any]:
    """Return the content of `card.json` beside weights; empty without one.

    Raises:
        ConfigError: it cannot be read, or it or its "base" is no object.
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
    """Check that an adapter was trained on this base, as far as its `card.json` says; else ConfigError.

    Args:
        base: directory of a checkpoint; a missing one is not compared.
        again: the next move, for the message.
    """
    trained_on = (read_card(adapter).get("base") or {}).get("digest") if base.is_dir() else None
    if trained_on is not None and trained_on != (found := hash_weights(base)):
        raise ConfigError(
            f"{base}: not the base that {adapter} was trained on (digest {found[:12]}, expected {trained_on[:12]}); "
            f"{again}"
        )


def _check_weights(directory: Path, weights: Mapping[str, str]) -> None:
    for name, digest in weights.items():
        file = directory / name
        found = hash_file(file)[:12] if file.is_file() else "no file"
        if found != digest[:12]:
            raise ConfigError(
                f"{file}: not the weights that this checkpoint was written with "
                f"(SHA-256 {found}, expected {digest[:12]}); copy the whole directory again"
            )


def hash_weights(directory: Path) -> str:
    """Return the SHA-256 over the names and digests of a checkpoint's weight files; independent of its path."""
    digest, files = hashlib.sha256(), sorted(directory.glob("*.safetensors"))
    with ThreadPoolExecutor() as pool:  # a model of 7 billion weights has 15 GB in four files
        for file, found in zip(files, pool.map(hash_file, files), strict=True):
            digest.update(f"{file.name}\x1f{found}\n".encode())
    return digest.hexdigest()


def hash_played_weights(base: Path, adapter: str | None) -> str:
    """Return the digest of the base's weights, followed by "+" and the adapter's, if any."""
    return hash_weights(base) + ("" if adapter is None else f"+{hash_weights(Path(adapter))}")
