"""The interface between screens and rows: a `Teacher` makes rows from a `Scene`.

    async for scene in follow(suite, environment, task, seed=seed, mistakes=0.1):
        lesson = await teacher.teach(scene, "instruction")
        rows += lesson.rows
        refused += lesson.refused

`oracle_teacher.OracleTeacher` uses the environment's solutions, `llm_teacher.LanguageTeacher` a model. Their draws
depend on the scene's seed and the level alone, never on the order of calls.
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
"""How a screen was reached: by random actions, on the way through a task, or by a mistake there."""

SUITED: Mapping[Met, frozenset[Level]] = {
    "exploration": frozenset({"basic", "instruction"}),
    "rollout": frozenset({"basic", "instruction", "demonstration", "preference"}),
    "mistake": frozenset({"demonstration", "preference"}),
}
"""Levels that suit each kind of scene."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A screen, and how it was reached."""

    suite: Suite
    environment: Environment
    """In the scene's state until the next scene is requested. Teachers read and fork it, and never step it."""
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
        """Return the provenance of this scene's rows."""
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
    """A teacher's rows of a scene."""

    rows: tuple[Example, ...] = ()
    refused: Mapping[str, int] = field(default_factory=Counter)
    """Cause of a refused row → count. Causes hold no data of the case, so that they add up: "the reply is not JSON"."""


class Teacher(Protocol):
    """Makes rows of screens."""

    @property
    def name(self) -> str:
        """Name in rows: "oracle", or the teacher's agents file."""

    @property
    def levels(self) -> frozenset[Level]:
        """Levels that it can teach."""

    async def teach(self, scene: Scene, level: Level) -> Lesson:
        """Make rows of one level.

        Deterministic for a scene and level, if its model is. Refused rows are counted and never raise.

        Raises:
            EnvironmentFailure: the scene's environment broke.
            ModelFailure: the teacher's model cannot be reached.
        """
        ...
