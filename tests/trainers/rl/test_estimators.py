"""Returns, advantages and weights against numbers computed by hand, to 1e-12, and what must hold of all of them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collab.trainers.rl.estimators import (
    awr_weights,
    coach_returns,
    discounted_returns,
    draw_probabilities,
    gae,
    group_relative,
    importance_ratios,
    keep_episodes,
    keep_steps,
    leave_one_out,
    retrace_advantage,
    retrace_values,
    step_advantage,
    trajectory_priority,
)

REWARDS, VALUES, RATIOS = (0.0, 0.0, 1.0), (0.5, 0.4, 0.3), (0.5, 2.0, 0.8)

numbers = st.floats(-10, 10, allow_subnormal=False)
lists = st.lists(numbers, min_size=1, max_size=12)
shares = st.floats(0, 1, allow_subnormal=False)
steps = st.lists(st.tuples(numbers, shares, st.floats(0, 3, allow_subnormal=False)), min_size=1, max_size=12)
"""Reward, value and ratio of each step."""


def equals(*expected: float) -> Any:
    return pytest.approx(expected, rel=0, abs=1e-12)


def near(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=1e-9)


# ------------------------------------------------------------------------------------------------------- DigiRL


@pytest.mark.parametrize(
    ("form", "expected"),
    [("published", (0.475, 0.65, 1.0)), ("printed", (0.55, 0.8, 1.2)), ("released", (0.5, 0.75, 1))],
)
def test_step_advantages_of_a_success(form: Any, expected: Sequence[float]) -> None:
    """The released one by hand: .3 - .05 + .25, .3 - .05 + .5, and 0 - .8 + 1 - .05 + 1 = 1.15, cut to 1."""
    found = step_advantage(1, (0.2, 0.5, 0.8), decay=0.5, form=form)
    assert tuple(found) == equals(*expected)


def test_a_good_step_of_a_failure_is_kept() -> None:
    found = step_advantage(0, (0.2, 0.5, 0.1), decay=0.5)
    assert tuple(found) == equals(0.225, -0.2, 0.0)
    assert keep_steps(found, 1 / 10).tolist() == [True, False, False]


def test_the_released_form_looks_at_the_screen_behind_the_end() -> None:
    """.3 - .05; -.4 - .05 < 0; .3 - .1 - .05, of which 0 would have made a loss."""
    found = step_advantage(0, (0.2, 0.5, 0.1), decay=0.5, form="released", last=0.3)
    assert tuple(found) == equals(0.25, 0.0, 0.15)
    assert keep_steps(found, 0).tolist() == [True, False, True]
    assert step_advantage(0, (0.2, 0.5, 0.1), decay=0.5, form="released")[2] == 0


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_the_only_step_of_an_episode_is_worth_its_outcome(outcome: float) -> None:
    assert step_advantage(outcome, [0.7], decay=0.5).tolist() == [outcome]


def test_a_threshold_is_exceeded_not_reached() -> None:
    assert keep_steps([0.1, 0.10000001, 0.5], 1 / 10).tolist() == [False, True, True]


def test_with_one_step_allowed_only_a_certain_success_passes() -> None:
    assert keep_steps(step_advantage(1, [0.9], decay=0.5), 1 / 1).tolist() == [True]
    assert keep_steps([0.999, 0.0], 1 / 1).tolist() == [False, False]


@given(st.lists(shares, min_size=1, max_size=12), shares, shares)
def test_a_step_advantage_lies_between_its_two_estimates(values: list[float], decay: float, outcome: float) -> None:
    found = step_advantage(outcome, values, decay=decay)
    one_step = gae([0.0] * (len(values) - 1) + [outcome], values, gamma=1, decay=0)
    low, high = np.minimum(one_step, outcome), np.maximum(one_step, outcome)
    assert ((found >= low - 1e-12) & (found <= high + 1e-12)).all()
    assert found[-1] == outcome


def test_a_tenth_of_twenty_episodes_is_two() -> None:
    kept = keep_episodes(np.linspace(0.01, 0.9, 20), top=0.1)
    assert np.flatnonzero(kept).tolist() == [18, 19]
    assert keep_episodes(np.linspace(0.01, 0.9, 100), top=0.07).sum() == 7, "0.07 * 100 is more than 7 in binary"
    assert keep_episodes(np.linspace(0.01, 0.9, 21), top=0.1).sum() == 3
    assert keep_episodes(np.linspace(0.01, 0.9, 20), top=0.1, least=16).sum() == 16
    assert keep_episodes([0.2, 0.3], top=0.1, least=16).sum() == 2


def test_without_a_success_no_episode_is_learned() -> None:
    outcomes, values = np.zeros(20), np.linspace(0, 0.9, 20)
    assert not keep_episodes(outcomes - values, top=0.1).any()
    assert keep_episodes(outcomes - values, top=0.1, positive=False).sum() == 2


def test_of_equal_episodes_the_newest_are_kept() -> None:
    assert np.flatnonzero(keep_episodes([0.5, 0.9, 0.5, 0.5], top=0.5)).tolist() == [1, 3]


def test_the_released_quantile_lets_failures_pass() -> None:
    """Two successes of thirty are fewer than a tenth: the quantile is a failure's 0."""
    few, enough = [0.0] * 28 + [1.0] * 2, [0.0] * 24 + [1.0] * 6
    assert keep_episodes(few, top=0.1, positive=False, form="quantile").all()
    assert keep_episodes(enough, top=0.1, positive=False, form="quantile").sum() == 6
    assert keep_episodes(few, top=0.1, form="quantile").sum() == 2


