"""Prepare a training: base, examples, order, and a record of them.

    prepared = prepare(FinetuneTask(stage="sft", base="base", preset="pocket", recipe=recipe), rows)

The same task and rows give the same everything, on every process of a distributed run and whenever it is resumed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import collab
from collab.config import validate
from collab.data.example import Example, Level
from collab.data.tokenize import (
    Encoded,
    EncodedExample,
    EncodedPair,
    TrajectoryPart,
    encode_pairs,
    encode_replies,
    hash_encoded,
    hash_examples,
)
from collab.errors import ConfigError, MissingExtra, RunFormatError, UnknownName
from collab.library import resolve_checkpoint
from collab.models.tokenizer import get_prompt_date, has_date
from collab.trainers.base_model import Adapter, Base, open_adapter, open_base, silence_libraries
from collab.trainers.batching import (
    BatchStep,
    build_steps,
    count_padded,
    count_passes,
    count_shared_tokens,
    fit_recipe,
    is_prefix_shared,
)
from collab.trainers.recipe import CopyRecipe, DpoRecipe, Recipe, RLRecipe, SftRecipe, Stage
from collab.utils.files import hash_file

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers")
"""Packages whose versions a run records."""
REPORTS = ("tensorboard", "trackio")
"""Where metrics can go beside `metrics.jsonl`."""
DEVICES = ("auto", "cpu")
"""What trains: a GPU if there is one, or the processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneTask:
    """One fine-tuning: its stage, base, data and recipe."""

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
    reference: str | None = None
    """Directory of the checkpoint that preferences are compared with; None for the base itself."""
    adapter: str | None = None
    """Directory of a LoRA adapter over the base to continue training; None starts a new one if the recipe has one."""
    reference_adapter: str | None = None
    """Directory of an adapter over the base that preferences are compared with; None for none."""
    moments: str | None = None
    """File with the moments that the optimizer begins with (see `rl.policy_gradient`); None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that is decided before anything is trained."""

    task: FinetuneTask
    base: Base
    encoded: Encoded[EncodedExample] | Encoded[EncodedPair]
    steps: Sequence[BatchStep]
    rows: str | None
    """Digest of the rows; None where there are none."""
    world: int
    """Processes that train together."""
    reference: Base | None = None
    """Checkpoint that preferences are compared with; None for the base."""
    adapter: Adapter | None = None
    """Adapter that is trained further; None for a new one, or none."""
    reference_adapter: Adapter | None = None
    """Adapter over the reference; None for none."""
    trajectories: tuple[TrajectoryPart, ...] | None = None
    """Trajectory part of each item if whole trajectories are compared; else None."""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each item; of a pair, of its longer sequence."""
        return [len(item) for item in self.encoded.items]

    @property
    def parts(self) -> int | None:
        """Forward passes per step, over all processes; None where each step has as many as its states need."""
        if self.trajectories is not None or is_prefix_shared(self.task.recipe) or self.task.stage == "rl":
            return None
        return count_passes(self.task.recipe, self.world)

    @property
    def step_tokens(self) -> list[int]:
        """Tokens of each step, padding left out; of a pair, of both sequences."""
        sizes = [
            len(item) if isinstance(item, EncodedExample) else 2 * len(item.prompt) + item.scored
            for item in self.encoded.items
        ]
        return [sum(sizes[row] for row in step.rows) for step in self.steps]

    @property
    def step_pairs(self) -> list[int] | None:
        """Rows of each step whose two replies differ; equal replies only anchor the policy.

        None for other stages than `dpo`, and where whole trajectories are compared.
        """
        if self.trajectories is not None or not isinstance(self.task.recipe, DpoRecipe):
            return None
        items = self.encoded.items
        differ = [isinstance(one, EncodedPair) and not np.array_equal(one.chosen, one.rejected) for one in items]
        return [sum(differ[row] for row in step.rows) for step in self.steps]

    def count_computed(self, part: Sequence[int]) -> int:
        """Count the tokens that a forward pass computes: padding included, shared prefixes once."""
        items = [self.encoded.items[row] for row in part]
        if is_prefix_shared(self.task.recipe):
            return count_shared_tokens(items)
        sides = 2 if isinstance(items[0], EncodedPair) else 1
        return sides * count_padded([len(item) for item in items], range(len(items)))

    def build_manifest(self) -> dict[str, Any]:
        """Return what `finetune.json` holds."""
        task = self.task
        return {
            "stage": task.stage,
            "preset": task.preset,
            "recipe": task.recipe.model_dump(mode="json"),
            "base": {"path": task.base, "digest": self.base.digest},
            "reference": self.reference and {"path": task.reference, "digest": self.reference.digest},
            "adapter": self.adapter and asdict(self.adapter),
            "reference_adapter": self.reference_adapter and asdict(self.reference_adapter),
            "moments": task.moments and {"path": task.moments, "digest": hash_file(Path(task.moments))},
            "data": {
                "paths": list(task.data),
                "digest": self.rows,
                "tokens": hash_encoded(self.encoded.items),
                "max_broken": task.max_broken,
                "dropped": dict(self.encoded.dropped),
            },
            "seed": task.seed,
            "steps": len(self.steps),
            "order": _hash_steps(self.steps),
            "processes": self.world,
            "versions": collect_training_versions(),
        }


def check_installed() -> None:
    """Check that all packages for training are installed; else MissingExtra."""
    MissingExtra.unless(*PACKAGES, extra="train", purpose="fine-tuning")


def check_reports(names: Sequence[str]) -> None:
    """Refuse places for metrics that are unknown (UnknownName) or not installed (MissingExtra)."""
    for name in names:
        if name not in REPORTS:
            raise UnknownName.of("place for metrics", name, REPORTS)
        MissingExtra.unless(name, extra="track", purpose=f"--report-to {name}")


def check_device(name: str) -> None:
    """Check that a device is known; else UnknownName."""
    if name not in DEVICES:
        raise UnknownName.of("device", name, DEVICES)


def get_world() -> tuple[int, int]:
    """Return this process's rank and the number of processes; (0, 1) without a launcher."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def collect_training_versions() -> dict[str, str]:
    """Return the versions of Collab and the training packages."""
    return {"collab": collab.__version__, **{name: importlib.metadata.version(name) for name in PACKAGES}}


