"""What a transfer would do, before it is begun, or what is left of one: its parts, and what its training will take."""

from __future__ import annotations

from dataclasses import dataclass

from collab.learn.prepare import check_device
from collab.loop import estimate
from collab.loop.grant import Grant, granted
from collab.transfer.config import TransferConfig
from collab.transfer.layout import Part, State, TransferFolder, parts_after, parts_before
from collab.transfer.parts import TRAINING, library_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One part."""

    part: str
    """Its directory, e.g. "second/base"."""
    state: State
    environment: str
    """Its definition."""
    split: str | None
    """None for tasks that were chosen freely."""
    team: str
    """As it is named."""
    seeds: tuple[int, ...]
    """Run seeds of the evaluation; of the training its own."""
    episodes: int
    """Over all seeds; of the training over all epochs, its own evaluations included where they were counted."""
    calls_per_step: int
    """Of the policies: agents by rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All parts in the order in which they are made."""

    parts: tuple[Line, ...]
    training: estimate.Plan | None
    """In numbers; None for direct, and for one that has begun."""


async def plan(config: TransferConfig, folder: TransferFolder | None = None, device: str | None = None) -> Plan:
    """Count; for a training that has not begun, also play one step. Nothing is written.

    Args:
        folder: of a transfer that is gone on with; None for one that would be begun.
        device: where policies are trained, "auto" or "cpu"; None for where the transfer was begun to train them, "auto"
            for one that would be begun.

    Raises:
        UsageError, RunError: as the first rollout of the training would.
    """
    if folder is not None:
        device = granted(folder.head.read(), str(folder.file), budget=None, device=device).device
    device = device or Grant().device
    check_device(device)
    training, found = config.training, None
    state: State = "missing" if folder is None else folder.state_of_training()
    if training is not None and state == "missing":
        found = await estimate.plan(training, library_of(config.library), device)
    lines = [_line(part, folder) for part in parts_before(config)]
    if training is not None:
        split = training.run.split
        own = Line(
            part=TRAINING,
            state=state,
            environment=training.run.environment_name,
            split=None if split is None else split.name,
            team=config.agents,
            seeds=(training.run.seed,),
            episodes=training.method.epochs * training.run.episodes if found is None else found.episodes,
            calls_per_step=len(training.run.graph.slots) * training.run.graph.rounds,
        )
        lines += [own, *(_line(part, folder) for part in parts_after(config))]
    return Plan(parts=tuple(lines), training=found)


def _line(part: Part, folder: TransferFolder | None) -> Line:
    run = part.runs[0]
    names = dict.fromkeys(run.agent_names.values())
    return Line(
        part=part.name,
        state="missing" if folder is None else folder.state(part),
        environment=run.environment_name,
        split=None if run.split is None else run.split.name,
        team="training@best" if part.arm == "continued" else "+".join(names),
        seeds=tuple(one.seed for one in part.runs),
        episodes=sum(one.episodes for one in part.runs),
        calls_per_step=len(run.graph.slots) * run.graph.rounds,
    )
