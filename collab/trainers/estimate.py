"""Estimate a run before training: rows, tokens, steps, memory, time.

Tokens and steps are counted on the run's own order, so they are exact. Memory is a formula (`estimate_memory`). Time
is measured on a few real steps (`measure`), or estimated from the machine's matrix speed if the run does not fit into
its memory.

`forecast` does the same from a few sample items:

    found = forecast(task, pairs, "auto")
    found.seconds_per_item, found.most.total
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from collab.data.tokenize import Encoded, EncodedExample, EncodedPair, Ids
from collab.errors import ConfigError
from collab.models.weights import build_empty, find_setting, read_config, readable
from collab.trainers.base_model import open_base, silence_libraries
from collab.trainers.batching import BatchStep, select_process
from collab.trainers.prepare import FinetuneTask, Prepared, check_installed, get_world, order_examples
from collab.trainers.recipe import DpoRecipe, Lora
from collab.trainers.run_dir import FinetuneDir
from collab.trainers.trainer import build_trainer

GIB = float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Peak bytes of one process by kind, without the libraries' own memory."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Duration of a run."""

    seconds: float
    measured: bool
    """Whether real steps were timed; else it is an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetunePlan:
    """A run in numbers."""

    rows: Mapping[str, int]
    """By level, each counted once."""
    dropped: Mapping[str, int]
    """Rows longer than the context, by level."""
    longest: int
    """Tokens of the longest row that is trained."""
    steps: int
    passes: int
    """Forward passes, over all processes."""
    tokens: int
    """Over the whole run, padding left out."""
    scored: int
    """Those tokens that the loss counts."""
    padding: int
    """Tokens that are computed for nothing."""
    shared: int
    """Tokens that are not computed, because others that begin alike are."""
    parameters: int
    trainable: int
    memory: MemoryEstimate
    time: Time


def plan(prepared: Prepared, device: str) -> FinetunePlan:
    """Count, measure and estimate.

    Args:
        device: as `collab.trainers.run.train`.
    """
    items = prepared.encoded.items
    tokens = sum(prepared.step_tokens)
    # Tokens computed and tokens read differ by padding in one direction and by sharing in the other.
    computed = sum(prepared.count_computed(part) for step in prepared.steps for part in step.parts)
    size, needed = measure_sizes(prepared), estimate_memory(prepared)
    return FinetunePlan(
        rows={name: len(rows) for name, rows in prepared.encoded.groups.items()},
        dropped=dict(prepared.encoded.dropped),
        longest=max(prepared.lengths),
        steps=len(prepared.steps),
        passes=sum(len(step.parts) for step in prepared.steps),
        tokens=tokens,
        scored=sum(items[row].scored for step in prepared.steps for row in step.rows),
        padding=max(0, computed - tokens),
        shared=max(0, tokens - computed),
        parameters=size.parameters,
        trainable=size.trainable,
        memory=needed,
        time=measure(prepared, device, needed.total),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Numbers that a run holds."""

    parameters: int
    """Parameters of the base."""
    trainable: int
    """Parameters that are trained, in the base or in an adapter beside it."""
    moments: int
    """That the optimizer keeps: two of each trained number with AdamW, one of those that Muon trains."""


def measure_sizes(prepared: Prepared) -> Sizes:
    """Count all parameters, trained ones, and optimizer numbers, without loading weights."""
    from collab.trainers.optim import split_parts

    # On the meta device: sizes need no weights.
    with readable(prepared.base.path):
        model = build_empty(read_config(prepared.base.path))
    parameters = trainable = sum(weight.numel() for weight in model.parameters())
    recipe = prepared.task.recipe
    inner = sum(weight.numel() for weight in split_parts(model)[0])
    if recipe.lora is not None:
        trainable = inner = _count_adapter(model, recipe.lora)
    return Sizes(
        parameters=parameters,
        trainable=trainable,
        moments=2 * trainable - (inner if recipe.optimizer == "muon" else 0),
    )


def _count_adapter(model: Any, lora: Lora) -> int:
    """Count the parameters of an adapter."""
    import torch

    return sum(
        lora.rank * sum(module.weight.shape)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and (name != "lm_head" if lora.targets == "all-linear" else name.rpartition(".")[2] in lora.targets)
    )


