"""Measure what an optimizer step of DPO costs when the pairs of a state share their prefix, against TRL.

    python scripts/bench_dpo.py --quick                  # under a minute: P = 500, K = 3
    python scripts/bench_dpo.py --out dpo.json           # all cells; called again, it does the missing ones
    python scripts/bench_dpo.py --shape 0.5b --device cuda --dtype bfloat16 --out dpo-gpu.json

A cell is one state: K pairs with a common prompt of P tokens and replies of C tokens, all different. The model has
random weights and the shape of the base agent that comes with Collab, or of a published one. A step is collation,
policy and frozen reference, sigmoid loss with an anchor, backward pass and AdamW on all weights.

trl      TRL's DPOTrainer, fair: nothing cut, no checkpointing, the fastest number of pairs per forward pass of all
         that divide K (TRL takes the mean of the passes' means, another loss where they are unequal).
unshared The strongest way without sharing: no padding mask, output layer at replies only; its own fastest number.
ours     One packed pass.
bound    The floating-point operations of ours at the peak of matrix products measured here: nobody can be faster.

Arms alternate in one process; seconds are medians over repetitions, warm-up excluded. Log-probabilities before the
first step and the losses of every step are compared between arms in the same run; in float32 a difference ends the
benchmark with exit code 1 (in bfloat16, log-probabilities that differ by over 0.01 per token of a reply). Where a
baseline would compute more than `--direct` tokens in a step, it computes one pair and the time of its passes is taken
K times, which favours it. Memory is the growth of the process (on a GPU: of what is allocated) during a step of the
kind that is timed, at the same number of pairs per pass; where these are fewer than K, the line says how many they are.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from bench import SHAPES as PUBLISHED
from bench import describe_device
from datasets import Dataset  # type: ignore[import-untyped]
from torch import Tensor
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from trl import DPOConfig, DPOTrainer

from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.base_model import silence_libraries
from collab.trainers.batching import compute_token_ratio
from collab.trainers.distributed import bound_caches, release_memory
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
CELLS = ((500, 40), (2000, 80), (8000, 100))
CLOSE = {"logp": 1e-4, "loss": 1e-5}
"""Differences between arms that rounding explains in float32."""
CLOSE_PER_TOKEN = 1e-2
"""The same in bfloat16, of the log-probability of a token."""
SAME = ("device", "threads")
"""Of `describe_device`, what all cells of a file have in common."""
MEASURED_ON = (*SAME, "load", "gemm_gflops")
"""Of `describe_device`, what a cell tells."""

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
    make_tiny_checkpoint(folder)  # for its tokenizer, which TRL wants
    config = Qwen2Config(
        **SHAPES[options.shape],
        max_position_embeddings=context,
        tie_word_embeddings=True,
        dtype=torch.float32,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight *= 64 / config.hidden_size**0.5 if ".self_attn." in name and weight.dim() == 2 else 1
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


# ------------------------------------------------------------------------------------------------------- measuring


def measure(
    arms: dict[str, Arm],
    model: Any,
    cell: tuple[int, int, int],
    options: argparse.Namespace,
    here: dict[str, Any],
) -> dict[str, Any]:
    """All arms at one cell; `here` as of `describe_device`."""
    (prefix, reply, count), peak = cell, here["gemm_gflops"]
    pairs = make_pairs(prefix, reply, count, seed=0, vocabulary=model.config.vocab_size)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    factor = 1 if 2 * count * (prefix + reply) <= options.direct else count
    given = {name: pairs if name == "ours" or factor == 1 else pairs[:1] for name in arms}
    logps = {}
    for name, arm in arms.items():
        arm.seconds, arm.losses = [], []
        arm.reset(weights)
        logps[name] = arm.logps(given[name])
        every = len(given[name])
        arm.at_once = find_fastest(arm, given[name], [every] if name == "ours" else divisors(every))
        arm.reset(weights)
        arm.memory = measure_growth(arm, given[name], options.device)
        arm.reset(weights)
    for _ in range(options.repeat):
        for name, arm in arms.items():
            seconds, loss = arm.step(given[name], 1 if name == "ours" else factor)
            arm.seconds.append(seconds)
            arm.losses.append(loss)
    times = {name: statistics.median(arm.seconds) for name, arm in arms.items()}
    work = operations(model, arms["ours"].trainer.data_collator(pairs)["packed"])
    return {
        "prefix_tokens": prefix,
        "reply_tokens": reply,
        "pairs": count,
        "seconds": {name: round(value, 4) for name, value in times.items()},
        "bound_s": round(work / peak / 1e9, 4),
        "vs_trl": round(times["trl"] / times["ours"], 2),
        "vs_unshared": round(times["unshared"] / times["ours"], 2),
        "bound_share": round(work / peak / 1e9 / times["ours"], 3),
        "token_ratio": round(compute_token_ratio(prefix, reply, count), 2),
        "packed_tokens": prefix + 2 * count * reply,
        "gflop": round(work / 1e9, 1),
        "baseline_pairs": len(given["trl"]),
        "pairs_at_once": {name: arm.at_once for name, arm in arms.items()},
        "memory_mb": {name: round(arm.memory, 1) for name, arm in arms.items()},
        "repeat": options.repeat,
        "machine": {name: here[name] for name in MEASURED_ON},
        **compare(arms, logps, factor, options.dtype, reply),
    }


def measure_growth(arm: Arm, pairs: Sequence[PairIds], device: str) -> float:
    """How far memory grows in one step, at its peak, MB."""
    if device != "cpu":
        torch.cuda.synchronize()
        before = float(torch.cuda.memory_allocated())
        torch.cuda.reset_peak_memory_stats()
        arm.step(pairs)
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    release_memory()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    before = _status("VmRSS")
    arm.step(pairs)
    return _status("VmHWM") - before


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1e3


def divisors(count: int) -> list[int]:
    """Of that number, smallest first."""
    return [size for size in range(1, count + 1) if count % size == 0]


def find_fastest(arm: Arm, pairs: Sequence[PairIds], sizes: Sequence[int]) -> int:
    """The number of pairs per forward pass with which a step is fastest, of these, smallest first; one is a warm-up."""
    found: dict[int, float] = {}
    for size in sizes:
        arm.at_once = size
        try:
            found[size] = min(arm.step(pairs)[0] for _ in range(min(2, len(sizes))))
        except torch.OutOfMemoryError:  # of a GPU; larger ones need more
            if not found:
                raise
            arm.optimizer.zero_grad()
            torch.cuda.empty_cache()
            break
    return min(found, key=found.__getitem__)


def compare(arms: dict[str, Arm], logps: dict[str, Tensor], factor: int, dtype: str, reply: int) -> dict[str, Any]:
    """How far apart arms are, and whether that is more than rounding; `reply`: its tokens."""
    ours = logps["ours"]
    if factor > 1:  # the baselines have seen the first pair alone
        ours = ours[[0, len(ours) // 2]]
    apart = {"logp": float((ours - logps["trl"]).abs().max())}
    noise = {"logp": float((logps["unshared"] - logps["trl"]).abs().max())}
    if factor == 1:
        trl = torch.tensor(arms["trl"].losses)
        apart["loss"] = float((torch.tensor(arms["ours"].losses) - trl).abs().max())
        noise["loss"] = float((torch.tensor(arms["unshared"].losses) - trl).abs().max())
    limits = CLOSE if dtype == "float32" else {"logp": CLOSE_PER_TOKEN * reply}
    equal = all(apart[name] <= limit for name, limit in limits.items() if name in apart)
    return {"apart": apart, "noise": noise, "equal": equal}


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


def main() -> None:
    """Measure the cells that are missing, print a line for each and the JSON."""
    options = arguments()
    bound_caches()
    here = describe_device(options.device, options.dtype)
    report: dict[str, Any] = {"machine": here, "settings": settings(options), "cells": read_known_cells(options, here)}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder), options)
        arms = make_arms(model, Path(folder), options)
        for prefix, reply in options.cells:
            for pairs in options.pairs:
                if any((one["prefix_tokens"], one["pairs"]) == (prefix, pairs) for one in report["cells"]):
                    continue
                cell = measure(arms, model, (prefix, reply, pairs), options, here)
                report["cells"].append(cell)
                print(line(cell), flush=True)
                write(report, options.out)
    print(json.dumps(report))
    wrong = [one for one in report["cells"] if not one["equal"]]
    if wrong:
        raise SystemExit(f"{len(wrong)} cells differ between arms: these figures are worth nothing")


def line(cell: dict[str, Any]) -> str:
    """A cell in one line."""
    memory = ", ".join(_memory(cell, name) for name in cell["memory_mb"])
    return (
        f"P={cell['prefix_tokens']} C={cell['reply_tokens']} K={cell['pairs']}: {cell['vs_trl']}x TRL, "
        f"{cell['vs_unshared']}x unshared (tokens {cell['token_ratio']}x), {cell['bound_share']:.0%} of the bound; "
        f"MB {memory}; log p apart {cell['apart']['logp']:.1e}{'' if cell['equal'] else ', MORE THAN ROUNDING'}"
    )


def _memory(cell: dict[str, Any], name: str) -> str:
    size, pairs = cell["pairs_at_once"][name], cell["pairs"]
    return f"{name} {cell['memory_mb'][name]:.0f}" + (f" ({size} of {pairs} pairs)" if size < pairs else "")


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """What decides a cell's figures, and the version of their meaning; others do not count."""
    names = ("shape", "device", "dtype", "repeat", "direct", "quick")
    return {"version": 4, **{name: getattr(options, name) for name in names}}


