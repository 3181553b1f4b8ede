"""Parts of a training that was moved: they name weights by where these lay, and find them where they lie now.

A training tells of its own weights relative to itself, so that the whole can be moved. Its rollouts and evaluations are
ordinary runs, which name what they play with by an absolute path; one begun before the move is told the new one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from collab.config import AgentDefinition, RunConfig
from collab.runs import stored_config
from collab.store.files import writing
from collab.store.manifest import FILE, find_manifest, write_manifest

_PLACES = ("path", "adapter")
"""Options of an agent that name weights."""


def follow(part: Path, wanted: RunConfig, training: Path, next_move: str) -> None:
    """Tell a run that was begun where the training's weights lie now.

    Only weights at the same place within the training are followed. Whether they are the same is found out when the run
    is gone on with, by their digests.

    Args:
        part: rollout or evaluation of the training; need not have been begun.
        wanted: as it would be begun today.
        training: its directory.
        next_move: for the message when it cannot be written.

    Raises:
        RunFormatError: what is recorded cannot be read.
        StoreFailure: it cannot be written.
    """
    manifest = find_manifest(part) if (part / FILE).exists() else None
    if manifest is None:
        return
    recorded = stored_config(part)
    agents = {slot: _followed(one, wanted.agents.get(slot), training) for slot, one in recorded.agents.items()}
    if agents != recorded.agents:
        config = recorded.model_copy(update={"agents": agents}).model_dump(mode="json")
        with writing(part / FILE, next_move):
            write_manifest(part, replace(manifest, config=config))


def _followed(agent: AgentDefinition, wanted: AgentDefinition | None, training: Path) -> AgentDefinition:
    options = dict(agent.options)
    for name in _PLACES:
        before, now = options.get(name), None if wanted is None else wanted.options.get(name)
        if isinstance(before, str) and isinstance(now, str) and _is_moved(Path(before), Path(now), training):
            options[name] = now
    return agent.model_copy(update={"options": options})


def _is_moved(before: Path, now: Path, training: Path) -> bool:
    """Whether both are the same place within the training, before and after it was moved."""
    if before == now or not now.is_relative_to(training.resolve()):
        return False
    within = now.relative_to(training.resolve()).parts
    return before.parts[-len(within) :] == within
