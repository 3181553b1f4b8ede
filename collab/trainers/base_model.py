"""Checkpoints that training starts from, adapters that it continues, and export for other programs.

    source = open_source("runs/sft/final")
    weights = load(source, merge=True, dtype=None)
    write(source, weights, Path("exported"))

`open_base` checks the checkpoint that training starts from and computes its digest. Adapters are over one base:

    adapter = open_adapter("runs/marl/epochs/1/training/final", recipe, base)    # checked, with its digest
    take_up(trainer.model, adapter, reference=None)                         # load it into a fresh adapter

Updates at a small learning rate vanish in bfloat16 weights, so merging an adapter after every epoch loses what it
learned. An adapter that stays separate, in float32, loses nothing.
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
from collab.library import resolve_checkpoint
from collab.models.checkpoint import FILE, PLAIN, check_layout, check_over, hash_weights, read_card, write_layout
from collab.models.local import check_files
from collab.models.tokenizer import ChatTokenizer, open_chat, silence_transformers, take_first_line
from collab.models.vllm import CONFIG, WEIGHTS
from collab.models.weights import (
    check_vocabulary,
    check_weights,
    get_text_config,
    load_model,
    read_config,
    read_context_length,
    read_quantisation,
)
from collab.trainers.recipe import Lora, Recipe

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
class Weights:
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
    from collab.models.local import check_files
    from collab.models.weights import check_weights

    # First existence, then kind: each error names the next move.
    folder = Path(resolve_checkpoint(path))
    if not folder.is_dir():
        raise ConfigError(
            f"{path}: no such directory; name RUN@best, a fine-tuning run, a checkpoint or an adapter; trainings are "
            "told by: collab runs list"
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


def load(source: WeightSource, *, merge: bool, dtype: Precision | None) -> Weights:
    """Load the weights to write, if they differ from the files.

    Args:
        merge: whether to add an adapter to its base, in float32 with one rounding.
        dtype: type of the written weights; None for that of the checkpoint (of an adapter: its base).

    Raises:
        UsageError: a dtype is given for an unmerged adapter.
        ConfigError: the base is missing or not the adapter's, or weights cannot be read.
    """
    if source.base is None:
        return Weights(model=None if dtype is None else _load(str(source.path), dtype), homes=(source.path,))
    if not merge:
        if dtype is not None:
            raise UsageError(f"--dtype {dtype}: {source.path} is an adapter and is copied as it is; add --merge")
        return Weights(model=None, homes=(source.path,))
    base = _find_base_directory(source)
    return Weights(model=_sum(source, base, dtype), homes=(base, source.path))


def write(source: WeightSource, weights: Weights, target: Path) -> None:
    """Write a new directory; errors of the file system are the caller's.

    Args:
        weights: from `load`.
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
        from collab.models.tokenizer import silence_transformers

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


# ------------------------------------------------------------------------------------------------------- helpers


def _sum(source: WeightSource, base: Path, dtype: Precision | None) -> Any:
    import torch

    from collab.models.checkpoint import Adapters

    model = _load(str(base), "auto")
    kept = model.dtype
    adapters = Adapters(model.float(), str(base))
    with silence_libraries():
        adapters.add("merged", str(source.path))
        return adapters.merge("merged").to(kept if dtype is None else getattr(torch, dtype))


def _find_base_directory(source: WeightSource) -> Path:
    folder = Path(resolve_checkpoint(str(source.base)))
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


def _check_complete(target: Path) -> None:
    """Check a whole checkpoint's tokenizer and chat template, and write the tokens that end its replies."""
    from collab.models.tokenizer import ChatTokenizer
    from collab.models.weights import check_vocabulary, get_text_config, read_config

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
    """Check a checkpoint before loading anything; arguments and errors as `check_base`."""
    chat, config = check_base(path, recipe)
    folder = Path(resolve_checkpoint(path))
    return Base(path=str(folder), digest=hash_weights(folder), chat=chat, config=config)


