"""The list of dialects: found by name, guessed from a model's name, recognised in a reply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from collab.dialects import aguvis, computer_use, gelab, glm, json_objects, os_atlas, qwen, ui_tars, ui_venus
from collab.dialects.base import Dialect
from collab.errors import UnknownName

DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for family in (qwen, ui_tars, glm, ui_venus, os_atlas, aguvis, gelab, json_objects, computer_use)
    for dialect in family.DIALECTS
}
"""Every dialect, in the order in which they are listed."""
LONGEST_GUESSED = 10_000
"""Characters of a reply whose dialect is guessed: it is read in all of them."""


def find_dialect(name: str, where: str = "") -> Dialect:
    """Return a dialect; UnknownName, with the place that names it, when there is none."""
    if name not in DIALECTS:
        raise UnknownName.of("dialect", name, DIALECTS, where)
    return DIALECTS[name]


def guess_dialect(model: str) -> Dialect | None:
    """Return the dialect of a model; None if nothing is known.

    Args:
        model: its name, or a directory: then the last part of the path counts, and after that the model type in its
            `config.json`.
    """
    name = model.lower().rstrip("/").rpartition("/")[2]
    candidates = sorted(DIALECTS.values(), key=_is_base)
    named = next((one for one in candidates if one.models and re.search(one.models, name)), None)
    if named is not None:
        return named
    kind = _read_model_type(Path(model).expanduser())
    return next((one for one in candidates if kind in one.model_types), None)


def _read_model_type(folder: Path) -> str:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return str(config.get("model_type", "")).lower() if isinstance(config, dict) else ""


def _is_base(dialect: Dialect) -> bool:
    """Return whether others were built on the model and may carry its name in theirs, as GUI-Owl does."""
    return dialect.name.startswith("qwen")


@lru_cache(maxsize=64)
def recognise(text: str, declared: str = "") -> tuple[str, ...]:
    """Return the names of all dialects but the declared one that read a reply."""
    if len(text) > LONGEST_GUESSED:
        return ()
    return tuple(name for name, one in DIALECTS.items() if name != declared and one.read(text).actions)
