"""Batches: rows padded on the right, scored in the right places, equal to TRL's batches."""

import numpy as np
import torch
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from collab.data.tokenize import EncodedExample, EncodedPair, collate_examples, collate_pairs, make_position_dataset


def ids(*values: int):
    return np.array(values, np.int32)


EXAMPLES = [
    EncodedExample(group="basic", ids=ids(5, 6, 7), scored_from=1),
    EncodedExample(group="basic", ids=ids(8, 9), scored_from=1),
]
PAIRS = [
    EncodedPair(group="preference", prompt=ids(1, 2), chosen=ids(3), rejected=ids(4, 5)),
    EncodedPair(group="preference", prompt=ids(6), chosen=ids(7, 8), rejected=ids(9)),
]


def test_a_batch_by_hand() -> None:
    data = make_position_dataset(EXAMPLES)
    batch = collate_examples(EXAMPLES, padding=0)([data[1], data[0]])
    assert batch["input_ids"].tolist() == [[8, 9, 0], [5, 6, 7]]
    assert batch["labels"].tolist() == [[-100, 9, -100], [-100, 6, 7]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_prompts_are_labelled_where_they_are_to_be_read_too() -> None:
    batch = collate_examples(EXAMPLES, padding=0, prompts=True)(list(make_position_dataset(EXAMPLES)))
    assert batch["labels"].tolist() == [[5, 6, 7], [8, 9, -100]]
    assert batch["replies"].tolist() == [[False, True, True], [False, True, False]]


def test_batches_are_those_of_trl() -> None:
    theirs = DataCollatorForLanguageModeling(pad_token_id=0)(
        [{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, {"input_ids": [8, 9], "labels": [-100, 9]}]
    )
    ours = collate_examples(EXAMPLES, padding=0)(list(make_position_dataset(EXAMPLES)))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)


def test_preferences_are_those_of_trl() -> None:
    theirs = DataCollatorForPreference(pad_token_id=0)(
        [
            {"prompt_ids": [1, 2], "chosen_ids": [3], "rejected_ids": [4, 5]},
            {"prompt_ids": [6], "chosen_ids": [7, 8], "rejected_ids": [9]},
        ]
    )
    ours = collate_pairs(PAIRS, padding=0)(list(make_position_dataset(PAIRS)))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