def test_weights_of_regression() -> None:
    """exp 0 = 1, exp(½ ln 4 / ½) = 4, exp(-1)."""
    assert tuple(awr_weights([0, math.log(2), -0.5], 0.5)) == equals(1.0, 4.0, 0.36787944117144233)
    assert awr_weights([1, -1], 1e-6).tolist() == [pytest.approx(20), 0]


# --------------------------------------------------------------------------------------------- returns and GAE


def test_discounted_returns() -> None:
    assert tuple(discounted_returns(REWARDS, 0.9)) == equals(0.81, 0.9, 1.0)
    assert tuple(discounted_returns((1, -2, 4), 0.5)) == equals(1.0, 0.0, 4.0)


@pytest.mark.parametrize(("decay", "expected"), [(1.0, (0.5, 0.6, 0.7)), (0.5, (0.025, 0.25, 0.7))])
def test_generalised_advantages(decay: float, expected: Sequence[float]) -> None:
    assert tuple(gae(REWARDS, VALUES, gamma=1, decay=decay)) == equals(*expected)


@given(steps, shares)
def test_gae_without_decay_is_the_return_less_the_value(trajectory: list[Any], gamma: float) -> None:
    rewards, values, _ = zip(*trajectory, strict=True)
    found = gae(rewards, values, gamma=gamma, decay=1)
    assert found == near(discounted_returns(rewards, gamma) - values)


# ------------------------------------------------------------------------------------------------------- groups


def test_a_group_compares_its_episodes() -> None:
    """Half over (√⅓ + 1e-6)."""
    high = 0.86602390378703672
    assert tuple(group_relative((1, 0, 0, 1))) == equals(high, -high, -high, high)


@pytest.mark.parametrize("rewards", [[0.1] * 3, [1.0] * 4, [0.0], []])
def test_a_group_of_equals_teaches_exactly_nothing(rewards: list[float]) -> None:
    assert group_relative(rewards).tolist() == [0.0] * len(rewards)


def test_candidates_are_compared_with_the_others() -> None:
    assert tuple(leave_one_out((1, 2, 3, 6))) == equals(-8 / 3, -4 / 3, 0.0, 4.0)


def test_a_single_candidate_keeps_its_value() -> None:
    assert leave_one_out([0.7]).tolist() == [0.7]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_equal_candidates_teach_exactly_nothing(count: int) -> None:
    assert leave_one_out([0.1] * count).tolist() == [0.0] * count


@given(st.lists(numbers, min_size=2, max_size=12), numbers)
def test_leave_one_out_sums_to_zero_and_ignores_a_shift(values: list[float], shift: float) -> None:
    found = leave_one_out(values)
    assert found.sum() == near(0)
    assert leave_one_out(np.add(values, shift)) == near(found)
    for place, value in enumerate(values):
        others = values[:place] + values[place + 1 :]
        assert found[place] == near(value - sum(others) / len(others))


@given(st.lists(numbers, min_size=2, max_size=12))
def test_a_group_has_mean_zero_and_keeps_the_order(rewards: list[float]) -> None:
    found = group_relative(rewards)
    assert found.sum() == near(0)
    assert (np.diff(found[np.argsort(rewards)]) >= 0).all()


# ------------------------------------------------------------------------------------------------ Android Coach


@pytest.mark.parametrize(("form", "expected"), [("sound", (1.39, 1.2, 1.0)), ("printed", (1.3705, 1.19, 1.0))])
def test_returns_of_process_and_outcome(form: Any, expected: Sequence[float]) -> None:
    assert tuple(coach_returns((1, 1, 0), 1, form=form)) == equals(*expected)


