"""Sums over the calls of a run, with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from collab.store.run import RunStore
from collab.store.usage import Cost, Costs, CountedSum, sum_costs
from collab.types import Step, Usage

CALLS = (
    {"prompt_tokens": 200, "computed_tokens": 200, "completion_tokens": 3, "latency_s": 0.5, "queue_s": 0.125}
    | {"width": 1.0, "cost_usd": 0.25},
    {"prompt_tokens": 220, "computed_tokens": 20, "completion_tokens": 5, "latency_s": 1.0, "queue_s": 0.25}
    | {"width": 3.0},
    {"prompt_tokens": 240, "completion_tokens": None, "latency_s": 0.5, "cost_usd": 0.5},
    {"prompt_tokens": None, "computed_tokens": 7, "completion_tokens": 4, "latency_s": 2.0, "queue_s": 1.0}
    | {"width": 2.0},
)
"""Of ada and ben, who hears her, in two rounds; some tell this and some that."""


def told_step(make: SimpleNamespace, index: int = 0) -> Step:
    step = make.step(index)
    cells = tuple(replace(cell, **told) for cell, told in zip(step.matrix, CALLS, strict=True))
    return replace(step, matrix=replace(step.matrix, utterances=cells))


def costs(store: RunStore) -> Costs:
    with store.open_reader() as reader:
        return sum_costs(reader)


def test_sums_are_over_the_calls_that_tell(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", [told_step(make)])
    found = costs(store)
    whole = found.whole
    assert (found.steps, whole.calls) == (1, 4)
    assert whole.prompt_tokens == CountedSum(calls=3, total=660)
    assert whole.completion_tokens == CountedSum(calls=3, total=12)
    assert whole.computed_tokens == CountedSum(calls=2, total=220), "what has no prompt beside it says nothing"
    assert whole.cacheable_tokens == CountedSum(calls=2, total=420)
    assert whole.hit_rate == pytest.approx(200 / 420)
    assert whole.usd == CountedSum(calls=2, total=0.75)
    assert whole.width.mean == 2.0
    assert whole.queue_s == CountedSum(calls=3, total=1.375)
    assert whole.work_s == CountedSum(calls=3, total=0.375 + 0.75 + 1.0)
    assert whole.latency_s == CountedSum(calls=4, total=4.0)


def test_rounds_and_layers_are_told_apart(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", [told_step(make), told_step(make, 1)])
    found = costs(store)
    first, second = found.by_round[0], found.by_round[1]
    assert (first.calls, first.prompt_tokens.total, first.latency_s.total) == (4, 840, 3.0)
    assert (second.calls, second.prompt_tokens.total, second.latency_s.total) == (4, 480, 5.0)
    assert first.hit_rate == pytest.approx(200 / 420)
    assert (second.hit_rate, second.computed_tokens.known) == (None, None)
    ada, ben = found.by_layer[0], found.by_layer[1]
    assert (ada.calls, ada.prompt_tokens.total, ada.hit_rate) == (4, 880, 0.0)
    assert (ben.calls, ben.prompt_tokens.total, ben.hit_rate) == (4, 440, pytest.approx(10 / 11))
    assert ada + ben == first + second == found.whole


def test_a_cell_without_a_layer_is_counted_apart(store: RunStore, make: SimpleNamespace) -> None:
    step = make.step(0)
    loop = replace(step, matrix=replace(step.matrix, edges=(("ada", "ben"), ("ben", "ada"))))
    with store.open_writer() as writer:
        make.play(writer, "A/0", [loop, make.step(1)])
    by_layer = costs(store).by_layer
    assert {layer: cost.calls for layer, cost in by_layer.items()} == {0: 2, 1: 2, None: 4}


def test_an_empty_run_cost_nothing(store: RunStore) -> None:
    with store.open_writer() as writer:
        writer.note("nothing was played")
    parts = {"by_round": {}, "by_layer": {}, "by_agent": {}, "by_model": {}, "proposals": ()}
    assert costs(store) == Costs(whole=Cost(), steps=0, spent=None, processes=1, told=0, **parts)


def test_what_processes_told_is_added_up_and_the_silent_one_is_noticed(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.begin(writer, "A/0")
        writer.step("A/0", told_step(make))
        writer.record_spent(Usage(calls=7, prompt_tokens=1100, completion_tokens=20, cost_usd=1.0))
    with store.open_writer() as writer:
        writer.resume_episode("A/0")
    with store.open_writer() as writer:
        writer.record_spent(Usage(calls=1, prompt_tokens=10, completion_tokens=2, cost_usd=0.5))
    found = costs(store)
    assert found.spent == Usage(calls=8, prompt_tokens=1110, completion_tokens=22, cost_usd=1.5)
    assert (found.processes, found.told, found.whole.calls) == (3, 2, 4)


def test_an_attempt_that_was_replaced_is_not_counted(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.begin(writer, "A/0")
        writer.step("A/0", told_step(make))
    with store.open_writer() as writer:
        make.play(writer, "A/0", [told_step(make)])
    assert costs(store).whole.calls == 4
