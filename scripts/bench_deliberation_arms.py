"""What bench_deliberation.py measures: steps of a team, and each way to compute their replies."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from collab.config import EdgeSampler
from collab.graphs.dag import Dag
from collab.graphs.edges import sample
from collab.models.base import Request
from collab.models.engine.attention import PackedPass, PassSegment, Rows, SharedKeys
from collab.models.engine.scheduler import Engine
from collab.models.local import LocalModel
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
    words = ["tap", "Save", "button", "[7]", "Wi-Fi", "scroll down", "Contacts", '"Marta"', "input", "\n", "switch"]
    steps = []
    for number in range(count):
        text = f"Step {seed}.{number}: "
        while (missing := tokens - model.count_tokens(text)) > 0:
            text += " ".join(rng.choice(words) for _ in range(max(1, missing // 3))) + " "
        dag = sample(EdgeSampler(sampler="ordered", p=0.5), SLOTS, rng.getrandbits(32))
        steps.append(Step(shared=text, dag=dag))
    return steps


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
    """Measure the same work without decisions: full prefill passes, then decode passes of one width."""
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