def test_a_step_without_a_process_reward_is_left_out_of_the_sums() -> None:
    """.2 + .2 · .95² and .2 · .95 and .2, each plus 1."""
    assert tuple(coach_returns((1, math.nan, 1), 1)) == equals(1.3805, 1.19, 1.2)
    assert coach_returns((math.nan, math.nan), 1).tolist() == [1, 1]


def test_a_long_right_episode_is_worth_more_than_its_outcome() -> None:
    """.2 (1 - .95^25) / .05 + 1 = 3.89: what the reports on length are for."""
    assert coach_returns([1] * 25, 1)[0] == pytest.approx(3.8904, abs=1e-4)


# ------------------------------------------------------------------------------------------------------ retrace


@pytest.mark.parametrize(
    ("form", "trace", "expected"),
    [
        ("v", 1.0, (0.68, 0.86, 0.86)),
        ("v", 0.5, (0.495, 0.58, 0.86)),
        ("v", 0.0, (0.45, 0.3, 0.86)),
        ("q", 1.0, (0.86, 0.86, 1.0)),
        ("q", 0.5, (0.49, 0.58, 1.0)),
    ],
)
def test_corrected_values(form: Any, trace: float, expected: Sequence[float]) -> None:
    found = retrace_values(REWARDS, VALUES, RATIOS, gamma=1, trace=trace, form=form)
    assert tuple(found) == equals(*expected)


@pytest.mark.parametrize("form", ["v", "q"])
def test_on_policy_corrected_values_are_returns_by_hand(form: Any) -> None:
    assert tuple(retrace_values(REWARDS, VALUES, (1, 1, 1), gamma=0.9, trace=1, form=form)) == equals(0.81, 0.9, 1.0)


@given(steps, shares, st.sampled_from(["v", "q"]))
def test_on_policy_corrected_values_are_returns(trajectory: list[Any], gamma: float, form: Any) -> None:
    rewards, values, above = zip(*trajectory, strict=True)
    found = retrace_values(rewards, values, np.add(above, 1), gamma=gamma, trace=1, form=form)
    assert found == near(discounted_returns(rewards, gamma))


@given(steps, shares, shares)
def test_corrected_values_are_the_sums_of_the_formula(trajectory: list[Any], gamma: float, trace: float) -> None:
    rewards, values, ratios = zip(*trajectory, strict=True)
    capped = np.minimum(ratios, 1)
    deltas = rewards + gamma * np.append(values[1:], 0) - values
    for form, shift, outer in (("v", 0, capped), ("q", 1, np.ones(len(values)))):
        found = retrace_values(rewards, values, ratios, gamma=gamma, trace=trace, form=form)  # type: ignore[arg-type]
        for t in range(len(values)):
            terms = (
                gamma ** (k - t) * np.prod(trace * capped[t + shift : k + shift]) * outer[k] * deltas[k]
                for k in range(t, len(values))
            )
            assert found[t] == near(values[t] + sum(terms))


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 0.4 + 0.5 * 0.6), (3.0, 1.0)])
def test_the_value_of_an_only_step(ratio: float, expected: float) -> None:
    assert tuple(retrace_values([1], [0.4], [ratio], gamma=0.9, trace=0.7)) == equals(expected)


def test_an_impossible_reply_leaves_its_value_alone() -> None:
    found = retrace_values(REWARDS, VALUES, (0, 1, 1), gamma=1, trace=1)
    assert tuple(found) == equals(0.5, 1.0, 1.0)


def test_the_sound_advantage() -> None:
    targets = retrace_values(REWARDS, VALUES, RATIOS, gamma=1, trace=1)
    assert tuple(retrace_advantage(REWARDS, VALUES, targets, gamma=1)) == equals(0.36, 0.46, 0.7)
    penalised = retrace_advantage(REWARDS, VALUES, targets, gamma=1, penalties=(0, -0.05, 0))
    assert tuple(penalised) == equals(0.36, 0.41, 0.7)
    assert tuple(retrace_advantage([1], [0.4], [0.9], gamma=0.5)) == equals(0.6)


# ------------------------------------------------------------------------------------------------------- ratios


def test_ratios_of_whole_replies() -> None:
    found = importance_ratios([math.log(0.1), -2.0, -1.0], [math.log(0.2), -2.0, -5.0])
    assert tuple(found.values) == equals(0.5, 1.0, 1.0)
    assert (found.clipped, found.underflowed) == (1, 0)


