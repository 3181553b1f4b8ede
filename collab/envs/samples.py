"""Random valid actions: what a clumsy user would do. Used to rehearse, to test and to measure."""

from __future__ import annotations

import random
from collections.abc import Sequence

from collab.envs.actions import ActionSpace, ActionSpec, FieldSpec
from collab.types import Action, Observation, Scalar

WORDS = ("hello", "note", "7", "Settings", "Ada Lovelace", "2023-10-15", "milk and bread")
"""What a clumsy user types when nothing better is known."""


def random_action(
    space: ActionSpace,
    observation: Observation,
    rng: random.Random,
    *,
    ending: bool = True,
    words: Sequence[str] = WORDS,
) -> Action:
    """Draw an action that parses and whose element exists; uniform over types, then over elements and fields.

    Args:
        ending: whether actions that end the episode (status, finish) may be drawn.
        words: what text fields are filled with.
    """
    types = [spec for spec in space.specs if _possible(spec, observation) and (ending or spec.name not in ENDINGS)]
    spec = rng.choice(types)
    fields: dict[str, object] = {field.name: _value(field, rng, words) for field in spec.fields if not field.optional}
    if spec.target == "required" or (spec.target == "optional" and observation.elements and rng.random() < 0.5):
        fields[space.index_field] = rng.randrange(len(observation.elements))
    return space.make(spec.name, **fields)


ENDINGS = frozenset({"status", "finish"})
"""Action types by which an agent ends its episode."""


def _possible(spec: ActionSpec, observation: Observation) -> bool:
    return spec.target != "required" or bool(observation.elements)


def _value(field: FieldSpec, rng: random.Random, words: Sequence[str]) -> Scalar:
    if field.choices:
        return rng.choice(field.choices)
    if field.kind == "integer":
        return rng.randrange(4)
    if field.kind == "boolean":
        return rng.random() < 0.5
    return rng.choice(words)
