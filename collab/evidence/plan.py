"""Plan of a comparison: its arms, their tasks and budgets, and the command of each unit.

    plan = read_plan(Path("docs/results/plan.yaml"))
    for unit in plan.units:
        print(shlex.join(["collab", *plan.command(unit, Path("runs/tables"))]))

A *unit* is an arm, a run seed and a phase, e.g. full/seed-0/train. What arms have in common stands in the phases, and
what sets them apart in the arms: so all of them start from the same checkpoint and play the same instances.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any, Literal, TypeAlias

from pydantic import Field, model_validator

from collab.config import Definition
from collab.errors import UsageError
from collab.evaluation.comparison import RunComparison
from collab.library import read

SHOWN = Path("runs/tables")
"""The folder of all work, wherever commands are shown."""
Spot: TypeAlias = str
"""An arm in a phase, over all run seeds, e.g. "full/new-seeds"; "full/train@2" is what a training's own held-out seeds
showed behind its epoch 2."""


def split_spot(spot: Spot) -> tuple[Spot, int | None]:
    """Return arm and phase, and the epoch of a training whose own evaluation is meant; None for that of the phase.

    Raises:
        ValueError: an epoch is no number.
    """
    place, at, epoch = spot.partition("@")
    if at and not epoch.isdecimal():
        raise ValueError(f"{spot}: {epoch!r} is no epoch; write e.g. {place}@2")
    return place, int(epoch) if at else None


class Arm(Definition):
    """One line of the tables."""

    label: str
    """As tables call it."""
    graph: str = "team"
    """On which it is measured, where the phase says nothing else. Trained is the graph team, or what the ablation
    brings."""
    method: str | None = None
    """Options of its trainings that set it apart; None for an arm that is not trained and has no run seed."""
    plays: str = ""
    """Options of what measures it that set it apart, e.g. another temperature."""
    fork: Spot | None = None
    """A training of another arm, e.g. "full/train@3", whose epochs its own one takes over: up to there both are the
    same. None for an arm that trains from the beginning."""


class Phase(Definition):
    """Phase of an arm's work."""

    kind: Literal["train-marl", "train", "eval"]
    """The command of `collab`."""
    options: str
    """All that decides it beside arm and run seed."""
    minutes: float
    """Expected until a finished unit tells better, on one core of two."""
    graph: str | None = None
    """On which it is measured; None for the arm's graph."""
    after: str | None = None
    """The phase whose policy is played, or trained further; None for the checkpoint that all arms begin with."""
    epoch: int | None = Field(default=None, ge=1)
    """Epoch of that phase; None for the one that the plan plays."""
    label: str = ""
    """Head of its column in tables."""


class PlanStage(Definition):
    """Units in the order in which they are done: by run seed, then arm, then phase."""

    arms: list[str]
    phases: list[str]
    seeds: list[int] | None = None
    """Run seeds of the trainings; None for all of the plan."""


