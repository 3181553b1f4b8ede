"""Read a checkpoint's configuration and weights, for playing, training, scoring and export alike.

    config = read_config(path)
    model = load_model(path, dtype=torch.float32)      # with all its weights, or ConfigError
    check_weights(path)                                # the same check without reading them into memory

transformers fills missing weights with random numbers and only warns. Here names and shapes must match the model.
Tied weights need to be stored once. Extra parts that a language model lacks (a vision tower, a value head) are allowed.
"""

from __future__ import annotations

import inspect
import json
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from collab.errors import CollabError, ConfigError
from collab.models.tokenizer import ChatTokenizer, make_code_error, silence_transformers, take_first_line

OutputHead = Literal["words", "scores", "none"]
"""A model's output: the next token (with or without vision), a reward model's scores, or an encoder's hidden states."""

GRID_FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
"""Model types whose pictures take tokens by size, at positions in a plane (M-RoPE)."""
PREFIX_FAMILIES = ("paligemma",)
"""Model types whose pictures take a fixed number of tokens, and whose prompt attends in both directions."""
FAMILIES = (*GRID_FAMILIES, *PREFIX_FAMILIES)
"""Model types with vision that are supported, as in config.json."""

PLAIN = (None, True, False, "gaussian", "eva", "orthogonal")
"""PEFT's ways to initialise an adapter that leave the base unchanged; loading others changes it."""

LOADING = threading.Lock()
"""Held while loading: transformers sets a default device for all threads, and two concurrent loads lose weights."""

_INDEX = "model.safetensors.index.json"
_LENGTHS = ("max_position_embeddings", "max_seq_len", "seq_length")
"""A configuration's names for the longest sequence."""
_OTHER_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM")
"""Name endings of architectures whose head outputs no words."""
_WRAPPERS = {
    "_orig_mod.": "torch.compile",
    "_fsdp_wrapped_module.": "FSDP",
    "_checkpoint_wrapped_module.": "activation checkpointing",
    "_forward_module.": "Lightning or DeepSpeed",
    "base_model.model.": "PEFT",
    "module.": "DataParallel or DDP",
}
"""Part of a weight's name → the program whose wrapper adds it."""
_LEFT_BY_PEFT = (".base_layer.", ".lora_A.", ".lora_B.", ".lora_embedding_A", ".modules_to_save.", ".original_module.")


class readable:
    """Turn any error of reading weights into one ConfigError.

    Args:
        what: name of the checkpoint, for the message.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._quiet = silence_transformers()
        self._quiet.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._quiet.__exit__(None, None, None)
        if isinstance(error, Exception) and not isinstance(error, CollabError | MemoryError):
            raise ConfigError(f"{self._what}: the weights cannot be loaded: {take_first_line(error)}") from None


def read_config(path: str | Path, *, local: bool = True, named: str | None = None) -> Any:
    """Return transformers' configuration of a checkpoint; code beside it is never run.

    Args:
        path: directory, or a model hub id.
        local: whether to search only this machine.
        named: name in messages; None for its path.

    Raises:
        ConfigError: there is none, transformers does not know its model type, or a value in it is impossible.
    """
    from transformers import AutoConfig

    named = str(path) if named is None else named
    try:
        with silence_transformers():
            return AutoConfig.from_pretrained(path, local_files_only=local, trust_remote_code=False)
    except Exception as error:
        raise make_code_error(named, error) or ConfigError(
            f"{named}: config.json cannot be used: {take_first_line(error)}"
        ) from error


def get_text_config(config: Any, named: str) -> Any:
    """Return a configuration's text part; ConfigError if it has several, as models that write no text do."""
    try:
        return config.get_text_config()
    except Exception as error:
        raise ConfigError(
            f"{named}: models of type {config.model_type} are no language models here: {take_first_line(error)}"
        ) from error


def find_setting(config: Any, *names: str) -> Any:
    """Return the first of these settings with one value for the whole model; None without one."""
    for name in names:
        try:
            value = getattr(config, name, None)
        except RuntimeError:  # it has one value per layer
            continue
        if value is not None:
            return value
    return None


def read_context_length(config: Any) -> int:
    """Return the longest sequence in tokens; `sys.maxsize` where the model sets no limit."""
    found = find_setting(config, *_LENGTHS)
    return int(found) if isinstance(found, int | float) and found > 0 else sys.maxsize


