"""Measure what a deliberation costs with the local model, against the same calls made one after another.

    python scripts/bench_deliberation.py --quick                     # under a minute
    python scripts/bench_deliberation.py --out deliberation.json     # P = 500, 2000, 8000
    python scripts/bench_deliberation.py --shape 0.5b --device cuda --dtype bfloat16     # also 1.5b

One environment step is a deliberation of four agents in three rounds, twelve calls, on a graph drawn anew (an edge
with probability 1/2), greedy. All calls of a step begin with the same P tokens and end with what they heard and a line
of their own.

serial    Each call by the model's own `generate` with its key-value cache, one after another.
1, 4, 16  Ours, with so many environments at once; each takes its next step when it is done with its last.
limit     What no scheduler can beat: every distinct prompt token of the 16 environments computed once, and as many
          decode passes as the replies need at the width that was reached, in a bare loop.

Arms alternate in one process; figures are medians over repetitions. The replies of all arms are compared token by
token; in float32 a single different one ends the benchmark with exit code 1 (in bfloat16 sums of another order may tip
the balance between two tokens; how many did is printed). Tokens, passes and the peak of matrix products are printed
beside the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bench_deliberation_arms import ROUNDS, Spoken, Step, limit, make_steps, ours, serial

from collab.models.engine.scheduler import Engine
from collab.models.local import LocalModel
from collab.testing.benchmarks import SHAPES, build_random_model, describe_device
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import CellRef, Sampling
from collab.types import Segment as Message
from collab.utils.files import write_json


def make_checkpoint(folder: Path, options: argparse.Namespace) -> Path:
    """A random model; of a published shape where one is asked for, with the tiny one's tokenizer."""
    context = max(options.prefix) + 2048
    if options.shape is None:
        return make_tiny_checkpoint(folder, hidden=options.hidden, layers=options.layers, context=context)
    build_random_model(folder, SHAPES[options.shape], context=context, dtype="bfloat16").save_pretrained(folder)
    return folder


async def measure(options: argparse.Namespace, folder: Path, prefix: int) -> dict[str, Any]:
    """All arms at one prefix length."""
    import transformers

    model = LocalModel(path=str(folder), device=options.device, dtype=options.dtype, max_batch=64)
    await model.probe()
    engine = model.engine
    assert isinstance(engine, Engine), "this model shares prefixes"
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=engine.checkpoint.model.dtype)
    plain = plain.to(engine.checkpoint.device).eval()
    ends = sorted(engine.checkpoint.ends)
    sampling = Sampling(temperature=0.0, max_tokens=options.reply)
    arms: dict[str, list[Spoken]] = {}
    different = compared = 0
    single = engine.checkpoint.model.dtype == torch.float32
    overheads = []
    for repetition in range(options.repeat + 1):
        steps = make_steps(model, 16 * options.steps, prefix, repetition)
        played: dict[str, Spoken] = {"serial": serial(model, plain, steps[:1], sampling, ends)}
        for environments in (1, 4, 16):
            engine.clear()
            played[str(environments)] = await ours(model, steps[: options.steps * environments], environments, sampling)
        overheads.append(1 - engine.compute_s / played["16"].seconds)
        played["limit"] = limit(engine, played["16"], prefix, 4096)
        for one, other in (("1", "serial"), ("4", "serial"), ("16", "serial"), ("1", "16"), ("4", "16")):
            pairs = differences(played[one], played[other])
            compared, different = compared + len(pairs), different + sum(pairs)
        if repetition:  # the first is the warm-up
            for name, spoken in played.items():
                arms.setdefault(name, []).append(spoken)
    await model.close()
    rate = {name: statistics.median(spoken.rate for spoken in all_) for name, all_ in arms.items()}
    last = arms["16"][-1]
    return {
        "prefix_tokens": prefix,
        "steps_per_s": {name: round(value, 4) for name, value in rate.items()},
        "one_environment_vs_serial": round(rate["1"] / rate["serial"], 2),
        "four_environments_vs_serial": round(rate["4"] / rate["serial"], 2),
        "sixteen_environments_vs_serial": round(rate["16"] / rate["serial"], 2),
        "limit_vs_sixteen": round(rate["limit"] / rate["16"], 2),
        "computed_vs_unique": round(last.computed_tokens / unique_tokens(last, model, steps), 3),
        "scheduler_share": round(statistics.median(overheads[1:]), 4),
        "mean_width": round(last.width, 1),
        "prompt_tokens": last.prompt_tokens,
        "computed_tokens": last.computed_tokens,
        "sampled_tokens": last.sampled,
        "peak_cache_mb": round(engine.peak_bytes / 1e6, 1),
        "replies_compared": compared,
        "replies_different": different,
        "replies_must_be_equal": single,
    }


