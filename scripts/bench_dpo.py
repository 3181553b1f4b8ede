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
bound    The floating-point operations of ours at the peak of matrix products measured here: a lower limit.

Arms alternate in one process; seconds are medians over repetitions, warm-up excluded. Log-probabilities before the
first step and the losses of every step are compared between arms in the same run; in float32 a difference ends the
benchmark with exit code 1 (in bfloat16, log-probabilities that differ by over 0.01 per token of a reply). Where a
baseline would compute more than `--direct` tokens in a step, it computes one pair and the time of its passes is taken
K times, which favours it. Memory is the growth of the process (on a GPU: of what is allocated) during a step of the
kind that is timed, at the same number of pairs per pass; where these are fewer than K, the line says how many they are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bench_dpo_arms import SHAPES, Arm, PairIds, make_arms, make_model, make_pairs, operations
from torch import Tensor

from collab.testing.benchmarks import describe_device
from collab.trainers.batching import compute_token_ratio
from collab.trainers.distributed import bound_caches, release_memory
from collab.utils.files import write_json
from collab.utils.machine import read_memory_mb

CELLS = ((500, 40), (2000, 80), (8000, 100))
CLOSE = {"logp": 1e-4, "loss": 1e-5}
"""Differences between arms that rounding explains in float32."""
CLOSE_PER_TOKEN = 1e-2
"""The same in bfloat16, of the log-probability of a token."""
SAME = ("device", "threads")
"""Of `describe_device`, what all cells of a file have in common."""
MEASURED_ON = (*SAME, "load", "gemm_gflops")
"""Of `describe_device`, what a cell tells."""

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
    before = read_memory_mb()
    arm.step(pairs)
    return read_memory_mb("VmHWM") - before


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
                if options.out is not None:
                    write_json(options.out, report)
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
    parser.add_argument("--out", type=Path, help="also write the JSON here after every cell, and resume from it")
    options = parser.parse_args()
    options.cells = [cell for cell in CELLS if options.prefix is None or cell[0] in options.prefix]
    if options.quick:
        options.cells, options.pairs, options.repeat = [CELLS[0]], [3], 1
    return options


if __name__ == "__main__":
    main()
