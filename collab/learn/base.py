"""The checkpoint that training starts from: checked, named by its digest, loaded for training."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.errors import ConfigError
from collab.learn.preset import Recipe
from collab.library import checkpoint
from collab.models.chat import ChatTokenizer, quiet_transformers
from collab.models.layout import weights_digest
from collab.models.local import check_files


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
    chat = ChatTokenizer(str(folder))
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{named}: config.json cannot be used: {str(error).splitlines()[0]}") from None
    if recipe.context > config.max_position_embeddings:
        raise ConfigError(
            f"{named}: reads {config.max_position_embeddings} tokens, the recipe has context {recipe.context}; "
            f"--set {settings}context={config.max_position_embeddings}"
        )
    if chat.size > config.vocab_size:
        raise ConfigError(
            f"{named}: the tokenizer has {chat.size} tokens, the model {config.vocab_size}; "
            "the tokenizer belongs to another model"
        )
    return chat, config


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without progress bars and warnings of transformers, and without what it and TRL say to each other."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)


def load_weights(base: Base, dtype: str) -> Any:
    """The causal LM in memory, on the processor.

    Args:
        dtype: what its weights are held in, "float32" or "bfloat16".

    Raises:
        ConfigError: the weights cannot be read.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        with quiet_transformers():
            model: Any = AutoModelForCausalLM.from_pretrained(
                base.path,
                local_files_only=True,
                use_safetensors=True,
                dtype=getattr(torch, dtype),
                attn_implementation="sdpa",
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"--base {base.path}: the weights cannot be loaded: {first}") from None
    return model


def load_tokenizer(base: Base) -> Any:
    """The transformers tokenizer that is saved with every checkpoint."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base.path, local_files_only=True)
