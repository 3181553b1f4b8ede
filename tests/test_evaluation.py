"""Rates and intervals against hand-computed numbers; what must not be compared is refused."""

from __future__ import annotations

import math

import pytest

from collab.errors import UsageError
from collab.evaluation import compare, evaluate, wilson
from collab.types import EpisodeError, Outcome, Task, Trajectory


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


def test_broken_episodes_count_as_not_successful() -> None:
    report = evaluate([episode("A", 0, True), episode("A", 1, None), episode("B", 0, False)], planned=4)
    assert (report.planned.successes, report.planned.episodes) == (1, 4)
    assert (report.completed.successes, report.completed.episodes) == (1, 2)
    assert report.broken == 1
    assert [(name, rate.episodes) for name, rate in report.by_task] == [("A", 2), ("B", 1)]
    assert [name for name, _ in report.by_difficulty] == ["easy", "unrated"]
    assert [result.seed for result in report.results] == [0, 1, 0]
    assert report.results[1].error == "EnvironmentFailure: it broke"


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
        compare(fine, evaluate([episode("A", 0, True)], planned=3))
    with pytest.raises(UsageError, match="share no"):
        compare(fine, evaluate([episode("B", 0, True)]))
    with pytest.raises(UsageError, match="equal environments"):
        compare(fine, evaluate([episode("A", 0, True, env="other")]))
