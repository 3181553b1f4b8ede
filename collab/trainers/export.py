"""Copy a checkpoint or an adapter, or merge an adapter into its base, for other programs (`collab export`).

    source = open_source("runs/sft/final")
    weights = load_export(source, merge=True, dtype=None)
    write_export(source, weights, Path("exported"))

The result loads in plain transformers and vLLM.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from collab.errors import ConfigError, UsageError
from collab.library import resolve_checkpoint
from collab.models.checkpoint_card import FILE, check_layout, check_over, read_card, write_layout
from collab.models.local import check_files
from collab.models.tokenizer import ChatTokenizer, silence_transformers
from collab.models.vision import FILES as PICTURE_FILES
from collab.models.vllm import CONFIG, WEIGHTS
from collab.models.weights import (
    check_vocabulary,
    check_weights,
    get_text_config,
    load_model,
    read_config,
)
from collab.trainers.base_model import silence_libraries

Precision = Literal["bfloat16", "float32"]

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_TEXT = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template*")
"""Files of a tokenizer."""
_REST = ("config.json", "generation_config.json", "adapter_config.json", *PICTURE_FILES, "LICENSE*", "NOTICE*")
"""Other files of a checkpoint, without optimizers, logs and records of a training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """A checkpoint or adapter to export."""

    path: Path
    """Its directory."""
    base: str | None = None
    """An adapter's base, a directory or a model hub id; None for a whole checkpoint."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """Record of its training; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWeights:
    """Weights to write."""

    model: Any
    """The transformers model on the CPU; None to copy files unchanged."""
    homes: tuple[Path, ...]
    """Directories whose files are copied; later ones override earlier ones."""


def open_source(path: str, base: str | None = None) -> WeightSource:
    """Check what is to be exported, without loading weights.

    Args:
        path: of a checkpoint or an adapter, or "built-in:NAME".
        base: of an adapter; None for the one that it names.

    Raises:
        ConfigError: it is missing or incomplete, or its weights changed since they were written.
        UsageError: a base is named for a whole checkpoint.
    """
    # First existence, then kind: each error names the next move.
    folder = Path(resolve_checkpoint(path))
    if not folder.is_dir():
        raise ConfigError(
            f"{path}: no such directory; name RUN@best, a fine-tuning run, a checkpoint or an adapter; to list "
            "trainings: collab runs list"
        )
    card = read_card(folder)
    # A directory with both files is a checkpoint: PEFT leaves adapter files beside merged weights.
    if (folder / "config.json").is_file() or not (folder / CONFIG).is_file():
        if base is not None:
            raise UsageError(f"--base {base}: {path} is a whole checkpoint and has no base; leave --base out")
        check_files(str(folder))
        check_weights(folder, named=path)
        return WeightSource(path=folder, card=card)
    # Only safetensors: a pickle would run code on loading.
    if not (folder / WEIGHTS[0]).is_file():
        raise ConfigError(f"{path}: an adapter without {WEIGHTS[0]}; other formats can hold code and are not loaded")
    check_layout(folder)
    # The user's option first, then the card, then PEFT's file, which may hold another machine's path.
    named = base or (card.get("base") or {}).get("path") or _read_adapter_config(folder).get("base_model_name_or_path")
    if not named:
        raise ConfigError(f"{path}: the adapter does not name its base; name it: --base DIR")
    return WeightSource(path=folder, base=str(named), card=card)


def load_export(source: WeightSource, *, merge: bool, dtype: Precision | None) -> ExportWeights:
    """Load the weights to write, if they differ from the files.

    Args:
        merge: whether to add an adapter to its base, in float32 with one rounding.
        dtype: type of the written weights; None for that of the checkpoint (of an adapter: its base).

    Raises:
        UsageError: a dtype is given for an unmerged adapter.
        ConfigError: the base is missing or not the adapter's, or weights cannot be read.
    """
    if source.base is None:
        return ExportWeights(model=None if dtype is None else _load(str(source.path), dtype), homes=(source.path,))
    if not merge:
        if dtype is not None:
            raise UsageError(f"--dtype {dtype}: {source.path} is an adapter and is copied as it is; add --merge")
        return ExportWeights(model=None, homes=(source.path,))
    base = _find_base_directory(source)
    return ExportWeights(model=_sum(source, base, dtype), homes=(base, source.path))


