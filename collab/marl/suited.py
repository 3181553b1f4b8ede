"""Whether a method can train the checkpoints that a team comes with: found before anybody plays, judges or is paid.

    check_suited(config)

Weights are not read; a model of the checkpoint's shape without any tells what its layers are.
"""

from __future__ import annotations

from typing import Any

from collab.background import doing
from collab.errors import ConfigError
from collab.learn.adapter import Adapter, check_modules, open_adapter
from collab.learn.base import check_base
from collab.learn.preset import DpoRecipe
from collab.library import checkpoint
from collab.marl.config import MarlConfig
from collab.marl.policy import first_policy
from collab.marl.train import recipe_of


def check_suited(config: MarlConfig) -> None:
    """Refuse a training that would fail where its first policy is to learn.

    Raises:
        ConfigError: a checkpoint is no causal language model, does not bear the context, has no layer that an adapter
            is named for, or its prefixes cannot be shared; an adapter does not fit the recipe or its base.
    """
    policy, recipe = first_policy(config.run, config.method), recipe_of(config.method, 1)
    for slots in config.groups.values():
        base = policy.of(slots)
        check_base(base, recipe, "dpo.")
        _check_layers(base, recipe, open_adapter(policy.adapter_of(slots), recipe, base))


def _check_layers(base: str, recipe: DpoRecipe, adapter: Adapter | None) -> None:
    from collab.learn.packed import obstacle

    with doing("loading torch and TRL"):
        from collab.learn.trainer import adapter_of

    model = _empty(base)
    fresh = adapter_of(model, recipe)
    reason = obstacle(model) if recipe.sharing == "prefix" else None
    if reason is not None:
        raise ConfigError(f"{base}: prefixes cannot be shared while it is trained: {reason}; set dpo.sharing=none")
    if adapter is not None:
        check_modules(adapter, model, fresh)


def _empty(base: str) -> Any:
    """A model of this shape without weights."""
    with doing("loading torch and transformers"):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(checkpoint(base), local_files_only=True)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(f"{base}: no causal language model: {str(error).splitlines()[0][:200]}") from None