def test_a_ratio_that_underflows_is_zero_and_counted() -> None:
    found = importance_ratios([-80.0, -80.5, -math.inf, -5000.0, 5000.0], [0.0] * 5)
    assert found.values[0] == pytest.approx(math.exp(-80), rel=1e-12, abs=0)
    assert found.values[1:].tolist() == [0, 0, 0, 1]
    assert (found.clipped, found.underflowed) == (1, 3)


@given(st.lists(st.tuples(st.floats(-1e6, 0), st.floats(-1e6, 0)), max_size=12))
def test_ratios_are_between_zero_and_one(sums: list[tuple[float, float]]) -> None:
    found = importance_ratios([now for now, _ in sums], [then for _, then in sums])
    assert ((found.values >= 0) & (found.values <= 1)).all()


# ---------------------------------------------------------------------------------------------------- bad input

EVERY: list[Callable[[Any], Any]] = [
    lambda x: discounted_returns(x, 0.9),
    lambda x: step_advantage(1, x, decay=0.5),
    lambda x: gae(x, x, gamma=1, decay=1),
    lambda x: group_relative(x),
    lambda x: leave_one_out(x),
    lambda x: retrace_values(x, x, x, gamma=1, trace=1),
    lambda x: retrace_advantage(x, x, x, gamma=1),
    lambda x: importance_ratios(x, x).values,
    lambda x: keep_steps(x, 0.1),
    lambda x: keep_episodes(x, top=0.1),
    lambda x: keep_episodes(x, top=0.1, form="quantile"),
    lambda x: awr_weights(x, 1),
    lambda x: coach_returns(x, 1),
]


@pytest.mark.parametrize("function", EVERY)
def test_no_steps_give_no_numbers(function: Callable[[Any], Any]) -> None:
    """As of an episode that was solved before its first step."""
    assert len(function([])) == 0


@pytest.mark.parametrize("function", EVERY[:-1])
def test_a_value_that_is_no_number_is_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="number 2 of 3 is nan; all must be finite"):
        function([0.5, math.nan, 0.5])


def test_an_outcome_that_is_missing_is_no_failure() -> None:
    with pytest.raises(ValueError, match="outcome: is nan; leave out an episode whose verdict is missing"):
        step_advantage(math.nan, [0.5], decay=0.5)
    with pytest.raises(ValueError, match="outcome: is nan"):
        coach_returns([1], math.nan)


def test_one_number_does_not_stand_for_all_steps() -> None:
    with pytest.raises(ValueError, match="one number per step is expected of each; got rewards 3, values 1"):
        gae(REWARDS, [0.5], gamma=1, decay=1)
    with pytest.raises(ValueError, match=r"values: has the shape \(1, 3\)"):
        leave_one_out([VALUES])


def test_a_value_with_a_gradient_is_refused() -> None:
    """So nothing that was learned here can reach what computed it."""
    values = torch.tensor(VALUES, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        retrace_values(REWARDS, values, RATIOS, gamma=1, trace=1)  # type: ignore[arg-type]


def test_what_is_given_stays_as_it_was() -> None:
    given = np.array([0.7])
    leave_one_out(given)[0] = 0
    assert given[0] == 0.7


# -------------------------------------------------------------------------------------------------- priorities


def test_priorities_are_parts_of_the_largest_so_far() -> None:
    """|δ| of mean 0.3 of at most 0.6, ρ̄ of mean 0.8, H of mean 1 of at most 4: 1 · ½ + ½ · 0.8 + 0.3 · ¼."""
    given = {"most_error": 0.6, "most_entropy": 4.0}
    found = trajectory_priority([0.1, -0.5], [1.0, 0.6], [0.5, 1.5], **given)
    assert found == pytest.approx(0.975, abs=1e-12)
    other = trajectory_priority([0.1, -0.5], [1.0, 0.6], [0.5, 1.5], weights=(0.0, 0.0, 1.0), **given)
    assert other == pytest.approx(0.25, abs=1e-12)
    assert trajectory_priority([0.0], [0.0], [0.0], most_error=0.0, most_entropy=0.0) == 1e-6
    with pytest.raises(ValueError, match="without a step"):
        trajectory_priority([], [], [], **given)
    with pytest.raises(ValueError, match="errors"):
        trajectory_priority([float("nan")], [1.0], [1.0], **given)


def test_a_trajectory_of_four_times_the_priority_is_drawn_twice_as_often() -> None:
    np.testing.assert_allclose(draw_probabilities([1, 4]), [1 / 3, 2 / 3], atol=1e-12)
    np.testing.assert_allclose(draw_probabilities([1, 4], exponent=0), [0.5, 0.5], atol=1e-12)
    assert len(draw_probabilities([])) == 0
    with pytest.raises(ValueError, match="would never be drawn"):
        draw_probabilities([1.0, 0.0])
