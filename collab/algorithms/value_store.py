"""Values of tokens from epoch to epoch: an algorithm's value model, beside the lesson of each policy.

    model, start = load_values(state, group, number, recipe)        # as the epoch before left it, or new
    ...                                                             # value, then fit
    save_values(state, group, number, model, start, metrics)

An epoch leaves `values/` with the optimizer's moments and `values.json` with metrics, which is written last. A killed
epoch begins with the values of the one before; older ones are removed. Values that are no numbers end no training: the
epoch's policies keep their weights, its record says why, and the next epoch begins with new values.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collab.algorithms.turn_learner import TurnMethod, get_lesson_dir
from collab.config import Definition
from collab.errors import Diverged, RunFormatError
from collab.loop.checks import build_empty_policy
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import TriedStep
from collab.loop.policy import Policy
from collab.loop.state import LoopState
from collab.trainers.recipe import TokenValueRecipe
from collab.utils.files import read_json, report_write_errors, write_json

if TYPE_CHECKING:
    from collab.trainers.base_model import Base
    from collab.trainers.rl.token_values import Floats, TokenValues, ValueRow

VALUES, METRICS = "values", "values.json"
"""Beside a lesson."""
NO_NUMBERS = "its values are no numbers"


def check_values(config: TrainingConfig, first: Policy, recipe: TokenValueRecipe) -> None:
    """Refuse, before anything is played, checkpoints that cannot carry values; ConfigError as of `check_shape`."""
    from collab.trainers.rl.token_values import check_shape

    for slots in config.groups.values():
        base = first.of(slots)
        check_shape(recipe, build_empty_policy(base), base)


def load_values(state: LoopState, group: str, number: int, recipe: TokenValueRecipe) -> tuple[TokenValues, int | None]:
    """Return the values that the last epoch with any left, and that epoch; new ones, and None, before that.

    Raises:
        RunFormatError: an epoch had values, and they are gone.
    """
    from collab.trainers.rl.token_values import TokenValues

    for epoch in range(number - 1, 0, -1):
        place = get_lesson_dir(state.folder, epoch, group)
        if (place / VALUES).exists():
            return TokenValues.load(place / VALUES, recipe, _open_base(state, group), device=state.device), epoch
        if (place / METRICS).exists():
            raise RunFormatError(
                f"{place / VALUES}: epoch {number} begins with these values, and they are gone; put them back, or "
                "begin another training"
            )
    return make_values(state, group, recipe), None


def make_values(state: LoopState, group: str, recipe: TokenValueRecipe) -> TokenValues:
    """Return new values, 0 everywhere."""
    from collab.trainers.rl.token_values import TokenValues

    return TokenValues(recipe, _open_base(state, group), device=state.device)


def _open_base(state: LoopState, group: str) -> Base:
    from collab.trainers.base_model import open_base

    method = state.config.method
    assert isinstance(method, TurnMethod), "only learners of turns have values"
    return open_base(state.first.of(state.config.groups[group]), method.rl)


def compute_values(model: TokenValues, rows: Sequence[ValueRow]) -> tuple[list[Floats] | None, str | None]:
    """Return the values at the places of each row, and None; or None, and why they are no numbers."""
    try:
        return model.compute(rows), None
    except Diverged as diverged:
        return None, diverged.what


def save_values(
    state: LoopState, group: str, number: int, model: TokenValues, start: int | None, metrics: Definition
) -> None:
    """Write an epoch's values and metrics, and remove values that no epoch begins with any more.

    Args:
        start: the epoch whose values this one began with; None for none.

    Raises:
        StoreFailure: the disk is full or permissions are missing.
    """
    place = get_lesson_dir(state.folder, number, group)
    with report_write_errors(place, state.folder.resume):
        model.save(place / VALUES)
        write_json(place / METRICS, metrics.model_dump(mode="json"))
        # Those that this epoch began with stay: it would begin with them again.
        for epoch in range(1, number if start is None else start):
            shutil.rmtree(get_lesson_dir(state.folder, epoch, group) / VALUES, ignore_errors=True)


def read_value_metrics(state: LoopState, number: int, group: str) -> dict[str, Any]:
    """Return the metrics of an epoch's values; empty if it has none."""
    path = get_lesson_dir(state.folder, number, group) / METRICS
    found: dict[str, Any] = read_json(path, "remove the epoch's examples") if path.exists() else {}
    return found


def advise_lower_rate(why: str | None) -> str | None:
    """Return why values let a policy learn nothing, with the next move; None if they let it learn."""
    return None if why is None else f"{why}; a lower values.learning_rate, in another training, may mend that"


def time_fit(config: TrainingConfig, tried: TriedStep, recipe: TokenValueRecipe, row: ValueRow) -> tuple[float, float]:
    """Return the seconds per row of a pass of a fit, and of reading values, for `--plan`."""
    from collab.trainers.base_model import open_base
    from collab.trainers.rl.token_values import TokenValues

    method = config.method
    assert isinstance(method, TurnMethod), "only learners of turns have values"
    base = open_base(tried.policy.of(next(iter(config.groups.values()))), method.rl)
    # At a rate of 0 a fit takes as long, and cannot diverge.
    still = recipe.model_copy(update={"learning_rate": 0.0})
    model, rows = TokenValues(still, base, device=tried.device), [row] * recipe.rows_at_once
    model.fit(rows, [1.0] * len(rows), seed=0, passes=1)  # the first computation also takes what a library sets up once
    began = time.perf_counter()
    known = model.compute(rows)
    read = time.perf_counter()
    model.fit(rows, [1.0] * len(rows), seed=0, passes=1, known=known)
    fit_s, read_s = time.perf_counter() - read, read - began
    # A fit reads as many rows once more, however many it learns.
    return max(0.0, fit_s - read_s) / len(rows), read_s / len(rows)
