"""The order of training rows: each as often as asked, in steps within their limits."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import ConfigError
from collab.trainers.batching import Batch, count_padded, order_curriculum, order_mixed, select_process

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=120)
BATCHES = st.builds(
    Batch,
    rows=st.integers(1, 16),
    tokens=st.one_of(st.none(), st.integers(50, 2000)),
    window=st.integers(1, 5),
    parts=st.just(1),
)


@given(lengths=LENGTHS, batch=BATCHES, seed=st.integers(0, 3), times=st.sampled_from([0.5, 1.0, 1.5, 3.0]))
def test_every_row_is_seen_as_often_as_asked(lengths, batch, seed, times) -> None:
    rows = range(len(lengths))
    steps = order_curriculum(lengths, {"basic": rows}, {"basic": times}, batch=batch, seed=seed)
    seen = Counter(row for step in steps for row in step.rows)
    assert seen.total() == round(times * len(lengths))
    assert max(seen.values(), default=0) - min((seen[row] for row in rows), default=0) <= 1
    assert steps == order_curriculum(lengths, {"basic": rows}, {"basic": times}, batch=batch, seed=seed)


@given(lengths=LENGTHS, batch=BATCHES, seed=st.integers(0, 3))
def test_a_step_stays_within_its_limits(lengths, batch, seed) -> None:
    for step in order_curriculum(lengths, {"basic": range(len(lengths))}, {"basic": 2.0}, batch=batch, seed=seed):
        assert 1 <= len(step.rows) <= batch.rows
        assert batch.tokens is None or len(step.rows) == 1 or count_padded(lengths, step.rows) <= batch.tokens


@given(
    lengths=st.lists(st.integers(1, 400), min_size=12, max_size=120),
    rows=st.integers(1, 16),
    world=st.integers(1, 3),
    accumulated=st.integers(1, 4),
    window=st.integers(1, 4),
)
def test_processes_share_every_step_evenly(lengths, rows, world, accumulated, window) -> None:
    batch = Batch(rows=rows, tokens=None, window=window, parts=world * accumulated)
    steps = order_curriculum(lengths, {"basic": range(len(lengths))}, {"basic": 1.0}, batch=batch, seed=0)
    shares = [select_process(steps, rank, world) for rank in range(world)]
    assert {len(parts) for share in shares for parts in share} == {accumulated}
    assert {len(share) for share in shares} == {len(steps)}
    assert all(part for share in shares for parts in share for part in parts)
    assert sorted(row for share in shares for parts in share for part in parts for row in part) == list(
        range(len(lengths))
    )
    for step in steps:
        sizes = [len(part) for part in step.parts]
        assert max(sizes) - min(sizes) <= 1


def test_levels_come_one_after_the_other() -> None:
    groups = {"instruction": range(10, 20), "basic": range(10)}
    passes = {"basic": 2.0, "instruction": 1.0}
    steps = order_curriculum([5] * 20, groups, passes, batch=Batch(rows=4, tokens=None, window=2), seed=0)
    assert [step.group for step in steps] == ["basic"] * 6 + ["instruction"] * 3
    assert all((row < 10) == (step.group == "basic") for step in steps for row in step.rows)


def test_a_pass_ends_before_the_next_begins() -> None:
    steps = order_curriculum(
        [5] * 10, {"basic": range(10)}, {"basic": 2.0}, batch=Batch(rows=4, tokens=None, window=9), seed=0
    )
    order = [row for step in steps for row in step.rows]
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    assert order[:10] != order[10:]


def test_mixed_epochs_hold_each_level_by_its_weight() -> None:
    groups = {"basic": range(10), "instruction": range(10, 30)}
    steps = order_mixed(
        [5] * 30,
        groups,
        {"basic": 1.0, "instruction": 4.0},
        epochs=2,
        batch=Batch(rows=5, tokens=None, window=1),
        seed=1,
    )
    half = [row for step in steps[:9] for row in step.rows]
    assert len(steps) == 18
    assert Counter(row < 10 for row in half) == {True: 5, False: 40}
    assert {step.group for step in steps} == {"mixed"}


def test_rows_of_a_step_are_about_equally_long() -> None:
    lengths = [10 + number * 37 % 200 for number in range(400)]
    groups, passes = {"basic": range(400)}, {"basic": 1.0}

    def computed(window: int) -> int:
        batch = Batch(rows=10, tokens=None, window=window)
        steps = order_curriculum(lengths, groups, passes, batch=batch, seed=0)
        return sum(count_padded(lengths, step.rows) for step in steps)

    assert computed(20) < 1.06 * sum(lengths)
    assert computed(1) > 1.4 * sum(lengths)


def test_steps_of_all_lengths_alternate() -> None:
    steps = order_curriculum(
        list(range(1, 201)), {"basic": range(200)}, {"basic": 1.0}, batch=Batch(rows=10, tokens=None, window=50), seed=0
    )
    longest = [max(step.rows) for step in steps]
    assert longest != sorted(longest)


def test_too_few_rows_for_the_processes_are_one_line() -> None:
    with pytest.raises(ConfigError, match="basic: 2 rows are too few for 4 forward passes per step"):
        order_curriculum(
            [5, 5], {"basic": range(2)}, {"basic": 1.0}, batch=Batch(rows=8, tokens=None, window=1, parts=4), seed=0
        )
