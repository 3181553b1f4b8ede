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
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from bench import SHAPES, describe_device

from collab.config import EdgeSampler
from collab.graphs.dag import Dag
from collab.graphs.edges import sample
from collab.models.base import Request
from collab.models.engine.attention import PackedPass, PassSegment, Rows, SharedKeys
from collab.models.engine.scheduler import Engine
from collab.models.local import LocalModel
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import CellRef, Prompt, Sampling
from collab.types import Segment as Message

SLOTS = ("ada", "ben", "cyd", "dee")
ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One environment step: what is on the screen, and who hears whom."""

    shared: str
    dag: Dag

    def prompt(self, cell: CellRef, said: dict[CellRef, Message]) -> Prompt:
        """What a cell reads."""
        heard = tuple(said[other] for other in self.dag.list_dependencies(cell))
        own = Message(text=f"\n\nYou are {cell.agent}, round {cell.round + 1} of {ROUNDS}. Reason, then act:\n")
        return Prompt(system="You operate a phone in a team.", shared=self.shared, segments=(*heard, own))


@dataclass(slots=True)
class Spoken:
    """What one arm did."""

    seconds: float
    steps: int
    replies: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    """Step → replies in conversation order."""
    sampled: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    width: float = 0.0

    @property
    def rate(self) -> float:
        """Environment steps per second."""
        return self.steps / self.seconds


def make_steps(model: LocalModel, count: int, tokens: int, seed: int) -> list[Step]:
    """Steps whose shared part has about `tokens` tokens."""
    rng = random.Random(seed)
    words = [
        "tap",
        "Save",
        "button",
        "[7]",
        "Wi-Fi",
        "scroll down",
        "Contacts",
        '"Marta"',
        "input",
        "\n",
        "switch",
        "ok",
    ]
    steps = []
    for number in range(count):
        text = f"Step {seed}.{number}: "
        while (missing := tokens - model.count_tokens(text)) > 0:
            text += " ".join(rng.choice(words) for _ in range(max(1, missing // 3))) + " "
        dag = sample(EdgeSampler(sampler="ordered", p=0.5), SLOTS, rng.getrandbits(32))
        steps.append(Step(shared=text, dag=dag))
    return steps


def make_checkpoint(folder: Path, options: argparse.Namespace) -> Path:
    """A random model; of a published shape where one is asked for, with the tiny one's tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    context = max(options.prefix) + 2048
    make_tiny_checkpoint(folder, hidden=options.hidden, layers=options.layers, context=context)
    if options.shape is not None:
        tiny = Qwen2Config.from_pretrained(folder)
        config = Qwen2Config(
            **SHAPES[options.shape],
            max_position_embeddings=context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tiny.eos_token_id,
            pad_token_id=tiny.pad_token_id,
            dtype=torch.bfloat16,
        )
        torch.manual_seed(0)
        Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


# ------------------------------------------------------------------------------------------------------------ arms


def serial(model: LocalModel, plain: Any, steps: Sequence[Step], sampling: Sampling, ends: list[int]) -> Spoken:
    """One call after another by `generate`."""
    spoken = Spoken(seconds=0.0, steps=len(steps))
    for number, step in enumerate(steps):
        said: dict[CellRef, Message] = {}
        replies = spoken.replies.setdefault(number, [])
        for cell in step.dag.list_cells(ROUNDS):
            started = time.perf_counter()
            ids = torch.tensor([model.prompt_ids(step.prompt(cell, said)).ids], device=plain.device)
            written = plain.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=sampling.max_tokens,
                eos_token_id=ends,
                pad_token_id=ends[0],
            )
            tokens = tuple(token for token in written[0, ids.shape[1] :].tolist() if token not in ends)
            spoken.seconds += time.perf_counter() - started
            replies.append(tokens)
            said[cell] = Message(text=model.chat.decode(tokens), tokens=tokens, tokenizer=model.chat.fingerprint)
    return spoken


