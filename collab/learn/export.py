"""A checkpoint as a directory that other programs load: copied as it is, or an adapter added to its base's weights.

source = open_source("runs/sft/final")
weights = load(source, merge=True, dtype=None)
write(source, weights, Path("exported"))
"""

from __future__ import annotations

import fnmatch
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collab.errors import ConfigError, UsageError
from collab.library import checkpoint
from collab.models.adapters import CONFIG, WEIGHTS
from collab.models.layout import FILE, check_layout, check_over, read_card, write_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collab.models.chat import ChatTokenizer

Precision = Literal["bfloat16", "float32"]

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_TEXT = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template*")
"""Files of a tokenizer."""
_REST = (
    *("config.json", "generation_config.json", "adapter_config.json"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "LICENSE*", "NOTICE*"),
)
"""What else belongs to a checkpoint; optimizers, logs and records of a training do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is exported."""

    path: Path
    """Its directory."""
    base: str | None = None
    """Of an adapter: the checkpoint that it is added to, a directory or a model hub id; None for a whole checkpoint."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """How it was made; empty where that is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What is written."""

    model: Any
    """The transformers model on the processor; None where files are copied as they are."""
    homes: tuple[Path, ...]
    """Directories whose files go with it, later ones over earlier ones."""


def open_source(path: str, base: str | None = None) -> Source:
    """Check what is to be exported; no weights are loaded.

    Args:
        path: of a checkpoint or an adapter, or "built-in:NAME".
        base: of an adapter; None for the one that it names.

    Raises:
        ConfigError: there is none, something of it is missing, or its weights are not those it was written with.
        UsageError: a base is named for a whole checkpoint.
    """
    from collab.models.local import check_files
    from collab.models.weights import check_weights

    folder = Path(checkpoint(path))
    if not folder.is_dir():
        raise ConfigError(
            f"{path}: no such directory; name RUN@best, a fine-tuning run, a checkpoint or an adapter; trainings are "
            "told by: collab runs list"
        )
    card = read_card(folder)
    if (folder / "config.json").is_file() or not (folder / CONFIG).is_file():
        if base is not None:
            raise UsageError(f"--base {base}: {path} is a whole checkpoint and has no base; leave --base out")
        check_files(str(folder))
        check_weights(folder, named=path)
        return Source(path=folder, card=card)
    if not (folder / WEIGHTS[0]).is_file():
        raise ConfigError(f"{path}: an adapter without {WEIGHTS[0]}; other formats can hold code and are not loaded")
    check_layout(folder)
    named = base or (card.get("base") or {}).get("path") or _adapter_config(folder).get("base_model_name_or_path")
    if not named:
        raise ConfigError(f"{path}: the adapter does not name its base; name it: --base DIR")
    return Source(path=folder, base=str(named), card=card)


def load(source: Source, *, merge: bool, dtype: Precision | None) -> Weights:
    """Read the weights that are written, where they are others than those on the disk.

    Args:
        merge: whether an adapter is added to its base; it is reckoned in float32 and rounded once.
        dtype: what they are written in; None for what the checkpoint (of an adapter: its base) has.

    Raises:
        UsageError: a dtype is asked of an adapter that stays one.
        ConfigError: the base is not here or not the one that the adapter was trained on, or weights cannot be read.
    """
    if source.base is None:
        return Weights(model=None if dtype is None else _load(str(source.path), dtype), homes=(source.path,))
    if not merge:
        if dtype is not None:
            raise UsageError(f"--dtype {dtype}: {source.path} is an adapter and is copied as it is; add --merge")
        return Weights(model=None, homes=(source.path,))
    base = _base_directory(source)
    return Weights(model=_sum(source, base, dtype), homes=(base, source.path))


def write(source: Source, weights: Weights, target: Path) -> None:
    """Write a directory; whoever calls names what the file system refuses.

    Args:
        weights: of `load`.
        target: new.

    Raises:
        ConfigError: a whole checkpoint has no tokenizer or chat template, or they do not fit.
    """
    target.mkdir(parents=True)
    copied = (*_TEXT, *_REST) if weights.model is not None else (*_WEIGHTS, *_TEXT, *_REST)
    for folder in weights.homes:
        _copy(folder, target, copied)
    if weights.model is not None:
        from collab.models.chat import quiet_transformers

        (target / CONFIG).unlink(missing_ok=True)
        with quiet_transformers():
            weights.model.save_pretrained(target)
    if (target / CONFIG).is_file():
        _name_base(source, target / CONFIG)
    else:
        _complete(target)
    if any((folder / FILE).is_file() for folder in weights.homes):
        write_layout(target)


def reads(source: Source) -> int | None:
    """The longest sequence, in tokens, that a checkpoint or an adapter's base reads; None where nothing says."""
    path = Path(checkpoint(source.base or str(source.path))) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return int((config.get("text_config") or config)["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


# ------------------------------------------------------------------------------------------------------- helpers


def _sum(source: Source, base: Path, dtype: Precision | None) -> Any:
    import torch

    from collab.learn.base import quiet
    from collab.models.lora import Adapters

    model = _load(str(base), "auto")
    kept = model.dtype
    adapters = Adapters(model.float(), str(base))
    with quiet():
        adapters.add("merged", str(source.path))
        return adapters.merged("merged").to(kept if dtype is None else getattr(torch, dtype))


def _base_directory(source: Source) -> Path:
    folder = Path(checkpoint(str(source.base)))
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{source.path}: its base {source.base} is no directory here; name it: --base DIR")
    check_over(source.path, folder, "name that one: --base DIR")
    return folder


def _load(path: str, dtype: str) -> Any:
    from collab.models.weights import load_model

    check_layout(Path(path))
    return load_model(path, dtype=dtype)


def _copy(folder: Path, target: Path, patterns: Iterable[str]) -> None:
    wanted = tuple(patterns)
    for file in sorted(folder.iterdir()):
        if file.is_file() and any(fnmatch.fnmatchcase(file.name, pattern) for pattern in wanted):
            shutil.copyfile(file, target / file.name)


def _complete(target: Path) -> None:
    """See that a whole checkpoint can be talked with, and that whoever generates with it knows where replies end."""
    from collab.models.chat import ChatTokenizer
    from collab.models.weights import check_vocabulary, read_config, text_config

    chat = ChatTokenizer(str(target))
    config = text_config(read_config(target), str(target))
    check_vocabulary(chat, config)
    path = target / "generation_config.json"
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
    else:
        named = {name: getattr(config, name, None) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        known = {name: token for name, token in named.items() if token is not None}
    ends = _with_ends(known.get("eos_token_id"), chat)
    if ends != known.get("eos_token_id") or not path.is_file():
        path.write_text(json.dumps({**known, "eos_token_id": ends}, indent=2) + "\n", encoding="utf-8")


def _with_ends(known: int | list[int] | None, chat: ChatTokenizer) -> int | list[int] | None:
    """The ids that end a reply: those configured, then those of the chat template; the same where nothing is new."""
    listed = [] if known is None else [known] if isinstance(known, int) else list(known)
    more = sorted(chat.turn_ends - set(listed))
    return [*listed, *more] if more else known


def _name_base(source: Source, path: Path) -> None:
    """Let an adapter name its base so that it is found from anywhere, where the base is a directory here."""
    folder = Path(checkpoint(str(source.base)))
    config = _adapter_config(path.parent)
    if folder.is_dir() and config.get("base_model_name_or_path") != str(folder.resolve()):
        text = json.dumps({**config, "base_model_name_or_path": str(folder.resolve())}, indent=2, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")


def _adapter_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return config if isinstance(config, dict) else {}
