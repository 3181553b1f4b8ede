"""Refusals of replies that have no ratio, because they are not sampled from the policy's whole distribution.

A ratio compares the probability of a reply now with the one when it was sampled. Top-p, top-k, penalties and masks make
the sampled distribution another than the policy's, and a stop string ends a reply where the policy did not.

    refuse_without_ratio("distrl", config)  # the agents that play, and those of recorded runs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition
from collab.errors import UsageError
from collab.loop.config import TrainingConfig
from collab.models.base import SAMPLERS
from collab.rollout.run import read_recorded_config

_NEUTRAL: Mapping[str, tuple[float, ...]] = {
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""Samplers of a server → values at which they change nothing; 1 for the others."""
_MASKS = ("structured_outputs", "response_format", "logit_bias", "bad_words", "allowed_token_ids", "min_tokens")
"""Fields of a request that keep tokens out of a reply or push them into it."""
_STOPS = ("stop", "stop_token_ids")
"""Fields of a request that end a reply where the policy does not."""


def refuse_without_ratio(algorithm: str, config: TrainingConfig) -> None:
    """Check that replies are sampled from the policy's whole distribution, and those of recorded runs were.

    Raises:
        UsageError: an agent plays or played with a setting that leaves no ratio.
    """
    is_reported = "probabilities" in config.method.NEEDS
    for slot, agent in config.as_explored.agents.items():
        for setting, obstacle, remedy in _list_obstacles(agent, is_reported=is_reported):
            raise UsageError(
                f"--algo {algorithm}: needs the probability of each reply, and agents.{slot}.{setting} {obstacle}; "
                f"{remedy}"
            )
    for one in config.recorded:
        for slot, agent in read_recorded_config(Path(one.run)).agents.items():
            for setting, obstacle, _ in _list_obstacles(agent, is_reported=is_reported):
                raise UsageError(
                    f"--offline {one.run}: --algo {algorithm} needs the probability of each reply, and there "
                    f"agents.{slot}.{setting} {obstacle}; give other runs"
                )


def _list_obstacles(agent: AgentDefinition, *, is_reported: bool) -> Iterator[tuple[str, str, str]]:
    """Yield each setting of an agent that leaves its replies no ratio, with what it does and the next move.

    Args:
        is_reported: whether the probability is needed that the model reports with a reply.
    """
    sampling = agent.sampling
    if sampling.top_p != 1:
        yield f"sampling.top_p={sampling.top_p:g}", "cuts the distribution", "set it to 1"
    if sampling.stop:
        yield f"sampling.stop={sampling.stop}", "cuts replies where the policy did not end", "leave it out"
    listed = sampling.temperature if isinstance(sampling.temperature, list) else [sampling.temperature]
    if min(listed) <= 0:
        remedy = "set exploration_temperatures above 0, e.g. 1.0"
        yield f"sampling.temperature={min(listed):g}", "is greedy", remedy
    if agent.kind == "openai":
        if is_reported and any(one != 1 for one in listed):
            other = next(one for one in listed if one != 1)
            yield (
                f"sampling.temperature={other:g}",
                "is not 1, the only one at which a server reports that probability",
                "set exploration_temperatures=1.0",
            )
        yield from _list_server_obstacles(agent.options)


def _list_server_obstacles(options: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield as `_list_obstacles` what a server is asked for beside an agent's sampling."""
    if options.get("structured"):
        yield "options.structured=true", "masks tokens that the policy could have said", "set it to false"
    for name, value in (options.get("extra") or {}).items():
        setting = f"options.extra.{name}={value}"
        if name == "temperature":
            yield setting, "takes the place of the temperature that a ratio is computed at", "leave it out"
        elif name in SAMPLERS and value not in _NEUTRAL.get(name, (1,)):
            yield setting, "changes the distribution", "leave it out"
        elif (name in _MASKS or name.startswith("guided_")) and value:
            yield setting, "masks tokens that the policy could have said", "leave it out"
        elif name in _STOPS and value:
            yield setting, "cuts replies where the policy did not end", "leave it out"
        elif name == "ignore_eos" and value:
            yield setting, "keeps replies from ending where the policy ended", "leave it out"
