"""Train one prepared fine-tuning run to a checkpoint.

    prepared = prepare(task, rows)
    folder = begin(prepared, Path("runs/base"))
    result = train(prepared, folder)

Every process of a distributed run does all three; the first one writes.

The result is a checkpoint that the local engine plays, with a card that records its training.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.errors import TrainingFailure, UsageError
from collab.models.checkpoint_card import CARD, hash_weights, write_layout
from collab.models.tokenizer import silence_transformers
from collab.models.vision import FILES as PICTURE_FILES
from collab.trainers.base_model import drop_reference, silence_libraries
from collab.trainers.batching import select_process
from collab.trainers.distributed import (
    build_threads_head,
    check_checkpoint,
    check_sharded,
    gather_model,
    use_recorded_threads,
)
from collab.trainers.prepare import Prepared, get_world
from collab.trainers.recipe import DpoRecipe, RLRecipe
from collab.trainers.run_dir import FinetuneDir, report_save_errors
from collab.utils.concurrency import note_doing
from collab.utils.files import sync_directory, sync_files, write_json

if TYPE_CHECKING:
    from collab.trainers.callbacks import Watcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """End of a run."""

    step: int
    """The last one trained."""
    steps: int
    final: Path | None
    """The checkpoint; None when the run stopped before its end and can be resumed."""
    loss: float | None
    """As last logged."""


def begin(prepared: Prepared, out: Path, resume: str | None = None) -> FinetuneDir:
    """Create the run directory; UsageError if it exists.

    A run of one process keeps torch's number of threads here for every resume; several processes follow the launcher.
    """
    folder = FinetuneDir(out, resume)
    if get_world()[0] == 0:
        folder.begin({**prepared.build_manifest(), **(build_threads_head() if prepared.world == 1 else {})})
    return folder


def check_same(prepared: Prepared, manifest: Mapping[str, Any]) -> None:
    """Check that base, data, order and number of processes of a run are unchanged.

    Raises:
        UsageError: names the first thing that differs.
    """
    now = prepared.build_manifest()
    tokens = now["data"]["tokens"]
    # From the cause to its consequences: another base also changes tokens and order.
    for what, was, found in (
        ("the weights of the base", manifest["base"]["digest"], now["base"]["digest"]),
        *(
            (what, (manifest.get(name) or {}).get("digest"), (now[name] or {}).get("digest"))
            for name, what in (
                ("reference", "the reference"),
                ("adapter", "the adapter"),
                ("reference_adapter", "the adapter of the reference"),
                ("moments", "the optimizer's moments"),
            )
        ),
        ("the data", manifest["data"]["digest"], now["data"]["digest"]),
        ("the number of processes", manifest["processes"], now["processes"]),
        ("the order of steps", manifest["order"], now["order"]),
        ("the base's tokenizer or chat template", manifest["data"]["tokens"], tokens),
    ):
        if was != found:
            raise UsageError(f"--resume: {what} changed since the run began ({was} before, {found} now); start anew")


def train(
    prepared: Prepared,
    folder: FinetuneDir,
    *,
    watch: Callable[[Any], None] = lambda progress: None,
    stopping: Callable[[], bool] = lambda: False,
    device: str = "auto",
    report_to: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Result:
    """Train to the end or until stopped, from the newest complete checkpoint if there is one.

    Args:
        watch: called with every logged step.
        stopping: asked after every step; True stops with a checkpoint.
        device: "auto" takes a GPU when there is one, or "cpu".
        report_to: further places for metrics, "tensorboard" or "trackio".
        note: takes a line if it resumes with another number of threads than torch has here.

    Raises:
        ConfigError: the weights cannot be loaded.
        UsageError: another process trains this run, or it is done.
        RunFormatError: the checkpoint to resume from is damaged.
        TrainingFailure: memory does not suffice.
        Diverged: loss, gradient or weights are no longer numbers; no checkpoint of such weights is written.
        StoreFailure: something cannot be written.
    """
    if get_world()[0] != 0:
        with _report_out_of_memory(folder):
            return _train(prepared, folder, watch, stopping, device, report_to)
    with folder.lock():
        if folder.final.is_dir():
            raise UsageError(f"{folder.path}: the run is done; its checkpoint is {folder.final}")
        folder.clear_partial()
        with use_recorded_threads(folder.read(), str(folder.file), note), _report_out_of_memory(folder):
            return _train(prepared, folder, watch, stopping, device, report_to)


@contextmanager
def _report_out_of_memory(folder: FinetuneDir) -> Iterator[None]:
    """Turn an out-of-memory error into TrainingFailure with advice."""
    from collab.models.checkpoint import is_out_of_memory

    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingFailure(
            f"{folder.path}: memory does not suffice to train: {said}; resume where there is more of it, or begin a "
            "new run with a smaller rows_at_once or context, or checkpointing=true (of a training of teams: "
            "dpo.rows_at_once and so on)"
        ) from None


def _train(
    prepared: Prepared,
    folder: FinetuneDir,
    watch: Callable[[Any], None],
    stopping: Callable[[], bool],
    device: str,
    report_to: Sequence[str],
) -> Result:
    """Train in one of the processes, from the last checkpoint if there is one."""
    # Imported here: commands that train nothing must not wait for torch.
    with note_doing("loading torch and TRL"):
        from collab.trainers.trainer import build_trainer

    rank, processes = get_world()
    # Every process checks how the checkpoint was split; one process hashes it, because that takes time.
    checkpoint = folder.find_checkpoint()
    if checkpoint is not None:
        check_checkpoint(checkpoint)
    if rank == 0 and checkpoint is not None:
        folder.check_whole(checkpoint)
    try:
        with silence_libraries():
            trainer = build_trainer(prepared, folder, device, report_to)
    except UsageError:
        # Refused before the first step: a fresh directory is removed, one with a checkpoint stays.
        if rank == 0 and checkpoint is None:
            folder.abandon()
        raise
    check_sharded(trainer)
    # The written order decides what each process computes, not a sampler: a resume repeats it.
    trainer.steps = select_process(prepared.steps, rank, processes)
    trainer.folder, trainer.keep = folder, prepared.task.recipe.keep
    watcher = _build_watcher(prepared, folder, trainer.accelerator, watch, stopping)
    trainer.add_callback(watcher)
    # Metrics behind the checkpoint belong to steps that are trained again; otherwise they would appear twice.
    if rank == 0:
        folder.forget_metrics_after(0 if checkpoint is None else int(checkpoint.name.removeprefix("step-")))
    with silence_libraries():
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    # A stopped run has no result: a resume begins from its last checkpoint.
    final = None if watcher.stopped else folder.final
    if final is not None:
        write_result(trainer, prepared, folder)
    # Others must not leave while the first still writes.
    trainer.accelerator.wait_for_everyone()
    lines = folder.read_metrics()
    loss = lines[-1]["loss"] if lines else None
    return Result(step=trainer.state.global_step, steps=len(prepared.steps), final=final, loss=loss)


def _build_watcher(
    prepared: Prepared,
    folder: FinetuneDir,
    accelerator: Any,
    watch: Callable[[Any], None],
    stopping: Callable[[], bool],
) -> Watcher:
    from collab.trainers.callbacks import Watcher, build_gather

    recipe = prepared.task.recipe
    return Watcher(
        folder,
        prepared.steps,
        prepared.step_tokens,
        prepared.step_pairs,
        watch=watch,
        stopping=stopping,
        writes=get_world()[0] == 0,
        gather=build_gather(accelerator),
        beta=recipe.beta if isinstance(recipe, DpoRecipe) else None,
    )


def write_result(trainer: Any, prepared: Prepared, folder: FinetuneDir) -> None:
    """Write `OUT/final` under a temporary name and rename it; all processes call this, and the first one writes.

    With LoRA it is the adapter alone, or (`lora.merge`) the base with the adapter added to its weights.

    Raises:
        StoreFailure: it cannot be written; the last checkpoint is kept.
    """
    import torch

    recipe = prepared.task.recipe
    model = gather_model(trainer, prepared)
    if not trainer.is_world_process_zero():
        return
    drop_reference(model)
    merged = recipe.lora is None or recipe.lora.merge
    if recipe.lora is not None and merged:
        model = merge_adapter(model)
    for weight in model.parameters():
        if merged or weight.requires_grad:  # the base of an adapter is not written
            weight.data = weight.data.to(getattr(torch, recipe.saved))
    target = folder.path / ".final"
    with report_save_errors(folder.path, folder.resume), silence_transformers():
        # A merged adapter is gone, and the next run begins with another one.
        if isinstance(recipe, RLRecipe) and recipe.keeps_optimizer and not (recipe.lora and recipe.lora.merge):
            trainer.write_moments(folder.moments)
        model.save_pretrained(target)
        trainer.processing_class.save_pretrained(target)
        # A base that sees still sees when it was trained on texts.
        for file in (Path(prepared.base.path) / name for name in PICTURE_FILES if merged):
            if file.is_file():
                shutil.copyfile(file, target / file.name)
        write_layout(target)
        write_json(target / CARD, {**prepared.build_manifest(), "digest": hash_weights(target)})
        sync_files(target)
        target.rename(folder.final)
        sync_directory(folder.path)


def merge_adapter(model: Any) -> Any:
    """Merge the adapter into its base in place, in float32, so that only writing rounds."""
    return model.float().merge_and_unload()
