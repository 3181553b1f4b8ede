"""Trained teams by name: `RUN@best`, `RUN@last`, `RUN@epoch3`.

name = parse_policy("runs/trained@best")                    # of a training that lies in runs/trained
agents = load_policy_agents(name, graph.slots)              # slot → AgentDefinition
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, GraphDefinition, RunConfig
from collab.errors import GraphError, UsageError
from collab.evaluation.metrics import describe_sampling
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import read_training
from collab.loop.policy import assign_policy, load_policy
from collab.loop.record import TrainingDir
from collab.utils.files import check_plain
from collab.utils.trust import check_trusted

_NAME = re.compile(r"(?P<run>.+)@(?P<which>best|last|epoch(?P<number>\d+))")
_PER_SLOT = re.compile(r"[^/=@,]+=")
"""How `ada=X,ben=Y` begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyName:
    """Parts of `RUN@best`, `RUN@last` or `RUN@epoch3`."""

    run: Path
    epoch: int | None
    """None for the best, or the last."""
    last: bool = False
    """Whether None means the last epoch that is over."""


def parse_policy(text: str) -> PolicyName | None:
    """Parse `RUN@best`, `RUN@last` or `RUN@epoch3`; None for a name of another kind.

    Names of files with an @ in the path and names per slot (`ada=X,ben=Y`) are of another kind.

    Raises:
        UsageError: the name is a training without an epoch, has something else behind the @, or names an epoch for one
            slot.
    """
    if "@" not in text and os.path.isfile(TrainingDir(Path(text)).file):  # also of what is too long for a name
        raise UsageError(f"{text}: a training of a team; name an epoch: {text}@best, {text}@last or {text}@epoch1")
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


def load_policy_agents(
    name: PolicyName, slots: Sequence[str], *, as_trained: bool = False
) -> dict[str, AgentDefinition]:
    """Load the agents that fill a graph's slots with a trained policy: all of its team, or some.

    Args:
        as_trained: sample as the training did; by default the agents files that it began with decide.

    Raises:
        RunFormatError: there is no training in that directory.
        GraphError: the graph has agents that were not trained.
        UnknownName: that epoch is not over.
        UsageError: there is no best epoch yet, or none is over; or it names parts that may not run.
    """
    folder = TrainingDir(name.run)
    head, config = read_training(folder)
    check_plain(name.run, "training")
    known = config.run.graph.slots
    if not set(slots) <= set(known):
        raise GraphError(
            f"{name.run}: was trained as {', '.join(known)}, the graph has {', '.join(slots)}; choose a graph with "
            "these agents, or some of them"
        )
    policy = load_policy(folder, config, resolve_epoch(name, folder, config, head))
    run = config.run if as_trained else config.as_declared
    every = assign_policy(run, policy, config.method.determinism).agents
    agents = {slot: every[slot] for slot in slots}
    check_trusted({slot: agent.model_dump(mode="json") for slot, agent in agents.items()}, str(folder.file))
    return agents


def resolve_epoch(name: PolicyName, folder: TrainingDir, config: TrainingConfig, head: Mapping[str, Any]) -> int:
    """Return the number of the epoch that a name means; it need not be over.

    Args:
        head: of the training.

    Raises:
        UsageError: there is no best epoch yet, or none is over.
    """
    if name.last:
        # "last" is the last finished epoch: a running one has no policy yet.
        over = [number for number in range(config.method.epochs + 1) if folder.get_epoch(number).record.exists()]
        if not over:
            raise UsageError(f"{name.run}@last: no epoch is over yet; resume it: {folder.resume}")
        return over[-1]
    # A number is taken as it is; "best" needs the summary, which only a finished training has.
    number: int | None = name.epoch if name.epoch is not None else (head.get("summary") or {}).get("best")
    if number is None:
        known = [f"@epoch{one}" for one in range(config.method.epochs + 1) if folder.get_epoch(one).record.exists()]
        raise UsageError(
            f"{name.run}@best: no epoch is the best before the training has ended; name one that is over "
            f"({', '.join(known) or 'there is none'}), or resume: {folder.resume}"
        )
    return number


def load_trained_agents(
    library: Library, agents: str, graph: str, *, as_trained: bool = False
) -> dict[str, AgentDefinition] | None:
    """Load the agents of a trained policy that `--agents` names; None if it names files.

    Args:
        as_trained: as for `load_policy_agents`.

    Raises:
        UnknownName, ConfigError: there is no such graph, or it cannot be read.
        UsageError: as `parse_policy` and `load_policy_agents`.
    """
    name = parse_policy(agents)
    if name is None:
        return None
    return load_policy_agents(name, library.load("graphs", graph, GraphDefinition).slots, as_trained=as_trained)


def list_differences(agents: str, run: RunConfig) -> list[str]:
    """List how a trained policy is played otherwise than it was measured: when success is checked, at what temperature.

    Args:
        agents: as `--agents` names it.
        run: that it plays.
    """
    name = parse_policy(agents)
    if name is None:
        return []
    measured, lines = read_training(TrainingDir(name.run))[1].run, list[str]()
    if measured.success_check != run.success_check:
        ends = {"end": "when its team said so", "every_step": "as soon as they were solved"}
        lines.append(
            f"{name.run} measured episodes that ended {ends[measured.success_check]} "
            f"(success_check={measured.success_check}), and plays with success_check={run.success_check}, which a "
            f"policy may not be used to; as it was measured: --set success_check={measured.success_check}"
        )
    trained, played = measured.sampling, run.sampling
    # Played as it was measured, or by another team: nothing to say.
    if played.keys() <= trained.keys() and any(trained[slot] != one for slot, one in played.items()):
        trained = {slot: trained[slot] for slot in run.graph.slots}
        found = [f"{one.temperature:g}" for one in trained.values()]
        value = f"[{','.join(found)}]" if len(set(found)) > 1 else found[0]
        lines.append(
            f"{name.run} measured its team at {describe_sampling(trained)}, and it is played at "
            f"{describe_sampling(played)}; to use the measured setting: --set 'agents.*.sampling.temperature={value}'"
        )
    return lines


def _is_file(name: str) -> bool:
    """Return whether a name is that of an agents file; .yaml and .yml need not exist, since no epoch ends so."""
    return Path(name).suffix in (".yaml", ".yml") or Path(name).is_file()


def _check_slots_have_files(agents: str) -> None:
    """Raise a UsageError if an epoch fills one slot of `ada=X,ben=Y`."""
    for item in agents.split(","):
        name = item.partition("=")[2].strip()
        if "@" in name and not _is_file(name):
            epoch = shlex.quote(name)
            raise UsageError(
                f"--agents {item.strip()!r}: an epoch of a training fills all slots (--agents {epoch}), one slot is "
                f"filled by an agents file: collab export {epoch} --out DIR writes those of an epoch"
            )