def check_vocabulary(chat: ChatTokenizer, config: Any, named: str | None = None) -> None:
    """Check that the model knows every token of the tokenizer.

    Args:
        config: of the text part.
        named: the checkpoint's name in messages; None for its path.

    Raises:
        ConfigError: names both sizes and the extra tokens.
    """
    size = find_setting(config, "vocab_size")
    if not isinstance(size, int) or chat.size <= size:
        return
    beyond = chat.list_tokens_from(size)
    shown = ", ".join(f"{token!r} ({id})" for id, token in beyond[:3]) + (", …" if len(beyond) > 3 else "")
    raise ConfigError(
        f"{named or chat.path}: the tokenizer has {chat.size} tokens, the model {size}; the tokenizer belongs to "
        f"another model: {len(beyond)} tokens are beyond what the model reads: {shown}; take the tokenizer that came "
        "with these weights, or resize the model's embeddings (resize_token_embeddings) and save it again"
    )


def load_model(
    path: str | Path, *, dtype: Any, head: OutputHead = "words", local: bool = True, named: str | None = None
) -> Any:
    """Load a checkpoint on the CPU, in evaluation mode, with transformers' default attention.

    Args:
        path: directory, or a model hub id.
        dtype: a torch dtype, or "auto" for the checkpoint's own.
        local: whether to search only this machine.
        named: name in messages; None for its path.

    Raises:
        ConfigError: it cannot be read, or a weight is missing, unknown or has another shape.
    """
    return _load(path, head, local, named, dtype=dtype).eval()


def check_weights(path: str | Path, *, head: OutputHead = "words", named: str | None = None) -> None:
    """Check names and shapes of a checkpoint's weights.

    A quantised checkpoint is skipped: its names are its quantiser's, and loading compares them.

    Raises:
        ConfigError: as `load_model`.
    """
    if read_quantisation(read_config(path, named=named)) is None:
        _load(path, head, True, named, device_map="meta")


def get_loader(config: Any, head: OutputHead = "words") -> Any:
    """Return transformers' automatic class that builds and loads models of this configuration."""
    import transformers

    words = "ForImageTextToText" if config.model_type in FAMILIES else "ForCausalLM"
    kind = {"words": words, "scores": "ForSequenceClassification", "none": ""}[head]
    return getattr(transformers, f"AutoModel{kind}")


def build_empty(config: Any) -> Any:
    """Build a model of a configuration's shape, without weights; errors are those of its family."""
    import torch

    with torch.device("meta"):
        return get_loader(config).from_config(config)


def read_quantisation(config: Any) -> str | None:
    """Return how a checkpoint's weights are quantised ("gptq", "mxfp4" …); None for plain weights."""
    found = find_setting(config, "quantization_config")
    if found is None:
        return None
    method = found.get("quant_method") if isinstance(found, dict) else getattr(found, "quant_method", None)
    return str(getattr(method, "value", method) or "in a way that config.json does not name")


def _load(path: str | Path, head: OutputHead, local: bool, named: str | None, **options: Any) -> Any:
    named = str(path) if named is None else named
    config = read_config(path, local=local, named=named)
    _check_head(config, head, named)
    check_shards(Path(path), named)
    loader = get_loader(config, head)
    if type(config) not in loader._model_mapping:
        what = "encoders" if head == "none" else "language models"
        raise ConfigError(f"{named}: models of type {config.model_type} are no {what} that transformers knows")
    # Files of encoders often lack the pooling layer, which only a classifier trains.
    if head == "none" and "add_pooling_layer" in inspect.signature(loader._model_mapping[type(config)]).parameters:
        options["add_pooling_layer"] = False
    try:
        with LOADING, readable(named):
            model, found = loader.from_pretrained(
                path,
                local_files_only=local,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # or only the first would be named, in transformers' words
                output_loading_info=True,
                **options,
            )
    except ConfigError as error:
        how = read_quantisation(config)
        if how is None:
            raise
        raise ConfigError(
            f"{error}; its weights are quantised ({how}): name the checkpoint that it was made from, or serve it "
            "(collab serve)"
        ) from None
    _check_names(model, found, named)
    return model


def _check_head(config: Any, head: OutputHead, named: str) -> None:
    """Check that the checkpoint's head outputs words; else ConfigError."""
    odd = [kind for kind in config.architectures or [] if kind.endswith(_OTHER_HEADS)]
    if head == "words" and odd:
        raise ConfigError(
            f"{named}: holds {odd[0]}, whose head puts out no words; name the language model that it was made from "
            "(a reward model is named in a critic's agents file)"
        )


