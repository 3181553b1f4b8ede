"""Rates and intervals against hand-computed numbers; what must not be compared is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import UsageError
from collab.evaluation import Group, Report, compare, evaluate, wilson
from collab.types import EpisodeError, Outcome, PlannedTask, Task, Trajectory


def episode(task: str, number: int, success: bool | None, *, privileged: bool = False, env: str = "fake") -> Trajectory:
    outcome = None if success is None else Outcome(success=success, score=float(success))
    error = EpisodeError(type="EnvironmentFailure", message="it broke", step=0) if success is None else None
    return Trajectory(
        id=f"{task}/{number}",
        task=Task(environment="fake", name=task, seed=number, goal="", difficulty="easy" if task == "A" else None),
        episode=number,
        epoch=0,
        steps=(),
        final=None,
        outcome=outcome,
        error=error,
        environment=env,
        privileged=privileged,
    )


def test_wilson_by_hand() -> None:
    # n = 10, s = 7, z = 1.96: centre (0.7 + 0.19208)/1.38416 = 0.644492, half width 0.247804
    low, high = wilson(7, 10, z=1.96)
    assert low == pytest.approx(0.396774, abs=2e-4)
    assert high == pytest.approx(0.892210, abs=2e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 20)[0] == 0.0
    assert wilson(20, 20)[1] == 1.0


def planned(**episodes: int) -> list[PlannedTask]:
    return [
        PlannedTask(name=name, difficulty="easy" if name == "A" else None, episodes=count)
        for name, count in episodes.items()
    ]


def counts(group: Group | Report) -> tuple[int, int, int, int]:
    """Successes, planned, completed, broken."""
    assert group.completed.successes == group.planned.successes
    return group.planned.successes, group.planned.episodes, group.completed.episodes, group.broken


def test_broken_and_unplayed_episodes_count_as_not_successful() -> None:
    """Of A three are planned: solved, broken, never played. Of B two: failed, never played. C never began."""
    report = evaluate([episode("A", 0, True), episode("A", 1, None), episode("B", 0, False)], planned(A=3, B=2, C=4))
    assert counts(report) == (1, 9, 2, 1)
    assert {group.name: counts(group) for group in report.by_task} == {
        "A": (1, 3, 1, 1),
        "B": (0, 2, 1, 0),
        "C": (0, 4, 0, 0),
    }
    assert {group.name: counts(group) for group in report.by_difficulty} == {
        "easy": (1, 3, 1, 1),
        "unrated": (0, 6, 1, 0),
    }
    # n = 3, s = 1, z = 1.96: centre (1/3 + 0.640267)/2.280533 = 0.426918, half width 0.365427
    assert report.by_task[0].planned.interval == pytest.approx((0.061492, 0.792345), abs=2e-4)
    assert [result.seed for result in report.results] == [0, 1, 0]
    assert report.results[1].error == "EnvironmentFailure: it broke"


@given(
    played=st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from([True, False, None])), max_size=12),
    plan=st.dictionaries(st.sampled_from("ABCD"), st.integers(0, 5)),
)
def test_groups_add_up_to_the_headline(played: list[tuple[str, bool | None]], plan: dict[str, int]) -> None:
    report = evaluate([episode(task, k, success) for k, (task, success) in enumerate(played)], planned(**plan))
    for groups in (report.by_task, report.by_difficulty):
        sums = [sum(column) for column in zip(*map(counts, groups), strict=True)] or [0, 0, 0, 0]
        assert tuple(sums) == counts(report)


def test_empty_report() -> None:
    report = evaluate([])
    assert math.isnan(report.planned.value)
    assert report.planned.interval == (0.0, 1.0)


def test_compare_is_paired() -> None:
    first = evaluate([episode("A", k, k < 5) for k in range(10)] + [episode("B", 0, True)])
    second = evaluate([episode("A", k, k < 8) for k in range(10)])
    comparison = compare(first, second)
    assert comparison.pairs == 10
    assert comparison.difference == pytest.approx(0.3)
    low, high = comparison.interval
    assert 0 <= low <= 0.3 <= high <= 0.7
    assert compare(first, second) == comparison, "the bootstrap is seeded"


def test_the_interval_of_a_difference_is_that_of_pairs_drawn_again() -> None:
    """Two pairs, one of them won: drawn with replacement the mean is 0, 1/2 or 1 with weights 1/4, 1/2 and 1/4."""
    first, second = ([episode("A", k, k < won) for k in range(2)] for won in (1, 2))
    assert compare(evaluate(first), evaluate(second)).interval == (0.0, 1.0)
    # forty pairs, twenty won: mean 1/2, standard error sqrt(1/4 / 40) = 0.079, so 1.96 of them are 0.155
    first, second = ([episode("A", k, k < won) for k in range(40)] for won in (10, 30))
    assert compare(evaluate(first), evaluate(second)).interval == pytest.approx((0.345, 0.655), abs=0.025)


def test_identical_runs_have_no_difference() -> None:
    report = evaluate([episode("A", k, k % 2 == 0) for k in range(8)])
    assert compare(report, report).interval == (0.0, 0.0)


def test_refusals() -> None:
    fine = evaluate([episode("A", k, True) for k in range(4)])
    with pytest.raises(UsageError, match="rehearsal"):
        compare(fine, evaluate([episode("A", 0, True, privileged=True)]))
    with pytest.raises(UsageError, match="broke"):
        compare(fine, evaluate([episode("A", 0, True), episode("A", 1, None)]))
    assert compare(fine, evaluate([episode("A", 0, True), episode("A", 1, None)]), force=True).pairs == 2
    with pytest.raises(UsageError, match="only 1 of 3 episodes have been played"):
        compare(fine, evaluate([episode("A", 0, True)], planned(A=3)))
    with pytest.raises(UsageError, match="share no"):
        compare(fine, evaluate([episode("B", 0, True)]))
    with pytest.raises(UsageError, match="equal environments"):
        compare(fine, evaluate([episode("A", 0, True, env="other")]))