def prepare(
    task: FinetuneTask, rows: Sequence[Example], *, processes: int | None = None, can_shrink: bool = False
) -> Prepared:
    """Tokenise and order; nothing is written and no weight is loaded.

    Args:
        rows: that the stage trains on; none for `copy`.
        processes: that will train together; None for those that the launcher has started.
        can_shrink: whether few rows may make one smaller step by fewer processes (`fit_recipe`); only rows short enough
            to be trained count.

    Raises:
        NothingFits: every row is longer than the context.
        ConfigError: base, rows and recipe do not fit together, or there is nothing to train.
        MissingExtra: a package is not installed.
    """
    check_installed()
    if task.recipe.date is None and has_date(resolve_checkpoint(task.base)):
        task = replace(task, recipe=task.recipe.model_copy(update={"date": get_prompt_date()}))
    base = open_base(task.base, task.recipe)
    with silence_libraries():  # a row that is too long is counted here
        encoded = _encode(task, rows, base)
    if not encoded.items:
        raise ConfigError(f"--stage {task.stage}: there is nothing to train; {_format_advice(task)}")
    digest, processes = hash_examples(rows) if task.stage != "copy" else None, processes or get_world()[1]
    if can_shrink:
        recipe, processes = fit_recipe(task.recipe, len(encoded.items), processes)
        task = replace(task, recipe=recipe)
    return order_examples(task, base, encoded, rows=digest, processes=processes)


