"""The size of a step for few rows and for several processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.trainers.batching import Batch, count_passes, fit_recipe, order_by_state, order_curriculum
from collab.trainers.recipe import load_preset

PAPER = load_preset("paper-qwen2-7b").dpo


@given(
    rows=st.integers(1, 60),
    batch=st.integers(1, 40),
    at_once=st.one_of(st.none(), st.integers(1, 9)),
    wanted=st.integers(1, 8),
)
def test_what_is_fitted_can_be_trained(rows, batch, at_once, wanted) -> None:
    """Whatever the recipe and however few the rows, every step leaves each process something, and no row is lost."""
    recipe = PAPER.model_copy(update={"batch_rows": batch, "rows_at_once": at_once})
    fitting, processes = fit_recipe(recipe, rows, wanted)
    assert 1 <= processes <= wanted
    groups, passes = {"preference": range(rows)}, {"preference": 1}
    parts = count_passes(fitting, processes)
    size = Batch(rows=fitting.batch_rows, tokens=None, window=2, parts=parts)
    for steps in (
        order_curriculum([5] * rows, groups, passes, batch=size, seed=0),
        order_by_state(
            groups,
            range(rows),
            len,
            passes,
            batch=Batch(rows=batch, tokens=None, window=2, parts=processes),
            most=at_once or batch,
            seed=0,
        ),
    ):
        assert sorted(row for step in steps for row in step.rows) == list(range(rows))
        assert all(len(step.parts) % processes == 0 and all(step.parts) for step in steps)


@pytest.mark.parametrize(("rows", "expected"), [(100, (32, 8)), (27, (24, 8)), (8, (8, 8)), (3, (3, 3))])
def test_by_hand(rows: int, expected: tuple[int, int]) -> None:
    """The paper's 32 pairs, one at once, over eight GPUs."""
    fitting, processes = fit_recipe(PAPER, rows, 8)
    assert (fitting.batch_rows, processes) == expected
    assert count_passes(fitting, processes) == fitting.batch_rows