def estimate_memory(prepared: Prepared) -> MemoryEstimate:
    """Estimate the memory of the largest forward and backward pass.

    With P parameters of b bytes, T of them trained (float32), N tokens in the pass, S scored ones, width h, width of
    the feed-forward part f, keys and values of width k, L layers, vocabulary V, and c bytes per computed number:

        weights      P b, twice where DPO has a reference of its own (on full weights always), and 4 T for an adapter
                     and for each that it is compared with
        gradients    4 T
        optimizer    8 T                      two moments of AdamW; 4 T of what Muon trains, which keeps one
        activations  c N L (8 h + 2 k + 4 f)  what a layer keeps for its backward pass
                     c N (L h + 8 h + 2 k + 4 f) with checkpointing
                     + 12 S V                 logits, log-probabilities and their gradient, float32

    Attention keeps no scores (it computes them anew). DPO computes both sides of a pair in one pass.
    """
    recipe, config = prepared.task.recipe, prepared.base.config
    size = measure_sizes(prepared)
    is_dpo = isinstance(recipe, DpoRecipe)
    # A frozen reference in memory beside the policy; adapters share one base with theirs.
    reference = 2 if is_dpo and (recipe.lora is None or prepared.reference is not None) else 1
    # Bytes per number: as the weights are kept, and as passes compute.
    held = 4 if recipe.weights == "float32" else 2
    computed = 4 if recipe.precision == "float32" else 2
    width, depth = find_setting(config, "hidden_size") or 0, find_setting(config, "num_hidden_layers") or 1
    # Numbers that a layer keeps per token; grouped heads make keys and values narrower than the width.
    layer = 8 * width + 2 * _get_key_width(config, width) + 4 * (find_setting(config, "intermediate_size") or 4 * width)
    # With checkpointing one layer at a time is kept whole, of the others only what comes in.
    kept = depth * width + layer if recipe.checkpointing else depth * layer
    items, vocabulary = prepared.encoded.items, find_setting(config, "vocab_size") or prepared.base.chat.size
    # The largest pass decides, not the mean: memory has to hold it once.
    activations = max(
        computed * kept * prepared.count_computed(part) + 12 * vocabulary * sum(items[row].scored for row in part)
        for step in prepared.steps
        for part in step.parts
    )
    adapters = 0 if recipe.lora is None else 1 if prepared.reference_adapter is None else 2
    return MemoryEstimate(
        weights=reference * held * size.parameters + 4 * adapters * size.trainable,
        gradients=4 * size.trainable,
        optimizer=4 * size.moments,
        activations=activations,
    )


