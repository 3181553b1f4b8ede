"""What a training's lines come to, by hand."""

import pytest

from collab.trainers.run_dir import average_over_pairs, compute_chosen_gain


def test_what_chosen_sides_gained_is_told_against_the_reference() -> None:
    """Rewards are β times log-ratios; of five lines the last counts, of eight the last two."""
    rewards = (0.0, 9.0, 9.0, 9.0, 9.0, 9.0, 0.05, -0.15)
    lines = [{"reward_chosen": one} for one in rewards]
    assert compute_chosen_gain(lines, beta=0.1) == pytest.approx((0.05 - 0.15) / 2 / 0.1)
    assert compute_chosen_gain(lines[:5], beta=0.5) == pytest.approx(9.0 / 0.5)
    assert compute_chosen_gain([{"loss": 1.0}], beta=0.1) is None
    few = [{"reward_chosen": -0.3, "compared": 3}, {"reward_chosen": 0.1, "compared": 1}, {"loss": 0.7}]
    assert compute_chosen_gain([{"reward_chosen": 9.0, "compared": 9}] * 6 + few, beta=0.1) == pytest.approx(-2.0)


def test_pairs_count_alike_and_lines_without_one_not_at_all() -> None:
    compared = [{"margin": 5.0, "compared": 9}] * 6 + [{"margin": 1.0, "compared": 3}, {"margin": -1.0, "compared": 1}]
    lines = [*compared[:7], {"loss": 0.7}, {"loss": 0.7}, compared[7]]
    assert average_over_pairs(lines, "margin") == pytest.approx((3 * 1.0 - 1 * 1.0) / 4)
    assert (
        average_over_pairs([{"margin": 2.0}, {"margin": 4.0}], "margin") == 4.0
    )  # written without the number of pairs
    assert average_over_pairs([{"loss": 0.7}], "margin") is None
