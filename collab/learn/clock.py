"""How fast this machine trains: real steps timed, or its speed at multiplying matrices."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from collab.learn.base import quiet
from collab.learn.folder import RunFolder
from collab.learn.order import Step, of_process
from collab.learn.prepare import Prepared, world
from collab.learn.preset import DpoRecipe
from collab.learn.trainer import trainer_of
from collab.models.weights import setting

if TYPE_CHECKING:
    from collab.learn.plan import Time

TRIED, WARM_UP = 8, 3
"""Steps that are timed, and those before them that are not: the first ones allocate and choose kernels."""
UTILISATION = 0.4
"""Share of the machine's speed at large matrices that training is taken to reach, where it is not measured."""


class _Stopwatch(TrainerCallback):  # type: ignore[misc]
    """When each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the time, once the device is done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def measure(prepared: Prepared, device: str, needed: int) -> Time:
    """How long the run takes: seconds per computed token, times all tokens.

    Args:
        needed: bytes; where the machine has less free memory, nothing is tried.
    """
    from collab.learn.plan import Time

    work = [_computed(prepared, step) for step in prepared.steps]
    if needed > 0.8 * free_memory(device):
        return Time(seconds=_flops_per_token(prepared) * sum(work) / (UTILISATION * _speed(device)), measured=False)
    sample = _sample(prepared.steps)
    ends = _run(prepared, sample, device)
    tried = sum(_computed(prepared, step) for step in sample[WARM_UP:])
    return Time(seconds=(ends[-1] - ends[WARM_UP - 1]) / tried * sum(work), measured=True)


def free_memory(device: str) -> int:
    """Bytes that a training could take here; what only caches files counts as free where the system says so."""
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _computed(prepared: Prepared, step: Step) -> int:
    """Tokens that a step computes, padding included, over all processes."""
    return sum(map(prepared.computed, step.parts))


def _sample(steps: Sequence[Step]) -> list[Step]:
    """Steps from all over the run; a short run is repeated."""
    count = WARM_UP + TRIED
    return [steps[number * len(steps) // count] for number in range(count)]


def _run(prepared: Prepared, sample: Sequence[Step], device: str) -> list[float]:
    """Train these steps for nothing; when each ended."""
    rank, processes = world()
    watch = _Stopwatch()
    with tempfile.TemporaryDirectory() as place, quiet():
        folder = RunFolder(Path(place))
        trainer = trainer_of(prepared, folder, device, (), save_strategy="no", logging_strategy="no")
        trainer.steps = of_process(sample, rank, processes)
        trainer.add_callback(watch)
        trainer.train()
    return watch.times


def _flops_per_token(prepared: Prepared) -> float:
    """Of training one token: 6 per parameter, and attention to half the mean length; a third more for checkpointing.

    An adapter saves the gradients of the base's weights, a third of it. DPO's reference adds a forward pass.
    """
    from collab.learn.plan import sizes

    recipe, config = prepared.task.recipe, prepared.base.config
    parameters = sizes(prepared).parameters
    mean = sum(prepared.lengths) / len(prepared.lengths)
    depth, width = setting(config, "num_hidden_layers") or 1, setting(config, "hidden_size") or 0
    forward = 2 * parameters + 2 * depth * width * mean
    times = (2 if recipe.lora is not None else 3) + recipe.checkpointing + isinstance(recipe, DpoRecipe)
    return float(times * forward)


def _speed(device: str) -> float:
    """Floating-point operations per second of a large product in bfloat16."""
    where = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    size = 8192 if where == "cuda" else 1024
    left = torch.ones(size, size, dtype=torch.bfloat16, device=where)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        (left @ left)[0, 0].item()
        best = min(best, time.perf_counter() - began)
    return float(2 * size**3 / best)