def _get_key_width(config: Any, width: int) -> int:
    """Return the width of a token's keys in one layer; the model's width if layers differ or have no keys."""
    heads = find_setting(config, "num_attention_heads")
    if not isinstance(heads, int):
        return width
    groups = find_setting(config, "num_key_value_heads") or heads
    return int(groups * (find_setting(config, "head_dim") or width // heads))


def format_plan(plan: FinetunePlan) -> str:
    """Return the plan in lines for people."""
    rows = ", ".join(f"{name} {count:,}" for name, count in plan.rows.items())
    dropped = ", ".join(f"{name} {count:,}" for name, count in plan.dropped.items()) or "none"
    share = 100 * plan.padding / (plan.tokens + plan.padding)
    waste = f"{plan.shared:,} shared" if plan.shared else f"padding {plan.padding:,} ({share:.1f} %)"
    held = plan.memory
    parts = ", ".join(
        f"{name} {getattr(held, name) / GIB:.2f}" for name in ("weights", "gradients", "optimizer", "activations")
    )
    how = "measured on this machine" if plan.time.measured else "estimated: too large to try on this machine"
    return "\n".join(
        [
            f"rows        {rows}",
            f"dropped     {dropped}",
            f"longest     {plan.longest:,} tokens",
            f"tokens      {plan.tokens:,} ({plan.scored:,} scored), {waste}",
            f"steps       {plan.steps:,} in {plan.passes:,} forward passes",
            f"parameters  {plan.parameters:,} ({plan.trainable:,} trained)",
            f"memory      {held.total / GIB:.2f} GiB per process ({parts})",
            f"time        {timedelta(seconds=round(plan.time.seconds))} ({how})",
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Speed of training on pairs, or on replies alone."""

    seconds_per_item: float
    """Seconds per item of one process."""
    measured: bool
    """Whether real steps were timed; else it is an estimate."""
    tokens_per_item: float
    """Padding included; of a pair, of both sides, and with shared prefixes what a state shares is counted once."""
    least: MemoryEstimate
    """Bytes of one process, where items are as long as these."""
    most: MemoryEstimate
    """Bytes of one process, where they are as long as the context."""
    parameters: int
    trainable: int


def forecast(
    task: FinetuneTask, items: Sequence[EncodedPair] | Sequence[EncodedExample], device: str, *, processes: int = 1
) -> Forecast:
    """Estimate time and memory of a training from a few of its items.

    Args:
        task: of stage dpo for pairs, of stage sft for examples of a level that it trains; its data are not read.
        items: samples of one state; those longer than the context are left out.
        device: as `collab.trainers.run.train`.
        processes: that will train together.

    Raises:
        ConfigError: base and recipe do not fit together, or none of the items fits into the context.
        MissingExtra: a package is not installed.
    """
    check_installed()

    # What does not fit is left out in training, too, so it must not count here.
    fitting = [item for item in items if len(item) <= task.recipe.context]
    if not fitting:
        what = "pairs" if task.stage == "dpo" else "replies"
        raise ConfigError(
            f"none of {len(items)} {what} fits into context {task.recipe.context}, the shortest has "
            f"{min(map(len, items), default=0)} tokens; raise context as far as the model allows"
        )
    # Three preparations: the few items for time, a full step of them, and a full step of the longest.
    few = _prepare_pass(task, fitting, rows=len(fitting), processes=1)
    whole = _prepare_pass(task, _fill_items(fitting, task.recipe.batch_rows, None), processes=processes)
    longest = _prepare_pass(
        task, _fill_items(fitting, task.recipe.batch_rows, task.recipe.context), processes=processes
    )
    # Measured on few items and scaled by their number, so that a plan takes seconds.
    time = measure(few, device, estimate_memory(few).total)
    computed = sum(few.count_computed(part) for step in few.steps for part in step.parts)
    size = measure_sizes(few)
    return Forecast(
        seconds_per_item=time.seconds / len(fitting),
        measured=time.measured,
        tokens_per_item=computed / len(fitting),
        least=estimate_memory(whole),
        most=estimate_memory(longest),
        parameters=size.parameters,
        trainable=size.trainable,
    )


def _prepare_pass(task: FinetuneTask, items: Sequence[Any], *, processes: int, rows: int | None = None) -> Prepared:
    """Prepare one pass over some items.

    Args:
        rows: of a step at most; None for those of the recipe.
    """
    changed = {"epochs": 1, "batch_rows": min(rows or task.recipe.batch_rows, len(items))}
    task = replace(task, recipe=task.recipe.model_copy(update=changed))
    base = open_base(task.base, task.recipe)
    return order_examples(task, base, Encoded(items=items), rows=None, processes=processes)


def _fill_items(
    items: Sequence[EncodedPair | EncodedExample], rows: int, length: int | None
) -> list[EncodedPair | EncodedExample]:
    """Repeat items to `rows` items of unrelated states, each of `length` tokens (None: unchanged)."""
    found: list[EncodedPair | EncodedExample] = []
    for number in range(rows):
        turn, place = divmod(number, len(items))
        item = items[place]
        found.append(
            _vary_example(item, turn, length) if isinstance(item, EncodedExample) else _vary_pair(item, turn, length)
        )
    return found


def _vary_pair(pair: EncodedPair, turn: int, length: int | None) -> EncodedPair:
    size = len(pair.prompt) if length is None else length - max(len(pair.chosen), len(pair.rejected))
    return replace(pair, prompt=_vary_prompt(pair.prompt, turn, size), state=f"{pair.state} {turn}")


def _vary_example(example: EncodedExample, turn: int, length: int | None) -> EncodedExample:
    size = example.scored_from if length is None else length - example.scored
    prompt, reply = np.split(example.ids, [example.scored_from])
    return replace(example, ids=np.concatenate((_vary_prompt(prompt, turn, size), reply)), scored_from=size)


def _vary_prompt(prompt: Ids, turn: int, size: int) -> Ids:
    """Return a prompt of that many tokens with another beginning in each turn."""
    return np.resize(np.roll(prompt, turn), size).astype(np.int32)


TRIED, WARM_UP = 8, 3
"""Steps that are timed, and those before them that are not: the first ones allocate and choose kernels."""
UTILISATION = 0.4
"""Share of the machine's speed at large matrices that training is taken to reach, where it is not measured."""
SLOW = 2.0
"""Times that a product in bfloat16 takes of one in float32, above which a recipe is doubted."""


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
    """Measure seconds per computed token and scale to all tokens; only estimate if `needed` bytes are not free."""
    work = [_count_computed(prepared, step) for step in prepared.steps]
    if needed > 0.8 * free_memory(device):
        return Time(
            seconds=_estimate_flops(prepared) * sum(work) / (UTILISATION * _measure_speed(device)), measured=False
        )
    sample = _sample(prepared.steps)
    ends = _run(prepared, sample, device)
    tried = sum(_count_computed(prepared, step) for step in sample[WARM_UP:])
    return Time(seconds=(ends[-1] - ends[WARM_UP - 1]) / tried * sum(work), measured=True)


def free_memory(device: str) -> int:
    """Return the free bytes on the device, file caches included."""
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _count_computed(prepared: Prepared, step: BatchStep) -> int:
    """Count the tokens that a step computes over all processes, padding included."""
    return sum(map(prepared.count_computed, step.parts))


def _sample(steps: Sequence[BatchStep]) -> list[BatchStep]:
    """Return steps spread over the run; a short run is repeated."""
    count = WARM_UP + TRIED
    return [steps[number * len(steps) // count] for number in range(count)]


def _run(prepared: Prepared, sample: Sequence[BatchStep], device: str) -> list[float]:
    """Train these steps in a temporary directory; return when each ended."""
    rank, processes = get_world()
    watch = _Stopwatch()
    with tempfile.TemporaryDirectory() as place, silence_libraries():
        folder = FinetuneDir(Path(place))
        trainer = build_trainer(prepared, folder, device, (), save_strategy="no", logging_strategy="no")
        trainer.steps = select_process(sample, rank, processes)
        trainer.add_callback(watch)
        trainer.train()
    return watch.times


def _estimate_flops(prepared: Prepared) -> float:
    """Estimate FLOPs per trained token: 6 per parameter plus attention to half the mean length.

    Checkpointing adds a third, an adapter saves a third, DPO's reference adds a forward pass.
    """
    recipe, config = prepared.task.recipe, prepared.base.config
    parameters = measure_sizes(prepared).parameters
    mean = sum(prepared.lengths) / len(prepared.lengths)
    depth, width = find_setting(config, "num_hidden_layers") or 1, find_setting(config, "hidden_size") or 0
    forward = 2 * parameters + 2 * depth * width * mean
    times = (2 if recipe.lora is not None else 3) + recipe.checkpointing + isinstance(recipe, DpoRecipe)
    return float(times * forward)


def _measure_speed(device: str) -> float:
    """Measure floating-point operations per second of a large bfloat16 product."""
    where = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    size = 8192 if where == "cuda" else 1024
    return 2 * size**3 / _time_product(torch.bfloat16, size, where)


def _time_product(dtype: torch.dtype, size: int, device: str) -> float:
    """Return the fewest seconds that a product of two square matrices took, of five."""
    left = torch.ones(size, size, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        (left @ left)[0, 0].item()  # waits for a GPU
        best = min(best, time.perf_counter() - began)
    return best


def doubt_precision(settings: Sequence[str], device: str = "auto") -> str | None:
    """Return a warning if something computes in bfloat16 on a processor that only emulates it; None otherwise.

    Such processors take some thirty times as long as in float32. It is measured, because names of processors and
    their features do not tell what PyTorch makes of them.

    Args:
        settings: names of all that are "bfloat16", e.g. "dpo.precision".
    """
    if not settings or (device != "cpu" and torch.cuda.is_available()):
        return None
    ratio = _time_product(torch.bfloat16, 256, "cpu") / _time_product(torch.float32, 256, "cpu")
    if ratio < SLOW:
        return None
    return (
        f"precision bfloat16: on this processor a matrix product takes {ratio:.0f} times as long as in float32; "
        f"faster: {' '.join(f'--set {name}=float32' for name in settings)}"
    )
