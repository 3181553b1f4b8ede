"""The checkpoint that a training starts from, and the adapter that it continues.

    base = open_base("built-in:pocket", recipe)                                    # checked, with its digest
    model = load_weights(base, "float32")
    adapter = open_adapter("runs/marl/epochs/1/training/final", recipe, base.path)  # None starts with a fresh one
    take_up(trainer.model, adapter, reference=None)                                # load it into the fresh adapter

Updates at a small learning rate vanish in bfloat16 weights, so merging an adapter after every epoch loses what it
learned. An adapter that stays separate, in float32, loses nothing.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.errors import ConfigError
from collab.library import resolve_checkpoint
from collab.models.checkpoint_card import check_layout, check_over, hash_weights
from collab.models.tokenizer import ChatTokenizer, open_chat, silence_transformers, take_first_line
from collab.models.vllm import CONFIG, WEIGHTS
from collab.models.weights import (
    PLAIN,
    PREFIX_FAMILIES,
    check_vocabulary,
    check_weights,
    find_setting,
    get_text_config,
    load_model,
    read_config,
    read_context_length,
    read_quantisation,
)
from collab.trainers.recipe import Lora, Recipe


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
    from collab.models.local import check_files

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
    _check_experts(config, named)
    # Tokenizer and weights last, as they read files.
    check_vocabulary(chat, config, named)
    check_weights(folder, named=named)
    return chat, config


_EXPERTS = {
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_k", "moe_topk", "top_k_experts"),
}
"""Names by which TRL reads a configuration's experts → names of families that call them otherwise."""


def _has_balanced_experts(config: Any) -> bool:
    """Return whether TRL adds a loss that balances experts, as this configuration asks for."""
    return hasattr(config, "output_router_logits") and bool(find_setting(config, "router_aux_loss_coef"))


def _check_experts(config: Any, named: str) -> None:
    """Check that a configuration which balances experts has what TRL counts them by; else ConfigError."""
    lacking = [name for name, others in _EXPERTS.items() if find_setting(config, name, *others) is None]
    if _has_balanced_experts(config) and lacking:
        raise ConfigError(
            f"{named}: its loss balances experts, and its configuration has no {lacking[0]}, by which they are counted "
            "while it is trained; set router_aux_loss_coef to 0 in its config.json to train it without"
        )


@contextlib.contextmanager
def silence_libraries() -> Iterator[None]:
    """Silence progress bars and warnings of transformers and TRL."""
    with silence_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def load_weights(base: Base, dtype: str, *, marks_replies: bool = False) -> Any:
    """Load the causal LM on the CPU in "float32" or "bfloat16".

    Args:
        base: which.
        dtype: of the weights.
        marks_replies: whether its passes mark the tokens of replies; a prompt may then attend in both directions.

    Raises:
        ConfigError: the weights cannot be read, or its forward pass is not that of a causal language model.
    """
    import torch

    model = load_model(base.path, dtype=getattr(torch, dtype), named=f"--base {base.path}")
    if all(weight.numel() and not weight.is_meta for weight in model.parameters()):  # not split over processes
        _check_forward(model, f"--base {base.path}", marks_replies)
        _prepare_balancing(model)
    return model


def _prepare_balancing(model: Any) -> None:
    """Name the experts as TRL does, or leave the loss that balances them out where no token is routed to any."""
    import torch

    config = model.config.get_text_config()
    if not _has_balanced_experts(config):
        return
    for name, others in _EXPERTS.items():
        if find_setting(config, name) is None:
            setattr(config, name, find_setting(config, *others))
    with torch.no_grad():
        found = model.base_model(
            input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False, output_router_logits=True
        )
    # Some families have layers of experts only if their configuration says so.
    if not getattr(found, "router_logits", None):
        config.router_aux_loss_coef = 0.0


def check_backbone(model: Any, named: str) -> None:
    """Check that a model's layers can be computed without its output layer, as its training does; else ConfigError."""
    if model.base_model is model:
        raise ConfigError(
            f"{named}: models of type {model.config.model_type} cannot be trained here: {type(model).__name__} has no "
            "part that is computed without its output layer"
        )


def _check_forward(model: Any, named: str, marks_replies: bool) -> None:
    """Check that the forward pass works and that no token sees later ones; else ConfigError."""
    import torch

    from collab.models.checkpoint import get_tolerance, measure_difference

    check_backbone(model, named)
    ids = torch.arange(24)[None] * (len(model.get_input_embeddings().weight) - 1) // 23  # the first token to the last
    # As long as the first, so that sums are rounded alike, and others behind the 13th token.
    others = torch.cat([ids[:, :13], ids[:, 13:].flip(1)], dim=1)
    refused = f"{named}: models of type {model.config.model_type} cannot be trained here"
    # Families whose prompts attend in both directions do so where nothing is marked; type 1 marks a reply.
    is_marked = marks_replies and model.config.model_type in PREFIX_FAMILIES

    def compute(some: Any) -> Any:
        kinds = {"token_type_ids": torch.ones_like(some)} if is_marked else {}
        return model(input_ids=some, use_cache=False, **kinds).logits[:, :13].float().log_softmax(-1)

    try:
        with torch.no_grad():
            first, second = compute(ids), compute(others)
    except Exception as error:  # each family has its own ways of failing
        raise ConfigError(f"{refused}: its forward pass fails ({take_first_line(error)[:200]})") from error
    apart = measure_difference(second, first)
    if apart > get_tolerance(model.dtype, first):
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
        fresh: PEFT's configuration of the recipe's adapter (`collab.trainers.trainer.build_adapter_config`).

    Raises:
        ConfigError: their modules differ, or the file cannot be read.
    """
    from peft import get_peft_model

    names = [name for name, _ in get_peft_model(model, fresh).named_parameters()]
    wanted = {_get_module(name) for name in names if ".lora_" in name}
    given = _list_modules(Path(adapter.path) / WEIGHTS[0])
    if given != wanted:
        targets = sorted({name.rpartition(".")[2] for name in given})
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
