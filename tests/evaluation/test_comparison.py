"""Paired differences and their bootstrap against hand-computed numbers; what must not be compared is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.errors import UsageError
from collab.evaluation.comparison import bootstrap, compare, compare_trainings, compute_share_interval
from collab.evaluation.metrics import EpisodeResult, Report, pool, summarise
from collab.types import PlannedTask, Sampling


def report(
    played: dict[tuple[str, int], bool | None],
    *,
    planned: int | None = None,
    privileged: bool = False,
    environment: str = "fake",
    version: str = "1",
) -> Report:
    """Of (task, instance seed) → success; None for what broke."""
    results = [
        EpisodeResult(
            id=f"{task}/{seed}",
            task=task,
            difficulty="easy",
            seed=seed,
            success=success is True,
            steps=1,
            max_steps=10,
            error="it broke" if success is None else None,
        )
        for (task, seed), success in played.items()
    ]
    plan = [] if planned is None else [PlannedTask(name="A", difficulty="easy", episodes=planned)]
    return summarise(results, plan, environment=environment, environment_version=version, privileged=privileged)


def solved(task: str, wins: int, count: int) -> dict[tuple[str, int], bool | None]:
    """The first `wins` of `count` instances of one task."""
    return {(task, seed): seed < wins for seed in range(count)}


def sampled(found: Report, **temperatures: float) -> Report:
    """The same, by slots that were sampled at these temperatures."""
    return replace(found, sampling={slot: Sampling(temperature=one) for slot, one in temperatures.items()})


def test_a_slot_that_was_sampled_hot_is_not_held_against_a_cold_one() -> None:
    found = report(solved("A", 3, 12))
    team = sampled(found, ada=0.1, ben=0.3)
    for fits in (sampled(found, ada=0.1), sampled(found, solo=0.3), sampled(found), team):
        assert compare(fits, team).pairs == 12
    for hot in (sampled(found, ada=1.5), sampled(found, solo=1.5), sampled(found, ada=0.1, ben=1.5)):
        with pytest.raises(UsageError, match="sampled differently"):
            compare(hot, team)
        assert compare(hot, team, force=True).has_other_sampling


def test_a_slot_that_was_cut_short_is_not_held_against_one_that_was_not() -> None:
    found = report(solved("A", 3, 12))
    short, long = (replace(found, sampling={"ada": Sampling(max_tokens=length)}) for length in (20, 40))
    with pytest.raises(UsageError, match=r"differently: temperature .*, max_tokens 20 against .*, max_tokens 40"):
        compare(short, long)


def test_instances_that_were_won_and_lost_are_named() -> None:
    before = report({("A", 1): True, ("A", 2): False, ("B", 1): False, ("B", 2): True})
    after = report({("A", 1): False, ("A", 2): True, ("B", 1): True, ("B", 2): True})
    found = compare(before, after)
    assert found.won == (("A", 2, 10), ("B", 1, 10))
    assert found.lost == (("A", 1, 10),)


# ------------------------------------------------------------------------------------------------------ differences


@settings(deadline=None, max_examples=25)
@given(before=st.lists(st.booleans(), min_size=1, max_size=8), after=st.lists(st.booleans(), min_size=8, max_size=8))
def test_the_same_training_again_tells_nothing_new(before: list[bool], after: list[bool]) -> None:
    first, second = (
        report({("AB"[place % 2], place): bool(one) for place, one in enumerate(played)}) for played in (before, after)
    )
    once, thrice = compare(first, second), compare_trainings([(first, second)] * 3)
    assert thrice.pairs == 3 * once.pairs
    assert (thrice.difference, thrice.interval) == (pytest.approx(once.difference), once.interval)


def test_trainings_on_the_same_instances_are_drawn_with_them() -> None:
    """By hand: of two instances one is won by both trainings and one by none, so a draw of two gives 0, 1/2 or 1; had
    the four answers been drawn each by itself, 0 and 1 would each come once in sixteen times and 1/4 in a quarter."""
    nothing, half = report(solved("A", 0, 2)), report(solved("A", 1, 2))
    found = compare_trainings([(nothing, half), (nothing, half)], level=0.6)
    assert (found.pairs, found.difference, found.interval) == (4, 0.5, (0.0, 1.0))
    other = report({("A", 0): False, ("A", 1): True})
    crossed = compare_trainings([(nothing, half), (nothing, other)])
    assert (crossed.difference, crossed.interval) == (0.5, (0.5, 0.5)), "each instance is won by one of two"


def test_trainings_are_compared_on_what_all_of_them_played() -> None:
    short, long = report(solved("A", 1, 1)), report(solved("A", 2, 3))
    found = compare_trainings([(short, long), (long, long)])
    assert (found.pairs, found.first.successes, found.second.successes) == (2, 2, 2)
    with pytest.raises(UsageError, match="share no"):
        compare_trainings([(short, long), (report(solved("B", 1, 1)), long)])
    with pytest.raises(UsageError, match="only 1 of 4"):
        compare_trainings([(short, long), (report(solved("A", 1, 1), planned=4), long)])


def test_a_difference_is_set_against_another_one() -> None:
    """By hand, of four instances: +2 here and +1 there leaves +1 of 4; against itself, nothing is left."""
    none, one, two, three = (report(solved("A", wins, 4)) for wins in range(4))
    found = compare_trainings([(one, three)], beside=[(none, one)])
    assert (found.difference, found.first.successes, found.second.successes) == (0.25, 1, 3)
    # Instances 0 to 3 are won by −1, 1, 1 and 0: of all draws of four one in 256 gives −1, and one in 16 gives 1.
    assert -1 < found.interval[0] < 0
    assert found.interval[1] == 1
    same = compare_trainings([(one, three)], beside=[(one, three)])
    assert (same.difference, same.interval) == (0.0, (0.0, 0.0))
    back = compare_trainings([(none, one)], beside=[(one, three)])
    assert (back.difference, back.interval) == (-0.25, (-found.interval[1], -found.interval[0]))
    with pytest.raises(UsageError, match="share no"):
        compare_trainings([(one, two)], beside=[(one, report(solved("B", 1, 1)))])


def test_a_difference_is_over_equal_instances() -> None:
    first, second = report(solved("A", 5, 10) | solved("B", 1, 1)), report(solved("A", 8, 10))
    comparison = compare(first, second)
    assert (comparison.pairs, comparison.tasks) == (10, 1)
    assert comparison.difference == pytest.approx(0.3)
    assert (comparison.first.successes, comparison.second.successes) == (5, 8)
    low, high = comparison.interval
    assert 0 <= low <= 0.3 <= high <= 0.7
    assert compare(first, second) == comparison, "the bootstrap is seeded"


PLAYED = st.dictionaries(st.tuples(st.sampled_from("ABCD"), st.integers(0, 4)), st.booleans(), max_size=12)


@settings(max_examples=50)
@given(first=PLAYED, second=PLAYED, both=PLAYED.filter(bool))
def test_exchanging_the_runs_changes_signs_and_nothing_else(
    first: dict[tuple[str, int], bool | None],
    second: dict[tuple[str, int], bool | None],
    both: dict[tuple[str, int], bool | None],
) -> None:
    one, other = report(both | first), report(dict(reversed((both | second).items())))
    forth, back = compare(one, other, draws=200), compare(other, one, draws=200)
    assert back.difference == -forth.difference
    assert back.interval == (-forth.interval[1], -forth.interval[0])
    assert (back.first, back.second, back.pairs, back.tasks) == (forth.second, forth.first, forth.pairs, forth.tasks)
    assert -1 <= forth.interval[0] <= forth.interval[1] <= 1


@settings(max_examples=25)
@given(played=PLAYED.filter(bool))
def test_identical_runs_have_no_difference(played: dict[tuple[str, int], bool | None]) -> None:
    comparison = compare(report(played), report(played), draws=200)
    assert (comparison.difference, comparison.interval) == (0.0, (0.0, 0.0))
    assert str(comparison.interval) == "(0.0, 0.0)", "no negative zero"


def test_pooled_runs_are_compared_as_one() -> None:
    parts = [{("A", 10 * k + n): n < k for n in range(3)} for k in range(3)]
    first = pool([report(dict(part)) for part in parts])
    second = pool([report(dict.fromkeys(part, True)) for part in parts])
    assert compare(first, second).difference == pytest.approx(6 / 9)


# ------------------------------------------------------------------------------------------------------ the bootstrap


def test_pairs_of_one_task_are_drawn_again() -> None:
    """Two pairs, one of them won: drawn with replacement the mean is 0, 1/2 or 1 with weights 1/4, 1/2 and 1/4."""
    assert bootstrap([[1, 0]]) == (0.0, 1.0)
    # forty pairs, twenty won: mean 1/2, standard error sqrt(1/4 / 40) = 0.079, so 1.96 of them are 0.155
    assert bootstrap([[1] * 20 + [0] * 20]) == pytest.approx((0.345, 0.655), abs=0.025)


def test_tasks_with_one_instance_each_are_the_pairs() -> None:
    """The same two cases, each pair a task of its own."""
    assert bootstrap([[1], [0]]) == (0.0, 1.0)
    assert bootstrap([[1]] * 20 + [[0]] * 20) == pytest.approx((0.345, 0.655), abs=0.025)


def test_tasks_are_drawn_again_not_only_their_instances() -> None:
    """One task of two is won throughout: both draws take it, one does, or none, with weights 1/4, 1/2 and 1/4.

    Were the twenty pairs drawn as if independent, the interval would be 1/2 plus or minus 0.22.
    """
    assert bootstrap([[1] * 10, [0] * 10]) == (0.0, 1.0)
    # forty tasks of five like instances: as uncertain as forty pairs, not as two hundred (plus or minus 0.07)
    assert bootstrap([[1] * 5] * 20 + [[0] * 5] * 20) == pytest.approx((0.345, 0.655), abs=0.025)


def test_a_share_is_as_uncertain_as_its_tasks_are_few() -> None:
    """Ten instances of a task that are solved alike say no more than one; Wilson by hand for 0, 4 and 2 of 4 tasks."""
    assert compute_share_interval([[1.0] * 10] * 20 + [[0.0] * 10] * 20) == pytest.approx((0.345, 0.655), abs=0.025)
    assert compute_share_interval([[0.0] * 10] * 4) == pytest.approx((0.0, 0.4899), abs=1e-4)
    assert compute_share_interval([[1.0] * 10] * 4) == pytest.approx((0.5101, 1.0), abs=1e-4)
    assert compute_share_interval([[0.5] * 3] * 4) == pytest.approx((0.1500, 0.8500), abs=1e-4)
    # One success more makes no end fall.
    none, one = [[0.0] * 3] * 50, [[1.0, 0.0, 0.0], *[[0.0] * 3] * 49]
    assert compute_share_interval(one) == compute_share_interval(none) == pytest.approx((0.0, 0.0713), abs=1e-4)
    most, every = [[1 - outcome for outcome in task] for task in one], [[1.0] * 3] * 50
    assert compute_share_interval(most) == compute_share_interval(every) == pytest.approx((0.9287, 1.0), abs=1e-4)


def test_instances_within_a_task_are_drawn_again_too() -> None:
    """Tasks that are all alike: only their instances differ, and two hundred pairs give plus or minus 0.07."""
    assert bootstrap([[1, 0] * 5] * 20) == pytest.approx((0.43, 0.57), abs=0.025)


def test_a_task_weighs_as_much_as_it_has_instances() -> None:
    """A (one pair, won) and B (three, not): A twice gives 1, B twice 0, one of each 1/4."""
    low, high = bootstrap([[1], [0, 0, 0]])
    assert (low, high) == (0.0, 1.0)
    assert bootstrap([[1], [0, 0, 0]] * 50)[0] < 0.25 < bootstrap([[1], [0, 0, 0]] * 50)[1]


def test_a_loss_counts_against_a_win() -> None:
    assert bootstrap([[-1, -1, -1]]) == (-1.0, -1.0)
    low, high = bootstrap([[1, -1] * 30])
    assert low == pytest.approx(-0.25, abs=0.04)  # standard error 1/sqrt(60) = 0.129
    assert high == pytest.approx(0.25, abs=0.04)


# ------------------------------------------------------------------------------------------------------ refusals


def test_what_is_no_result_is_refused() -> None:
    fine = report(solved("A", 4, 4))
    with pytest.raises(UsageError, match="rehearsal"):
        compare(fine, report(solved("A", 1, 1), privileged=True), force=True)
    broken = report({("A", 0): True, ("A", 1): None})
    with pytest.raises(UsageError, match=r"1 of 2 episodes broke \(more than 2%\)"):
        compare(fine, broken)
    assert compare(fine, broken, force=True).pairs == 2
    with pytest.raises(UsageError, match="only 1 of 3 episodes have been played"):
        compare(fine, report(solved("A", 1, 1), planned=3))


def test_what_is_not_alike_is_refused() -> None:
    fine = report(solved("A", 4, 4))
    with pytest.raises(UsageError, match="share no"):
        compare(fine, report(solved("B", 1, 1)))
    with pytest.raises(UsageError, match="of fake version 1 and other version 1; compare equal environments"):
        compare(fine, report(solved("A", 4, 4), environment="other"))
    with pytest.raises(UsageError, match="of fake version 1 and fake version 2; compare equal environments"):
        compare(fine, report(solved("A", 4, 4), version="2"), force=True)


@pytest.mark.medium
def test_a_level_leaves_as_much_on_both_sides() -> None:
    """Of a mean of 400 pairs, half of them won, the standard error is 2.5 points: 1.28 and 1.96 of it."""
    gains = [[1], [0]] * 200
    assert bootstrap(gains, level=0.8) == pytest.approx((0.5 - 0.032, 0.5 + 0.032), abs=0.004)
    assert bootstrap(gains) == bootstrap(gains, level=0.95) == pytest.approx((0.451, 0.549), abs=0.004)
    low, high = bootstrap([[1]] + [[0]] * 9, draws=10, level=0.8)
    assert low <= high
