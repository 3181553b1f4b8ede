"""One fine-tuning run from rows to a checkpoint, in three moves: prepare, begin, train.

    prepared = prepare(Order(stage="sft", base="base", …), rows)
    folder = begin(prepared, out)
    result = train(prepared, folder, …)

Every process of a distributed run makes all three; the first one writes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collab
from collab.config import validate
from collab.errors import ConfigError, MissingExtra, UsageError
from collab.learn.base import Base, open_base
from collab.learn.copying import copy_sequences
from collab.learn.examples import Encoded, Example, Pair, encode_pairs, encode_replies, rows_digest
from collab.learn.folder import RunFolder
from collab.learn.order import Batch, Step, curriculum, mixed, of_process
from collab.learn.preset import CopyRecipe, DpoRecipe, Recipe, SftRecipe, Stage
from collab.synth.rows import Level, Row

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers")
"""Whose versions a run notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to train."""

    stage: Stage
    base: str
    """Directory of the checkpoint to start from."""
    preset: str
    """Name of the preset, for the record."""
    recipe: Recipe
    seed: int = 0
    data: tuple[str, ...] = ()
    """Where the rows come from, for the record."""
    max_broken: int = 0
    """Broken rows that were allowed, for the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that is decided before anything is trained."""

    task: Task
    base: Base
    encoded: Encoded[Example] | Encoded[Pair]
    steps: Sequence[Step]
    rows: str | None
    """Digest of the rows; None where there are none."""
    world: int
    """Processes that train together."""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each item; of a pair, of its longer sequence."""
        return [len(item) for item in self.encoded.items]

    @property
    def parts(self) -> int:
        """Forward passes per step, over all processes."""
        return _parts(self.task.recipe, self.world)

    def manifest(self) -> dict[str, Any]:
        """What `finetune.json` holds."""
        task = self.task
        return {
            "stage": task.stage,
            "preset": task.preset,
            "recipe": task.recipe.model_dump(mode="json"),
            "base": {"path": task.base, "digest": self.base.digest},
            "data": {
                "paths": list(task.data),
                "digest": self.rows,
                "max_broken": task.max_broken,
                "dropped": dict(self.encoded.dropped),
            },
            "seed": task.seed,
            "steps": len(self.steps),
            "order": _digest(self.steps),
            "processes": self.world,
            "versions": versions(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run ended."""

    step: int
    """The last one trained."""
    steps: int
    final: Path | None
    """The checkpoint; None when the run stopped before its end and can be resumed."""
    loss: float | None
    """As last logged."""


def check_installed() -> None:
    """MissingExtra unless all that training needs is there."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra.of(package, "train", "fine-tuning")


def world() -> tuple[int, int]:
    """Number of this process and how many there are, as the launcher says; (0, 1) without one."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def versions() -> dict[str, str]:
    """Versions of what trains."""
    return {"collab": collab.__version__, **{name: importlib.metadata.version(name) for name in PACKAGES}}


# ------------------------------------------------------------------------------------------------------- prepare


def prepare(task: Task, rows: Sequence[Row]) -> Prepared:
    """Tokenise and order; nothing is written and no weight is loaded.

    Args:
        rows: that the stage trains on; none for `copy`.

    Raises:
        ConfigError: base, rows and recipe do not fit together, or there is nothing to train.
        MissingExtra: a package is not installed.
    """
    check_installed()
    base = open_base(task.base, task.recipe)
    processes = world()[1]
    encoded = _encode(task, rows, base)
    if not encoded.items:
        raise ConfigError(f"--stage {task.stage}: there is nothing to train; {_advice(task)}")
    steps = _order(task, encoded, processes)
    digest = rows_digest(rows) if task.stage != "copy" else None
    return Prepared(task=task, base=base, encoded=encoded, steps=steps, rows=digest, world=processes)


def task_of(manifest: Mapping[str, Any]) -> Task:
    """The task that a manifest holds."""
    kinds: dict[str, type[Recipe]] = {"copy": CopyRecipe, "sft": SftRecipe, "dpo": DpoRecipe}
    stage = manifest["stage"]
    return Task(
        stage=stage,
        base=manifest["base"]["path"],
        preset=manifest["preset"],
        recipe=validate(kinds[stage], manifest["recipe"], "finetune.json"),
        seed=manifest["seed"],
        data=tuple(manifest["data"]["paths"]),
        max_broken=manifest["data"]["max_broken"],
    )


def levels_of(task: Task) -> tuple[Level, ...]:
    """Which levels a stage trains, in order."""
    if isinstance(task.recipe, SftRecipe):
        return tuple(task.recipe.levels)
    return ("preference",) if isinstance(task.recipe, DpoRecipe) else ()


def _encode(task: Task, rows: Iterable[Row], base: Base) -> Encoded[Example] | Encoded[Pair]:
    recipe = task.recipe
    if isinstance(recipe, CopyRecipe):
        return Encoded(items=copy_sequences(recipe, base.chat, task.seed))
    if isinstance(recipe, DpoRecipe):
        return encode_pairs(rows, base.chat, recipe.context)
    return encode_replies(rows, base.chat, recipe.context)


def _order(task: Task, encoded: Encoded[Any], processes: int) -> list[Step]:
    recipe, groups = task.recipe, encoded.groups
    lengths = [len(item) for item in encoded.items]
    batch = Batch(
        rows=recipe.batch_rows, tokens=recipe.batch_tokens, window=recipe.window, parts=_parts(recipe, processes)
    )
    if not isinstance(recipe, SftRecipe):
        passes: Mapping[str, float] = {name: float(recipe.epochs) for name in groups}
        return curriculum(lengths, groups, passes, batch=batch, seed=task.seed)
    passes = {
        level: recipe.epochs * recipe.weights_by_level.get(level, 1.0) for level in recipe.levels if level in groups
    }
    if recipe.order == "mixed":
        return mixed(lengths, groups, passes, epochs=recipe.epochs, batch=batch, seed=task.seed)
    return curriculum(lengths, groups, passes, batch=batch, seed=task.seed)


def _parts(recipe: Recipe, processes: int) -> int:
    """Forward passes per step, a multiple of the number of processes."""
    at_once = recipe.rows_at_once or math.ceil(recipe.batch_rows / processes)
    return math.ceil(recipe.batch_rows / (at_once * processes)) * processes


def _advice(task: Task) -> str:
    levels = ", ".join(levels_of(task))
    return f"the data has no rows of level {levels}; make some with collab synth, or name other levels"


def _digest(steps: Sequence[Step]) -> str:
    text = "\n".join(f"{step.group}:{step.parts}" for step in steps)
    return hashlib.sha256(text.encode()).hexdigest()


# --------------------------------------------------------------------------------------------------------- train


def begin(prepared: Prepared, out: Path) -> RunFolder:
    """Make the run directory; UsageError when something is there already."""
    folder = RunFolder(out)
    if world()[0] == 0:
        folder.create(prepared.manifest())
    return folder


def check_same(prepared: Prepared, manifest: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose base, data, order or number of processes is no longer what it was.

    Raises:
        UsageError: names the first thing that differs.
    """
    now = prepared.manifest()
    for what, was, found in (
        ("the weights of the base", manifest["base"]["digest"], now["base"]["digest"]),
        ("the data", manifest["data"]["digest"], now["data"]["digest"]),
        ("the number of processes", manifest["processes"], now["processes"]),
        ("the order of steps", manifest["order"], now["order"]),
    ):
        if was != found:
            raise UsageError(f"--resume: {what} changed since the run began ({was} before, {found} now); start anew")


def train(
    prepared: Prepared,
    folder: RunFolder,
    *,
    watch: Callable[[Any], None] = lambda progress: None,
    stopping: Callable[[], bool] = lambda: False,
    device: str = "auto",
    report_to: Sequence[str] = (),
) -> Result:
    """Train to the end, or until asked to stop; goes on from the newest whole checkpoint where there is one.

    Args:
        watch: called with every logged step.
        stopping: asked after every step; True stops with a checkpoint.
        device: "auto" takes a GPU when there is one, or "cpu".
        report_to: further places for metrics, "tensorboard" or "trackio".

    Raises:
        ConfigError: the weights cannot be loaded.
        StoreFailure: something cannot be written.
    """
    from collab.learn.result import write_result
    from collab.learn.trainer import quiet, trainer_of
    from collab.learn.watch import Watcher, any_process

    rank, processes = world()
    if rank == 0:
        folder.clear_partial()
    checkpoint = folder.checkpoint()
    with quiet():
        trainer = trainer_of(prepared, folder, device, report_to)
    trainer.batches = of_process(prepared.steps, rank, processes)
    trainer.folder, trainer.keep = folder, prepared.task.recipe.keep
    watcher = Watcher(
        folder,
        prepared.steps,
        step_tokens(prepared),
        watch=watch,
        stopping=stopping,
        writes=rank == 0,
        gather=any_process(trainer.accelerator),
    )
    trainer.add_callback(watcher)
    if rank == 0:
        folder.forget_metrics_after(0 if checkpoint is None else int(checkpoint.name.removeprefix("step-")))
    with quiet():
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    final = None if watcher.stopped else folder.final
    if final is not None and rank == 0:
        write_result(trainer, prepared, folder)
    trainer.accelerator.wait_for_everyone()
    lines = folder.read_metrics()
    loss = lines[-1]["loss"] if lines else None
    return Result(step=trainer.state.global_step, steps=len(prepared.steps), final=final, loss=loss)


def step_tokens(prepared: Prepared) -> list[int]:
    """Tokens of each step, padding left out; of a pair, of both sequences."""
    sizes = [
        len(item) if isinstance(item, Example) else 2 * len(item.prompt) + item.scored
        for item in prepared.encoded.items
    ]
    return [sum(sizes[row] for row in step.rows) for step in prepared.steps]