def write_export(source: WeightSource, weights: ExportWeights, target: Path) -> None:
    """Write a new directory; errors of the file system are the caller's.

    Args:
        weights: from `load_export`.
        target: a new path.

    Raises:
        ConfigError: a whole checkpoint has no tokenizer or chat template, or they do not fit.
    """
    target.mkdir(parents=True)
    # With weights in memory, copy only texts: weight files would be the old ones.
    copied = (*_TEXT, *_REST) if weights.model is not None else (*_WEIGHTS, *_TEXT, *_REST)
    for folder in weights.homes:
        _copy(folder, target, copied)
    if weights.model is not None:
        # The adapter's file would make loaders look for the merged adapter.
        (target / CONFIG).unlink(missing_ok=True)
        with silence_transformers():
            weights.model.save_pretrained(target)
    if (target / CONFIG).is_file():
        _name_base(source, target / CONFIG)
    else:
        _check_complete(target)
    # Only a checkpoint trained here has a layout.
    if any((folder / FILE).is_file() for folder in weights.homes):
        write_layout(target)


def find_context_length(source: WeightSource) -> int | None:
    """Return the context length, in tokens, of a checkpoint or an adapter's base; None if unknown."""
    path = Path(resolve_checkpoint(source.base or str(source.path))) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return int((config.get("text_config") or config)["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _sum(source: WeightSource, base: Path, dtype: Precision | None) -> Any:
    import torch

    from collab.models.checkpoint import Adapters

    model = _load(str(base), "auto")
    kept = model.dtype
    adapters = Adapters(model.float(), str(base))
    with silence_libraries():
        adapters.add(str(source.path), str(source.path))
        return adapters.merge(str(source.path)).to(kept if dtype is None else getattr(torch, dtype))


def _find_base_directory(source: WeightSource) -> Path:
    folder = Path(resolve_checkpoint(str(source.base)))
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{source.path}: its base {source.base} is no directory here; name it: --base DIR")
    check_over(source.path, folder, "name that one: --base DIR")
    return folder


def _load(path: str, dtype: str) -> Any:
    check_layout(Path(path))
    return load_model(path, dtype=dtype)


def _copy(folder: Path, target: Path, patterns: Iterable[str]) -> None:
    wanted = tuple(patterns)
    for file in sorted(folder.iterdir()):
        if file.is_file() and any(fnmatch.fnmatchcase(file.name, pattern) for pattern in wanted):
            shutil.copyfile(file, target / file.name)


def _check_complete(target: Path) -> None:
    """Check a whole checkpoint's tokenizer and chat template, and write the tokens that end its replies."""
    chat = ChatTokenizer(str(target))
    config = get_text_config(read_config(target), str(target))
    # A wrong tokenizer shows here, not at the first reply.
    check_vocabulary(chat, config)
    path = target / "generation_config.json"
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
    else:
        named = {name: getattr(config, name, None) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        known = {name: token for name, token in named.items() if token is not None}
    # Replies end with the chat template's token; published files often name another one.
    ends = _with_ends(known.get("eos_token_id"), chat)
    if ends != known.get("eos_token_id") or not path.is_file():
        path.write_text(json.dumps({**known, "eos_token_id": ends}, indent=2) + "\n", encoding="utf-8")


def _with_ends(known: int | list[int] | None, chat: ChatTokenizer) -> int | list[int] | None:
    """Return the ids that end a reply: the configured ones, plus those of the chat template."""
    listed = [] if known is None else [known] if isinstance(known, int) else list(known)
    more = sorted(chat.turn_ends - set(listed))
    return [*listed, *more] if more else known


def _name_base(source: WeightSource, path: Path) -> None:
    """Write the absolute path of an adapter's base, if the base is a directory here."""
    folder = Path(resolve_checkpoint(str(source.base)))
    config = _read_adapter_config(path.parent)
    if folder.is_dir() and config.get("base_model_name_or_path") != str(folder.resolve()):
        text = json.dumps({**config, "base_model_name_or_path": str(folder.resolve())}, indent=2, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")


def _read_adapter_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return config if isinstance(config, dict) else {}
