"""Policies: which weights each slot plays with, after which epoch; a checkpoint, or a LoRA adapter over one.

policy = build_first_policy(config.run, config.method)
run = assign_policy(config.run, policy, determinism="exact")     # the same run, played by these weights
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, RunConfig
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import resolve_checkpoint
from collab.loop.config import Method, TrainingConfig
from collab.loop.record import TrainingDir, read_record
from collab.models.tokenizer import ChatTokenizer, open_chat
from collab.models.vllm import CONFIG
from collab.rollout.run import map_weights
from collab.utils.files import resolve_within

WHERE: Mapping[str, str] = {"local": "path", "openai": "model"}
"""Kind of agent → the option that names its checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Weights of a team."""

    version: int
    """Updates so far; 0 before any training."""
    weights: Mapping[str, str]
    """Slot → checkpoint directory, or "built-in:NAME"."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Slot → directory of a LoRA adapter over it; slots without one are missing."""

    def of(self, slots: Sequence[str]) -> str:
        """Return the one checkpoint that these slots play with."""
        return self.weights[slots[0]]

    def get_adapter(self, slots: Sequence[str]) -> str | None:
        """Return the one adapter that these slots play with; None for the checkpoint alone."""
        return self.adapters.get(slots[0])

    def replace_trained(self, number: int, trained: Mapping[str, str], *, adapters: bool = False) -> Policy:
        """Return the policy with an epoch's trained weights.

        Args:
            trained: slot → directory.
            adapters: whether these are adapters over the same checkpoints, and no checkpoints.
        """
        if not trained:
            return self
        if adapters:
            return replace(self, version=number, adapters={**self.adapters, **trained})
        return replace(self, version=number, weights={**self.weights, **trained})


def build_first_policy(run: RunConfig, method: Method) -> Policy:
    """Return the policy that training starts from.

    Raises:
        UsageError: an agent is a rehearsal, or plays by other means than a checkpoint that can be trained here.
        ConfigError: an agent sees pictures, has an adapter that the method does not train further, or agents that share
            a policy have different ones.
    """
    # Every slot is checked before anything is compared: the first bad one is named.
    for slot, agent in run.agents.items():
        check_trainable(slot, agent, run.agent_names[slot], method)
    weights = {slot: str(agent.options[WHERE[agent.kind]]) for slot, agent in run.agents.items()}
    adapters = {slot: agent.options.get("adapter") for slot, agent in run.agents.items()}
    # A shared policy is one set of weights, so all slots must begin with the same.
    for what, found in (("checkpoints", weights), ("adapters", adapters)):
        different = sorted(map(str, set(found.values())))
        if method.policies == "shared" and len(different) > 1:
            raise ConfigError(
                f"policies: shared, but the slots have {len(different)} {what} ({', '.join(different)}); give all the "
                "same, or set policies=per_agent"
            )
    return Policy(
        version=0,
        weights={slot: make_path_absolute(path) for slot, path in weights.items()},
        adapters={slot: make_path_absolute(str(path)) for slot, path in adapters.items() if path is not None},
    )


def make_path_absolute(path: str) -> str:
    """Return the absolute path of a directory, so that a training resumes from anywhere; else the name."""
    place = Path(resolve_checkpoint(path))
    return str(place.resolve()) if not path.startswith("built-in:") and place.is_dir() else path


def make_paths_absolute(run: RunConfig) -> RunConfig:
    """Return the run with absolute paths of local checkpoints and adapters, so that it can be played from anywhere."""
    return map_weights(run, make_path_absolute)


def assign_policy(run: RunConfig, policy: Policy, determinism: str) -> RunConfig:
    """Return the run with a policy's weights; speakers and sampling stay."""
    agents = {}
    for slot, agent in run.agents.items():
        own: dict[str, Any] = {"version": policy.version}
        if agent.kind == "local":  # a server has its checkpoint already, and a name for it
            own |= {"path": policy.weights[slot], "determinism": determinism}
        kept = {name: value for name, value in agent.options.items() if name != "adapter"}
        over = {"adapter": policy.adapters[slot]} if slot in policy.adapters else {}
        agents[slot] = agent.model_copy(update={"options": kept | over | own})
    return run.model_copy(update={"agents": agents})


