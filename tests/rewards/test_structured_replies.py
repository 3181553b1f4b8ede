"""Structured replies: generous about what stands around the items, strict about each item."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.rewards.structured_replies import (
    AnswerItem,
    InstructionItem,
    ProposalItem,
    ReplyItems,
    ScoreItem,
    read_items,
)

ONE = {"question": 1, "answer": "A list of rooms."}
TWO = {"question": 2, "answer": "It opens the next room."}


def answers(*items: dict[str, object]) -> tuple[AnswerItem, ...]:
    return tuple(AnswerItem.model_validate(item) for item in items)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"answers": [ONE, TWO]}),
        json.dumps([ONE, TWO]),
        f"```json\n{json.dumps({'answers': [ONE, TWO]}, indent=2)}\n```",
        f"Here you are:\n\n{json.dumps(ONE)}\n{json.dumps(TWO)}\nI hope this helps {{}}.",
        f"'{json.dumps(ONE)}'\n'{json.dumps(TWO)}'",
        f"<think>Perhaps {json.dumps(TWO)}?</think>{json.dumps([ONE, TWO])}",
        json.dumps({"analysis": "There are two.", "answers": [ONE, TWO]}),
        json.dumps({"analysis": [{"step": 1}, {"step": 2}], "answers": [ONE, TWO]}),
        json.dumps({"answers": [ONE, TWO], "sure": True, "left_out": []}),
    ],
)
def test_whatever_stands_around_the_items_is_read_over(text):
    assert read_items(text, AnswerItem) == ReplyItems(good=answers(ONE, TWO))


def test_a_reply_that_was_cut_off_keeps_its_whole_items():
    whole = json.dumps({"answers": [ONE, TWO, {"question": 3, "answer": "It is"}]})
    found = read_items(whole[: whole.rindex("It is")], AnswerItem)
    assert found.good == answers(ONE, TWO)


def test_an_item_may_hold_a_list_of_objects_itself():
    item = {**ONE, "seen": [{"element": 1}, {"element": 2}]}
    assert read_items(json.dumps(item), AnswerItem) == ReplyItems(good=answers(ONE))


def test_half_the_schema_costs_the_broken_half_only():
    items = [ONE, {"question": 2}, {"answer": "no number"}, {"question": "3", "answer": "a word"}, TWO]
    found = read_items(json.dumps({"answers": items}), AnswerItem)
    assert found.good == answers(ONE, TWO)
    assert found.refused == {"an item does not fit the schema": 3}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "the reply is empty"),
        ("  \n", "the reply is empty"),
        (f"<think>Perhaps {json.dumps([ONE, TWO])}", "the reply is empty"),
        ("[]", "the reply holds no item"),
        ("{}", "the reply holds no item"),
        ('{"answers": []}', "the reply holds no item"),
        ("I cannot help with that.", "the reply is not JSON"),
        ("[[[[[[", "the reply is not JSON"),
        ("x" * 300_000, "the reply is too long"),
        ('{"question": NaN, "answer": "x"}', "the reply is not JSON"),
    ],
)
def test_replies_without_items_are_named(text, cause):
    assert read_items(text, AnswerItem) == ReplyItems(good=(), refused={cause: 1})


@pytest.mark.parametrize("answer", ["", "   ", "half \ud83d", "bell \x07", "x" * 2001, 7, None])
def test_an_answer_must_be_words(answer):
    assert read_items(json.dumps([{"question": 1, "answer": answer}]), AnswerItem).good == ()


def test_line_breaks_in_words_become_spaces():
    assert (
        read_items(json.dumps([{"question": 1, "answer": " One.\n Two. "}]), AnswerItem).good[0].answer == "One. Two."
    )


@pytest.mark.parametrize("score", [-0.1, 1.5, "1.7", "high", True, None])
def test_a_score_is_a_number_from_0_to_1(score):
    assert read_items(json.dumps([{"id": 1, "score": score}]), ScoreItem).good == ()


@pytest.mark.parametrize("score", [0, 1, 0.5, 0.73, "0.73"])
def test_scores_in_range_are_kept_as_they_are(score):
    assert read_items(json.dumps([{"id": 1, "score": score}]), ScoreItem).good[0].score == float(score)


def test_an_action_may_be_an_object_or_a_call():
    said = [{"reason": "why", "action": {"action_type": "wait"}}, {"reason": "why", "action": "click(id=3)"}]
    assert [item.action for item in read_items(json.dumps(said), ProposalItem).good] == [
        {"action_type": "wait"},
        "click(id=3)",
    ]


def test_an_object_with_one_list_is_taken_apart_only_when_the_list_holds_objects():
    said = {"instruction": "Press it.", "reason": "why", "action": {"action_type": "click", "index": 1}}
    assert len(read_items(json.dumps(said), InstructionItem).good) == 1
    assert read_items('{"answers": ["none"]}', AnswerItem).refused == {"an item does not fit the schema": 1}


@given(st.text(alphabet='{}[]",:1aé\\ \n', max_size=300))
def test_no_text_breaks_the_reader(text):
    found = read_items(text, AnswerItem)
    assert found.good or found.refused


def test_hostile_nesting_ends_soon():
    found = read_items("[" * 100_000, AnswerItem)
    assert found.refused == {"the reply is not JSON": 1}