def check_shards(folder: Path, named: str) -> None:
    """Check that all weight files of a directory's index exist, and that pieces have an index.

    Raises:
        ConfigError: names the missing files, or the index cannot be read.
    """
    index, single = folder / _INDEX, folder / "model.safetensors"
    # One file needs no index.
    if not folder.is_dir() or single.is_file():
        return
    if not index.is_file():
        # Pieces without an index: the copy stopped half-way.
        pieces = sorted(file.name for file in folder.glob("model-*.safetensors"))
        if pieces:
            raise ConfigError(f"{named}: has {pieces[0]} and no {_INDEX}; copy the whole checkpoint again")
        return
    try:
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        absent = [name for name in files if not (folder / name).is_file()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{index}: cannot be read: {take_first_line(error)}; copy the whole checkpoint again"
        ) from None
    if absent:
        raise ConfigError(
            f"{named}: {_INDEX} names {len(files)} files, of which {len(absent)} are not there: "
            f"{', '.join(absent[:3])}; copy the whole checkpoint again"
        )


def _check_names(model: Any, found: dict[str, Any], named: str) -> None:
    """Check that the weights are exactly the model's; else ConfigError."""
    missing, odd = sorted(found["missing_keys"]), sorted(found["mismatched_keys"])
    extra = sorted(found["unexpected_keys"])
    what = f"{named}: its weights are not those of {type(model).__name__}, and would be random:"
    wanted = set(model.state_dict())
    # transformers fills missing weights with random numbers and only warns.
    if missing:
        some = f"{len(missing)} of {len(wanted)} are missing, for example {missing[0]}"
        raise ConfigError(f"{what} {some}; {_advise(missing, extra)}")
    if odd:
        name, there, needed = odd[0]
        shapes = f"{len(odd)} have another shape, for example {name}: {list(there)}, config.json says {list(needed)}"
        raise ConfigError(f"{what} {shapes}; take the config.json that belongs to these weights")
    # Extra weights matter only within this very model.
    own = [name for name in extra if _is_own_weight(name, model, wanted)]
    if own:
        raise ConfigError(
            f"{named}: {len(own)} of its weights have no place in {type(model).__name__} as config.json describes it, "
            f"for example {own[0]}; {_advise([], own)}"
        )


def _is_own_weight(name: str, model: Any, wanted: set[str]) -> bool:
    """Return whether an unknown weight belongs to the language model and not to a part beside it."""
    parts = name.split(".")
    if any(".".join(parts[start:]) in wanted for start in range(1, len(parts))):
        return True  # a wrapped copy beside the right weight: ambiguous
    depth = 0
    for depth in range(len(parts) - 1, 0, -1):
        try:
            model.get_submodule(".".join(parts[:depth]))
            break
        except AttributeError:
            continue
    else:
        return False
    beside = {"", getattr(model, "base_model_prefix", ""), f"{getattr(model, 'base_model_prefix', '')}.language_model"}
    return ".".join(parts[:depth]) not in beside


def _advise(missing: Iterable[str], extra: list[str]) -> str:
    """Return the next move, guessed from the extra names."""
    # Training wrappers leave their name in every weight: unwrap the model.
    for wrapper, program in _WRAPPERS.items():
        wrapped = [name for name in extra if wrapper in name and (wrapper != "module." or name.startswith(wrapper))]
        if wrapped:
            return (
                f"its names hold {wrapper!r} as {program} leaves it, for example {wrapped[0]}: save the model that is "
                "inside the wrapper (save_pretrained), or take that out of the names"
            )
    left = [name for name in extra if any(piece in name for piece in _LEFT_BY_PEFT)]
    if left:
        return f"it has {left[0]}, of an adapter that was not added: save what merge_and_unload() returns"
    if extra:
        # Ways of saving usually differ in a common prefix.
        for name in missing:
            for other in extra:
                if other.endswith(f".{name}"):
                    return f"its names begin with {other.removesuffix(name)!r}: take that away"
                if name.endswith(f".{other}"):
                    return f"its names lack {name.removesuffix(other)!r}: put that before them"
        return f"it has {extra[0]} instead: take the config.json that belongs to these weights"
    return "copy the whole checkpoint again, or take the config.json that belongs to these weights"