def check_base(path: str, recipe: Recipe, settings: str = "") -> tuple[ChatTokenizer, Any]:
    """Check a checkpoint without reading its weights.

    Args:
        path: directory with config.json, safetensors weights, tokenizer and chat template; or "built-in:NAME".
        recipe: its context must fit the model.
        settings: prefix of the recipe's settings within a method, e.g. "dpo."; messages then name the path alone
            instead of --base.

    Returns:
        Its tokenizer, and transformers' configuration of its text part.

    Raises:
        ConfigError: names what is missing or does not fit.
        MissingExtra: transformers is not installed.
    """
    folder, named = Path(resolve_checkpoint(path)), path if settings else f"--base {path}"
    if not folder.is_dir():
        raise ConfigError(
            f"{named}: no such model directory; one of the model hub is fetched with: hf download ID --local-dir DIR"
        )
    # The commonest mistake: an adapter instead of its base.
    if not (folder / "config.json").is_file() and (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{named}: an adapter, not a whole checkpoint; train it with lora.merge: true")
    check_files(str(folder))
    chat = open_chat(str(folder), date=recipe.date, template=recipe.chat_template_kwargs)
    # Read only the configuration, so that a wrong checkpoint costs no loading.
    whole = read_config(folder, named=named)
    how = read_quantisation(whole)
    if how is not None:
        raise ConfigError(
            f"{named}: its weights are quantised ({how}), and only plain weights are trained; name the checkpoint that "
            "it was made from"
        )
    # A model with vision nests its text part.
    config, most = get_text_config(whole, named), read_context_length(get_text_config(whole, named))
    if recipe.context > most:
        raise ConfigError(
            f"{named}: reads {most} tokens, the recipe has context {recipe.context}; --set {settings}context={most}"
        )
    # Tokenizer and weights last, as they read files.
    check_vocabulary(chat, config, named)
    check_weights(folder, named=named)
    return chat, config


@contextlib.contextmanager
def silence_libraries() -> Iterator[None]:
    """Silence progress bars and warnings of transformers and TRL."""
    with silence_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def load_weights(base: Base, dtype: str) -> Any:
    """Load the causal LM on the CPU in "float32" or "bfloat16".

    Raises:
        ConfigError: the weights cannot be read, or its forward pass is not that of a causal language model.
    """
    import torch

    model = load_model(base.path, dtype=getattr(torch, dtype), named=f"--base {base.path}")
    if all(weight.numel() and not weight.is_meta for weight in model.parameters()):  # not split over processes
        _check_forward(model, f"--base {base.path}")
    return model


def _check_forward(model: Any, named: str) -> None:
    """Check that the forward pass works and that no token sees later ones; else ConfigError."""
    import torch

    from collab.models.checkpoint import get_tolerance

    ids = torch.arange(24)[None] * (len(model.get_input_embeddings().weight) - 1) // 23  # the first token to the last
    refused = f"{named}: models of type {model.config.model_type} cannot be trained here"
    try:
        with torch.no_grad():
            whole, part = (
                model(input_ids=some, use_cache=False).logits[:, :13].float().log_softmax(-1)
                for some in (ids, ids[:, :13])
            )
    except Exception as error:  # each family has its own ways of failing
        raise ConfigError(f"{refused}: its forward pass fails ({take_first_line(error)[:200]})") from error
    apart = float((whole - part).abs().max())
    if apart > get_tolerance(model.dtype):
        raise ConfigError(f"{refused}: its tokens see those that follow them (log-probabilities differ by {apart:.2g})")


def load_tokenizer(base: Base) -> Any:
    """Return the transformers tokenizer that is saved with every checkpoint."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base.path, local_files_only=True, trust_remote_code=False)


_UNTRAINED = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "bias", "modules_to_save", "layer_replication")
"""PEFT settings that change an adapter's scale or weights beyond a recipe."""
REFERENCE = "ref"
"""TRL's name of the reference adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """An adapter on the disk."""

    path: str
    """Directory."""
    digest: str
    """SHA-256 over its weights."""


def open_adapter(path: str | None, recipe: Recipe, base: str) -> Adapter | None:
    """Check an adapter before loading anything; return None for None.

    Args:
        recipe: of the training that continues it.
        base: the checkpoint below it.

    Raises:
        ConfigError: it is missing, does not fit the recipe, has an untrainable kind or another base, or the recipe
            trains no adapter.
    """
    if path is None:
        return None
    if recipe.lora is None:
        raise ConfigError(f"adapter {path}: the recipe trains all weights; set lora, or add the adapter to its base")
    folder = Path(path)
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS[0]).is_file():
        raise ConfigError(f"adapter {path}: no PEFT adapter; {CONFIG} and {WEIGHTS[0]} have to be there")
    check_layout(folder)
    check_over(folder, Path(resolve_checkpoint(base)), "name that one")
    _check_kind(folder, recipe.lora)
    return Adapter(path=str(folder), digest=hash_weights(folder))


def check_modules(adapter: Adapter, model: Any, fresh: Any) -> None:
    """Check that an adapter has the recipe's modules, before episodes are played for it.

    Args:
        model: of the base's shape; unusable afterwards.
        fresh: PEFT's configuration of the recipe's adapter (`collab.trainers.base.build_adapter_config`).

    Raises:
        ConfigError: their modules differ, or the file cannot be read.
    """
    from peft import get_peft_model

    names = [name for name, _ in get_peft_model(model, fresh).named_parameters()]
    wanted = {_get_module(name) for name in names if ".lora_" in name}
    given = _list_modules(Path(adapter.path) / WEIGHTS[0])
    if given != wanted:
        targets = sorted({_get_last_part(name) for name in given})
        raise ConfigError(
            f"adapter {adapter.path}: made for other modules than the recipe's, for example {min(given ^ wanted)}; "
            f"it has {', '.join(targets)}: set lora.targets to these"
        )


def take_up(model: Any, adapter: Adapter | None, reference: Adapter | None) -> None:
    """Load an adapter's weights into the fresh one, and add the reference adapter.

    Args:
        model: PEFT's, as TRL made it, with the base as reference.
        adapter: None leaves it fresh.
        reference: None leaves the base as reference.

    Raises:
        ConfigError: one was made for another base or other modules.
    """
    if adapter is not None:
        _fill(model, adapter, "default")
    if reference is not None:
        model.add_adapter(REFERENCE, model.peft_config["default"])
        _fill(model, reference, REFERENCE)


def drop_reference(model: Any) -> None:
    """Remove the reference adapter from a model."""
    if REFERENCE in getattr(model, "peft_config", {}):
        model.delete_adapter(REFERENCE)


def is_of_reference(name: str) -> bool:
    """Return whether a weight of that name belongs to the reference adapter."""
    return f".{REFERENCE}." in name


def _fill(model: Any, adapter: Adapter, name: str) -> None:
    from peft import set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = set_peft_model_state_dict(model, load_file(Path(adapter.path) / WEIGHTS[0]), adapter_name=name)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"adapter {adapter.path}: cannot be taken up: {str(error).splitlines()[0]}") from None
    # PEFT ignores mismatches: training would start from a part of the adapter.
    missing = [key for key in found.missing_keys if f".{name}." in key]
    if found.unexpected_keys or missing:
        odd = [*found.unexpected_keys, *missing][0]
        raise ConfigError(f"adapter {adapter.path}: made for other modules than the recipe's, for example {odd}")


def _list_modules(file: Path) -> set[str]:
    """Return the base's names of the modules in an adapter's file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            names = list(opened.keys())
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    odd = [name for name in names if not name.endswith((".lora_A.weight", ".lora_B.weight"))]
    if odd:
        raise ConfigError(f"adapter {file.parent}: has {odd[0]}, {_explain_played_only(file.parent)}")
    return {_get_module(name) for name in names}


def _get_module(weight: str) -> str:
    """Return the module that an adapter's weight belongs to."""
    return weight.removeprefix("base_model.model.").rpartition(".lora_")[0]


def _explain_played_only(folder: Path) -> str:
    return (
        "which is played and not trained here; begin with the sum of base and adapter: "
        f"collab export {folder} --merge --out DIR"
    )


def _get_last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _check_kind(folder: Path, lora: Lora) -> None:
    """Check that an adapter has the recipe's scale and only weights that are trained; else ConfigError."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        # Another rank or alpha would change the adapter's scale.
        was = (int(config["r"]), float(config["lora_alpha"]))
        odd = [name for name in _UNTRAINED if config.get(name) not in (None, False, {}, [], "none")]
        odd += [] if config.get("init_lora_weights") in PLAIN else [f"init_lora_weights {config['init_lora_weights']}"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder / CONFIG}: cannot be read: {error}") from None
    if was != (lora.rank, lora.alpha):
        raise ConfigError(
            f"adapter {folder}: has rank {was[0]} and alpha {was[1]:g}, the recipe {lora.rank} and {lora.alpha:g}; "
            f"set lora.rank={was[0]} and lora.alpha={was[1]:g}"
        )
    if odd:
        raise ConfigError(f"adapter {folder}: has {' and '.join(odd)}, {_explain_played_only(folder)}")