def get_template(agent: AgentDefinition) -> dict[str, Any]:
    """Return how a chat template is rendered for an agent, as fields of a recipe, so that training reads the same."""
    extra = agent.options.get("extra")  # of a server's
    own = agent.options.get("chat_template_kwargs") or (extra or {}).get("chat_template_kwargs")
    found = {"date": agent.options.get("date"), "chat_template_kwargs": own or {}}
    if found["date"] is not None:
        found["date"] = datetime.date.fromisoformat(str(found["date"]))
    return found


def build_chat_tokenizer(agent: AgentDefinition, path: str) -> ChatTokenizer:
    """Return the tokenizer of a checkpoint, its template rendered as the agent reads it."""
    how = get_template(agent)
    return open_chat(resolve_checkpoint(path), date=how["date"], template=how["chat_template_kwargs"])


def load_policy(folder: TrainingDir, config: TrainingConfig, number: int) -> Policy:
    """Load the policy that an epoch left; UnknownName if it is not over."""
    if number == 0:
        return build_first_policy(config.run, config.method)
    epoch = folder.get_epoch(number)
    if not epoch.record.exists():
        over = [f"epoch{one}" for one in range(1, config.method.epochs + 1) if folder.get_epoch(one).record.exists()]
        raise UnknownName.of(f"finished epoch of {folder.path}", f"epoch{number}", over)
    record = read_record(epoch.record)
    weights = {slot: resolve_within(folder.path, path) for slot, path in record.weights.items()}
    adapters = {slot: resolve_within(folder.path, path) for slot, path in record.adapters.items()}
    return Policy(version=record.version, weights=weights, adapters=adapters)


def check_trainable(slot: str, agent: AgentDefinition, name: str, method: Method) -> None:
    """Refuse an agent that a method cannot train.

    Args:
        name: of its agents file.

    Raises:
        UsageError: a rehearsal, or an agent whose weights are not here.
        ConfigError: it sees pictures that the method does not learn from, or has an adapter that it does not train
            further.
    """
    # Each kind of agent that cannot be trained has its own next move.
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
    # A method that keeps adapters trains them further; one that merges could only train over them.
    adapter = agent.options.get("adapter")
    if adapter is not None and not method.is_adapter_kept:
        raise ConfigError(
            f"agents/{name}: has an adapter, which this method does not train further; set {method.RECIPE}.lora "
            "with merge=false, or add the adapter to its base first (collab export --merge)"
        )
    if adapter is not None and not (Path(adapter) / CONFIG).is_file():
        raise ConfigError(
            f"agents/{name}: adapter {adapter!r} is no directory with {CONFIG} here; name one to train further"
        )
    if agent.modality != "text" and not method.SEES:
        raise ConfigError(
            f"agents/{name}: modality {agent.modality}; its examples hold no pictures, so train with text, or "
            "by --algo filtered-bc or appvlm"
        )


def _check_served(slot: str, agent: AgentDefinition, name: str, method: Method) -> None:
    """Refuse a server whose weights cannot be trained here, or that cannot load the trained ones."""
    model = str(agent.options.get("model"))
    # Training needs the weights here; a server's model name may be anything.
    if "base_url" not in agent.options or not (Path(resolve_checkpoint(model)) / "config.json").is_file():
        raise UsageError(
            f"--agents: {slot} is agents/{name} of kind openai with model {model!r}; its weights must lie here: "
            "serve a checkpoint's directory (collab serve DIR --lora-rank …) and name it as model, or use kind: local"
        )
    # The server loads adapters; whole checkpoints would mean starting it anew each epoch.
    if not method.is_adapter_kept:
        raise UsageError(
            f"--agents: {slot} is agents/{name} of kind openai; with {method.RECIPE}.lora, lora.merge=false and "
            "saved=float32 each epoch leaves an adapter, which the server loads"
        )
    # Batches of a server depend on its load, and so do the last bits of its replies.
    if method.determinism == "exact":
        raise UsageError(
            f"--agents: {slot} is agents/{name} of kind openai, and determinism: exact needs kind local; a server's "
            "replies depend on its other requests"
        )
