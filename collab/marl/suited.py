"""Whether a method can train the checkpoints that a team comes with: found before anybody plays, judges or is paid.

    check_suited(config)

Weights are not read; a model of the checkpoint's shape without any tells what its layers are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from collab.background import doing
from collab.errors import ConfigError
from collab.learn.adapter import Adapter, check_modules, open_adapter
from collab.learn.base import check_base
from collab.learn.preset import DpoRecipe
from collab.library import checkpoint
from collab.marl.config import MarlConfig
from collab.marl.policy import first_policy, template_of
from collab.marl.train import recipe_of
from collab.models.chat import first_line
from collab.models.weights import read_config


def check_suited(config: MarlConfig) -> None:
    """Refuse a training that would fail where its first policy is to learn.

    Raises:
        ConfigError: a checkpoint is no causal language model, does not bear the context, has no layer that an adapter
            is named for, or its prefixes cannot be shared; an adapter does not fit the recipe or its base.
    """
    policy, recipe = first_policy(config.run, config.method), recipe_of(config.method, 1)
    for slots in config.groups.values():
        base = policy.of(slots)
        check_base(base, recipe.model_copy(update=template_of(config.run.agents[slots[0]])), "dpo.")
        _check_layers(base, recipe, open_adapter(policy.adapter_of(slots), recipe, base))


def _check_layers(base: str, recipe: DpoRecipe, adapter: Adapter | None) -> None:
    with doing("loading torch and TRL"):
        from trl.trainer.utils import disable_dropout_in_model

        from collab.learn.head import temper
        from collab.learn.norms import check_last_norm
        from collab.learn.packed import obstacle, structural_obstacle
        from collab.learn.trainer import adapter_of

    model = _empty(base)
    if recipe.checkpointing and not model.supports_gradient_checkpointing:
        raise ConfigError(f"{base}: {type(model).__name__} cannot be checkpointed; set dpo.checkpointing=false")
    with _named(base):
        if recipe.final_norm_learning_rate is not None:
            check_last_norm(model)
        temper(model, recipe.temperature)
    disable_dropout_in_model(model)  # as it is trained
    fresh = adapter_of(model, recipe)
    reason = (obstacle(model) or structural_obstacle(model)) if recipe.sharing == "prefix" else None
    if reason is not None:
        raise ConfigError(f"{base}: prefixes cannot be shared while it is trained: {reason}; set dpo.sharing=none")
    if adapter is not None:
        check_modules(adapter, model, fresh)


@contextlib.contextmanager
def _named(base: str) -> Iterator[None]:
    """Say which checkpoint it is that a recipe cannot train."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{base}: {error} (dpo.temperature, dpo.final_norm_learning_rate)") from None


def _empty(base: str) -> Any:
    """A model of this shape without weights."""
    with doing("loading torch and transformers"):
        import torch
        from transformers import AutoModelForCausalLM

    config = read_config(checkpoint(base), named=base)
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except Exception as error:  # each family has its own ways of failing
        raise ConfigError(f"{base}: no causal language model: {first_line(error)[:200]}") from error
