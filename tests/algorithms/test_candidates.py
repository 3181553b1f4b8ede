"""Candidates of one state: what each teaches beside the others, and what is told where they are alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collab.algorithms.coach.config import CoachMethod
from collab.algorithms.coach.fitting import DistinctReply, Visited, compare
from collab.algorithms.coach.learner import _warn_if_alike
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


def test_replies_without_a_baseline_teach_however_alike_they_are_and_are_told_to_be() -> None:
    alike, apart = visit((0.7, 0.7, 3)), visit((0.7, 0.7, 1), (0.2, 0.2, 2))
    assert (alike.is_taught, alike.is_apart, apart.is_apart) == (True, False, True)
    assert (visit((0.7, 0.0, 3)).is_taught, visit((0.7, 0.7, 1)).is_apart) == (False, False)
    told: list[str] = []
    state: Any = SimpleNamespace(note=told.append)
    alone = make_method("baseline=none")
    _warn_if_alike(state, 4, [alike, alike, apart], alone)
    assert told == [
        "epoch 4: the replies to 1 of 3 states differ in value, and only these tell replies apart; raise k or "
        "exploration_temperatures, in another training"
    ]
    _warn_if_alike(state, 4, [alike, alike, alike, apart, apart], alone)  # two fifths are enough
    _warn_if_alike(state, 4, [visit((0.7, 0.7, 1))] * 5, make_method("k=1"))  # there is nothing to tell apart
    assert len(told) == 1
    _warn_if_alike(state, 4, [alike], make_method())
    assert "and only these teach anything; raise k" in told[1]


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
