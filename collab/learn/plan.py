"""What a run will take, before anything is trained: rows, tokens, steps, memory, time.

Tokens and steps are counted on the very order that will be trained, so they are exact. Memory is a formula (`memory`).
Time is measured on a few real steps on this machine (`clock`), or estimated from the machine's speed at multiplying
matrices where the run would not fit into its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from collab.learn.prepare import Prepared
from collab.learn.preset import DpoRecipe, Lora
from collab.models.weights import readable, setting

GIB = float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one process holds at most, in parts; what libraries take for themselves is not among them."""

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
    """How long a run takes."""

    seconds: float
    measured: bool
    """Whether real steps were timed; else it is an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
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
    """Of them, those that the loss counts."""
    padding: int
    """Tokens that are computed for nothing."""
    shared: int
    """Tokens that are not computed, because others that begin alike are."""
    parameters: int
    trainable: int
    memory: Memory
    time: Time


def plan(prepared: Prepared, device: str) -> Plan:
    """Count, measure and estimate.

    Args:
        device: as `finetune.train`.
    """
    from collab.learn.clock import measure

    items = prepared.encoded.items
    tokens = sum(prepared.step_tokens)
    computed = sum(prepared.computed(part) for step in prepared.steps for part in step.parts)
    size, needed = sizes(prepared), memory(prepared)
    return Plan(
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
    """Of the base."""
    trainable: int
    """Of them, or of an adapter beside them."""
    moments: int
    """That the optimizer keeps: two of each trained number with AdamW, one of those that Muon trains."""


def sizes(prepared: Prepared) -> Sizes:
    """How many parameters there are, are trained, and are kept account of. Nothing is loaded."""
    import torch
    from transformers import AutoModelForCausalLM

    from collab.learn.muon import parts_of

    with readable(prepared.base.path), torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(prepared.base.config)
    parameters = trainable = sum(weight.numel() for weight in model.parameters())
    recipe = prepared.task.recipe
    inner = sum(weight.numel() for weight in parts_of(model)[0])
    if recipe.lora is not None:
        trainable = inner = _added(model, recipe.lora)
    return Sizes(
        parameters=parameters,
        trainable=trainable,
        moments=2 * trainable - (inner if recipe.optimizer == "muon" else 0),
    )


def _added(model: Any, lora: Lora) -> int:
    """Parameters of an adapter."""
    import torch

    return sum(
        lora.rank * sum(module.weight.shape)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and (name != "lm_head" if lora.targets == "all-linear" else name.rpartition(".")[2] in lora.targets)
    )


def memory(prepared: Prepared) -> Memory:
    """What the largest forward and backward pass needs.

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
    size = sizes(prepared)
    is_dpo = isinstance(recipe, DpoRecipe)
    reference = 2 if is_dpo and (recipe.lora is None or prepared.reference is not None) else 1
    held = 4 if recipe.weights == "float32" else 2
    computed = 4 if recipe.precision == "float32" else 2
    width, depth = setting(config, "hidden_size") or 0, setting(config, "num_hidden_layers") or 1
    layer = 8 * width + 2 * _key_width(config, width) + 4 * (setting(config, "intermediate_size") or 4 * width)
    kept = depth * width + layer if recipe.checkpointing else depth * layer
    items, vocabulary = prepared.encoded.items, setting(config, "vocab_size") or prepared.base.chat.size
    activations = max(
        computed * kept * prepared.computed(part) + 12 * vocabulary * sum(items[row].scored for row in part)
        for step in prepared.steps
        for part in step.parts
    )
    adapters = 0 if recipe.lora is None else 1 if prepared.reference_adapter is None else 2
    return Memory(
        weights=reference * held * size.parameters + 4 * adapters * size.trainable,
        gradients=4 * size.trainable,
        optimizer=4 * size.moments,
        activations=activations,
    )


def _key_width(config: Any, width: int) -> int:
    """Numbers that a token's keys have in one layer; the model's width where layers differ in it, or have no keys."""
    heads = setting(config, "num_attention_heads")
    if not isinstance(heads, int):
        return width
    groups = setting(config, "num_key_value_heads") or heads
    return int(groups * (setting(config, "head_dim") or width // heads))


def told(plan: Plan) -> str:
    """The plan in lines for people."""
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
