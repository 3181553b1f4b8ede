"""Agents that can be trained: who plays them, and whether a method goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collab.config import AgentDefinition
from collab.errors import ConfigError, UsageError
from collab.library import checkpoint
from collab.marl.config import Method
from collab.models.adapters import CONFIG

WHERE: Mapping[str, str] = {"local": "path", "openai": "model"}
"""Kind of agent → the option that names its checkpoint."""
_SERVED = "with dpo.lora, lora.merge=false and saved=float32 each epoch leaves an adapter, which the server loads"


def check_trainable(slot: str, agent: AgentDefinition, name: str, method: Method) -> None:
    """Refuse an agent that a method cannot train.

    Args:
        name: of its agents file.

    Raises:
        UsageError: a rehearsal, or nobody whose weights are here.
        ConfigError: it sees pictures, or has an adapter that the method does not go on with.
    """
    if agent.kind == "rehearsal":
        raise UsageError(
            f"--agents: {slot} is agents/{name}, a rehearsal and not a language model; nothing can be trained in it: "
            "name a checkpoint in this process (kind: local)"
        )
    if agent.kind == "openai":
        _check_served(slot, agent, name, method)
    elif agent.kind != "local" or "path" not in agent.options:
        raise UsageError(
            f"--agents: {slot} is agents/{name} of kind {agent.kind}; trained are checkpoints in this process "
            "(kind: local, with options.path) or on a vLLM server of this machine (kind: openai)"
        )
    adapter = agent.options.get("adapter")
    if adapter is not None and not method.keeps_adapters:
        raise ConfigError(
            f"agents/{name}: has an adapter, which this method does not go on with; set dpo.lora with merge=false "
            "(and dpo.final_norm_learning_rate=null), or add the adapter to its base first (collab export --merge)"
        )
    if adapter is not None and not (Path(adapter) / CONFIG).is_file():
        raise ConfigError(
            f"agents/{name}: adapter {adapter!r} is no directory with {CONFIG} here; name one to go on from"
        )
    if agent.modality != "text":
        raise ConfigError(f"agents/{name}: modality {agent.modality}; rows hold no pictures, so train with text")


def _check_served(slot: str, agent: AgentDefinition, name: str, method: Method) -> None:
    """Refuse a server whose weights cannot be trained here, or that could not get what was trained."""
    model = str(agent.options.get("model"))
    if "base_url" not in agent.options or not (Path(checkpoint(model)) / "config.json").is_file():
        raise UsageError(
            f"--agents: {slot} is agents/{name} of kind openai with model {model!r}; what is trained has to lie here: "
            "serve a checkpoint's directory (collab serve DIR --lora-rank …) and name it as model, or use kind: local"
        )
    if not method.keeps_adapters:
        raise UsageError(f"--agents: {slot} is agents/{name} of kind openai; {_SERVED}")
    if method.determinism == "exact":
        raise UsageError(
            f"--agents: {slot} is agents/{name} of kind openai, and determinism: exact needs kind local; a server's "
            "replies depend on what it answers beside them"
        )
