"""Split a model over training processes: each holds its share of weights, gradients and optimizer.

The launcher decides (`collab.trainers.launch`, or `accelerate launch` by hand with one of the files in `accelerate/`):

    ddp             every process holds the whole model
    fsdp            PyTorch's fully sharded data parallelism, its second version, as accelerate applies it: per layer
    zero2, zero3    DeepSpeed, which splits optimizer and gradients, or weights, too

The first two compute as one process does: weights are gathered in their own type, and autocast decides the computing
type. FSDP's own policy would round log-probabilities to bfloat16. DeepSpeed was never run here; recipes that it is
known to round are refused. Checkpoints and results are complete.

accelerate 1.15 offers FSDP only on accelerators. On CPUs it is made to believe in one, so that two processes over gloo
can test what eight GPUs would run.

torch splits sums among its threads, so their last bits depend on the number of threads. The run's head keeps it:

    head |= build_threads_head()
    with use_recorded_threads(head, "finetune.json", tell):
        ...

On CPUs freed memory must be returned: the C library keeps freed blocks of every step's shape, and oneDNN a compiled
product for each. A training that needs 1 GB grows to 7 GB within minutes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from collab.errors import RunFormatError, TrainingFailure, UsageError
from collab.trainers.recipe import DpoRecipe, Recipe

if TYPE_CHECKING:
    from collab.trainers.prepare import Prepared


Parallelism: TypeAlias = Literal["ddp", "fsdp", "zero2", "zero3"]
Split: TypeAlias = Literal["fsdp", "deepspeed"]
_TRACES: Mapping[Split, str] = {"fsdp": "pytorch_model_fsdp.bin", "deepspeed": "latest"}
"""A file that only checkpoints of that kind have."""


def split_by(environment: Mapping[str, str] = os.environ) -> Split | None:
    """Return how the launcher splits the model; None if every process holds all of it."""
    if environment.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        return "fsdp"
    return "deepspeed" if environment.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true" else None


def find_obstacle(recipe: Recipe, parallelism: Parallelism) -> str | None:
    """Return why a recipe cannot be trained this way, and the next move; None if it can."""
    # DDP keeps whole copies, so every recipe fits it.
    if parallelism == "ddp":
        return None
    if recipe.optimizer == "muon":
        return f"optimizer: muon needs whole matrices, and {parallelism} splits them; use optimizer=adamw, or ddp"
    # DeepSpeed steps by itself after each pass; several passes of a step would be several steps.
    if parallelism != "fsdp" and isinstance(recipe, DpoRecipe) and recipe.sharing == "prefix":
        return (
            f"sharing: prefix makes several passes of a step, and DeepSpeed ({parallelism}) would take a step after "
            "each; use sharing=none, or fsdp"
        )
    return None if parallelism == "fsdp" else _explain_rounding(recipe, parallelism)


def _explain_rounding(recipe: Recipe, parallelism: Parallelism) -> str | None:
    """Return what DeepSpeed would hold in another type than the recipe asks for; None for nothing."""
    if recipe.precision == "float32" and recipe.weights != "float32":
        return (
            f"DeepSpeed ({parallelism}) computes in float32 with weights in float32 alone; use weights=float32, or fsdp"
        )
    if recipe.precision != "float32" and recipe.lora is not None and not recipe.lora.merge:
        return (
            f"lora.merge: false keeps an adapter in float32, and DeepSpeed ({parallelism}) holds and writes it in "
            f"{recipe.precision}; use fsdp or ddp"
        )
    return None


def check_split(recipe: Recipe, environment: Mapping[str, str] = os.environ) -> None:
    """Check that the recipe supports how the launcher splits the model; else UsageError."""
    split = split_by(environment)
    kinds: dict[Split | None, Parallelism] = {None: "ddp", "fsdp": "fsdp", "deepspeed": "zero3"}
    reason = find_obstacle(recipe, kinds[split])
    if reason is not None:
        raise UsageError(reason)
    # Other formats save the weights in pieces that no other program reads.
    version, kind = environment.get("FSDP_VERSION", "1"), environment.get("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT")
    if split == "fsdp" and (version, kind) != ("2", "FULL_STATE_DICT"):
        raise UsageError(
            f"the launcher's fsdp_config has fsdp_version {version} and fsdp_state_dict_type {kind}; supported are "
            "fsdp_version: 2 and fsdp_state_dict_type: FULL_STATE_DICT"
        )
    if split == "fsdp" and int(environment.get("WORLD_SIZE", "1")) < 2:
        raise UsageError(
            "the launcher's fsdp_config splits a model over several processes, and has started one; start several, or "
            "one without fsdp_config"
        )


def check_checkpoint(checkpoint: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Check that a checkpoint was written with the same split; else UsageError."""
    now = split_by(environment)
    was = next((kind for kind, trace in _TRACES.items() if (checkpoint / trace).is_file()), None)
    if was != now:
        names: dict[Split | None, str] = {None: "whole models (ddp)", "fsdp": "fsdp", "deepspeed": "DeepSpeed"}
        raise UsageError(f"{checkpoint}: was written with {names[was]}, this run has {names[now]}; resume as it began")


