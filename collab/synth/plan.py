"""What a synthesis makes: its resolved configuration, and the units of work that follow from it.

A unit is one walk (exploring from a task's initial state, some of whose screens are taught) or one episode (the way
through a task). Everything drawn in a unit follows from the run seed and the unit's place, so that a unit gives the
same rows whenever and wherever it is done.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator

from collab.config import AgentDefinition, Budget, Definition, EnvironmentDefinition, SamplingDefinition, SplitChoice
from collab.seeds import Seeds, derive
from collab.splits.overlap import Instance
from collab.synth.rows import LEVELS, Level

ORACLE = "oracle"
"""Name of the teacher that asks the environment."""
SCREENS_PER_WALK = 10
"""Screens that are taught of one walk."""
WALK_STEPS = 30
"""Actions of a walk at most."""
_EXPLORATION = 1
"""Epoch whose instances walks use, so that they differ from those of the episodes."""

Share = Annotated[float, Field(ge=0, lt=1)]


class SynthConfig(Definition):
    """Everything that decides what a synthesis makes."""

    environment_name: str
    """File that it came from."""
    environment: EnvironmentDefinition
    levels: list[Level] = Field(min_length=1)
    """In the order of the curriculum."""
    teacher_name: str
    """"oracle", or an agents file."""
    teacher: AgentDefinition | None
    """Its definition; None for the oracle. Of its sampling nothing is used: teachers have their own."""
    teacher_prompts: dict[str, str] = Field(default_factory=dict)
    """Template → text; empty for the oracle."""
    sampling: SamplingDefinition = SamplingDefinition(temperature=0.1, max_tokens=2048)
    """Of the teacher's model (CollabUIAgents, Appendix C.4: 0.1)."""
    prompt_name: str = "default"
    """Folder in `prompts/` of the prompt that the policy will read."""
    prompt: dict[str, str] = Field(default_factory=dict)
    """Template → text of the prompt that the policy will read."""
    context_tokens: int = Field(default=8192, ge=256)
    """Of the policy; rows are made as a policy with this context is asked."""
    history: int = Field(default=5, ge=0)
    """Executed steps that the prompt shows at most."""
    max_tokens: int = Field(default=256, ge=1)
    """Of a reply, as a policy with this context will be asked: what is left of the context is for the screen."""
    tasks: list[str]
    """Task names, resolved."""
    asked_tasks: list[str] = Field(default_factory=list)
    """As they were asked for; empty for what the environment's file says."""
    unsolved: list[str] = Field(default_factory=list)
    """Tasks of the environment's own choice that the oracle leaves out because it knows no solution."""
    settings: list[str] = Field(default_factory=list)
    """Overrides as they were given, for the card; they are in effect already."""
    episodes: int = Field(default=0, ge=0)
    """In all; episode k plays task k mod len(tasks)."""
    screens: int = Field(default=0, ge=0)
    """Screens of exploration to be taught."""
    mistakes: Share = 0.1
    """Chance before each step of an oracle's episode of a mistake, whose way back is taught."""
    elements: int = Field(default=4, ge=0)
    """Of a screen about which something is asked."""
    seats: int = Field(default=1, ge=1)
    """Decisions that the oracle makes of each step of an episode, each from another seat of another conversation."""
    talk: float = Field(default=0.5, ge=0, le=1)
    """Share of the oracle's decisions in which at least one peer has spoken."""
    renamed: Share = 0.0
    """Share of the oracle's instructions and decisions that are taught under other names of apps and labels."""
    two_steps: Share = 0.0
    """Share of screens on which the oracle asks for two steps at once, too."""
    instructions: int = Field(default=8, ge=1)
    """That a model is asked for per screen."""
    at_most: int | None = Field(default=2000, ge=1)
    """Rows per level, kind, app and action type that are kept; None keeps all."""
    seed: int = 0
    """Draws screens, tasks and instances."""
    split: SplitChoice | None = None
    concurrency: int = Field(default=4, ge=1)
    """Units at once."""
    budget: Budget = Budget()

    @field_validator("levels")
    @classmethod
    def _in_order(cls, levels: list[Level]) -> list[Level]:
        if levels != [one for one in LEVELS if one in levels]:
            raise ValueError(f"levels must stand once and in this order: {', '.join(LEVELS)}")
        return levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One piece of work; its rows are kept whole or not at all."""

    kind: Literal["walk", "episode"]
    number: int
    task: str
    instance: int
    """Seed of the task instance."""
    seed: int
    """Of everything that is drawn in it."""
    scenes: frozenset[int] = frozenset()
    """Steps of a walk whose screens are taught; empty for an episode, which is taught whole."""

    @property
    def id(self) -> str:
        """Unique in its synthesis, e.g. "walk/12"."""
        return f"{self.kind}/{self.number}"


def units_of(config: SynthConfig) -> list[Unit]:
    """All units in the order in which their rows are kept: walks first, then episodes."""
    return [*_walks(config), *_episodes(config)]


def instances_of(units: list[Unit]) -> list[Instance]:
    """What the check against the evaluation splits looks at before anything is made."""
    return [Instance(task=unit.task, seed=unit.instance, source=unit.id) for unit in units]


def _walks(config: SynthConfig) -> list[Unit]:
    seeds, tasks = Seeds(config.seed), config.tasks
    walks = []
    for number in range(-(-config.screens // SCREENS_PER_WALK)):
        task = tasks[number % len(tasks)]
        seed = derive(config.seed, "walk", number)
        taught = min(SCREENS_PER_WALK, config.screens - number * SCREENS_PER_WALK)
        walks.append(
            Unit(
                kind="walk",
                number=number,
                task=task,
                instance=seeds.task(task, number // len(tasks), epoch=_EXPLORATION),
                seed=seed,
                scenes=frozenset(random.Random(derive(seed, "scenes")).sample(range(WALK_STEPS + 1), taught)),
            )
        )
    return walks


def _episodes(config: SynthConfig) -> list[Unit]:
    seeds, tasks = Seeds(config.seed), config.tasks
    return [
        Unit(
            kind="episode",
            number=number,
            task=task,
            instance=seeds.task(task, number // len(tasks)),
            seed=derive(config.seed, "episode", number),
        )
        for number, task in ((number, tasks[number % len(tasks)]) for number in range(config.episodes))
    ]
