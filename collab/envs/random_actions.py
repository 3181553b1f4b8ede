"""Random actions: valid ones, as a clumsy user would take, and junk. Used to rehearse, to test and to measure."""

from __future__ import annotations

import random
from collections.abc import Sequence

from collab.envs.base import HasOracle
from collab.envs.grammar import ActionSpace, ActionSpec, FieldSpec
from collab.types import Action, Observation, Scalar

WORDS = ("hello", "note", "7", "Settings", "Ada Lovelace", "2023-10-15", "milk and bread")
"""What a clumsy user types when nothing better is known."""


def draw_action(
    space: ActionSpace,
    observation: Observation,
    rng: random.Random,
    *,
    ending: bool = True,
    words: Sequence[str] = WORDS,
) -> Action:
    """Draw a listed action whose element exists; uniform over types, then over elements and fields.

    Args:
        ending: whether actions that end the episode (status, finish) may be drawn.
        words: what text fields are filled with.
    """
    types = [
        spec for spec in space.listed_specs if _is_possible(spec, observation) and (ending or spec.name not in ENDINGS)
    ]
    spec = rng.choice(types)
    fields: dict[str, object] = {
        field.name: _draw_value(field, rng, words) for field in spec.fields if not field.optional
    }
    if spec.target == "required" or (spec.target == "optional" and observation.elements and rng.random() < 0.5):
        fields[space.index_field] = rng.randrange(len(observation.elements))
    return space.make(spec.name, **fields)


def draw_mixed_action(
    space: ActionSpace, solver: HasOracle, observation: Observation, rng: random.Random, *, ending: bool = True
) -> Action:
    """Draw the solution's next action or a random valid one that ends nothing, at even odds.

    Args:
        solver: the environment, which knows its solution.
        ending: whether a solution's last action may be drawn.
    """
    plan = solver.oracle() if rng.random() < 0.5 else None
    if plan and (ending or len(plan) > 1):
        return plan[0]
    return draw_action(space, observation, rng, ending=False)


def draw_junk_action(space: ActionSpace, observation: Observation, rng: random.Random) -> Action | None:
    """Draw an action that parses, valid or not.

    Usually a random valid action, which may end the episode. Otherwise None, a missing element, a point outside the
    screen, or an unusual text.
    """
    aimed = [
        spec.name
        for spec in space.listed_specs
        if spec.target == "required" and all(field.optional for field in spec.fields)
    ]
    dice = rng.random()
    if dice < 0.1 or not aimed:
        return None
    if dice < 0.25:
        beyond = len(observation.elements) + rng.choice((0, 1, 10_000))
        return space.make(rng.choice(aimed), **{space.index_field: beyond})
    if dice < 0.4 and space.points:
        x = rng.choice((-1, 0, observation.width - 1, observation.width, 10**6))
        y = rng.choice((-5.5, 0, observation.height / 2, observation.height))
        return space.make(rng.choice(aimed), x=x, y=y)
    return draw_action(space, observation, rng, words=NASTY_WORDS)


NASTY_WORDS = ("", " ", "x" * 500, "a\nb\t'\"\\", "😀 שלום", "%s {0} <b>", "'; DROP TABLE notes; --")
"""Texts that break careless code."""

ENDINGS = frozenset({"status", "finish"})
"""Action types by which an agent ends its episode."""


def _is_possible(spec: ActionSpec, observation: Observation) -> bool:
    return spec.target != "required" or bool(observation.elements)


def _draw_value(field: FieldSpec, rng: random.Random, words: Sequence[str]) -> Scalar:
    if field.choices:
        return rng.choice(field.choices)
    if field.kind == "integer":
        return rng.randrange(4)
    if field.kind == "boolean":
        return rng.random() < 0.5
    return rng.choice(words)
