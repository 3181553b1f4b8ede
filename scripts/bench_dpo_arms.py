"""The trainers that bench_dpo.py measures, and what they are given: random pairs of one state and a random model."""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from torch import Tensor
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer

from collab.testing.benchmarks import SHAPES as PUBLISHED
from collab.testing.benchmarks import build_random_model
from collab.trainers.base_model import silence_libraries
from collab.trainers.dpo import SharedPrefixDPOTrainer
from collab.trainers.prefix_sharing import Packed, score_labels_only

SHAPES: dict[str, dict[str, int]] = {
    "pocket": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 2048,
    },
    **PUBLISHED,
}
"""Sizes of the base agent in `agents/pocket`, and of published Qwen2 models."""

PairIds = dict[str, list[int]]


class _Tokenised:
    def _prepare_dataset(self, dataset: Any, *rest: Any) -> Any:
        """These are token ids already."""
        return dataset


class Trl(_Tokenised, DPOTrainer):  # type: ignore[misc]
    """TRL's."""


class Ours(_Tokenised, SharedPrefixDPOTrainer):
    """Ours."""


@dataclass(slots=True, kw_only=True)
class Arm:
    """A trainer under measurement."""

    trainer: Any
    at_once: int
    """Pairs per forward pass, in the timed steps and in the one whose memory is told."""
    optimizer: Any = None
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    memory: float = 0.0
    """Peak growth in a step, MB."""

    def reset(self, weights: dict[str, Tensor]) -> None:
        """Begin with these weights and a new optimizer."""
        self.trainer.model.load_state_dict(weights)
        self.optimizer = torch.optim.AdamW(self.trainer.model.parameters(), lr=1e-4, fused=True)

    def step(self, pairs: Sequence[PairIds], factor: int = 1) -> tuple[float, float]:
        """One optimizer step: seconds, its passes' taken `factor` times, and loss."""
        trainer, started = self.trainer, time.perf_counter()
        parts = [pairs[first : first + self.at_once] for first in range(0, len(pairs), self.at_once)]
        batches = iter([trainer.data_collator(part) for part in parts])
        samples, _ = trainer.get_batch_samples(batches, len(parts), trainer.args.device)
        trainer.current_gradient_accumulation_steps = len(samples)
        losses = [trainer.training_step(trainer.model, sample) for sample in samples]
        loss = float(torch.stack(losses).sum())
        passed = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        next(iter(self.trainer.model.parameters())).flatten()[0].item()  # waits for a GPU
        return (passed - started) * factor + time.perf_counter() - passed, loss

    @torch.no_grad()
    def logps(self, pairs: Sequence[PairIds]) -> Tensor:
        """Log-probability of every reply, chosen ones first, (2K,)."""
        batch = self.trainer._prepare_inputs(self.trainer.data_collator(pairs))
        labels = batch["input_ids"].masked_fill(batch.pop("completion_mask") == 0, -100)
        with self.trainer.accelerator.autocast():
            output = self.trainer.model(**batch, labels=labels, fused_lm_head=True, use_cache=False)
        logps: Tensor = output.log_probs.double().sum(1).cpu()
        return logps


def make_pairs(prefix: int, reply: int, pairs: int, seed: int, vocabulary: int) -> list[PairIds]:
    """One state's pairs, of random tokens."""
    rng = random.Random(seed)

    def some(count: int) -> list[int]:
        return [rng.randrange(3, min(vocabulary, 500)) for _ in range(count)]

    prompt = some(prefix)
    return [{"prompt_ids": prompt, "chosen_ids": some(reply), "rejected_ids": some(reply)} for _ in range(pairs)]


def make_model(folder: Path, options: argparse.Namespace) -> Any:
    """A random Qwen2; weights of attention are enlarged, so that what a token sees matters.

    By as much as makes scores of any width vary alike (4 at width 256). Were deep models' scores sharper, rounding in
    the first layers would decide what the last ones see, and no two ways of computing would agree.
    """
    context = max(prefix + reply for prefix, reply in options.cells) + 8
    model = build_random_model(folder, SHAPES[options.shape], context=context, dtype="float32")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight *= 64 / model.config.hidden_size**0.5 if ".self_attn." in name and weight.dim() == 2 else 1
    return model


def make_arms(model: Any, folder: Path, options: argparse.Namespace) -> dict[str, Arm]:
    """Every arm with its own copies of policy and reference."""
    config = DPOConfig(
        output_dir=str(folder / "out"),
        max_length=None,
        gradient_checkpointing=False,
        bf16=options.dtype == "bfloat16",
        loss_type=["sigmoid", "sft"],
        loss_weights=[1.0, 0.5],
        report_to="none",
        use_cpu=options.device == "cpu",
    )
    data = Dataset.from_list(make_pairs(8, 4, 2, 0, 500))
    arms = {}
    for name, kind in (("trl", Trl), ("unshared", Trl), ("ours", Ours)):
        with silence_libraries():
            trainer = kind(
                model=copy.deepcopy(model),
                ref_model=copy.deepcopy(model),
                args=copy.deepcopy(config),
                train_dataset=data,
                processing_class=AutoTokenizer.from_pretrained(folder),
            )
        if name == "unshared":
            score_labels_only(trainer.model)
            score_labels_only(trainer.ref_model, trainer.accelerator.autocast)
        arms[name] = Arm(trainer=trainer, at_once=1)
    return arms


def operations(model: Any, packed: Packed) -> float:
    """Floating-point operations of a packed step: policy forward and backward (three passes), reference (one)."""
    config = model.config
    tokens, width = packed.ids.shape[1], config.hidden_size
    dense = sum(int(weight.numel()) for name, weight in model.named_parameters() if ".layers." in name)
    seen = float((packed.positions + 1).sum())
    attention = 4 * config.num_hidden_layers * width * seen
    head = 2 * width * config.vocab_size * len(packed.wanted)
    total: float = 4.0 * (2 * dense * tokens + attention + head)
    return total
