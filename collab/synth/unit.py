"""One unit of work: its screens, what is taught on them, and what was refused.

A walk explores and is taught at the steps that its unit names; an episode is followed along the environment's
solution, or the way that the teacher finds by itself, and taught on every screen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, runtime_checkable

from collab.envs.base import Environment, Suite
from collab.splits.overlap import HeldOut, words_of
from collab.synth.journal import Done
from collab.synth.plan import WALK_STEPS, SynthConfig, Unit
from collab.synth.rows import LEVELS, Level, Row
from collab.synth.scenes import explore, follow
from collab.synth.teacher import SUITED, Lesson, Scene, Teacher
from collab.types import Task

KEPT_WORD = "a word that is kept for evaluation"
"""Cause of a refusal: the teacher said it, and nothing on the screen or in the task does."""


ItemT = TypeVar("ItemT")


@runtime_checkable
class Player(Protocol):
    """A teacher that finds its own way through a task instead of following the environment's."""

    def follow(self, suite: Suite, environment: Environment, task: Task, *, seed: int) -> AsyncIterator[Scene | Lesson]:
        """The scenes of an episode, and what was refused on the way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What units are made with."""

    suite: Suite
    teacher: Teacher
    kept: Sequence[HeldOut] = ()
    """What training must not touch."""


async def make(unit: Unit, environment: Environment, config: SynthConfig, workshop: Workshop) -> Done:
    """All rows of a unit; the same unit gives the same rows, as far as the teacher is deterministic.

    Raises:
        EnvironmentFailure: the environment broke.
        ModelFailure: the teacher's model cannot be reached.
    """
    rows: list[Row] = []
    refused: dict[str, Counter[str]] = {}
    screens = 0
    async with _closing(_met(unit, environment, config, workshop)) as met:
        async for item in met:
            if isinstance(item, Lesson):
                refused.setdefault(_played_for(config), Counter()).update(item.refused)
                continue
            screens += 1
            for level in _levels(item, config, workshop.teacher):
                lesson = await workshop.teacher.teach(item, level)
                kept, words = _without_kept_words(lesson, item, workshop.kept)
                rows += kept
                if words or lesson.refused:
                    refused.setdefault(level, Counter()).update(lesson.refused)
                    refused[level].update({KEPT_WORD: words} if words else {})
            await asyncio.sleep(0)  # nothing above may have waited, and somebody may want to stop
    return Done(unit=unit.id, rows=tuple(rows), refused=refused, screens=screens)


async def _met(
    unit: Unit, environment: Environment, config: SynthConfig, workshop: Workshop
) -> AsyncIterator[Scene | Lesson]:
    """The scenes of a unit that are taught, and what was refused on the way to them."""
    suite, teacher = workshop.suite, workshop.teacher
    task = suite.instance(unit.task, unit.instance)
    if unit.kind == "walk":
        task = replace(task, max_steps=WALK_STEPS + 1)  # so that the task's own budget ends no walk
        async with _closing(explore(suite, environment, task, seed=unit.seed, steps=WALK_STEPS)) as scenes:
            async for scene in scenes:
                if scene.step in unit.scenes:
                    yield scene
    elif isinstance(teacher, Player):
        async with _closing(teacher.follow(suite, environment, task, seed=unit.seed)) as played:
            async for item in played:
                yield item
    else:
        async with _closing(follow(suite, environment, task, seed=unit.seed, mistakes=config.mistakes)) as scenes:
            async for scene in scenes:
                yield scene


def _played_for(config: SynthConfig) -> Level:
    """The level under which refusals on the way through an episode are counted."""
    return "demonstration" if "demonstration" in config.levels else config.levels[-1]


def _levels(scene: Scene, config: SynthConfig, teacher: Teacher) -> list[Level]:
    """What is taught on a scene, in the order of the curriculum."""
    return [level for level in LEVELS if level in config.levels and level in SUITED[scene.met] & teacher.levels]


def _without_kept_words(lesson: Lesson, scene: Scene, kept: Sequence[HeldOut]) -> tuple[list[Row], int]:
    """The rows in which the teacher does not say a kept word of its own accord, and how many others there were.

    A word that the screen or the task says is a leak of the split and left for the check at the end to refuse.
    """
    words = frozenset(word for one in kept for word in one.words)
    own = words - words_of(scene.observation.text) - words_of(scene.task.goal)
    rows = [row for row in lesson.rows if not own & {word for text in row.instance.texts for word in words_of(text)}]
    return rows, len(lesson.rows) - len(rows)


@contextlib.asynccontextmanager
async def _closing(items: AsyncIterator[ItemT]) -> AsyncIterator[AsyncIterator[ItemT]]:
    """Close a generator that is not read to its end at once, and not when it is collected."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
