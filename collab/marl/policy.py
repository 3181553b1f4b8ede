"""Policies: which weights each slot plays with, after which epoch; a checkpoint, or a LoRA adapter over one.

policy = first_policy(config.run)
run = playing(config.run, policy, determinism="exact")       # the same run, played by these weights
name = parse_policy("runs/marl@best")                       # of a training that lies in runs/marl
agents = agents_of(name, graph.slots)                       # slot → AgentDefinition
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, GraphDefinition, RunConfig
from collab.errors import ConfigError, GraphError, UnknownName, UsageError
from collab.evaluation import describe_sampling
from collab.library import Library, checkpoint
from collab.marl.config import MarlConfig, Method, read_training
from collab.marl.layout import MarlFolder
from collab.marl.summary import read_record
from collab.marl.trainable import WHERE, check_trainable
from collab.models.chat import ChatTokenizer
from collab.store.files import check_plain
from collab.trust import check_trusted

_NAME = re.compile(r"(?P<run>.+)@(?P<which>best|last|epoch(?P<number>\d+))")
_PER_SLOT = re.compile(r"[^/=@,]+=")
"""How `ada=X,ben=Y` begins."""


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
        """The one checkpoint that these slots play with."""
        return self.weights[slots[0]]

    def adapter_of(self, slots: Sequence[str]) -> str | None:
        """The one adapter that these slots play with; None for the checkpoint alone."""
        return self.adapters.get(slots[0])

    def updated(self, number: int, trained: Mapping[str, str], *, adapters: bool = False) -> Policy:
        """The same policy with what an epoch trained in place of what it was.

        Args:
            trained: slot → directory.
            adapters: whether these are adapters over the same checkpoints, and no checkpoints.
        """
        if not trained:
            return self
        if adapters:
            return replace(self, version=number, adapters={**self.adapters, **trained})
        return replace(self, version=number, weights={**self.weights, **trained})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyName:
    """What `RUN@best`, `RUN@last` and `RUN@epoch3` say."""

    run: Path
    epoch: int | None
    """None for the best, or the last."""
    last: bool = False
    """Whether None means the last epoch that is over."""


def first_policy(run: RunConfig, method: Method) -> Policy:
    """The policy that training starts from.

    Raises:
        UsageError: an agent is a rehearsal, or plays by other means than a checkpoint that can be trained here.
        ConfigError: an agent sees pictures, has an adapter that the method does not go on with, or agents that share a
            policy have different ones.
    """
    for slot, agent in run.agents.items():
        check_trainable(slot, agent, run.agent_names[slot], method)
    weights = {slot: str(agent.options[WHERE[agent.kind]]) for slot, agent in run.agents.items()}
    adapters = {slot: agent.options.get("adapter") for slot, agent in run.agents.items()}
    for what, found in (("checkpoints", weights), ("adapters", adapters)):
        different = sorted(map(str, set(found.values())))
        if method.policies == "shared" and len(different) > 1:
            raise ConfigError(
                f"policies: shared, but the slots have {len(different)} {what} ({', '.join(different)}); give all the "
                "same, or set policies=per_agent"
            )
    return Policy(
        version=0,
        weights={slot: _absolute(path) for slot, path in weights.items()},
        adapters={slot: _absolute(str(path)) for slot, path in adapters.items() if path is not None},
    )


def placed(run: RunConfig) -> RunConfig:
    """The same run, to be played from anywhere: checkpoints in this process and adapters by absolute paths."""
    agents = {}
    for slot, agent in run.agents.items():
        names = ("path", "adapter") if agent.kind == "local" else ("adapter",)
        moved = {name: _absolute(str(agent.options[name])) for name in names if agent.options.get(name) is not None}
        agents[slot] = agent.model_copy(update={"options": {**agent.options, **moved}})
    return run.model_copy(update={"agents": agents})


def playing(run: RunConfig, policy: Policy, determinism: str) -> RunConfig:
    """A run played by a policy; who speaks and how it is sampled stays as it was."""
    agents = {}
    for slot, agent in run.agents.items():
        own: dict[str, Any] = {"version": policy.version}
        if agent.kind == "local":  # a server has its checkpoint already, and a name for it
            own |= {"path": policy.weights[slot], "determinism": determinism}
        kept = {name: value for name, value in agent.options.items() if name != "adapter"}
        over = {"adapter": policy.adapters[slot]} if slot in policy.adapters else {}
        agents[slot] = agent.model_copy(update={"options": kept | over | own})
    return run.model_copy(update={"agents": agents})


def template_of(agent: AgentDefinition) -> dict[str, Any]:
    """Return how a chat template is rendered for an agent, as fields of a recipe: training reads what it has read."""
    extra = agent.options.get("extra")  # of a server's
    own = agent.options.get("chat_template_kwargs") or (extra or {}).get("chat_template_kwargs")
    found = {"date": agent.options.get("date"), "chat_template_kwargs": own or {}}
    if found["date"] is not None:
        found["date"] = datetime.date.fromisoformat(str(found["date"]))
    return found


def chat_of(agent: AgentDefinition, path: str) -> ChatTokenizer:
    """Return the tokenizer of a checkpoint, its template rendered as the agent reads it."""
    how = template_of(agent)
    return ChatTokenizer(checkpoint(path), date=how["date"], template=how["chat_template_kwargs"])


def parse_policy(text: str) -> PolicyName | None:
    """Read `RUN@best`, `RUN@last` or `RUN@epoch3`; None for a name of another kind.

    A file in whose path is an @ is of another kind, and so are names per slot (`ada=X,ben=Y`).

    Raises:
        UsageError: it is a training without an epoch, it has an @ and then something else, or an epoch is named for one
            slot.
    """
    if "@" not in text and os.path.isfile(MarlFolder(Path(text)).file):  # also of what is too long for a name
        raise UsageError(f"{text}: a training of a team; say which epoch: {text}@best, {text}@last or {text}@epoch1")
    if "@" not in text or Path(text).is_file():
        return None
    found = _NAME.fullmatch(text)
    if _PER_SLOT.match(text) and not (found and Path(found["run"]).is_dir()):
        _check_slots_have_files(text)
        return None
    if _is_file(text):
        return None
    if found is None:
        raise UsageError(f"{text!r}: write RUN@best or RUN@epoch3 (or @last), with a training's directory as RUN")
    number = found["number"]
    epoch = None if number is None else int(number)
    return PolicyName(run=Path(found["run"]), epoch=epoch, last=found["which"] == "last")


def agents_of(name: PolicyName, slots: Sequence[str], *, as_trained: bool = False) -> dict[str, AgentDefinition]:
    """Who fills the slots of a graph with a trained policy.

    Args:
        as_trained: sample as the training did; by default the agents files that it began with decide.

    Raises:
        RunFormatError: there is no training in that directory.
        GraphError: the graph's agents are not those that were trained.
        UnknownName: that epoch is not over.
        UsageError: there is no best epoch yet, or none is over; or it names parts that may not run.
    """
    folder = MarlFolder(name.run)
    head, config = read_training(folder)
    check_plain(name.run, "training")
    check_slots(config, slots, str(name.run))
    policy = policy_after(folder, config, epoch_of(name, folder, config, head))
    run = config.run if as_trained else config.as_declared
    agents = dict(playing(run, policy, config.method.determinism).agents)
    check_trusted({slot: agent.model_dump(mode="json") for slot, agent in agents.items()}, str(folder.file))
    return agents


def epoch_of(name: PolicyName, folder: MarlFolder, config: MarlConfig, head: Mapping[str, Any]) -> int:
    """The number of the epoch that a name means; it need not be over.

    Args:
        head: of the training.

    Raises:
        UsageError: there is no best epoch yet, or none is over.
    """
    if name.last:
        over = [number for number in range(config.method.epochs + 1) if folder.epoch(number).record.exists()]
        if not over:
            raise UsageError(f"{name.run}@last: no epoch is over yet; go on with it: {folder.resume}")
        return over[-1]
    number: int | None = name.epoch if name.epoch is not None else (head.get("summary") or {}).get("best")
    if number is None:
        known = [f"@epoch{one}" for one in range(config.method.epochs + 1) if folder.epoch(one).record.exists()]
        raise UsageError(
            f"{name.run}@best: no epoch is the best before the training has ended; name one that is over "
            f"({', '.join(known) or 'there is none'}), or go on: {folder.resume}"
        )
    return number


def trained_agents(
    library: Library, agents: str, graph: str, *, as_trained: bool = False
) -> dict[str, AgentDefinition] | None:
    """Who fills the slots of a graph, where `--agents` names a trained policy; None where it names files.

    Args:
        as_trained: as of `agents_of`.

    Raises:
        UnknownName, ConfigError: there is no such graph, or it cannot be read.
        UsageError: as `parse_policy` and `agents_of`.
    """
    name = parse_policy(agents)
    if name is None:
        return None
    return agents_of(name, library.load("graphs", graph, GraphDefinition).slots, as_trained=as_trained)


def note_sampling(agents: str, run: RunConfig) -> str | None:
    """Say that a trained policy is played at other temperatures than it was trained at; None where it is not.

    Args:
        agents: as `--agents` names it.
        run: that it plays.
    """
    name = parse_policy(agents)
    if name is None:
        return None
    trained, played = read_training(MarlFolder(name.run))[1].run.sampling, run.sampling
    if trained == played or trained.keys() != played.keys():
        return None
    heat = ",".join(f"{trained[slot].temperature:g}" for slot in run.graph.slots)
    value = f"[{heat}]" if len(set(heat.split(","))) > 1 else heat.split(",")[0]
    return (
        f"{name.run} was trained at {describe_sampling(trained)}, and is played at {describe_sampling(played)}; "
        f"as it was trained: --set 'agents.*.sampling.temperature={value}'"
    )


def check_slots(config: MarlConfig, slots: Sequence[str], where: str) -> None:
    """GraphError unless a graph has the agents of a trained team, in whatever order."""
    known = config.run.graph.slots
    if set(slots) != set(known):
        raise GraphError(
            f"{where}: was trained as {', '.join(known)}, the graph has {', '.join(slots)}; "
            "choose a graph with these agents"
        )


def policy_after(folder: MarlFolder, config: MarlConfig, number: int) -> Policy:
    """The policy that an epoch left; UnknownName when it is not over."""
    if number == 0:
        return first_policy(config.run, config.method)
    epoch = folder.epoch(number)
    if not epoch.record.exists():
        over = [f"epoch{one}" for one in range(1, config.method.epochs + 1) if folder.epoch(one).record.exists()]
        raise UnknownName.of(f"finished epoch of {folder.path}", f"epoch{number}", over)
    record = read_record(epoch.record)
    weights = {slot: _inside(folder.path, path) for slot, path in record.weights.items()}
    adapters = {slot: _inside(folder.path, path) for slot, path in record.adapters.items()}
    return Policy(version=record.version, weights=weights, adapters=adapters)


def told(folder: Path, path: str) -> str:
    """A checkpoint's place for the record: within the training relative to it, so that the whole can be moved."""
    inside = Path(path).is_absolute() and Path(path).is_relative_to(folder.resolve())
    return f"./{Path(path).relative_to(folder.resolve())}" if inside else path


def _is_file(name: str) -> bool:
    """Whether a name is that of an agents file; one that ends like it need not be there, for no epoch is called so."""
    return Path(name).suffix in (".yaml", ".yml") or Path(name).is_file()


def _check_slots_have_files(agents: str) -> None:
    """UsageError where an epoch fills one slot of `ada=X,ben=Y`."""
    for item in agents.split(","):
        name = item.partition("=")[2].strip()
        if "@" in name and not _is_file(name):
            raise UsageError(
                f"--agents {item.strip()!r}: an epoch of a training fills all slots (--agents RUN@best), one slot is "
                "filled by an agents file: collab export RUN@best --out DIR writes those of an epoch"
            )


def _inside(folder: Path, path: str) -> str:
    return str(folder.resolve() / path) if path.startswith("./") else path


def _absolute(path: str) -> str:
    """Of a directory its absolute path, so that a training can be gone on with from anywhere; else the name."""
    place = Path(checkpoint(path))
    return str(place.resolve()) if not path.startswith("built-in:") and place.is_dir() else path
