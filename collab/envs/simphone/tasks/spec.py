"""Specification of a task: how an instance is drawn, set up, judged and solved.

Tasks that ask a question share how an answer is given, split and compared.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from collab.envs.grammar import MOBILE
from collab.envs.simphone.state import Phone
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

Params: TypeAlias = Mapping[str, Any]
Draw: TypeAlias = Callable[[random.Random], dict[str, Any]]
Prepare: TypeAlias = Callable[[Phone, Params, random.Random], Phone]
ScoreFunction: TypeAlias = Callable[[Phone, Phone, Params], float]
PlanFunction: TypeAlias = Callable[[Frame, Params, Phone], Action]


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
    score: ScoreFunction
    """(phone at the start, phone at the end, parameters) → [0, 1]."""
    plan: PlanFunction
    """(what is on the screen, parameters, phone at the start) → the next best action; raises `PlanError` when there is
    none."""
    verify: bool = False
    """Whether the goal already holds at the start and only has to be confirmed."""
    wave: int = 1
    """Portion of AndroidWorld's tasks it belongs to: 1 or 2; a tag selects by it. Means nothing for others."""

    @property
    def max_steps(self) -> int:
        """Step budget."""
        return int(10 * self.complexity)


def make_phrasings(*templates: str) -> Callable[[Params, random.Random], str]:
    """Return goals from templates with parameters in braces."""

    def goal(params: Params, rng: random.Random) -> str:
        return rng.choice(templates).format(**params)

    return goal


def draw_nothing(rng: random.Random) -> dict[str, Any]:
    """Draw nothing, for tasks without parameters."""
    return {}


def as_it_is(phone: Phone, params: Params, rng: random.Random) -> Phone:
    """Return the phone as it is, for tasks that start from a fresh phone."""
    return phone


def is_similar(first: str, second: str) -> bool:
    """Return AndroidWorld's fuzzy rule: difflib ratio ≥ 0.9, regardless of case."""
    return difflib.SequenceMatcher(None, first.lower(), second.lower()).ratio() >= 0.9


def say(texts: Sequence[str]) -> Action:
    """Answer with a list."""
    return MOBILE.make("answer", text=", ".join(texts))


def split_answer(phone: Phone) -> list[str]:
    """Return what the agent answered last, split at the commas; [] when it has not answered."""
    return [] if phone.answer is None else [part.strip() for part in phone.answer.split(",")]


def score_answers(phone: Phone, expected: Sequence[str]) -> float:
    """Return 1 when there are as many answers as expected, each similar to one (AndroidWorld's rule), else 0."""
    answers = split_answer(phone)
    found = all(any(is_similar(answer, one) for one in expected) for answer in answers)
    return float(bool(answers) and len(answers) == len(expected) and found)


def score_number(phone: Phone, expected: int) -> float:
    """Return 1 when the answer is this one number, else 0."""
    try:
        numbers = [float(answer) for answer in split_answer(phone)]
    except ValueError:
        return 0.0
    return float(numbers == [expected])


def find_move_paths(params: Params, root: str) -> tuple[str, str]:
    """Return where a file is that is to be moved to another folder of the root, and where it belongs."""
    name = params["file_name"]
    return f"{root}/{params['source_folder']}/{name}", f"{root}/{params['destination_folder']}/{name}"


def score_move(start: Phone, end: Phone, params: Params, *, root: str) -> float:
    """Return 1 if the file was moved, else 0."""
    source, target = find_move_paths(params, root)
    return float(source not in end.files and target in end.files)
