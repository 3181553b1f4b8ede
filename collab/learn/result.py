"""What a run leaves behind: a checkpoint that the local engine plays, with a card that says how it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collab.learn.adapter import drop_reference
from collab.learn.folder import RunFolder, saving
from collab.learn.sharded import whole_model
from collab.models.chat import quiet_transformers
from collab.models.layout import CARD, weights_digest, write_layout
from collab.store.files import sync_directory, sync_files, write_json

if TYPE_CHECKING:
    from collab.learn.prepare import Prepared


def write_result(trainer: Any, prepared: Prepared, folder: RunFolder) -> None:
    """Write `OUT/final` under a temporary name and rename it; all processes call this, and the first one writes.

    With LoRA it is the adapter alone, or (`lora.merge`) the base with the adapter added to its weights.

    Raises:
        StoreFailure: it cannot be written; the last checkpoint is kept.
    """
    import torch

    recipe = prepared.task.recipe
    model = whole_model(trainer, prepared)
    if not trainer.is_world_process_zero():
        return
    drop_reference(model)
    merged = recipe.lora is None or recipe.lora.merge
    if recipe.lora is not None and merged:
        model = added(model)
    for weight in model.parameters():
        if merged or weight.requires_grad:  # the base of an adapter is not written
            weight.data = weight.data.to(getattr(torch, recipe.saved))
    target = folder.path / ".final"
    with saving(folder.path, folder.resume), quiet_transformers():
        model.save_pretrained(target)
        trainer.processing_class.save_pretrained(target)
        write_layout(target)
        write_json(target / CARD, {**prepared.manifest(), "digest": weights_digest(target)})
        sync_files(target)
        target.rename(folder.final)
        sync_directory(folder.path)


def added(model: Any) -> Any:
    """The base with its adapter added to its weights, in float32 whatever either was in: who writes it rounds once.

    It is changed in place; the base takes the memory of float32.
    """
    return model.float().merge_and_unload()
