"""Which prompt layout a checkpoint was trained on: `collab.json` beside its weights.

A policy that learned to read one layout does worse on another without any error to be seen, so a checkpoint that names
a layout is only loaded where prompts have it. A checkpoint without the file was not trained here and reads any.
"""

from __future__ import annotations

import json
from pathlib import Path

from collab.errors import ConfigError
from collab.prompts.render import LAYOUT

FILE = "collab.json"


def write_layout(directory: Path) -> None:
    """Note that what lies in `directory` was trained on the present layout."""
    (directory / FILE).write_text(json.dumps({"prompt_layout": LAYOUT}) + "\n", encoding="utf-8")


def check_layout(directory: Path) -> None:
    """Refuse a checkpoint of another layout; ConfigError names both."""
    path = directory / FILE
    if not path.is_file():
        return
    try:
        trained_on = json.loads(path.read_text(encoding="utf-8"))["prompt_layout"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f'{path}: cannot be read; it should hold {{"prompt_layout": "{LAYOUT}"}}') from None
    if trained_on != LAYOUT:
        raise ConfigError(
            f"{directory}: trained on prompt layout {trained_on!r}, prompts here have layout {LAYOUT!r}; "
            "use the Collab version that trained it, or train it again"
        )
