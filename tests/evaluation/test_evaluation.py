"""Rates and intervals against hand-computed numbers, of one run and of several."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import UsageError
from collab.evaluation.metrics import GroupReport, Report, compute_wilson_interval, evaluate, pool
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
    low, high = compute_wilson_interval(7, 10, z=1.96)
    assert low == pytest.approx(0.396774, abs=2e-4)
    assert high == pytest.approx(0.892210, abs=2e-4)
    assert compute_wilson_interval(0, 0) == (0.0, 1.0)
    assert compute_wilson_interval(0, 20)[0] == 0.0
    assert compute_wilson_interval(20, 20)[1] == 1.0
    assert compute_wilson_interval(0, 24)[0] == 0.0, "exactly, whatever is rounded on the way"


@given(episodes=st.integers(1, 400), data=st.data())
def test_wilson_lies_within_the_unit_interval_and_around_the_rate(episodes: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, episodes))
    low, high = compute_wilson_interval(successes, episodes)
    assert 0 <= low <= successes / episodes <= high <= 1


def planned(**episodes: int) -> list[PlannedTask]:
    return [
        PlannedTask(name=name, difficulty="easy" if name == "A" else None, episodes=count)
        for name, count in episodes.items()
    ]


def counts(group: GroupReport | Report) -> tuple[int, int, int, int]:
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


def test_runs_are_pooled_by_adding_up() -> None:
    """Of two runs: A 1 of 2 and 2 of 2, B never played in the first and broken in the second."""
    first = evaluate([episode("A", 0, True), episode("A", 1, False)], planned(A=2, B=1))
    second = evaluate([episode("A", 2, True), episode("A", 3, True), episode("B", 0, None)], planned(A=2, B=1))
    both = pool([first, second])
    assert counts(both) == (3, 6, 4, 1)
    assert {group.name: counts(group) for group in both.by_task} == {"A": (3, 4, 4, 0), "B": (0, 2, 0, 1)}
    assert {group.name: counts(group) for group in both.by_difficulty} == {
        "easy": (3, 4, 4, 0),
        "unrated": (0, 2, 0, 1),
    }
    assert [result.seed for result in both.results] == [0, 1, 2, 3, 0]
    # n = 6, s = 3: centre 1/2, half width 1.96 / 1.640267 * sqrt(1/24 + 0.0266778) = 0.312372
    assert both.planned.interval == pytest.approx((0.187628, 0.812372), abs=2e-4)


@given(parts=st.lists(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from([True, False, None]))), min_size=1))
def test_pooling_is_the_same_as_one_run_of_all(parts: list[list[tuple[str, bool | None]]]) -> None:
    numbered = [
        [(task, 100 * k + n, success) for n, (task, success) in enumerate(part)] for k, part in enumerate(parts)
    ]
    reports = [evaluate([episode(*one) for one in part]) for part in numbered if part] or [evaluate([])]
    whole = evaluate([episode(*one) for part in numbered for one in part])
    both = pool(reports)
    assert both.planned == whole.planned
    assert (both.by_task, both.by_difficulty, both.results) == (whole.by_task, whole.by_difficulty, whole.results)


def test_a_rehearsal_makes_the_whole_one() -> None:
    honest, rehearsal = evaluate([episode("A", 0, True)]), evaluate([episode("A", 1, True, privileged=True)])
    assert pool([honest, rehearsal]).privileged


def test_what_is_of_two_environments_is_not_pooled() -> None:
    with pytest.raises(UsageError, match="fake version  and other version ; compare equal environments"):
        pool([evaluate([episode("A", 0, True)]), evaluate([episode("A", 1, True, env="other")])])
