"""A checkpoint as a directory that other programs load: copied as it is, or an adapter added to its base's weights.

source = open_source("runs/sft/final")
weights = load(source, merge=True, dtype=None)
write(source, weights, Path("exported"))

The checkpoint that training starts from: checked, named by its digest, loaded for training.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collab.errors import ConfigError, UsageError
from collab.library import checkpoint
from collab.models.checkpoint import FILE, check_layout, check_over, read_card, weights_digest, write_layout
from collab.models.local import check_files
from collab.models.tokenizer import ChatTokenizer, first_line, quiet_transformers
from collab.models.vllm import CONFIG, WEIGHTS
from collab.models.weights import (
    check_vocabulary,
    check_weights,
    context_of,
    load_model,
    quantised,
    read_config,
    text_config,
)
from collab.trainers.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
        from collab.models.tokenizer import quiet_transformers

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

    from collab.models.checkpoint import Adapters

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
    from collab.models.tokenizer import ChatTokenizer
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A checkpoint to start from."""

    path: str
    """Directory."""
    digest: str
    """SHA-256 over its weights."""
    chat: ChatTokenizer
    config: Any
    """transformers' configuration of its text part."""

    def __str__(self) -> str:
        return f"{self.path} (digest {self.digest[:12]})"


def open_base(path: str, recipe: Recipe) -> Base:
    """Check a checkpoint before anything is loaded; arguments and errors as of `check_base`."""
    chat, config = check_base(path, recipe)
    folder = Path(checkpoint(path))
    return Base(path=str(folder), digest=weights_digest(folder), chat=chat, config=config)


def check_base(path: str, recipe: Recipe, settings: str = "") -> tuple[ChatTokenizer, Any]:
    """Look at a checkpoint without reading its weights.

    Args:
        path: directory with config.json, safetensors weights, tokenizer and chat template; or "built-in:NAME".
        recipe: whose context it must bear.
        settings: what settings of the recipe begin with where it is part of a method, e.g. "dpo."; the checkpoint is
            no --base there, and is named by its path alone.

    Returns:
        Its tokenizer, and transformers' configuration of its text part.

    Raises:
        ConfigError: something of it is missing or does not fit; says what.
        MissingExtra: transformers is not installed.
    """
    folder, named = Path(checkpoint(path)), path if settings else f"--base {path}"
    if not folder.is_dir():
        raise ConfigError(
            f"{named}: no such model directory; one of the model hub is fetched with: hf download ID --local-dir DIR"
        )
    if not (folder / "config.json").is_file() and (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{named}: an adapter, not a whole checkpoint; train it with lora.merge: true")
    check_files(str(folder))
    chat = ChatTokenizer(str(folder), date=recipe.date, template=recipe.chat_template_kwargs)
    whole = read_config(folder, named=named)
    how = quantised(whole)
    if how is not None:
        raise ConfigError(
            f"{named}: its weights are quantised ({how}), and only plain weights are trained; name the checkpoint that "
            "it was made from"
        )
    config, most = text_config(whole, named), context_of(text_config(whole, named))
    if recipe.context > most:
        raise ConfigError(
            f"{named}: reads {most} tokens, the recipe has context {recipe.context}; --set {settings}context={most}"
        )
    check_vocabulary(chat, config, named)
    check_weights(folder, named=named)
    return chat, config


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without progress bars and warnings of transformers, and without what it and TRL say to each other."""
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def load_weights(base: Base, dtype: str) -> Any:
    """Return the causal LM in memory, on the processor.

    Args:
        dtype: what its weights are held in, "float32" or "bfloat16".

    Raises:
        ConfigError: the weights cannot be read, or its forward pass is not that of a causal language model.
    """
    import torch

    model = load_model(base.path, dtype=getattr(torch, dtype), named=f"--base {base.path}")
    if all(weight.numel() and not weight.is_meta for weight in model.parameters()):  # not split over processes
        _check_forward(model, f"--base {base.path}")
    return model


def _check_forward(model: Any, named: str) -> None:
    """Refuse a model whose forward pass fails, or in which a token sees those that follow it."""
    import torch

    from collab.models.checkpoint import tolerance_of

    ids = torch.arange(24)[None] * (len(model.get_input_embeddings().weight) - 1) // 23  # the first token to the last
    refused = f"{named}: models of type {model.config.model_type} cannot be trained here"
    try:
        with torch.no_grad():
            whole, part = (
                model(input_ids=some, use_cache=False).logits[:, :13].float().log_softmax(-1)
                for some in (ids, ids[:, :13])
            )
    except Exception as error:  # each family has its own ways of failing
        raise ConfigError(f"{refused}: its forward pass fails ({first_line(error)[:200]})") from error
    apart = float((whole - part).abs().max())
    if apart > tolerance_of(model.dtype):
        raise ConfigError(f"{refused}: its tokens see those that follow them (log-probabilities differ by {apart:.2g})")


def load_tokenizer(base: Base) -> Any:
    """The transformers tokenizer that is saved with every checkpoint."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base.path, local_files_only=True, trust_remote_code=False)
