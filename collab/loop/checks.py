"""Checks of a team and its checkpoints before anything is written, played or paid for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from collab.config import Budget
from collab.envs.base import Suite
from collab.errors import ConfigError, UsageError
from collab.evaluation.metrics import describe_sampling
from collab.library import resolve_checkpoint
from collab.loop.config import Method, TrainingConfig
from collab.loop.policy import Policy, assign_policy, get_template
from collab.models.base import Capabilities
from collab.models.tokenizer import take_first_line
from collab.models.weights import FAMILIES, build_empty, read_config
from collab.rollout.run import check
from collab.trainers.base_model import Adapter, check_backbone, check_base, check_modules, open_adapter
from collab.trainers.batching import is_prefix_shared
from collab.trainers.recipe import Recipe
from collab.utils.concurrency import note_doing


async def check_team(config: TrainingConfig, first: Policy, suite: Suite, budget: Budget) -> list[str]:
    """Open environment and team, and close them again.

    Args:
        suite: of the run.

    Returns:
        Findings of `collab.rollout.run.check`, whether the trained team will be played cooler, and whether this machine
        is slow at the recipe's precision, a line each.

    Raises:
        ConfigError: a part cannot be built.
        UsageError: a limit is on something that the team does not count; or a model does not report what the method
            needs; or the environment lacks an installed part.
        ModelFailure: a server does not answer.
        EnvironmentFailure: the environment does not open.
    """
    from collab.trainers.estimate import doubt_precision

    method, run = config.method, config.run
    team = assign_policy(run, first, method.determinism)
    slow = doubt_precision(
        [f"{name}.precision" for name, part in method if getattr(part, "precision", None) == "bfloat16"]
    )
    accept = partial(_refuse_silent, config)
    found = await check(team.model_copy(update={"budget": budget}), suite, accept=accept)
    return [*_warn_cooler(config), *found, *([slow] if slow else [])]


def _refuse_silent(config: TrainingConfig, slot: str, able: Capabilities) -> None:
    """Raise a UsageError for a model that does not report what a method needs of its replies."""
    needs, told = config.method.NEEDS, {"tokens": able.token_ids, "probabilities": able.logprobs}
    silent = [name for name in needs if not told[name]]
    if silent:
        raise UsageError(
            f"--algo {config.algorithm}: needs the {' and '.join(needs)} of replies as they were sampled, and "
            f"agents/{config.run.agent_names[slot]} does not report their {' and '.join(silent)}; use kind: local, or "
            "a server that reports them (collab serve)"
        )


def _warn_cooler(config: TrainingConfig) -> list[str]:
    """Warn if the trained team will be played at other temperatures than its held-out evaluations."""
    measured, played = describe_sampling(config.run.sampling), describe_sampling(config.as_declared.sampling)
    if measured == played:
        return []
    what = "held-out evaluations are sampled"
    # Temperatures that are set for the agents do not reach rollouts that have their own.
    if config.method.exploration_temperatures is None:
        what, own = f"rollouts and {what}", ""
    else:
        explored = describe_sampling(config.as_explored.sampling)
        own = f" and rollouts at {explored} (to sample these as the agents, too: --set exploration_temperatures=null)"
    return [
        f"{what} at {measured}{own}; where the trained team is named (RUN@best), it plays as its agents file says, at "
        f"{played}"
    ]


def check_bases(config: TrainingConfig, policy: Policy) -> None:
    """Refuse a training whose recipe does not fit the checkpoints of its first policy.

    No weights are read: a model without weights shows the layers.

    Raises:
        ConfigError: a checkpoint is no causal language model, is too short for the context, lacks a layer that an
            adapter names, cannot share prefixes, or is not trained on the pictures that its agent sees; or an adapter
            does not fit the recipe or its base.
    """
    recipe = config.method.build_recipe(1)
    for slot, agent in config.run.agents.items():
        if agent.modality != "text":
            _check_sight(f"agents/{config.run.agent_names[slot]}", policy.weights[slot], config.method.RECIPE, recipe)
    for slots in config.groups.values():
        base = policy.of(slots)
        check_base(
            base, recipe.model_copy(update=get_template(config.run.agents[slots[0]])), f"{config.method.RECIPE}."
        )
        _check_layers(config.method, base, recipe, open_adapter(policy.get_adapter(slots), recipe, base))


def _check_sight(named: str, base: str, section: str, recipe: Recipe) -> None:
    """Refuse an agent whose pictures cannot be learned from."""
    kind = read_config(resolve_checkpoint(base), named=base).model_type
    if kind not in FAMILIES:
        raise ConfigError(
            f"{named}: sees pictures by a model of type {kind}; trained on pictures are {', '.join(FAMILIES)}, "
            "and others with modality: text"
        )
    if is_prefix_shared(recipe):
        raise ConfigError(
            f"{section}.sharing: prefix, but {named} sees pictures, whose prompts are not shared; set "
            f"{section}.sharing=none"
        )


def _check_layers(method: Method, base: str, recipe: Recipe, adapter: Adapter | None) -> None:
    with note_doing("loading torch and TRL"):
        from trl.trainer.utils import disable_dropout_in_model

        from collab.trainers.prefix_sharing import find_obstacle, find_structural_obstacle, temper
        from collab.trainers.trainer import build_adapter_config

    model = build_empty_policy(base)
    check_backbone(model, base)
    if recipe.checkpointing and not model.supports_gradient_checkpointing:
        raise ConfigError(
            f"{base}: {type(model).__name__} cannot be checkpointed; set {method.RECIPE}.checkpointing=false"
        )
    with _name_checkpoint(base, method.RECIPE):
        temper(model, recipe.temperature)
    disable_dropout_in_model(model)  # as it is trained
    fresh = build_adapter_config(model, recipe)
    reason = (find_obstacle(model) or find_structural_obstacle(model)) if is_prefix_shared(recipe) else None
    if reason is not None:
        raise ConfigError(
            f"{base}: prefixes cannot be shared while it is trained: {reason}; set {method.RECIPE}.sharing=none"
        )
    if adapter is not None:
        check_modules(adapter, model, fresh)


@contextlib.contextmanager
def _name_checkpoint(base: str, recipe: str) -> Iterator[None]:
    """Name the checkpoint that a recipe cannot train in the error."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{base}: {error} ({recipe}.temperature)") from None


def build_empty_policy(base: str) -> Any:
    """Build a causal LM of a checkpoint's shape, without weights; ConfigError where it has no such shape."""
    config = read_config(resolve_checkpoint(base), named=base)
    try:
        with note_doing("loading torch and transformers"):
            return build_empty(config)
    except Exception as error:  # each family has its own ways of failing
        raise ConfigError(f"{base}: no causal language model: {take_first_line(error)[:200]}") from error
