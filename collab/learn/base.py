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
from collab.models.chat import ChatTokenizer, first_line, quiet_transformers
from collab.models.layout import weights_digest
from collab.models.local import check_files
from collab.models.weights import (
    check_vocabulary,
    check_weights,
    context_of,
    load_model,
    quantised,
    read_config,
    text_config,
)


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
