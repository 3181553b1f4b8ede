"""Grouped batching keeps pairs of one state together; every step fits, and every process gets its share."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from collab.errors import ConfigError
from collab.trainers.batching import Batch, order_by_state, select_process
from collab.trainers.prepare import Prepared, prepare
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir
from collab.types import Segment

SIZES = st.lists(st.integers(1, 14), min_size=1, max_size=30)
"""Rows of each state."""


def ordered(sizes: list[int], *, rows: int, most: int, window=3, processes=1, tokens=None, times=1, seed=0):
    """Steps of so many rows of each state, one state's rows not beside each other; and the state of each row."""
    states = [state for place in range(max(sizes)) for state, size in enumerate(sizes) if place < size]

    def work(unit) -> int:
        return sum(20 for _ in {states[row] for row in unit}) + len(unit)

    batch = Batch(rows=rows, tokens=tokens, window=window, parts=processes)
    groups, passes = {"preference": range(len(states))}, {"preference": times}
    return order_by_state(groups, states, work, passes, batch=batch, most=most, seed=seed), states


@given(sizes=SIZES, rows=st.integers(1, 20), most=st.integers(1, 12), window=st.integers(1, 4), seed=st.integers(0, 3))
def test_pairs_of_a_state_are_together_where_they_fit(sizes, rows, most, window, seed) -> None:
    """One process: nothing but the limit tears a state apart, and then into as few pieces as there must be."""
    steps, states = ordered(sizes, rows=rows, most=most, window=window, seed=seed)
    limit = min(rows, most)
    pieces = Counter(state for step in steps for part in step.parts for state in {states[row] for row in part})
    for state, size in enumerate(sizes):
        assert 1 <= pieces[state] <= -(-size // limit)  # one where it fits
    for step in steps:
        assert len(step.rows) <= rows
        assert all(1 <= len(part) <= limit for part in step.parts)


@given(sizes=SIZES, rows=st.integers(1, 20), most=st.integers(1, 12), processes=st.integers(1, 3))
def test_every_row_is_seen_and_every_process_has_as_many_passes(sizes, rows, most, processes) -> None:
    if sum(sizes) < processes:
        return
    steps, states = ordered(sizes, rows=rows, most=most, processes=processes, times=2)
    assert Counter(row for step in steps for row in step.rows) == dict.fromkeys(range(len(states)), 2)
    for step in steps:
        assert len(step.parts) % processes == 0
        assert all(step.parts)
        assert len(step.rows) <= rows + 2 * (processes - 1)
        assert max(map(len, step.parts)) <= most or len(step.rows) < len(step.parts) + processes
    shares = [select_process(steps, rank, processes) for rank in range(processes)]
    assert {tuple(map(len, share)) for share in shares} == {tuple(len(step.parts) // processes for step in steps)}
    assert ordered(sizes, rows=rows, most=most, processes=processes, times=2)[0] == steps


@given(sizes=SIZES, tokens=st.integers(1, 200))
def test_a_step_stays_within_its_tokens(sizes, tokens) -> None:
    """What a state shares is counted once; a state that is too much by itself is a step of its own."""
    steps, states = ordered(sizes, rows=16, most=14, tokens=tokens)
    for step in steps:
        held = {states[row] for row in step.rows}
        assert 20 * len(held) + len(step.rows) <= tokens or len(held) == 1


def test_by_hand() -> None:
    """States of 3, 2 and 2 rows: one step, of passes of 3 and 4 where four rows fit, of 3, 2 and 2 where three do."""
    for most, sizes in ((4, [4, 3]), (3, [3, 2, 2])):
        ((step,), states) = ordered([3, 2, 2], rows=7, most=most)
        assert [len(part) for part in step.parts] == sizes
        assert sum(len({states[row] for row in part}) for part in step.parts) == 3


def test_processes_do_about_equal_work() -> None:
    """Eight states over two processes: each has four, and the larger passes come first on both."""
    ((step,), states) = ordered([5, 5, 4, 4, 3, 3, 2, 2], rows=28, most=8, processes=2)
    parts = [[20 * len({states[row] for row in part}) + len(part) for part in step.parts[rank::2]] for rank in (0, 1)]
    assert abs(sum(parts[0]) - sum(parts[1])) <= 2
    assert all(one == sorted(one, reverse=True) for one in parts)


def test_a_state_is_halved_where_a_process_would_have_none() -> None:
    ((step,), _) = ordered([5], rows=5, most=5, processes=2)
    assert sorted(len(part) for part in step.parts) == [2, 3]


def test_passes_and_seeds_differ_in_order() -> None:
    steps, _ = ordered([2] * 12, rows=4, most=4, times=2)
    assert steps[:6] != steps[6:]
    assert ordered([2] * 12, rows=4, most=4, times=2, seed=1)[0] != steps


def test_too_few_rows_for_the_processes_are_one_line() -> None:
    with pytest.raises(ConfigError, match="preference: 2 rows are too few for 3 processes"):
        ordered([2], rows=8, most=4, processes=3)


# ------------------------------------------------------------------------------------------------ what is trained


def prepared_with(samples, base: Path, sizes: list[int], *settings: str) -> Prepared:
    """A DPO run over states of so many pairs, each pair of an agent of its own."""
    rows = []
    for state, size in enumerate(sizes):
        for pair in range(size):
            own = samples.row(state, "preference", words=20)
            header = (Segment(text=f"\nYou are number {pair}."),)
            rows.append(replace(own, prompt=replace(own.prompt, segments=header), reply=f"Action: {state} {pair}" * 2))
    options = ["sharing=prefix", "anchor=0.5", "learning_rate=1e-3", f"batch_rows={len(rows)}", *settings]
    return prepare(samples.task(base, "dpo", *options), rows[::2] + rows[1::2])


def trained(prepared: Prepared, out: Path) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    final = train(prepared, begin(prepared, out), device="cpu").final
    assert final is not None
    return FinetuneDir(out).read_metrics(), load_file(final / "model.safetensors")


def test_rows_of_one_screen_are_one_state(samples, base: Path) -> None:
    """Whatever their agents read beside it, and wherever they stand among the rows."""
    prepared = prepared_with(samples, base, [4, 2, 3], "rows_at_once=4", "epochs=1")
    states = [item.state for item in prepared.encoded.items]
    assert len(set(states)) == 3
    assert [len({states[row] for row in part}) for part in prepared.steps[0].parts] == [1, 1, 1]
    assert [len(part) for part in prepared.steps[0].parts] == [4, 3, 2]


@pytest.mark.slow
def test_a_step_has_the_gradient_of_its_pairs_however_it_is_divided(samples, base: Path, tmp_path: Path) -> None:
    """Passes of 4, 3 and 2 pairs, or one of nine: equal losses, gradients, metrics, and weights after three steps."""
    found = [
        trained(prepared_with(samples, base, [4, 2, 3], "epochs=3", *how), tmp_path / str(len(how)))
        for how in ([], ["rows_at_once=4"])
    ]
    (whole, expected), (divided, weights) = found
    assert len(divided) == 3
    for one, other in zip(divided, whole, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
        for name in ("margin", "logp_chosen", "reward_chosen", "preference_accuracy"):
            assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-5), name
    assert divided[-1]["margin"] > 1e-3
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=5e-5)


@pytest.mark.slow
def test_a_stopped_run_of_unequal_steps_resumes_as_if_never_stopped(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepared_with(samples, base, [4, 2, 3, 1, 5], "batch_rows=6", "rows_at_once=4", "epochs=2")
    assert len({len(step.parts) for step in prepared.steps}) > 1
    lines, whole = trained(prepared, tmp_path / "whole")
    folder, asked = begin(prepared, tmp_path / "stopped"), iter([False, True])
    assert train(prepared, folder, device="cpu", stopping=lambda: next(asked)).step == 2
    assert train(prepared, folder, device="cpu").final == folder.final
    again = load_file(folder.final / "model.safetensors")
    assert all(torch.equal(again[name], weight) for name, weight in whole.items())
    assert [{**line, "seconds": 0} for line in folder.read_metrics()] == [{**line, "seconds": 0} for line in lines]
