"""A LoRA adapter that training goes on from, and one that preferences are compared with; both over one base.

    adapter = open_adapter("runs/marl/epochs/1/training/final", recipe, base)    # checked, named by its digest
    take_up(trainer.model, adapter, reference=None)                         # a fresh adapter becomes this one

An update of a small learning rate is smaller than bfloat16 can tell from nothing beside a weight, so an adapter that is
added to such weights after every epoch loses what it learned. One that stays an adapter, in float32, loses nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.errors import ConfigError
from collab.library import checkpoint
from collab.models.checkpoint import PLAIN, check_layout, check_over, weights_digest
from collab.models.vllm import CONFIG, WEIGHTS
from collab.trainers.recipe import Lora, Recipe

_UNTRAINED = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "bias", "modules_to_save", "layer_replication")
"""Settings of PEFT by which an adapter has another scale or other weights than one of a recipe."""
REFERENCE = "ref"
"""TRL's name of an adapter that preferences are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """An adapter on the disk."""

    path: str
    """Directory."""
    digest: str
    """SHA-256 over its weights."""


def open_adapter(path: str | None, recipe: Recipe, base: str) -> Adapter | None:
    """Check an adapter before anything is loaded; None for none.

    Args:
        recipe: that goes on with it.
        base: the checkpoint that it is over.

    Raises:
        ConfigError: there is none, it has other sizes than the recipe's or is of a kind that is not trained, it was
            trained over another base, or the recipe trains none.
    """
    if path is None:
        return None
    if recipe.lora is None:
        raise ConfigError(f"adapter {path}: the recipe trains all weights; set lora, or add the adapter to its base")
    folder = Path(path)
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS[0]).is_file():
        raise ConfigError(f"adapter {path}: no PEFT adapter; {CONFIG} and {WEIGHTS[0]} have to be there")
    check_layout(folder)
    check_over(folder, Path(checkpoint(base)), "name that one")
    _check_kind(folder, recipe.lora)
    return Adapter(path=str(folder), digest=weights_digest(folder))


def check_modules(adapter: Adapter, model: Any, fresh: Any) -> None:
    """Refuse an adapter of other modules than the recipe's, before anybody has played for it.

    Args:
        model: of the base's shape; its weights are not looked at, and it is of no use afterwards.
        fresh: PEFT's configuration of the recipe's adapter (`collab.trainers.base.adapter_of`).

    Raises:
        ConfigError: some module of one is none of the other's, or the file cannot be read.
    """
    from peft import get_peft_model

    names = [name for name, _ in get_peft_model(model, fresh).named_parameters()]
    wanted = {_module(name) for name in names if ".lora_" in name}
    given = _modules(Path(adapter.path) / WEIGHTS[0])
    if given != wanted:
        targets = sorted({_last(name) for name in given})
        raise ConfigError(
            f"adapter {adapter.path}: made for other modules than the recipe's, for example {min(given ^ wanted)}; "
            f"it has {', '.join(targets)}: set lora.targets to these"
        )


def take_up(model: Any, adapter: Adapter | None, reference: Adapter | None) -> None:
    """Give a fresh adapter the weights of another, and put one that is compared with beside it.

    Args:
        model: PEFT's, as TRL has made it; preferences are compared with the base alone.
        adapter: None leaves it fresh.
        reference: None leaves the comparison as it is.

    Raises:
        ConfigError: one was made for another base or other modules.
    """
    if adapter is not None:
        _fill(model, adapter, "default")
    if reference is not None:
        model.add_adapter(REFERENCE, model.peft_config["default"])
        _fill(model, reference, REFERENCE)


def drop_reference(model: Any) -> None:
    """Leave the trained adapter alone in a model."""
    if REFERENCE in getattr(model, "peft_config", {}):
        model.delete_adapter(REFERENCE)


def is_of_reference(name: str) -> bool:
    """Whether a weight of that name belongs to what is compared with."""
    return f".{REFERENCE}." in name


def _fill(model: Any, adapter: Adapter, name: str) -> None:
    from peft import set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = set_peft_model_state_dict(model, load_file(Path(adapter.path) / WEIGHTS[0]), adapter_name=name)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"adapter {adapter.path}: cannot be taken up: {str(error).splitlines()[0]}") from None
    missing = [key for key in found.missing_keys if f".{name}." in key]
    if found.unexpected_keys or missing:
        odd = [*found.unexpected_keys, *missing][0]
        raise ConfigError(f"adapter {adapter.path}: made for other modules than the recipe's, for example {odd}")


def _modules(file: Path) -> set[str]:
    """Names of the modules that an adapter's file has weights for, as the base calls them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            names = list(opened.keys())
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    odd = [name for name in names if not name.endswith((".lora_A.weight", ".lora_B.weight"))]
    if odd:
        raise ConfigError(f"adapter {file.parent}: has {odd[0]}, {_played_only(file.parent)}")
    return {_module(name) for name in names}


def _module(weight: str) -> str:
    """The module that a weight of an adapter belongs to."""
    return weight.removeprefix("base_model.model.").rpartition(".lora_")[0]


def _played_only(folder: Path) -> str:
    return (
        "which is played and not trained here; begin with the sum of base and adapter: "
        f"collab export {folder} --merge --out DIR"
    )


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _check_kind(folder: Path, lora: Lora) -> None:
    """ConfigError where what is trained would not be what plays: another scale, or weights that the recipe has not."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
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
        raise ConfigError(f"adapter {folder}: has {' and '.join(odd)}, {_played_only(folder)}")