def read_known_cells(options: argparse.Namespace, here: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells measured before under the same settings on the same machine; SystemExit where there are others."""
    if options.out is None or not options.out.exists():
        return []
    before, own = json.loads(options.out.read_text(encoding="utf-8")), settings(options)
    theirs = {name: before["settings"].get(name) for name in own}
    if theirs != own:
        differ = ", ".join(f"{name} {theirs[name]}, now {own[name]}" for name in own if theirs[name] != own[name])
        raise SystemExit(f"{options.out} was measured with other settings ({differ}); name another file")
    cells: list[dict[str, Any]] = before["cells"]
    for cell in cells:
        there = cell.get("machine")
        if there is None:  # the file's machine is that of its last call alone
            raise SystemExit(f"{options.out} does not say what its cells were measured on; name another file")
        differ = ", ".join(f"{name} {there[name]}, now {here[name]}" for name in SAME if there[name] != here[name])
        if differ:
            raise SystemExit(f"{options.out} was measured on another machine ({differ}); name another file")
    return cells


def write(report: dict[str, Any], out: Path | None) -> None:
    """All cells so far, in one piece or not at all."""
    if out is not None:
        partial = out.with_suffix(".partial")
        partial.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        partial.replace(out)


def arguments() -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(description="Measure what an optimizer step of DPO costs with shared prefixes.")
    parser.add_argument("--quick", action="store_true", help="P = 500, K = 3, one repetition")
    parser.add_argument("--prefix", type=int, nargs="+", choices=[p for p, _ in CELLS], help="only cells with these P")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1, 3, 12], help="K")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--direct", type=int, default=100_000, help="tokens up to which baselines compute all pairs")
    parser.add_argument("--shape", choices=SHAPES, default="pocket", help="of the base agent, or of a published Qwen2")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--out", type=Path, help="also write the JSON here after every cell, and go on from it")
    options = parser.parse_args()
    options.cells = [cell for cell in CELLS if options.prefix is None or cell[0] in options.prefix]
    if options.quick:
        options.cells, options.pairs, options.repeat = [CELLS[0]], [3], 1
    return options


if __name__ == "__main__":
    main()
