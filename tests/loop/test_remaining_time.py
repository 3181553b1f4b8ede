"""Spent and remaining time of a training, checked against values worked out by hand."""

from __future__ import annotations

from collab.loop.record import EpochRecord, Spending
from collab.loop.state import TrainingProgress, estimate_seconds_left, sum_epoch_seconds, sum_spent_so_far
from collab.rewards.labelling import LabellingProgress
from collab.rollout.collector import RolloutProgress as Collecting
from collab.types import Usage


def record(epoch: int, **spent: Spending) -> EpochRecord:
    return EpochRecord(algorithm="collabuiagents", epoch=epoch, version=epoch, weights={}, spent=spent, hash="")


def progress(epoch: int, *records: EpochRecord) -> TrainingProgress:
    return TrainingProgress(algorithm="collabuiagents", epoch=epoch, epochs=4, records=list(records), began=1000.0)


def spent(progress: TrainingProgress) -> tuple[int, float]:
    found = sum_spent_so_far(progress)
    return found.tokens, found.cost_usd


START = record(0, evaluation=Spending(seconds=500, calls=1))
FIRST = record(1, rollout=Spending(seconds=90, calls=1), training=Spending(seconds=10, prompt_tokens=1))
SECOND = record(2, rollout=Spending(seconds=60, calls=1), critic=Spending())


def test_epochs_to_come_are_as_long_as_the_mean_of_those_that_are_over() -> None:
    """Of 100 and 60 seconds; how long the start was measured says nothing of them."""
    assert estimate_seconds_left(progress(3, START, FIRST, SECOND), 1030.0) == 80 - 30 + 80
    assert estimate_seconds_left(progress(3, START, FIRST, SECOND), 2000.0) == 80
    assert estimate_seconds_left(progress(2, START, FIRST, SECOND), 2000.0) == 2 * 80, "the next has not begun"
    assert estimate_seconds_left(progress(4, START, FIRST), 1000.0) == 100


def test_an_unknown_time_is_not_guessed() -> None:
    died = record(1, rollout=Spending(calls=1), training=Spending(seconds=10))
    assert sum_epoch_seconds(died) is None
    assert estimate_seconds_left(progress(2, START, died), 1000.0) is None
    assert estimate_seconds_left(progress(1, START), 1000.0) is None
    assert estimate_seconds_left(progress(3, START, died, SECOND), 1000.0) == 2 * 60
    assert sum_epoch_seconds(SECOND) == 60, "a part without calls took no time"


def test_all_that_was_asked_is_counted_once() -> None:
    found = progress(1, record(0, evaluation=Spending(prompt_tokens=5, completion_tokens=1, cost_usd=0.5)))
    found.records[0].spent["training"] = Spending(prompt_tokens=1000)
    assert spent(found) == (6, 0.5)
    found.spent = Usage(prompt_tokens=10, cost_usd=1.0)
    found.inner = Collecting(planned=1, spent=Usage(prompt_tokens=3, completion_tokens=1, cost_usd=0.25))
    assert spent(found) == (20, 1.75)
    found.inner = LabellingProgress(spent=Usage(prompt_tokens=100, completion_tokens=100, cost_usd=2.0))
    assert spent(found) == (216, 3.5)
    found.close(record(1, rollout=Spending(prompt_tokens=10, cost_usd=1.0)))
    assert spent(found) == (16, 1.5)
