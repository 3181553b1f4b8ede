"""The interface between screens and rows: a `Teacher` makes rows from a `Scene`.

    async for scene in follow(suite, environment, task, seed=seed, mistakes=0.1):
        output = await teacher.teach(scene, "instruction")
        rows += output.rows
        refused += output.refused

`oracle_teacher.OracleTeacher` uses the environment's solutions, `llm_teacher.LanguageTeacher` a model. Their draws
depend on the scene's seed and the level alone, never on the order of calls.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol, TypeAlias

from collab.data.example import Example, Level, Provenance
from collab.envs.base import Environment, Suite
from collab.envs.random_actions import ENDINGS
from collab.synthesis.facts import ActionBuilder
from collab.types import Action, HistoryEntry, Observation, Task

Met: TypeAlias = Literal["exploration", "rollout", "mistake"]
"""How a screen was reached: by random actions, on the way through a task, or by a mistake there."""

SUITED: Mapping[Met, frozenset[Level]] = {
    "exploration": frozenset({"basic", "instruction"}),
    "rollout": frozenset({"basic", "instruction", "demonstration", "preference", "judgement"}),
    "mistake": frozenset({"demonstration", "preference", "judgement"}),
}
"""Levels that suit each kind of scene."""

Sort: TypeAlias = Literal["do", "complete", "answer"]
"""Kind of an instruction: something to do, something that is so already, a question."""

PLAYABLE = frozenset({"fork", "deterministic"})
"""Capabilities of suites whose screens can be reached again, and in which an instruction's effect was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInstruction:
    """An instruction that can be played again: a line of `instructions.jsonl`.

    Actions are texts of the suite's action space.
    """

    goal: str
    sort: Sort
    task: str
    """Name of the task in whose episode the screen was met."""
    seed: int
    """Seed of that task's instance."""
    max_steps: int
    """Step budget of that episode, by which a phone spreads its distractions."""
    before: tuple[str | None, ...]
    """Actions from the reset to the screen; null is a step without an action."""
    screen: str
    """`Observation.digest` of the screen."""
    actions: tuple[str, ...]
    """The teacher's, from the screen on; the last one ends the episode."""
    apps: tuple[str, ...]
    """As of the row's provenance."""
    teacher: str
    """"oracle", or the name of the teacher's agents file."""
    row: str
    """Id of the row in `instruction.parquet`."""

    @property
    def name(self) -> str:
        """Name as a task: a hash of everything but the row, so that equal instructions have equal names."""
        content = {name: value for name, value in asdict(self).items() if name != "row"}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return f"instruction-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


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
    taken: tuple[Action | None, ...] = ()
    """The same actions, each canonical on the screen it was made for; None is a step without an action."""
    met: Met
    seed: int
    """Seed of everything that is drawn on this scene."""

    @property
    def last(self) -> Action | None:
        """The action executed last; None at the start."""
        return self.taken[-1] if self.taken else None

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

    def store_instruction(
        self, goal: str, sort: Sort, actions: Sequence[Action], row: Example
    ) -> tuple[StoredInstruction, ...]:
        """Return an instruction on this screen as a task; empty where it cannot be played again.

        Args:
            actions: the teacher's, each canonical on its screen. Behind them the task is declared complete, unless the
                last one does so.
            row: of the instruction.
        """
        space = self.suite.space
        done = ActionBuilder(space).declare_done()
        if not PLAYABLE <= self.suite.capabilities or done is None:
            return ()
        closing, write = [] if actions[-1].type in ENDINGS else [done], space.format
        found = StoredInstruction(
            goal=goal,
            sort=sort,
            task=self.task.name,
            seed=self.task.seed,
            max_steps=self.task.max_steps,
            before=tuple(None if action is None else write(action) for action in self.taken),
            screen=self.observation.digest,
            actions=tuple(write(action) for action in (*actions, *closing)),
            apps=row.provenance.apps,
            teacher=row.provenance.teacher,
            row=row.id,
        )
        return (found,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherOutput:
    """A teacher's rows of a scene."""

    rows: tuple[Example, ...] = ()
    instructions: tuple[StoredInstruction, ...] = ()
    """Those of the rows that can be played as tasks."""
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

    async def teach(self, scene: Scene, level: Level) -> TeacherOutput:
        """Make rows of one level.

        Deterministic for a scene and level, if its model is. Refused rows are counted and never raise.

        Raises:
            EnvironmentFailure: the scene's environment broke.
            ModelFailure: the teacher's model cannot be reached.
        """
        ...
