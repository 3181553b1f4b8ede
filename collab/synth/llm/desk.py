"""What a teaching model works with: whom it asks, with which prompts, and for which policy."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from collab.errors import ModelFailure
from collab.prompts.render import Context
from collab.synth.llm.caller import Caller
from collab.synth.llm.prompts import TeacherPrompts
from collab.synth.reader import Reader
from collab.synth.teacher import Scene
from collab.types import Prompt

TOO_LONG = "the task does not fit into the context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Shared by all roles."""

    name: str
    """Of the agents file that teaches."""
    caller: Caller
    prompts: TeacherPrompts
    reader: Reader
    """The policy that rows are made for."""

    def decision(self, scene: Scene, goal: str | None = None) -> Prompt | None:
        """What the policy would read on a scene, hearing nobody.

        Args:
            goal: asked for on this screen instead of the scene's task and without its history; None for the task.

        Returns:
            None when not even the task alone fits into the policy's context.
        """
        context = Context(
            goal=scene.task.goal if goal is None else goal,
            space=scene.suite.space,
            observation=scene.observation,
            history=scene.history if goal is None else (),
        )
        with contextlib.suppress(ModelFailure):
            return self.reader.decision(context, self.reader.alone(), {})
        return None
