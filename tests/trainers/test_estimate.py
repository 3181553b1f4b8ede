"""What training will take, from a few pairs: time that was measured, memory of a whole step, and what cannot be."""

from dataclasses import replace
from pathlib import Path

import pytest

from collab.data.tokenize import encode_pairs, encode_replies
from collab.errors import ConfigError
from collab.trainers import estimate
from collab.trainers.batching import count_packed_tokens
from collab.trainers.estimate import Time, _fill_items, estimate_memory, forecast
from collab.trainers.prepare import prepare


def test_time_is_per_pair_and_memory_of_a_whole_step(samples, base: Path, chat, monkeypatch) -> None:
    """Four pairs are tried; a step has eight, all in one pass, as long as these or as the context of 200 tokens."""
    rows = samples.rows(8, ["preference"])
    task = samples.task(base, "dpo", "batch_rows=8", "epochs=3", "sharing=prefix")
    monkeypatch.setattr(estimate, "measure", lambda prepared, device, needed: Time(seconds=6.0, measured=True))
    few = list(encode_pairs(rows[:4], chat, 200).items)
    found = forecast(task, few, "cpu")
    assert (found.seconds_per_item, found.measured) == (1.5, True)
    assert found.tokens_per_item == count_packed_tokens([side for pair in few for side in pair.sides]) / 4
    whole = estimate_memory(prepare(task, rows))
    assert (found.least.weights, found.least.optimizer) == (whole.weights, whole.optimizer)
    scored, per_token = sum(2 * pair.scored for pair in few), found.least.activations
    assert found.most.activations > per_token > 12 * scored * 500
    halved = forecast(replace(task, recipe=task.recipe.model_copy(update={"rows_at_once": 4})), few, "cpu")
    assert halved.most.activations == pytest.approx(found.most.activations / 2, rel=0.05)
    shared = forecast(task, few, "cpu", processes=2)
    assert shared.most.activations == pytest.approx(halved.most.activations, rel=0.05)


def test_replies_alone_take_less_than_pairs(samples, base: Path, chat, monkeypatch) -> None:
    """No rejected reply is computed and no reference is held; of full weights that is half of them."""
    rows = samples.rows(4, ["preference"])
    monkeypatch.setattr(estimate, "measure", lambda prepared, device, needed: Time(seconds=6.0, measured=True))
    pairs = forecast(samples.task(base, "dpo"), list(encode_pairs(rows, chat, 200).items), "cpu")
    task = samples.task(base, "sft", "levels=[demonstration]")
    replies = [replace(one, group="demonstration") for one in encode_replies(rows, chat, 200).items]
    found = forecast(task, replies, "cpu")
    assert found.seconds_per_item == 1.5
    assert found.tokens_per_item == max(map(len, replies)) < pairs.tokens_per_item, "all in one padded pass"
    assert found.least.weights == pairs.least.weights // 2
    assert found.least.activations < pairs.least.activations
    assert 1.5 < found.most.activations / found.least.activations


def test_states_that_are_made_up_share_nothing(samples, chat) -> None:
    pairs = list(encode_pairs(samples.rows(2, ["preference"]), chat, 200).items)
    filled = _fill_items(pairs, 6, 150)
    assert [len(pair) for pair in filled] == [150] * 6
    assert len({int(pair.prompt[0]) for pair in filled[::2]}) == 3
    assert len({pair.state for pair in filled}) == 6
    replies = list(encode_replies(samples.rows(2, ["preference"]), chat, 200).items)
    made = _fill_items(replies, 4, 150)
    assert [len(one) for one in made] == [150] * 4
    assert [one.scored for one in made] == [one.scored for one in (*replies, *replies)]
    assert made[0].ids[-3:].tolist() == made[2].ids[-3:].tolist() == replies[0].ids[-3:].tolist()
    assert made[0].ids[0] != made[2].ids[0]


def test_pairs_that_do_not_fit_are_one_line(samples, base: Path, chat) -> None:
    pairs = list(encode_pairs(samples.rows(2, ["preference"]), chat, 200).items)
    with pytest.raises(ConfigError, match=r"none of 2 pairs fits into context 16, the shortest has \d+ tokens"):
        forecast(samples.task(base, "dpo", "context=16"), pairs, "cpu")
