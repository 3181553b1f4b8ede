"""The critic and the adversary of a training, built from its configuration, with the model that they ask."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from collab.config import AgentDefinition
from collab.credit import adversary_language, language
from collab.credit.adversary import Adversary
from collab.credit.critic import Critic
from collab.errors import UsageError
from collab.marl.config import Asked, MarlConfig
from collab.models.base import Model
from collab.resolve import build, build_adversary
from collab.types import Sampling


def check_asked(asked: Asked, who: str) -> None:
    """UsageError where a model is needed and none is named."""
    if asked.kind == "llm" and asked.agent is None:
        raise UsageError(f"{who}: kind llm asks a model; name its agents file: --set '{who}.agent=openai'")


@contextlib.asynccontextmanager
async def critic_of(config: MarlConfig, seed: int) -> AsyncIterator[Critic]:
    """The critic; its model is closed at the end of the block.

    Args:
        seed: of the epoch, for names and calls.

    Raises:
        ConfigError, UnknownName: see `collab.resolve.build`.
    """
    async with _asking(config, "critic", config.critic_agent, language.SAMPLING) as given:
        critic: Critic = build("critics", config.method.critic, "method critic", {**given, "seed": seed})
        yield critic


@contextlib.asynccontextmanager
async def adversary_of(config: MarlConfig) -> AsyncIterator[Adversary]:
    """The adversary; as `critic_of`."""
    async with _asking(config, "adversary", config.adversary_agent, adversary_language.SAMPLING) as given:
        yield build_adversary(config.method.adversary, "method adversary", given)


def options_of(config: MarlConfig, who: str) -> dict[str, Any]:
    """All that decides what a critic or an adversary says, as JSON data: for the head of what it made."""
    asked = config.method.critic if who == "critic" else config.method.adversary
    agent = config.critic_agent if who == "critic" else config.adversary_agent
    told: dict[str, Any] = {"kind": asked.kind, "options": asked.options}
    if agent is not None:
        told |= {"agent": agent.model_dump(mode="json"), "texts": config.texts.get(who, {})}
    return told


@contextlib.asynccontextmanager
async def _asking(
    config: MarlConfig, who: str, agent: AgentDefinition | None, sampling: Sampling
) -> AsyncIterator[Mapping[str, Any]]:
    """What no option can say: the model, its templates, how it is sampled."""
    if agent is None:
        yield {}
        return
    model: Model = build("models", agent, f"agents file of the {who}")
    said = agent.sampling.model_fields_set & {"temperature", "top_p", "max_tokens"}
    own = agent.sampling.of(0, 1, f"agents file of the {who}")
    try:
        yield {
            "model": model,
            "texts": config.texts.get(who, {}),
            "sampling": replace(sampling, **{name: getattr(own, name) for name in said}),
            "call_s": config.run.environment.limits.call_s,
        }
    finally:
        await model.close()
