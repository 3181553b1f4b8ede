"""How far a critic can be trusted: every number against one worked out by hand, and what must always hold."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.rewards.calibration.metrics import (
    Bin,
    KnownStep,
    compute_accuracy,
    compute_auc,
    compute_ece,
    compute_length_bias,
    compute_position_bias,
    compute_position_effects,
    compute_reliability,
    compute_retest,
    split_scored,
)

SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5000001, 0.75, 0.9, 1.0]) | st.floats(0, 1)
KNOWN = st.lists(st.builds(lambda score, good: KnownStep(score=score, good=good), SCORES, st.booleans()), max_size=40)


def known(*pairs: tuple[float, int]) -> list[KnownStep]:
    return [KnownStep(score=score, good=bool(good)) for score, good in pairs]


def test_what_has_no_score_is_left_out_and_counted() -> None:
    assert split_scored([(0.5, True), (None, True), (0.1, False), (None, False)]) == (known((0.5, 1), (0.1, 0)), 2)


def test_accuracy_by_hand() -> None:
    # right: 0.9 good, 0.2 bad, 0.5 not good; wrong: 0.5 good (one half earns nothing), 0.8 bad
    assert compute_accuracy(known((0.9, 1), (0.2, 0), (0.5, 0), (0.5, 1), (0.8, 0))) == pytest.approx(3 / 5)
    assert compute_accuracy([]) is None


def test_auc_by_hand_with_ties() -> None:
    # good 0.8, 0.5; others 0.5, 0.3, 0.9. Of 6 comparisons 0.8 wins 2 of 3; 0.5 wins one and ties one: 3.5 / 6
    assert compute_auc(known((0.8, 1), (0.5, 1), (0.5, 0), (0.3, 0), (0.9, 0))) == pytest.approx(3.5 / 6)
    assert compute_auc(known((0.7, 1), (0.7, 0), (0.7, 0))) == 0.5
    assert compute_auc(known((0.9, 1), (0.1, 0))) == 1.0
    assert compute_auc(known((0.1, 1), (0.9, 0))) == 0.0
    assert compute_auc(known((0.9, 1))) is compute_auc(known((0.9, 0))) is compute_auc([]) is None


@given(KNOWN)
def test_auc_is_the_share_of_comparisons_won(found: list[KnownStep]) -> None:
    good = [one.score for one in found if one.good]
    others = [one.score for one in found if not one.good]
    expected = [1.0 if one > other else 0.5 if one == other else 0.0 for one in good for other in others]
    assert compute_auc(found) == (pytest.approx(math.fsum(expected) / len(expected)) if expected else None)


def test_reliability_and_its_error_by_hand() -> None:
    picture = compute_reliability(known((0.1, 0), (0.2, 1), (0.5, 1), (0.9, 1), (1.0, 0), (0.8, 1)), bins=4)
    assert [(column.low, column.high, column.count) for column in picture] == [
        (0.0, 0.25, 2),
        (0.25, 0.5, 0),
        (0.5, 0.75, 1),
        (0.75, 1.0, 3),
    ]
    assert (picture[0].mean_score, picture[0].good) == (pytest.approx(0.15), 0.5)
    assert (picture[1].mean_score, picture[1].good, picture[1].gap) == (None, None, None)
    assert (picture[2].mean_score, picture[2].good) == (0.5, 1.0)
    assert (picture[3].mean_score, picture[3].good) == (pytest.approx(0.9), pytest.approx(2 / 3))
    # 2/6 · |0.15 − 0.5| + 1/6 · |0.5 − 1| + 3/6 · |0.9 − 2/3| = 0.11666… + 0.08333… + 0.11666…
    assert compute_ece(picture) == pytest.approx(0.35 / 3 + 0.5 / 6 + 0.35 / 3)
    assert compute_ece(compute_reliability([])) is None
    with pytest.raises(ValueError, match="at least 1"):
        compute_reliability([], bins=0)


@given(KNOWN, st.integers(1, 12))
def test_every_score_is_in_the_column_whose_bounds_hold_it(found: list[KnownStep], bins: int) -> None:
    picture = compute_reliability(found, bins)
    assert sum(column.count for column in picture) == len(found)
    for column in picture:
        assert not column.count or column.low - 1e-9 <= column.mean_score <= column.high + 1e-9
    error = compute_ece(picture)
    assert error is None or 0 <= error <= 1


def test_a_critic_that_says_what_is_true_has_no_error() -> None:
    perfect = compute_reliability(known((1.0, 1), (0.0, 0), (1.0, 1)))
    assert compute_ece(perfect) == 0.0
    assert isinstance(perfect[0], Bin)


def test_retest_by_hand() -> None:
    # scored twice: (0.9, 0.7) same, (0.6, 0.5) not the same, (0.1, 0.2) same
    found = compute_retest([(0.9, 0.7), (0.6, 0.5), (None, 0.5), (0.1, 0.2), (0.3, None)])
    assert found is not None
    assert (found.count, found.same) == (3, pytest.approx(2 / 3))
    assert found.difference == pytest.approx(0.4 / 3)
    assert compute_retest([(None, 0.5)]) is None


def test_position_bias_by_hand() -> None:
    # worths a and b, effects p0 + p1 + p2 = 0, all of them exact: a + p0 = 0.7, a + p1 = 0.3; b + p0 = 0.8, b + p1 =
    # 0.4, b + p2 = 0.3. So p0 − p1 = 0.4, p1 − p2 = 0.1: p0 = 0.3, p1 = −0.1, p2 = −0.2
    effects = compute_position_effects([[(0, 0.7), (1, 0.3)], [(0, 0.8), (1, 0.4), (2, 0.3)]])
    assert effects == {0: pytest.approx(0.3), 1: pytest.approx(-0.1), 2: pytest.approx(-0.2)}
    assert compute_position_bias(effects) == pytest.approx(0.5)
    # not exact: one proposal says p0 − p1 = 0.4, another as often that it is 0.2
    assert compute_position_bias(
        compute_position_effects([[(0, 0.7), (1, 0.3)], [(0, 0.5), (1, 0.3)]])
    ) == pytest.approx(0.3)
    assert compute_position_bias({}) is None


@pytest.mark.parametrize("looks", [2, 4, 8])
def test_position_bias_does_not_depend_on_how_often_was_asked(looks: int) -> None:
    # 0.3 more in the first of four places; a proposal stands in a drawn place, in some more than once
    rng = random.Random(looks)
    orders = [[rng.sample(range(4), 4) for _ in range(looks)] for _ in range(40)]
    shown = [
        [(order[cell], worth + 0.3 * (order[cell] == 0)) for order in step]
        for step in orders
        for cell, worth in enumerate((0.1, 0.25, 0.5, 0.7))
    ]
    effects = compute_position_effects(shown)
    assert effects == {0: pytest.approx(0.225)} | dict.fromkeys((1, 2, 3), pytest.approx(-0.075))
    assert compute_position_bias(effects) == pytest.approx(0.3)


def test_a_proposal_that_stayed_where_it_was_says_nothing_of_places() -> None:
    still = [[(0, 0.9), (0, 0.7)], [(1, 0.2), (1, 0.2)], [(2, 0.5)], []]
    assert compute_position_effects(still) == {}
    assert compute_position_effects([*still, [(0, 0.6), (1, 0.4)]]) == {0: pytest.approx(0.1), 1: pytest.approx(-0.1)}


def test_places_that_nothing_compares_are_not_compared() -> None:
    # 0 is compared with 1, and 2 with 3, which has more scores; nothing tells how 1 and 2 compare
    few, more = [[(0, 0.9), (1, 0.1)]], [[(2, 0.5), (3, 0.3)], [(2, 0.6), (3, 0.4)]]
    assert compute_position_effects(few + more) == {2: pytest.approx(0.1), 3: pytest.approx(-0.1)}
    assert compute_position_bias(compute_position_effects(few + more)) == pytest.approx(0.2)
    assert set(compute_position_effects(few + more[:1])) == {0, 1}  # as many scores: that of the lowest place
    # one proposal in places 1 and 2 joins them: +0.8, then no difference between 1 and 2, then +0.2
    joined = compute_position_effects([*few, *more, [(1, 0.5), (2, 0.5)]])
    assert joined == {0: pytest.approx(0.65), **dict.fromkeys((1, 2), pytest.approx(-0.15)), 3: pytest.approx(-0.35)}


@given(st.lists(st.tuples(SCORES, st.permutations([0, 1, 2])), min_size=1))
def test_who_does_not_care_for_places_has_no_bias(proposals: list[tuple[float, list[int]]]) -> None:
    effects = compute_position_effects([(place, score) for place in places] for score, places in proposals)
    assert compute_position_bias(effects) == pytest.approx(0, abs=1e-12)


def test_length_bias_by_hand() -> None:
    assert compute_length_bias([(0.5, 0.7), (0.9, 0.8), (None, 1.0), (0.2, 0.2)]) == pytest.approx(0.1 / 3)
    assert compute_length_bias([(None, 0.4)]) is None