def allow_fsdp(config: Any) -> None:
    """Prepare TRL's configuration of a trainer for FSDP: without its mixed precision, and also on CPUs.

    Args:
        config: created, so that accelerate knows its processes, but not yet given to a trainer.
    """
    if split_by() != "fsdp":
        return
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import MixedPrecisionPolicy

    config.fsdp_plugin_args = {"mixed_precision_policy": MixedPrecisionPolicy()}  # the rest is the launcher's
    state = config.distributed_state
    if state.distributed_type == DistributedType.MULTI_CPU:
        state.distributed_type = DistributedType.MULTI_GPU  # which accelerate makes FSDP; device and gloo stay


def check_sharded(trainer: Any, environment: Mapping[str, str] = os.environ) -> None:
    """Check that a trainer splits the model as the launcher asked for; else TrainingFailure."""
    split, accelerator = split_by(environment), trainer.accelerator
    if split == "fsdp":
        # Types that FSDP rounds to would change what is trained, and silently.
        policy = getattr(accelerator.state.fsdp_plugin, "mixed_precision_policy", None)
        if not accelerator.is_fsdp2 or policy is None or policy.param_dtype is not None:
            raise TrainingFailure(
                f"the model is not split by fsdp as it should be (fsdp2: {accelerator.is_fsdp2}, types: {policy}); "
                "install the versions of constraints.txt, or use ddp"
            )
    if split == "deepspeed" and not trainer.is_deepspeed_enabled:
        raise TrainingFailure(
            "the model is not split by DeepSpeed; install the versions of constraints.txt, or use ddp"
        )


def get_autocast(trainer: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Return the context for forward passes: autocast if accelerate does not add it to the model itself."""
    return trainer.accelerator.autocast if split_by() == "fsdp" else contextlib.nullcontext


@contextlib.contextmanager
def gather_weights(model: Any) -> Iterator[None]:
    """Leave a model's weights in one piece after its first pass, so that its parts can be called by themselves.

    Does nothing to a model that is not sharded.
    """
    from torch.distributed.fsdp import FSDPModule

    parts = [part for part in model.modules() if isinstance(part, FSDPModule)]
    if not isinstance(model, FSDPModule):
        yield
        return
    # Whole for the moment of the probe, then split again, whatever it finds.
    model.set_reshard_after_forward(False)
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
        model.set_reshard_after_forward(True)


def gather_model(trainer: Any, prepared: Prepared) -> Any:
    """Return the complete trained model on the CPU of the first process, None on all others; all must call it.

    The model is loaded again before it takes the weights, so the first process holds two models for a while.
    """
    from collab.trainers.base_model import load_weights

    # Without a split every process has the model.
    if split_by() is None:
        return trainer.accelerator.unwrap_model(trainer.model)
    # A collective call: all processes must come here, and one gets the weights.
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if not trainer.is_world_process_zero():
        return None
    # Here, because configurations read this module, and the other one loads torch.
    from collab.trainers.base_model import is_of_reference

    model = load_weights(prepared.base, prepared.task.recipe.weights)
    if prepared.task.recipe.lora is not None:
        from peft import get_peft_model

        model = get_peft_model(model, trainer.accelerator.unwrap_model(trainer.model).peft_config["default"])
    # The reference adapter is a copy for comparison, and no part of the result.
    model.load_state_dict({name: weight for name, weight in weights.items() if not is_of_reference(name)})
    return model


_THREADS = "threads"
"""Key in a head file. Without it the number is unknown and stays as it is."""


def build_threads_head() -> dict[str, int]:
    """Return the head's entry with this process's number of threads."""
    import torch

    return {_THREADS: torch.get_num_threads()}


@contextlib.contextmanager
def use_recorded_threads(
    head: Mapping[str, Any], where: str, note: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Compute with as many torch threads as a run began with; restore the present number afterwards.

    Python threads that have already computed keep their number.

    Args:
        head: content of the run's head file.
        where: the head file, for errors.
        note: takes a line if the number changes.

    Raises:
        RunFormatError: the recorded number is no number of threads.
    """
    wanted = head.get(_THREADS)
    if wanted is None:
        yield
        return
    # `type` and not `isinstance`: true is an int in Python.
    if type(wanted) is not int or wanted < 1:
        raise RunFormatError(f"{where}: threads {wanted!r}: allowed are whole numbers from 1; begin anew")
    import torch

    found = torch.get_num_threads()
    if found == wanted:
        yield
        return
    note(f"computing with threads={wanted}, as it began, not {found}: sums depend on it to the last bit")
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(found)


_PRODUCTS = "128"
"""Compiled products that oneDNN keeps: more than one step uses."""


def bound_caches() -> None:
    """Let oneDNN keep few compiled products, unless the user has set a number; call it before the first product."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _PRODUCTS)


def release_memory() -> None:
    """Return freed memory to the system, where the C library can (glibc)."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return
    trim(0)
