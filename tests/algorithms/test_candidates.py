"""Candidates of one state: what each teaches beside the others, and what is told where they are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collab.algorithms.coach.config import CoachMethod
from collab.algorithms.coach.fitting import DistinctReply, Visited, compare
from collab.algorithms.coach.metrics import CoachMetrics, format_metrics
from collab.config import override
from collab.loop.interfaces import load_algorithm, load_method


def make_method(*settings: str) -> CoachMethod:
    method = override(load_method(load_algorithm("coach")), settings)
    assert isinstance(method, CoachMethod)
    return method


def visit(*replies: tuple[float, float, int]) -> Visited:
    """A state whose distinct replies have these values and advantages, and were given so often."""
    nothing: Any = None
    candidates = [
        DistinctReply(turn=nothing, said=nothing, value=value, advantage=advantage, count=count)
        for value, advantage, count in replies
    ]
    return Visited(
        **{"episode": nothing, "step": 0, "executed": None, "agent": "ada", "step_reward": None, "unrewarded": None},
        **{"target": 0.0, "candidates": candidates},
    )


def test_replies_without_a_baseline_teach_however_alike_they_are() -> None:
    alike, apart = visit((0.7, 0.7, 3)), visit((0.7, 0.7, 1), (0.2, 0.2, 2))
    assert (alike.is_taught, alike.is_apart, apart.is_apart) == (True, False, True)
    assert (visit((0.7, 0.0, 3)).is_taught, visit((0.7, 0.7, 1)).is_apart) == (False, False)


@pytest.mark.parametrize(
    ("apart", "compared", "is_warned"), [(1, 3, True), (2, 5, False), (0, 0, False)], ids=["few", "two fifths", "k = 1"]
)
def test_few_states_apart_are_told_of_with_what_to_raise(apart: int, compared: int, is_warned: bool) -> None:
    lines = format_metrics(
        CoachMetrics(
            **{"states": 5, "apart": apart, "compared": compared, "distinct": 0.5, "distinct_actions": 0.5},
            **{"explained": None, "mean_return": None, "mean_length": None, "length_correlation": None},
        )
    )
    warned = [line for line in lines if line.startswith("warning")]
    assert warned == is_warned * [
        "warning  few states have replies of different value, and only these tell replies apart; raise k or "
        "exploration_temperatures, in another training"
    ]


def test_a_reply_is_compared_with_the_others_to_its_state() -> None:
    """Q of 1, 2, 3 and 6, the third given twice: each less the mean of the other four."""
    found = compare([1.0, 2.0, 3.0, 6.0], [1, 1, 2, 1], make_method())
    assert found == pytest.approx([1 - 14 / 4, 2 - 13 / 4, 3 - 12 / 4, 6 - 9 / 4])
    assert np.dot(found, [1, 1, 2, 1]) == pytest.approx(0)
    assert compare([0.7], [4], make_method()).tolist() == [0.0]
    assert compare([0.7], [1], make_method("k=1")).tolist() == [0.7]
    assert compare([0.7], [1], make_method("k=2")).tolist() == [0.0], "the other failed"
    assert compare([0.7], [1], make_method("k=2", "baseline=none")).tolist() == [0.7]
    assert compare([1.0, 2.0], [1, 3], make_method("baseline=none")).tolist() == [1.0, 2.0]
