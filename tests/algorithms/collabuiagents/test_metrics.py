"""The best epoch and an epoch's metrics, checked against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collab.algorithms.collabuiagents.metrics import (
    compute_reward_rate,
    compute_reward_rates,
    count_unasked,
)
from collab.errors import RunFormatError
from collab.loop.record import (
    EpochRecord,
    Spending,
    Success,
    find_best_epoch,
    is_patience_over,
    read_record,
)
from collab.rewards.base import CriticCall, Judgement
from collab.rewards.labels import FailedLabel, LabelHead, LabelSet
from collab.store.rewards import CellReward, RewardMatrix
from collab.types import CellRef, Usage


def record(epoch: int, successes: int | None) -> EpochRecord:
    rate = None if successes is None else Success(successes=successes, episodes=10, low=0, high=1, broken=0)
    return EpochRecord(algorithm="collabuiagents", epoch=epoch, version=epoch, weights={}, success=rate, hash="")


@pytest.mark.parametrize(
    ("successes", "best"),
    [([1, 3, 2], 1), ([3, 3, 3], 0), ([1, 4, 4], 1), ([None, 0], 1), ([None], None), ([], None)],
)
def test_the_best_is_the_earliest_of_the_highest(successes: list[int | None], best: int | None) -> None:
    records = [record(epoch, value) for epoch, value in enumerate(successes)]
    assert find_best_epoch(records) == best
    assert find_best_epoch(reversed(records)) == best


def test_an_evaluation_of_which_too_much_broke_makes_no_epoch_the_best() -> None:
    spoilt = record(2, 9).model_copy(update={"success": Success(successes=9, episodes=10, low=0, high=1, broken=1)})
    assert find_best_epoch([record(1, 3), spoilt]) == 1
    assert find_best_epoch([spoilt]) is None


@pytest.mark.parametrize(
    ("successes", "patience", "over"),
    [([5, 4, 4], 2, True), ([5, 4], 2, False), ([5, 4, 6], 1, False), ([5, 5], 1, True), ([5, 1, 1], None, False)],
)
def test_patience_counts_from_the_best_epoch(successes: list[int], patience: int | None, over: bool) -> None:
    assert is_patience_over([record(epoch, one) for epoch, one in enumerate(successes)], patience) is over


def judgement(step: int, **scores: float | None) -> Judgement:
    rewards = tuple(
        CellReward(cell=CellRef(name[:-1], int(name[-1])), score=score, missing="none" if score is None else None)
        for name, score in scores.items()
    )
    return Judgement(case="", rewards=RewardMatrix(trajectory="t", step=step, critic="c", rewards=rewards))


def test_reward_rates_count_what_was_judged() -> None:
    """Exactly the threshold earns nothing; a missing score is neither."""
    judged = [
        judgement(0, ada0=1.0, ada1=0.5, ben0=None, ben1=0.6),
        judgement(1, ada0=0.0, ada1=None, ben0=None, ben1=1.0),
    ]
    rates = compute_reward_rates(judged, ("ada", "ben"), 2, 0.5)
    assert rates == {"ada": [0.5, 0.0], "ben": [None, 1.0]}
    assert compute_reward_rates(judged, ("ada", "ben"), 2, 0.7)["ben"] == [None, 0.5]


def test_the_share_of_rewarded_cells_weighs_every_judged_cell_alike() -> None:
    """Six of ten, though the mean over agents and rounds is a third."""
    judged = [judgement(step, ada0=1.0 if step < 6 else 0.2) for step in range(9)]
    judged.append(judgement(9, ada0=None, ben0=0.5))
    assert compute_reward_rates(judged, ("ada", "ben"), 1, 0.5) == {"ada": [6 / 9], "ben": [0.0]}
    assert compute_reward_rate(judged, 0.5) == 0.6
    assert compute_reward_rate([judgement(0, ada0=None)], 0.5) is None


def test_what_could_not_be_asked_is_counted_by_cause_with_what_was_said_last() -> None:
    def failed(step: int, error: str, message: str) -> FailedLabel:
        return FailedLabel(trajectory="a/0", step=step, case="", error=error, message=message)

    told = [
        failed(0, "ModelFailure", "busy"),
        failed(1, "EnvironmentFailure", "gone"),
        failed(2, "ModelFailure", "500"),
    ]
    assert count_unasked(told) == {"ModelFailure, the last: 500": 2, "EnvironmentFailure, the last: gone": 1}


def test_answers_of_steps_that_could_not_be_judged_are_paid_for_too() -> None:
    call = CriticCall(
        prompt="5e" * 32, model="m", seed=1, reply="r", cells=(), prompt_tokens=10, completion_tokens=2, cost_usd=0.5
    )
    judged = [replace(judgement(0, ada0=1.0), calls=(call, call)), judgement(1, ada0=0.0)]
    labels = LabelSet(name="training", head=LabelHead(critic="c"), judged={one.key: one for one in judged}, failed={})
    assert labels.spent == Usage(calls=2, prompt_tokens=20, completion_tokens=4, cost_usd=1.0)
    lost = (Usage(calls=1, prompt_tokens=7, completion_tokens=1, cost_usd=0.25),) * 2
    paid = replace(labels, lost=lost).spent
    assert paid == Usage(calls=4, prompt_tokens=34, completion_tokens=6, cost_usd=1.5)
    assert Spending.of(paid, 3.0) == Spending(seconds=3.0, calls=4, prompt_tokens=34, completion_tokens=6, cost_usd=1.5)


def test_a_record_that_cannot_be_read_can_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "run/epochs/1/epoch.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(RunFormatError, match=r"epoch\.json: cannot be read: .* --resume .*run$"):
        read_record(path)