def differences(one: Spoken, other: Spoken) -> list[bool]:
    """For every reply of the steps that both arms played, whether they differ."""
    steps = one.replies.keys() & other.replies.keys()
    return [
        mine != theirs for step in steps for mine, theirs in zip(one.replies[step], other.replies[step], strict=True)
    ]


def unique_tokens(spoken: Spoken, model: LocalModel, steps: Sequence[Step]) -> int:
    """Prompt tokens of the tree of all prompts, every shared piece once."""
    pieces: dict[tuple[tuple[int, ...], ...], int] = {}
    for number, replies in spoken.replies.items():
        said: dict[CellRef, Message] = {}
        step = steps[number]
        for cell, tokens in zip(step.dag.list_cells(ROUNDS), replies, strict=True):
            path = model.prompt_ids(step.prompt(cell, said)).pieces
            pieces |= {path[:depth]: len(path[depth - 1]) for depth in range(1, len(path) + 1)}
            said[cell] = Message(text=model.chat.decode(tokens), tokens=tokens, tokenizer=model.chat.fingerprint)
    return sum(pieces.values())


def main() -> None:
    """Measure, print a line per prefix length and the JSON."""
    parser = argparse.ArgumentParser(description="Measure what a deliberation costs with the local model.")
    parser.add_argument("--quick", action="store_true", help="P = 500, one step an environment, one repetition")
    parser.add_argument("--prefix", type=int, nargs="+", default=[500, 2000, 8000], help="shared tokens")
    parser.add_argument("--reply", type=int, default=60, help="longest reply in tokens")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="steps of each environment")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument(
        "--shape", choices=sorted(SHAPES), help="of a published Qwen2, instead of --hidden and --layers"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    if options.quick:
        options.prefix, options.repeat, options.steps = [500], 1, 1
    device = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device.replace("auto", "cpu")
    shape = SHAPES[options.shape] if options.shape else {"hidden": options.hidden, "layers": options.layers}
    report: dict[str, Any] = {"machine": describe_device(device), "model": shape}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder), options)
        report["prefixes"] = []
        for prefix in options.prefix:
            figures = asyncio.run(measure(options, checkpoint, prefix))
            report["prefixes"].append(figures)
            print(
                f"P={prefix}: 1 environment {figures['one_environment_vs_serial']}x serial, 16 environments "
                f"{figures['sixteen_environments_vs_serial']}x, limit {figures['limit_vs_sixteen']}x of that; "
                f"scheduler {figures['scheduler_share']:.1%}, computed/unique {figures['computed_vs_unique']}, "
                f"different replies {figures['replies_different']}/{figures['replies_compared']}",
                flush=True,
            )
    print(json.dumps(report))
    if options.out is not None:
        write_json(options.out, report)
    wrong = sum(one["replies_different"] for one in report["prefixes"] if one["replies_must_be_equal"])
    if wrong:
        raise SystemExit(f"{wrong} replies differ from those of another arm: these figures are worth nothing")


if __name__ == "__main__":
    main()
