"""The seam between screens and rows: a `Scene` is a screen as it was met, a `Teacher` makes rows of it.

    async for scene in follow(suite, environment, task, seed=seed, mistakes=0.1):
        lesson = await teacher.teach(scene, "instruction")
        rows += lesson.rows
        refused += lesson.refused

Two teachers fill the protocol: `oracle.OracleTeacher`, which knows the environment's solutions, and
`llm.teacher.LanguageTeacher`, which asks a model. What one draws on a scene depends on the scene's seed and the level
alone, never on the order of the calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from collab.data.example import Example, Level, Provenance
from collab.envs.base import Environment, Suite
from collab.types import Action, HistoryEntry, Observation, Task

Met: TypeAlias = Literal["exploration", "rollout", "mistake"]
"""How a screen was come to: by random actions, on the way through a task, or by a mistake on that way."""

SUITED: Mapping[Met, frozenset[Level]] = {
    "exploration": frozenset({"basic", "instruction"}),
    "rollout": frozenset({"basic", "instruction", "demonstration", "preference"}),
    "mistake": frozenset({"demonstration", "preference"}),
}
"""What a scene is good for; a level outside of it is possible where a teacher can tell the next action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A screen, and how it was come to."""

    suite: Suite
    environment: Environment
    """In the very state of the scene, until whoever yielded it goes on. Teachers look and fork, and never step it."""
    task: Task
    """With the goal as the environment states it."""
    step: int
    """Actions executed before."""
    observation: Observation
    history: tuple[HistoryEntry, ...] = ()
    """All executed actions as a prompt tells them, oldest first."""
    last: Action | None = None
    """The action executed last, canonical on the screen it was made for; None at the start."""
    met: Met
    seed: int
    """Of everything that is drawn on this scene."""

    @property
    def app(self) -> str:
        """The app or page that the screen belongs to: its title up to the first colon."""
        return self.observation.title.partition(":")[0].strip()

    def build_provenance(self, teacher: str, teacher_prompt: str | None = None) -> Provenance:
        """Where rows of this scene come from."""
        return Provenance(
            environment=self.suite.label,
            environment_version=self.suite.version,
            task=self.task.name,
            seed=self.task.seed,
            step=self.step,
            screen=self.observation.digest,
            apps=tuple(dict.fromkeys((*self.task.apps, *([self.app] if self.app else ())))),
            teacher=teacher,
            teacher_prompt=teacher_prompt,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a teacher made of a scene."""

    rows: tuple[Example, ...] = ()
    refused: Mapping[str, int] = field(default_factory=Counter)
    """Why something that could have become a row did not → how often. Short reasons without data of the case, so
    that they add up over scenes: "no way leads on", "the reply is not JSON"."""


class Teacher(Protocol):
    """Makes rows of screens."""

    @property
    def name(self) -> str:
        """As rows tell it: "oracle", or the name of the agents file whose model teaches."""

    @property
    def levels(self) -> frozenset[Level]:
        """What it can teach."""

    async def teach(self, scene: Scene, level: Level) -> Lesson:
        """Make rows of one level.

        The same scene and level give the same lesson, as far as what stands behind the teacher is deterministic.
        What cannot be taught is counted in `Lesson.refused` and never raises.

        Raises:
            EnvironmentFailure: the scene's environment broke.
            ModelFailure: the teacher's model cannot be reached.
        """
        ...
