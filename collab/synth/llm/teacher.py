"""A language model as a teacher (CollabUIAgents, Appendix B): `LanguageTeacher`.

    basic          one call per screen: questions about it and about some of its elements
    instruction    one call per screen: one-step instructions with reason and action
    demonstration  the steps of an episode that the model played by itself and solved
    preference     its steps that the critic rewards, against a clumsy agent's

Whatever it says is checked, and what does not hold is counted by its cause (`collab.synth.llm.checks`). Deviations
from the paper: prompts of our own; replies are JSON; demonstrations, which the paper does not have, come from solved
episodes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from collab.envs.base import Environment, Suite
from collab.synth.llm.basics import teach_basics
from collab.synth.llm.checks import Decided
from collab.synth.llm.desk import Desk
from collab.synth.llm.instructions import teach_instructions
from collab.synth.llm.play import Played, Taken, play, replay
from collab.synth.llm.process import prefer, propose, step_row
from collab.synth.rows import LEVELS, Level
from collab.synth.teacher import Lesson, Scene
from collab.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageTeacher:
    """Teaches by asking a model; what it draws depends on the scene's seed alone."""

    desk: Desk
    elements: int = 4
    """Of a screen about which something is asked."""
    instructions: int = 8
    """That are asked for per screen."""
    levels: frozenset[Level] = frozenset(LEVELS)
    _played: dict[tuple[str, int], Played] = field(default_factory=dict)
    """Episodes whose screens are being met again, by task and seed."""

    @property
    def name(self) -> str:
        """Name of the agents file whose model teaches."""
        return self.desk.name

    async def teach(self, scene: Scene, level: Level) -> Lesson:
        """Rows of one level; see `collab.synth.teacher.Teacher`."""
        if level == "basic":
            return await teach_basics(self.desk, scene, self.elements)
        if level == "instruction":
            return await teach_instructions(self.desk, scene, self.instructions)
        if level == "demonstration":
            return self._demonstrate(scene)
        taken = self._taken(scene)
        proposed = taken.decided if taken and taken.decided else await propose(self.desk, scene)
        if not isinstance(proposed, Decided):
            return Lesson(refused=proposed)
        return await prefer(self.desk, scene, proposed)

    async def follow(
        self, suite: Suite, environment: Environment, task: Task, *, seed: int
    ) -> AsyncIterator[Scene | Lesson]:
        """Play an episode by the model's own proposals, then meet its screens again one by one.

        Yields:
            First what was refused on the way, then a scene for every step that was taken.

        Raises:
            EnvironmentFailure, ModelFailure: as they come.
        """
        if "deterministic" not in suite.capabilities:
            yield Lesson(refused=Counter({"the world cannot be played a second time": 1}))
            return
        played = await play(suite, environment, task, seed=seed, propose=lambda scene: propose(self.desk, scene))
        yield Lesson(refused=played.refused)
        key = (task.name, task.seed)
        self._played[key] = played
        try:
            async for scene in replay(suite, environment, task, played, seed=seed):
                yield scene
        finally:
            del self._played[key]

    def _taken(self, scene: Scene) -> Taken | None:
        played = self._played.get((scene.task.name, scene.task.seed))
        return played.steps[scene.step] if played else None

    def _demonstrate(self, scene: Scene) -> Lesson:
        played, taken = self._played.get((scene.task.name, scene.task.seed)), self._taken(scene)
        if played is None or taken is None or taken.decided is None:
            return Lesson(refused=Counter({"nobody knows how the episode ends": 1}))
        if not played.success:
            return Lesson(refused=Counter({"a step of an episode that was not solved": 1}))
        if not taken.changed:
            return Lesson(refused=Counter({"a step that changed nothing": 1}))
        return step_row(self.desk, scene, "demonstration", taken.decided)