async def ours(model: LocalModel, steps: Sequence[Step], environments: int, sampling: Sampling) -> Spoken:
    """So many environments at once, cells as soon as what they hear is there."""
    spoken = Spoken(seconds=0.0, steps=len(steps))
    widths: list[float] = []
    waiting = iter(enumerate(steps))

    async def speak(step: Step, cell: CellRef, said: dict[CellRef, asyncio.Task[Message]]) -> Message:
        heard = {other: await said[other] for other in step.dag.list_dependencies(cell)}
        reply = await model.generate(Request(prompt=step.prompt(cell, heard), sampling=sampling, seed=0))
        spoken.sampled += reply.completion_tokens or 0
        spoken.prompt_tokens += reply.prompt_tokens or 0
        spoken.computed_tokens += reply.computed_tokens or 0
        widths.extend([reply.width or 0.0] * (reply.completion_tokens or 0))
        return Message(text=reply.text, tokens=reply.tokens, tokenizer=reply.tokenizer)

    async def play() -> None:
        for number, step in waiting:
            said: dict[CellRef, asyncio.Task[Message]] = {}
            for cell in step.dag.list_cells(ROUNDS):
                said[cell] = asyncio.create_task(speak(step, cell, said))
            spoken.replies[number] = [(await task).tokens or () for task in said.values()]

    started = time.perf_counter()
    await asyncio.gather(*(play() for _ in range(environments)))
    spoken.seconds = time.perf_counter() - started
    spoken.width = statistics.harmonic_mean(widths)
    return spoken


@torch.inference_mode()
def limit(engine: Engine, reached: Spoken, prefix: int, prefill: int) -> Spoken:
    """The same work without anybody deciding anything: full prefill passes, then decode passes of one width."""
    checkpoint, shape = engine.checkpoint, engine.checkpoint.shape
    rows = max(1, round(reached.width))
    started = time.perf_counter()
    left = reached.computed_tokens
    while left > 0:
        count = min(left, prefill)
        runs = [min(prefix, count - first) for first in range(0, count, prefix)]
        _bare_prefill(engine, runs)
        left -= count
    own = shape.empty(1).new_zeros((shape.layers, 2, rows, shape.groups, 512, shape.size))
    every = torch.arange(rows, device=checkpoint.device)
    groups = torch.tensor_split(every, min(rows, 16))
    shared = [SharedKeys(kv=shape.empty(prefix).normal_(), tokens=group) for group in groups]
    tokens = torch.ones(rows, dtype=torch.long, device=checkpoint.device)
    lengths = torch.full((rows,), 200, device=checkpoint.device)
    positions = lengths + prefix
    for _ in range(round(reached.sampled / rows)):
        running = [Rows(first=0, kv=own, lengths=lengths, longest=201)]
        plan = PackedPass(rows=running, segments=[], shared=shared)
        tokens = checkpoint.forward(tokens, positions, every, plan).argmax(-1)
    tokens.tolist()
    return Spoken(seconds=time.perf_counter() - started, steps=reached.steps)


def _bare_prefill(engine: Engine, runs: Sequence[int]) -> None:
    checkpoint, shape = engine.checkpoint, engine.checkpoint.shape
    segments, first = [], 0
    for run in runs:
        segments.append(PassSegment(first=first, kept=[shape.empty(run)]))
        first += run
    every = torch.arange(first, device=checkpoint.device)
    plan = PackedPass(rows=(), segments=segments, shared=[])
    positions = torch.cat([torch.arange(run, device=checkpoint.device) for run in runs])
    checkpoint.forward(torch.ones_like(every), positions, every[:1], plan)


# ------------------------------------------------------------------------------------------------------- measuring


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
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    wrong = sum(one["replies_different"] for one in report["prefixes"] if one["replies_must_be_equal"])
    if wrong:
        raise SystemExit(f"{wrong} replies differ from those of another arm: these figures are worth nothing")


if __name__ == "__main__":
    main()
