"""One unit of a measurement: where it lies, what it asks of `collab`, what it needs first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collab.errors import UsageError
from evidence.plan import Arm, Phase, Plan, phases_of

SHOWN = Path("runs/tables")
"""As the folder of all work is called wherever commands are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """An arm, a run seed and a phase."""

    arm: str
    seed: int | None
    """Run seed of the training; None where nothing is trained."""
    phase: str

    @property
    def name(self) -> str:
        """As it is asked for and as its file is called, e.g. "full/seed-0/train"."""
        return "/".join((self.arm, *(() if self.seed is None else (f"seed-{self.seed}",)), self.phase))

    def __str__(self) -> str:
        return self.name


def queue(plan: Plan) -> list[Unit]:
    """All units, in the order in which they are done."""
    return list(dict.fromkeys(_all(plan)))


def _all(plan: Plan) -> Iterator[Unit]:
    for stage in plan.stages:
        for seed in plan.seeds:
            for arm in stage.arms:
                own = None if plan.arms[arm].method is None else seed
                yield from (Unit(arm=arm, seed=own, phase=phase) for phase in phases_of(plan, arm, stage.phases))


def arm_of(plan: Plan, unit: Unit) -> Arm:
    """The unit's arm."""
    return plan.arms[unit.arm]


def phase_of(plan: Plan, unit: Unit) -> Phase:
    """The unit's phase."""
    return plan.phases[unit.phase]


def needs(plan: Plan, unit: Unit) -> Unit | None:
    """The training that it plays or goes on from; None for the checkpoint that all began with."""
    after = phase_of(plan, unit).after
    return None if after is None or unit.seed is None else Unit(arm=unit.arm, seed=unit.seed, phase=after)


def command(plan: Plan, unit: Unit, work: Path) -> list[str]:
    """What begins it, without the name of the program. Of an evaluation it also goes on with it.

    Args:
        work: folder of all units of this base.

    Raises:
        UsageError: a phase trains an arm that is not trained.
    """
    arm, phase, before = arm_of(plan, unit), phase_of(plan, unit), needs(plan, unit)
    agents = plan.agents if before is None else f"{work / before.name}@{plan.played}"
    prefix = "" if phase.kind == "eval" else "run."  # where a training knows them
    play = [word for setting in plan.play for word in ("--set", prefix + setting)]
    head = [phase.kind, *plan.common, *play, *phase.options]
    tail = ["--agents", agents, "--out", str(work / unit.name)]
    if phase.kind == "eval":
        return [*head, "--graph", arm.graph, *tail]
    if arm.method is None or unit.seed is None:
        raise UsageError(f"{unit}: {unit.arm} is not trained, and {unit.phase} trains; take it out of the stages")
    return [*head, *arm.method, "--seed", str(unit.seed), *tail]


def shown_command(plan: Plan, unit: Unit, base: str) -> str:
    """The same in one line, as the unit's file tells it.

    Args:
        base: digest of the weights that every arm begins with.
    """
    return shlex.join(["collab", *command(plan, unit, SHOWN / base[:12])])


def players(plan: Plan, unit: Unit) -> list[Unit]:
    """The units that play its training or go on from it, and those that play these, in their order."""
    found: list[Unit] = []
    for one in queue(plan):
        if needs(plan, one) in (unit, *found):
            found.append(one)
    return found


def going_on(plan: Plan, unit: Unit, work: Path) -> list[str]:
    """What goes on with it, wherever it was stopped or killed; arguments as of `command`."""
    if phase_of(plan, unit).kind == "eval":
        return command(plan, unit, work)
    return ["train-marl", "--resume", str(work / unit.name)]
