"""How long the rest takes: short episodes end first, and must not be taken for all."""

from __future__ import annotations

import pytest

from collab.rollout import collector as module
from collab.rollout.collector import Workload


def play(lengths: list[int], budget: int, workers: int, startup: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Play episodes of so many steps, a second each; what was foretold every ten seconds, divided by what came.

    Of the last fifth of the time nothing is returned: what one episode alone still takes cannot be foretold.
    """
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    workload = Workload()
    for number in range(len(lengths)):
        workload.plan(str(number), budget)
    queue, running, told = list(enumerate(lengths)), dict[int, int](), dict[float, float]()
    load = startup
    while queue or running:
        while queue and len(running) < workers:
            number, length = queue.pop(0)
            running[number] = length
            workload.begin(str(number))
        clock[0] += 1 + load
        load = 0.0
        for number in list(running):
            workload.count(str(number))
            running[number] -= 1
            if not running[number]:
                del running[number]
                workload.end(str(number))
        left = workload.estimate_seconds_left()
        assert left is not None
        if (queue or running) and clock[0] % 10 == 0:
            told[clock[0]] = left
    return [left / (clock[0] - when) for when, left in told.items() if when < 0.8 * clock[0]]


SHAPES = {
    "alike": [10] * 40,
    "short and long": [3, 30, 3, 3, 30, 30, 3, 30] * 10,
    "most fail": [30, 30, 30, 4] * 10,
    "most are solved": [4, 4, 4, 30] * 15,
    "few": [3, 3, 30, 30],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("workers", "startup"), [(1, 0.0), (4, 60.0), (16, 5.0)])
def test_what_is_foretold_is_never_far_off(shape, workers, startup, monkeypatch) -> None:
    ratios = play(SHAPES[shape], 30, workers, startup, monkeypatch)
    assert all(0.35 < one < 3.5 for one in ratios), ratios
    later = ratios[len(ratios) // 2 :]
    assert all(0.49 < one < 2 for one in later), later


def steps_left(workload: Workload) -> float:
    return sum(map(sum, workload._estimate_left()))


def test_before_any_is_over_budgets_are_taken_whole() -> None:
    workload = Workload()
    for name in "abc":
        workload.plan(name, 30)
    assert workload.estimate_seconds_left() is None
    workload.begin("a", 10)
    assert steps_left(workload) == pytest.approx(80)


def test_what_continues_counts_as_longer_than_it_is() -> None:
    """Of four begun episodes, three ended after 3 of 30 steps; the fourth is at step 15, so it is no short one."""
    workload = Workload()
    for name in "abcde":
        workload.plan(name, 30)
    for name in "abcd":
        workload.begin(name)
        workload.count(name, 3)
    for name in "abc":
        workload.end(name)
    workload.count("d", 12)
    assert steps_left(workload) == pytest.approx(15 + (3 + 27 / 4))
