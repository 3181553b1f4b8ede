"""Rows of a forward pass as tensors, padded on the right, made when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from torch import Tensor
from trl.trainer.dpo_trainer import DataCollatorForPreference

from collab.learn.examples import IGNORED, Example, Pair

Collate = Callable[[Sequence[Mapping[str, int]]], dict[str, Any]]
_ROW = "row"
_SIDES = ("prompt_ids", "chosen_ids", "rejected_ids")
"""What TRL calls the parts of a preference."""


def positions(items: Sequence[Any]) -> Dataset:
    """A data set of positions in `items`: TRL wants one, and the tokens need not stand in memory twice."""
    return Dataset.from_dict({_ROW: range(len(items))})


def at(part: Sequence[int]) -> list[dict[str, int]]:
    """The rows of `positions` with these numbers."""
    return [{_ROW: row} for row in part]


def collate_examples(examples: Sequence[Example], padding: int, *, prompts: bool = False) -> Collate:
    """Makes batches of scored sequences.

    Args:
        prompts: label prompts, too, and tell by `replies` where a reply stands (see `reading`).

    Returns:
        Function of rows of `positions` to input_ids, labels and attention_mask, (rows, longest) each.
    """

    def collate(rows: Sequence[Mapping[str, int]]) -> dict[str, Tensor]:
        chosen = [examples[row[_ROW]] for row in rows]
        shape = (len(chosen), max(map(len, chosen)))
        ids, labels, mask = (torch.full(shape, value) for value in (padding, IGNORED, 0))
        for place, one in enumerate(chosen):
            ids[place, : len(one)] = torch.from_numpy(one.ids)
            labels[place, one.scored_from : len(one)] = ids[place, one.scored_from : len(one)]
            mask[place, : len(one)] = 1
        batch = {"input_ids": ids, "labels": labels, "attention_mask": mask}
        if prompts:
            batch |= {"replies": labels != IGNORED, "labels": ids.masked_fill(mask == 0, IGNORED)}
        return batch

    return collate


def collate_pairs(pairs: Sequence[Pair], padding: int) -> Collate:
    """Makes batches of preferences as TRL's own collator does: all chosen sides, then all rejected ones."""
    theirs = DataCollatorForPreference(pad_token_id=padding, max_length=None)

    def collate(rows: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        chosen = [pairs[row[_ROW]] for row in rows]
        fields = ("prompt", "chosen", "rejected")
        batch: dict[str, Any] = theirs(
            [{f"{name}_ids": getattr(one, name).tolist() for name in fields} for one in chosen]
        )
        return batch

    return collate
