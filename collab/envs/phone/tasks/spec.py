"""What a task is: how an instance is drawn, set up, judged and solved."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from collab.envs.phone.screen import Frame
from collab.envs.phone.state import Phone
from collab.types import Action

Params: TypeAlias = Mapping[str, Any]
Draw: TypeAlias = Callable[[random.Random], dict[str, Any]]
Prepare: TypeAlias = Callable[[Phone, Params, random.Random], Phone]
Score: TypeAlias = Callable[[Phone, Phone, Params], float]
Plan: TypeAlias = Callable[[Frame, Params, Phone], Action]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task of AndroidWorld's by its name there, or one from outside."""

    name: str
    apps: tuple[str, ...]
    complexity: float
    """The step budget is int(10 · complexity)."""
    difficulty: str
    goal: Callable[[Params, random.Random], str]
    """Words for the goal; several phrasings, one is drawn."""
    draw: Draw
    """Parameters of an instance, under AndroidWorld's names."""
    prepare: Prepare
    """The initial state, from a fresh phone."""
    score: Score
    """(phone at the start, phone at the end, parameters) → [0, 1]."""
    plan: Plan
    """(what is on the screen, parameters, phone at the start) → the next best action; raises `Lost` when there is
    none."""
    verify: bool = False
    """Whether the goal already holds at the start and only has to be confirmed."""
    wave: int = 1
    """Portion of AndroidWorld's tasks it belongs to: 1 or 2; a tag selects by it. Means nothing for others."""

    @property
    def max_steps(self) -> int:
        """Step budget."""
        return int(10 * self.complexity)


def phrasings(*templates: str) -> Callable[[Params, random.Random], str]:
    """Goals from templates with parameters in braces."""

    def goal(params: Params, rng: random.Random) -> str:
        return rng.choice(templates).format(**params)

    return goal


def nothing_drawn(rng: random.Random) -> dict[str, Any]:
    """For tasks without parameters."""
    return {}


def as_it_is(phone: Phone, params: Params, rng: random.Random) -> Phone:
    """For tasks that start from a fresh phone."""
    return phone


def similar(first: str, second: str) -> bool:
    """AndroidWorld's fuzzy rule: difflib ratio ≥ 0.9, regardless of case."""
    return difflib.SequenceMatcher(None, first.lower(), second.lower()).ratio() >= 0.9
