"""From a recipe and what is tokenised to the steps of a training: how much of it at once, in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from collab.learn.examples import Encoded, Pair
from collab.learn.order import Batch, Step, curriculum, mixed
from collab.learn.prefix import packed_tokens
from collab.learn.preset import DpoRecipe, Recipe, SftRecipe
from collab.learn.states import by_state

RecipeT = TypeVar("RecipeT", bound=Recipe)


def steps_of(recipe: Recipe, encoded: Encoded[Any], *, seed: int, processes: int) -> list[Step]:
    """The order of a training.

    Raises:
        ConfigError: a level has too few rows for all processes.
    """
    if shares(recipe):
        return _by_state(recipe, encoded, seed, processes)
    groups, lengths = encoded.groups, [len(item) for item in encoded.items]
    batch = Batch(
        rows=recipe.batch_rows, tokens=recipe.batch_tokens, window=recipe.window, parts=passes_of(recipe, processes)
    )
    if not isinstance(recipe, SftRecipe):
        passes: Mapping[str, float] = {name: float(recipe.epochs) for name in groups}
        return curriculum(lengths, groups, passes, batch=batch, seed=seed)
    passes = {
        level: recipe.epochs * recipe.weights_by_level.get(level, 1.0) for level in recipe.levels if level in groups
    }
    if recipe.order == "mixed":
        return mixed(lengths, groups, passes, epochs=recipe.epochs, batch=batch, seed=seed)
    return curriculum(lengths, groups, passes, batch=batch, seed=seed)


def fitted(recipe: RecipeT, rows: int, processes: int) -> tuple[RecipeT, int]:
    """A recipe and a number of processes for so many rows of one level, one at least: few make one smaller step.

    Args:
        processes: at most.

    Returns:
        A recipe that leaves something to each process in every step, and how many processes that are.
    """
    processes = min(processes, rows)
    most = rows // processes * processes
    return recipe.model_copy(update={"batch_rows": min(recipe.batch_rows, most)}), processes


def shares(recipe: Recipe) -> bool:
    """Whether pairs of a forward pass are computed once in what they share."""
    return isinstance(recipe, DpoRecipe) and recipe.sharing == "prefix"


def shared_tokens(items: Sequence[Any]) -> int:
    """Tokens of pairs that are computed together, what they share counted once."""
    return packed_tokens([side for item in items for side in item.sides])


def passes_of(recipe: Recipe, processes: int) -> int:
    """Forward passes of each step that shares nothing, a multiple of the number of processes."""
    return math.ceil(recipe.batch_rows / (_at_once(recipe, processes) * processes)) * processes


def _by_state(recipe: Recipe, encoded: Encoded[Pair], seed: int, processes: int) -> list[Step]:
    items = encoded.items
    return by_state(
        encoded.groups,
        [item.state for item in items],
        lambda unit: shared_tokens([items[row] for row in unit]),
        dict.fromkeys(encoded.groups, recipe.epochs),
        batch=Batch(rows=recipe.batch_rows, tokens=recipe.batch_tokens, window=recipe.window, parts=processes),
        most=_at_once(recipe, processes),
        seed=seed,
    )


def _at_once(recipe: Recipe, processes: int) -> int:
    """Rows of a forward pass at most."""
    return recipe.rows_at_once or math.ceil(recipe.batch_rows / processes)
