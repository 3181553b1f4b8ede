"""Two instructions in one sentence, asked at the start, halfway and at the end.

A policy that was only ever asked for one step takes the first one again and again. Both steps are really taken, on
forks of the scene's environment, so that each prompt shows the screen and the history that belong to it.

    for moment in await two_steps(scene, first, rng):
        book.decide(…, moment.instruction.action)
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

from collab.credit.wording import reason
from collab.envs.base import Forkable
from collab.rollout import told
from collab.synth.hands import Hands
from collab.synth.instructions import Instruction, proposals
from collab.synth.phrases import PHRASES
from collab.synth.teacher import Scene
from collab.synth.trial import changes, tried
from collab.types import Action, HistoryEntry, StepResult

_TRIES = 4
"""Second steps that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A screen on the way, and what is to be done there."""

    scene: Scene
    instruction: Instruction


async def two_steps(scene: Scene, first: Instruction, rng: random.Random) -> tuple[Moment, ...]:
    """The three moments of an instruction and one that can follow it.

    Args:
        first: of sort "do"; its action is canonical on the scene.

    Returns:
        Empty where the environment cannot fork, nothing follows, or the space has no word for being done.

    Raises:
        EnvironmentFailure: the environment broke.
    """
    done = Hands(scene.suite.space).done()
    if not isinstance(scene.environment, Forkable) or done is None:
        return ()
    fork = await scene.environment.fork()
    try:
        result = await fork.step(first.action)
        if result.done:
            return ()
        halfway = replace(_after(replace(scene, history=()), first.action, result), environment=fork)
        found = await _follows(halfway, rng)
    finally:
        await fork.close()
    if found is None:
        return ()
    second, result = found
    goal = joined(first.goal, second.goal, rng)
    end = _after(halfway, second.action, result)
    return tuple(
        Moment(
            scene=met,
            instruction=Instruction(sort="do", goal=goal, action=action, history=history),
        )
        for met, action, history in (
            (scene, first.action, ()),
            (halfway, second.action, halfway.history),
            (end, done, end.history),
        )
    )


def joined(first: str, second: str, rng: random.Random) -> str:
    """Two wordings as one: "Tap OK and go back."."""
    verb = second.split()[0]
    if verb not in _VERBS or _NAME_FIRST.match(second) or rng.random() < 0.25:
        return f"{first} {second}"
    joint = rng.choice((" and ", " and then ", ", then "))
    return f"{first.removesuffix('.').removesuffix(', please')}{joint}{verb.lower()}{second[len(verb) :]}"


async def _follows(scene: Scene, rng: random.Random) -> tuple[Instruction, StepResult] | None:
    """An instruction for the screen that makes a difference there, and does not end the episode."""
    for second in proposals(scene, rng)["do"][:_TRIES]:
        second = replace(second, action=scene.suite.space.canonical(second.action, scene.observation))
        result = await tried(scene, second.action)
        if result is not None and changes(scene, result) and not result.done:
            return second, result
    return None


def _after(scene: Scene, action: Action, result: StepResult) -> Scene:
    """The screen that an action led to; its environment is still that of the scene."""
    space, before = scene.suite.space, scene.observation
    entry: HistoryEntry = told(space, before, action, reason(action, before, space), result)
    return replace(
        scene,
        step=scene.step + 1,
        observation=result.observation,
        history=(*scene.history, entry),
        last=action,
        seed=scene.seed,
    )


_VERBS = frozenset(
    wording.split()[0] for wordings in PHRASES.values() for wording in wordings if not wording.startswith("{")
) - {"I", "On", "One", "Is", "What", "Which"}
"""Words that begin a wording and are small within a sentence."""
_NAME_FIRST = re.compile(r'[^"]*( should be |: ")')
"""Wordings that begin with a name, which may be such a word and keeps its capital."""