class Goal(Definition):
    """A difference that was wanted before anything was measured: second minus first, in percentage points."""

    label: str
    first: Spot
    second: Spot
    beside: tuple[Spot, Spot] | None = None
    """First and second of another difference that is subtracted; None for none."""
    at_least: float | None = None
    at_most: float | None = None
    more_than: float | None = None
    surely: bool = False
    """Whether the interval must lie above 0, too."""
    in_each: bool = False
    """Whether each training by itself must lie above 0, too; not beside another difference."""

    def is_reached(self, found: RunComparison) -> bool:
        """Return whether a measured difference is what was wanted."""
        return (
            (self.at_least is None or found.difference >= self.at_least / 100)
            and (self.at_most is None or found.difference <= self.at_most / 100)
            and (self.more_than is None or found.difference > self.more_than / 100)
            and (not self.surely or found.interval[0] > 0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceUnit:
    """An arm, a run seed and a phase."""

    arm: str
    seed: int | None
    """Run seed of the training; None where nothing is trained."""
    phase: str

    @property
    def name(self) -> str:
        """Its name on the command line and in the folder of files, e.g. "full/seed-0/train"."""
        return "/".join((self.arm, *(() if self.seed is None else (f"seed-{self.seed}",)), self.phase))

    @property
    def spot(self) -> Spot:
        """Return its place in tables."""
        return f"{self.arm}/{self.phase}"

    def __str__(self) -> str:
        return self.name


class Plan(Definition):
    """A whole measurement."""

    agents: str
    """Agents file of the checkpoint that every arm begins with."""
    seeds: list[int]
    """Run seeds of the trainings."""
    played: Literal["best", "last"] = "best"
    """Which epoch of a training is measured: the best on the held-out seed, or the last."""
    words: dict[str, str] = Field(default_factory=dict)
    """Parts of options that several phases share; an option names one as `$name`."""
    common: str = ""
    """Options of every command."""
    arms: dict[str, Arm]
    phases: dict[str, Phase]
    stages: list[PlanStage]
    goals: dict[str, Goal] = Field(default_factory=dict)
    most_minutes: float = 40.0
    """That a unit is meant to take at most; a longer one is named and not stopped."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Put `words` into the options that name them."""
        words = data.get("words") if isinstance(data, dict) else None
        if not isinstance(words, dict):
            return data
        known: dict[str, str] = {}
        for name, text in words.items():
            known[name] = Template(str(text)).safe_substitute(known)

        def fill(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: fill(one) for key, one in value.items()}
            return Template(value).safe_substitute(known) if isinstance(value, str) else value

        return data | {"words": known} | {name: fill(data[name]) for name in ("arms", "phases") if name in data}

    @model_validator(mode="after")
    def _check_names(self) -> Plan:
        """Refuse names of arms and phases that the plan does not have."""
        # Gathered first, so that one sentence names whichever is wrong.
        named: list[tuple[str, Collection[str]]] = [(arm, self.arms) for stage in self.stages for arm in stage.arms]
        named += [(phase, self.phases) for stage in self.stages for phase in stage.phases]
        named += [(phase.after, self.phases) for phase in self.phases.values() if phase.after is not None]
        for goal in self.goals.values():
            spots = (goal.first, goal.second, *(goal.beside or ()))
            for arm, _, phase in (split_spot(spot)[0].partition("/") for spot in spots):
                named += [(arm, self.arms), (phase, self.phases)]
        for name, one in self.arms.items():
            if one.fork is None:
                continue
            place, epoch = split_spot(one.fork)
            if epoch is None:
                raise ValueError(f"arms.{name}: fork {one.fork} names no epoch; write e.g. {place}@2")
            arm, _, phase = place.partition("/")
            named += [(arm, self.arms), (phase, self.phases)]
        wrong = next((name for name, known in named if name not in known), None)
        early = next((name for name, phase in self.phases.items() if phase.epoch and phase.after is None), None)
        if early is not None:
            raise ValueError(f"phases.{early}: epoch {self.phases[early].epoch} of no phase; name it with after")
        twice = next((name for name, goal in self.goals.items() if goal.in_each and goal.beside), None)
        if twice is not None:
            raise ValueError(f"goals.{twice}: in_each does not go with beside; leave one out")
        strange = [seed for stage in self.stages for seed in stage.seeds or () if seed not in self.seeds]
        if strange:
            raise ValueError(f"stages: run seed {strange[0]} is none of {self.seeds}")
        if wrong is not None:
            raise ValueError(f"{wrong!r} is neither an arm nor a phase of this plan where it is named")
        return self

    @model_validator(mode="after")
    def _check_options(self) -> Plan:
        """Refuse an evaluation whose arm and phase both give an option: one of them would be lost."""
        # Not `units`, which would be remembered, also of a copy with other stages.
        for unit in (one for one in self._all() if not self.is_training(one)):
            options = (_list_options(text) for text in (self.arms[unit.arm].plays, self.phases[unit.phase].options))
            if twice := sorted(set.intersection(*options)):
                raise ValueError(
                    f"arms.{unit.arm}: plays gives {twice[0]}, as phases.{unit.phase} does; take one out of the stages"
                )
        return self

    @cached_property
    def units(self) -> tuple[EvidenceUnit, ...]:
        """All units, in the order in which they are done."""
        return tuple(dict.fromkeys(self._all()))

    def _all(self) -> Iterator[EvidenceUnit]:
        for stage in self.stages:
            for seed in self.seeds if stage.seeds is None else stage.seeds:
                for arm in stage.arms:
                    is_trained = self.arms[arm].method is not None
                    for phase in stage.phases:
                        if is_trained or self.phases[phase].kind == "eval":
                            yield EvidenceUnit(arm=arm, seed=seed if is_trained else None, phase=phase)

    def units_of(self, spot: Spot) -> list[EvidenceUnit]:
        """Return the units of an arm in a phase; empty where no stage has it."""
        return [unit for unit in self.units if unit.spot == split_spot(spot)[0]]

    def get_label(self, spot: Spot) -> str:
        """Return what tables call the arm of a spot."""
        return self.arms[spot.partition("/")[0]].label

    @property
    def trained(self) -> dict[str, Arm]:
        """The arms that are trained."""
        return {name: arm for name, arm in self.arms.items() if arm.method is not None}

    def is_training(self, unit: EvidenceUnit) -> bool:
        """Return whether a unit is a training."""
        return self.phases[unit.phase].kind != "eval"

    def needs(self, unit: EvidenceUnit) -> EvidenceUnit | None:
        """Return the training that a unit plays or trains further; None for the checkpoint that all begin with."""
        after = self.phases[unit.phase].after
        return None if after is None or unit.seed is None else EvidenceUnit(arm=unit.arm, seed=unit.seed, phase=after)

    def players(self, unit: EvidenceUnit) -> list[EvidenceUnit]:
        """Return the units that play a training or train it further, and those that play these, in their order."""
        found: list[EvidenceUnit] = []
        for one in self.units:
            if self.needs(one) in (unit, *found):
                found.append(one)
        return found

    def forks(self, unit: EvidenceUnit) -> tuple[EvidenceUnit, int] | None:
        """Return the training whose epochs a training takes over, and the last of them; None for none."""
        spot = self.arms[unit.arm].fork
        if spot is None or not self.is_training(unit):
            return None
        place, epoch = split_spot(spot)
        arm, _, phase = place.partition("/")
        assert epoch is not None, "checked when the plan was read"
        return EvidenceUnit(arm=arm, seed=unit.seed, phase=phase), epoch

    def list_awaited(self, unit: EvidenceUnit) -> list[EvidenceUnit]:
        """Return the trainings that a unit plays, trains further or takes epochs from."""
        forked = self.forks(unit)
        return [one for one in (self.needs(unit), None if forked is None else forked[0]) if one is not None]

    def command(self, unit: EvidenceUnit, work: Path) -> list[str]:
        """Return the words that begin a unit, without the name of the program; for an evaluation, also resume it.

        Args:
            unit: which.
            work: folder of all units of this base.

        Raises:
            UsageError: a phase trains an arm that is not trained.
        """
        arm, phase, before = self.arms[unit.arm], self.phases[unit.phase], self.needs(unit)
        head = [phase.kind, *shlex.split(self.common), *shlex.split(phase.options)]
        epoch = self.played if phase.epoch is None else f"epoch{phase.epoch}"
        agents = self.agents if before is None else f"{work / before.name}@{epoch}"
        tail = ["--agents", agents, "--out", str(work / unit.name)]
        if (forked := self.forks(unit)) is not None:
            tail = ["--fork", f"{work / forked[0].name}@epoch{forked[1]}", *tail]
        if not self.is_training(unit):
            return [*head, *shlex.split(arm.plays), "--graph", phase.graph or arm.graph, *tail]
        if arm.method is None or unit.seed is None:
            raise UsageError(f"{unit}: {unit.arm} is not trained, and {unit.phase} trains; take it out of the stages")
        return [*head, *shlex.split(arm.method), "--seed", str(unit.seed), *tail]

    def shown_command(self, unit: EvidenceUnit, base: str) -> str:
        """Return the command in one line, as the unit's file holds it.

        Args:
            unit: which.
            base: digest of the weights that every arm begins with.
        """
        return shlex.join(["collab", *self.command(unit, SHOWN / base[:12])])

    def resume_command(self, unit: EvidenceUnit, work: Path) -> list[str]:
        """Return the words that resume a unit, wherever it was stopped or killed; arguments as of `command`."""
        if not self.is_training(unit):
            return self.command(unit, work)
        return [self.phases[unit.phase].kind, "--resume", str(work / unit.name)]


def _list_options(text: str) -> set[str]:
    """Return the options of a command, a setting of `--set` by its own name."""
    words = shlex.split(text)
    settings = {value.partition("=")[0] for word, value in pairwise(words) if word == "--set"}
    return settings | {word for word in words if word.startswith("--") and word != "--set"}


def read_plan(path: Path) -> Plan:
    """Read a plan; ConfigError names what does not fit."""
    return read(path, Plan)
