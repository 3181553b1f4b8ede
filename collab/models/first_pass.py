"""What the first pass over a padded batch takes beside its ids, by family of checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from collab.models.checkpoint import Checkpoint
from collab.models.generation import Generation
from collab.models.vision import PREFIX_FAMILIES


def first_pass(
    checkpoint: Checkpoint, batch: Sequence[Generation], ids: Tensor, mask: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Positions and further inputs of a batch that is computed for the first time.

    Args:
        checkpoint: that computes it.
        batch: one per row.
        ids: padded on the left, (rows, longest).
        mask: 0 for padding, 1 for tokens, (rows, longest).

    Returns:
        Positions, (rows, longest), or (3, rows, longest) where pictures have positions in a plane; and the inputs of
        the forward pass that say what is seen, by name. The next token's positions are the last ones plus 1.
    """
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    inputs = _pixels(batch, ids.device)
    if checkpoint.family is None:
        return positions, inputs
    if checkpoint.family in PREFIX_FAMILIES:
        said = torch.zeros_like(ids)
        for row, one in zip(said, batch, strict=True):
            row[len(row) - len(one.tokens) :] = 1  # the prompt attends in both directions, a reply only back
        return positions + 1, {**inputs, "token_type_ids": said}  # this family counts from 1
    if inputs:
        positions, _ = checkpoint.model.model.get_rope_index(
            ids,
            mm_token_type_ids=(ids == checkpoint.model.config.image_token_id).int(),
            image_grid_thw=inputs["image_grid_thw"],
            attention_mask=mask,
        )
    return positions, inputs


def _pixels(batch: Sequence[Generation], device: torch.device) -> dict[str, Tensor]:
    """The pictures of all rows, joined in order; empty when there is none."""
    pictures = [picture for one in batch for picture in one.job.pictures]
    names = pictures[0].inputs if pictures else ()
    return {name: torch.cat([picture.inputs[name] for picture in pictures]).to(device) for name in names}