def order_examples(
    task: FinetuneTask,
    base: Base,
    encoded: Encoded[EncodedExample] | Encoded[EncodedPair],
    *,
    rows: str | None,
    processes: int,
) -> Prepared:
    """Order tokenised examples; `rows` is the rows' digest, or None.

    Raises:
        ConfigError: nothing is left to train, or too little for all processes.
    """
    # The order is decided here, once and for all processes.
    steps = build_steps(task.recipe, encoded, seed=task.seed, processes=processes)
    if not steps:
        raise ConfigError(
            f"--stage {task.stage}: there is nothing to train; weights_by_level leaves no row of any level"
        )
    reference = open_reference(task, base)
    return Prepared(
        task=task,
        base=base,
        encoded=encoded,
        steps=steps,
        rows=rows,
        world=processes,
        reference=reference,
        adapter=open_adapter(task.adapter, task.recipe, task.base),
        reference_adapter=open_adapter(task.reference_adapter, task.recipe, task.base),
    )


def read_task(manifest: Mapping[str, Any]) -> FinetuneTask:
    """Read the task from a manifest.

    Raises:
        RunFormatError: something is missing in it.
        ConfigError: its recipe does not fit.
    """
    kinds: dict[str, type[Recipe]] = {"copy": CopyRecipe, "sft": SftRecipe, "dpo": DpoRecipe, "rl": RLRecipe}
    # The manifest is written by this program, so anything that does not fit is damage.
    try:
        stage = manifest["stage"]
        return FinetuneTask(
            stage=stage,
            base=manifest["base"]["path"],
            preset=manifest["preset"],
            recipe=validate(kinds[stage], manifest["recipe"], "finetune.json"),
            seed=manifest["seed"],
            data=tuple(manifest["data"]["paths"]),
            max_broken=manifest["data"]["max_broken"],
            reference=(manifest.get("reference") or {}).get("path"),
            adapter=(manifest.get("adapter") or {}).get("path"),
            reference_adapter=(manifest.get("reference_adapter") or {}).get("path"),
            moments=(manifest.get("moments") or {}).get("path"),
        )
    except (KeyError, TypeError) as error:
        raise RunFormatError(
            f"finetune.json: damaged, {error} is missing or no longer what it was; start anew"
        ) from None


def list_levels(task: FinetuneTask) -> tuple[Level, ...]:
    """Return the levels that a stage trains, in order."""
    if isinstance(task.recipe, SftRecipe):
        return tuple(task.recipe.levels)
    return ("preference",) if isinstance(task.recipe, DpoRecipe) else ()


def open_reference(task: FinetuneTask, base: Base) -> Base | None:
    """Open the reference checkpoint, if any; ConfigError if its tokens differ from the base's."""
    if task.reference is None:
        return None
    reference = open_base(task.reference, task.recipe)
    if reference.chat.fingerprint != base.chat.fingerprint:
        raise ConfigError(
            f"reference {task.reference}: reads other tokens than the base {task.base}; name a checkpoint that both "
            "were made from"
        )
    return reference


def _encode(task: FinetuneTask, rows: Iterable[Example], base: Base) -> Encoded[EncodedExample] | Encoded[EncodedPair]:
    recipe = task.recipe
    if isinstance(recipe, CopyRecipe):
        from collab.trainers.pretrain import copy_sequences

        return Encoded(items=copy_sequences(recipe, base.chat, task.seed))
    if isinstance(recipe, DpoRecipe):
        return encode_pairs(rows, base.chat, recipe.context)
    return encode_replies(rows, base.chat, recipe.context)


def _format_advice(task: FinetuneTask) -> str:
    levels = ", ".join(list_levels(task))
    return f"the data has no rows of level {levels}; make some with collab synth, or name other levels"


def _hash_steps(steps: Sequence[BatchStep]) -> str:
    text = "\n".join(f"{step.group}:{step.parts}" for step in steps)
    return hashlib.sha256(text.encode()).hexdigest()
